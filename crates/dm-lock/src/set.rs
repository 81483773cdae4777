//! Sets of locks, taken in an order that cannot deadlock.

use dm_verbs::{Chain, NodeId, Open, RemotePtr, VerbError, Verbs};
use smallvec::SmallVec;

use crate::cell::Release;
use crate::{Guard, LockError, LockId, Locks};

const INLINE: usize = 4;

impl Locks {
    /// Takes the locks of all `nodes`, in the order of (memory node, lock number). A lock that several of the nodes
    /// share is taken once. The locks are taken one after another, so each costs the round trips of [`Locks::lock`].
    ///
    /// Meanwhile the client may hold other locks only if they come earlier in this order.
    ///
    /// # Errors
    /// Returns [`LockError`]. No lock of the set is held then, with the exception described at [`Locks::lock`].
    pub async fn lock_set<'a, V: Verbs>(
        &'a self,
        v: &'a V,
        nodes: &[RemotePtr],
    ) -> Result<SetGuard<'a, V>, LockError> {
        //= docs/protocol/lock.md L10
        let mut ids = SmallVec::<[LockId; INLINE]>::new();
        for &node in nodes {
            ids.push(self.lock_of(node)?);
        }
        ids.sort_unstable();
        ids.dedup();
        let mut guards = SmallVec::new();
        for id in ids {
            guards.push(self.take(v, id, None).await?.0);
        }
        Ok(SetGuard {
            locks: self,
            v,
            guards,
        })
    }
}

/// Several held locks. As with [`Guard`], dropping the set at any await leaves none of them held. A set never hands a
/// lock over.
#[must_use = "dropping a guard abandons its locks"]
#[derive(Debug)]
pub struct SetGuard<'a, V: Verbs> {
    locks: &'a Locks,
    v: &'a V,
    guards: SmallVec<[Guard<'a, V>; INLINE]>,
}

impl<'a, V: Verbs> SetGuard<'a, V> {
    /// Returns the number of locks held.
    pub fn len(&self) -> usize {
        self.guards.len()
    }

    /// Returns whether the set is empty: it was made for no nodes.
    pub fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// Returns the guard of the lock of the node at `address` if it is in the set, for access to its word and
    /// payload.
    pub fn of(&mut self, address: RemotePtr) -> Option<&mut Guard<'a, V>> {
        let id = self.locks.lock_of(address).ok()?;
        self.guards.iter_mut().find(|g| g.id() == id)
    }

    /// Writes back and releases all locks. The unlocks of a memory node are posted behind the last chain that goes to
    /// it. The unlocks of memory nodes without a chain are posted in separate chains.
    ///
    /// All completions are awaited together: one round trip, or two if the options or the world do not allow unlocks
    /// in the chains of the data. A lock on one memory node may become free before data on another memory node has
    /// landed.
    ///
    /// # Errors
    /// Returns one of the errors that occurred, of the kinds described at [`Guard::write_back`]. Returns
    /// [`LockError::NotGuarded`] if a chain is given for a memory node on which the set has no lock. No chain is then
    /// posted, and the locks are released as if the set were dropped.
    pub async fn write_back<C>(mut self, chains: C) -> Result<(), LockError>
    where
        C: IntoIterator<Item = Chain<'a, V, (), Open>>,
    {
        let v = self.v;
        let mut chains: SmallVec<[Chain<'a, V, (), Open>; INLINE]> = chains.into_iter().collect();
        //= docs/protocol/lock.md L1
        // No lock of the set would guard the data of such a chain.
        let is_guarded = |node: NodeId| self.guards.iter().any(|g| g.id().node == node);
        if let Some(node) = chains.iter().map(Chain::node).find(|node| !is_guarded(*node)) {
            return Err(LockError::NotGuarded { node });
        }
        if !self.guards.iter().all(|g| g.plan().combine()) {
            let tickets: SmallVec<[_; INLINE]> = chains.drain(..).map(Chain::post).collect();
            for ticket in tickets {
                ticket.await.map_err(VerbError::after_effect)?;
            }
        }
        // All unlocks are posted without an await in between, so a drop finds either none of them posted or all.
        let mut data = SmallVec::<[_; INLINE]>::new();
        let mut unlocks = SmallVec::<[_; INLINE]>::new();
        let mut first = 0;
        while let Some(node) = self.guards.get(first).map(|g| g.id().node) {
            // Posts the earlier chains to the same memory node first, because they must be executed in order.
            while let Some(i) = chains.iter().position(|chain| chain.node() == node)
                && chains.iter().filter(|chain| chain.node() == node).count() > 1
            {
                data.push(chains.remove(i).post());
            }
            let last = chains
                .iter()
                .position(|chain| chain.node() == node)
                .map(|i| chains.remove(i));
            let mut chain = last.unwrap_or_else(|| v.chain(node)).many();
            let end = self.guards[first..].iter().position(|g| g.id().node != node);
            let end = end.map_or(self.guards.len(), |i| first + i);
            for guard in &mut self.guards[first..end] {
                chain = guard.append_unlock(chain);
                guard.unlock_posted();
            }
            unlocks.push((first..end, chain.post()));
            first = end;
        }

        let mut outcome = Ok(());
        for ticket in data {
            outcome = outcome.and(ticket.await.map_err(|e| LockError::Verb(e.after_effect())));
        }
        for (range, ticket) in unlocks {
            match ticket.await {
                Ok(answers) => {
                    for (i, guard) in self.guards[range].iter_mut().enumerate() {
                        let found = match guard.plan().release() {
                            Release::Write => Ok(()),
                            _ => guard.check_found(Some(answers.old(i as u16))),
                        };
                        outcome = outcome.and(found);
                        outcome = outcome.and(guard.unlock_done().await);
                    }
                }
                Err(e) => {
                    self.guards[range].iter_mut().for_each(Guard::unlock_again);
                    outcome = outcome.and(Err(LockError::Verb(e.after_effect())));
                }
            }
        }
        outcome
    }

    /// Releases all locks without writing data: one round trip.
    ///
    /// # Errors
    /// Returns the same errors as [`SetGuard::write_back`].
    pub async fn release(self) -> Result<(), LockError> {
        self.write_back([]).await
    }
}
