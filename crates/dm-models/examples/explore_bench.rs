//! How fast the explorer goes on Sherman's models, on one core: new states a second, and micro-steps a second.
//!
//! A search that began each path anew would replay its steps; going back to a kept state spares them. Both counts are
//! printed: steps taken, and steps with those that were spared. Rates are per second of CPU time.

#![expect(clippy::print_stdout, reason = "a bench's output is its purpose")]

use core::time::Duration;

use dm_explore::{Search, Verdict};
use dm_models::{Case, Entry, Size, Variant, find};

/// Entries and shapes: the tree with a split in it, two clients with two operations each; three clients; locks.
const MODELS: [(&str, &str); 5] = [
    ("tree-split", "2x1, 2 operations each"),
    ("tree-split", "3x1"),
    ("scan-merge", "merge, then split"),
    ("T-S4", "3x1"),
    ("line-versions", "split, writer, reader"),
];

fn main() {
    let mut total = (0.0, 0, 0, 0);
    for (name, shape) in MODELS {
        let entry = find(name).unwrap_or_else(|| panic!("no model {name}"));
        let (mut sum, mut ran) = ((0.0, 0, 0, 0), 0);
        for (number, _) in cases(entry, shape) {
            // Small models are run again until there is something to measure.
            for _ in 0..10 {
                let one = measure(entry, number);
                sum = (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2, sum.3 + one.3);
                ran += 1;
                if sum.0 > 1.0 {
                    break;
                }
            }
        }
        print(&format!("{name}, {shape} ({ran} runs)"), sum);
        total = (total.0 + sum.0, total.1 + sum.1, total.2 + sum.2, total.3 + sum.3);
    }
    print("all", total);
}

fn cases<'e>(entry: &'e Entry, shape: &'e str) -> impl Iterator<Item = (usize, Case)> + 'e {
    let all = entry.cases_of(Variant::Ours).into_iter().enumerate();
    all.filter(move |(_, case)| case.shape == shape && case.size == Size::Check)
}

/// Seconds, states, steps taken, steps spared.
type Sums = (f64, u64, u64, u64);

fn print(what: &str, (seconds, states, steps, spared): Sums) {
    let millions = |n: u64| n as f64 / seconds / 1e6;
    println!(
        "explore {what}: {states} states in {seconds:.2} s of CPU: {:.3} M new states/s, {:.2} M micro-steps/s taken, \
         {:.2} M micro-steps/s with those of replays spared",
        millions(states),
        millions(steps),
        millions(steps + spared),
    );
}

fn measure(entry: &Entry, number: usize) -> Sums {
    let before = cpu_seconds();
    let ran = entry.run(
        Variant::Ours,
        number,
        Search::exhaustive().time(Duration::from_secs(60)),
    );
    let report = ran.verdict.report();
    assert!(matches!(ran.verdict, Verdict::Pass(_)), "{}", ran.verdict);
    let seconds = match cpu_seconds().zip(before) {
        Some((after, before)) => after - before,
        None => report.time.as_secs_f64(),
    };
    (seconds, report.states, report.steps, report.spared)
}

/// Time on a core so far, where Linux tells it: other work on the machine does not count.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}
