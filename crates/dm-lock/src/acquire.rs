//! Acquisition of a lock: first the local turn, then the remote word.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use dm_verbs::{Bytes, Event, Exhausted, LocalStep, Nanos, Old, RemotePtr, Retry, Ticket, Verbs, Why};

use crate::guard::Guard;
use crate::local::{Acquire, AlreadyHeld, Handed, Orphan};
use crate::locks::{LocalTable, Seat};
use crate::packed::PackedTurn;
use crate::{LockError, LockId, Locks};

/// The READ that a client posts under the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadTo {
    pub(crate) at: RemotePtr,
    pub(crate) len: u32,
}

/// A handler that releases a lock which was handed over to a client, if the client is dropped before it is polled
/// again.
pub(crate) struct Unlocks<'a, V: Verbs> {
    locks: &'a Locks,
    v: &'a V,
    id: LockId,
}

impl<V: Verbs> Orphan for Unlocks<'_, V> {
    fn left(self, handed: Handed) -> Option<u64> {
        let cell = self.locks.cell(self.id);
        cell.abandon(self.v, handed.raw, handed.payload);
        self.locks.unsettled(cell, handed.raw, self.v.client())
    }
}

/// The result of the first attempt at a lock.
pub enum Attempted<'a, V: Verbs> {
    /// The lock is held. There are bytes if the attempt had a READ.
    Locked(Option<V::Lease>),
    /// The lock is not held yet, or it is held while other clients still share it. [`Guard::insist`] continues the
    /// acquisition.
    Not(Obstacle<'a, V>),
}

/// The reason why the first attempt failed. [`Guard::insist`] needs it.
pub struct Obstacle<'a, V: Verbs>(Met<'a, V>);

enum Met<'a, V: Verbs> {
    /// The local table has no queue.
    NoQueue,
    /// Another client of the compute node has the local turn. The queue has this client's waker.
    Queue(Acquire<'a, Unlocks<'a, V>>),
    /// The unlock of an earlier holder might not have landed yet.
    Unsettled,
    /// The CAS found this word and did not take the lock.
    Refused {
        old: u64,
        /// The retry loop, if its attempts have no READ.
        retry: Option<Retry<'a, V>>,
    },
    /// The lock was taken while other clients shared it.
    Shared,
}

/// One attempt to take a lock: the local turn, the CAS with or without a READ in its chain, and the READ.
///
/// This future is written by hand because every write runs it. The compiler would copy an `async fn` into its caller's
/// future, and would not inline its `poll`.
#[must_use = "nothing is posted before the first poll"]
pub struct Attempt<'g, 'a, V: Verbs> {
    // The guard outlives the ticket. If both are dropped, the ticket is dropped first. Then the guard posts the undo,
    // and after that it passes the turn on.
    guard: &'g mut Guard<'a, V>,
    read: Option<ReadTo>,
    second: Option<ReadTo>,
    posted: Option<Ticket<'a, V, (Bytes,)>>,
    stage: Stage<'a, V>,
}

enum Stage<'a, V: Verbs> {
    /// Before the local turn is taken. Holds the state of the local step.
    Turn(u64),
    /// CAS and READ in one chain.
    Both(Ticket<'a, V, (Old, Bytes)>),
    /// The CAS alone, with its retry loop.
    Alone(Ticket<'a, V, (Old,)>, Retry<'a, V>),
    /// The READ under the lock.
    Reading(Ticket<'a, V, (Bytes,)>),
}

impl<V: Verbs> fmt::Debug for Attempted<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked(_) => f.write_str("Locked(..)"),
            Self::Not(obstacle) => f.debug_tuple("Not").field(obstacle).finish(),
        }
    }
}

impl<V: Verbs> fmt::Debug for Obstacle<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Met::NoQueue => "a table without a queue",
            Met::Queue(_) => "a queue",
            Met::Unsettled => "an unlock that may not have landed",
            Met::Refused { .. } => "a held lock",
            Met::Shared => "sharers",
        })
    }
}

impl<V: Verbs> fmt::Debug for Attempt<'_, '_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("place", &self.guard.place())
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

// No field is pinned.
impl<V: Verbs> Unpin for Attempt<'_, '_, V> {}

