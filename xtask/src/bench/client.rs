//! `bench client`: instructions per operation of one client, from two callgrind runs that differ in their op count.
//!
//! Both runs load the same keys and fill the same caches. One runs `--low` operations, the other `--high`. The cost of
//! one operation is the difference of the counts, divided by the difference of the operations. The costs of start, load
//! and warm-up are the same in both runs, so they are not in the difference. The measured program is an example that
//! takes `--op <name> --ops <n>` (and the arguments after `--`). It prints a line `ops <n>` with the number of
//! completed operations and, if an executor runs it, a line `polls <n>`.

mod record;

use super::{
    callgrind::{Origin, Profile},
    inlined,
    split::{Function, Part, split, split_functions},
};
use crate::{Result, workspace};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use xshell::{Shell, cmd};

/// The name of the allocator's functions in a list of functions.
const ALLOCATOR: &str = "allocator";

/// The arguments of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The package whose example is measured.
    #[arg(long, default_value = "dm-sherman")]
    package: String,
    /// The example; by default `sherman_client` for the package `dm-sherman`, and so on.
    #[arg(long)]
    example: Option<String>,
    /// The operations, one measurement each, by the names that the example accepts.
    #[arg(long = "op", default_values = ["get", "update", "insert", "scan"])]
    ops: Vec<String>,
    /// Operations of the shorter run.
    #[arg(long, default_value_t = 2_000)]
    low: u64,
    /// Operations of the longer run. Rare splits and merges are averaged only if it has 30,000 operations more than the
    /// shorter one.
    #[arg(long, default_value_t = 32_000)]
    high: u64,
    /// Number of functions to list for each operation, the most expensive first; 0 lists none.
    #[arg(long, default_value_t = 12)]
    top: usize,
    /// Print one JSON object per operation, each on a line, instead of tables.
    #[arg(long)]
    json: bool,
    /// Measure every operation of the indexes in docs/PERFORMANCE.md, and fail if the instructions differ from those
    /// recorded there by more than 3 %, or the polls by more than 0.005.
    #[arg(long, conflicts_with_all = ["package", "example", "ops", "json"])]
    check: bool,
    /// Measure every operation, and get and update also with verbs that complete when posted. Write the table of
    /// docs/PERFORMANCE.md, and the table of the functions in which get, update and insert spend their instructions.
    #[arg(long, conflicts_with_all = ["check", "package", "example", "ops", "json"])]
    record: bool,
    /// Arguments for the example.
    #[arg(last = true)]
    args: Vec<String>,
}

/// One operation's measurement: how much more the longer run did than the shorter one.
#[derive(Debug)]
struct Measured {
    op: String,
    operations: u64,
    /// Number of polls by the executor.
    polls: u64,
    more: Profile,
}

impl Measured {
    /// Returns the same measurement with counts by function instead of counts by address.
    fn placed(&self, origins: &BTreeMap<u64, Origin>) -> Self {
        Self {
            op: self.op.clone(),
            more: self.more.place(origins),
            ..*self
        }
    }

    /// Returns the instructions of one operation by function, for the client's own code and its allocations. The
    /// allocator's functions have an empty name.
    fn functions(&self, crates: &[String]) -> BTreeMap<Function, f64> {
        let mut functions = BTreeMap::new();
        for ((part, function), count) in split_functions(&self.more, crates) {
            if matches!(part, Part::Client(_) | Part::Allocator) {
                *functions.entry(function).or_default() += count / self.operations as f64;
            }
        }
        functions
    }

    fn polls_per_op(&self) -> f64 {
        self.polls as f64 / self.operations as f64
    }
}

/// Measures every requested operation.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    if options.low >= options.high {
        return Err(format!("--low {} must be below --high {}", options.low, options.high).into());
    }
    let shell = Shell::new()?;
    shell.change_dir(root);
    if !has_valgrind(&shell) {
        return Err("valgrind is not installed; on Debian: apt-get install valgrind".into());
    }
    if options.check || options.record {
        return record::run(root, options);
    }
    let example = options
        .example
        .clone()
        .unwrap_or_else(|| format!("{}_client", options.package.trim_start_matches("dm-")));
    let program = build(&shell, &options.package, &example)?;
    let crates = workspace::folders(root)?;
    for op in &options.ops {
        let measured = measure(&shell, &program, op, (options.low, options.high), &options.args)?;
        let origins = inlined::own_functions(&shell, &program, &measured.more.addresses(), &crates)?;
        let measured = measured.placed(&origins);
        let parts = split(&measured.more, &crates);
        if options.json {
            println!("{}", json(&measured, &parts));
        } else {
            print!(
                "{}",
                table(&measured, &parts, &measured.functions(&crates), options.top)
            );
        }
    }
    Ok(())
}

