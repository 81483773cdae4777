//! The local locks of a compute node, by a hash of the key, and what clients hold of them: futures and guards.

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

use crate::RdwcFlaws;
use crate::rules::{Told, Wish};
use crate::shard::{Entered, Entering, Polled, Shard};

const SHARDS: usize = scaled(64, 2);
const _: () = assert!(SHARDS.is_power_of_two());

/// Local locks: all of read delegation's, or all of write combining's.
#[derive(Debug)]
pub(crate) struct Lanes<K> {
    shards: Box<[CachePadded<Mutex<Shard<K>>>]>,
    /// Locks in all, less one: a power of two.
    mask: u64,
    pub(crate) flaws: RdwcFlaws,
}

/// Which lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    shard: usize,
    lane: usize,
}

impl Number {
    /// Within its shard.
    pub(crate) fn lane(self) -> usize {
        self.lane
    }
}

impl<K: Copy + Eq + Hash> Lanes<K> {
    pub(crate) fn new(locks: u32, flaws: RdwcFlaws) -> Self {
        // More than this many keys are never in use at once.
        let locks = (locks.clamp(1, 1 << 24) as usize).next_power_of_two();
        let shards = locks.min(SHARDS);
        Self {
            shards: (0..shards)
                .map(|_| CachePadded::new(Mutex::new(Shard::new(locks / shards))))
                .collect(),
            mask: (locks - 1) as u64,
            flaws,
        }
    }

    /// The lock of a key.
    #[inline]
    pub(crate) fn of(&self, key: &K) -> Number {
        // Below 2²⁴.
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

    /// To be awaited: a place at the key's lock. What a get is told goes into `value`.
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

    /// The place of a waiter that has queued.
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

/// What a client came to at a lock.
pub(crate) enum Came {
    /// It leads.
    Leads,
    /// The lock is another key's: it goes alone.
    Alone,
    /// It is to lead, after [`Join::begin`].
    Elected,
    /// Another did it for this one.
    Told(Told),
}

/// A place at a lock. Dropping it gives the place up: see [`Shard::cancel`].
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

// Nothing points into it: the lock knows it by a number.
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
        let flaws = &this.lanes.flaws;
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
            unreachable!("a place is polled no more once it was ready")
        };
        let value = &mut *self.value;
        let shard = self.lanes.shard(self.at);
        match shard.with(|s| s.poll(number, cx.waker(), value)) {
            Polled::Still(stale) => {
                drop(stale);
                Poll::Pending
            }
            // Still a waiter: whoever drops it now lets another be elected.
            Polled::Elected => Poll::Ready(Came::Elected),
            Polled::Told(told) => {
                self.stage = Stage::Over;
                Poll::Ready(Came::Told(told))
            }
        }
    }

    /// Which lock.
    pub(crate) fn at(&self) -> Number {
        self.at
    }

    /// After [`Came::Elected`]: begins to lead, and closes the epoch.
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

/// The right, and the duty, to do the operation for all that have come. Dropping it without an answer lets them go on.
#[derive(Debug)]
#[must_use = "dropping it says that the operation came to nothing"]
pub(crate) struct Lead<'t, K: Copy + Eq + Hash> {
    lanes: &'t Lanes<K>,
    at: Number,
}

impl<K: Copy + Eq + Hash> Lead<'_, K> {
    /// Gives the answer, if there is one, to whom it concerns. `wakers` is empty, before and after: only its memory is
    /// used, and only if somebody came.
    #[inline]
    pub(crate) fn tell(self, answer: Option<(Told, &[u8])>, wakers: &Cell<Vec<Waker>>) {
        // Nothing is left to be done by its drop.
        ManuallyDrop::new(self).finish(answer, wakers);
    }

    #[inline]
    fn finish(&self, answer: Option<(Told, &[u8])>, wakers: &Cell<Vec<Waker>>) {
        let (at, flaws) = (self.at, &self.lanes.flaws);
        let wake = self.lanes.shard(at).with(|s| {
            (!s.finish_alone(at.lane)).then(|| {
                let mut wake = wakers.take();
                s.finish_for_others(at.lane, answer, &mut wake, flaws);
                wake
            })
        });
        // Outside of the section: what a waker runs may enter it.
        //= docs/protocol/combine.md C11
        if let Some(mut wake) = wake {
            wake.drain(..).for_each(Waker::wake);
            wakers.set(wake);
        }
    }
}

impl<K: Copy + Eq + Hash> Drop for Lead<'_, K> {
    fn drop(&mut self) {
        let flaws = &self.lanes.flaws;
        if flaws.leaves_silently || unwinds_under_checker() {
            return;
        }
        //= docs/protocol/combine.md C7
        let unknown = Told::Applied(dm_index::Applied::Replaced);
        self.finish(flaws.tells_unknown.then_some((unknown, &[])), &Cell::default());
    }
}
