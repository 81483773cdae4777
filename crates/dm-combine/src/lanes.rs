//! The local locks of a compute node, which a hash of the key selects, and the futures and guards of their clients.

use core::cell::Cell;
use core::fmt;
use core::future::Future;
use core::hash::Hash;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use dm_sync::thread::unwinds_under_checker;
use dm_sync::{CachePadded, Fingerprint, Mutex, fingerprint_of, fingerprint_unordered, scaled};
use dm_verbs::ClientId;

use crate::Rdwc;
use crate::rules::{Told, Wish};
use crate::shard::{Entered, Entering, Polled, Shard};

const SHARDS: usize = scaled(64, 2);
const _: () = assert!(SHARDS.is_power_of_two());

/// The local locks of read delegation, or those of write combining.
#[derive(Debug)]
pub(crate) struct Lanes<K> {
    shards: Box<[CachePadded<Mutex<Shard<K>>>]>,
    /// The total number of locks minus 1. The number is a power of two.
    mask: u64,
    #[cfg(feature = "study")]
    pub(crate) flaws: crate::RdwcFlaws,
}

/// The number of a lock: its shard, and its place in the shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    shard: usize,
    lane: usize,
}

impl Number {
    /// Returns the lock's place in its shard.
    pub(crate) fn lane(self) -> usize {
        self.lane
    }
}

impl<K: Copy + Eq + Hash> Lanes<K> {
    pub(crate) fn new(rdwc: &Rdwc) -> Self {
        // More than 2²⁴ locks would be useless, because no compute node uses so many keys at once.
        let locks = (rdwc.locks.clamp(1, 1 << 24) as usize).next_power_of_two();
        let shards = locks.min(SHARDS);
        Self {
            shards: (0..shards)
                .map(|_| CachePadded::new(Mutex::new(Shard::new(locks / shards))))
                .collect(),
            mask: (locks - 1) as u64,
            #[cfg(feature = "study")]
            flaws: rdwc.flaws,
        }
    }

    /// Returns the lock of `key`.
    #[inline]
    pub(crate) fn of(&self, key: &K) -> Number {
        // The number is below 2²⁴.
        let number = (fingerprint_of(key) & self.mask) as usize;
        let shards = self.shards.len();
        Number {
            shard: number & (shards - 1),
            lane: number / shards,
        }
    }

    #[inline]
    pub(crate) fn shard(&self, at: Number) -> &Mutex<Shard<K>> {
        &self.shards[at.shard]
    }

    /// Returns a future that joins the operations at the key's lock. If another client's get answers this operation,
    /// the future appends the value to `value`.
    pub(crate) fn join<'a>(
        &'a self,
        key: &'a K,
        client: ClientId,
        wish: Wish,
        value: &'a mut Vec<u8>,
    ) -> Join<'a, K> {
        Join {
            lanes: self,
            key,
            at: self.of(key),
            client,
            wish,
            value,
            stage: Stage::Start,
        }
    }

    /// Returns the future of a waiter that is already in the lock's queue.
    pub(crate) fn waits<'a>(
        &'a self,
        key: &'a K,
        (client, wish): (ClientId, Wish),
        number: u32,
        value: &'a mut Vec<u8>,
    ) -> Join<'a, K> {
        let mut join = self.join(key, client, wish, value);
        join.stage = Stage::Waits(number);
        join
    }

    pub(crate) fn lead(&self, at: Number) -> Lead<'_, K> {
        Lead { lanes: self, at }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.shards) + self.shards.iter().map(|s| s.with(|s| s.bytes())).sum::<usize>()
    }
}

impl<K: Hash> Fingerprint for Lanes<K> {
    fn fingerprint(&self) -> u64 {
        let shards = self.shards.iter().map(|s| (**s).fingerprint()).enumerate();
        fingerprint_unordered(shards.filter(|&(_, shard)| shard != 0))
    }
}

/// The outcome of joining the operations at a lock.
pub(crate) enum Came {
    /// The client leads.
    Leads,
    /// The lock is held for another key, so the client runs its operation alone.
    Alone,
    /// The client must lead, beginning with [`Join::begin`].
    Elected,
    /// Another client ran the operation; this is the answer.
    Told(Told),
}

/// An operation's place in the queue of a lock. Dropping it removes the operation from the queue: see
/// [`Shard::cancel`].
pub(crate) struct Join<'a, K: Copy + Eq + Hash> {
    lanes: &'a Lanes<K>,
    key: &'a K,
    at: Number,
    client: ClientId,
    wish: Wish,
    value: &'a mut Vec<u8>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Start,
    Waits(u32),
    Over,
}

