//! The cache itself: one lock around the state, and the promises of its sections.

use core::fmt;
use core::mem::size_of;

use dm_sync::{Fingerprint, RwLock};
use dm_verbs::RemotePtr;

use crate::state::{State, prepare};
use crate::types::{
    Addition, Admitted, CacheBytes, CacheFlaws, CacheKey, CachedNode, Hit, NodeImage, Origin,
};

/// Inner nodes of one tree, as one compute node's threads have last read them (Sherman §4.2.3).
///
/// All of it stays within a budget of bytes. Level 1 (the parents of leaves) gives way: of two images drawn, the one that
/// was not used for longer goes (Sherman's power of two choices). The levels above are pinned: counted, and evicted for
/// still higher ones only. Every answer is a hint: leaves are always read, and prove by their own fences that the hint was right. A
/// hint that was wrong is taken back with [`IndexCache::invalidate`].
///
/// Shared by reference among threads. Looking up is a reading section, admitting and invalidating are writing ones; no
/// section allocates for a lookup, and none awaits.
pub struct IndexCache<K> {
    state: RwLock<State<K>>,
    /// Beside the lock, so that a lookup knows before it enters.
    flaws: CacheFlaws,
}

impl<K: CacheKey> IndexCache<K> {
    /// An empty cache whose [`IndexCache::bytes`] stays within `budget_bytes` as long as anything is in it; `u64::MAX` is
    /// no limit. A budget too small for one image caches nothing.
    pub fn new(budget_bytes: u64) -> Self {
        Self {
            state: RwLock::new(State::new(budget_bytes)),
            flaws: CacheFlaws::default(),
        }
    }

    /// The same cache with published mistakes switched on, for study.
    #[must_use]
    pub fn with_flaws(mut self, flaws: CacheFlaws) -> Self {
        self.flaws = flaws;
        self.state.with_write(|state| state.flaws = flaws);
        self
    }

    /// The child for `key` in the deepest cached node that covers it: level 1 first, then 2, and so on.
    #[inline]
    pub fn lookup(&self, key: &K) -> Option<Hit<K>> {
        if self.flaws.recycled_slot {
            // T-S7: located and read in two sections, as in the published code, and not checked in between.
            return self.read(&self.find(key)?, key);
        }
        self.state.with_read(|state| state.lookup(key))
    }

    /// The leaf for `key`, and the level-1 image that says so: all that most lookups need of a [`Hit`].
    #[inline]
    pub fn leaf(&self, key: &K) -> Option<(RemotePtr, Origin<K>)> {
        if self.flaws.recycled_slot {
            let hit = self.lookup(key).filter(|hit| hit.child_level == 0)?;
            return Some((hit.child, hit.origin));
        }
        self.state.with_read(|state| state.leaf(key))
    }

    /// The child for `key` in the cached node of exactly this level; the way to a parent after a split.
    pub fn lookup_at(&self, level: u8, key: &K) -> Option<Hit<K>> {
        self.state.with_read(|state| state.lookup_at(level, key))
    }

    /// Locates the deepest cached node that covers `key`, to be read later: the first half of a lookup by someone who
    /// may be held up in between.
    pub fn find(&self, key: &K) -> Option<Origin<K>> {
        self.state.with_read(|state| state.find(key))
    }

    /// The child for `key` in the very image that `origin` names, if it is still cached and covers `key`. A slot that
    /// has been used for another image since is recognised (T-S7); then `None`, and a lookup starts anew.
    pub fn read(&self, origin: &Origin<K>, key: &K) -> Option<Hit<K>> {
        self.state.with_read(|state| state.read(origin, key))
    }

    /// Shows `each` up to `max` consecutive children of level-1 nodes, from the one that covers `key` on, and tells
    /// how many. Each begins where the one before ends: it stops where the cache has a gap, so fewer than `max` means
    /// that nothing is known of the key in the last one's `high` (or that this is `None`, the end of the tree).
    ///
    /// `each` is called within the section: it must not use this cache.
    pub fn run(&self, key: &K, max: usize, each: impl FnMut(Hit<K>)) -> usize {
        self.state.with_read(|state| state.run(key, max, each))
    }