impl<'a, V: Verbs> Future for Attempt<'_, 'a, V> {
    type Output = Result<Attempted<'a, V>, LockError>;

    // This is always inlined, so that the result stays in registers on the path of every write.
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Stage::Turn(step) = &mut this.stage {
            if let Some(met) = ready!(this.guard.poll_turn(step, cx))? {
                return Poll::Ready(Ok(Attempted::Not(Obstacle(met))));
            }
            let guess = this.guard.guess();
            this.stage = this.guard.ask(guess, this.read, None);
            if this.second.is_some() {
                this.post_second();
            }
        }
        let (old, lease) = match &mut this.stage {
            Stage::Both(ticket) => match ready!(Pin::new(ticket).poll(cx)) {
                Ok((old, lease)) => (old, Some(lease)),
                Err(e) => return Poll::Ready(Err(this.guard.attempt_failed(e))),
            },
            Stage::Alone(ticket, _) => match ready!(Pin::new(ticket).poll(cx)) {
                Ok(old) => (old, None),
                Err(e) => return Poll::Ready(Err(this.guard.attempt_failed(e))),
            },
            Stage::Reading(_) | Stage::Turn(_) => return this.poll_read(cx),
        };
        if this.guard.is_taken_by(old) && (lease.is_some() || this.read.is_none()) {
            return Poll::Ready(Ok(Attempted::Locked(lease)));
        }
        drop(lease);
        this.otherwise(old, cx)
    }
}

impl<'a, V: Verbs> Attempt<'_, 'a, V> {
    /// Adds a second READ under the lock, of `len` bytes at `at` on the same memory node. It has its own doorbell,
    /// behind the one of the first READ. [`Attempt::take_second`] returns it.
    ///
    /// # Panics
    /// Panics if `at` is on another memory node than the lock.
    #[inline]
    pub fn and_read(mut self, at: RemotePtr, len: u32) -> Self {
        assert_eq!(
            self.guard.id().node,
            at.node(),
            "a lock lies on the memory node of what it guards"
        );
        self.second = Some(ReadTo { at, len });
        self
    }

    /// Returns the ticket of the second READ, if this READ was posted. If the first READ is in the chain of the CAS,
    /// the second one is posted at once, and its bytes count only if the CAS takes the lock. Otherwise the second READ
    /// is posted after the CAS has taken the lock.
    #[inline]
    pub fn take_second(&mut self) -> Option<Ticket<'a, V, (Bytes,)>> {
        self.posted.take()
    }

    /// Posts the second READ, if there is one and the first READ has been posted.
    #[inline]
    fn post_second(&mut self) {
        //= docs/protocol/lock.md L3
        if let (Some(ReadTo { at, len }), Stage::Both(_) | Stage::Reading(_)) = (self.second, &self.stage) {
            self.posted = Some(self.guard.verbs().read(at, len));
        }
    }

    /// Continues an attempt whose first chain has completed. Returns an obstacle if the CAS did not take the lock, or
    /// if other clients share it and this guard excludes them. Otherwise posts the READ, if there is one that was not
    /// in the chain, and polls it.
    #[inline(never)]
    fn otherwise(&mut self, old: u64, cx: &mut Context<'_>) -> Poll<Result<Attempted<'a, V>, LockError>> {
        let met = if !self.guard.is_held() {
            let retry = match core::mem::replace(&mut self.stage, Stage::Turn(0)) {
                Stage::Alone(_, retry) => Some(retry),
                _ => None,
            };
            Met::Refused { old, retry }
        } else if self.guard.cell().sharers(old) > 0 && !self.guard.is_beside() {
            Met::Shared
        } else if let Some(ReadTo { at, len }) = self.read {
            self.stage = Stage::Reading(self.guard.verbs().read(at, len));
            self.post_second();
            return self.poll_read(cx);
        } else {
            return Poll::Ready(Ok(Attempted::Locked(None)));
        };
        Poll::Ready(Ok(Attempted::Not(Obstacle(met))))
    }

    /// Awaits the READ under a lock that was taken by a CAS alone.
    #[inline(never)]
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Attempted<'a, V>, LockError>> {
        let Stage::Reading(ticket) = &mut self.stage else {
            unreachable!("an attempt is polled no more once it was ready")
        };
        Poll::Ready(Ok(Attempted::Locked(Some(ready!(Pin::new(ticket).poll(cx))?))))
    }
}

impl Locks {
    /// Takes lock `id`. If `read` is given, READs its bytes under the lock and returns them.
    ///
    /// # Errors
    /// Returns the same errors as [`Locks::lock_and_read`].
    pub(crate) async fn take<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        id: LockId,
        read: Option<ReadTo>,
    ) -> Result<(Guard<'a, V>, Option<V::Lease>), LockError> {
        let mut guard = self.aim(v, id)?;
        let lease = match guard.attempt_with(read).await? {
            Attempted::Locked(lease) => lease,
            Attempted::Not(obstacle) => guard.insist_with(obstacle, read).await?,
        };
        Ok((guard, lease))
    }

    #[cold]
    fn already_held(&self, id: LockId) -> LockError {
        LockError::AlreadyHeld {
            place: self.cell(id).place,
        }
    }
}

