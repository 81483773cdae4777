//! The public interface of the cache, and the lock around its state.

use core::fmt;
use core::mem::size_of;

#[cfg(feature = "study")]
use crate::study::CacheFlaws;
use dm_sync::{Fingerprint, RwLock};
use dm_verbs::RemotePtr;

use crate::state::{State, prepare};
use crate::types::{Addition, Admitted, CacheBytes, CacheKey, CachedNode, Hit, NodeImage, Origin};

/// A compute node's copies of the inner nodes of one tree, as the nodes were when they were last read. The threads of
/// the compute node share the cache (Sherman §4.2.3).
///
/// The cache stays within a budget of bytes. When it needs room, it evicts from level 1 (the parents of leaves): it
/// draws two images at random and evicts the one that was not used for longer (Sherman's power of two choices). The
/// levels above are pinned: they count against the budget, but are evicted only for images of still higher levels.
/// Every result is a hint: a client always reads the leaf, whose fence keys show whether the hint was right. The client
/// removes the image of a wrong hint with [`IndexCache::invalidate`]. Threads share the cache by reference. A lookup
/// holds the cache's lock for reading. Admission and invalidation hold it for writing. No lookup allocates, and no
/// section awaits.
pub struct IndexCache<K> {
    pub(crate) state: RwLock<State<K>>,
    /// This field is outside the lock, so that a lookup can check for flaws before it takes the lock.
    #[cfg(feature = "study")]
    pub(crate) flaws: CacheFlaws,
}

impl<K: CacheKey> IndexCache<K> {
    /// Makes an empty cache whose [`IndexCache::bytes`] stays within `budget_bytes` as long as the cache contains an
    /// image. `u64::MAX` means no limit. If the budget is too small for one image, nothing is cached.
    pub fn new(budget_bytes: u64) -> Self {
        Self {
            state: RwLock::new(State::new(budget_bytes)),
            #[cfg(feature = "study")]
            flaws: CacheFlaws::default(),
        }
    }

    /// Returns the child for `key` in the deepest cached node that covers `key`. The lookup tries level 1 first, then
    /// level 2, and so on.
    #[inline]
    pub fn lookup(&self, key: &K) -> Option<Hit<K>> {
        if self.flaws().recycled_slot {
            // T-S7: the node is located and read in two sections, as in the published code, without a check
            // in between.
            return self.read(&self.find(key)?, key);
        }
        self.state.with_read(|state| state.lookup(key))
    }

    /// Returns the leaf for `key`, and the level-1 image that has its address. Most lookups need no other
    /// part of a [`Hit`].
    #[inline]
    pub fn leaf(&self, key: &K) -> Option<(RemotePtr, Origin<K>)> {
        if self.flaws().recycled_slot {
            let hit = self.lookup(key).filter(|hit| hit.child_level == 0)?;
            return Some((hit.child, hit.origin));
        }
        self.state.with_read(|state| state.leaf(key))
    }

    /// Returns the child for `key` in the cached node of exactly this level. This finds the parent after a split.
    pub fn lookup_at(&self, level: u8, key: &K) -> Option<Hit<K>> {
        self.state.with_read(|state| state.lookup_at(level, key))
    }

    /// Locates the deepest cached node that covers `key`, for [`IndexCache::read`]. This is the first half of a lookup,
    /// for a caller that may be delayed between the two halves.
    pub fn find(&self, key: &K) -> Option<Origin<K>> {
        self.state.with_read(|state| state.find(key))
    }

    /// Returns the child for `key` in exactly the image that `origin` identifies, if this image is still
    /// cached and covers `key`. Otherwise this returns `None`, even if the slot holds another image by now (T-S7), and
    /// the caller must look up the key again.
    pub fn read(&self, origin: &Origin<K>, key: &K) -> Option<Hit<K>> {
        self.state.with_read(|state| state.read(origin, key))
    }

    /// Passes up to `max` consecutive children of level-1 nodes to `each`, and returns their number. The first child is
    /// the one that covers `key`, and each child begins where the previous one ends. The run ends early if the cache
    /// has no node that begins at the last child's `high`, and at the end of the tree, where `high` is `None`.
    ///
    /// `each` is called within the section, so it must not use this cache.
    pub fn run(&self, key: &K, max: usize, each: impl FnMut(Hit<K>)) -> usize {
        self.state.with_read(|state| state.run(key, max, each))
    }

