//! What a run of a model found, and how much it covered.

use core::fmt;
use core::time::Duration;

use crate::knobs::{Elapsed, Knobs, Retries};
use crate::trace::{Trace, TraceStep};

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// No order of the operations explains their results.
    NotLinearizable {
        /// The piece of the history that shows it.
        why: String,
    },
    /// An invariant does not hold.
    Invariant {
        /// Its name.
        name: &'static str,
        /// Why.
        why: String,
    },
    /// More clients are inside a section than may be.
    Monitor {
        /// The client that came last, from 0.
        client: u8,
        /// The section.
        name: &'static str,
        /// How many are inside.
        inside: u32,
        /// How many may be.
        limit: u32,
    },
    /// A client found something wrong itself.
    Check {
        /// Which, from 0.
        client: u8,
        /// What.
        why: String,
    },
    /// A client panicked.
    Panic {
        /// Which, from 0.
        client: u8,
        /// Its message.
        message: String,
    },
    /// These clients (from 0) wait, and nothing is left that could wake them.
    Stuck {
        /// Which.
        clients: Vec<u8>,
    },
    /// The client acted differently after having observed the same: it keeps something across `rewind`, or looks at
    /// state that is neither remote nor behind `dm-sync`.
    NotDeterministic {
        /// Which, from 0.
        client: u8,
    },
}

impl Failure {
    pub(crate) fn tell(&self, names: &[String]) -> String {
        let name = |c: &u8| {
            names
                .get(usize::from(*c))
                .cloned()
                .unwrap_or_else(|| format!("client {c}"))
        };
        match self {
            Self::NotLinearizable { why } => format!("not linearizable\n{}", why.trim_end()),
            Self::Invariant { name, why } => format!("invariant `{name}` broken: {why}"),
            Self::Monitor {
                client,
                name: section,
                inside,
                limit,
            } => format!(
                "{} entered `{section}`: {inside} clients are inside, at most {limit} may be",
                name(client)
            ),
            Self::Check { client, why } => format!("{} reports: {why}", name(client)),
            Self::Panic { client, message } => format!("{} panicked: {message}", name(client)),
            Self::Stuck { clients } => {
                let who: Vec<String> = clients.iter().map(name).collect();
                format!("stuck: {} wait(s), and nothing can change", who.join(", "))
            }
            Self::NotDeterministic { client } => format!(
                "{} acted differently after observing the same: a lying `rewind`, or hidden state",
                name(client)
            ),
        }
    }
}

/// How the states were gone through.
///
/// ```
/// use dm_explore::{Client, Coverage, Cut, Model, NoSpec, Search, Verdict};
/// use dm_verbs::{NodeId, RemotePtr, Verbs};
///
/// let word = RemotePtr::new(NodeId(0), 64).unwrap();
/// let add = move |c: Client<(), NoSpec>| async move {
///     c.verbs().faa(word, 1).await.unwrap();
/// };
/// let model = Model::new("adds").client("A", 0, add).client("B", 1, add);
/// assert_eq!(model.run(Search::exhaustive()).report().coverage, Coverage::Exhaustive);
/// let some = model.run(Search::random(7, 10));
/// assert_eq!(some.report().coverage, Coverage::Sampled { runs: 10, seed: 7 });
/// // One that ended early is no pass.
/// let cut = model.run(Search::exhaustive().states(1));
/// assert!(matches!(cut, Verdict::Truncated { by: Cut::States, .. }));
/// assert_eq!(cut.report().coverage, Coverage::Partial);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// Every reachable state within the bounds of the model.
    Exhaustive,
    /// Some of the states: the search ended before it had reached all.
    Partial,
    /// This many runs, chosen at random from this seed: no claim beyond them.
    Sampled {
        /// Runs.
        runs: u64,
        /// Seed.
        seed: u64,
    },
}

/// How much was gone through, and under which assumptions.
///
/// No example: what a search answers with, to be read.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The model's name.
    pub model: String,
    /// How.
    pub coverage: Coverage,
    /// Different states (0 where no cache was kept).
    pub states: u64,
    /// Micro-steps taken, those of replays included.
    pub steps: u64,
    /// Micro-steps of replays that going back to a kept state spared.
    pub spared: u64,
    /// Executions begun.
    pub executions: u64,
    /// Different end states.
    pub ends: u64,
    /// A hash of the set of end states: searches that differ in method must agree on it.
    pub ends_hash: (u64, u64),
    /// The longest run, steps.
    pub depth: u32,
    /// Wall-clock time.
    pub time: Duration,
    /// The freedoms that were explored.
    pub knobs: Knobs,
    /// What the model itself bounds or promises, and the engine's own assumptions.
    pub assumptions: Vec<String>,
}

