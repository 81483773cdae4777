//! The census: one member finds the blocks that dead members have lost, and gives them back.
//!
//! ```text
//!   this member    read chunks │ open │ … all record │ grace │ walk, read depots │ grace │ list, ask │ … all told │ close
//!   other members                look: record, tell                                   look: clear bits, tell    look: end
//! ```
//! The census counts a block as lost if the walk over the index has not reached it, no depot lists it, no member holds
//! it, and no member has recorded it since the census began.

use core::fmt;

use dm_sync::epoch::{Epochs, Seat};
use dm_verbs::{Control, Event, LocalStep, NodeId, RemotePtr, Verbs};
use smallvec::SmallVec;

use crate::block::{Block, Class};
use crate::chunks::Chunk;
use crate::depot::MAGAZINE;
use crate::lists::{LIST, LIST_BLOCKS, List, ListPtr};
use crate::members::{CensusWord, MemberArea};
use crate::pool::Held;
use crate::reclaim::Reclaim;
use crate::{AllocError, Allocator};

/// Number of READs that are in flight at the same time.
const PARALLEL: usize = 16;
/// Maximum number of times that a depot is read. It is read again if its head has changed meanwhile, or if one of its
/// magazines cannot be decoded.
const DEPOT_READS: u32 = 16;
/// Bytes at the beginning of a block that are read for the life of its node.
const LIFE_BYTES: u32 = 64;

/// The place of a node's *life* in the nodes of a class. The life is the node's incarnation and version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// Readers compare neither.
    Unversioned,
    /// Offsets in the first line of the node: the incarnation (4 bytes, little-endian) and the version (1 byte).
    Header {
        /// Offset of the incarnation.
        incarnation_at: usize,
        /// Offset of the version.
        version_at: usize,
    },
}

impl Life {
    /// Returns the lost block at `at` with the life of its next node. `line` is the first line that the block has now.
    //= docs/protocol/recovery.md V24
    fn next(self, at: RemotePtr, line: &[u8]) -> Block {
        let (mut incarnation, mut version) = (0, 0);
        if let Self::Header {
            incarnation_at,
            version_at,
        } = self
        {
            let bytes = line.get(incarnation_at..).and_then(|rest| rest.first_chunk());
            incarnation = bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes));
            version = line.get(version_at).copied().unwrap_or(0);
        }
        let last = Block {
            at,
            incarnation,
            version,
        };
        // The first step skips the life of a node that a client may have been writing when it died. The second one
        // leads to the life of the next node.
        last.after(version).after(version.wrapping_add(1))
    }
}

/// The classes whose lost blocks can be given back.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    classes: Vec<(Class, Life)>,
    kinds: Vec<u8>,
}

/// The blocks that a census has given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Number of blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The result of a step of a [`Census`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CensusStep {
    /// The step is done.
    Done,
    /// Some members, perhaps this one, have not done their part yet, or a depot could not be read. Do a round, and call
    /// again.
    Waits,
    /// The census was ended, because a member has left or was expelled, or because more blocks have left a member's
    /// stock than its record can hold.
    Over,
}

/// The blocks of a chunk.
struct Part {
    chunk: Chunk,
    life: Life,
    /// A bit for each block: 1 if it may not be given back.
    known: Vec<u64>,
}

impl Part {
    fn new(chunk: Chunk, life: Life) -> Self {
        Self {
            chunk,
            life,
            known: vec![0; chunk.blocks.div_ceil(64) as usize],
        }
    }

    /// Returns whether this chunk reaches into the next one.
    fn overlaps(&self, next: &Self) -> bool {
        let Chunk { start, class, blocks } = self.chunk;
        let end = start.offset() + blocks * class.block_bytes();
        start.node() == next.chunk.start.node() && next.chunk.start.offset() < end
    }

    fn mark(&mut self, at: RemotePtr) {
        let Chunk { start, class, blocks } = self.chunk;
        let Some(offset) = at.offset().checked_sub(start.offset()) else {
            return;
        };
        let number = offset / class.block_bytes();
        if at.node() != start.node() || number >= blocks {
            return;
        }
        match offset % class.block_bytes() {
            0 => self.known[(number / 64) as usize] |= 1 << (number % 64),
            // The record of this chunk contradicts the index, so no block of the chunk is given back.
            _ => self.known.fill(u64::MAX),
        }
    }

