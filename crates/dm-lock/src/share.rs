//! Shares: several clients can share a lock, and then no client can take the lock alone.
//!
//! The highest 16 bits of the lock word count the sharers. Clients do not queue for a share: only the remote word
//! decides.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use dm_sync::gate::Pass;
use dm_verbs::{
    Chain, Effect, Exhausted, NodeId, Open, Outputs, Place, RemotePtr, Ticket, VerbError, VerbErrorKind,
    Verbs, Why,
};

use crate::cell::{Cell, Plan, SHARE};
use crate::{LockError, Locks};

/// Number of holders that a client meets, one after another, before sharing fails. Without this limit, a client could
/// wait for ever, because new holders may take the lock or get it by handover again and again. After the error, the
/// client can queue for the lock, to hold it alone.
const ROUNDS: u32 = 16;

/// Maximum number of READs while the gate is shut. The gate opens much earlier, unless a client keeps its compute node
/// from answering.
const WAITS: u32 = 1 << 12;

/// A share of a lock. The share, or the future of one of its methods, may be dropped at any await. Then a request that
/// is not awaited releases the share, behind all requests that this client has posted.
///
/// ```
/// use dm_lock::{GlobalLockTable, LockOptions, Locks, Share};
/// use dm_loopback::{Endpoint, Loopback, block_on};
/// use dm_verbs::{NodeId, RemotePtr, Verbs};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let world = Loopback::builder().nodes(1).build()?;
/// let (a, b) = (world.connect(0)?, world.connect(0)?);
/// let options = LockOptions { shared: true, ..LockOptions::default() };
/// let locks = Locks::new(options, GlobalLockTable::on_chip(1, 64));
/// let node = RemotePtr::new(NodeId(0), 4096).unwrap();
/// block_on(async {
///     // Both share the lock at the same time; each writes its own word.
///     let (first, _): (Share<'_, Endpoint>, _) = locks.share_and_read(&a, node, node, 64).await?;
///     let (second, _) = locks.share_and_read(&b, node, node, 64).await?;
///     first.write_back(a.chain(node.node()).write_word(node, 1)).await?;
///     second.write_back(b.chain(node.node()).write_word(node.add(8), 2)).await?;
///     assert_eq!((a.word(node).await?, a.word(node.add(8)).await?), (1, 2));
///     Ok(())
/// })
/// # }
/// ```
#[must_use = "dropping a share gives it back"]
pub struct Share<'a, V: Verbs> {
    v: &'a V,
    cell: Cell,
    plan: Plan,
    /// Flaw T-D3.
    unawaited: bool,
    /// Whether dropping this share releases it.
    armed: bool,
    /// The pass through the gate. It ends when all requests of this share have been awaited.
    pass: Option<Pass<'a>>,
}

impl<V: Verbs> fmt::Debug for Share<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.cell.place;
        f.debug_struct("Share")
            .field("place", place)
            .finish_non_exhaustive()
    }
}

/// A share that is being taken. If it is dropped before the result is known, it posts a request that releases the
/// share, behind the request that takes it. If the latter is not executed, neither is the former.
///
/// Create it in the step that posts the request, without an await in between.
struct Joining<'a, V: Verbs, S: Outputs<'a, V>> {
    v: &'a V,
    cell: Cell,
    ticket: Ticket<'a, V, S>,
    /// Set until the result is known.
    armed: bool,
    pass: Option<Pass<'a>>,
}

impl<'a, V: Verbs, S: Outputs<'a, V>> Future for Joining<'a, V, S> {
    type Output = Result<(S::Out, Option<Pass<'a>>), VerbError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = core::task::ready!(Pin::new(&mut self.ticket).poll(cx));
        self.armed = false;
        match answer {
            Ok(out) => Poll::Ready(Ok((out, self.pass.take()))),
            Err(e) => {
                if e.index > 0 || e.effect == Effect::Done {
                    // Here the share was certainly taken: a later request of the chain failed, or the FAA took effect
                    // before its error. If it is not certain that the share was taken, the share is not released. A
                    // count that is too high causes an error, but with a count that is too low, one client could hold
                    // the lock while another shares it.
                    self.cell.give_back(self.v);
                }
                if let Some(pass) = self.pass.take() {
                    pass.failed();
                }
                Poll::Ready(Err(e))
            }
        }
    }
}

