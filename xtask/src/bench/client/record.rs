//! `bench client --check` and `--record`: compares measurements with the table of docs/PERFORMANCE.md, or writes it and
//! the table of functions.

use super::{ALLOCATOR, Function, Measured, Options, build, inlined, measure};
use crate::{Result, workspace};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
};
use xshell::Shell;

const PAGE: &str = "docs/PERFORMANCE.md";
const BEGIN: &str = "<!-- cargo xtask bench client --record -->\n";
/// The line before the table of functions.
const FUNCTIONS: &str = "<!-- cargo xtask bench client --record: functions -->\n";
const END: &str = "<!-- end -->";
/// The indexes, by the names of their directories.
const INDEXES: [&str; 4] = ["sherman", "smart", "chime", "dolphin"];
const OPS: [&str; 9] = [
    "get",
    "absent",
    "shared-get",
    "update",
    "insert",
    "remove",
    "scan",
    "item-get",
    "item-update",
];
/// Operations that `--record` also measures with verbs that complete when posted.
const READY: [&str; 2] = ["get", "update"];
/// Operations whose functions `--record` lists.
const EXPLAINED: [&str; 3] = ["get", "update", "insert"];
/// The smallest share of an operation's instructions that the listed functions have together.
const NAMED: f64 = 0.85;
/// Maximum number of functions of the source that are named for each compiled function.
const SOURCES: usize = 4;
/// Number of measurements that run in parallel. Each callgrind uses one core.
const THREADS: usize = 2;
/// The largest relative difference from the recorded instructions that a check accepts.
const TOLERANCE: f64 = 0.03;
/// The largest difference from the recorded polls that a check accepts. Polls depend only on the keys.
const POLLS_TOLERANCE: f64 = 0.005;

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
struct Figures {
    /// Polls of the executor for each operation.
    polls: f64,
    /// Instructions of the client's own code and of its allocations, with verbs that complete later.
    pending: f64,
    /// Instructions with verbs that complete when posted. A check does not measure this.
    ready: Option<f64>,
}

type Table = BTreeMap<(String, String), Figures>;

/// The instructions of an operation by function, for each index and each operation of [`EXPLAINED`].
type Explained = BTreeMap<(String, String), BTreeMap<Function, f64>>;

/// Measures every operation of all `INDEXES`, and compares the results with the page, or writes them into it.
pub(super) fn run(root: &Path, options: &Options) -> Result<()> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    let mut programs = BTreeMap::new();
    for index in INDEXES {
        let (package, example) = (format!("dm-{index}"), format!("{index}_client"));
        programs.insert(index, build(&shell, &package, &example)?);
    }
    let (measured, functions) = measure_all(root, &programs, options)?;
    let page = fs::read_to_string(root.join(PAGE))?;
    if options.record {
        let (before, _, after) = parts(&page, BEGIN)?;
        let page = format!("{before}{BEGIN}{}{END}{after}", write(&measured));
        let (before, _, after) = parts(&page, FUNCTIONS)?;
        let page = format!("{before}{FUNCTIONS}{}{END}{after}", explain(&functions));
        return Ok(fs::write(root.join(PAGE), page)?);
    }
    let (_, old, _) = parts(&page, BEGIN)?;
    let differences = differences(&read(old)?, &measured);
    print!("{}", write(&measured));
    match differences.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{PAGE} says otherwise; if this is meant, run `cargo xtask bench client --record`:\n{}",
            differences.join("\n")
        )
        .into()),
    }
}

/// One measurement: an operation, with verbs that complete later or when posted.
#[derive(Clone, Copy, Debug)]
struct Case {
    package: &'static str,
    op: &'static str,
    pending: bool,
}