    /// Caches a node that has just been read.
    ///
    /// The newest image of a range wins. An older image of the same node that overlaps the new image is removed. If an
    /// image of another node overlaps the new image, only the part below the new image is kept. So images of one level
    /// never overlap, and a run has no duplicates.
    ///
    /// If the new image does not fit into the budget, images of lower levels are evicted, or images of level
    /// 1 if the new image is of level 1.
    pub fn admit<I>(&self, image: NodeImage<K, I>) -> Admitted
    where
        I: Iterator<Item = (K, RemotePtr)> + Clone,
    {
        let Some(image) = prepare(image) else {
            return Admitted::Malformed;
        };
        match self.state.with_write(|state| state.admit(image)) {
            Ok(admitted) => admitted,
            // The refused image is freed here, outside the section.
            Err((refused, _)) => refused,
        }
    }

    /// Adds one child to the image of a node, if the image otherwise matches the node: it must have the same
    /// address, level, incarnation and range, and one entry less. The result is the same image as if the node
    /// were admitted again.
    ///
    /// Returns `false` and does nothing if there is no such image, if the cache has no room, if the separator has no
    /// place in the image, or if the new child cannot be packed together with the others. The caller should then admit
    /// the node.
    pub fn add(&self, addition: &Addition<K>) -> bool {
        self.state.with_write(|state| state.add(addition))
    }

    /// Adds one child of `level` - 1 to the image that covers `separator`, regardless of the image's node. Use this for
    /// structures whose images are not copies of remote nodes. Returns `false` and does nothing if no image covers the
    /// separator, if the image already has a child that starts there, if there is no room, or if the image cannot be
    /// packed together with the new child.
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

    /// Removes the image that `origin` identifies, because a client has found it stale. Returns whether it was still
    /// cached. A newer image of the same node or range stays, even if it is in the same slot.
    pub fn invalidate(&self, origin: Origin<K>) -> bool {
        // If several clients find the same image stale, only the first one takes the lock for writing.
        self.state.with_read(|state| state.named(&origin).is_some())
            && self.state.with_write(|state| state.remove(&origin))
    }

    /// Returns the budget, which [`IndexCache::bytes`] does not exceed as long as the cache contains an image.
    pub fn budget(&self) -> u64 {
        self.state.with_read(|state| state.budget)
    }

    /// Returns the size of the whole cache in bytes: this struct, and every allocation that it owns, including unused
    /// capacity. The allocator's own overhead is not included.
    pub fn bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.state.with_read(State::heap)
    }

    /// Returns the bytes of the whole cache, by purpose.
    pub fn bytes_by_part(&self) -> CacheBytes {
        CacheBytes {
            handle: size_of::<Self>() as u64,
            ..self.state.with_read(State::heap_by_part)
        }
    }

    /// Returns the number of cached nodes.
    pub fn len(&self) -> usize {
        self.state.with_read(State::len)
    }

    /// Returns the number of cached nodes of this level.
    pub fn len_at(&self, level: u8) -> usize {
        self.state.with_read(|state| state.len_at(level))
    }

    /// Returns whether no node is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes everything and frees its memory. An origin from before this call identifies no image until the same
    /// image is admitted again.
    pub fn clear(&self) {
        self.state.with_write(State::clear);
    }

    /// Returns copies of all cached nodes, by level and then by key.
    pub fn snapshot(&self) -> Vec<CachedNode<K>> {
        self.state.with_read(State::snapshot)
    }
}

impl<K: CacheKey> Fingerprint for IndexCache<K> {
    /// Returns equal numbers for caches that hold the same images, regardless of the order in which they were admitted.
    /// With a budget, the remaining room, the ages of the images and the random generator are included, because they
    /// decide what is admitted and evicted next; with `CacheFlaws::recycled_slot`, the slots are included.
    fn fingerprint(&self) -> u64 {
        self.state.fingerprint()
    }
}

impl<K: CacheKey> fmt::Debug for IndexCache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexCache")
            .field("nodes", &self.len())
            .field("bytes", &self.bytes())
            .field("flaws", &self.flaws())
            .finish_non_exhaustive()
    }
}
