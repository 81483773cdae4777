//! The global lock table: it maps a node to the lock word that guards it.

use dm_verbs::{ChipPtr, LINE, NodeId, Place, RemotePtr};

/// Default number of locks per memory node: 8-byte words that fill 256 KiB of on-chip memory.
pub const DEFAULT_LOCKS_PER_NODE: u32 = 32_768;

/// The identity of a lock. Several nodes may share one lock.
///
/// The number of a lock on its memory node has 48 bits, because a node with its own lock word may begin at any line of
/// its memory node. The number has two fields, so that an id takes only 8 bytes: every guard and every future that
/// takes a lock contains one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockId {
    /// The memory node of the lock and of every node that it guards.
    pub node: NodeId,
    /// The upper 16 bits of the lock's number on that memory node; 0 in a lock table.
    pub high: u16,
    /// The lower 32 bits of the lock's number.
    pub index: u32,
}

const _: () = assert!(size_of::<LockId>() == 8);

impl LockId {
    /// Returns the lock with this number, which has at most 48 bits.
    const fn numbered(node: NodeId, number: u64) -> Self {
        Self {
            node,
            high: (number >> 32) as u16,
            index: number as u32,
        }
    }

    /// Returns the lock's number on its memory node.
    const fn number(self) -> u64 {
        (self.high as u64) << 32 | self.index as u64
    }
}

/// The lock tables of all memory nodes (Sherman §4.3). A node's lock lies on the node's own memory node, at a place
/// that a hash of the node's address selects. With [`GlobalLockTable::in_nodes`] there are no tables, and each node
/// contains its own lock word.
///
/// ```
/// use dm_lock::{GlobalLockTable, LockId};
/// use dm_verbs::{NodeId, RemotePtr};
///
/// // The lock is the last word of a 64-byte node.
/// let table = GlobalLockTable::in_nodes(1, 56);
/// let node = RemotePtr::new(NodeId(0), 128).unwrap();
/// let id = table.lock_of(node).expect("memory node 0 has one");
/// assert_eq!(id, LockId { node: NodeId(0), high: 0, index: 2 });
/// assert_eq!(table.word_at(id), node.add(56).into());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GlobalLockTable {
    tables: Box<[Place]>,
    words_per_node: u32,
    /// The offset of the lock word in each node, if nodes contain their own locks.
    in_node_at: Option<u32>,
}

impl GlobalLockTable {
    /// Returns lock tables at these places. The table of memory node `i` is `tables[i]`, lies on that memory node, is
    /// 8-byte aligned, and has `words_per_node` words. All clients of a pool must use the same tables.
    ///
    /// # Panics
    /// Panics if a table is not on its own memory node or not aligned, or if there are no words.
    pub fn new(tables: impl Into<Box<[Place]>>, words_per_node: u32) -> Self {
        let tables = tables.into();
        assert!(words_per_node > 0, "a lock table needs at least one word");
        for (i, table) in tables.iter().enumerate() {
            assert!(
                usize::from(table.node().0) == i && table.offset().is_multiple_of(8),
                "lock table {i} is at {table}: it must be 8-byte aligned, on memory node {i}"
            );
        }
        Self {
            tables,
            words_per_node,
            in_node_at: None,
        }
    }

    /// Returns a mapping without tables, in which each node contains its lock word at offset `lock_at` (SMART §4.1.1
    /// embeds a lock at the rear). Nodes are in host memory and 64-byte aligned. An address at which no such node can
    /// begin has no lock.
    ///
    /// # Panics
    /// Panics if `lock_at` is not 8-byte aligned.
    pub fn in_nodes(memory_nodes: u16, lock_at: u32) -> Self {
        assert!(
            lock_at.is_multiple_of(8),
            "a lock word must be 8-byte aligned, not at byte {lock_at} of a node"
        );
        let start = |node| RemotePtr::new(NodeId(node), 0).unwrap_or(RemotePtr::NULL).into();
        Self {
            in_node_at: Some(lock_at),
            ..Self::new((0..memory_nodes).map(start).collect::<Vec<Place>>(), u32::MAX)
        }
    }

