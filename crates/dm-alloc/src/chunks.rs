//! Records of the chunks of a pool that reclaims memory. A record contains the place of a chunk's first block and the
//! class of its blocks.
//! With the records, a census finds the blocks that a dead member has lost.
//!
//! All blocks of a chunk are of one class. The last line of each chunk is its *record*. The records of a memory node
//! form a list, to which members only add. Its head is a word in the members' area: the address of the last record that
//! was added.
//!
//! ```text
//!   record   next record 8 · start of the chunk 8 · bytes of a block 4 · kind 1 · zero 3 · magic 8 · zero 32
//! ```

use std::collections::HashSet;

use dm_verbs::{Exhausted, LINE, NodeId, RemotePtr, Verbs, Why};

use crate::block::Class;
use crate::{AllocError, Allocator};

/// Bytes at the end of each chunk that hold its record.
pub(crate) const RECORD_BYTES: u64 = LINE as u64;
const MAGIC: u64 = u64::from_le_bytes(*b"dmkit/ch");
const MAGIC_AT: usize = 24;
/// Maximum number of attempts of the CAS on a head. Each failure means that another client succeeded.
const ATTEMPTS: u32 = 1 << 10;

/// A chunk of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chunk {
    pub(crate) start: RemotePtr,
    pub(crate) class: Class,
    /// Number of blocks that fit.
    pub(crate) blocks: u64,
}

fn encode(next: u64, start: RemotePtr, class: Class) -> [u8; LINE] {
    let mut line = [0; LINE];
    line[..8].copy_from_slice(&next.to_le_bytes());
    line[8..16].copy_from_slice(&start.raw().to_le_bytes());
    line[16..20].copy_from_slice(&class.bytes.to_le_bytes());
    line[20] = class.kind;
    line[MAGIC_AT..MAGIC_AT + 8].copy_from_slice(&MAGIC.to_le_bytes());
    line
}

/// Returns the address of the next record and the chunk. Returns `None` if the bytes cannot be a record that lies at
/// `at`.
fn decode(line: &[u8], at: RemotePtr) -> Option<(u64, Chunk)> {
    let word = |at: usize| Some(u64::from_le_bytes(*line.get(at..)?.first_chunk()?));
    let start = RemotePtr::from_raw(word(8)?);
    let class = Class {
        bytes: u32::from_le_bytes(*line.get(16..)?.first_chunk()?),
        kind: *line.get(20)?,
    };
    let usable = at.offset().checked_sub(start.offset())?;
    let sound = word(MAGIC_AT)? == MAGIC
        && start.node() == at.node()
        && class.bytes > 0
        && start.offset().is_multiple_of(LINE as u64);
    let blocks = usable.checked_div(class.block_bytes())?;
    sound.then_some((word(0)?, Chunk { start, class, blocks }))
}

impl Allocator {
    /// Returns the number of bytes at the end of a chunk that are not for blocks; 0 if the pool reclaims nothing.
    pub(crate) fn kept(&self) -> u64 {
        self.area().map_or(0, |_| RECORD_BYTES)
    }

    /// Writes the record of a new chunk and adds it to the list, before any block of the chunk is used. Does nothing if
    /// the pool reclaims nothing.
    //= docs/protocol/reclaim.md R16
    pub(crate) async fn record_chunk<V: Verbs>(
        &self,
        v: &V,
        class: Class,
        (start, bytes): (RemotePtr, u64),
    ) -> Result<(), AllocError> {
        let Some(area) = self.area() else { return Ok(()) };
        let _unmetered = v.meter().housekeeping();
        let (list, at) = (area.chunks(start.node()), start.add(bytes - RECORD_BYTES));
        let mut head = v.word(list).await?;
        let attempts = v.budget(ATTEMPTS);
        for _ in 0..attempts {
            v.write(at, &encode(head, start, class)).await?;
            let found = v.cas(list, head, at.raw()).await?;
            if found == head {
                return Ok(());
            }
            head = found;
        }
        Err(AllocError::Contended(Exhausted {
            at: list.into(),
            why: Why::Raced,
            attempts,
        }))
    }

    /// Returns all chunks of a memory node that were recorded before this call.
    pub(crate) async fn chunks<V: Verbs>(&self, v: &V, node: NodeId) -> Result<Vec<Chunk>, AllocError> {
        let Some(area) = self.area() else {
            return Ok(Vec::new());
        };
        let (mut chunks, mut seen) = (Vec::new(), HashSet::new());
        let mut next = v.word(area.chunks(node)).await?;
        while next != 0 {
            let at = RemotePtr::from_raw(next);
            let corrupt = AllocError::Corrupt {
                at,
                what: "the list of chunks leads to no record of a chunk",
            };
            if at.node() != node || !at.offset().is_multiple_of(RECORD_BYTES) || !seen.insert(next) {
                return Err(corrupt);
            }
            let line = v.read(at, LINE as u32).await?;
            let (below, chunk) = decode(&line, at).ok_or(corrupt)?;
            chunks.push(chunk);
            next = below;
        }
        Ok(chunks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLASS: Class = Class { bytes: 1000, kind: 7 };

    fn at(offset: u64) -> RemotePtr {
        RemotePtr::new(NodeId(2), offset).expect("a small offset")
    }

    #[test]
    fn a_record_says_where_blocks_begin_and_of_which_class_they_are() {
        let record = at(0x1_1000 - RECORD_BYTES);
        let line = encode(0x77, at(0x1000), CLASS);
        let chunk = Chunk {
            start: at(0x1000),
            class: CLASS,
            blocks: 63,
        };
        assert_eq!(decode(&line, record), Some((0x77, chunk)));
        assert_eq!(
            decode(&encode(0x77, at(0x1020), CLASS), record),
            None,
            "no block begins there"
        );
        assert_eq!(decode(&line, at(0x800)), None, "it ends before it begins");
        assert_eq!(
            decode(&line, RemotePtr::from_raw(record.offset())),
            None,
            "another memory node"
        );
        let no_blocks = encode(0, at(0x1000), Class { bytes: 0, ..CLASS });
        assert_eq!(decode(&no_blocks, record), None);
        assert_eq!(decode(&[0; LINE], record), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..80), offset: u32) {
            let _ = decode(&bytes, at(u64::from(offset)));
        }
    }
}