impl<'a, V: Verbs> Guard<'a, V> {
    /// Tries to take the lock, with a READ of `len` bytes at `read_at` (same memory node) under it. Without contention,
    /// one attempt suffices, except with [`Local::Spin`](crate::Local::Spin), and sometimes without masked atomics.
    ///
    /// # Panics
    /// Panics if `read_at` is on another memory node than the lock.
    #[inline(always)]
    pub fn attempt(&mut self, read_at: RemotePtr, len: u32) -> Attempt<'_, 'a, V> {
        assert_eq!(
            self.id().node,
            read_at.node(),
            "a lock lies on the memory node of what it guards"
        );
        self.attempt_with(Some(ReadTo { at: read_at, len }))
    }

    #[inline(always)]
    fn attempt_with(&mut self, read: Option<ReadTo>) -> Attempt<'_, 'a, V> {
        Attempt {
            guard: self,
            read,
            second: None,
            posted: None,
            stage: Stage::Turn(0),
        }
    }

    /// Continues the acquisition after [`Guard::attempt`] returned an obstacle, until the lock is held: waits for the
    /// local turn and for other compute nodes. Then it READs `len` bytes at `read_at`.
    ///
    /// # Errors
    /// Returns the same errors as [`Locks::lock_and_read`], and [`LockError::NotGuarded`] if `read_at` is on another
    /// memory node than the lock. The guard may hold the lock nevertheless, until it is dropped.
    pub async fn insist(
        &mut self,
        obstacle: Obstacle<'a, V>,
        read_at: RemotePtr,
        len: u32,
    ) -> Result<V::Lease, LockError> {
        //= docs/protocol/lock.md L1
        // The CAS does not order a READ of another memory node, and the lock does not guard it.
        if read_at.node() != self.id().node {
            return Err(LockError::NotGuarded { node: read_at.node() });
        }
        let read = ReadTo { at: read_at, len };
        let lease = self.insist_with(obstacle, Some(read)).await?;
        Ok(lease.expect("an acquisition with a READ gives bytes"))
    }

    async fn insist_with(
        &mut self,
        obstacle: Obstacle<'a, V>,
        read: Option<ReadTo>,
    ) -> Result<Option<V::Lease>, LockError> {
        let since = self.verbs().now();
        let taken = self.overcome(obstacle, read).await;
        let v = self.verbs();
        v.meter()
            .waited_for_lock(Nanos(v.now().0.saturating_sub(since.0)));
        taken
    }

    async fn overcome(
        &mut self,
        Obstacle(met): Obstacle<'a, V>,
        read: Option<ReadTo>,
    ) -> Result<Option<V::Lease>, LockError> {
        let settled = self.locks().settle_if_due(self.verbs()).await;
        let refused = match met {
            Met::Shared => return self.alone(read).await,
            Met::Refused { old, retry } => Some((old, retry)),
            Met::Queue(acquire) => {
                if self.queue(acquire, settled).await? {
                    return self.read(read).await;
                }
                None
            }
            Met::Unsettled => {
                self.settle().await?;
                None
            }
            Met::NoQueue => {
                self.turn_without_queue().await?;
                None
            }
        };
        let (v, cell, budget) = (self.verbs(), self.cell(), self.budget());
        // Without masked atomics, each CAS compares the whole word with the word that the previous CAS found. After a
        // pause, a new attempt starts from the first guess again: a failed attempt must not keep the words that it has
        // read (see `Retry`).
        let guess = match refused {
            Some(_) => self.expected(),
            None => self.guess(),
        };
        let (mut expect, mut raced) = (guess, 0);
        // A READ in the chain saves a round trip if the CAS takes the lock, and is wasted otherwise. If one CAS finds
        // the lock held, the next one usually does too. So later attempts have no READ in their chains.
        let mut along = read;
        let mut refused = refused;
        let mut retry = None;
        loop {
            if let Some((old, of_loop)) = refused.take() {
                retry = of_loop.or(retry);
                let word = cell.word(old);
                if word.locked
                    && let Some(free) = self.locks().freed(cell, old)
                {
                    let found = v.cas(cell.place, old, free).await?;
                    if found == old {
                        v.meter().note(Event::FreedLock);
                    }
                    // The next attempt counts as a race.
                    refused = Some((if found == old { free } else { found }, None));
                    continue;
                }
                if word.locked {
                    (expect, raced) = (guess, 0);
                    let held = Why::LockHeld { word: word.pack() };
                    match &mut retry {
                        Some(retry) => retry.again(cell.place, held).await?,
                        // Later attempts have no READ, so they have their own retry loop.
                        None => v.retry(budget).again_wiser(cell.place, held).await?,
                    }
                    along = None;
                } else {
                    raced += 1;
                    if raced >= v.budget(budget) {
                        return Err(LockError::Held(Exhausted {
                            at: cell.place,
                            why: Why::Raced,
                            attempts: raced,
                        }));
                    }
                    expect = old;
                }
            }
            let stage = self.ask(expect, along, retry.take());
            let attempt = Attempt {
                guard: self,
                read,
                second: None,
                posted: None,
                stage,
            };
            match attempt.await? {
                Attempted::Locked(lease) => return Ok(lease),
                Attempted::Not(Obstacle(Met::Refused { old, retry })) => refused = Some((old, retry)),
                Attempted::Not(_) => return self.alone(read).await,
            }
        }
    }