    /// Returns lock tables at the start of the on-chip memory of each of `memory_nodes` memory nodes.
    ///
    /// # Panics
    /// Panics if `words_per_node` is 0.
    pub fn on_chip(memory_nodes: u16, words_per_node: u32) -> Self {
        let at_start = |node| ChipPtr::new(NodeId(node), 0).unwrap_or(ChipPtr::NULL).into();
        Self::new(
            (0..memory_nodes).map(at_start).collect::<Vec<Place>>(),
            words_per_node,
        )
    }

    /// Returns the number of words per memory node. It is `u32::MAX` if each node contains its own lock word.
    pub fn words_per_node(&self) -> u32 {
        self.words_per_node
    }

    /// Returns the number of words of all memory nodes.
    pub(crate) fn words(&self) -> usize {
        self.tables.len().saturating_mul(self.words_per_node as usize)
    }

    /// Returns the number of memory nodes that have a table.
    pub(crate) fn memory_nodes(&self) -> usize {
        self.tables.len()
    }

    /// Returns whether `node` has a table.
    #[inline]
    pub(crate) fn covers(&self, node: NodeId) -> bool {
        usize::from(node.0) < self.tables.len()
    }

    #[inline]
    fn place_of(&self, address: RemotePtr, lanes: u32) -> Option<LockId> {
        let (node, offset) = (address.node(), address.offset());
        let Some(lock_at) = self.in_node_at else {
            let index = scale(spread(offset), self.words_per_node * lanes);
            return Some(LockId::numbered(node, u64::from(index)));
        };
        // The address may come from damaged bytes. Without these checks, the lock word of an unaligned address would be
        // in the data of another node, and a word beyond 2^48 would wrap to the start of the memory node.
        let line = LINE as u64;
        if !offset.is_multiple_of(line) {
            return None;
        }
        RemotePtr::new(node, offset + u64::from(lock_at) + 7)?;
        Some(LockId::numbered(node, offset / line))
    }

    /// Returns the lock of the node at `address` like [`GlobalLockTable::lock_of`], with `lanes` locks per word.
    #[inline]
    pub(crate) fn id(&self, address: RemotePtr, lanes: u32) -> Option<LockId> {
        match self.covers(address.node()) {
            true => self.place_of(address, lanes),
            false => None,
        }
    }

    /// Returns the lock of the node at `address`. Returns `None` if its memory node has no table. If nodes contain
    /// their own locks, also returns `None` if `address` is not 64-byte aligned, or if the lock word would end beyond
    /// the 2^48 bytes that addresses can name.
    pub fn lock_of(&self, address: RemotePtr) -> Option<LockId> {
        self.id(address, 1)
    }

    /// Returns the place of the word of lock `id`.
    ///
    /// # Panics
    /// Panics if this table has no lock `id`.
    #[inline]
    pub fn word_at(&self, id: LockId) -> Place {
        let number = id.number();
        if let Some(lock_at) = self.in_node_at {
            let at = LINE as u64 * number + u64::from(lock_at);
            assert!(at < 1 << 48, "no such lock: {id:?}");
            return self.tables[usize::from(id.node.0)].add(at);
        }
        assert!(number < u64::from(self.words_per_node), "no such lock: {id:?}");
        self.tables[usize::from(id.node.0)].add(8 * number)
    }
}

/// Maps the high half of `hash` to a number below `count`. This needs a multiplication, where a remainder would need a
/// division.
const fn scale(hash: u64, count: u32) -> u32 {
    (((hash >> 32) * count as u64) >> 32) as u32
}

