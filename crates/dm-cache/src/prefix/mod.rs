//! The radix-indexed prefix cache (SMART, TOS 2024 §4.3): a compute node's partial copy of a remote radix tree.
//!
//! The copy needs no other index: the image of a node is linked in the slot of its parent's image that points to the
//! node. So a key's prefix is stored once, and a lookup follows the links from image to image. All cached images are
//! connected to the root, and eviction starts at the bottom.
//!
//! For comparison, a cache may index the same images by a hash of their prefixes ([`PrefixIndex::Hash`]).
//!
//! Everything in an image was true when the node was read. A node's prefix, branch and identity never change, nor does
//! the key byte of a filled slot. The rest of a slot may change. So the client must check it, by reading the leaf or by
//! a CAS.

mod arena;
mod entry;
mod images;
mod index;
mod packed;
mod table;
mod tree;

use dm_layout::{Find, NodeTypes, RadixHeader, SlotWord};
use dm_sync::atomic::{AtomicU64, Ordering};
use dm_sync::{Fingerprint, RwLock};
use dm_verbs::RemotePtr;

use images::Images;
use index::Index;
use table::Table;
use tree::Tree;

/// A node as it was read.
#[derive(Clone, Debug)]
pub struct PrefixImage<I> {
    /// The node's address.
    pub at: RemotePtr,
    /// The node's header.
    pub header: RadixHeader,
    /// The node's incarnation.
    pub incarnation: u32,
    /// The node's slots in order, none of them frozen.
    pub words: I,
}

/// The number of a node's image at the time when the client found the image. If the image still has this number, a
/// client can update it without searching for it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen(u32);

impl Seen {
    /// The client has found no image.
    pub const NOT: Self = Self(arena::NONE);
}

/// A slot, with the node to which it belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CachedSlot {
    /// The node.
    pub node: RemotePtr,
    /// The node's incarnation.
    pub incarnation: u32,
    /// The position of the key byte by which the node's slots differ.
    pub branch: u8,
    /// The number of the slot.
    pub index: usize,
    /// The content of the slot.
    pub word: SlotWord,
    /// The number of the node's image.
    pub seen: Seen,
}

/// The first key byte in which a key differs from the prefix of a cached child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Apart {
    /// The position of the first key byte that differs.
    pub at: u8,
    /// The child's byte at this position.
    pub byte: u8,
}

/// The deepest cached node whose prefix a key has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixHit {
    /// The node's address.
    pub at: RemotePtr,
    /// The number of the node's image.
    pub seen: Seen,
    /// The node's type.
    pub node_type: u8,
    /// The node's incarnation.
    pub incarnation: u32,
    /// The position of the key byte by which the node's slots differ.
    pub branch: u8,
    /// The key's slot in the node.
    pub find: Find,
    /// The number of slots that have a child.
    pub children: usize,
    /// The slot that points to the node. It is `None` for the root, and with a hash index if the deepest cached image
    /// above the node does not have this slot.
    pub link: Option<CachedSlot>,
    /// The first byte in which the key differs from the prefix of the child in its slot, if this child is cached and
    /// the key does not have its prefix. A hash index does not find such a child, so it returns `None`.
    pub apart: Option<Apart>,
    /// Whether the prefix of a cached node on the path, or of the child that `apart` is about, has bytes that the image
    /// does not hold. If so, the key may differ from the prefix in these bytes.
    pub skipped: bool,
}

impl PrefixHit {
    /// Returns the slot `index` of the node, which holds `word`.
    #[inline]
    pub fn slot(&self, index: usize, word: SlotWord) -> CachedSlot {
        CachedSlot {
            node: self.at,
            incarnation: self.incarnation,
            branch: self.branch,
            index,
            word,
            seen: self.seen,
        }
    }
}

