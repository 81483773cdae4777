//! Several locks at once, in an order that never deadlocks.

use dm_verbs::{Chain, NodeId, Open, RemotePtr, VerbError, Verbs};
use smallvec::SmallVec;

use crate::cell::Release;
use crate::{Guard, LockError, LockId, Locks};

const INLINE: usize = 4;

impl Locks {
    /// Takes the locks of all `nodes`, sorted by (memory node, lock number) and each once, one after another: one
    /// round trip per lock, however many nodes share it.
    ///
    /// A client must hold no other lock meanwhile, or only smaller ones.
    ///
    /// # Errors
    /// [`LockError`]; then none of them is held, as with [`Locks::lock`].
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

/// Several locks held. As with [`Guard`], dropping it never leaves one held. A set never hands a lock over.
#[must_use = "dropping a guard abandons its locks"]
#[derive(Debug)]
pub struct SetGuard<'a, V: Verbs> {
    locks: &'a Locks,
    v: &'a V,
    guards: SmallVec<[Guard<'a, V>; INLINE]>,
}

impl<'a, V: Verbs> SetGuard<'a, V> {
    /// How many locks it holds.
    pub fn len(&self) -> usize {
        self.guards.len()
    }

    /// Whether it holds none (no node was given).
    pub fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// The guard of the lock of the node at `address`, if it is in the set; for its word and its payload.
    pub fn of(&mut self, address: RemotePtr) -> Option<&mut Guard<'a, V>> {
        let id = self.locks.lock_of(address).ok()?;
        self.guards.iter_mut().find(|g| g.id() == id)
    }

    /// Posts `chains`, each named with its memory node, with the unlocks of that node behind its last one (locks of
    /// other nodes in chains of their own), and awaits them all: one round trip; two if the options or the world
    /// keep data and unlock apart. The locks of one node may be free before the data of another has landed.
    ///
    /// # Errors
    /// The first error, as with [`Guard::write_back`].
    ///
    /// # Panics
    /// When a chain is named with another node than its own.
    pub async fn write_back<C>(mut self, chains: C) -> Result<(), LockError>
    where
        C: IntoIterator<Item = (NodeId, Chain<'a, V, (), Open>)>,
    {
        let v = self.v;
        let mut chains: SmallVec<[_; INLINE]> = chains.into_iter().collect();
        if !self.guards.iter().all(|g| g.plan().combine) {
            let tickets: SmallVec<[_; INLINE]> = chains.drain(..).map(|(_, chain)| chain.post()).collect();
            for ticket in tickets {
                ticket.await.map_err(VerbError::after_effect)?;
            }
        }
        // Posting is one step without an await: a drop finds either no unlock posted, or all.
        let mut data = SmallVec::<[_; INLINE]>::new();
        let mut unlocks = SmallVec::<[_; INLINE]>::new();
        let mut first = 0;
        while let Some(node) = self.guards.get(first).map(|g| g.id().node) {
            // Earlier chains to the same node: their order on the queue pair is the order of posting.
            while let Some(i) = chains.iter().position(|(n, _)| *n == node)
                && chains.iter().filter(|(n, _)| *n == node).count() > 1
            {
                data.push(chains.remove(i).1.post());
            }
            let last = chains
                .iter()
                .position(|(n, _)| *n == node)
                .map(|i| chains.remove(i).1);
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
        data.extend(chains.into_iter().map(|(_, chain)| chain.post()));

        let mut outcome = Ok(());
        for ticket in data {
            outcome = outcome.and(ticket.await.map_err(|e| LockError::Verb(e.after_effect())));
        }
        for (range, ticket) in unlocks {
            match ticket.await {
                Ok(answers) => {
                    for (i, guard) in self.guards[range].iter_mut().enumerate() {
                        let found = match guard.plan().release {
                            Release::Write => Ok(()),
                            _ => guard.check_found(Some(answers.old(i as u16))),
                        };
                        outcome = outcome.and(found);
                        guard.unlock_done().await;
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

    /// Gives all locks back with nothing written: one round trip.
    ///
    /// # Errors
    /// As [`SetGuard::write_back`].
    pub async fn release(self) -> Result<(), LockError> {
        self.write_back([]).await
    }
}
