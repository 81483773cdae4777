//! The part of a simulated run in which operations are counted, and the resource that limits this part.

use dm_sim::{BusyTimes, Resource, Side};

use crate::measured::{Busiest, NicShares};

/// A moment of a run.
#[derive(Debug)]
pub(super) struct Mark {
    /// Nanoseconds of virtual time.
    at: u64,
    /// The number of operations that had ended.
    ops: u64,
    /// For how long each resource was busy before.
    busy: BusyTimes,
}

impl Mark {
    pub(super) fn new(at: u64, ops: u64, busy: BusyTimes) -> Self {
        Self { at, ops, busy }
    }
}

/// The part of a run in which operations are counted. It begins at the end of the warm-up, which may be a number of
/// operations. If the run has a duration or is steady, it ends when the first client stops; otherwise it is the rest of
/// the run. A share of the whole run would not belong to the throughput: in the warm-up, queues are not as long as they
/// will be, and at the end fewer clients work.
#[derive(Debug, Default)]
pub(super) struct MeasuredPart {
    from: Option<Mark>,
    until: Option<Mark>,
}

impl MeasuredPart {
    /// Looks at the state of the run. A client is about to begin an operation, or to stop. `is_warm` tells whether the
    /// warm-up is over, and `ends` whether the part ends now.
    pub(super) fn see(&mut self, is_warm: bool, ends: bool, mark: impl Fn() -> Mark) {
        if self.from.is_none() && is_warm {
            self.from = Some(mark());
        }
        if self.from.is_some() && self.until.is_none() && ends {
            self.until = Some(mark());
        }
    }

    /// Returns the activity of the responder of the busiest memory node's RNIC, and the busiest resource. `end` is the
    /// end of the run. If no operation has ended in this part, there is no such resource.
    pub(super) fn limits(self, end: Mark) -> (NicShares, Option<Busiest>) {
        let Some(from) = self.from else {
            return (NicShares::default(), None);
        };
        let until = self.until.unwrap_or(end);
        let took = until.at.saturating_sub(from.at).max(1) as f64;
        let busy = until.busy.since(&from.busy);
        let responder = busy.iter().find(|busy| {
            busy.side != Side::Compute && matches!(busy.resource, Resource::Responder | Resource::Atomics)
        });
        let nic = responder.map(|busy| NicShares {
            stalled: busy.stalled_ns as f64 / took,
            worked: (busy.ns - busy.stalled_ns) as f64 / took,
        });
        let counted = until.ops > from.ops;
        let busiest = busy.first().filter(|busy| counted && busy.ns > 0);
        let busiest = busiest.map(|busy| Busiest {
            resource: *busy,
            share: busy.ns as f64 / took,
        });
        (nic.unwrap_or_default(), busiest)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use dm_sim::{CostModel, Sim};
    use dm_verbs::{Env, NodeId, RemotePtr, Verbs};

    use super::*;

    /// Returns the share of time for which the busiest resource is busy with a client's short READs, among `others`
    /// long READs before and as many after these.
    fn share(others: u64) -> f64 {
        const SHORT: u64 = 100;
        let sim = Sim::builder(CostModel::cx5_ib())
            .compute_nodes(1)
            .memory_nodes(1)
            .memory_bytes(1 << 20);
        let sim = sim.build().expect("memory");
        let part = Rc::new(RefCell::new(MeasuredPart::default()));
        let (seen, busy) = (part.clone(), sim.busy_reader());
        sim.spawn(0, 0, async move |v| {
            let at = RemotePtr::new(NodeId(0), 4096).expect("in range");
            for op in 0..=others + SHORT + others {
                let (warm, more) = (op >= others, op < others + SHORT);
                let mark = || Mark::new(v.now().0, op, busy());
                seen.borrow_mut().see(warm, !more, mark);
                let bytes = if warm && more { 64 } else { 4096 };
                v.read(at, bytes).await.expect("the node is up");
            }
        });
        sim.run();
        let end = Mark::new(sim.now().0, others + SHORT + others + 1, sim.busy());
        let (_, busiest) = part.take().limits(end);
        busiest.expect("READs have ended in the measured part").share
    }

    #[test]
    fn what_is_before_the_measured_part_and_after_it_does_not_count() {
        let (alone, among) = (share(0), share(200));
        assert!((among / alone - 1.0).abs() < 0.01, "{alone} {among}");
        assert!(alone > 0.0 && alone < 1.0, "{alone}");
    }

    #[test]
    fn a_run_without_counted_operations_has_no_limit() {
        let sim = Sim::builder(CostModel::cx5_ib()).compute_nodes(1).memory_nodes(1);
        let sim = sim.memory_bytes(1 << 20).build().expect("memory");
        let mark = || Mark::new(0, 0, sim.busy());
        let mut part = MeasuredPart::default();
        part.see(true, true, mark);
        assert!(part.limits(mark()).1.is_none());
        assert!(MeasuredPart::default().limits(mark()).1.is_none());
    }
}
