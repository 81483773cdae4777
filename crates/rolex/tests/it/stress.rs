//! Runs many clients on small leaves, and checks every answer. Leaves split and merge, tables are written, and memory
//! is reused. `cargo test` runs a short version of each kind; `cargo xtask stress` runs the full size.

#![expect(clippy::print_stdout, reason = "a stress run prints its report")]

use dm_loopback::Loopback;
use dm_testkit::{Cards, Report, Stress, Testbed, World, seats, stress};
use dm_verbs::{Counters, Nanos};
use rolex::{
    ChimeLearnedParts, DEFAULT_ATTEMPTS, Key8, KeyN, Options, PublishedParts, Rdwc, ReclaimOptions,
    RolexParts,
};

use crate::common::{Learns, Tree};

/// Returns options with small leaves, so that they split and merge often.
fn options<P: Learns>() -> Options {
    Options {
        span: 6,
        neighbourhood: 3,
        chunk_bytes: 64 << 10,
        // Collections are frequent, so that memory is reused while others read.
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 4,
            ..ReclaimOptions::new()
        },
        ..P::options(16)
    }
}

/// Returns a script that inserts and removes keys in waves, so that leaves split and merge.
fn waves(operations: u64, seed: u64) -> Stress {
    Stress {
        waves: 4,
        keys: operations / 40,
        ..Stress::new(operations, seed)
    }
}

fn correct(report: Report, script: &Stress) -> Counters {
    println!("{report}");
    let report = report.expect_correct();
    let met = report.meter;
    assert!(report.linearized.0 > 500 && met.splits > 2, "{report}");
    assert!(met.merges > 0 || script.waves < 2, "{report}");
    met
}

/// Runs 8 threads on 4 compute nodes, with two clients each, over 3 memory nodes.
fn loopback<P: Learns>(script: &Stress, visits: u32) -> Counters {
    let world = Loopback::builder().nodes(3).host_bytes(2 << 30).seed(script.seed);
    let world = World::from(world.build().expect("memory"));
    let tree = Tree::<P>::new(options::<P>()).visiting(visits);
    correct(stress(tree, &world, &seats(4, 8, 2), script), script)
}

#[test]
fn threads_on_loopback() {
    loopback::<RolexParts<Key8>>(&Stress::new(80_000, 1), 500);
    loopback::<RolexParts<Key8>>(&waves(80_000, 3), 100);
    loopback::<ChimeLearnedParts<Key8>>(&waves(80_000, 5), 100);
    loopback::<PublishedParts<Key8>>(&waves(80_000, 7), 100);
}

/// Runs 48 clients on 3 compute nodes, over 2 memory nodes. The seed determines the testbed, the script, the keys, some
/// options, whether there is an outage, and whether memory nodes and compute nodes share machines. `B` and `C` are the
/// indexes of a quarter of the seeds each, and `A` is the index of the others.
fn simulated<A: Learns, B: Learns, C: Learns>(seed: u64, operations: u64, cards: Cards) {
    let sim = cards
        .testbed(seed)
        .compute_nodes(3)
        .memory_nodes(2)
        .colocated(seed % 4 == 1);
    let outage = seed % 8 == 4 && cards == Cards::Preset;
    let world = Testbed::new(sim.build().expect("memory"), outage);
    let script = match seed % 4 {
        // Leaves are on both memory nodes from the start, so that some operations succeed during an outage. With an
        // outage there are more keys than operations, because an insert fails if its split needs memory of the node
        // that is cut off, and no client writes a key again after a failed write.
        0 => Stress {
            preload: true,
            keys: if outage { 2 * operations } else { operations / 5 },
            ..Stress::new(operations, seed)
        },
        // There are few keys, and many operations use the hot ones.
        1 => Stress {
            keys: 2_000,
            hot_percent: 40,
            ..Stress::new(operations, seed)
        },
        _ => waves(operations, seed),
    };
    let script = world.script(script);
    let options = Options {
        rdwc: if seed % 4 == 2 { Rdwc::ON } else { Rdwc::OFF },
        error: if seed.is_multiple_of(5) { 0 } else { 4 },
        // With fewer attempts, a client waits less for a client that itself waits for the memory node that is cut off.
        attempts: if outage { 1 << 14 } else { DEFAULT_ATTEMPTS },
        ..options::<A>()
    };
    // Every other seed caches only a part of the leaves.
    let options = Options {
        cache_bytes: if seed % 2 == 1 { 2_000 } else { options.cache_bytes },
        ..options
    };
    let visits = if outage { 0 } else { 200 };
    let seats = seats(3, 12, 4);
    let report = match seed % 4 {
        3 => {
            let tree = Tree::<C>::new(options).visiting(visits);
            stress(tree, &world, &seats, &script)
        }
        2 => {
            let tree = Tree::<B>::new(options).visiting(visits);
            stress(tree, &world, &seats, &script)
        }
        _ => {
            let tree = Tree::<A>::new(options).visiting(visits);
            stress(tree, &world, &seats, &script)
        }
    };
    if !outage {
        correct(report, &script);
        return;
    }
    println!("{report}");
    let report = report.expect_correct();
    // After the cut, most operations on leaves of the memory node that is cut off fail.
    assert!(
        report.failed > 100 && report.verified > script.keys / 4,
        "{report}"
    );
}

fn shipped(seed: u64, operations: u64, cards: Cards) {
    simulated::<RolexParts<Key8>, ChimeLearnedParts<Key8>, RolexParts<KeyN<24>>>(seed, operations, cards);
}

fn published(seed: u64, operations: u64, cards: Cards) {
    simulated::<PublishedParts<Key8>, PublishedParts<Key8>, PublishedParts<KeyN<24>>>(
        seed, operations, cards,
    );
}

#[test]
fn simulated_testbeds() {
    for seed in 0..5 {
        shipped(seed, 20_000, Cards::Preset);
    }
}

/// The RNICs promise less than those of the presets, and clients may be suspended. The seed selects in which ways; with
/// seed 0, in all of them.
#[test]
fn weak_cards() {
    for seed in 0..5 {
        shipped(seed, 15_000, Cards::Weak);
    }
}

#[test]
fn simulated_testbeds_as_published() {
    for seed in 0..5 {
        published(seed, 20_000, Cards::Preset);
        published(seed, 15_000, Cards::Weak);
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_on_loopback() {
    let met = loopback::<RolexParts<Key8>>(&Stress::new(20_000_000, 2), 20_000);
    assert!(met.splits >= 100_000, "{met:?}");
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_threads_that_grow_and_shrink_an_index() {
    let met = loopback::<RolexParts<Key8>>(&waves(20_000_000, 4), 20_000);
    assert!(met.merges >= 10_000, "{met:?}");
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress`"]
fn full_simulated_testbeds() {
    for seed in 0..200 {
        shipped(seed, 100_000, Cards::Preset);
        published(seed, 50_000, Cards::Preset);
    }
}

#[test]
#[ignore = "minutes: run by `cargo xtask stress --weak`"]
fn full_weak_cards() {
    for seed in 0..200 {
        shipped(seed, 20_000, Cards::Weak);
        published(seed, 20_000, Cards::Weak);
    }
}
