//! `mutants`: changes one place of a protocol at a time and finds out which test or model notices.
//!
//! `cargo mutants --list` lists the changes in the files that `.cargo/mutants.toml` names. One build contains all
//! mutants of a crate: each mutated function has a copy of its body for each of its mutants, and an environment
//! variable picks one (`switch.rs`). So testing a mutant costs a run of the tests and no build. First the crate's own
//! tests run. Then the mutants that survived are built again, with the models and with the tests of the crates that use
//! the mutated crate.
//!
//! A mutant that survives needs a reason in `xtask/mutants/CRATE.toml` (`reasons.rs`).

mod list;
mod outcomes;
mod reasons;
mod run;
mod stages;
mod switch;
mod tree;

use crate::Result;
use list::Mutant;
use outcomes::{Outcome, Outcomes};
use reasons::Reasons;
use run::Program;
use stages::{SUBJECTS, Stage, Subject};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};
use tree::{CompileError, Tree};

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Asked {
    /// Only these crates; all seven if none is named.
    crates: Vec<String>,
    /// List the mutants, with the reason of each that has one. Builds nothing, and fails if a reason is stale.
    #[arg(long)]
    list: bool,
    /// Run only mutants whose name contains this text, such as the name of a file.
    #[arg(long)]
    only: Option<String>,
    /// Run only the k-th of n parts of the mutants, such as `--shard 1/4`.
    #[arg(long, value_parser = shard)]
    shard: Option<(usize, usize)>,
    /// Run only the crates' own tests, without the models and tests of the crates above.
    #[arg(long)]
    own: bool,
    /// Keep the outcomes of the last run: mutants that were killed or do not compile, and mutants that survived tests
    /// that have not changed since. A survivor with a build of its own runs again if any file of the workspace has
    /// changed, except those of xtask.
    #[arg(long)]
    resume: bool,
    /// Also run mutants that have a reason.
    #[arg(long)]
    reasoned: bool,
    /// Start no more runs after this many minutes. Mutants that were not run are reported, and the command fails.
    #[arg(long)]
    minutes: Option<u64>,
}

/// Parses `k/n`.
fn shard(text: &str) -> std::result::Result<(usize, usize), String> {
    let parsed = text
        .split_once('/')
        .and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    parsed
        .filter(|(k, n)| (1..=*n).contains(k))
        .ok_or_else(|| format!("`{text}` is not a shard: write 1/4 for the first of four"))
}

/// Runs the command.
pub(crate) fn run(root: &Path, asked: &Asked) -> Result<()> {
    let mut problems = Vec::new();
    let mut chosen = Vec::new();
    for subject in subjects(&asked.crates)? {
        let mutants = list::list(root, subject)?;
        let reasons = Reasons::read(root, subject.name)?;
        problems.extend(reasons.stale(&mutants));
        chosen.push(Chosen {
            subject,
            mutants,
            reasons,
        });
    }
    if asked.list {
        chosen.iter().for_each(Chosen::print);
    } else {
        problems.extend(kill(root, asked, &chosen)?);
    }
    match problems.as_slice() {
        [] => Ok(()),
        _ => Err(format!("{}\n{} problems", problems.join("\n"), problems.len()).into()),
    }
}

fn subjects(names: &[String]) -> Result<Vec<&'static Subject>> {
    if names.is_empty() {
        return Ok(SUBJECTS.iter().collect());
    }
    let find = |name: &String| {
        let known = || {
            SUBJECTS
                .iter()
                .map(|subject| subject.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        SUBJECTS
            .iter()
            .find(|subject| subject.name == name)
            .ok_or_else(|| {
                format!(
                    "`{name}` is not a crate whose mutants are tested: choose from {}",
                    known()
                )
                .into()
            })
    };
    names.iter().map(find).collect()
}

/// A crate whose mutants were requested.
#[derive(Debug)]
struct Chosen {
    subject: &'static Subject,
    mutants: Vec<Mutant>,
    reasons: Reasons,
}

impl Chosen {
    fn print(&self) {
        println!("{}: {} mutants", self.subject.name, self.mutants.len());
        for mutant in &self.mutants {
            match self.reasons.of(&mutant.key) {
                Some(reason) => println!("  {}\n      {reason}", mutant.key),
                None => println!("  {}", mutant.key),
            }
        }
    }
}

/// One run of the command over its crates.
struct Campaign<'a> {
    tree: Tree,
    /// The stamp of the tree's files without mutants. It identifies the tests of a mutant that has a build of its own:
    /// the time of that build cannot, because the programs are built anew for each such mutant.
    sources: u128,
    outcomes: Outcomes,
    /// Functions that a constant calls. They stay `const`, so their mutants can't be switched at run time.
    constants: BTreeSet<String>,
    until: Option<Instant>,
    asked: &'a Asked,
}

