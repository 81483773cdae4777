//! The inputs and outputs of an index cache: node images, hits, origins.

use core::fmt::Debug;
use core::hash::Hash;

use dm_verbs::RemotePtr;

/// A key of the cache: plain, ordered, hashable bytes. Every type with these properties implements it.
pub trait CacheKey: Copy + Ord + Debug + Hash + Send + Sync + 'static {}

impl<K: Copy + Ord + Debug + Hash + Send + Sync + 'static> CacheKey for K {}

/// An inner node that was just read from remote memory, as passed to [`crate::IndexCache::admit`].
///
/// It covers the keys in `[low, high)`. The cache does not trust bytes from the network, so it refuses an image whose
/// entries contradict its bounds as [`Admitted::Malformed`].
#[derive(Clone, Debug)]
pub struct NodeImage<K, I> {
    /// The node's address.
    pub at: RemotePtr,
    /// The node's level, 1 or more. (A leaf has level 0.)
    pub level: u8,
    /// The smallest key that the node covers (its lower fence key).
    pub low: K,
    /// The first key that the node does not cover (its upper fence key); `None` is plus infinity.
    pub high: Option<K>,
    /// The incarnation that the node had when it was read.
    pub incarnation: u32,
    /// `(separator, child)` in strictly ascending order. The first separator is `low`, and all are below `high`. The
    /// cache clones the iterator and reads the entries three times, so cloning should be cheap, as it is for an
    /// iterator over a leased buffer.
    pub entries: I,
}

/// One more child in an inner node that was just written, as passed to [`crate::IndexCache::add`].
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
/// // The leaf was split at 50, and the node was written with the second child.
/// let (separator, child) = (50, at(0x4400));
/// assert!(cache.add(&Addition { at: node, level, low, high, incarnation, entries: 2, separator, child }));
/// let hit: Hit<u64> = cache.lookup(&70).expect("it is covered");
/// assert_eq!((hit.child, hit.low, hit.origin.node), (child, 50, node));
/// let all: Vec<CachedNode<u64>> = cache.snapshot();
/// assert_eq!(all[0].entries, [(10, at(0x4000)), (50, child)]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Addition<K> {
    /// The node's address.
    pub at: RemotePtr,
    /// The node's level, 1 or more.
    pub level: u8,
    /// The smallest key that the node covers (its lower fence key).
    pub low: K,
    /// The first key that the node does not cover (its upper fence key); `None` is plus infinity.
    pub high: Option<K>,
    /// The incarnation that the node had when it was written.
    pub incarnation: u32,
    /// The number of the node's children, including the new one.
    pub entries: usize,
    /// The separator of the new child.
    pub separator: K,
    /// The new child.
    pub child: RemotePtr,
}

/// The result of offering an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Admitted {
    /// The image was cached. No other image of this node was in its range.
    New,
    /// The image was cached in place of an older image of the same node.
    Replaced,
    /// The image was not cached: it does not fit into the budget, even after all permitted evictions and replacements.
    Full,
    /// The image was not cached: its level is 0 or higher than that of any tree, or it has no entries, or entries that
    /// contradict its bounds. Nothing changed.
    Malformed,
}

/// A child pointer found in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit<K> {
    /// The child's address. It is only a hint: the child's own fence keys must show that it covers the key
    /// (Sherman §4.2.3).
    pub child: RemotePtr,
    /// The child's level; 0 is a leaf.
    pub child_level: u8,
    /// The smallest key that the child covered when its parent was read.
    pub low: K,
    /// The first key that the child did not cover then; `None` is plus infinity.
    pub high: Option<K>,
    /// The image that contained the child's address. If the child shows that the image is wrong, pass this to
    /// [`crate::IndexCache::invalidate`].
    pub origin: Origin<K>,
}

/// The identity of one cached image. Each [`Hit`] has the identity of its source.
///
/// `node`, `level`, `low` and `stamp` are the image's identity. The slot only speeds up the lookup. It may be reused
/// for another image, which has another identity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Origin<K> {
    /// The cached node's address.
    pub node: RemotePtr,
    /// The cached node's level (1 or more).
    pub level: u8,
    /// The smallest key that the image covers.
    pub low: K,
    /// A hash of the whole content of the image. Images of one node with the same content are the same image.
    pub stamp: u64,
    pub(crate) slot: u32,
}

/// A copy of a cached image, for dumps and checkers ([`crate::IndexCache::snapshot`]).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CachedNode<K> {
    /// The node's address.
    pub at: RemotePtr,
    /// The node's level, 1 or more.
    pub level: u8,
    /// The smallest key that the image covers.
    pub low: K,
    /// The first key that the node does not cover; `None` is plus infinity.
    pub high: Option<K>,
    /// The incarnation of the node when it was read.
    pub incarnation: u32,
    /// `(separator, child)`, ascending; the first separator is `low`.
    pub entries: Vec<(K, RemotePtr)>,
}

/// Bytes of an index cache by purpose ([`crate::IndexCache::bytes_by_part`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CacheBytes {
    /// Separators and child pointers of all images.
    pub entries: u64,
    /// Slots of images, including free ones.
    pub slots: u64,
    /// The directories of all levels.
    pub directories: u64,
    /// The cache's own handle.
    pub handle: u64,
}

impl CacheBytes {
    /// Returns the sum.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.entries + self.slots + self.directories + self.handle
    }
}
