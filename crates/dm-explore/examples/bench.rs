//! How fast the explorer goes: micro-steps (replays included) and new states per second, one core.
//!
//! The model is Sherman's lock and write-back: clients on two compute nodes add to a counter in a node under dm-lock's
//! hierarchical locks, with every weak freedom of the RNIC. Prints one line per model and search; rates are per second of
//! CPU time.

#![expect(clippy::print_stdout, reason = "a bench's output is its purpose")]

use core::time::Duration;

use dm_explore::{Client, Counter, CounterOp, Knobs, Model, Search, Verdict};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_verbs::{NodeId, RemotePtr, Verbs};

const NODE: u64 = 4096;

async fn add(c: &Client<Locks, Counter>, lines: u32) -> u64 {
    let v = c.verbs();
    let node = RemotePtr::new(NodeId(0), NODE).expect("a small offset");
    let locked = c.shared().lock_and_read(v, node, node, 64 * lines).await;
    let (guard, mut bytes) = locked.expect("the model has no faults");
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    let old = u64::from_le_bytes(word);
    for line in bytes.chunks_mut(64) {
        line[..8].copy_from_slice(&(old + 1).to_le_bytes());
    }
    let written = guard.write_back(v.chain(node.node()).write(node, &bytes)).await;
    written.expect("the model has no faults");
    old
}

fn model(nodes: &[u16], adds: u32, lines: u32) -> Model<Locks, Counter> {
    let table = GlobalLockTable::on_chip(1, 1);
    let mut model = Model::new(format!(
        "{} clients x {adds} adds, node of {lines} lines",
        nodes.len()
    ))
    .shared(move |_| Locks::new(LockOptions::default(), table.clone()))
    .spec(Counter(0))
    .knobs(Knobs::weak());
    for (i, &node) in nodes.iter().enumerate() {
        model = model.client(format!("C{i}"), node, move |c| async move {
            for _ in 0..adds {
                c.op(CounterOp::Add(1), add(&c, lines)).await;
                c.forget();
            }
        });
    }
    model
}

/// Time on a core so far, where Linux tells it: other work on the machine does not count.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

fn measure(name: &str, how: &str, model: &Model<Locks, Counter>, search: Search) {
    let before = cpu_seconds();
    let verdict = &model.run(search);
    let report = verdict.report();
    let wall = report.time.as_secs_f64();
    let seconds = cpu_seconds()
        .zip(before)
        .map_or(wall, |(after, before)| after - before);
    let verdict = match verdict {
        Verdict::Pass(_) => "pass",
        Verdict::Counterexample(_) => "counterexample",
        Verdict::Truncated { .. } => "truncated",
    };
    println!(
        "explore {how}: {name}: {verdict}, {} states, depth {}, {:.2} s of CPU ({:.2} s), {:.2} M micro-steps/s, {:.3} M new states/s",
        report.states,
        report.depth,
        seconds,
        wall,
        report.steps as f64 / seconds / 1e6,
        report.states as f64 / seconds / 1e6,
    );
}

fn main() {
    let limit = Duration::from_secs(30);
    for (nodes, adds, lines) in [(&[0, 0, 1, 1][..], 1, 1), (&[0, 0, 1, 1], 1, 2), (&[0, 1], 2, 4)] {
        let name = format!("{} clients x {adds}, {lines} lines", nodes.len());
        measure(
            &name,
            "dfs",
            &model(nodes, adds, lines),
            Search::exhaustive().time(limit),
        );
    }
    let four = model(&[0, 0, 1, 1], 1, 2);
    measure(
        "4 clients x 1, 2 lines",
        "random",
        &four,
        Search::random(1, 20_000).time(limit),
    );
}
