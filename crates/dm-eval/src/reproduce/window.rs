//! The time of a run without a tree in which operations are counted, and the resource that is busiest in it.

use std::cell::RefCell;

use dm_sim::{Busy, BusyTimes, Sim};
use dm_verbs::Nanos;

/// A moment of a run, and for how long each resource was busy before.
type Mark = (Nanos, BusyTimes);

/// The time in which operations are counted. The busy shares are those of this time too. Shares of the whole run would
/// not belong to the counted throughput: at first the queues are empty, and at the end fewer and fewer clients work.
pub(crate) struct Window {
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
    busy: Box<dyn Fn() -> BusyTimes>,
    began: RefCell<Option<Mark>>,
    ended: RefCell<Option<Mark>>,
}

impl Window {
    /// Makes the window of a run that lasts `window_ns`. The first quarter of this time is the warm-up.
    pub(crate) fn new(sim: &Sim, window_ns: u64) -> Self {
        Self {
            from: Nanos(window_ns / 4),
            to: Nanos(window_ns),
            busy: Box::new(sim.busy_reader()),
            began: RefCell::default(),
            ended: RefCell::default(),
        }
    }

    /// Returns whether a client may begin an operation at `now`. Every client calls this before each operation, because
    /// the first calls at or after the bounds of the window record for how long each resource was busy.
    pub(crate) fn lets_begin(&self, now: Nanos) -> bool {
        for (bound, mark) in [(self.from, &self.began), (self.to, &self.ended)] {
            if now >= bound && mark.borrow().is_none() {
                mark.replace(Some((now, (self.busy)())));
            }
        }
        now < self.to
    }

    /// Returns the busiest resource, and the share of the window for which it was busy. Returns `None` if no resource
    /// was busy, or if no client has reached the end of the window.
    pub(crate) fn busiest(&self) -> Option<(Busy, f64)> {
        let (began, ended) = (self.began.borrow(), self.ended.borrow());
        let ((from, before), (to, after)) = began.as_ref().zip(ended.as_ref())?;
        let busy = *after.since(before).first().filter(|busy| busy.ns > 0)?;
        Some((busy, busy.ns as f64 / (*to - *from).0.max(1) as f64))
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use dm_sim::CostModel;
    use dm_verbs::{Env, NodeId, RemotePtr, Verbs};

    use super::*;

    /// Returns the share of the window for which the busiest resource is busy with a client's short READs. Before the
    /// window and after it, the client makes READs of `others` bytes.
    fn share(others: u32) -> f64 {
        const BYTES: u64 = 1 << 20;
        let sim = Sim::builder(CostModel::cx5_ib())
            .compute_nodes(1)
            .memory_nodes(1)
            .memory_bytes(BYTES);
        let sim = sim.build().unwrap();
        let window = Rc::new(Window::new(&sim, 1_000_000));
        let seen = window.clone();
        sim.spawn(0, 0, async move |v| {
            let at = RemotePtr::new(NodeId(0), 4096).unwrap();
            while v.now() < Nanos(2_000_000) {
                let counts = seen.lets_begin(v.now()) && v.now() >= seen.from;
                v.read(at, if counts { 64 } else { others }).await.unwrap();
            }
        });
        sim.run();
        let (_, share) = window.busiest().unwrap();
        share
    }

    #[test]
    fn what_is_before_the_window_and_after_it_does_not_count() {
        let (alone, among) = (share(64), share(4096));
        assert!((among / alone - 1.0).abs() < 0.01, "{alone} {among}");
        assert!(alone > 0.0 && alone < 1.0, "{alone}");
    }

    #[test]
    fn a_window_that_no_client_has_reached_has_no_busiest_resource() {
        let sim = Sim::builder(CostModel::cx5_ib()).compute_nodes(1).memory_nodes(1);
        let sim = sim.memory_bytes(1 << 20).build().unwrap();
        let window = Window::new(&sim, 1_000);
        assert!(window.lets_begin(Nanos(999)) && window.busiest().is_none());
        // Both bounds are over, but nothing was busy.
        assert!(!window.lets_begin(Nanos(1_000)) && window.busiest().is_none());
    }
}
