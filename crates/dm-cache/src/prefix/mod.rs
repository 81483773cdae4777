//! The radix-indexed prefix cache (SMART, TOS 2024 §4.3): a compute node's partial copy of a remote radix tree.
//!
//! The copy is indexed by itself: an image of a node hangs in the slot of its parent's image that points to it, so a key's
//! prefix is stored once, and a lookup walks from image to image without asking anybody. What is cached is always
//! connected to the root; images go from below.
//!
//! Everything an image says about a node was true when it was read, and much of it stays true (a node's prefix, branch and
//! identity, the key byte of a slot that had one). Whether a slot still holds what the image says is for its user to find
//! out: by the leaf itself, or by a CAS.

mod arena;
mod entry;
mod evict;
mod packed;
mod tree;

use dm_layout::{Find, NodeTypes, RadixHeader, SlotWord};
use dm_sync::atomic::{AtomicU64, Ordering};
use dm_sync::{Fingerprint, RwLock};
use dm_verbs::RemotePtr;

use tree::Tree;

/// A node as it was read.
#[derive(Clone, Debug)]
pub struct PrefixImage<I> {
    /// Where it lies.
    pub at: RemotePtr,
    /// Its header.
    pub header: RadixHeader,
    /// Its incarnation.
    pub incarnation: u32,
    /// Its slots in order, none frozen.
    pub words: I,
}

/// Where the image of a node was found: spares whoever learns something of the node the way to it, if it is there still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen(u32);

impl Seen {
    /// Nowhere.
    pub const NOT: Self = Self(arena::NONE);
}

/// A slot, and the node it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CachedSlot {
    /// The node.
    pub node: RemotePtr,
    /// Its incarnation.
    pub incarnation: u32,
    /// The key byte that its slots tell apart.
    pub branch: u8,
    /// Which slot.
    pub index: usize,
    /// What it held.
    pub word: SlotWord,
    /// Where the node's image was.
    pub seen: Seen,
}

/// A child that the key does not reach: it leaves the child's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Apart {
    /// The first key byte that differs.
    pub at: u8,
    /// What the child has there.
    pub byte: u8,
}

/// The deepest cached node whose prefix a key has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixHit {
    /// Where it lies.
    pub at: RemotePtr,
    /// Where its image is.
    pub seen: Seen,
    /// Its type.
    pub node_type: u8,
    /// Its incarnation.
    pub incarnation: u32,
    /// The key byte that its slots tell apart.
    pub branch: u8,
    /// The key's slot in it.
    pub find: Find,
    /// Slots that have a child.
    pub children: usize,
    /// The slot that points to it; `None` for the root.
    pub link: Option<CachedSlot>,
    /// The key's child is cached, and is not on the key's way.
    pub apart: Option<Apart>,
}

/// The cache that the threads of a compute node share.
///
/// ```
/// use dm_cache::{PrefixCache, PrefixHit, PrefixImage, Since};
/// use dm_layout::{Find, NodeTypes, RadixHeader, SlotWord};
/// use dm_verbs::{NodeId, RemotePtr};
/// # fn at(line: u64) -> RemotePtr { RemotePtr::new(NodeId(0), line * 64).unwrap() }
///
/// let cache = PrefixCache::new(NodeTypes::SHIPPED, 1 << 20);
/// // The root, type 3, has each slot at its key byte's place. Two leaves hang in it.
/// let leaf = |partial: u8| SlotWord::leaf(partial, at(u64::from(partial)).raw(), 1).unwrap();
/// let words = (0..=255).map(|byte| if byte == b'a' || byte == b'b' { leaf(byte) } else { SlotWord::empty(0) });
/// let root = PrefixImage { at: at(1000), header: RadixHeader::new(0, 3, &[]), incarnation: 0, words };
/// assert!(cache.admit(b"apple", root));
/// let hit: PrefixHit = cache.lookup(b"banana").expect("the root is cached");
/// assert_eq!((hit.children, hit.find), (2, Find::Child(98, leaf(b'b'))));
///
/// // What an operation has read, that may have begun before a turn, is that much older.
/// let operation: Since<'_> = cache.since(cache.turns());
/// operation.learn(b"cherry", hit.at, hit.seen, 99, leaf(b'c'));
/// assert_eq!(cache.leaf(b"cherry").unwrap().0, at(99));
/// ```
#[derive(Debug)]
pub struct PrefixCache {
    types: NodeTypes,
    tree: RwLock<Tree>,
    turns: AtomicU64,
}

/// A [`PrefixCache`] as an operation of some age tells it what it found.
#[derive(Clone, Copy, Debug)]
pub struct Since<'c> {
    cache: &'c PrefixCache,
    turns: u64,
}