/// Hashes `x` by the finaliser of splitmix64. The function is part of the format: all clients of a pool must use the
/// same function.
const fn spread(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_lie_on_the_nodes_own_memory_node_and_spread() {
        let table = GlobalLockTable::on_chip(2, 64);
        let mut hit = [0u32; 64];
        for i in 0..6400u64 {
            let at = RemotePtr::new(NodeId(1), 4096 + 1024 * i).unwrap();
            let id = table.lock_of(at).unwrap();
            assert_eq!((id.node, table.word_at(id).node()), (NodeId(1), NodeId(1)));
            hit[id.index as usize] += 1;
        }
        assert!(hit.iter().all(|&n| (60..150).contains(&n)), "{hit:?}");
        assert_eq!(table.lock_of(RemotePtr::new(NodeId(2), 4096).unwrap()), None);
    }

    #[test]
    fn a_node_may_hold_its_own_lock() {
        let table = GlobalLockTable::in_nodes(3, 40);
        // 2^38 bytes have 2^32 lines. The last node ends where the offsets of addresses end.
        let offsets = [
            64,
            4096,
            (1 << 38) - 64,
            1 << 38,
            (1 << 38) + 1024,
            1 << 40,
            (1 << 48) - 64,
        ];
        let ids = offsets.map(|offset| {
            let at = RemotePtr::new(NodeId(2), offset).unwrap();
            let id = table.lock_of(at).unwrap();
            assert_eq!(table.word_at(id), at.add(40).into());
            id
        });
        assert!(ids.is_sorted_by(|a, b| a < b), "each node has its own lock");
        assert_eq!(table.lock_of(RemotePtr::new(NodeId(3), 64).unwrap()), None);
    }

    #[test]
    fn an_address_at_which_no_node_can_begin_has_no_lock_word() {
        let lock_of = |lock_at, offset| {
            let table = GlobalLockTable::in_nodes(1, lock_at);
            let id = table.lock_of(RemotePtr::new(NodeId(0), offset).unwrap());
            id.map(|id| table.word_at(id).offset())
        };
        for unaligned in [1, 8, 63] {
            assert_eq!(lock_of(40, 4096 + unaligned), None);
        }
        let end = 1 << 48;
        assert_eq!(lock_of(56, end - 64), Some(end - 8));
        assert_eq!(lock_of(64, end - 64), None, "the word would be at the start");
        assert_eq!(lock_of(1024, end - 1024), None);
        assert_eq!(lock_of(1024, end - 1024 - 64), Some(end - 64));
    }

    #[test]
    #[should_panic(expected = "no such lock")]
    fn an_id_beyond_all_addresses_has_no_word() {
        let id = LockId::numbered(NodeId(0), 1 << 42);
        GlobalLockTable::in_nodes(1, 0).word_at(id);
    }

    #[test]
    #[should_panic(expected = "no such lock")]
    fn a_table_has_no_lock_with_a_large_number() {
        let id = LockId::numbered(NodeId(0), 1 << 32);
        GlobalLockTable::on_chip(1, 64).word_at(id);
    }

    #[test]
    fn the_hash_is_part_of_the_format() {
        let table = GlobalLockTable::on_chip(1, DEFAULT_LOCKS_PER_NODE);
        let index = |at| table.lock_of(RemotePtr::from_raw(at)).unwrap().index;
        assert_eq!([index(4096), index(5120), index(1 << 40)], [30768, 31086, 85]);
        // This checks whole hashes, because an index shows only 15 of their bits.
        let hashes = [1, 3 << 40 | 3 << 10, u64::MAX].map(spread);
        assert_eq!(
            hashes,
            [
                0x5692_161D_100B_05E5,
                0x143E_E38B_47D2_E716,
                0xB4D0_55FC_F2CB_BD7B
            ]
        );
    }

    #[test]
    fn words_are_counted_over_all_memory_nodes() {
        let table = GlobalLockTable::on_chip(3, 64);
        assert_eq!((table.words_per_node(), table.words()), (64, 192));
    }
}
