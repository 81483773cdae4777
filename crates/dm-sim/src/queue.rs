//! The event queue: a timing wheel, exact to the picosecond, and a binary heap for checks.
//!
//! Events are ordered by `(time, sequence number)` in both queues, so a run's digest does not depend on the choice of
//! queue.

mod nodes;
mod wheel;

pub(crate) use wheel::Wheel as Queue;

/// Width of an event's content in bits; the engine packs it.
pub(crate) const WHAT_BITS: u32 = 52;

/// An event: its time, and its content (packed by the engine, [`WHAT_BITS`] wide).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) at: u64,
    pub(crate) what: u64,
}

/// The event queue of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueKind {
    /// The timing wheel.
    #[default]
    Wheel,
    /// std's binary heap. With more than a few hundred clients it is slower than the wheel. Tests compare both.
    Heap,
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// One step of a schedule. Times are picoseconds.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Pushes an event this far ahead.
        Push { ahead: u64 },
        /// Pushes an event close to the boundary of two parts of the wheel.
        Edge { bits: u32, times: u64, off: u64 },
        /// Pushes an event at the time of another event that still waits.
        Tie { with: usize },
        /// Pops the next event, if it is due within this time. Otherwise the current time advances by `within`.
        Pop { within: u64 },
        /// Pops the next event, however far ahead.
        Next,
        /// Pushes and pops alternately, so that time advances in short steps while other events wait.
        March { steps: u64, ahead: u64 },
    }

    /// Returns waits of all orders of magnitude, from a picosecond to 4.4 seconds.
    fn wait() -> impl Strategy<Value = u64> {
        let bits = 0_u32..42;
        (bits, any::<u64>()).prop_map(|(bits, low)| (1 << bits) | (low % (1 << bits)))
    }

    fn step() -> impl Strategy<Value = Step> {
        // log2 of the picoseconds that a slot, a segment, all slots, and all lists cover. The lists begin up to eight
        // segments ahead.
        let parts = prop_oneof![Just(11_u32), Just(23), Just(26), Just(33)];
        let edge = prop_oneof![(parts, 1_u64..12), (Just(23), 1_020_u64..1_040)];
        prop_oneof![
            4 => wait().prop_map(|ahead| Step::Push { ahead }),
            4 => (edge, 0_u64..6).prop_map(|((bits, times), off)| Step::Edge { bits, times, off }),
            3 => any::<usize>().prop_map(|with| Step::Tie { with }),
            3 => wait().prop_map(|within| Step::Pop { within }),
            3 => Just(Step::Next),
            1 => (1_u64..40, 0_u64..1 << 25).prop_map(|(steps, ahead)| Step::March { steps, ahead }),
        ]
    }

    /// An event queue under test.
    trait Pops {
        fn put(&mut self, at: u64, what: u64);
        fn take(&mut self, limit: u64) -> Option<(u64, u64)>;
    }
    impl Pops for Queue {
        fn put(&mut self, at: u64, what: u64) {
            self.push(at, what);
        }
        fn take(&mut self, limit: u64) -> Option<(u64, u64)> {
            self.pop(limit, |_| {}).map(|e| (e.at, e.what))
        }
    }
    /// The reference queue: the event with the smallest (time, number) comes first.
    impl Pops for BinaryHeap<Reverse<(u64, u64)>> {
        fn put(&mut self, at: u64, what: u64) {
            self.push(Reverse((at, what)));
        }
        fn take(&mut self, limit: u64) -> Option<(u64, u64)> {
            let due = self.peek().is_some_and(|Reverse((at, _))| *at <= limit);
            due.then(|| self.pop().map(|Reverse(e)| e)).flatten()
        }
    }

    /// A run of a schedule on one queue. Its result is the list of popped events; at the end of the schedule it pops
    /// all remaining events.
    #[derive(Default)]
    struct Run {
        now: u64,
        pushed: u64,
        /// The times of the waiting events, and of some that were popped.
        waiting: Vec<u64>,
        popped: Vec<Option<(u64, u64)>>,
    }
    impl Run {
        fn put(&mut self, queue: &mut impl Pops, at: u64) {
            queue.put(at, self.pushed);
            self.pushed += 1;
            self.waiting.push(at);
        }

        /// Pops an event, and returns whether there was one up to `limit`.
        fn take(&mut self, queue: &mut impl Pops, limit: u64) -> bool {
            let event = queue.take(limit);
            self.now = match event {
                Some((at, _)) => at,
                None if limit == u64::MAX => self.now,
                None => limit,
            };
            self.popped.push(event);
            event.is_some()
        }

        fn of(mut self, queue: &mut impl Pops, steps: &[Step]) -> Vec<Option<(u64, u64)>> {
            for step in steps {
                let now = self.now;
                match *step {
                    Step::Push { ahead } => self.put(queue, now + ahead),
                    Step::Edge { bits, times, off } => {
                        let at = (((now >> bits) + times) << bits) + off * 1024;
                        self.put(queue, now.max(at.saturating_sub(3 * 1024)));
                    }
                    Step::Tie { with } => {
                        self.waiting.retain(|at| *at >= now);
                        let at = self.waiting.get(with % self.waiting.len().max(1)).copied();
                        self.put(queue, at.unwrap_or(now));
                    }
                    Step::Pop { within } => drop(self.take(queue, now + within)),
                    Step::Next => drop(self.take(queue, u64::MAX)),
                    Step::March { steps, ahead } => {
                        for _ in 0..steps {
                            self.put(queue, self.now + ahead);
                            self.take(queue, u64::MAX);
                        }
                    }
                }
            }
            while self.take(queue, u64::MAX) {}
            self.popped
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn both_queues_pop_in_order_of_time_and_number(steps in vec(step(), 1..600)) {
            let expected = Run::default().of(&mut BinaryHeap::new(), &steps);
            for kind in [QueueKind::Wheel, QueueKind::Heap] {
                let mut queue = Queue::new(kind);
                prop_assert_eq!(&Run::default().of(&mut queue, &steps), &expected, "{:?}", kind);
                prop_assert!(queue.is_empty(), "{:?}", kind);
            }
        }
    }
}
