//! Depots, through which compute nodes that retire blocks pass them to compute nodes that need blocks.
//!
//! Each memory node has a depot, a stack of magazines. A magazine is a block of that memory node that holds a list
//! of free blocks. The head of the stack is a word in the members' area that changes by CAS. A tag in the head
//! grows with every change, so that a CAS fails if a magazine was taken and put back in between (ABA).
//!
//! ```text
//!   head       tag 22 · offset / 64 in 42 bits, low bits last; offset 0: empty
//!   magazine   head below it 8 · entries 2 · memory node 2 · zero 4 · entries of 16 bytes
//!   entry      offset 6 · incarnation 4 · version 1 · kind 1 · bytes of the class 4
//! ```
//! If an operation that moves blocks into a depot is dropped before it has posted the CAS, the blocks return to the
//! free lists. If the effect of the CAS is unknown, the blocks may be lost. The operation then stays announced, so that
//! no census gives the blocks back before the CAS has landed.

use dm_sync::Mutex;
use dm_verbs::{Control, Effect, LINE, LocalStep, NodeId, RESERVED_BYTES, RemotePtr, VerbError, Verbs, Why};

use crate::block::{Block, Class};
use crate::pool::{NodePool, Trip};
use crate::reclaim::Reclaim;
use crate::{AllocError, Allocator};

/// Number of free blocks of one class on one memory node that a compute node keeps. If it has [`SURPLUS`] such blocks,
/// it gives up [`BATCH`] of them.
const KEEP: usize = dm_sync::scaled(16, 1);
/// Number of blocks in a magazine; at most 63 fit.
pub(crate) const BATCH: usize = dm_sync::scaled(63, 1);
/// A compute node with at least this many free blocks of one class on one memory node gives some up.
pub(crate) const SURPLUS: usize = KEEP + BATCH;
/// The class of magazines.
pub(crate) const MAGAZINE: Class = Class {
    bytes: 1024,
    kind: u8::MAX,
};
const ENTRIES_AT: usize = 16;
const ENTRY: usize = 16;
const _: () = assert!(ENTRIES_AT + BATCH * ENTRY <= MAGAZINE.bytes as usize);
/// Retry limit of a CAS on a head. Each failure means that another client succeeded.
const ATTEMPTS: u32 = 1 << 16;

const UNIT: u64 = LINE as u64;
const TAG_SHIFT: u32 = 42;

/// Returns the head word that replaces `old` and points to `offset`.
fn next_head(old: u64, offset: u64) -> u64 {
    ((old >> TAG_SHIFT).wrapping_add(1) << TAG_SHIFT) | (offset / UNIT)
}

fn offset_of(head: u64) -> u64 {
    (head & ((1 << TAG_SHIFT) - 1)) * UNIT
}

/// Blocks that are being moved into a depot.
struct Batch<'a, V: Verbs> {
    v: &'a V,
    pool: &'a Mutex<NodePool>,
    magazine: Block,
    blocks: Vec<(Block, Class)>,
    trip: Trip,
    /// Whether the magazine was written to.
    written: bool,
    /// Whether the blocks belong, or may belong, to the client that pops them.
    gone: bool,
}

impl<V: Verbs> Drop for Batch<'_, V> {
    fn drop(&mut self) {
        let client = self.v.client();
        self.pool.with(|pool| {
            if !pool.end_trip(self.trip) || self.gone {
                return;
            }
            for (block, class) in self.blocks.drain(..) {
                pool.put_reclaimed(block, class);
            }
            match self.written {
                true => pool.put_orphan_again(client, self.magazine, MAGAZINE),
                false => pool.put_reclaimed(self.magazine, MAGAZINE),
            }
        });
    }
}

/// Blocks that are being taken from a depot. Once `got` is set, they belong to this compute node even if the operation
/// is dropped, because the destructor puts them into the pool. If the operation is dropped while its CAS is in flight,
/// the blocks may be lost.
struct Taken<'a> {
    pool: &'a Mutex<NodePool>,
    magazine: RemotePtr,
    blocks: Vec<(Block, Class)>,
    trip: Trip,
    /// Whether the magazine was taken from the depot.
    got: bool,
}