    /// Returns the lists of the blocks that are not known.
    fn lists(&self) -> impl Iterator<Item = List> + '_ {
        let Chunk { start, class, blocks } = self.chunk;
        let per_list = (LIST_BLOCKS / 64) as usize;
        let pieces = self
            .known
            .chunks(per_list)
            .zip((0..).step_by(LIST_BLOCKS as usize));
        pieces.filter_map(move |(known, first)| {
            let count = LIST_BLOCKS.min(blocks - first);
            let mut words: Vec<u64> = known.iter().map(|word| !word).collect();
            if let Some(last) = words.last_mut().filter(|_| count % 64 > 0) {
                *last &= (1 << (count % 64)) - 1;
            }
            words.iter().any(|word| *word != 0).then(|| List {
                round: 0,
                number: 0,
                next: ListPtr::default(),
                first: start.add(first * class.block_bytes()),
                bytes: class.block_bytes(),
                blocks: count,
                words,
            })
        })
    }
}

/// A census that this compute node takes. If this value is dropped, the census ends without a result.
///
/// The caller first calls [`Census::told`] until it is done, then [`Census::grace`], and [`Census::quiet`] until it is
/// done. Then it walks the index, and calls [`Census::know`] and [`Census::know_depots`]. It calls [`Census::grace`]
/// and [`Census::quiet`] again, then [`Census::ask`], [`Census::told`] until it is done, and [`Census::close`]. Between
/// the calls, it does the rounds of its compute node (R3). It must not be within an operation while it waits, because
/// [`Census::quiet`] waits for the end of all operations.
pub struct Census<'a, V: Verbs> {
    alloc: &'a Allocator,
    reclaim: &'a Reclaim,
    v: &'a V,
    /// Keeps the compute node in the pool.
    _seat: Seat,
    _taking: Taking<'a>,
    /// The word of the census. If another client changes it, the census is over.
    word: CensusWord,
    /// Whether the word in the pool may still be that of this census.
    open: bool,
    /// The tag of the last grace.
    tag: u64,
    /// The chunks, by address.
    parts: Vec<Part>,
    lists: Vec<Posted>,
}

/// The mark that a client of this compute node takes a census. Dropping it clears the mark.
struct Taking<'a>(&'a Reclaim);

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.membership().with(|m| m.taking = false);
    }
}

/// A list that this client has written.
struct Posted {
    block: Block,
    held: Held,
    pointer: ListPtr,
    /// The list as it was written. Members clear bits of it in remote memory.
    list: List,
    /// Whether the WRITE was awaited.
    awaited: bool,
}

impl<V: Verbs> fmt::Debug for Census<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Census")
            .field("word", &self.word)
            .field("chunks", &self.parts.len())
            .finish_non_exhaustive()
    }
}

impl<V: Verbs> Drop for Census<'_, V> {
    fn drop(&mut self) {
        if self.open {
            //= docs/protocol/recovery.md V22
            for word in [self.word.recording(), self.word.asking()] {
                self.v.cas(self.area().census(), word.0, word.closed().0).detach();
            }
        }
        for Posted {
            block, held, awaited, ..
        } in self.lists.drain(..)
        {
            let next = block.after(block.version);
            //= docs/protocol/recovery.md V25
            match awaited {
                // Members may still be reading the lists, within operations.
                true => self.alloc.retire_held(held, next, LIST),
                false => self
                    .alloc
                    .give_back_held_unawaited(self.v.client(), held, next, LIST),
            }
        }
    }
}

impl Allocator {
    /// Records that a census may give back lost blocks of `class`, and where nodes of this class store their
    /// incarnation and version. The caller's walk over the index must reach all blocks of this class that are in use.
    pub fn restores(&self, class: Class, life: Life) {
        self.lives.with(|lives| {
            if !lives.classes.iter().any(|(known, _)| *known == class) {
                lives.classes.push((class, life));
            }
        });
    }

    /// Records that a census may give back lost blocks of all classes of this kind, and that readers compare neither
    /// incarnations nor versions of their nodes.
    pub fn restores_kind(&self, kind: u8) {
        self.lives.with(|lives| lives.kinds.push(kind));
    }

    fn life_of(&self, class: Class) -> Option<Life> {
        if class == MAGAZINE || class == LIST {
            return Some(Life::Unversioned);
        }
        self.lives.with(|lives| {
            let known = lives.classes.iter().find(|(known, _)| *known == class);
            let of_kind = || lives.kinds.contains(&class.kind).then_some(Life::Unversioned);
            known.map(|(_, life)| *life).or_else(of_kind)
        })
    }

