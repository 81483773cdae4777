//! What goes into an index cache and what comes out: node images, hits, origins.

use core::fmt::Debug;
use core::hash::Hash;

use dm_verbs::RemotePtr;

/// What the cache asks of a key: plain, ordered, hashable bytes. Everything that fits is one.
pub trait CacheKey: Copy + Ord + Debug + Hash + Send + Sync + 'static {}

impl<K: Copy + Ord + Debug + Hash + Send + Sync + 'static> CacheKey for K {}

/// An inner node as just read from remote memory, offered to [`crate::IndexCache::admit`].
///
/// It covers the keys in `[low, high)`. Bytes from the network are not trusted: an image whose entries contradict
/// its bounds is refused as [`Admitted::Malformed`].
#[derive(Clone, Debug)]
pub struct NodeImage<K, I> {
    /// Where the node lies.
    pub at: RemotePtr,
    /// Its level: leaves are 0, so an inner node is 1 or more.
    pub level: u8,
    /// The smallest key it covers (its lower fence).
    pub low: K,
    /// The first key that it doesn't cover (its upper fence); `None` is plus infinity.
    pub high: Option<K>,
    /// The incarnation that the node proved when it was read.
    pub incarnation: u32,
    /// `(separator, child)` in strictly ascending order; the first separator is `low`, all are below `high`. The
    /// iterator is walked twice, so it is cheap to clone (one over a leased buffer is).
    pub entries: I,
}

/// One child more in an inner node that was just written, offered to [`crate::IndexCache::add`].
///
/// ```
/// use dm_cache::{Addition, CachedNode, Hit, IndexCache, NodeImage};
/// use dm_verbs::{NodeId, RemotePtr};
/// # fn at(offset: u64) -> RemotePtr { RemotePtr::new(NodeId(0), offset).unwrap() }
///
/// let cache = IndexCache::new(1 << 20);
/// let (node, level, low, high, incarnation) = (at(0x1000), 1, 10u64, Some(100), 0);
/// let entries = [(low, at(0x4000))].into_iter();
/// cache.admit(NodeImage { at: node, level, low, high, incarnation, entries });
/// // The leaf was split at 50, and the node written with the second child.
/// let (separator, child) = (50, at(0x4400));
/// assert!(cache.add(&Addition { at: node, level, low, high, incarnation, entries: 2, separator, child }));
/// let hit: Hit<u64> = cache.lookup(&70).expect("it is covered");
/// assert_eq!((hit.child, hit.low, hit.origin.node), (child, 50, node));
/// let all: Vec<CachedNode<u64>> = cache.snapshot();
/// assert_eq!(all[0].entries, [(10, at(0x4000)), (50, child)]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Addition<K> {
    /// Where the node lies.
    pub at: RemotePtr,
    /// Its level, 1 or more.
    pub level: u8,
    /// The smallest key it covers (its lower fence).
    pub low: K,
    /// The first key that it doesn't cover (its upper fence); `None` is plus infinity.
    pub high: Option<K>,
    /// The incarnation that the node proved when it was written.
    pub incarnation: u32,
    /// How many children it has now.
    pub entries: usize,
    /// Where the new child begins.
    pub separator: K,
    /// The new child.
    pub child: RemotePtr,
}

/// What became of an offered image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Admitted {
    /// Cached; no image of this node was in its range.
    New,
    /// Cached in place of an older image of the same node.
    Replaced,
    /// Not cached: it doesn't fit the budget, not even in place of what it would replace or may evict.
    Full,
    /// Not cached: level 0, no entries, or entries that contradict the bounds. Nothing changed.
    Malformed,
}

/// A child pointer found in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit<K> {
    /// Where the child lies. Only a hint: the child itself must prove that it covers the key (Sherman §4.2.3).
    pub child: RemotePtr,
    /// The child's level; 0 is a leaf.
    pub child_level: u8,
    /// The smallest key that the child covered when its parent was read.
    pub low: K,
    /// The first key that it didn't cover; `None` is plus infinity.
    pub high: Option<K>,
    /// The image that said so, for [`crate::IndexCache::invalidate`] when the child proves it wrong.
    pub origin: Origin<K>,
}

/// Names one cached image, and no other: where a [`Hit`] came from.
///
/// `node`, `level`, `low` and `stamp` are the image's identity. The slot is a shortcut to it: a slot is used again for
/// other images, and the identity tells.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Origin<K> {
    /// The cached node's address.
    pub node: RemotePtr,
    /// The cached node's level (1 or more).
    pub level: u8,
    /// The smallest key that the image covers.
    pub low: K,
    /// A hash of all that the image says. Images of one node that say the same are the same image.
    pub stamp: u64,
    pub(crate) slot: u32,
}

/// A copy of a cached image, for dumps and checkers ([`crate::IndexCache::snapshot`]).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CachedNode<K> {
    /// Where the node lies.
    pub at: RemotePtr,
    /// Its level, 1 or more.
    pub level: u8,
    /// The smallest key that the image covers.
    pub low: K,
    /// The first key that it doesn't cover; `None` is plus infinity.
    pub high: Option<K>,
    /// The incarnation of the node when it was read.
    pub incarnation: u32,
    /// `(separator, child)`, ascending; the first separator is `low`.
    pub entries: Vec<(K, RemotePtr)>,
}

/// Bytes of an index cache by what they are for ([`crate::IndexCache::bytes_by_part`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CacheBytes {
    /// Separators and child pointers of all images.
    pub entries: u64,
    /// Slots that images lie in, free ones too.
    pub slots: u64,
    /// The directories of all levels.
    pub directories: u64,
    /// The cache's own handle.
    pub handle: u64,
}

impl CacheBytes {
    /// All of it.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.entries + self.slots + self.directories + self.handle
    }
}

/// Published mistakes that can be switched on, each alone, for study. The default has none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CacheFlaws {
    /// T-S7: a reader that located an image, and was then held up, reads whatever the slot holds now, without
    /// checking that it is still the same image. (In the published code the slot's memory may even have been freed;
    /// here it is only another node's.)
    pub recycled_slot: bool,
}