impl<'a> Taken<'a> {
    fn begin(pool: &'a Mutex<NodePool>, magazine: RemotePtr, blocks: Vec<(Block, Class)>) -> Self {
        let trip = pool.with(|pool| {
            // While the CAS is in flight, the blocks may be in no depot and in no stock. So they are recorded before
            // the CAS is posted.
            pool.note(magazine);
            blocks.iter().for_each(|(block, _)| pool.note(block.at));
            pool.begin_trip()
        });
        Self {
            pool,
            magazine,
            blocks,
            trip,
            got: false,
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.pool.with(|pool| {
            if !pool.end_trip(self.trip) || !self.got {
                return;
            }
            for (block, class) in self.blocks.drain(..) {
                pool.put_reclaimed(block, class);
            }
            pool.put_reclaimed(Block::fresh(self.magazine), MAGAZINE);
        });
    }
}

impl<V: Verbs> Batch<'_, V> {
    /// Puts the blocks into the depot whose head is at `depot`.
    async fn give(mut self, depot: RemotePtr) -> Result<(), AllocError> {
        let v = self.v;
        let at = self.magazine.at;
        let mut retry = v.retry(ATTEMPTS);
        let mut head = v.word(depot).await?;
        loop {
            self.written = true;
            let image = encode(&self.blocks, at.node(), head);
            v.write(at, &image).await?;
            // Once the CAS is posted, the magazine may be on the stack.
            self.gone = true;
            let posted = v.cas(depot, head, next_head(head, at.offset())).await;
            let without = |e: &VerbError| e.overall() == Effect::None;
            self.gone = posted
                .as_ref()
                .map_or_else(|e| !without(e), |found| *found == head);
            let found = posted?;
            if self.gone {
                return Ok(());
            }
            head = found;
            retry.again(depot, Why::Raced).await?;
        }
    }
}

/// Encodes a magazine of `node` that lists these blocks, which lie on the same memory node.
fn encode(blocks: &[(Block, Class)], node: NodeId, below: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAGAZINE.bytes as usize);
    bytes.extend_from_slice(&below.to_le_bytes());
    bytes.extend_from_slice(&(blocks.len() as u16).to_le_bytes()); // at most `BATCH`
    bytes.extend_from_slice(&node.0.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    for (block, class) in blocks {
        bytes.extend_from_slice(&block.at.offset().to_le_bytes()[..6]); // an offset has 48 bits
        bytes.extend_from_slice(&block.incarnation.to_le_bytes());
        bytes.extend_from_slice(&[block.version, class.kind]);
        bytes.extend_from_slice(&class.bytes.to_le_bytes());
    }
    bytes
}

/// Decodes a magazine. Returns the head word that leads to the next magazine in the stack, and the listed blocks.
/// Returns `None` if the bytes are not a magazine of `node`.
fn decode(bytes: &[u8], node: NodeId) -> Option<(u64, Vec<(Block, Class)>)> {
    let (below, rest) = bytes.split_first_chunk::<8>()?;
    let (&[low, high, node_low, node_high, 0, 0, 0, 0], rest) = rest.split_first_chunk::<8>()? else {
        return None;
    };
    let count = usize::from(u16::from_le_bytes([low, high]));
    if count > BATCH || NodeId(u16::from_le_bytes([node_low, node_high])) != node {
        return None;
    }
    let mut blocks = Vec::with_capacity(count);
    for entry in rest.chunks_exact(ENTRY).take(count) {
        let (offset, rest) = entry.split_first_chunk::<6>()?;
        let (incarnation, rest) = rest.split_first_chunk::<4>()?;
        let (&[version, kind], rest) = rest.split_first_chunk::<2>()?;
        let bytes = u32::from_le_bytes(*rest.first_chunk()?);
        let [a, b, c, d, e, f] = *offset;
        let at = RemotePtr::new(node, u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))?;
        let class = Class { bytes, kind };
        if !at.offset().is_multiple_of(UNIT) || at.offset() < RESERVED_BYTES || bytes == 0 {
            return None;
        }
        // The last byte of the block must have an address, too.
        RemotePtr::new(node, at.offset() + class.block_bytes() - 1)?;
        let block = Block {
            at,
            incarnation: u32::from_le_bytes(*incarnation),
            version,
        };
        blocks.push((block, class));
    }
    Some((u64::from_le_bytes(*below), blocks))
}