// Nothing points into the struct.
impl<'a, V: Verbs, S: Outputs<'a, V>> Unpin for Joining<'a, V, S> {}

impl<'a, V: Verbs, S: Outputs<'a, V>> Drop for Joining<'a, V, S> {
    fn drop(&mut self) {
        //= docs/protocol/lock.md L17
        if self.armed {
            // If the request has failed by now, this does not release the share, because the share may not have been
            // taken. The connection may work again, and would then execute only the release.
            let answer = Pin::new(&mut *self).poll(&mut Context::from_waker(Waker::noop()));
            if !matches!(answer, Poll::Ready(Err(_))) {
                self.cell.give_back(self.v);
            }
        }
    }
}

impl Locks {
    /// Shares the lock of `node`, and READs `len` bytes at `read_at` (on the same memory node) under it. No client can
    /// hold the lock alone until the share is released.
    ///
    /// This takes one chain (FAA, READ) and one round trip if the world executes a READ after the atomic before it.
    /// Otherwise the READ is posted after the FAA has completed. If the lock is held, the client waits by READs, and
    /// needs at least three more round trips.
    ///
    /// # Errors
    /// Returns [`LockError`]. The lock is not shared then, unless the memory node is unreachable and the FAA had an
    /// unknown effect. Returns [`LockError::Held`] if the lock was found held for a whole budget, or if the client
    /// met 16 holders one after another. The client can then queue with [`Locks::lock`]. Also returns this error while
    /// nobody may share, because the shares of a dead client are being given back. The client can then wait
    /// ([`Locks::until_open`]).
    ///
    /// # Panics
    /// Panics if [`LockOptions::shared`](crate::LockOptions::shared) is off, or if `read_at` is on another memory node
    /// than `node`.
    pub async fn share_and_read<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        node: RemotePtr,
        read_at: RemotePtr,
        len: u32,
    ) -> Result<(Share<'a, V>, V::Lease), LockError> {
        assert!(
            self.options.shared,
            "these locks cannot be shared: `LockOptions::shared` is off"
        );
        assert_eq!(
            node.node(),
            read_at.node(),
            "the READ must go to the memory node of the lock"
        );
        let target = self.target(v, self.lock_of(node)?)?;
        let (cell, plan) = (target.cell, target.plan);
        let mut rounds = 0;
        loop {
            //= docs/protocol/recovery.md V11
            let Some(pass) = self.roster.gate().enter(v.client().0) else {
                return Err(LockError::Held(Exhausted {
                    at: cell.place,
                    why: Why::Changing,
                    attempts: rounds,
                }));
            };
            //= docs/protocol/lock.md L16
            let shared = || v.chain(node.node()).faa(cell.place, SHARE);
            let (old, lease, pass) = match plan.share_in_order() {
                _ if self.options.flaws().read_before_share => {
                    let chain = v.chain(node.node()).read(read_at, len);
                    let chain = chain.faa(cell.place, SHARE).post();
                    let ((lease, old), pass) = Joining::new(v, cell, chain, pass).await?;
                    (old, Some(lease), pass)
                }
                true => {
                    let chain = shared().read(read_at, len).post();
                    let ((old, lease), pass) = Joining::new(v, cell, chain, pass).await?;
                    (old, Some(lease), pass)
                }
                false => {
                    let (old, pass) = Joining::new(v, cell, shared().post(), pass).await?;
                    (old, None, pass)
                }
            };
            let mut share = Share {
                v,
                cell,
                plan,
                unawaited: self.options.flaws().leave_unawaited,
                armed: true,
                pass,
            };
            if !cell.excludes(old) {
                let lease = match lease {
                    Some(lease) => lease,
                    None => v.read(read_at, len).await?,
                };
                return Ok((share, lease));
            }
            drop(lease);
            let gone = v.chain(node.node()).faa(cell.place, SHARE.wrapping_neg()).post();
            share.armed = false;
            share.left(gone.await)?;
            // The client must have no pass while it waits for the holder. The holder may wait until the counts of dead
            // clients are reset, and the reset waits until all passes have ended.
            drop(share);
            // Each wait is bounded, and so is the number of holders that the client waits for.
            self.settle_if_due(v).await;
            rounds += 1;
            if rounds >= v.budget(ROUNDS) {
                return Err(LockError::Held(Exhausted {
                    at: cell.place,
                    why: Why::LockHeld {
                        word: cell.word(old).pack(),
                    },
                    attempts: rounds,
                }));
            }
            self.free_again(v, cell).await?;
        }
    }
}