/// The way in which a [`PrefixCache`] finds the images of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PrefixIndex {
    /// Images are linked as the nodes are, so that no prefix is stored twice. All cached nodes are connected to the
    /// root.
    #[default]
    Radix,
    /// A hash table of prefixes, as in the paper's baseline. Each image stores its whole prefix, and any image may be
    /// evicted. All headers must hold the key bytes that follow the slot above, because clients do not know the prefix
    /// otherwise.
    Hash,
}

/// The content of a cache.
#[derive(Debug)]
enum Content {
    Radix(Tree),
    Hash(Box<Table>),
}

// The second kind costs a cache of the first kind no memory.
const _: () = assert!(size_of::<Content>() == size_of::<Tree>());

/// Runs one expression on either kind of content.
macro_rules! either {
    ($content:expr, $index:ident => $result:expr) => {
        match $content {
            Content::Radix($index) => $result,
            Content::Hash($index) => $result,
        }
    };
}

impl Content {
    fn images(&self) -> &Images {
        either!(self, index => index.images())
    }

    /// Returns the bytes that are counted against the budget of the images.
    fn bytes(&self) -> u64 {
        self.images().bytes()
            + match self {
                Self::Radix(_) => 0,
                Self::Hash(table) => table.head_bytes(),
            }
    }

    /// Returns the bytes of structures outside of [`PrefixCache`] that no budget of images covers.
    fn outside(&self) -> u64 {
        match self {
            Self::Radix(_) => 0,
            Self::Hash(_) => size_of::<Table>() as u64,
        }
    }

    /// Returns a copy whose images have this budget, or `None` if it does not fit.
    fn copy(&self, budget: u64) -> Option<Self> {
        match self {
            Self::Radix(tree) => tree.copy(budget).map(Self::Radix),
            Self::Hash(table) => Some(Self::Hash(Box::new(table.copy(budget)?))),
        }
    }
}

/// The prefix cache that the threads of a compute node share.
///
/// ```
/// use dm_cache::{PrefixCache, PrefixHit, PrefixImage, Since};
/// use dm_layout::{Find, NodeTypes, RadixHeader, SlotWord};
/// use dm_verbs::{NodeId, RemotePtr};
/// # fn at(line: u64) -> RemotePtr { RemotePtr::new(NodeId(0), line * 64).unwrap() }
///
/// let cache = PrefixCache::new(NodeTypes::SHIPPED, 1 << 20);
/// // The root, type 3, has each slot at the index of its key byte. Two slots point to leaves.
/// let leaf = |partial: u8| SlotWord::leaf(partial, at(u64::from(partial)).raw(), 1).unwrap();
/// let words = (0..=255).map(|byte| if byte == b'a' || byte == b'b' { leaf(byte) } else { SlotWord::empty(0) });
/// let root = PrefixImage { at: at(1000), header: RadixHeader::new(0, 3, &[]), incarnation: 0, words };
/// assert!(cache.admit(b"apple", root));
/// let hit: PrefixHit = cache.lookup(b"banana").expect("the root is cached");
/// assert_eq!((hit.children, hit.find), (2, Find::Child(98, leaf(b'b'))));
///
/// // If an operation may have begun before a turn, the nodes that it has read count as older by this turn.
/// let operation: Since<'_> = cache.since(cache.turns());
/// assert_eq!(operation.learn(b"cherry", hit.at, hit.seen, 99, leaf(b'c')), Some(3));
/// assert_eq!(cache.leaf(b"cherry").unwrap().0, at(99));
/// ```
#[derive(Debug)]
pub struct PrefixCache {
    types: NodeTypes,
    content: RwLock<Content>,
    turns: AtomicU64,
}

/// A [`PrefixCache`] for an operation that began some turns ago. The nodes that the operation has read may be as old as
/// the operation.
#[derive(Clone, Copy, Debug)]
pub struct Since<'c> {
    cache: &'c PrefixCache,
    turns: u64,
}

