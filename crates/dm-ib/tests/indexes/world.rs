//! Implements the test kit's worlds by clusters on this machine's device, and has the test runs that all indexes share.

use std::fmt;
use std::time::Instant;

use dm_sync::{Arc, thread};
use dm_testkit::{
    Family, IndexUnderTest, Job, Seat, Stress, TestWorld, TestWorlds, by_thread, conform, seats, stress,
};
use dm_verbs::Capability;

use crate::common::{Cluster, cluster};

/// The capability that line versions require.
pub(crate) const LINES: &[Capability] = &[Capability::LineAtomicity];
/// Line atomicity, and all orders that a card may keep in host memory.
pub(crate) const ORDERS: &[Capability] = &[
    Capability::LineAtomicity,
    Capability::AtomicVsWriteSerialised,
    Capability::CasThenReadInOrder,
    Capability::WriteLinesIncreasing,
];
/// Host memory of a node in bytes. It is registered, so the machine must really have it.
pub(crate) const NODE_BYTES: u64 = 48 << 20;

impl TestWorld for Cluster {
    fn run<J: Job>(&self, seats: &[Seat], job: &Arc<J>) -> Vec<J::Out> {
        let work = |seat: &Seat, numbers: &[usize]| {
            let thread = self.ib.thread().expect("the nodes are up");
            let connect = |_| thread.connect(seat.compute_node).expect("tests have few clients");
            let clients: Vec<_> = numbers.iter().map(connect).collect();
            thread.run(
                numbers
                    .iter()
                    .zip(&clients)
                    .map(|(&number, v)| async move { (number, job.run(number, v).await) }),
            )
        };
        let mut out: Vec<(usize, J::Out)> = thread::scope(|scope| {
            let running: Vec<_> = by_thread(seats)
                .into_iter()
                .map(|(seat, numbers)| scope.spawn(move || work(&seat, &numbers)))
                .collect();
            let joined = running.into_iter().map(|thread| thread.join());
            // If several threads panicked, continue with the first panic.
            joined
                .flat_map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        out.sort_unstable_by_key(|(number, _)| *number);
        out.into_iter().map(|(_, out)| out).collect()
    }
}

/// Clusters of this machine's device under some assumptions.
#[derive(Clone, Copy)]
pub(crate) struct Clusters(pub(crate) &'static [Capability]);

impl fmt::Display for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("real queue pairs")?;
        self.0
            .iter()
            .try_for_each(|capability| write!(f, ", assuming {capability}"))
    }
}

impl TestWorlds for Clusters {
    type World = Cluster;
    fn build(self, _: u16, memory_nodes: u16, _: u64) -> Cluster {
        cluster(usize::from(memory_nodes), NODE_BYTES, self.0)
    }
    /// Shrinks long scripts to a fifth, because a round trip over soft-RoCE in an emulator takes about a hundred
    /// microseconds of the only processor.
    fn thinned(self) -> u64 {
        5
    }
}

/// Runs the conformance script of the test kit.
pub(crate) fn passes<F: Family>(family: &F) {
    let kind = Clusters(LINES);
    println!("{}", kind.build(1, 1, 0).ib.promises());
    let began = Instant::now();
    conform(family, kind);
    println!("the script took {:.1?}", began.elapsed());
}

/// Number of operations of a stress run.
const STRESS: u64 = 12_000;

/// Runs clients of three compute nodes over two memory nodes, and checks every answer. `splits` is the required
/// minimum number of splits.
pub(crate) fn stressed<I: IndexUnderTest>(index: I, assumed: &'static [Capability], seed: u64, splits: u64) {
    let world = Clusters(assumed).build(3, 2, seed);
    println!("{}", world.ib.promises());
    let began = Instant::now();
    let report = stress(index, &world, &seats(3, 6, 8), &Stress::new(STRESS, seed)).expect_correct();
    let per_op = |count: u64| count as f64 / STRESS as f64;
    println!(
        "{report}\n  {:.2} doorbells, {:.2} round trips and {:.2} verbs per operation, in {:.1?}",
        per_op(report.meter.doorbells),
        per_op(report.meter.round_trips),
        per_op(report.meter.verbs()),
        began.elapsed()
    );
    assert_eq!(report.calls.total(), STRESS);
    assert!(
        report.meter.splits >= splits && report.linearized.0 > STRESS / 40 && report.verified > STRESS / 15,
        "{report}"
    );
}
