//! The event queue: a timing wheel, exact to the picosecond, and a binary heap to check it against.
//!
//! Order is by `(time, sequence number)`, exactly as a heap would give it, so a run's digest does not depend on the
//! choice of queue.

mod nodes;
mod wheel;

pub(crate) use wheel::Wheel as Queue;

/// Bits of what an event is about: the engine's own packing.
pub(crate) const WHAT_BITS: u32 = 52;

/// An event: when, and what (the engine's own packing, [`WHAT_BITS`] wide).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) at: u64,
    pub(crate) what: u64,
}

/// Which queue a simulation runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueKind {
    /// The timing wheel.
    #[default]
    Wheel,
    /// std's binary heap: slower from some hundred clients on; the wheel is checked against it.
    Heap,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random pushes over all ranges (same bucket, wheel, beyond the horizon) interleaved with pops.
    fn drive(kind: QueueKind, seed: u64) -> Vec<(u64, u64)> {
        let mut queue = Queue::new(kind);
        let mut state = seed;
        let mut random = move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            state >> 33
        };
        let (mut now, mut out) = (0u64, Vec::new());
        for step in 0..60_000u64 {
            for _ in 0..random() % 3 {
                let ahead = match random() % 8 {
                    0 => 0,
                    1 => random() % 4096,
                    2 => 100_000_000 + random() % 100_000_000,
                    3 => 134_217_728 + random() % 8192,
                    4 => 5_000_000_000 + random() % 1_000_000_000,
                    _ => random() % 3_000_000,
                };
                queue.push(now + ahead, step);
            }
            let limit = now + random() % 5_000_000;
            match queue.pop(limit, |_| {}) {
                Some(e) => {
                    now = e.at;
                    out.push((e.at, e.what));
                }
                None => now = limit,
            }
        }
        while let Some(e) = queue.pop(u64::MAX, |_| {}) {
            out.push((e.at, e.what));
        }
        assert_eq!(out.len() as u64, queue.pushed());
        out
    }

    #[test]
    fn the_wheel_gives_exactly_the_order_of_a_heap() {
        for seed in 1..6 {
            assert_eq!(
                drive(QueueKind::Wheel, seed),
                drive(QueueKind::Heap, seed),
                "seed {seed}"
            );
        }
    }
}
