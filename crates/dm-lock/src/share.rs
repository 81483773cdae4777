//! A lock that several share: who does not get in each other's way among themselves, and excludes whoever takes it alone.
//!
//! The highest 16 bits of the word count them. Nobody queues for a share: the remote word alone decides.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use dm_verbs::{Chain, Effect, Exhausted, Open, Outputs, Place, RemotePtr, Ticket, VerbError, Verbs, Why};

use crate::cell::{Cell, Plan, SHARE};
use crate::{LockError, Locks};

/// So often somebody may be found to hold the lock before who would share it is told so: behind a stream of holders, who are
/// handed the lock or come in between, a sharer might wait for ever. The queue is fair.
const ROUNDS: u32 = 4;

/// A share of a lock. Dropping it, or the future of one of its methods at any await, gives it back: unsignalled, behind
/// whatever this client posted before.
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
///     // Both are in at once, each with a word of its own.
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
    /// T-D3.
    unawaited: bool,
    /// Nothing was posted that gives it back.
    armed: bool,
}

impl<V: Verbs> fmt::Debug for Share<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.cell.place;
        f.debug_struct("Share")
            .field("place", place)
            .finish_non_exhaustive()
    }
}

/// A share being taken. Dropped before its answer is known, it is given back behind: both are carried out, or none.
///
/// Made in the step that posted it, so that no await lies between.
struct Joining<'a, V: Verbs, S: Outputs<'a, V>> {
    v: &'a V,
    cell: Cell,
    ticket: Ticket<'a, V, S>,
    /// The answer is not known.
    armed: bool,
}

impl<'a, V: Verbs, S: Outputs<'a, V>> Future for Joining<'a, V, S> {
    type Output = Result<S::Out, VerbError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = core::task::ready!(Pin::new(&mut self.ticket).poll(cx));
        self.armed = false;
        if let Err(e) = &answer
            && (e.index > 0 || e.effect == Effect::Done)
        {
            // The share was taken, what came behind it failed. One of which nobody knows is not given back: a count that
            // is too high ends in an error, one that is too low lets a holder in beside a sharer.
            self.cell.give_back(self.v);
        }
        Poll::Ready(answer)
    }
}

// Nothing points into it.
impl<'a, V: Verbs, S: Outputs<'a, V>> Unpin for Joining<'a, V, S> {}

impl<'a, V: Verbs, S: Outputs<'a, V>> Drop for Joining<'a, V, S> {
    fn drop(&mut self) {
        //= docs/protocol/lock.md L17
        if self.armed {
            // Of what has failed by now nobody knows whether it was taken; the connection may be up again, and would carry
            // out what comes behind it alone.
            let answer = Pin::new(&mut *self).poll(&mut Context::from_waker(Waker::noop()));
            if !matches!(answer, Poll::Ready(Err(_))) {
                self.cell.give_back(self.v);
            }
        }
    }
}

impl Locks {
    /// Shares the lock of `node` and READs `len` bytes at `read_at` (same memory node) under it: nobody who takes the lock
    /// alone is in before the share is given back.
    ///
    /// One chain (FAA, READ) and one round trip where the world serves a READ after the atomic before it; else the READ
    /// follows. Three more at least where somebody holds the lock: it is waited for by READs.
    ///
    /// # Errors
    /// [`LockError`]; then the lock is not shared, but for an unreachable one whose FAA had an unknown effect.
    /// [`LockError::Held`] where one holder held it for all of the budget, or four were met one after the other: it can be
    /// queued for.
    ///
    /// # Panics
    /// When [`LockOptions::shared`](crate::LockOptions::shared) is off, or `read_at` is on another memory node than `node`.
    pub async fn share_and_read<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        node: RemotePtr,
        read_at: RemotePtr,
        len: u32,
    ) -> Result<(Share<'a, V>, V::Lease), LockError> {
        assert!(self.options.shared, "these locks are not shared");
        assert_eq!(
            node.node(),
            read_at.node(),
            "a lock lies on the memory node of what it guards"
        );
        let target = self.target(v, self.lock_of(node)?)?;
        let (cell, plan) = (target.cell, target.plan);
        let mut rounds = 0;
        loop {
            //= docs/protocol/lock.md L16
            let chain = v.chain(node.node()).faa(cell.place, SHARE);
            let (old, lease) = match plan.share_in_order {
                true => {
                    let (old, lease) = Joining::new(v, cell, chain.read(read_at, len).post()).await?;
                    (old, Some(lease))
                }
                false => (Joining::new(v, cell, chain.post()).await?, None),
            };
            let mut share = Share {
                v,
                cell,
                plan,
                unawaited: self.options.flaws.leave_unawaited,
                armed: true,
            };
            if !cell.word(old).locked {
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
            // Each wait has an end, and so has the number of holders that are waited for.
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
            free_again(v, cell, self.options.budget).await?;
        }
    }
}

/// Waits by READs until nobody holds the lock.
async fn free_again<V: Verbs>(v: &V, cell: Cell, budget: u32) -> Result<(), LockError> {
    let mut retry = v.retry(budget);
    loop {
        let word = cell.word(v.word(cell.place).await?);
        if !word.locked {
            return Ok(());
        }
        let word = word.pack();
        retry.again(cell.place, Why::LockHeld { word }).await?;
    }
}

impl<'a, V: Verbs, S: Outputs<'a, V>> Joining<'a, V, S> {
    fn new(v: &'a V, cell: Cell, ticket: Ticket<'a, V, S>) -> Self {
        Self {
            v,
            cell,
            ticket,
            armed: true,
        }
    }
}

impl<'a, V: Verbs> Share<'a, V> {
    /// Where the word lies.
    pub fn place(&self) -> Place {
        self.cell.place
    }

    /// Posts `chain` with what gives the share back behind it, and awaits both: one round trip, two if the options or the
    /// world keep data and unlock apart.
    ///
    /// # Errors
    /// [`LockError::Verb`]: whether the data was written says the error. Where nothing says that the share was not given
    /// back, it is not given back again: it may stay counted. [`LockError::Lost`]: the word was overwritten meanwhile.
    ///
    /// # Panics
    /// When `chain` goes to another memory node than the lock.
    pub async fn write_back(mut self, mut chain: Chain<'a, V, (), Open>) -> Result<(), LockError> {
        let mut before = false;
        if !self.plan.combine {
            chain.post().await?;
            chain = self.v.chain(self.cell.place.node());
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

    /// Gives the share back with nothing written: one round trip.
    ///
    /// # Errors
    /// As [`Share::write_back`].
    pub async fn leave(mut self) -> Result<(), LockError> {
        let chain = self.v.chain(self.cell.place.node());
        let gone = chain.faa(self.cell.place, SHARE.wrapping_neg()).post();
        self.armed = false;
        let left = gone.await;
        self.left(left)
    }

    /// The answer to what gave it back.
    fn left(&mut self, answer: Result<u64, VerbError>) -> Result<(), LockError> {
        match answer {
            Ok(found) if self.cell.sharers(found) == 0 => {
                // One less than none is as many as fit: taken off again, as it is of a lock that was lost.
                let chain = self.v.chain(self.cell.place.node());
                chain.faa(self.cell.place, SHARE).post().detach();
                Err(LockError::Lost {
                    place: self.cell.place,
                    held: SHARE,
                    found,
                })
            }
            Ok(_) => Ok(()),
            Err(e) => {
                // It is still shared, for certain: to be given back at drop.
                self.armed = e.effect == Effect::None && e.rest == Effect::None;
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