    /// Begins a census. Returns `None` if the pool reclaims nothing, or if another client takes a census.
    ///
    /// This does a round, and takes a round trip for each chunk of the pool and a few more.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::prepare`], and [`AllocError::Corrupt`] if a record of a chunk is damaged, or
    /// if two records of chunks whose blocks a census may give back name the same memory.
    pub async fn begin_census<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
    ) -> Result<Option<Census<'a, V>>, AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(None);
        };
        let _unmetered = v.meter().housekeeping();
        let seat = Epochs::seat(reclaim.epochs());
        self.collect(v, &seat).await?;
        //= docs/protocol/recovery.md V16
        let mut parts = Vec::new();
        for node in (0..self.memory_nodes()).map(NodeId) {
            let chunks = self.chunks(v, node).await?.into_iter();
            parts.extend(chunks.filter_map(|chunk| Some(Part::new(chunk, self.life_of(chunk.class)?))));
        }
        parts.sort_unstable_by_key(|part| part.chunk.start);
        if let Some(both) = parts.windows(2).find(|both| both[0].overlaps(&both[1])) {
            return Err(AllocError::Corrupt {
                at: both[1].chunk.start,
                what: "the records of two chunks name the same memory",
            });
        }
        //= docs/protocol/recovery.md V17
        let at = reclaim.area().census();
        let mut found = CensusWord(v.word(at).await?);
        v.local(LocalStep::Section).await;
        if reclaim
            .membership()
            .with(|m| core::mem::replace(&mut m.taking, true))
        {
            return Ok(None);
        }
        let taking = Taking(reclaim);
        if found.is_by(self.roster.own()) {
            // An earlier census of this compute node was dropped, and the CASes that it posted to close the census's
            // word had no effect.
            let closed = CensusWord(v.cas(at, found.0, found.closed().0).await?);
            if closed != found {
                return Ok(None);
            }
            found = found.closed();
        }
        if !found.is_closed() {
            return Ok(None);
        }
        let mut census = Census {
            alloc: self,
            reclaim,
            v,
            _seat: seat,
            _taking: taking,
            word: found.opened_by(self.roster.own()),
            open: true,
            tag: 0,
            parts,
            lists: Vec::new(),
        };
        census.open = v.cas(at, found.0, census.word.0).await? == found.0;
        Ok(census.open.then_some(census))
    }

    /// Returns whether a block is in the stock of this compute node or in the record of its census.
    #[cfg(feature = "study")]
    pub fn holds(&self, block: RemotePtr) -> bool {
        let holdings = self.reclaim.as_ref().map(|reclaim| self.holdings(reclaim));
        holdings.is_some_and(|(holdings, _)| holdings.contain(block))
    }

    /// Moves the free memory of this compute node into the depots, as long as there is room for the magazines. Free
    /// magazines stay, and so do blocks that running operations may still read and blocks to which a WRITE may be in
    /// flight. If this client is not enlisted in the compute node's latest membership, this moves nothing. Call this
    /// on a compute node that is about to leave the pool for ever.
    ///
    /// # Errors
    /// Returns [`AllocError::Contended`] if a retry limit is reached, [`dm_verbs::ControlError::Fenced`] if this client
    /// is fenced, and the errors of verbs.
    pub async fn give_away<V: Verbs + Control>(&self, v: &V) -> Result<(), AllocError> {
        let Some(reclaim) = &self.reclaim else {
            return Ok(());
        };
        let _unmetered = v.meter().housekeeping();
        self.pools.iter().for_each(|pool| pool.with(|p| p.cut_rests()));
        let giving = self.give_up(v, reclaim, 1);
        self.while_announcing(v, giving).await
    }
}

impl<'a, V: Verbs + Control> Census<'a, V> {
    /// Returns [`CensusStep::Done`] if all members have answered the current phase of the census. The second phase
    /// begins with [`Census::ask`].
    ///
    /// # Errors
    /// Returns the error of the READ.
    pub async fn told(&self) -> Result<CensusStep, AllocError> {
        self.look(|area, image, slot| area.told_of(image, slot) >= self.word.order())
            .await
    }

    /// Begins a grace. From now on, [`Census::quiet`] waits for the end of all operations that have begun.
    ///
    /// # Errors
    /// Returns the error of the FAA.
    pub async fn grace(&mut self) -> Result<(), AllocError> {
        let _unmetered = self.v.meter().housekeeping();
        self.tag = self.v.faa(self.area().epoch(), 1).await?;
        Ok(())
    }

    /// Returns [`CensusStep::Done`] if all operations that began before the last [`Census::grace`] have ended.
    ///
    /// # Errors
    /// Returns the error of the READ.
    pub async fn quiet(&self) -> Result<CensusStep, AllocError> {
        //= docs/protocol/reclaim.md R4
        self.look(|area, image, slot| {
            let mut looks = area.looks(image);
            looks.any(|(i, look)| i == slot && look.word.epoch() > self.tag)
        })
        .await
    }