impl Since<'_> {
    /// In a section: how old the operation is.
    fn age(&self) -> u8 {
        self.cache.turns().wrapping_sub(self.turns).min(2) as u8
    }

    /// As [`PrefixCache::admit`].
    pub fn admit(&self, key: &[u8], image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>) -> bool {
        let cache = self.cache;
        cache
            .tree
            .with_write(|tree| tree.admit(&cache.types, key, image, self.age()))
    }

    /// As [`PrefixCache::learn`], of the node's image that was seen there, if it was.
    #[inline]
    pub fn learn(&self, key: &[u8], at: RemotePtr, seen: Seen, index: usize, word: SlotWord) {
        let tree = &self.cache.tree;
        tree.with_write(|tree| tree.learn(key, (at, seen.0), index, word, self.age()));
    }

    /// As [`PrefixCache::replace`].
    pub fn replace(
        &self,
        key: &[u8],
        at: RemotePtr,
        index: usize,
        word: SlotWord,
        image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>,
    ) {
        let cache = self.cache;
        cache
            .tree
            .with_write(|tree| tree.replace(&cache.types, key, (at, index, word), image, self.age()));
    }
}

impl PrefixCache {
    /// For nodes of these types, within `budget` bytes.
    pub fn new(types: NodeTypes, budget: u64) -> Self {
        Self {
            types,
            tree: RwLock::new(Tree::new(budget.saturating_sub(size_of::<Self>() as u64))),
            turns: AtomicU64::new(0),
        }
    }

    /// The deepest cached node on `key`'s way; `None` if not even the root is cached.
    pub fn lookup(&self, key: &[u8]) -> Option<PrefixHit> {
        self.tree.with_read(|tree| tree.lookup(&self.types, key))
    }

    /// The leaf that the deepest cached node on `key`'s way points to for it, and the key byte that this node's slots tell
    /// apart: all of a [`PrefixHit`] that most lookups need. `None` if it points to something else.
    #[inline]
    pub fn leaf(&self, key: &[u8]) -> Option<(RemotePtr, u8)> {
        self.tree.with_read(|tree| tree.leaf(key))
    }

    /// Keeps the image of a node on `key`'s way, if its parent is cached and says so, and there is room.
    pub fn admit(&self, key: &[u8], image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>) -> bool {
        self.since(self.turns()).admit(key, image)
    }

    /// What a CAS told of a slot of the node at `at`, on `key`'s way.
    pub fn learn(&self, key: &[u8], at: RemotePtr, index: usize, word: SlotWord) {
        self.since(self.turns()).learn(key, at, Seen::NOT, index, word);
    }

    /// Slot `index` of the node at `at`, on `key`'s way, points to a new node now, as `word` says. What was cached below the
    /// slot stays, as far as the new node leads there.
    pub fn replace(
        &self,
        key: &[u8],
        at: RemotePtr,
        index: usize,
        word: SlotWord,
        image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>,
    ) {
        self.since(self.turns()).replace(key, at, index, word, image);
    }

    /// How often [`PrefixCache::turn`] was called.
    #[inline]
    pub fn turns(&self) -> u64 {
        // Relaxed: who reads an old number has begun before, as it says.
        self.turns.load(Ordering::Relaxed)
    }

    /// A turn: from the next but one on, what is cached now says nothing any more. Until then it is not known whether the
    /// node there is still the one that was read.
    pub fn turn(&self) {
        self.grow_older(1);
    }

    /// Two turns: what is cached says nothing any more.
    pub fn expire(&self) {
        self.grow_older(2);
    }

    fn grow_older(&self, turns: u8) {
        self.tree.with_write(|tree| {
            tree.arena.grow_older(turns);
            // Relaxed: the section orders it for whoever looks into the cache.
            self.turns.fetch_add(u64::from(turns), Ordering::Relaxed);
        });
    }

    /// The cache for an operation that began when there had been so many turns: what it has read may be as old.
    pub fn since(&self, turns: u64) -> Since<'_> {
        Since { cache: self, turns }
    }

    /// Takes over all that `other` holds, which is as old here as there, instead of what is here; `false` if it is of other
    /// nodes, or does not fit.
    pub fn adopt(&self, other: &Self) -> bool {
        let budget = self.tree.with_read(Tree::budget);
        let copy = other.tree.with_read(|tree| tree.copy(budget));
        match copy.filter(|_| self.types == other.types) {
            Some(copy) => self.tree.with_write(|tree| *tree = copy),
            None => return false,
        }
        true
    }

    /// Drops the image of the node at `at`, on `key`'s way, and those below it.
    pub fn forget(&self, key: &[u8], at: RemotePtr) {
        self.tree.with_write(|tree| tree.forget(key, at));
    }

    /// Bytes of all its allocations, slack included.
    pub fn bytes(&self) -> u64 {
        self.tree
            .with_read(|tree| tree.bytes() + size_of::<Self>() as u64)
    }

    /// Cached nodes.
    pub fn nodes(&self) -> usize {
        self.tree.with_read(Tree::nodes)
    }
}

impl Fingerprint for PrefixCache {
    fn fingerprint(&self) -> u64 {
        self.tree.fingerprint()
    }
}
