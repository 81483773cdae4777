//! A client's seat, by which it announces its operations if memory is reused.

use core::cell::Cell;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use dm_alloc::{Allocator, Class, Held};
use dm_cache::Since;
use dm_index::{IndexError, KeyBytes};
use dm_layout::SlotWord;
use dm_sync::epoch::{self, Epochs, Seat};
use dm_verbs::{Control, LocalStep, Nanos, Old, RemotePtr, Ticket, Verbs, Why};

use crate::Art;
use crate::SingleStore;
use crate::art::{ArtClient, FIRST_INCARNATION, KeyText};
use crate::block::{leaf_class, retire, retired};

/// During a census, the length of a turn of the cache is divided by this number, because a census waits for four turns
/// of each compute node.
const CENSUS_TURNS: u64 = 16;

/// A client's seat, if memory is reused.
pub(crate) struct Presence<'h> {
    seat: Option<Seat>,
    /// Whether the client's operations run within other operations of the same connection. Such a client only enrols
    /// its seat. The outer operation does the rounds and the turns of the cache.
    within: bool,
    /// The number of the cache's turns when the operation began.
    turns: Cell<u64>,
    vacate: Box<dyn Fn(Seat) + 'h>,
}

impl fmt::Debug for Presence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Presence").field(&self.seat).finish()
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            //= docs/protocol/smart.md M23
            (self.vacate)(seat);
        }
    }
}

/// A running operation. While it runs, neither memory that it reads nor memory whose address is in the compute node's
/// cache is reused.
#[derive(Debug)]
#[must_use = "call `end` when all requests have completed; if this is dropped, the seat stays pinned"]
pub(crate) struct Running<'s> {
    inner: Option<epoch::Running<'s>>,
}

impl<'s> Running<'s> {
    /// Returns the plain guard. It ends the operation when it is dropped, even if requests are still in flight.
    pub(crate) fn plain(mut self) -> Option<epoch::Running<'s>> {
        self.inner.take()
    }

    /// Ends the operation. All requests that the operation posted must have completed.
    #[inline]
    pub(crate) fn end(mut self) {
        drop(self.inner.take());
    }
}

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        //= docs/protocol/smart.md M23
        if let Some(running) = self.inner.take() {
            running.forget();
        }
    }
}

/// A removed leaf, and the CAS that clears its slot and may still be in flight. The operation that removed the leaf may
/// have ended.
pub(crate) struct Clearing<'h, V: Verbs> {
    /// The CAS, and the hold on the leaf, until the CAS has completed.
    posted: Option<(Ticket<'h, V, (Old,)>, Held)>,
    alloc: &'h Allocator,
    text: KeyText,
    word: SlotWord,
    class: Class,
}

impl<V: Verbs> fmt::Debug for Clearing<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clearing")
            .field(&self.word)
            .finish_non_exhaustive()
    }
}

impl<V: Verbs> Clearing<'_, V> {
    /// Compares the word that the CAS found with the expected word. If the CAS succeeded, retires the leaf. Returns
    /// whether this client must still unlink the leaf, within the operation in which it calls this.
    fn found(&self, old: u64, held: Held) -> bool {
        //= docs/protocol/recovery.md V25
        if old == self.word.raw() {
            let at = RemotePtr::from_raw(self.word.pointer());
            self.alloc
                .retire_held(held, retired(at, FIRST_INCARNATION), self.class);
            return false;
        }
        self.alloc.release(held)
    }
}

impl<V: Verbs> Drop for Clearing<'_, V> {
    /// Retires the leaf if the CAS has already completed and succeeded. Otherwise the leaf's block is lost.
    fn drop(&mut self) {
        if let Some((mut ticket, held)) = self.posted.take() {
            match Pin::new(&mut ticket).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(old)) => self.found(old, held),
                _ => self.alloc.release(held),
            };
        }
    }
}

impl<K, L> Art<K, L> {
    pub(crate) fn presence<'h, V: Verbs>(&'h self, v: &'h V, within: bool) -> Presence<'h> {
        Presence {
            seat: self.alloc.seat(v),
            within,
            turns: Cell::new(0),
            vacate: Box::new(|seat| self.alloc.vacate(v, seat)),
        }
    }