    /// Records blocks that are not lost: the walk has reached them, or a depot lists them as free.
    pub fn know(&mut self, blocks: &[RemotePtr]) {
        for block in blocks {
            let after = self.parts.partition_point(|part| part.chunk.start <= *block);
            if let Some(part) = after.checked_sub(1).and_then(|i| self.parts.get_mut(i)) {
                part.mark(*block);
            }
        }
    }

    /// Records the blocks in the depots. Returns [`CensusStep::Waits`] if other members have changed a depot each time
    /// that it was read, or if one of its magazines is damaged.
    ///
    /// # Errors
    /// Returns the errors of verbs.
    pub async fn know_depots(&mut self) -> Result<CensusStep, AllocError> {
        let _unmetered = self.v.meter().housekeeping();
        for node in (0..self.alloc.memory_nodes()).map(NodeId) {
            let mut listed = None;
            for _ in 0..DEPOT_READS {
                //= docs/protocol/recovery.md V20
                listed = self.alloc.depot_blocks(self.v, node).await?;
                if listed.is_some() {
                    break;
                }
            }
            let Some(listed) = listed else {
                return Ok(CensusStep::Waits);
            };
            self.know(&listed);
        }
        Ok(CensusStep::Done)
    }

    /// Writes lists of the blocks that the walk has not reached and that no depot lists. Then asks all members which of
    /// the listed blocks they hold.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::take`] and of verbs.
    pub async fn ask(&mut self) -> Result<CensusStep, AllocError> {
        //= docs/protocol/recovery.md V21
        let (v, alloc) = (self.v, self.alloc);
        let _unmetered = v.meter().housekeeping();
        let lists = self.parts.iter().flat_map(Part::lists);
        let mut next = ListPtr::default();
        let lists: Vec<(u64, List)> = (0..).zip(lists).collect();
        for (number, mut list) in lists.into_iter().rev() {
            let block = alloc.take(v, LIST, None).await?;
            //= docs/protocol/recovery.md V25
            let held = alloc.hold(block.at);
            let pointer = ListPtr::new(block.at, list.words.len());
            (list.round, list.number, list.next) = (self.word.round(), number, next);
            let image = list.encode();
            self.lists.push(Posted {
                block,
                held,
                pointer,
                list,
                awaited: false,
            });
            v.write(block.at, &image).await?;
            if let Some(posted) = self.lists.last_mut() {
                posted.awaited = true;
            }
            next = pointer;
        }
        v.write(self.area().lists(), &next.0.to_le_bytes()).await?;
        let found = v
            .cas(self.area().census(), self.word.0, self.word.asking().0)
            .await?;
        if found != self.word.0 {
            self.open = false;
            return Ok(CensusStep::Over);
        }
        self.word = self.word.asking();
        Ok(CensusStep::Done)
    }

    /// Returns the number of lists that [`Census::ask`] has written. Every member reads all of them before it answers.
    pub fn lists(&self) -> u64 {
        self.lists.len() as u64
    }

    /// Ends the census, and retires the blocks that are lost. They are free after three rounds of every compute node.
    /// Returns `None` if another member has ended the census, or if this compute node is not a member any more. All
    /// members must have answered.
    ///
    /// # Errors
    /// Returns [`AllocError::Corrupt`] if a list of the census was overwritten, and the errors of verbs. Blocks that
    /// were not retired before the error are still lost.
    pub async fn close(mut self) -> Result<Option<Restored>, AllocError> {
        let (v, alloc, reclaim) = (self.v, self.alloc, self.reclaim);
        let _unmetered = v.meter().housekeeping();
        // All of this runs within one operation. So if this compute node is expelled meanwhile, it forgets the lost
        // blocks (V23).
        let closing = alloc.within(v, reclaim, self.close_within());
        let closed = Box::pin(alloc.while_announcing(v, closing)).await?;
        Ok(closed.flatten())
    }