impl<K: Copy + Eq + Hash> fmt::Debug for Join<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join")
            .field("client", &self.client)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

// The future may move, because the lock refers to it by a number and not by its address.
impl<K: Copy + Eq + Hash> Unpin for Join<'_, K> {}

impl<K: Copy + Eq + Hash> Future for Join<'_, K> {
    type Output = Came;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Came> {
        let this = &mut *self;
        let Stage::Start = this.stage else {
            return this.poll_again(cx);
        };
        let who = Entering {
            client: this.client,
            wish: this.wish,
            waker: cx.waker(),
        };
        let flaws = &this.lanes.flaws();
        let shard = this.lanes.shard(this.at);
        let came = match shard.with(|s| s.enter(this.at.lane, this.key, who, flaws)) {
            Entered::Leads => Came::Leads,
            Entered::Alone => Came::Alone,
            Entered::Waits(number) => {
                this.stage = Stage::Waits(number);
                return Poll::Pending;
            }
        };
        this.stage = Stage::Over;
        Poll::Ready(came)
    }
}

impl<'a, K: Copy + Eq + Hash> Join<'a, K> {
    #[cold]
    fn poll_again(&mut self, cx: &Context<'_>) -> Poll<Came> {
        let Stage::Waits(number) = self.stage else {
            unreachable!("the future was polled again after it was ready")
        };
        let value = &mut *self.value;
        let shard = self.lanes.shard(self.at);
        match shard.with(|s| s.poll(number, cx.waker(), value)) {
            Polled::Still(stale) => {
                drop(stale);
                Poll::Pending
            }
            // The operation stays a waiter. If it is dropped now, another waiter is elected.
            Polled::Elected => Poll::Ready(Came::Elected),
            Polled::Told(told) => {
                self.stage = Stage::Over;
                Poll::Ready(Came::Told(told))
            }
        }
    }

    /// Returns the number of the lock.
    pub(crate) fn at(&self) -> Number {
        self.at
    }

    /// Begins to lead after [`Came::Elected`], and closes the epoch.
    pub(crate) fn begin(mut self) {
        if let Stage::Waits(number) = core::mem::replace(&mut self.stage, Stage::Over) {
            let at = self.at;
            self.lanes.shard(at).with(|s| s.seal(at.lane, number));
        }
    }
}

impl<K: Copy + Eq + Hash> Drop for Join<'_, K> {
    fn drop(&mut self) {
        let Stage::Waits(number) = self.stage else { return };
        if unwinds_under_checker() {
            return;
        }
        let at = self.at;
        let (next, _was) = self.lanes.shard(at).with(|s| s.cancel(at.lane, number));
        if let Some(next) = next {
            next.wake();
        }
    }
}

/// The role of a leader, which runs the operation for all its followers. If it is dropped without a result, the
/// followers join the next epoch.
#[derive(Debug)]
#[must_use = "if it is dropped, the followers get no result"]
pub(crate) struct Lead<'t, K: Copy + Eq + Hash> {
    lanes: &'t Lanes<K>,
    at: Number,
}

impl<K: Copy + Eq + Hash> Lead<'_, K> {
    /// Ends the epoch. If there is a result, passes it to all followers for which it is valid. `wakers` is an empty
    /// vector before and after: only its memory is used, and only if other operations wait at the lock.
    #[inline]
    pub(crate) fn tell(self, answer: Option<(Told, &[u8])>, wakers: &Cell<Vec<Waker>>) {
        // `finish` does everything that the destructor would do.
        ManuallyDrop::new(self).finish(answer, wakers);
    }

    #[inline]
    fn finish(&self, answer: Option<(Told, &[u8])>, wakers: &Cell<Vec<Waker>>) {
        let (at, flaws) = (self.at, &self.lanes.flaws());
        let wake = self.lanes.shard(at).with(|s| {
            (!s.finish_alone(at.lane)).then(|| {
                let mut wake = wakers.take();
                s.finish_for_others(at.lane, answer, &mut wake, flaws);
                wake
            })
        });
        // This is outside the section, because a waker may run code that enters the section.
        //= docs/protocol/combine.md C11
        if let Some(mut wake) = wake {
            wake.drain(..).for_each(Waker::wake);
            wakers.set(wake);
        }
    }
}

impl<K: Copy + Eq + Hash> Drop for Lead<'_, K> {
    fn drop(&mut self) {
        let flaws = &self.lanes.flaws();
        if flaws.leaves_silently || unwinds_under_checker() {
            return;
        }
        //= docs/protocol/combine.md C7
        let unknown = Told::Applied(dm_index::Applied::Replaced);
        self.finish(flaws.tells_unknown.then_some((unknown, &[])), &Cell::default());
    }
}
