//! Clients and their queue pairs.

/// The engine's state of one client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientState {
    /// The end of the CPU time that the client has reserved last. Until then, the client posts without waiting.
    pub(super) slice_end: u64,
    /// The client whose state stores the time of the hardware thread: the first client of this thread.
    pub(super) thread: u16,
    /// The time at which the CPU of the hardware thread is free. Valid only in the client that `thread` names.
    pub(super) thread_free: u64,
    /// Picoseconds of work on the hardware thread. Valid only in the client that `thread` names.
    pub(super) thread_busy: u64,
    pub(super) nic: u16,
    pub(crate) fenced: bool,
    /// The group of clients that are fenced together with this client.
    pub(crate) group: Option<u16>,
    pub(crate) crashed: bool,
    /// The client's own chain.
    pub(super) home: u32,
}

/// A reliable connection of one client to one memory node: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct QueuePair {
    /// The time at which the requester had processed the last request.
    pub(super) sent: u64,
    /// The arrival time of the last request.
    pub(super) arrived: u64,
    /// The earliest time at which the next request may act on memory, for each space of the earlier requests. It
    /// implements the order within the queue pair.
    pub(super) order: [u64; 2],
    /// The time at which the last atomic acts, if a later READ may overtake it; otherwise 0.
    pub(super) atomic_at: u64,
    /// The time of the last completion.
    pub(super) done: u64,
    /// The number of READs and atomics without a known response time, and the time at which the last known response
    /// arrives.
    pub(super) unanswered: u32,
    pub(super) answered: u64,
    /// All unusual conditions of the queue pair, in one word, so that a single check suffices.
    pub(super) odd: Odd,
}

/// A set of unusual conditions of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Odd(u8);

impl Odd {
    /// A request was lost, and its chain has not completed with the error yet.
    pub(super) const BROKEN: Odd = Odd(1);
    /// The client is fenced.
    pub(super) const FENCED: Odd = Odd(2);
    /// A request with a fence waits for earlier responses, so all later requests wait too.
    pub(super) const PARKED: Odd = Odd(4);
    /// The client has crashed.
    pub(super) const CRASHED: Odd = Odd(8);
    /// All conditions.
    pub(super) const ANY: Odd = Odd(u8::MAX);

    #[inline]
    pub(super) const fn and(self, other: Odd) -> Odd {
        Odd(self.0 | other.0)
    }
    /// Returns whether any of `these` holds.
    #[inline]
    pub(super) const fn any(self, these: Odd) -> bool {
        self.0 & these.0 != 0
    }
    #[inline]
    pub(super) fn set(&mut self, these: Odd, to: bool) {
        if to {
            self.0 |= these.0;
        } else {
            self.0 &= !these.0;
        }
    }
}

const _: () = assert!(size_of::<QueuePair>() == 64);