impl Locks {
    /// Returns whether sharing is forbidden, because the shares of a dead client are being given back. The result may
    /// be outdated immediately.
    #[inline]
    pub fn is_shut<V: Verbs>(&self, v: &V) -> bool {
        self.options.shared && self.roster.gate().is_shut(v.client().0)
    }

    /// Waits, by READs of the lock word of `node`, until clients may share again ([`Locks::is_shut`]). The client
    /// should not take the lock alone instead, because other clients that meet a holder again and again take the lock
    /// alone as well, even after the gate is open. Meanwhile the client's compute node must take part in the reset of
    /// the counts, as `dm_alloc::Allocator::while_announcing` makes it do. The client must hold no lock.
    ///
    /// # Errors
    /// Returns [`LockError::Held`] if sharing is still forbidden after 4096 READs. The client can then queue with
    /// [`Locks::lock`]. Also returns the errors of the READs and of [`Locks::lock_of`].
    pub async fn until_open<V: Verbs>(&self, v: &V, node: RemotePtr) -> Result<(), LockError> {
        let place = self.word_at(node)?;
        let mut retry = v.retry(WAITS);
        //= docs/protocol/recovery.md V11
        self.settle_if_due(v).await;
        while self.is_shut(v) {
            v.word(place).await?;
            retry.again(place, Why::Changing).await?;
        }
        Ok(())
    }

    /// Waits until all requests of this client's ended shares have landed, if some of them were not awaited, and either
    /// the memory nodes answered when these shares ended or the gate is shut. A client calls this before it waits for
    /// other clients: the others may wait until the counts of dead clients are reset, and the reset waits for this
    /// client's requests. If a READ fails, the shares stay unsettled. Returns whether it awaited anything.
    #[inline]
    pub(crate) async fn settle_if_due<V: Verbs>(&self, v: &V) -> bool {
        let due = self.roster.shares() && self.roster.gate().is_to_settle(v.client().0);
        if due {
            // Boxed, because it is rare and would make the futures of operations large.
            Box::pin(self.settle(v)).await;
        }
        due
    }

    //= docs/protocol/recovery.md V11
    async fn settle<V: Verbs>(&self, v: &V) {
        let (gate, client) = (self.roster.gate(), v.client().0);
        let unsettled = gate.unsettled(client);
        for node in 0..self.table.memory_nodes() as u16 {
            let at = RemotePtr::new(NodeId(node), 0).unwrap_or(RemotePtr::NULL);
            match v.word(at).await {
                Ok(_) => {}
                // Requests of a fenced client never land.
                Err(e) if e.kind == VerbErrorKind::Fenced => {}
                Err(_) => return,
            }
        }
        gate.settle(client, unsettled);
    }

    /// Waits by READs until the lock can be shared.
    async fn free_again<V: Verbs>(&self, v: &V, cell: Cell) -> Result<(), LockError> {
        let mut retry = v.retry(self.options.budget);
        loop {
            let found = v.word(cell.place).await?;
            if !cell.excludes(found) {
                return Ok(());
            }
            if let Some(free) = self.freed(cell, found) {
                v.cas(cell.place, found, free).await?;
                continue;
            }
            let word = cell.word(found).pack();
            retry.again(cell.place, Why::LockHeld { word }).await?;
        }
    }
}

impl<'a, V: Verbs, S: Outputs<'a, V>> Joining<'a, V, S> {
    fn new(v: &'a V, cell: Cell, ticket: Ticket<'a, V, S>, pass: Pass<'a>) -> Self {
        Self {
            v,
            cell,
            ticket,
            armed: true,
            pass: Some(pass),
        }
    }
}

