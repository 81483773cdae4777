//! The smallest index with an exchange operation: a single word of remote memory, which all keys share.

use dm_alloc::Allocator;
use dm_explore::Endpoint;
use dm_index::{Applied, Exchange, Fill, IndexError, Key8, RangeIndex, Scan};
use dm_sync::epoch::Running;
use dm_verbs::{NodeId, RemotePtr, Verbs};

/// Returns the address of the word. The word is zero if there is no item.
pub(super) fn place() -> RemotePtr {
    RemotePtr::new(NodeId(1), 256).unwrap_or(RemotePtr::NULL)
}

/// Makes the allocator of a compute node. Blocks are on another memory node than the word, and retired blocks are not
/// reused.
pub(super) fn allocator(compute_node: u16) -> Allocator {
    Allocator::new(1, compute_node).chunk_bytes(256)
}

/// A client of the index.
pub(super) struct Word<'h>(&'h Endpoint);

impl<'h> Word<'h> {
    pub(super) const fn new(v: &'h Endpoint) -> Self {
        Self(v)
    }
}

const NOT_HERE: IndexError = IndexError::BadInput {
    why: "one word is got, inserted, upserted, exchanged and swapped",
};

fn word(value: Option<&[u8]>) -> u64 {
    let bytes = value.and_then(|value| value.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl RangeIndex for Word<'_> {
    type Key = Key8;

    fn value_bytes(&self) -> usize {
        8
    }
    async fn get(&self, _: &Key8, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        let found = self.0.word(place()).await?;
        value.clear();
        value.extend(found.to_le_bytes());
        Ok(found != 0)
    }
    async fn insert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        Ok(match self.exchange(key, None, Some(value)).await? {
            Applied::Differs => Applied::Present,
            applied => applied,
        })
    }
    async fn update(&self, _: &Key8, _: &[u8]) -> Result<Applied, IndexError> {
        Err(NOT_HERE)
    }
    async fn upsert(&self, _: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        self.0.write(place(), value).await?;
        Ok(Applied::Replaced)
    }
    async fn remove(&self, _: &Key8) -> Result<Applied, IndexError> {
        Err(NOT_HERE)
    }
    async fn scan(&self, _: &Key8, _: usize, _: &mut Scan<Key8>) -> Result<(), IndexError> {
        Err(NOT_HERE)
    }
    async fn bulk_load(
        &self,
        _: impl Into<Fill>,
        _: impl FnMut(&mut Vec<u8>) -> Option<Key8>,
    ) -> Result<u64, IndexError> {
        Err(NOT_HERE)
    }
}

impl Exchange for Word<'_> {
    async fn exchange(
        &self,
        _: &Key8,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<Applied, IndexError> {
        let found = self.0.cas(place(), word(before), word(after)).await?;
        Ok(match (before, after) {
            _ if found != word(before) => Applied::Differs,
            (None, None) => Applied::Absent,
            (None, Some(_)) => Applied::Inserted,
            (Some(_), Some(_)) => Applied::Replaced,
            (Some(_), None) => Applied::Removed,
        })
    }

    async fn swap(
        &self,
        _: &Key8,
        before: &mut Vec<u8>,
        after: Option<&[u8]>,
    ) -> Result<Applied, IndexError> {
        loop {
            let found = self.0.word(place()).await?;
            if found == 0 {
                return Ok(Applied::Absent);
            }
            if self.0.cas(place(), found, word(after)).await? == found {
                before.clear();
                before.extend(found.to_le_bytes());
                return Ok(match after {
                    Some(_) => Applied::Replaced,
                    None => Applied::Removed,
                });
            }
        }
    }

    async fn begin(&self) -> Result<Option<Running<'_>>, IndexError> {
        Ok(None)
    }
}