/// Returns whether valgrind is installed.
pub(super) fn has_valgrind(shell: &Shell) -> bool {
    let version = cmd!(shell, "valgrind --version");
    version.quiet().ignore_stderr().read().is_ok()
}

/// Runs one operation twice. Returns how many more operations the longer run completed, and how many more instructions
/// it took.
pub(super) fn count(
    shell: &Shell,
    program: &Path,
    op: &str,
    (low, high): (u64, u64),
    args: &[String],
) -> Result<(u64, i64)> {
    let measured = measure(shell, program, op, (low, high), args)?;
    Ok((measured.operations, measured.more.total()))
}

/// Runs one operation twice. Returns the difference of the counts, by address until [`Measured::placed`].
fn measure(
    shell: &Shell,
    program: &Path,
    op: &str,
    (low, high): (u64, u64),
    args: &[String],
) -> Result<Measured> {
    let dir = shell.create_temp_dir()?;
    let (few, low) = profile(shell, program, dir.path(), op, low, args)?;
    let (many, high) = profile(shell, program, dir.path(), op, high, args)?;
    let ([few, few_polls], [many, many_polls]) = (few, many);
    let operations = many.checked_sub(few).filter(|more| *more > 0).ok_or_else(|| {
        format!("{op}: the longer run completed {many} operations, the shorter {few}: nothing to divide by")
    })?;
    Ok(Measured {
        op: op.to_owned(),
        operations,
        polls: many_polls.saturating_sub(few_polls),
        more: high.minus(&low),
    })
}

/// Builds the example and returns its path.
pub(super) fn build(shell: &Shell, package: &str, example: &str) -> Result<PathBuf> {
    let messages = cmd!(
        shell,
        "cargo build --release -p {package} --example {example} --message-format=json-render-diagnostics"
    )
    .read()?;
    executable(&messages, example)
        .ok_or_else(|| format!("cargo names no executable for example `{example}`").into())
}

fn executable(messages: &str, example: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == example && message["target"]["kind"][0] == "example";
        is_it.then(|| message["executable"].as_str().map(PathBuf::from))?
    })
}

/// Runs the program under callgrind. Returns the number of completed operations, the executor's polls, and the counts.
fn profile(
    shell: &Shell,
    program: &Path,
    dir: &Path,
    op: &str,
    count: u64,
    args: &[String],
) -> Result<([u64; 2], Profile)> {
    let file = dir.join(format!("{op}-{count}.callgrind"));
    let count = count.to_string();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    // Only the addresses (--dump-instr) show which instructions were inlined.
    let output = cmd!(
        shell,
        "valgrind --quiet --tool=callgrind --dump-instr=yes --callgrind-out-file={file} {program} --op {op} --ops {count} {args...}"
    )
    .read()?;
    let completed = counted(&output, "ops ").ok_or_else(|| {
        format!(
            "{} printed no line `ops <n>`; it printed:\n{output}",
            program.display()
        )
    })?;
    let polls = counted(&output, "polls ").unwrap_or_default();
    Ok((
        [completed, polls],
        Profile::parse(&fs::read_to_string(file)?, &name)?,
    ))
}

pub(super) fn counted(output: &str, what: &str) -> Option<u64> {
    output
        .lines()
        .find_map(|line| line.strip_prefix(what)?.trim().parse().ok())
}

fn groups(parts: &BTreeMap<Part, f64>) -> BTreeMap<&'static str, f64> {
    let mut groups = BTreeMap::new();
    for (part, count) in parts {
        *groups.entry(part.group()).or_default() += count;
    }
    groups
}

fn json(measured: &Measured, parts: &BTreeMap<Part, f64>) -> serde_json::Value {
    let each = |count: &f64| count / measured.operations as f64;
    let parts: Vec<_> = parts
        .iter()
        .map(|(part, count)| {
            serde_json::json!({ "group": part.group(), "crate": part.name(), "instructions_per_op": each(count) })
        })
        .collect();
    serde_json::json!({
        "op": measured.op,
        "operations": measured.operations,
        "executor_polls_per_op": measured.polls_per_op(),
        "instructions_per_op": measured.more.total() as f64 / measured.operations as f64,
        "parts": parts,
    })
}