    /// Takes the local turn if it is free. Returns `None` if the CAS can follow: this client has the turn, or there are
    /// no local turns. Otherwise returns the obstacle. If the obstacle is [`Met::Unsettled`], this client has the turn.
    #[inline(always)]
    fn poll_turn(
        &mut self,
        step: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Met<'a, V>>, LockError>> {
        let (locks, v, id) = (self.locks(), self.verbs(), self.id());
        let table = match locks.local() {
            LocalTable::Queue(table) => table,
            LocalTable::Off => return Poll::Ready(Ok(None)),
            LocalTable::Spin(_) | LocalTable::Packed(_) => return Poll::Ready(Ok(Some(Met::NoQueue))),
        };
        ready!(v.poll_local(LocalStep::Section, step, cx));
        let mut acquire = table.acquire(id, v.client(), Unlocks { locks, v, id });
        Poll::Ready(match Pin::new(&mut acquire).poll(cx) {
            Poll::Ready(Ok((turn, _))) => {
                let unsettled = turn.unsettled();
                turn.keep();
                self.seated(Seat::Turn, unsettled);
                Ok(unsettled.map(|_| Met::Unsettled))
            }
            Poll::Ready(Err(AlreadyHeld)) => Err(locks.already_held(id)),
            Poll::Pending => Ok(Some(Met::Queue(acquire))),
        })
    }

    /// Waits in the local queue. Returns `true` if the lock itself was handed over. `awaited` says whether the task was
    /// polled again after the first poll of the queue.
    async fn queue(
        &mut self,
        acquire: Acquire<'a, Unlocks<'a, V>>,
        awaited: bool,
    ) -> Result<bool, LockError> {
        // If `awaited` is false, the current poll of the task has already polled the queue, which has the waker.
        let mut polled = awaited;
        core::future::poll_fn(|_| match core::mem::replace(&mut polled, true) {
            false => Poll::Pending,
            true => Poll::Ready(()),
        })
        .await;
        let (locks, v) = (self.locks(), self.verbs());
        let (turn, arrival) = acquire
            .await
            .map_err(|AlreadyHeld| locks.already_held(self.id()))?;
        let unsettled = turn.unsettled();
        turn.keep();
        self.seated(Seat::Turn, unsettled);
        if let Some(handed) = arrival.handed {
            v.meter().note(Event::Handover);
            self.handed(handed);
        }
        v.local(LocalStep::HandOff).await;
        if arrival.handed.is_none() {
            self.settle().await?;
        }
        Ok(arrival.handed.is_some())
    }

    /// Takes the local turn of a table without a queue.
    async fn turn_without_queue(&mut self) -> Result<(), LockError> {
        let (locks, v, id, cell) = (self.locks(), self.verbs(), self.id(), self.cell());
        match locks.local() {
            LocalTable::Off | LocalTable::Queue(_) => {}
            LocalTable::Spin(table) => {
                let mut retry = v.retry(self.budget());
                let turn = loop {
                    v.local(LocalStep::Section).await;
                    let turn = table.try_acquire(id, v.client());
                    if let Some(turn) = turn.map_err(|AlreadyHeld| locks.already_held(id))? {
                        break turn;
                    }
                    retry.again(cell.place, Why::Raced).await?;
                };
                let unsettled = turn.unsettled();
                turn.keep();
                self.seated(Seat::Turn, unsettled);
                self.settle().await?;
            }
            LocalTable::Packed(table) => {
                v.local(LocalStep::Section).await;
                let (ticket, served) = table.draw(id);
                let mut retry = v.retry(self.budget());
                while !served && !table.served(id, ticket) {
                    retry.again(cell.place, Why::Raced).await?;
                    v.local(LocalStep::Section).await;
                }
                PackedTurn::new(table, id).keep();
                self.seated(Seat::Packed, None);
            }
        }
        Ok(())
    }

