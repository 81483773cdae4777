//! A simulated testbed for long runs: one of its memory nodes may be cut off for most of one.

use dm_sim::Sim;
use dm_sync::Arc;
use dm_verbs::{Nanos, NodeId};

use crate::{Job, Seat, Stress, TestWorld, World};

/// A simulation whose memory node 1 may be away from 2 ms after clients begin until all of them have ended.
///
/// No example: it needs a whole index; the stress tests of `sherman` and `dolphin` run in one.
#[derive(Debug)]
pub struct Testbed {
    world: World,
    outage: bool,
}

/// When a memory node that was cut off is there again: after all clients have ended.
const OUTAGE_END: Nanos = Nanos::from_millis(10_000);

impl Testbed {
    /// That simulation, with or without the outage.
    #[must_use]
    pub fn new(sim: Sim, outage: bool) -> Self {
        Self {
            world: World::from(sim),
            outage,
        }
    }

    /// The script, with operations allowed to fail during the outage, if there is one.
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
        // Opening and looking are done by few.
        if let (World::Sim(sim), true) = (&self.world, self.outage && seats.len() > 3) {
            sim.cut_off(NodeId(1), sim.now() + Nanos::from_millis(2));
            sim.restore(NodeId(1), OUTAGE_END);
        }
        self.world.run(seats, job)
    }
}