impl Case {
    /// Returns the operations of the two runs.
    fn ops(self) -> (u64, u64) {
        match self.op {
            // A scan costs as much as many gets, and its cost varies less, so fewer operations are enough.
            "scan" => (500, 2_500),
            "item-get" | "item-update" => (1_000, 11_000),
            // Splits and merges are rare, so the costs of these operations vary more.
            "insert" | "remove" | "update" => (2_000, 32_000),
            _ => (2_000, 12_000),
        }
    }

    fn args(self) -> [String; 4] {
        // Items are inserted one by one, which takes long.
        let keys = if self.op.starts_with("item") {
            "2000"
        } else {
            "50000"
        };
        let complete = if self.pending { "later" } else { "at-first-poll" };
        ["--keys", keys, "--complete", complete].map(str::to_owned)
    }
}

fn measure_all(
    root: &Path,
    programs: &BTreeMap<&str, PathBuf>,
    options: &Options,
) -> Result<(Table, Explained)> {
    let mut cases = Vec::new();
    for package in INDEXES {
        let case = |pending| move |op| Case { package, op, pending };
        cases.extend(OPS.map(case(true)));
        if options.record {
            cases.extend(READY.map(case(false)));
        }
    }
    let mut measured = run_all(root, programs, cases)?;
    // Measurements with pending verbs come first, because they determine the line of the table.
    measured.sort_by_key(|(case, _)| !case.pending);
    let crates = workspace::folders(root)?;
    let shell = Shell::new()?;
    let (mut table, mut explained) = (Table::new(), Explained::new());
    for (package, program) in programs {
        let of_package = || measured.iter().filter(|(case, _)| case.package == *package);
        // This runs once for each program, because reading its debug information takes as long as a run.
        let addresses = of_package().flat_map(|(_, measured)| measured.more.addresses());
        let origins = inlined::own_functions(&shell, program, &addresses.collect(), &crates)?;
        for (case, measured) in of_package() {
            let functions = measured.placed(&origins).functions(&crates);
            let own: f64 = functions.values().sum();
            let figures = Figures {
                polls: measured.polls_per_op(),
                pending: own,
                ready: None,
            };
            let key = ((*package).to_owned(), case.op.to_owned());
            if case.pending && EXPLAINED.contains(&case.op) {
                explained.insert(key.clone(), functions);
            }
            match case.pending {
                true => drop(table.insert(key, figures)),
                false => table.entry(key).or_insert(figures).ready = Some(own),
            }
        }
    }
    Ok((table, explained))
}

fn run_all(
    root: &Path,
    programs: &BTreeMap<&str, PathBuf>,
    cases: Vec<Case>,
) -> Result<Vec<(Case, Measured)>> {
    let (left, done) = (Mutex::new(cases), Mutex::new(Vec::new()));
    // Errors are converted to text here, because boxed errors are not `Send`.
    let worker = || -> std::result::Result<(), String> {
        loop {
            let Some(case) = left.lock().map_err(|e| e.to_string())?.pop() else {
                return Ok(());
            };
            let run = || -> Result<Measured> {
                let shell = Shell::new()?;
                shell.change_dir(root);
                let program = &programs[case.package];
                measure(&shell, program, case.op, case.ops(), &case.args())
            };
            let measured = run().map_err(|e| format!("{case:?}: {e}"))?;
            done.lock().map_err(|e| e.to_string())?.push((case, measured));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a worker panicked".to_owned())?)
    })?;
    done.into_inner().map_err(|e| e.to_string().into())
}

/// Splits the page into the part before the table that begins with this line, the table, and the part after the table.
fn parts<'p>(page: &'p str, begin: &str) -> Result<(&'p str, &'p str, &'p str)> {
    let broken = || format!("{PAGE} has no table between {begin:?} and {END:?}");
    let (before, rest) = page.split_once(begin).ok_or_else(broken)?;
    let (table, after) = rest.split_once(END).ok_or_else(broken)?;
    Ok((before, table, after))
}