    /// Waits until the unlock of an earlier holder has landed. No CAS that takes the lock may be posted before that.
    async fn settle(&mut self) -> Result<(), LockError> {
        //= docs/protocol/lock.md L9
        let (v, cell) = (self.verbs(), self.cell());
        let Some(raw) = self.unsettled_word() else {
            return Ok(());
        };
        if !self.locks().options.flaws().unsettled_ignored {
            let mut retry = v.retry(self.budget());
            loop {
                let word = v.word(cell.place).await?;
                if cell.own(word) != raw {
                    break;
                }
                if let Some(free) = self.locks().freed(cell, word) {
                    v.cas(cell.place, word, free).await?;
                    continue;
                }
                let word = cell.word(word).pack();
                retry.again(cell.place, Why::LockHeld { word }).await?;
            }
        }
        self.settled();
        Ok(())
    }

    /// Returns the last known word of the free lock, if the CAS must compare the whole word and this compute node has
    /// local turns. Otherwise, or if no word is known, returns 0.
    #[inline(always)]
    fn guess(&self) -> u64 {
        // Only the client that has the local turn reads and writes hints, so without local turns there are none.
        match self.locks().local() {
            LocalTable::Queue(_) | LocalTable::Spin(_) if !self.plan().masked() => {
                self.locks().hints.guess(self.id())
            }
            _ => 0,
        }
    }

    /// Posts an attempt, with a READ in its chain if the plan allows it. `expect` is the probable whole word, which
    /// matters only without masked atomics.
    #[inline(always)]
    fn ask(&mut self, expect: u64, along: Option<ReadTo>, retry: Option<Retry<'a, V>>) -> Stage<'a, V> {
        let (v, place, masked) = (self.verbs(), self.cell().place, self.plan().masked());
        let take = self.take();
        let chain = v.chain(place.node());
        let stage = match along.filter(|_| self.plan().read_in_order()) {
            //= docs/protocol/lock.md L3
            Some(ReadTo { at, len }) => Stage::Both(match masked {
                true => chain.masked_cas(place, take).read(at, len).post(),
                false => chain.cas(place, expect, take.apply(expect)).read(at, len).post(),
            }),
            None => {
                let retry = retry.unwrap_or_else(|| v.retry(self.budget()));
                let ticket = match masked {
                    true => chain.masked_cas(place, take).post(),
                    false => chain.cas(place, expect, take.apply(expect)).post(),
                };
                Stage::Alone(ticket, retry)
            }
        };
        //= docs/protocol/lock.md L7
        // The guard records the CAS before any await, so that dropping the guard undoes the CAS.
        self.asked(expect);
        stage
    }

    /// Waits until no client shares the lock any more, then reads. No new client can share a lock that is held.
    #[cold]
    async fn alone(&mut self, read: Option<ReadTo>) -> Result<Option<V::Lease>, LockError> {
        let early = match self.locks().options.flaws().read_while_shared {
            true => self.read(read).await?,
            false => None,
        };
        //= docs/protocol/lock.md L14
        let (v, cell) = (self.verbs(), self.cell());
        let mut retry = v.retry(self.budget());
        loop {
            let sharers = cell.sharers(v.word(cell.place).await?);
            if sharers == 0 {
                return match early {
                    Some(_) => Ok(early),
                    None => self.read(read).await,
                };
            }
            let why = Why::LockHeld { word: sharers };
            let Err(e) = retry.again(cell.place, why).await else {
                continue;
            };
            //= docs/protocol/recovery.md V14
            // The counts of dead clients are about to be reset, so the client waits for another whole budget.
            if self.locks().roster.gate().is_shut(v.client().0) {
                retry = v.retry(self.budget());
                continue;
            }
            return Err(LockError::Shared {
                place: e.at,
                sharers,
                attempts: e.attempts,
            });
        }
    }

    /// Performs the READ under the lock, if there is one. If the READ fails, the guard holds the lock until it is
    /// dropped.
    async fn read(&mut self, read: Option<ReadTo>) -> Result<Option<V::Lease>, LockError> {
        Ok(match read {
            Some(ReadTo { at, len }) => Some(self.verbs().read(at, len).await?),
            None => None,
        })
    }
}
