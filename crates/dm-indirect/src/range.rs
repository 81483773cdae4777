//! Scans, and bulk loads of an empty index.

use dm_index::{Exchange, Fill, IndexError, Scan, end_operation, gather};
use dm_verbs::{Control, Effect, Verbs};

use crate::Items;
use crate::bundle::block_of;
use crate::draft::Draft;
use crate::items::parse;

/// Maximum number of blocks that a scan or a load has in flight.
const BATCH: usize = 32;

/// An item: its key and its value.
pub type Item = (Vec<u8>, Vec<u8>);

impl<V: Verbs + Control, I: Exchange> Items<'_, V, I> {
    /// Reads the first `limit` items from `from` (inclusive) on, in key order, into `out`, which is cleared first.
    /// Returns fewer items only at the end of the index. The items need not have been present at one moment, as in a
    /// scan of the index. For each 32 blocks, this takes a scan of the index and one more round trip.
    ///
    /// # Errors
    /// Returns an error if the index returns one or a READ fails, and [`IndexError::Corrupt`] if a value of the index
    /// is not a reference, or if a block's bytes contradict each other or the reference.
    pub async fn scan(&self, from: &[u8], limit: usize, out: &mut Vec<Item>) -> Result<(), IndexError> {
        out.clear();
        let mut words = Scan::new();
        let mut at = (self.prefix)(from);
        // Whether the key `at` was seen already.
        let mut seen = false;
        while out.len() < limit {
            //= docs/protocol/indirect.md N3
            let _running = self.index.begin().await?;
            let want = (limit - out.len()).min(BATCH) + usize::from(seen);
            self.index.scan(&at, want, &mut words).await?;
            let fresh = words.iter().filter(|(key, _)| !(seen && *key == at));
            let references = fresh
                .map(|(_, word)| self.named(word))
                .collect::<Result<Vec<_>, _>>()?;
            let places: Vec<_> = references.iter().map(|r| (r.at(), r.bytes())).collect();
            let blocks = gather(self.v, &places).await?;
            for (reference, block) in references.into_iter().zip(&blocks) {
                let items = parse(reference, block)?.iter().filter(|(key, _)| *key >= from);
                let room = limit - out.len();
                out.extend(
                    items
                        .take(room)
                        .map(|(key, value)| (key.to_vec(), value.to_vec())),
                );
            }
            let Some(last) = words.keys().last().filter(|_| words.len() == want) else {
                return Ok(());
            };
            (at, seen) = (*last, true);
        }
        Ok(())
    }

    /// Fills an empty index with items in strictly ascending order of keys. `fill` is the fill level of the leaves
    /// ([`dm_index::RangeIndex::bulk_load`]). The verbs are metered as housekeeping. Returns the number of items.
    ///
    /// # Errors
    /// Returns the errors of the index, and an error if a block cannot be allocated or written. Returns
    /// [`IndexError::BadInput`] if the keys do not ascend, or if the items of a prefix do not fit into a block.
    pub async fn bulk_load(
        &self,
        fill: impl Into<Fill>,
        mut next: impl FnMut() -> Option<Item>,
    ) -> Result<u64, IndexError> {
        self.load_all(fill, || next().map(Ok)).await
    }

    /// Loads items as [`Items::bulk_load`] does, from a source that may return errors.
    pub(crate) async fn load_all(
        &self,
        fill: impl Into<Fill>,
        next: impl FnMut() -> Option<Result<Item, IndexError>>,
    ) -> Result<u64, IndexError> {
        let _unmetered = self.v.meter().housekeeping();
        //= docs/protocol/reclaim.md R17
        let running = self.index.begin().await?;
        let loaded = self.alloc.while_announcing(self.v, self.load_within(fill, next));
        end_operation(running, loaded.await)
    }

    /// Loads items within an operation.
    async fn load_within(
        &self,
        fill: impl Into<Fill>,
        next: impl FnMut() -> Option<Result<Item, IndexError>>,
    ) -> Result<u64, IndexError> {
        //= docs/protocol/reclaim.md R11
        self.alloc.land(self.v).await?;
        let mut drafts = Vec::new();
        let items = self.draft_all(next, &mut drafts).await?;
        let mut words = Vec::with_capacity(drafts.len());
        for (key, draft) in &mut drafts {
            words.push((*key, draft.landed().await?.encode()));
        }
        for (_, draft) in &mut drafts {
            draft.set_known(true);
        }
        let mut words = words.into_iter();
        let loaded = self
            .index
            .bulk_load(fill, |value| {
                let (key, word) = words.next()?;
                value.extend_from_slice(&word);
                Some(key)
            })
            .await;
        if loaded.as_ref().is_err_and(|e| e.effect() == Effect::None) {
            for (_, draft) in &mut drafts {
                draft.set_known(false);
            }
        }
        loaded.map(|_| items)
    }

    /// Writes the blocks of all items, and returns the number of items.
    async fn draft_all<'d>(
        &'d self,
        mut next: impl FnMut() -> Option<Result<Item, IndexError>>,
        drafts: &mut Vec<(I::Key, Draft<'d, V>)>,
    ) -> Result<u64, IndexError> {
        let mut items = 0;
        let mut bundle: Vec<Item> = Vec::new();
        loop {
            let item = next().transpose()?;
            let ends = match (bundle.last(), &item) {
                (Some((last, _)), Some((key, _))) if last >= key => {
                    return Err(IndexError::BadInput {
                        why: "a bulk load's keys must ascend strictly",
                    });
                }
                (Some((last, _)), Some((key, _))) => (self.prefix)(last) != (self.prefix)(key),
                (Some(_), None) => true,
                (None, _) => false,
            };
            if ends {
                let block = block_of(bundle.iter().map(|(key, value)| (&key[..], &value[..])));
                let prefix = (self.prefix)(&bundle[0].0);
                drafts.push((prefix, Draft::load(self.v, self.alloc, &block).await?));
                if let Some(behind) = drafts.len().checked_sub(BATCH) {
                    drafts[behind].1.landed().await?;
                }
                bundle.clear();
            }
            let Some(item) = item else { return Ok(items) };
            items += 1;
            bundle.push(item);
        }
    }
}