    /// Drops the whole cache if operations begin in another epoch than at the last turn, because the cached nodes may no
    /// longer exist. A client calls this whenever it prepares its seat. Other work calls it at the beginning of its
    /// operation, before it uses the cache.
    pub(crate) fn refresh(&self) {
        let Some(epochs) = self.alloc.epochs() else { return };
        self.turning.with(|turning| {
            let epoch = epochs.epoch();
            //= docs/protocol/smart.md M22
            if turning.epoch != epoch {
                self.cache.expire();
                turning.epoch = epoch;
            }
        });
    }

    /// Begins the next turn of the cache if the last one has ended, or if `now` is set.
    fn turn<V: Verbs>(&self, v: &V, now: bool) {
        let forgetful = !self.options.flaws().cache_unpinned;
        let turn = match self.alloc.is_in_census() {
            true => Nanos(self.options.turn.0 / CENSUS_TURNS),
            false => self.options.turn,
        };
        self.turning.with(|turning| {
            if now || v.elapsed(turning.last, turn) {
                turning.last = v.now();
                //= docs/protocol/smart.md M22
                turning.epoch = self.alloc.turn(|| {
                    if forgetful {
                        self.cache.turn();
                    }
                });
            }
        });
    }

    /// Does one round of reclamation and begins the next turn of the cache, even if neither is due. Call this on a
    /// compute node that runs no operations for a while. The verbs are metered as housekeeping.
    ///
    /// If every compute node does this five times, all memory that was retired before the first call is freed, unless
    /// an operation that began before still runs.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::collect`].
    pub async fn collect<V: Verbs + Control>(&self, v: &V) -> Result<(), IndexError> {
        let Some(epochs) = self.alloc.epochs() else {
            return Ok(());
        };
        let seat = Epochs::seat(epochs);
        let collected = self.alloc.collect(v, &seat).await.map_err(IndexError::from);
        v.local(LocalStep::Section).await;
        self.refresh();
        self.turn(v, true);
        drop(seat);
        self.alloc.leave_if_empty(v);
        collected
    }

    /// Runs `work`, which belongs to no client, as an operation of its own ([`Allocator::visit`]). The cache has dropped
    /// the nodes that may no longer exist before `work` begins.
    pub(crate) async fn as_operation<V: Verbs + Control, T>(
        &self,
        v: &V,
        work: impl Future<Output = Result<T, IndexError>>,
    ) -> Result<T, IndexError> {
        let refreshed = async {
            v.local(LocalStep::Section).await;
            self.refresh();
            work.await
        };
        self.alloc.visit(v, refreshed).await
    }
}

