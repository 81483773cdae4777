//! Which protocols run with which promises. Each protocol is tried on the simulated RNIC, which then promises
//! exactly that.
//!
//! Nothing is decided here. An index that lacks a capability refuses by itself, and a fallback shows in the
//! round trips of its operations.

use std::cell::RefCell;
use std::rc::Rc;

use chime::Chime;
use clap::Parser;
use dm_index::{Key8, RangeIndex};
use dm_layout::{Checksummed, Slotted};
use dm_sim::{CostModel, Sim};
use dm_verbs::{Caps, Control, Verbs};
use dolphin::Dolphin;
use sherman::Sherman;
use smart::Smart;

use crate::bench_tree::BenchTree;
use crate::cli::{Cli, Command};
use crate::point::{BenchKey, Point};

/// Round trips of a get, an update and an insert, with warm caches and without contention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trips {
    pub(super) get: f64,
    pub(super) update: f64,
    pub(super) insert: f64,
}

/// The result of trying a protocol: its costs, or its own message of refusal.
pub(super) type Outcome = Result<Trips, String>;

/// A protocol that is tried.
pub(super) struct Protocol {
    pub(super) name: &'static str,
    /// The options of `dmkit bench` for it.
    words: &'static [&'static str],
    /// Whether its locks are on chip if there is room.
    pub(super) on_chip: bool,
    run: fn(&Point, Caps) -> Outcome,
}

pub(super) const PROTOCOLS: [Protocol; 5] = [
    Protocol {
        name: "sherman",
        words: &["--index", "sherman"],
        on_chip: true,
        run: run::<Key8, Sherman<Key8, Slotted<Key8>>>,
    },
    Protocol {
        name: "sherman (fg+)",
        words: &["--index", "sherman", "--variant", "fg+"],
        on_chip: false,
        run: run::<Key8, Sherman<Key8, Checksummed<Key8>>>,
    },
    Protocol {
        name: "smart",
        words: &["--index", "smart"],
        on_chip: false,
        run: run::<Key8, Smart<Key8>>,
    },
    Protocol {
        name: "chime",
        words: &["--index", "chime"],
        on_chip: true,
        run: run::<Key8, Chime<Key8>>,
    },
    Protocol {
        name: "dolphin",
        words: &["--index", "dolphin"],
        on_chip: true,
        run: run::<Key8, Dolphin<Key8>>,
    },
];

impl Protocol {
    /// Runs it with `caps`.
    pub(super) fn attempt(&self, caps: Caps) -> Outcome {
        (self.run)(&point(self.words), caps)
    }
}

const KEYS: u64 = 2000;
/// Operations of each kind, so few that leaves rarely split.
const OPS: u64 = 40;

fn point(words: &[&str]) -> Point {
    let line = [
        "dmkit",
        "bench",
        "--cns",
        "1",
        "--mns",
        "1",
        "--clients",
        "1",
        "--keys",
        "2000",
    ];
    let cli = Cli::parse_from(line.iter().chain(words));
    let Some(Command::Bench(bench)) = cli.command else {
        unreachable!("the line says so")
    };
    Point::all(&bench).remove(0)
}

fn run<K: BenchKey, T: BenchTree<Key = K>>(point: &Point, caps: Caps) -> Outcome {
    let mut model = CostModel::cx6_roce();
    let bytes = point.bytes_per_memory_node();
    model.caps = Caps {
        host_bytes: bytes,
        ..caps
    };
    let sim = Sim::builder(model)
        .compute_nodes(1)
        .memory_nodes(1)
        .memory_bytes(bytes)
        .build()
        .map_err(|e| e.to_string())?;
    let result: Rc<RefCell<Option<Outcome>>> = Rc::default();
    let (told, point) = (Rc::clone(&result), point.clone());
    sim.spawn(0, 0, async move |v| {
        let outcome = measure::<_, K, T>(&v, &point).await;
        told.replace(Some(outcome));
    });
    sim.run();
    result.take().unwrap_or_else(|| Err("it did not end".to_owned()))
}

async fn measure<V: Verbs + Control, K: BenchKey, T: BenchTree<Key = K>>(v: &V, point: &Point) -> Outcome {
    let tree: T = crate::run::load(v, point).await.map_err(|e| e.to_string())?;
    tree.warm(v).await.map_err(|e| e.to_string())?;
    let (index, space) = (tree.client(v), point.key_space());
    let value = vec![7; point.value_size];
    let mut read = Vec::new();
    let mut trips = [0.0; 3];
    for (kind, sum) in trips.iter_mut().enumerate() {
        for i in 0..OPS {
            let before = v.meter().counters();
            // New keys are behind the loaded ones.
            let number = if kind == 2 { KEYS + i } else { i * (KEYS / OPS) };
            let key = K::nth(&space, number);
            let done = match kind {
                0 => index.get(&key, &mut read).await.map(drop),
                1 => index.update(&key, &value).await.map(drop),
                _ => index.insert(&key, &value).await.map(drop),
            };
            done.map_err(|e| e.to_string())?;
            let cost = v.meter().counters() - before;
            *sum += cost.round_trips as f64 / OPS as f64;
        }
    }
    let [get, update, insert] = trips;
    Ok(Trips { get, update, insert })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_verbs::Capability;

    #[test]
    fn promises_decide_what_runs_and_what_it_costs() {
        let nothing = Caps::default();
        let lines = nothing.assume(Capability::LineAtomicity);
        let all = lines
            .assume(Capability::CasThenReadInOrder)
            .assume(Capability::AtomicVsWriteSerialised);
        let [sherman, _, smart, chime, dolphin] = &PROTOCOLS;
        let refused = sherman.attempt(nothing).unwrap_err();
        assert!(refused.contains("64-byte line atomicity"), "{refused}");
        for protocol in [sherman, smart, chime, dolphin] {
            let (weak, strong) = (protocol.attempt(lines).unwrap(), protocol.attempt(all).unwrap());
            assert!(strong.update < weak.update, "{strong:?} and {weak:?}");
            assert!((strong.get - 1.0).abs() < 0.2, "{strong:?}");
        }
    }
}