fn table(
    measured: &Measured,
    parts: &BTreeMap<Part, f64>,
    functions: &BTreeMap<Function, f64>,
    top: usize,
) -> String {
    let each = |count: f64| count / measured.operations as f64;
    let mut lines = vec![format!(
        "{}: instructions per operation, over {} operations of {:.3} polls",
        measured.op,
        measured.operations,
        measured.polls_per_op()
    )];
    // Two runs also differ in small costs, such as printing a longer number. These costs get no line.
    let counts = |count: f64| each(count).abs() >= 0.05;
    for (group, sum) in groups(parts).into_iter().filter(|(_, sum)| counts(*sum)) {
        lines.push(format!("  {:<34}{:>10.1}", group, each(sum)));
        let inner = parts
            .iter()
            .filter(|(part, count)| part.group() == group && !part.name().is_empty() && counts(**count));
        lines.extend(inner.map(|(part, count)| format!("    {:<32}{:>10.1}", part.name(), each(*count))));
    }
    lines.push(format!(
        "  {:<34}{:>10.1}",
        "total",
        each(measured.more.total() as f64)
    ));
    if top > 0 {
        lines.push("  the client by function of the source, callees not included:".to_owned());
        let mut of_source: BTreeMap<&str, f64> = BTreeMap::new();
        for (function, count) in functions {
            *of_source.entry(&function.source).or_default() += count;
        }
        let mut functions: Vec<_> = of_source.into_iter().collect();
        functions.sort_by(|(a, count), (b, more)| more.total_cmp(count).then(a.cmp(b)));
        let shown = functions.iter().take(top).filter(|(_, count)| *count >= 0.05);
        lines.extend(shown.map(|(name, count)| {
            let name = if name.is_empty() { ALLOCATOR } else { name };
            format!("    {count:>10.1}  {name}")
        }));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::{super::callgrind::Site, *};

    fn measured() -> (Measured, BTreeMap<Part, f64>) {
        let site = |function: &str| Site {
            function: function.to_owned(),
            file: "???".to_owned(),
            within: String::new(),
            address: 0,
        };
        let more = Profile {
            own: BTreeMap::from([(site("sherman::a"), 50), (site("sherman::b"), 250)]),
            ..Profile::default()
        };
        let parts = BTreeMap::from([
            (Part::Client("sherman".to_owned()), 120.0),
            (Part::Client("dm-leaf".to_owned()), 30.0),
            (Part::World("dm-loopback".to_owned()), 150.0),
        ]);
        (
            Measured {
                op: "get".to_owned(),
                operations: 10,
                polls: 20,
                more,
            },
            parts,
        )
    }

    #[test]
    fn the_table_sums_groups_and_lists_the_dearest_function_first() {
        let (measured, parts) = measured();
        let functions = measured.functions(&["sherman".to_owned()]);
        let table = table(&measured, &parts, &functions, 1);
        let fields: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            fields[1..4],
            [
                vec!["client", "15.0"],
                vec!["dm-leaf", "3.0"],
                vec!["sherman", "12.0"]
            ]
        );
        assert_eq!(fields[6], ["total", "30.0"]);
        assert_eq!(fields.last().unwrap(), &["25.0", "sherman::b"]);
    }

    #[test]
    fn json_holds_every_part_per_operation() {
        let (measured, parts) = measured();
        let object = json(&measured, &parts);
        assert_eq!(object["instructions_per_op"], 30.0);
        assert_eq!(object["parts"][2]["group"], "world");
        assert_eq!(object["parts"][2]["instructions_per_op"], 15.0);
    }

    #[test]
    fn the_completed_count_is_the_programs_own() {
        assert_eq!(counted("loading\nops 120\npolls 240\n", "ops "), Some(120));
        assert_eq!(counted("operations 120\nops many\n", "ops "), None);
    }

    #[test]
    fn the_example_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"client","kind":["bin"]},"executable":"/t/bin"}
{"reason":"compiler-artifact","target":{"name":"client","kind":["example"]},"executable":"/t/examples/client"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(
            executable(messages, "client"),
            Some(PathBuf::from("/t/examples/client"))
        );
        assert_eq!(executable(messages, "other"), None);
    }

    #[test]
    #[ignore = "needs valgrind and a release build: cargo test -p xtask -- --ignored"]
    fn a_program_of_known_cost_costs_that_and_the_same_every_time() {
        let shell = Shell::new().unwrap();
        shell.change_dir(workspace::root().unwrap());
        let program = build(&shell, "xtask", "toy").unwrap();
        let crates = ["xtask".to_owned()];
        let once = measure(&shell, &program, "any", (100, 1_100), &[]).unwrap();
        let again = measure(&shell, &program, "any", (100, 1_100), &[]).unwrap();
        assert_eq!(once.operations, 1_000);
        assert_eq!(once.more, again.more);
        let origins = inlined::own_functions(&shell, &program, &once.more.addresses(), &crates).unwrap();
        let once = once.placed(&origins);
        let parts = split(&once.more, &crates);
        let each: BTreeMap<_, _> = groups(&parts)
            .into_iter()
            .map(|(group, sum)| (group, sum / 1_000.0))
            .collect();
        // Each sum takes 2 to 8 instructions. The copy takes one instruction per 16 to 64 bytes, which count for the
        // caller.
        assert!((264.0..=1_100.0).contains(&each["harness"]), "{each:?}");
        assert!(each.get("rest").is_none_or(|rest| rest.abs() < 1.0), "{each:?}");
    }
}