impl<'a, V: Verbs> Share<'a, V> {
    /// Returns the place of the lock word.
    pub fn place(&self) -> Place {
        self.cell.place
    }

    /// Posts `chain` with the request that releases the share behind it, and awaits both. This takes one round trip, or
    /// two if the options or the world do not allow both in one chain.
    ///
    /// # Errors
    /// Returns [`LockError::Verb`] if a request fails; the error says whether the data was written. If it is unknown
    /// whether the share was released, the share is not released again, and may remain counted. Returns
    /// [`LockError::Lost`] if the word was overwritten meanwhile.
    ///
    /// # Panics
    /// Panics if `chain` goes to another memory node than the lock.
    pub async fn write_back(mut self, mut chain: Chain<'a, V, (), Open>) -> Result<(), LockError> {
        let mut before = false;
        let node = self.cell.place.node();
        assert_eq!(chain.node(), node, "a lock guards data on its own memory node");
        if !self.plan.combine() {
            chain.post().await?;
            chain = self.v.chain(node);
            before = true;
        }
        //= docs/protocol/lock.md L6
        let gone = chain.faa(self.cell.place, SHARE.wrapping_neg()).post();
        self.armed = false;
        if self.unawaited {
            gone.detach();
            return Ok(());
        }
        let left = gone.await;
        let left = self.left(left);
        if before {
            return left.map_err(LockError::after_effect);
        }
        left
    }

    /// Compares and exchanges the word at `at`, and releases the share behind the CAS. Returns the word that the CAS
    /// found: `compare` if it took effect. This takes one round trip, or two if the options or the world do not allow
    /// both in one chain.
    ///
    /// # Errors
    /// Returns the same errors as [`Share::write_back`].
    ///
    /// # Panics
    /// Panics if `at` is on another memory node than the lock.
    pub async fn exchange(mut self, at: RemotePtr, compare: u64, swap: u64) -> Result<u64, LockError> {
        let node = self.cell.place.node();
        let chain = self.v.chain(node).free_cas(at, compare, swap);
        if !self.plan.combine() {
            let old = chain.post().await?;
            let left = self.leave().await;
            return left.map(|()| old).map_err(LockError::after_effect);
        }
        //= docs/protocol/lock.md L17
        let gone = chain.faa(self.cell.place, SHARE.wrapping_neg()).post();
        self.armed = false;
        match gone.await {
            Ok((old, found)) => self.left(Ok(found)).map(|()| old),
            Err(e) => Err(self.left(Err(e)).expect_err("the chain failed")),
        }
    }

    /// Releases the share without writing data, in one round trip.
    ///
    /// # Errors
    /// Returns the same errors as [`Share::write_back`].
    pub async fn leave(mut self) -> Result<(), LockError> {
        let chain = self.v.chain(self.cell.place.node());
        let gone = chain.faa(self.cell.place, SHARE.wrapping_neg()).post();
        self.armed = false;
        let left = gone.await;
        self.left(left)
    }

    /// Checks the result of the request that released the share.
    fn left(&mut self, answer: Result<u64, VerbError>) -> Result<(), LockError> {
        match answer {
            Ok(found) if self.cell.sharers(found) == 0 => {
                // The count was zero, so the FAA made it wrap to its maximum. Adding one undoes this. The share is
                // lost: this client may not change the word in any other way.
                let chain = self.v.chain(self.cell.place.node());
                chain.faa(self.cell.place, SHARE).post().detach();
                Err(LockError::Lost {
                    place: self.cell.place,
                    held: SHARE,
                    found,
                })
            }
            Ok(_) => {
                if let Some(pass) = self.pass.take() {
                    pass.done();
                }
                Ok(())
            }
            Err(e) => {
                // If the share was certainly not released, the destructor releases it.
                self.armed = e.effect == Effect::None && e.rest == Effect::None;
                if let Some(pass) = self.pass.take() {
                    pass.failed();
                }
                Err(e.into())
            }
        }
    }
}

impl<V: Verbs> Drop for Share<'_, V> {
    fn drop(&mut self) {
        if self.armed {
            self.cell.give_back(self.v);
        }
    }
}