impl Since<'_> {
    /// Returns the operation's age in turns, at most 2. The caller must hold the cache's lock.
    fn age(&self) -> u8 {
        self.cache.turns().wrapping_sub(self.turns).min(2) as u8
    }

    /// Caches an image as [`PrefixCache::admit`] does, with the operation's age. If two turns have passed since the
    /// operation began, this does nothing and returns `false`.
    pub fn admit(&self, key: &[u8], image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>) -> bool {
        let cache = self.cache;
        cache.content.with_write(
            |content| either!(content, index => index.admit(&cache.types, key, image, self.age())),
        )
    }

    /// Stores a word as [`PrefixCache::learn`] does. `seen` is the result of the lookup that found the node's image, if
    /// there was one. Returns how many slots of the image now have a child, or `None` if the node has no image.
    #[inline]
    pub fn learn(
        &self,
        key: &[u8],
        at: RemotePtr,
        seen: Seen,
        index: usize,
        word: SlotWord,
    ) -> Option<usize> {
        let content = &self.cache.content;
        content.with_write(
            |content| either!(content, images => images.learn(key, (at, seen.0), index, word, self.age())),
        )
    }

    /// Stores the word of a new node as [`PrefixCache::replace`] does.
    pub fn replace(
        &self,
        key: &[u8],
        at: RemotePtr,
        index: usize,
        word: SlotWord,
        image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>,
    ) {
        let (cache, slot) = (self.cache, (at, index, word));
        cache.content.with_write(
            |content| either!(content, index => index.replace(&cache.types, key, slot, image, self.age())),
        );
    }
}

impl PrefixCache {
    /// Makes a cache for nodes of these types, within `budget` bytes, with the index [`PrefixIndex::Radix`].
    pub fn new(types: NodeTypes, budget: u64) -> Self {
        Self::with_index(PrefixIndex::Radix, types, budget)
    }

    /// Makes a cache with this index for nodes of these types, within `budget` bytes.
    pub fn with_index(index: PrefixIndex, types: NodeTypes, budget: u64) -> Self {
        let budget = budget.saturating_sub(size_of::<Self>() as u64);
        let content = match index {
            PrefixIndex::Radix => Content::Radix(Tree::new(budget)),
            PrefixIndex::Hash => Content::Hash(Box::new(Table::new(budget))),
        };
        Self {
            types,
            content: RwLock::new(content),
            turns: AtomicU64::new(0),
        }
    }

    /// Returns the deepest node on `key`'s path whose image is cached and valid. With a radix index, all images above
    /// it must be cached and valid too. Returns `None` if there is no such node.
    pub fn lookup(&self, key: &[u8]) -> Option<PrefixHit> {
        self.content
            .with_read(|content| either!(content, index => index.lookup(&self.types, key)))
    }

    /// Returns the leaf to which the deepest cached node on `key`'s path points for the key, and the position
    /// of the key byte by which this node's slots differ. Most lookups need no other part of a [`PrefixHit`].
    /// Returns `None` if the node points to anything else, or, with a radix index, if an image on the path is no longer
    /// valid.
    #[inline]
    pub fn leaf(&self, key: &[u8]) -> Option<(RemotePtr, u8)> {
        self.content
            .with_read(|content| either!(content, index => index.leaf(key)))
    }

    /// Returns the deepest node on `key`'s path that [`PrefixCache::lookup`] would pass and whose branch is at most
    /// `byte`, and the branch of its child in the key's slot, if the child is cached. Returns `None` if there is no
    /// such node, or, with a radix index, if the node's image has no slot for the key.
    pub fn over(&self, key: &[u8], byte: u8) -> Option<(PrefixHit, Option<u8>)> {
        self.content
            .with_read(|content| either!(content, index => index.over(&self.types, key, byte)))
    }

    /// Returns the address of a leaf below the node at `at`, on `key`'s path: the leaf on the key's own path if there is
    /// one. Returns `None` if no such leaf is found among the cached nodes whose images are valid.
    pub fn leaf_below(&self, key: &[u8], at: RemotePtr) -> Option<RemotePtr> {
        self.content
            .with_read(|content| either!(content, index => index.leaf_below(key, at)))
    }