impl Report {
    pub(crate) fn engine_assumptions(knobs: &Knobs) -> Vec<String> {
        let mut all = vec![
            "remote memory is sequentially consistent per unit; nothing orders queue pairs but awaited completions"
                .to_owned(),
            "a completion means that the request took effect; no loss, retransmission or queue-pair error".to_owned(),
            "atomics of one queue pair run in order; READs and atomics never overtake an earlier WRITE to the same memory"
                .to_owned(),
            "payloads are copied at posting, so reuse of a send buffer can't be seen".to_owned(),
            "states are told apart by 128-bit fingerprints of what each client observed; clients are deterministic"
                .to_owned(),
            "a pausing client is woken only by a change of what it read: livelock and starvation go unseen".to_owned(),
        ];
        if knobs.retries == Retries::Rewound {
            all.push(
                "a failed attempt of a retry loop leaves nothing behind (`rewind`); budgets never run out"
                    .into(),
            );
        }
        if knobs.elapsed == Elapsed::Never {
            all.push("no time limit is ever reached".into());
        }
        if knobs.elapsed == Elapsed::Clock {
            all.push("time passes where the model says so, and nowhere else".into());
        }
        all
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.coverage {
            Coverage::Exhaustive => write!(f, "exhaustive within its bounds: {} states", self.states)?,
            Coverage::Partial => write!(f, "{} states", self.states)?,
            Coverage::Sampled { runs, seed } => {
                write!(f, "{runs} sampled runs (seed {seed}), no claim beyond them")?
            }
        }
        write!(
            f,
            ", {} end states, depth {}, {} steps, {} executions, {:.3} s",
            self.ends,
            self.depth,
            self.steps,
            self.executions,
            self.time.as_secs_f64()
        )?;
        write!(f, "\n  knobs: {}", self.knobs)?;
        for a in &self.assumptions {
            write!(f, "\n  assuming: {a}")?;
        }
        Ok(())
    }
}

/// Why a search ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// The limit of states.
    States,
    /// The limit of time.
    Time,
    /// The limit of micro-steps.
    Steps,
    /// A run was longer than the limit.
    Depth,
    /// A state offered more steps than the search can choose among (128).
    Width,
}

/// A run that breaks the model.
#[derive(Clone, PartialEq, Debug)]
pub struct Counterexample {
    /// What went wrong.
    pub failure: Failure,
    /// The choices: [`crate::Model::replay`] runs them again.
    pub trace: Trace,
    /// The same in words.
    pub steps: Vec<TraceStep>,
    /// Names of the clients.
    pub clients: Vec<String>,
    /// Names of the lines touched, with their numbers as in [`crate::Touch`].
    pub lines: Vec<(u32, String)>,
    /// Whether no shorter run fails (it was found breadth-first).
    pub shortest: bool,
    /// What was gone through until it was found.
    pub report: Report,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = if self.shortest { "shortest run" } else { "a run" };
        writeln!(
            f,
            "{}: {} ({length}, {} steps)",
            self.report.model,
            self.failure.tell(&self.clients),
            self.steps.len()
        )?;
        for (i, step) in self.steps.iter().enumerate() {
            let who = self.clients.get(step.client).map_or("?", String::as_str);
            writeln!(f, "{:>4}. {who}: {}", i + 1, step.what)?;
            for then in &step.then {
                writeln!(f, "        {who} {then}")?;
            }
        }
        write!(
            f,
            "replay with trace \"{}\"\n  knobs: {}",
            self.trace, self.report.knobs
        )
    }
}

/// What came of exploring a model.
#[derive(Clone, PartialEq, Debug)]
#[must_use = "only `Pass` is a pass"]
pub enum Verdict {
    /// Nothing failed, and nothing was left out.
    Pass(Box<Report>),
    /// A run fails.
    Counterexample(Box<Counterexample>),
    /// The search was cut short: nothing is known, so this is no pass.
    Truncated {
        /// By which limit.
        by: Cut,
        /// How far it came.
        report: Box<Report>,
    },
}

impl Verdict {
    /// Whether it passed.
    #[must_use]
    pub fn is_pass(&self) -> bool {
        matches!(self, Self::Pass(_))
    }

    /// The counterexample, if there is one.
    #[must_use]
    pub fn counterexample(&self) -> Option<&Counterexample> {
        match self {
            Self::Counterexample(found) => Some(found),
            _ => None,
        }
    }

    /// How much was gone through.
    #[must_use]
    pub fn report(&self) -> &Report {
        match self {
            Self::Pass(report) | Self::Truncated { report, .. } => report,
            Self::Counterexample(found) => &found.report,
        }
    }

    /// For tests: what was covered.
    ///
    /// # Panics
    /// With the whole story unless it passed.
    #[track_caller]
    pub fn expect_pass(self) -> Report {
        match self {
            Self::Pass(report) => *report,
            other => panic!("{other}"),
        }
    }

    /// For tests of broken twins: what was found.
    ///
    /// # Panics
    /// Unless there is a counterexample.
    #[track_caller]
    pub fn expect_counterexample(self) -> Counterexample {
        match self {
            Self::Counterexample(found) => *found,
            other => panic!("a counterexample was expected\n{other}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass(report) => write!(f, "{}: PASS, {report}", report.model),
            Self::Counterexample(found) => write!(f, "FAIL {found}"),
            Self::Truncated { by, report } => {
                let limit = match by {
                    Cut::States => "states",
                    Cut::Time => "time",
                    Cut::Steps => "steps",
                    Cut::Depth => "depth of a run",
                    Cut::Width => "steps offered at once",
                };
                write!(
                    f,
                    "{}: TRUNCATED by the limit of {limit}, which is no pass; so far {report}",
                    report.model
                )
            }
        }
    }
}
