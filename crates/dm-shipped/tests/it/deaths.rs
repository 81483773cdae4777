//! Compute nodes that die in a measurement.

use dm_bench::report::Row;
use dm_bench::{Fabric, Faults, Kill, Origin, Setting};

/// The lease in nanoseconds. The next constant is the length of a run.
const LEASE: u64 = 2_000_000;
const END: u64 = 12_000_000;

fn row(index: &str, clients: u32, mix: &str, faults: Faults) -> Row {
    let setting = Setting {
        compute_nodes: 4,
        memory_nodes: 1,
        clients,
        keys: 20_000,
        ranks: 20_000,
        ops: 300_000,
        cache_bytes: 10_000_000,
        warm_up_ns: 1_000_000,
        duration_ns: Some(END),
        faults: Faults {
            lease: Some(LEASE),
            slice: Some(END / 24),
            ..faults
        },
        mix: mix.parse().expect("a mix"),
        ..Setting::new("sim:cx6-roce".parse::<Fabric>().expect("a preset"))
    };
    let point = dm_shipped::shipped().point(index, "default", setting);
    let point = point.expect("a variant");
    let measured = point.run().expect("no fault ends the run");
    let row = Row::planned(&point, &Origin::here(None)).finished(&measured);
    row.expect("figures")
}

fn slices(row: &Row) -> Vec<u64> {
    let ops = row.timeline.split(' ');
    ops.map(|slice| slice.parse().expect("no operation fails"))
        .collect()
}

#[test]
fn a_dead_compute_node_costs_the_others_a_lease() {
    let (mut freed, mut stuck_somewhere) = (0, false);
    for index in ["sherman", "smart", "chime"] {
        let kill = Faults {
            kill: Some(Kill::At(END / 4)),
            ..Faults::NONE
        };
        let with = row(index, 16, "upsert:100", kill);
        assert_eq!(
            (with.killed, with.expelled, with.wrong_values),
            (1, 1, 0),
            "{index}"
        );
        freed += with.freed_locks;
        let recovery = with.recovery_us.expect("it was expelled") * 1e3;
        assert!(
            (1.0..1.6).contains(&(recovery / LEASE as f64)),
            "{index}: {recovery} ns"
        );
        let all = slices(&with);
        assert_eq!(all.len(), 24, "{index}");
        let mean = |of: &[u64]| of.iter().sum::<u64>() as f64 / of.len() as f64;
        let (before, after) = (mean(&all[..6]), mean(&all[16..]));
        assert!(after > 0.6 * before, "{index}: {all:?}");

        let without = row(
            index,
            16,
            "upsert:100",
            Faults {
                recovery: false,
                ..kill
            },
        );
        assert_eq!((without.killed, without.expelled), (1, 0), "{index}");
        assert_eq!((without.freed_locks, without.recovery_us), (0, None), "{index}");
        // Every client eventually waits for the dead member's lock, unless no client needs that lock.
        let stuck = mean(&slices(&without)[16..]);
        stuck_somewhere |= with.freed_locks > 0 && stuck < 0.9 * after;
    }
    assert!(stuck_somewhere, "nobody waits for a lock of the dead");
    assert!(freed > 0, "nobody held a lock");
}

/// Clients that share locks wait while the counts of sharers are reset. If they took their locks alone, a hot lock
/// would never be shared again.
#[test]
fn locks_that_were_shared_are_shared_again() {
    let kill = Faults {
        kill: Some(Kill::At(END / 4)),
        ..Faults::NONE
    };
    let row = row("dolphin", 256, "update:100", kill);
    assert_eq!((row.killed, row.expelled, row.wrong_values), (1, 1, 0));
    let recovery = row.recovery_us.expect("it was expelled") * 1e3 / LEASE as f64;
    assert!((1.0..1.6).contains(&recovery), "{recovery} leases");
    let all = slices(&row);
    let mean = |of: &[u64]| of.iter().sum::<u64>() as f64 / of.len() as f64;
    let (before, after) = (mean(&all[..6]), mean(&all[16..]));
    assert!(after > 0.9 * before, "{all:?}");
}

#[test]
fn new_compute_nodes_take_the_places_of_dead_ones() {
    for index in ["sherman", "smart", "chime"] {
        // The compute nodes have different numbers of clients, and each client inserts its own keys.
        let row = row(
            index,
            10,
            "insert:50,upsert:50",
            Faults {
                kill: Some(Kill::Every(END / 3)),
                ..Faults::NONE
            },
        );
        assert_eq!((row.killed, row.expelled, row.wrong_values), (2, 2, 0), "{index}");
        let all = slices(&row);
        let mean = |of: &[u64]| of.iter().sum::<u64>() / of.len() as u64;
        let (before, after) = (mean(&all[..8]), mean(&all[22..]));
        assert!(after > before / 2, "{index}: {all:?}");
    }
}