    /// Caches the image of a node on `key`'s path, if there is room. With a radix index, a cached parent must point to
    /// the node (the root needs none). With a hash index, `key` must have the node's whole prefix. Returns whether the
    /// image is cached.
    pub fn admit(&self, key: &[u8], image: PrefixImage<impl Iterator<Item = SlotWord> + Clone>) -> bool {
        self.since(self.turns()).admit(key, image)
    }

    /// Stores `word`, the current content of a slot that a CAS has returned. The slot belongs to the node at `at`, on
    /// `key`'s path.
    pub fn learn(&self, key: &[u8], at: RemotePtr, index: usize, word: SlotWord) {
        self.since(self.turns()).learn(key, at, Seen::NOT, index, word);
    }

    /// Records that slot `index` of the node at `at`, on `key`'s path, now holds `word`, which points to a new node.
    /// Caches `image`, the new node's image, if the node at `at` is cached and there is room. Keeps images below the
    /// slot if the new node leads to their nodes. If the node at `at` is not cached, a radix index does nothing, and a
    /// hash index only removes an old image of the slot's node.
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

    /// Returns the number of turns so far.
    #[inline]
    pub fn turns(&self) -> u64 {
        // Relaxed: if an operation reads an old number, it counts as having begun earlier, which is safe.
        self.turns.load(Ordering::Relaxed)
    }

    /// Begins another turn. After two turns an image is no longer valid, because its addresses may then lead to other
    /// nodes.
    pub fn turn(&self) {
        self.grow_older(1);
    }

    /// Begins two turns at once, so that all images become invalid.
    pub fn expire(&self) {
        self.grow_older(2);
    }

    fn grow_older(&self, turns: u8) {
        self.content.with_write(|content| {
            either!(content, index => index.images_mut().arena.grow_older(turns));
            // Relaxed: the section's lock orders this for every thread that reads the cache.
            self.turns.fetch_add(u64::from(turns), Ordering::Relaxed);
        });
    }

    /// Returns the cache for an operation that began when [`PrefixCache::turns`] was `turns`. The nodes that the
    /// operation has read count as equally old.
    pub fn since(&self, turns: u64) -> Since<'_> {
        Since { cache: self, turns }
    }

    /// Replaces the content by that of `other`, with the same ages. Returns `false` if `other` has other node types or
    /// another index, or if the content does not fit.
    pub fn adopt(&self, other: &Self) -> bool {
        let (kind, budget) = self
            .content
            .with_read(|content| (core::mem::discriminant(content), content.images().budget()));
        let copy = other.content.with_read(|content| content.copy(budget));
        match copy.filter(|copy| self.types == other.types && kind == core::mem::discriminant(copy)) {
            Some(copy) => self.content.with_write(|content| *content = copy),
            None => return false,
        }
        true
    }

    /// Removes the image of the node at `at`, on `key`'s path, and with a radix index the images below it.
    pub fn forget(&self, key: &[u8], at: RemotePtr) {
        self.content
            .with_write(|content| either!(content, index => index.forget(key, at)));
    }

    /// Returns whether at most a 32nd of the budget is free, so that the next images will replace others.
    pub fn is_full(&self) -> bool {
        self.content
            .with_read(|content| content.bytes() >= content.images().budget() / 32 * 31)
    }

    /// Returns the bytes of the whole cache: this struct, and all its allocations, including slack.
    pub fn bytes(&self) -> u64 {
        self.content
            .with_read(|content| content.bytes() + content.outside() + size_of::<Self>() as u64)
    }

    /// Returns the number of cached nodes.
    pub fn nodes(&self) -> usize {
        self.content.with_read(|content| content.images().nodes())
    }
}

impl Fingerprint for Content {
    fn fingerprint(&self) -> u64 {
        either!(self, index => index.fingerprint())
    }
}

impl Fingerprint for PrefixCache {
    fn fingerprint(&self) -> u64 {
        self.content.fingerprint()
    }
}
