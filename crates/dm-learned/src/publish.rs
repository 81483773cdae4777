//! Writes a table, and makes the root word lead to it.

use dm_alloc::{Allocator, Block};
use dm_index::{IndexError, KeyBound, KeyBytes, NodeCopies};
use dm_verbs::{Control, Effect, LocalStep, RemotePtr, Verbs};

use crate::Learned;
use crate::learned::Table;
use crate::table::{PAGE, Root, encode_page, page_capacity};

/// Maximum number of WRITEs in flight at once.
const PARALLEL: usize = 32;

/// The pages of a table to which no root word leads yet. If they are dropped while `armed` is set, their memory returns
/// to the allocator.
struct Unnamed<'d, V: Verbs> {
    v: &'d V,
    alloc: &'d Allocator,
    blocks: Vec<Block>,
    /// Whether WRITEs to the pages may be in flight.
    written: bool,
    armed: bool,
}

impl<V: Verbs> Drop for Unnamed<'_, V> {
    fn drop(&mut self) {
        for block in self.blocks.drain(..).filter(|_| self.armed) {
            match self.written {
                false => self.alloc.give_back(block, PAGE),
                //= docs/protocol/reclaim.md R11
                true => {
                    let next = block.after(block.version);
                    self.alloc.give_back_unawaited(self.v.client(), next, PAGE);
                }
            }
        }
    }
}

impl<K: KeyBytes, L> Learned<K, L> {
    /// Writes a table of `entries`, makes the root word lead to it instead of `before`, and retires the pages of the
    /// previous table. Returns `None` if the root word has changed. On success, this compute node has a copy of the
    /// table.
    pub(crate) async fn publish<V: Verbs + Control>(
        &self,
        v: &V,
        (before, old): (Option<Root>, &[(RemotePtr, usize)]),
        entries: &[(K, RemotePtr)],
    ) -> Result<Option<Root>, IndexError> {
        let mut unnamed = Unnamed {
            v,
            alloc: &self.alloc,
            blocks: Vec::new(),
            written: false,
            armed: true,
        };
        let pages: Vec<_> = entries.chunks(page_capacity::<K>()).collect();
        for _ in &pages {
            unnamed.blocks.push(self.alloc.take(v, PAGE, None).await?);
        }
        let Some(first) = unnamed.blocks.first().map(|block| block.at) else {
            return Err(IndexError::BadInput {
                why: "a table needs the first leaf",
            });
        };
        let following = unnamed.blocks.iter().skip(1).map(|block| block.at);
        let following = following.chain([RemotePtr::NULL]);
        let images: Vec<_> = pages
            .iter()
            .zip(following)
            .map(|(page, next)| encode_page(page, next))
            .collect::<Result<_, _>>()?;
        //= docs/protocol/rolex.md X3
        unnamed.written = true;
        let places: Vec<_> = unnamed.blocks.iter().zip(&images).collect();
        for batch in places.chunks(PARALLEL) {
            let posted: Vec<_> = batch
                .iter()
                .map(|(block, image)| v.write(block.at, image))
                .collect();
            for ticket in posted {
                match self.flaws().table_unawaited {
                    true => ticket.detach(),
                    false => ticket.await?,
                }
            }
        }
        let root = Root::of_table(first, before);
        let expected = before.map_or(0, Root::word);
        unnamed.armed = false;
        //= docs/protocol/rolex.md X1
        match v.cas(self.root_word, expected, root.word()).await {
            Ok(found) if found == expected => {}
            Ok(_) => {
                // Another client was faster.
                unnamed.armed = true;
                return Ok(None);
            }
            Err(e) => {
                unnamed.armed = e.overall() == Effect::None;
                return Err(e.into());
            }
        }
        //= docs/protocol/rolex.md X5
        for (page, _) in old {
            let block = Block::fresh(*page);
            self.alloc.retire(block.after(block.version), PAGE);
        }
        v.local(LocalStep::Section).await;
        self.known.with(|known| known.adopt(root, entries))?;
        Ok(Some(root))
    }

