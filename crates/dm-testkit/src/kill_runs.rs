//! Standard runs with kills for the tests of the indexes.

use dm_loopback::Loopback;
use dm_verbs::Nanos;

use crate::{Cards, IndexUnderTest, Kills, Report, Stress, SweepChecker, World, stress_with_kills};

/// The lease in the simulator. A client carries out a few hundred operations in this time.
const SIMULATED_LEASE: Nanos = Nanos::from_millis(1);
/// The lease on loopback. It must be longer than a thread of a busy machine waits for a processor.
const LOOPBACK_LEASE: Nanos = Nanos::from_millis(300);
/// The lease of a long run on loopback, which is longer, because among many waits some are long.
const LONG_LOOPBACK_LEASE: Nanos = Nanos::from_millis(1_000);

/// The parameters of a run with kills that an index needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KillRun {
    /// The seed, from which the index chooses variants and keys.
    pub seed: u64,
    /// Number of attempts of a retry loop that together last longer than a lease.
    pub attempts: u32,
}

impl KillRun {
    /// Makes the parameters for the simulator, where an attempt takes about two microseconds of virtual time.
    const fn simulated(seed: u64) -> Self {
        Self {
            seed,
            attempts: 1 << 20,
        }
    }

    /// Makes the parameters for loopback, where an attempt takes about a tenth of a microsecond.
    const fn on_loopback(seed: u64) -> Self {
        Self {
            seed,
            attempts: 1 << 26,
        }
    }
}

/// Returns a script: the seed decides whether the index grows, is often used at its hot keys, or grows and shrinks.
fn script(operations: u64, seed: u64) -> Stress {
    let script = Stress::new(operations, seed);
    match seed % 3 {
        0 => script,
        1 => Stress {
            keys: 2_000,
            hot_percent: 40,
            ..script
        },
        _ => Stress {
            waves: 4,
            keys: (operations / 40).max(300),
            ..script
        },
    }
}

/// Kills 8 compute nodes on a simulated testbed, and returns the report without judging it. With `fences` off, fences
/// have no effect.
pub fn simulated_kills<I: IndexUnderTest>(index: impl Fn(KillRun) -> I, seed: u64, fences: bool) -> Report {
    let kills = Kills {
        fences,
        ..Kills::new(script(10_000, seed), 8, SIMULATED_LEASE)
    };
    run_simulated(index, &kills)
}

fn run_simulated<I: IndexUnderTest>(index: impl Fn(KillRun) -> I, kills: &Kills) -> Report {
    let seed = kills.script.seed;
    let sim = Cards::Preset
        .testbed(seed)
        .compute_nodes(kills.compute_nodes_in_all())
        .memory_nodes(2)
        .colocated(seed % 4 == 1)
        .lease(kills.lease);
    let world = World::from(sim.build().expect("memory"));
    let checker = SweepChecker::after(kills.kills);
    stress_with_kills(index(KillRun::simulated(seed)), &world, kills, checker)
}

fn simulated<I: IndexUnderTest>(
    index: impl Fn(KillRun) -> I,
    seed: u64,
    operations: u64,
    kills: u16,
) -> Report {
    let kills = Kills::new(script(operations, seed), kills, SIMULATED_LEASE);
    let report = run_simulated(index, &kills);
    let report = report.expect_correct();
    let killed = report.killed;
    // The clients of the last compute node may end before its planned death.
    let deaths = killed.nodes - killed.expelled + killed.suspended;
    assert!(
        deaths + 1 >= u64::from(kills.kills) && killed.expelled <= killed.suspended,
        "{report}"
    );
    assert!(killed.longest < Nanos(kills.lease.0 * 20), "{report}");
    report
}

fn on_loopback<I: IndexUnderTest>(
    index: impl Fn(KillRun) -> I,
    seed: u64,
    operations: u64,
    (kills, lease): (u16, Nanos),
) -> Report {
    let kills = Kills::new(script(operations, seed), kills, lease);
    let world = Loopback::builder().nodes(2).host_bytes(2 << 30).delays(2);
    let world = world.lease(kills.lease).seed(seed);
    let world = World::from(world.build().expect("memory"));
    let checker = SweepChecker::after(kills.kills);
    let report = stress_with_kills(index(KillRun::on_loopback(seed)), &world, &kills, checker);
    let report = report.expect_correct();
    // The clients may end before their compute node can die, and a compute node may be suspended for longer than a
    // lease.
    assert!(
        report.killed.nodes + report.killed.suspended + 2 >= u64::from(kills.kills),
        "{report}"
    );
    report
}

/// Kills compute nodes on a few simulated testbeds and on loopback. Takes a few seconds.
///
/// # Panics
/// Panics if an answer is wrong, if an operation does not end or takes too long, if a fault remains after the final
/// sweep, or if too few compute nodes died.
pub fn short_kills<I: IndexUnderTest>(index: impl Fn(KillRun) -> I) -> Vec<Report> {
    let mut reports: Vec<_> = (0..6).map(|seed| simulated(&index, seed, 10_000, 8)).collect();
    reports.push(on_loopback(&index, 1, 5_000, (3, LOOPBACK_LEASE)));
    reports
}

/// Kills 20 compute nodes in each of 200 simulated runs of 100,000 operations. Calls `told` with every report. If the
/// environment variable `DM_KILLS_SEED` holds a number, only the run of that seed is made.
///
/// # Panics
/// Panics in the same cases as [`short_kills`], and if `DM_KILLS_SEED` is not a number.
pub fn full_kills_simulated<I: IndexUnderTest>(index: impl Fn(KillRun) -> I, told: impl Fn(&Report)) {
    let only = std::env::var("DM_KILLS_SEED").ok();
    let only: Option<u64> = only.map(|seed| seed.parse().expect("DM_KILLS_SEED is a number"));
    for seed in only.map_or(0..200, |seed| seed..seed + 1) {
        told(&simulated(&index, seed, 100_000, 20));
    }
}

/// Kills 200 compute nodes on loopback, in a run of five million operations. Calls `told` with the report.
///
/// # Panics
/// Panics in the same cases as [`short_kills`].
pub fn full_kills_on_loopback<I: IndexUnderTest>(index: impl Fn(KillRun) -> I, told: impl Fn(&Report)) {
    told(&on_loopback(&index, 2, 5_000_000, (200, LONG_LOOPBACK_LEASE)));
}