impl Allocator {
    /// Moves free blocks of this compute node into the depots, in batches of at most [`BATCH`], until it has fewer than
    /// `least` of each class on each memory node. It keeps the blocks of a memory node that has no room for a magazine,
    /// and all free magazines. It moves nothing if [`Allocator::within`] refuses to run an operation.
    pub(crate) async fn give_up<V: Verbs + Control>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        least: usize,
    ) -> Result<(), AllocError> {
        for (node, pool) in (0..).map(NodeId).zip(&self.pools) {
            v.local(LocalStep::Section).await;
            while pool.with(|p| p.has_batch(least)) {
                // If the effect of a request is unknown, the operation stays announced, and a census waits for it.
                //= docs/protocol/recovery.md V18
                // Boxed, because it is rare and would make the future of every round large.
                let given = Box::pin(self.within(v, reclaim, self.give_batch(v, node, least)));
                if given.await? != Some(true) {
                    break;
                }
                v.local(LocalStep::Section).await;
            }
        }
        Ok(())
    }

    /// Moves free blocks of one class into the depot of `node`. The caller must be within an operation. Returns `false`
    /// if no class has `least` free blocks, or if this gets no block for a magazine.
    async fn give_batch<V: Verbs + Control>(
        &self,
        v: &V,
        node: NodeId,
        least: usize,
    ) -> Result<bool, AllocError> {
        let Some(area) = self.area() else { return Ok(false) };
        let Some(mut batch) = self.empty_batch(v, node).await? else {
            return Ok(false);
        };
        v.local(LocalStep::Section).await;
        // Another client may have taken some blocks meanwhile.
        let Some(blocks) = batch.pool.with(|p| p.batch(least)) else {
            return Ok(false);
        };
        batch.blocks = blocks;
        batch.give(area.depot(node)).await?;
        Ok(true)
    }

    /// Returns an empty magazine on `node`, or `None` if the memory node has no room for one or the request for a chunk
    /// failed. This never takes blocks out of the depot to get a magazine, because `give_up` must only put blocks in.
    async fn empty_batch<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        node: NodeId,
    ) -> Result<Option<Batch<'a, V>>, AllocError> {
        let pool = &*self.pools[usize::from(node.0)];
        let mut found = pool.with(NodePool::magazine);
        if found.is_none() {
            let block = self.block_of(v, node, (MAGAZINE, false), &mut None).await?;
            found = block.and_then(|block| {
                pool.with(|p| {
                    p.put(block, MAGAZINE);
                    p.magazine()
                })
            });
        }
        Ok(found.map(|(magazine, trip)| Batch {
            v,
            pool,
            magazine,
            blocks: Vec::new(),
            trip,
            written: false,
            gone: false,
        }))
    }

    /// Takes a magazine of free blocks of `node` from its depot. Returns `false` if the depot is empty, or if the pool
    /// has no depots because it reclaims nothing.
    pub(crate) async fn receive<V: Verbs + Control>(&self, v: &V, node: NodeId) -> Result<bool, AllocError> {
        let Some(area) = self.area() else { return Ok(false) };
        let _unmetered = v.meter().housekeeping();
        let at = area.depot(node);
        let mut head = v.word(at).await?;
        let mut retry = v.retry(ATTEMPTS);
        loop {
            let Some(magazine) = RemotePtr::new(node, offset_of(head)).filter(|p| p.offset() != 0) else {
                return Ok(false);
            };
            let image = v.read(magazine, MAGAZINE.bytes).await?;
            let Some((below, blocks)) = decode(&image, node) else {
                // If the head has changed, another client has taken the magazine and written to it meanwhile. Otherwise
                // the magazine is damaged, and stays in the depot.
                let found = v.word(at).await?;
                if found == head {
                    return Err(AllocError::Corrupt {
                        at: magazine,
                        what: "the magazine is no list of free blocks",
                    });
                }
                head = found;
                retry.again(at, Why::Raced).await?;
                continue;
            };
            v.local(LocalStep::Section).await;
            let mut taken = Taken::begin(self.pool_of(magazine), magazine, blocks);
            let found = v.cas(at, head, next_head(head, offset_of(below))).await?;
            if found != head {
                drop(taken);
                head = found;
                retry.again(at, Why::Raced).await?;
                continue;
            }
            taken.got = true;
            v.local(LocalStep::Section).await;
            drop(taken);
            return Ok(true);
        }
    }

    /// Returns the addresses of the blocks that the depot of `node` lists, and of its magazines. Returns `None` if the
    /// depot has changed meanwhile, or if a magazine is damaged.
    pub(crate) async fn depot_blocks<V: Verbs>(
        &self,
        v: &V,
        node: NodeId,
    ) -> Result<Option<Vec<RemotePtr>>, AllocError> {
        let Some(area) = self.area() else {
            return Ok(Some(Vec::new()));
        };
        let (first, mut listed) = (v.word(area.depot(node)).await?, Vec::new());
        let (mut head, mut seen) = (first, std::collections::HashSet::new());
        while let Some(magazine) = RemotePtr::new(node, offset_of(head)).filter(|p| p.offset() != 0) {
            let image = v.read(magazine, MAGAZINE.bytes).await?;
            let Some((below, blocks)) = decode(&image, node).filter(|_| seen.insert(magazine)) else {
                return Ok(None);
            };
            listed.push(magazine);
            listed.extend(blocks.iter().map(|(block, _)| block.at));
            head = below;
        }
        let unchanged = v.word(area.depot(node)).await? == first;
        Ok(unchanged.then_some(listed))
    }

    /// Returns the size in bytes of the blocks that the depot of `node` lists and of its magazines. If other compute
    /// nodes use the depot meanwhile, or if a magazine is damaged, the result may be too small.
    pub(crate) async fn depot_bytes<V: Verbs>(&self, v: &V, node: NodeId) -> Result<u64, AllocError> {
        let Some(area) = self.area() else { return Ok(0) };
        let _unmetered = v.meter().housekeeping();
        let mut head = v.word(area.depot(node)).await?;
        let (mut bytes, mut seen) = (0, std::collections::HashSet::new());
        while let Some(magazine) = RemotePtr::new(node, offset_of(head)).filter(|p| p.offset() != 0) {
            let image = v.read(magazine, MAGAZINE.bytes).await?;
            let Some((below, blocks)) = decode(&image, node).filter(|_| seen.insert(magazine)) else {
                break;
            };
            let listed: u64 = blocks.iter().map(|(_, class)| class.block_bytes()).sum();
            bytes += MAGAZINE.block_bytes() + listed;
            head = below;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_head_leads_somewhere_and_never_repeats() {
        let first = next_head(0, 0x1_2340 * UNIT);
        assert_eq!(offset_of(first), 0x1_2340 * UNIT);
        let back = next_head(next_head(first, 0), 0x1_2340 * UNIT);
        assert_eq!(offset_of(back), offset_of(first));
        assert_ne!(back, first);
    }

    #[test]
    fn a_magazine_holds_what_was_put_in() {
        let block = |i: u64| Block {
            at: RemotePtr::new(NodeId(3), i * UNIT).expect("in range"),
            incarnation: 7 + i as u32,
            version: i as u8,
        };
        // A class keeps its size, even if that is not a multiple of a line, or so large that 16 bits cannot count its
        // lines.
        let class = |i| Class {
            bytes: [1024, 16, 8 << 20, u32::MAX][i % 4],
            kind: i as u8 % 2,
        };
        let blocks: Vec<_> = (1..=BATCH as u64)
            .map(|i| (block(i << 30), class(i as usize)))
            .collect();
        let bytes = encode(&blocks, NodeId(3), 0xABCD);
        assert_eq!(decode(&bytes, NodeId(3)), Some((0xABCD, blocks)));
        assert_eq!(decode(&bytes, NodeId(2)), None);
        assert_eq!(decode(&[], NodeId(3)), None);

        // In the first case, the offset of one entry is not a multiple of 64. In the second case, the class of one
        // entry has no bytes. In the third case, a byte that must be zero is not. In the fourth case, the first block
        // would be the superblock. In the fifth case, all bytes of the first entry are zero. In the last case, the block
        // would end beyond the last address.
        let mut odd = bytes.clone();
        odd[ENTRIES_AT] |= 1;
        assert_eq!(decode(&odd, NodeId(3)), None);
        let mut none = bytes.clone();
        none[ENTRIES_AT + 12..ENTRIES_AT + 16].fill(0);
        assert_eq!(decode(&none, NodeId(3)), None);
        let mut set = bytes.clone();
        set[15] = 1;
        assert_eq!(decode(&set, NodeId(3)), None);
        let mut first = bytes.clone();
        first[ENTRIES_AT..ENTRIES_AT + 6].fill(0);
        assert_eq!(decode(&first, NodeId(3)), None);
        first[ENTRIES_AT..ENTRIES_AT + ENTRY].fill(0);
        assert_eq!(decode(&first, NodeId(3)), None);
        let mut last = bytes;
        last[ENTRIES_AT..ENTRIES_AT + 6].copy_from_slice(&[0xC0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
        last[ENTRIES_AT + 12..ENTRIES_AT + 16].copy_from_slice(&64u32.to_le_bytes());
        assert!(decode(&last, NodeId(3)).is_some());
        last[ENTRIES_AT + 12] = 65;
        assert_eq!(decode(&last, NodeId(3)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_magazine_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = decode(&bytes, NodeId(0));
        }
    }
}