/// The mutants that the tree contains, by crate.
type Held<'m> = Vec<(&'m Chosen, Vec<&'m Mutant>)>;

/// Runs every stage of every chosen crate, prints the table, and returns the problems.
fn kill(root: &Path, asked: &Asked, chosen: &[Chosen]) -> Result<Vec<String>> {
    let tree = Tree::copy(root)?;
    let mut campaign = Campaign {
        sources: tree.stamp(),
        tree,
        outcomes: Outcomes::open(root, chosen.iter().map(|c| c.subject.name), asked.resume)?,
        constants: BTreeSet::new(),
        until: asked
            .minutes
            .map(|minutes| Instant::now() + Duration::from_secs(60 * minutes)),
        asked,
    };
    for of in chosen {
        campaign.own_tests(of)?;
    }
    if !asked.own {
        campaign.tests_above(chosen)?;
    }
    let mut problems = Vec::new();
    println!("{}", outcomes::HEADING);
    for of in chosen {
        let tally = campaign.outcomes.tally(of.subject, &of.mutants, &of.reasons);
        println!("{}", tally.row);
        problems.extend(tally.problems);
    }
    Ok(problems)
}

impl Campaign<'_> {
    /// Runs the crate's own tests: first on all mutants that can share one build, then on the others with one build
    /// each.
    fn own_tests(&mut self, of: &Chosen) -> Result<()> {
        let stages: Vec<&Stage> = of.subject.stages.iter().filter(|stage| stage.is_own()).collect();
        while !self.over() {
            let held = self.settle(of)?;
            if self.run_stages(&stages, &vec![(of, held)])? {
                break;
            }
        }
        self.one_by_one(of, &stages, false)
    }

    /// Runs the tests of the crates that use the mutated crate, on the mutants that survived the crate's own tests.
    fn tests_above(&mut self, chosen: &[Chosen]) -> Result<()> {
        let mut stages: Vec<&Stage> = Vec::new();
        for stage in chosen.iter().flat_map(|of| of.subject.stages) {
            if !stage.is_own() && !stages.contains(&stage) {
                stages.push(stage);
            }
        }
        while !self.over() {
            self.tree.restore();
            let mut alive = Held::new();
            for of in chosen {
                let left = |m: &&Mutant| self.can_switch(m) && self.left_by_own(of, m);
                let mutants: Vec<&Mutant> = of.mutants.iter().filter(left).collect();
                self.tree.switch(of.subject.name, &mutants)?;
                alive.push((of, mutants));
            }
            if self.run_stages(&stages, &alive)? {
                break;
            }
        }
        for of in chosen {
            let stages: Vec<&Stage> = of.subject.stages.iter().filter(|stage| !stage.is_own()).collect();
            self.one_by_one(of, &stages, true)?;
        }
        Ok(())
    }

    fn over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Returns whether this mutant can share a build with others.
    fn can_switch(&self, mutant: &Mutant) -> bool {
        mutant
            .function
            .as_ref()
            .is_some_and(|f| f.constant.is_none() || !self.constants.contains(&f.name))
    }

    fn left_by_own(&self, of: &Chosen, mutant: &Mutant) -> bool {
        !self.outcomes.is_unviable(of.subject.name, &mutant.key)
            && !self.outcomes.killed_by_own(of.subject, &mutant.key)
    }

    /// Returns whether the mutant was requested and has no final outcome yet.
    fn wanted(&self, of: &Chosen, mutant: &Mutant) -> bool {
        self.asked
            .only
            .as_ref()
            .is_none_or(|part| mutant.key.contains(part.as_str()))
            && self.asked.shard.is_none_or(|(k, n)| mutant.id % n == k - 1)
            && (self.asked.reasoned || of.reasons.of(&mutant.key).is_none())
            && !self.outcomes.is_settled(of.subject.name, &mutant.key)
    }

    /// Puts the crate's mutants into the tree. If the tree does not compile, removes the mutants with errors and tries
    /// again.
    fn settle<'m>(&mut self, of: &'m Chosen) -> Result<Vec<&'m Mutant>> {
        let package = of.subject.name;
        for _ in 0..20 {
            let viable = |m: &&Mutant| self.can_switch(m) && !self.outcomes.is_unviable(package, &m.key);
            let mutants: Vec<&Mutant> = of.mutants.iter().filter(viable).collect();
            self.tree.restore();
            let places = self.tree.switch(package, &mutants)?;
            let errors = self.tree.check(package)?;
            if errors.is_empty() {
                return Ok(mutants);
            }
            let broken: BTreeSet<usize> = errors
                .iter()
                .filter_map(|e| places.mutant_at(&e.file, e.line))
                .collect();
            if !self.keep_constants(&errors) && broken.is_empty() {
                return Err(
                    format!("{package} with its mutants does not compile:\n{}", errors[0].text).into(),
                );
            }
            for mutant in mutants.iter().filter(|m| broken.contains(&m.id)) {
                self.outcomes
                    .record(package, "compiler", &mutant.key, &Outcome::Unviable, 0)?;
            }
        }
        Err(format!("{package} with its mutants does not compile after 20 attempts").into())
    }

    /// Records the functions that must stay `const` according to `errors`. Returns `false` if the errors name no
    /// further function.
    fn keep_constants(&mut self, errors: &[CompileError]) -> bool {
        let before = self.constants.len();
        self.constants
            .extend(errors.iter().filter_map(|e| e.needs_constant.clone()));
        self.constants.len() > before
    }

    /// Runs these stages on the mutants in the tree. Returns `false` if the tree must be filled again.
    fn run_stages(&mut self, stages: &[&Stage], held: &Held<'_>) -> Result<bool> {
        for stage in stages {
            let todo: Vec<(&Chosen, &Mutant)> = held
                .iter()
                .filter(|(of, _)| of.subject.stages.contains(stage))
                .flat_map(|(of, mutants)| mutants.iter().map(move |m| (*of, *m)))
                .filter(|(of, m)| self.wanted(of, m))
                .collect();
            if todo.is_empty() || self.over() {
                continue;
            }
            match self.tree.build(stage)? {
                Ok(programs) => self.run_all(stage, &programs, &todo)?,
                Err(errors) if self.keep_constants(&errors) => return Ok(false),
                Err(errors) => return Err(errors[0].text.clone().into()),
            }
        }
        Ok(true)
    }

    fn run_all(&mut self, stage: &Stage, programs: &[Program], todo: &[(&Chosen, &Mutant)]) -> Result<()> {
        let stamp = run::stamp(programs);
        let survived = |all: &Outcomes, of: &Chosen, m: &Mutant| {
            all.survived(of.subject.name, stage.name, &m.key, Some(stamp))
        };
        let todo: Vec<_> = todo
            .iter()
            .filter(|(of, m)| !survived(&self.outcomes, of, m))
            .collect();
        if todo.is_empty() {
            return Ok(());
        }
        let limits = run::baseline(programs)?;
        let mut likely = run::Likely::default();
        for (at, (of, mutant)) in todo.iter().enumerate() {
            if self.over() {
                break;
            }
            let outcome = run::first_kill(programs, mutant.id, &limits, &mut likely)?;
            let (package, key) = (of.subject.name, &mutant.key);
            eprintln!(
                "{} {}/{} {outcome}: {package} {key}",
                stage.name,
                at + 1,
                todo.len()
            );
            self.outcomes.record(package, stage.name, key, &outcome, stamp)?;
        }
        Ok(())
    }

    /// Builds and tests each mutant of the crate that cannot share a build.
    fn one_by_one(&mut self, of: &Chosen, stages: &[&Stage], above: bool) -> Result<()> {
        for mutant in &of.mutants {
            let todo = self.todo_alone(of, mutant, stages);
            if self.over() || todo.is_empty() || above && !self.left_by_own(of, mutant) {
                continue;
            }
            self.alone(of, mutant, &todo)?;
        }
        Ok(())
    }

    /// Returns the stages that a mutant with a build of its own has not survived with the current sources. Returns none
    /// if the mutant can share a build or is not wanted.
    fn todo_alone<'s>(&self, of: &Chosen, mutant: &Mutant, stages: &[&'s Stage]) -> Vec<&'s Stage> {
        if self.can_switch(mutant) || !self.wanted(of, mutant) {
            return Vec::new();
        }
        let (package, key) = (of.subject.name, &mutant.key);
        let survived = |stage: &Stage| {
            self.outcomes
                .survived(package, stage.name, key, Some(self.sources))
        };
        stages.iter().copied().filter(|stage| !survived(stage)).collect()
    }

    fn alone(&mut self, of: &Chosen, mutant: &Mutant, stages: &[&Stage]) -> Result<()> {
        let (package, key) = (of.subject.name, &mutant.key);
        self.tree.restore();
        self.tree.apply(mutant)?;
        for stage in stages {
            let outcome = match self.tree.build(stage)? {
                Ok(programs) => run::first_kill(&programs, 0, &BTreeMap::new(), &mut run::Likely::default())?,
                Err(_) => Outcome::Unviable,
            };
            eprintln!("{} alone {outcome}: {package} {key}", stage.name);
            self.outcomes
                .record(package, stage.name, key, &outcome, self.sources)?;
            if outcome != Outcome::Survived {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_one_of_several() {
        assert_eq!(shard("2/3"), Ok((2, 3)));
        for wrong in ["0/3", "4/3", "2", "a/b", "1/0"] {
            assert!(shard(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_survivor_with_a_build_of_its_own_runs_again_after_a_change() {
        let root = std::env::temp_dir().join(format!("xtask-alone-{}", std::process::id()));
        let subject = &SUBJECTS[0];
        let stages: Vec<&Stage> = subject.stages.iter().filter(|stage| stage.is_own()).collect();
        let mutant = |key: &str| Mutant {
            id: 1,
            key: key.to_owned(),
            file: String::new(),
            span: 0..0,
            replacement: String::new(),
            function: None,
        };
        let of = Chosen {
            subject,
            mutants: vec![mutant("survives"), mutant("is killed")],
            reasons: Reasons::default(),
        };
        let asked = Asked {
            crates: Vec::new(),
            list: false,
            only: None,
            shard: None,
            own: true,
            resume: true,
            reasoned: false,
            minutes: None,
        };
        let resumed = |test: &str| {
            let file = ("crates/dm-lock/tests/it/main.rs".to_owned(), test.into());
            let tree = Tree::of(&root, BTreeMap::from([file]));
            Campaign {
                sources: tree.stamp(),
                tree,
                outcomes: Outcomes::open(&root, [subject.name].into_iter(), true).unwrap(),
                constants: BTreeSet::new(),
                until: None,
                asked: &asked,
            }
        };
        let todo =
            |campaign: &Campaign<'_>| [0, 1].map(|at| campaign.todo_alone(&of, &of.mutants[at], &stages));
        let none: Vec<&Stage> = Vec::new();
        let mut first = resumed("a weak test");
        assert_eq!(todo(&first), [stages.clone(), stages.clone()]);
        let killed = Outcome::Killed("a test".to_owned());
        for (mutant, stage, outcome) in [
            (0, stages[0], Outcome::Survived),
            (0, stages[1], Outcome::Survived),
            (1, stages[0], killed),
        ] {
            let (key, stamp) = (&of.mutants[mutant].key, first.sources);
            let outcomes = &mut first.outcomes;
            outcomes
                .record(subject.name, stage.name, key, &outcome, stamp)
                .unwrap();
        }
        assert_eq!(todo(&resumed("a weak test")), [none.clone(), none.clone()]);
        assert_eq!(todo(&resumed("a strong test")), [stages.clone(), none]);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_crate_without_mutants_is_refused_by_name() {
        let error = subjects(&["dm-sim".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`dm-sim`") && error.contains("dm-lock"), "{error}");
        assert_eq!(subjects(&[]).unwrap().len(), SUBJECTS.len());
    }
}