impl<'h, V, K, L> ArtClient<'h, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Returns the cache, for adding the nodes that this operation reads.
    #[inline]
    pub(crate) fn cache(&self) -> Since<'h> {
        self.art.cache.since(self.presence.turns.get())
    }

    #[inline(always)]
    fn seated<'s>(&'s self, seat: &'s Seat) -> Option<Running<'s>> {
        // If the seat already runs an operation of several steps, the seat is not prepared again. That operation
        // belongs to the membership in which it began (R6), and its seat must stay pinned.
        let due = || !self.presence.within && self.art.alloc.is_due(self.v);
        if !seat.is_running() && (seat.has_forgotten() || due()) {
            return None;
        }
        self.running(seat.enter()?)
    }

    #[inline(always)]
    fn running<'s>(&'s self, running: epoch::Running<'s>) -> Option<Running<'s>> {
        //= docs/protocol/smart.md M22
        self.presence.turns.set(self.art.cache.turns());
        Some(Running { inner: Some(running) })
    }

    /// Begins an operation.
    pub(crate) async fn start(&self) -> Result<Option<Running<'_>>, IndexError> {
        let Some(seat) = &self.presence.seat else {
            return Ok(None);
        };
        self.v.local(LocalStep::Section).await;
        match self.seated(seat) {
            Some(running) => Ok(Some(running)),
            None => self.enrolled(seat).await,
        }
    }

    /// Prepares the seat, and then begins an operation.
    async fn enrolled<'s>(&'s self, seat: &'s Seat) -> Result<Option<Running<'s>>, IndexError> {
        let mut retry = self.v.retry(self.art.options.attempts);
        loop {
            self.prepare(seat).await?;
            self.v.local(LocalStep::Section).await;
            if let Some(running) = seat.enter() {
                return Ok(self.running(running));
            }
            // Since `prepare` ended, the compute node has left the pool, or other members have removed it because it
            // was silent.
            retry.again(RemotePtr::NULL, Why::Changing).await?;
        }
    }

    /// Prepares the seat (see [`Allocator::prepare`](dm_alloc::Allocator::prepare)), and begins the next turn of the
    /// cache if it is due. If the client's operations run within other operations, only enrols the seat, because the
    /// outer operation does the rest.
    async fn prepare(&self, seat: &Seat) -> Result<(), IndexError> {
        if self.presence.within {
            self.art.alloc.enroll_within(self.v, seat).await;
            return Ok(());
        }
        self.art.alloc.prepare(self.v, seat).await?;
        self.v.local(LocalStep::Section).await;
        self.art.refresh();
        self.art.turn(self.v, false);
        Ok(())
    }

    /// Retires a leaf that this client has removed or replaced. No slot may lead to it any more.
    pub(crate) fn retire_leaf(&self, at: RemotePtr) {
        let class = leaf_class(self.art.leaves.block_bytes());
        retire(&self.art.alloc, at, FIRST_INCARNATION, class);
    }

    /// Gives back a leaf that this client has replaced, although others may still read it (for study only).
    #[cold]
    pub(crate) fn give_back_leaf(&self, at: RemotePtr) {
        let class = leaf_class(self.art.leaves.block_bytes());
        self.art.alloc.give_back(retired(at, FIRST_INCARNATION), class);
    }

    /// Returns whether memory is reused.
    pub(crate) fn reclaims(&self) -> bool {
        self.presence.seat.is_some()
    }

    /// Stores the ticket of a CAS that clears the slot of a removed leaf, without awaiting it. Then awaits the client's
    /// previous CAS of this kind, which has probably completed by now. If that CAS failed, clears the slot of its leaf
    /// by [`ArtClient::clear`].
    pub(crate) async fn clearing(
        &self,
        ticket: Ticket<'h, V, (Old,)>,
        text: &KeyText,
        word: SlotWord,
    ) -> Result<(), IndexError> {
        //= docs/protocol/recovery.md V25
        let held = self.art.alloc.hold(RemotePtr::from_raw(word.pointer()));
        let next = Clearing {
            posted: Some((ticket, held)),
            alloc: &self.art.alloc,
            text: *text,
            word,
            class: leaf_class(self.art.leaves.block_bytes()),
        };
        let before = self.clearing.replace(Some(next));
        self.cleared(before).await
    }

    /// Awaits the last CAS that clears a slot, and clears the slot if the CAS failed. Call this before the client is
    /// dropped.
    pub(crate) async fn settle(&self) -> Result<(), IndexError> {
        //= docs/protocol/smart.md M23
        let running = self.start().await?;
        let last = self.clearing.take();
        end_operation(running, self.cleared(last).await)
    }

    async fn cleared(&self, before: Option<Clearing<'h, V>>) -> Result<(), IndexError> {
        let Some(mut before) = before else {
            return Ok(());
        };
        let Some((ticket, _)) = &mut before.posted else {
            return Ok(());
        };
        // The hold stays in `before` during the await, so that the destructor of `before` ends it if this future is
        // dropped.
        let found = ticket.await;
        let Some((_, held)) = before.posted.take() else {
            return Ok(());
        };
        let must_clear = match found {
            Ok(old) => before.found(old, held),
            Err(e) => {
                // The leaf is lost until the next census.
                self.art.alloc.release(held);
                return Err(e.into());
            }
        };
        if must_clear {
            let leaf = RemotePtr::from_raw(before.word.pointer());
            self.clear(&before.text, leaf).await?;
        }
        Ok(())
    }
}

/// Ends an operation that succeeded. A failed operation stays announced, because its requests may still be in flight.
#[inline]
pub(crate) fn end_operation<T>(
    running: Option<Running<'_>>,
    done: Result<T, IndexError>,
) -> Result<T, IndexError> {
    if let (Some(running), Ok(_)) = (running, &done) {
        running.end();
    }
    done
}