    /// Does the work of [`Census::close`], within an operation.
    async fn close_within(&mut self) -> Result<Option<Restored>, AllocError> {
        //= docs/protocol/recovery.md V22
        let v = self.v;
        let found = v
            .cas(self.area().census(), self.word.0, self.word.closed().0)
            .await?;
        self.open = false;
        if found != self.word.0 {
            return Ok(None);
        }
        let mut restored = Restored::default();
        for i in 0..self.lists.len() {
            let Posted { pointer, list, .. } = &mut self.lists[i];
            let at = pointer.at();
            let image = v.read(at, pointer.bytes()).await?;
            let same = |read: &List| (read.round, read.number) == (list.round, list.number);
            if List::decode(&image).filter(same).is_none() {
                return Err(AllocError::Corrupt {
                    at,
                    what: "the list of a census was overwritten",
                });
            }
            list.narrow(&image);
            drop(image);
            let list = &self.lists[i].list;
            let lost: Vec<RemotePtr> = list.set_blocks().collect();
            let after = self.parts.partition_point(|part| part.chunk.start <= list.first);
            let Some(part) = after.checked_sub(1).and_then(|i| self.parts.get(i)) else {
                continue;
            };
            self.restore(part, &lost).await?;
            restored.blocks += lost.len() as u64;
            restored.bytes += lost.len() as u64 * list.bytes;
        }
        tracing::info!(restored.blocks, restored.bytes, "gave lost blocks back");
        Ok(Some(restored))
    }

    /// Retires lost blocks of a chunk.
    async fn restore(&self, part: &Part, lost: &[RemotePtr]) -> Result<(), AllocError> {
        let (v, alloc) = (self.v, self.alloc);
        for batch in lost.chunks(PARALLEL) {
            let reads = batch.iter().filter(|_| part.life != Life::Unversioned);
            let posted: SmallVec<[_; PARALLEL]> = reads.map(|at| v.read(*at, LIFE_BYTES)).collect();
            let mut posted = posted.into_iter();
            for at in batch {
                let next = match posted.next() {
                    Some(line) => part.life.next(*at, &line.await?),
                    None => part.life.next(*at, &[]),
                };
                //= docs/protocol/recovery.md V24
                alloc.retire(next, part.chunk.class);
                v.meter().note(Event::Restored);
            }
        }
        Ok(())
    }

    /// Looks at the members. Returns [`CensusStep::Done`] if `ready` holds for each slot that is taken.
    async fn look(&self, ready: impl Fn(&MemberArea, &[u8], u16) -> bool) -> Result<CensusStep, AllocError> {
        let _unmetered = self.v.meter().housekeeping();
        let area = self.area();
        let image = self.v.read(area.at, area.bytes()).await?;
        if area.census_of(&image) != self.word {
            return Ok(CensusStep::Over);
        }
        let mut taken = area.looks(&image).filter(|(_, look)| !look.word.is_free());
        Ok(match taken.all(|(slot, _)| ready(area, &image, slot)) {
            true => CensusStep::Done,
            false => CensusStep::Waits,
        })
    }
}

impl<V: Verbs> Census<'_, V> {
    fn area(&self) -> &MemberArea {
        self.reclaim.area()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: Class = Class { bytes: 100, kind: 1 };

    fn at(offset: u64) -> RemotePtr {
        RemotePtr::new(NodeId(1), offset).expect("a small offset")
    }

    fn part(blocks: u64) -> Part {
        let start = at(0x1000);
        Part::new(
            Chunk {
                start,
                class: CLASS,
                blocks,
            },
            Life::Unversioned,
        )
    }

    #[test]
    fn blocks_that_are_not_known_are_listed() {
        let mut part = part(LIST_BLOCKS + 70);
        for number in
            (0..LIST_BLOCKS + 70).filter(|number| ![3, LIST_BLOCKS, LIST_BLOCKS + 69].contains(number))
        {
            part.mark(at(0x1000 + 128 * number));
        }
        part.mark(at(0x1000 - 128));
        part.mark(RemotePtr::from_raw(0x1000 + 3 * 128));
        part.mark(at(0x1000 + 128 * (LIST_BLOCKS + 70)));
        let lists: Vec<List> = part.lists().collect();
        let listed: Vec<_> = lists.iter().flat_map(List::set_blocks).collect();
        let unknown = [3, LIST_BLOCKS, LIST_BLOCKS + 69].map(|number| at(0x1000 + 128 * number));
        assert_eq!((lists.len(), listed), (2, unknown.to_vec()));
        part.mark(at(0x1000 + 64));
        assert_eq!(part.lists().count(), 0, "the chunk is not of this class");
    }

    #[test]
    fn the_next_node_has_a_life_that_no_line_has() {
        let life = Life::Header {
            incarnation_at: 4,
            version_at: 0,
        };
        let next = life.next(at(64), &[255, 0, 0, 0, 7, 1, 0, 0]);
        assert_eq!((next.incarnation, next.version), (0x109, 1));
        let fresh = life.next(at(64), &[0; 64]);
        assert_eq!(
            (fresh.incarnation, fresh.version),
            (2, 2),
            "a node of version 1 was half-written"
        );
        assert_eq!(life.next(at(64), &[]), fresh);
        assert_eq!(Life::Unversioned.next(at(64), &[9; 64]), fresh);
    }
}