    /// Caches a node that has just been read.
    ///
    /// The newest image of a range is believed. An older image of the same node goes; an image of another node that
    /// starts below keeps what lies below; one that starts within the newcomer's range goes. So cached nodes of one
    /// level never overlap, and a run has no duplicates.
    ///
    /// What does not fit the budget evicts images of lower levels, and level 1 of its own.
    pub fn admit<I>(&self, image: NodeImage<K, I>) -> Admitted
    where
        I: Iterator<Item = (K, RemotePtr)> + Clone,
    {
        let Some(image) = prepare(image) else {
            return Admitted::Malformed;
        };
        match self.state.with_write(|state| state.admit(image)) {
            Ok(admitted) => admitted,
            // The refused image is freed here, outside of the section.
            Err((refused, _)) => refused,
        }
    }

    /// Takes one more child into the image of a node, where that image shows all else that the node holds: its address,
    /// level, incarnation and range, and as many entries less this one. So the image is what admitting the node anew would
    /// make of it.
    ///
    /// `false`, and nothing done, where there is no such image, or no room: admit the node then.
    pub fn add(&self, addition: &Addition<K>) -> bool {
        self.state.with_write(|state| state.add(addition))
    }

    /// Takes one more child of `level` - 1 into the image that covers `separator`, whatever node it is of: for structures
    /// whose images are not of nodes that were written. `false`, and nothing done, where no image covers it, one has a child
    /// from there on already, or there is no room.
    ///
    /// ```
    /// # use dm_cache::{IndexCache, NodeImage};
    /// # use dm_verbs::{NodeId, RemotePtr};
    /// # fn at(offset: u64) -> RemotePtr { RemotePtr::new(NodeId(0), offset).unwrap() }
    /// let cache = IndexCache::new(1 << 20);
    /// let (low, high) = (10u64, Some(100));
    /// let entries = [(low, at(0x4000))].into_iter();
    /// cache.admit(NodeImage { at: at(0x1000), level: 1, low, high, incarnation: 0, entries });
    /// assert!(cache.insert(1, 50, at(0x4400)));
    /// assert_eq!(cache.lookup(&70).map(|hit| hit.child), Some(at(0x4400)));
    /// assert_eq!(cache.lookup(&40).map(|hit| hit.child), Some(at(0x4000)));
    /// assert!(!cache.insert(1, 50, at(0x4800)) && !cache.insert(1, 100, at(0x4800)));
    /// ```
    pub fn insert(&self, level: u8, separator: K, child: RemotePtr) -> bool {
        self.state
            .with_write(|state| state.insert(level, separator, child))
    }

    /// Removes the image that proved stale, and tells whether it was still there. A fresher image of the same node or
    /// range stays, whatever slot it is in.
    pub fn invalidate(&self, origin: Origin<K>) -> bool {
        // Most that find an image stale come after the first: they look, and needn't write.
        self.state.with_read(|state| state.named(&origin).is_some())
            && self.state.with_write(|state| state.remove(&origin))
    }

    /// What [`IndexCache::bytes`] stays within.
    pub fn budget(&self) -> u64 {
        self.state.with_read(|state| state.budget)
    }

    /// Bytes of the whole cache: this struct, and every allocation below it with its slack. Bytes that the allocator
    /// itself adds are not in it.
    pub fn bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.state.with_read(State::heap)
    }

    /// The same by what they are for.
    pub fn bytes_by_part(&self) -> CacheBytes {
        CacheBytes {
            handle: size_of::<Self>() as u64,
            ..self.state.with_read(State::heap_by_part)
        }
    }

    /// How many nodes are cached.
    pub fn len(&self) -> usize {
        self.state.with_read(State::len)
    }

    /// How many nodes of this level are cached.
    pub fn len_at(&self, level: u8) -> usize {
        self.state.with_read(|state| state.len_at(level))
    }

    /// Whether no node is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets everything and gives its memory back. Origins from before are recognised as gone.
    pub fn clear(&self) {
        self.state.with_write(State::clear);
    }

    /// Copies of all cached nodes, by level and then by key.
    pub fn snapshot(&self) -> Vec<CachedNode<K>> {
        self.state.with_read(State::snapshot)
    }
}

impl<K: CacheKey> Fingerprint for IndexCache<K> {
    /// Equal for caches that hold the same images, in whatever order these came. With a budget, the room that is left
    /// is part of it (it decides what is admitted next); with [`CacheFlaws::recycled_slot`], the slots are.
    fn fingerprint(&self) -> u64 {
        self.state.fingerprint()
    }
}

impl<K: CacheKey> fmt::Debug for IndexCache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexCache")
            .field("nodes", &self.len())
            .field("bytes", &self.bytes())
            .field("flaws", &self.flaws)
            .finish_non_exhaustive()
    }
}