fn write(table: &Table) -> String {
    let mut lines = vec![
        "| index | operation | executor polls | instructions | completed at first poll |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for package in INDEXES {
        for op in OPS {
            if let Some(Figures {
                polls,
                pending,
                ready,
            }) = table.get(&(package.to_owned(), op.to_owned()))
            {
                let ready = ready.map_or_else(String::new, |ready| format!("{ready:.0}"));
                lines.push(format!(
                    "| {package} | {op} | {polls:.3} | {pending:.0} | {ready} |"
                ));
            }
        }
    }
    lines.join("\n") + "\n"
}

/// Writes the table of functions: for each index the compiled functions, the most expensive first, until they have
/// [`NAMED`] of the instructions of each operation.
fn explain(explained: &Explained) -> String {
    let mut lines = vec![
        format!("| index | function | {} | inlined code |", EXPLAINED.join(" | ")),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    for index in INDEXES {
        // The instructions by compiled function and operation, and by source function.
        let mut compiled: BTreeMap<&str, ([f64; EXPLAINED.len()], BTreeMap<&str, f64>)> = BTreeMap::new();
        for (nth, op) in EXPLAINED.iter().enumerate() {
            let functions = explained.get(&(index.to_owned(), (*op).to_owned()));
            for (function, count) in functions.into_iter().flatten() {
                let (counts, sources) = compiled.entry(&function.compiled).or_default();
                counts[nth] += count;
                *sources.entry(&function.source).or_default() += count;
            }
        }
        let mut rows: Vec<_> = compiled.into_iter().collect();
        rows.sort_by(|(_, (a, _)), (_, (b, _))| b.iter().sum::<f64>().total_cmp(&a.iter().sum()));
        let mut all = [0.0; EXPLAINED.len()];
        for (_, (counts, _)) in &rows {
            (0..all.len()).for_each(|nth| all[nth] += counts[nth]);
        }
        let mut left = all;
        for (name, (counts, sources)) in rows {
            if (0..all.len()).all(|nth| left[nth] <= (1.0 - NAMED) * all[nth]) {
                break;
            }
            (0..all.len()).for_each(|nth| left[nth] -= counts[nth]);
            let name = if name.is_empty() {
                ALLOCATOR.to_owned()
            } else {
                format!("`{name}`")
            };
            lines.push(format!(
                "| {index} | {name} | {} | {} |",
                cells(&counts),
                most(&sources)
            ));
        }
        lines.push(format!("| {index} | all others | {} |  |", cells(&left)));
    }
    lines.join("\n") + "\n"
}

fn cells(counts: &[f64]) -> String {
    // Two runs also differ in small costs, so a count may be slightly below zero.
    let cells: Vec<_> = counts
        .iter()
        .map(|count| format!("{:.0}", count.max(0.0)))
        .collect();
    cells.join(" | ")
}

/// Names the most expensive functions of the source, if there are several.
fn most(sources: &BTreeMap<&str, f64>) -> String {
    let mut sources: Vec<_> = sources.iter().filter(|(_, count)| **count >= 1.0).collect();
    if sources.len() < 2 {
        return String::new();
    }
    sources.sort_by(|(a, count), (b, more)| more.total_cmp(count).then(a.cmp(b)));
    let names: Vec<_> = sources
        .iter()
        .take(SOURCES)
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    names.join(", ")
}

fn read(table: &str) -> Result<Table> {
    let line = |line: &str| -> Result<((String, String), Figures)> {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [package, op, polls, pending, ready] = cells[..] else {
            return Err(format!("{PAGE}: not a line of the table: {line}").into());
        };
        let figures = Figures {
            polls: polls.parse()?,
            pending: pending.parse()?,
            ready: ready.parse().ok(),
        };
        Ok(((package.to_owned(), op.to_owned()), figures))
    };
    table.lines().skip(2).map(line).collect()
}

/// Returns the differences in both directions. An improvement must be recorded too, so that a later loss is noticed.
fn differences(recorded: &Table, measured: &Table) -> Vec<String> {
    let mut differences = Vec::new();
    for ((package, op), now) in measured {
        let name = format!("{package} {op}");
        match recorded.get(&(package.clone(), op.clone())) {
            None => differences.push(format!("  {name}: not recorded")),
            Some(then) => {
                let change = now.pending / then.pending - 1.0;
                if change.abs() > TOLERANCE {
                    let percent = change * 100.0;
                    differences.push(format!(
                        "  {name}: {:.0} instructions, {:.0} are recorded ({percent:+.1} %)",
                        now.pending, then.pending
                    ));
                }
                if (now.polls - then.polls).abs() > POLLS_TOLERANCE {
                    differences.push(format!(
                        "  {name}: {:.3} polls of the executor, {:.3} are recorded",
                        now.polls, then.polls
                    ));
                }
            }
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &[(&str, &str, f64, f64)]) -> Table {
        let line = |&(package, op, polls, pending): &(&str, &str, f64, f64)| {
            let ready = Some(1.0);
            (
                (package.to_owned(), op.to_owned()),
                Figures {
                    polls,
                    pending,
                    ready,
                },
            )
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn a_table_comes_back_from_its_page() {
        let written = table(&[
            ("sherman", "get", 1.0, 1141.0),
            ("chime", "scan", 7.125, 20_000.0),
        ]);
        let page = format!("# Before\n{BEGIN}{}{END}\nafter\n", write(&written));
        let (before, table, after) = parts(&page, BEGIN).unwrap();
        assert_eq!((before, after), ("# Before\n", "\nafter\n"));
        assert_eq!(read(table).unwrap(), written);
        assert!(parts("no table", BEGIN).is_err());
        assert!(read("a\nb\n| sherman | get | 1 |").is_err());
    }

    #[test]
    fn the_dearest_functions_are_named_until_little_is_left() {
        let function = |compiled: &str, source: &str, count: f64| {
            let function = Function {
                compiled: compiled.to_owned(),
                source: source.to_owned(),
            };
            (function, count)
        };
        let get = BTreeMap::from([
            function("a::get", "a::get", 50.0),
            function("a::get", "b::marks", 40.0),
            function("c::rare", "c::rare", 9.0),
            function("", "", 1.0),
        ]);
        let explained = Explained::from([(("sherman".to_owned(), "get".to_owned()), get)]);
        let table = explain(&explained);
        let lines: Vec<_> = table.lines().skip(2).take(2).collect();
        assert_eq!(
            lines,
            [
                "| sherman | `a::get` | 90 | 0 | 0 | `a::get`, `b::marks` |",
                "| sherman | all others | 10 | 0 | 0 |  |"
            ]
        );
    }

    #[test]
    fn gains_and_losses_beyond_the_tolerance_are_told_and_others_are_not() {
        let recorded = table(&[("sherman", "get", 1.0, 1000.0)]);
        let told =
            |polls, pending| differences(&recorded, &table(&[("sherman", "get", polls, pending)])).len();
        assert_eq!([told(1.0, 1029.0), told(1.0, 971.0)], [0, 0]);
        assert_eq!(
            [told(1.0, 1031.0), told(1.0, 969.0), told(1.01, 1000.0)],
            [1, 1, 1]
        );
        assert_eq!(differences(&Table::new(), &recorded).len(), 1);
    }

    #[test]
    fn the_page_can_be_read_and_has_every_operation_of_sherman() {
        let page = fs::read_to_string(workspace::root().unwrap().join(PAGE)).unwrap();
        let recorded = read(parts(&page, BEGIN).unwrap().1).unwrap();
        let of_sherman = recorded.keys().filter(|(package, _)| package == INDEXES[0]);
        assert_eq!(of_sherman.count(), OPS.len());
        assert!(
            recorded
                .values()
                .all(|line| line.pending > 0.0 && line.polls > 0.0)
        );
    }
}
