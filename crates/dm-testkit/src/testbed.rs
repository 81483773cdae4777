//! Simulated testbeds for long runs. Their cards promise as much as those of the presets, or the least that an index
//! must cope with. One memory node may be cut off for most of a run.

use dm_sim::{CostModel, Sim, SimBuilder, Tearing};
use dm_sync::Arc;
use dm_verbs::{AtomicVsWrite, CasThenRead, FailedCas, LineOrder, Nanos, NodeId};

use crate::{Job, Rng, Seat, Stress, TestWorld, World};

/// The promises of the cards in a simulated testbed.
///
/// ```
/// use dm_testkit::Cards;
///
/// let weak = Cards::Weak.testbed(0).compute_nodes(2).build().unwrap();
/// let caps = weak.model().caps;
/// assert!(!caps.masked_atomics && caps.chip_bytes == 0 && !caps.host_before_chip, "seed 0 has every weak side");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cards {
    /// The cards promise as much as those of the presets. The seed selects the preset.
    Preset,
    /// The cards promise the least that an index must cope with. The seed selects which settings of `docs/hardware.md`
    /// are weak, whether lines and answers are slow, and whether clients are suspended now and then. With seed 0, all
    /// of this is the case. Lines stay atomic, because line versions rely on this and require it when a pool is opened.
    Weak,
}

impl Cards {
    /// Returns a builder for a testbed of these cards, with this seed.
    pub fn testbed(self, seed: u64) -> SimBuilder {
        let mut model = if seed.is_multiple_of(2) {
            CostModel::cx5_ib()
        } else {
            CostModel::cx6_roce()
        };
        if self == Self::Preset {
            return Sim::builder(model).seed(seed);
        }
        let mut rng = Rng::new(seed, 0x3EA4);
        let mut turn = || seed == 0 || rng.below(2) == 0;
        let caps = &mut model.caps;
        if turn() {
            caps.read_lines = LineOrder::Any;
        }
        if turn() {
            caps.write_lines = LineOrder::Any;
        }
        if turn() {
            caps.cas_then_read = CasThenRead::WholeReadFirst;
        }
        if turn() {
            caps.cas_then_read = CasThenRead::AnyLineFirst;
        }
        if turn() {
            caps.atomic_vs_write = AtomicVsWrite::Racy;
        }
        if turn() {
            caps.failed_cas = FailedCas::WritesBack;
        }
        if turn() {
            caps.host_before_chip = false;
        }
        if turn() {
            caps.masked_atomics = false;
        }
        if turn() {
            caps.chip_bytes = 0;
        }
        if turn() {
            // A node is transferred slowly, so that many events happen meanwhile.
            (model.torn_line_ns, model.tearing) = (200.0, Tearing::Random);
        }
        if turn() {
            // Answers arrive late, and not in the order of the requests.
            (model.wire_ns, model.jitter_ns) = (3_000.0, 6_000.0);
        }
        let stalls = turn();
        let builder = Sim::builder(model).seed(seed).lease(LEASE);
        if stalls {
            return builder.stalls(STALL_ONE_IN, LONGEST_STALL);
        }
        builder
    }
}

/// The probability that a poll of a client is delayed is one in this many.
const STALL_ONE_IN: u32 = 2_000;
/// The longest delay of a poll.
const LONGEST_STALL: Nanos = Nanos::from_millis(3);
/// The lease of compute nodes with weak cards. Operations take long there, because answers are late or clients are
/// delayed. If the last client of a compute node were silent for a lease during one operation, it would be expelled,
/// and the run would count its error as wrong. Runs with kills test such clients.
const LEASE: Nanos = Nanos::from_millis(100);

/// A simulation in which memory node 1 may be cut off. Such an outage begins 2 ms after the start of a job of more than
/// three clients, and lasts until 10 s of virtual time, when all clients have ended.
#[derive(Debug)]
pub struct Testbed {
    world: World,
    outage: bool,
}

/// The time at which a memory node that was cut off is back: after all clients have ended.
const OUTAGE_END: Nanos = Nanos::from_millis(10_000);

impl Testbed {
    /// Returns the simulation with or without the outage.
    #[must_use]
    pub fn new(sim: Sim, outage: bool) -> Self {
        Self {
            world: World::from(sim),
            outage,
        }
    }

    /// Returns the script. If there is an outage, the script lets operations fail.
    #[must_use]
    pub const fn script(&self, script: Stress) -> Stress {
        Stress {
            outage_end: if self.outage { OUTAGE_END } else { Nanos(0) },
            ..script
        }
    }
}

impl TestWorld for Testbed {
    fn run<J: Job>(&self, seats: &[Seat], job: &Arc<J>) -> Vec<J::Out> {
        // The jobs that open and check the index have few clients, and run without an outage.
        if let (World::Sim(sim), true) = (&self.world, self.outage && seats.len() > 3) {
            sim.cut_off(NodeId(1), sim.now() + Nanos::from_millis(2));
            sim.restore(NodeId(1), OUTAGE_END);
        }
        self.world.run(seats, job)
    }
}
