//! The list of retired blocks that running operations may still read, in the order in which they were
//! retired.

use std::collections::VecDeque;

use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::RemotePtr;

use crate::block::{Block, Class};

/// The retired blocks of one compute node.
///
/// Each block goes through three lists. It is *fresh* at first. When a collection begins, all fresh blocks become
/// *closed*. Then they are *waiting*, with the tag of this collection. The tag is drawn after the list was closed, and
/// a block is retired after it was unlinked. So an operation that begins after the tag was drawn cannot find the block.
///
/// ```
/// use dm_alloc::{Block, Class, Limbo};
/// use dm_verbs::RemotePtr;
/// let class = Class { bytes: 1024, kind: 0 };
/// let mut limbo = Limbo::default();
/// limbo.retire(Block::fresh(RemotePtr::from_raw(4096)), class);
/// assert!(limbo.close());
/// limbo.tag(7);
/// assert!(limbo.free_below(7).is_empty(), "somebody may have begun in epoch 7, before the tag was drawn");
/// assert_eq!(limbo.free_below(8).len(), 1);
/// ```
#[derive(Debug, Default)]
pub struct Limbo {
    fresh: Vec<(Block, Class)>,
    closed: Vec<(Block, Class)>,
    /// The waiting blocks, in the order of their tags.
    waiting: VecDeque<(u64, Vec<(Block, Class)>)>,
    bytes: u64,
}

impl Limbo {
    /// Adds a block to which nothing points any more. `block` has the incarnation and version for its next
    /// node.
    pub fn retire(&mut self, block: Block, class: Class) {
        self.bytes += class.block_bytes();
        self.fresh.push((block, class));
    }

    /// Closes the fresh blocks, before a tag is drawn for them. Blocks that an earlier call closed, but that
    /// were never tagged, stay closed. Returns `false` if no block is closed.
    #[must_use]
    pub fn close(&mut self) -> bool {
        self.closed.append(&mut self.fresh);
        !self.closed.is_empty()
    }

    /// Tags the closed blocks.
    pub fn tag(&mut self, tag: u64) {
        let closed = core::mem::take(&mut self.closed);
        self.waiting.push_back((tag, closed));
    }

    /// Removes and returns the blocks whose tag is below `oldest`, the earliest epoch in which a running operation
    /// began. These blocks are free.
    #[must_use]
    pub fn free_below(&mut self, oldest: u64) -> Vec<Vec<(Block, Class)>> {
        let mut freed = Vec::new();
        while self.waiting.front().is_some_and(|(tag, _)| *tag < oldest)
            && let Some((_, list)) = self.waiting.pop_front()
        {
            self.bytes -= list.iter().map(|(_, class)| class.block_bytes()).sum::<u64>();
            freed.push(list);
        }
        freed
    }

    /// Returns the addresses of all retired blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = RemotePtr> + '_ {
        let waiting = self.waiting.iter().flat_map(|(_, list)| list);
        let all = self.fresh.iter().chain(&self.closed).chain(waiting);
        all.map(|(block, _)| block.at)
    }

    /// Returns whether no block is retired.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks().next().is_none()
    }

    /// Returns the bytes of all retired blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes that the lists have allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|(_, list)| list.capacity()).sum();
        (self.fresh.capacity() + self.closed.capacity() + waiting) * size_of::<(Block, Class)>()
            + self.waiting.capacity() * size_of::<(u64, Vec<(Block, Class)>)>()
    }
}

impl Fingerprint for Limbo {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(&self.fresh, &self.closed, &self.waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: Class = Class { bytes: 1000, kind: 2 };

    fn block(i: u64) -> Block {
        Block::fresh(RemotePtr::from_raw(i * 4096))
    }

    #[test]
    fn what_is_closed_is_free_when_all_began_after_its_tag() {
        let mut limbo = Limbo::default();
        assert!(!limbo.close(), "nothing to tag");
        for i in 1..4 {
            limbo.retire(block(i), CLASS);
        }
        assert!(limbo.close());
        limbo.retire(block(4), CLASS);
        limbo.tag(7);
        assert!(limbo.close());
        limbo.tag(9);
        assert!(!limbo.close(), "nothing new");
        assert_eq!(limbo.bytes(), 4 * 1024);
        assert_eq!(limbo.blocks().count(), 4);
        assert_eq!(limbo.free_below(7), Vec::<Vec<_>>::new());
        let first = [1, 2, 3].map(|i| (block(i), CLASS));
        assert_eq!(limbo.free_below(9), [first.to_vec()]);
        assert_eq!(limbo.bytes(), 1024);
        assert_eq!(limbo.free_below(u64::MAX), [vec![(block(4), CLASS)]]);
        assert_eq!(limbo.bytes(), 0);
    }

    #[test]
    fn what_was_closed_and_never_tagged_is_closed_again() {
        let mut limbo = Limbo::default();
        limbo.retire(block(1), CLASS);
        assert!(limbo.close());
        assert!(limbo.close(), "its round was given up");
        limbo.tag(3);
        assert_eq!(limbo.free_below(4).concat(), [(block(1), CLASS)]);
    }
}