    /// Reads all leaves, writes a table of them, and retires the old table. Writes nothing if the table lists exactly
    /// these leaves. This is an operation of its own, which belongs to no client, and its verbs are metered as
    /// housekeeping. Returns the number of leaves that it has found.
    ///
    /// Reading the leaves takes one round trip per leaf.
    ///
    /// # Errors
    /// Returns errors of verbs, [`IndexError::Corrupt`] if a leaf is damaged, [`IndexError::Exhausted`] if merges
    /// change the leaves again and again, and [`IndexError::Pool`] if the table's first entry does not lead to the
    /// first leaf. A damaged table is replaced, unless its first entry cannot be read and this compute node does not
    /// know the first leaf. If no memory node has room for another table, the old one stays, and this is not an error.
    pub async fn retrain<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError>
    where
        L: NodeCopies<V, K>,
    {
        let _unmetered = v.meter().housekeeping();
        let written = self.alloc.while_announcing(v, self.written(v, usize::MAX));
        self.alloc.visit(v, written).await
    }

    /// Writes a table of all leaves while an operation of this client is running, unless another client has replaced
    /// the table that this compute node knows. Writes nothing if there are more than `max` leaves.
    pub(crate) async fn written_beside<V: Verbs + Control>(&self, v: &V, max: usize) -> Result<(), IndexError>
    where
        L: NodeCopies<V, K>,
    {
        let written = async {
            v.local(LocalStep::Section).await;
            let before = self.known.with(|known| known.root());
            self.look(v).await?;
            v.local(LocalStep::Section).await;
            if self.known.with(|known| known.root()) == before {
                self.written(v, max).await?;
            }
            Ok(())
        };
        //= docs/protocol/reclaim.md R2a
        self.alloc.beside(v, written).await.map(drop)
    }

    /// Writes a table of all leaves, within an operation. Writes nothing if there are more than `max` leaves.
    async fn written<V: Verbs + Control>(&self, v: &V, max: usize) -> Result<u64, IndexError>
    where
        L: NodeCopies<V, K>,
    {
        let Some(before) = self.root(v).await? else {
            return Ok(0);
        };
        let mut old = Table::default();
        match self.read_table(v, before, &mut old).await {
            Ok(()) => {}
            // A damaged table must be replaced, too. The pages that were not read are lost until a census.
            Err(e @ IndexError::Corrupt { .. }) if old.entries.is_empty() => {
                v.local(LocalStep::Section).await;
                let first = self.known.with(|known| known.entry(&K::MIN, KeyBound::At));
                old.entries.push((K::MIN, first.ok_or(e)?.leaf));
            }
            Err(IndexError::Corrupt { .. }) => {}
            Err(e) => return Err(e),
        }
        let Some(listed) = self.list(v, old.entries[0].1, max).await? else {
            return Ok(0);
        };
        if listed == old.entries && before.is_table() {
            v.local(LocalStep::Section).await;
            self.known.with(|known| known.adopt(before, &listed))?;
            return Ok(listed.len() as u64);
        }
        match self.publish(v, (Some(before), &old.pages), &listed).await {
            Ok(Some(_)) => {}
            // Another client has published a table.
            Ok(None) => {
                self.look(v).await?;
            }
            Err(IndexError::OutOfMemory { .. }) => {
                v.local(LocalStep::Section).await;
                self.known.with(|known| known.adopt(before, &listed))?;
            }
            Err(e) => return Err(e),
        }
        Ok(listed.len() as u64)
    }

    /// Does a round of reclaiming memory ([`Allocator::collect_alone`]). If many leaves are missing in the table,
    /// writes another one.
    ///
    /// # Errors
    /// Returns the errors of a round. Errors of writing a table are not reported.
    pub async fn collect<V: Verbs + Control>(&self, v: &V) -> Result<(), IndexError>
    where
        L: NodeCopies<V, K>,
    {
        self.alloc.collect_alone(v).await?;
        v.local(LocalStep::Section).await;
        if self.is_outdated() {
            // The round was done. If the visit has failed, the next one tries again.
            let _written_or_not = self.retrain(v).await;
        }
        Ok(())
    }

    /// Reads the table. Writes another one if this compute node knows leaves that are missing in the table, or if the
    /// index has no table yet. Returns the number of leaves that this compute node then knows.
    ///
    /// # Errors
    /// Returns the errors of [`Learned::retrain`].
    pub async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError>
    where
        L: NodeCopies<V, K>,
    {
        let _unmetered = v.meter().housekeeping();
        v.local(LocalStep::Section).await;
        let missing = self.known.with(|known| known.missing());
        let reading = self.alloc.while_announcing(v, self.look(v));
        if !self.alloc.visit(v, reading).await? {
            return Ok(0);
        }
        v.local(LocalStep::Section).await;
        let (root, known) = self.known.with(|known| (known.root(), known.leaves()));
        if missing > 0 || root.is_some_and(|root| !root.is_table()) {
            return self.retrain(v).await;
        }
        Ok(known as u64)
    }
}
