//! Clients and their queue pairs.

/// One client, as the engine sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientState {
    /// When the CPU that it was last given ends: posting then goes on at once.
    pub(super) slice_end: u64,
    /// Which client keeps the time of its hardware thread: the first of those that share it.
    pub(super) thread: u16,
    /// When that thread's CPU is free, as far as it was given away; of the client that keeps it.
    pub(super) thread_free: u64,
    pub(super) nic: u16,
    pub(crate) fenced: bool,
    /// The clients that it is fenced with.
    pub(crate) group: Option<u16>,
    pub(crate) crashed: bool,
    /// Its own chain.
    pub(super) home: u32,
}

/// A reliable connection of one client to one memory node: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct QueuePair {
    /// When the requester had the last request.
    pub(super) sent: u64,
    /// When the last request arrives.
    pub(super) arrived: u64,
    /// From when on the next request may act on memory, by space of the requests so far: order within the pair.
    pub(super) order: [u64; 2],
    /// When the last atomic acts, where a READ behind it need not wait; else 0.
    pub(super) atomic_at: u64,
    /// The last completion.
    pub(super) done: u64,
    /// READs and atomics whose answer is still to come, and when the last known one does.
    pub(super) unanswered: u32,
    pub(super) answered: u64,
    /// What is out of the ordinary about it: all of it is one look.
    pub(super) odd: Odd,
}

/// What may be out of the ordinary about a queue pair: a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Odd(u8);

impl Odd {
    /// A request was lost, and its error has not been reported yet.
    pub(super) const BROKEN: Odd = Odd(1);
    /// Its client is fenced.
    pub(super) const FENCED: Odd = Odd(2);
    /// Chains wait behind a fenced request.
    pub(super) const PARKED: Odd = Odd(4);
    /// Its client's processor is dead.
    pub(super) const CRASHED: Odd = Odd(8);
    /// Anything.
    pub(super) const ANY: Odd = Odd(u8::MAX);

    #[inline]
    pub(super) const fn and(self, other: Odd) -> Odd {
        Odd(self.0 | other.0)
    }
    /// Whether any of `these` holds.
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
