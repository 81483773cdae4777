//! A cached node, packed: its separators, and its child pointers in four bytes each where they allow it.

use core::mem::size_of;

use dm_sync::atomic::{AtomicU16, Ordering};
use dm_sync::fingerprint_of;
use dm_verbs::{NodeId, RemotePtr};

use crate::search;
use crate::types::{CacheKey, CachedNode, Hit, NodeImage, Origin};

/// How child pointers are coded: `base`, plus a node delta above `offset_bits`, plus an offset delta below, the latter
/// in units of `1 << shift` bytes. Nodes are of one size and lie in a few chunks, so that 32 bits nearly always do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Packing {
    base: RemotePtr,
    offset_bits: u8,
    shift: u8,
}

impl Packing {
    fn encode(self, child: RemotePtr) -> u32 {
        let nodes = u64::from(child.node().0 - self.base.node().0);
        let units = (child.offset() - self.base.offset()) >> self.shift;
        // `Shape::of` has checked that the sum of the widths is at most 32.
        (nodes << self.offset_bits | units) as u32
    }

    #[inline]
    fn decode(self, code: u32) -> RemotePtr {
        let code = u64::from(code);
        let nodes = code >> self.offset_bits;
        let units = code & ((1 << self.offset_bits) - 1);
        // Neither part can carry: what was encoded was a pointer, `base` and these two deltas are its parts.
        let node = RemotePtr::new(NodeId(nodes as u16), 0).map_or(0, RemotePtr::raw);
        RemotePtr::from_raw(
            self.base
                .raw()
                .wrapping_add(node)
                .wrapping_add(units << self.shift),
        )
    }
}

/// What one walk over an offered image tells, before anything is allocated: that it is well formed, and its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    entries: usize,
    packing: Option<Packing>,
}

impl Shape {
    /// The shape of `image`, or `None` if its entries contradict its bounds.
    pub(crate) fn of<K, I>(image: &NodeImage<K, I>) -> Option<Self>
    where
        K: CacheKey,
        I: Iterator<Item = (K, RemotePtr)> + Clone,
    {
        let mut walk = image.entries.clone();
        let (mut last, first) = walk.next()?;
        if last != image.low {
            return None;
        }
        let (mut entries, mut differ) = (1, 0);
        let (mut nodes, mut offsets) = ((first.node(), first.node()), (first.offset(), first.offset()));
        for (key, child) in walk {
            if key <= last {
                return None;
            }
            last = key;
            entries += 1;
            nodes = (nodes.0.min(child.node()), nodes.1.max(child.node()));
            offsets = (offsets.0.min(child.offset()), offsets.1.max(child.offset()));
            // The lowest bit in which any two offsets differ is the lowest in which one differs from the first.
            differ |= child.offset().wrapping_sub(first.offset());
        }
        if image.high.is_some_and(|high| high <= last) {
            return None;
        }
        let shift = if differ == 0 { 0 } else { differ.trailing_zeros() };
        let offset_bits = u64::BITS - ((offsets.1 - offsets.0) >> shift).leading_zeros();
        let node_bits = u16::BITS - (nodes.1.0 - nodes.0.0).leading_zeros();
        let packing = (offset_bits + node_bits <= u32::BITS)
            .then(|| RemotePtr::new(nodes.0, offsets.0))
            .flatten()
            .map(|base| Packing {
                base,
                offset_bits: offset_bits as u8,
                shift: shift as u8,
            });
        Some(Self { entries, packing })
    }
}

fn heap_of<K>(entries: usize, packed: bool) -> u64 {
    let pointer = if packed {
        size_of::<u32>()
    } else {
        size_of::<u64>()
    };
    (entries * (size_of::<K>() + pointer)) as u64
}

#[derive(Debug)]
enum Children {
    Packed(Packing, Box<[u32]>),
    /// Pointers too far apart for 32 bits.
    Plain(Box<[RemotePtr]>),
}

impl Children {
    #[inline]
    fn get(&self, i: usize) -> Option<RemotePtr> {
        match self {
            Self::Packed(packing, codes) => codes.get(i).map(|code| packing.decode(*code)),
            Self::Plain(pointers) => pointers.get(i).copied(),
        }
    }

    fn truncate(&mut self, len: usize) {
        match self {
            Self::Packed(_, codes) => *codes = shortened(core::mem::take(codes), len),
            Self::Plain(pointers) => *pointers = shortened(core::mem::take(pointers), len),
        }
    }
}

fn shortened<T>(items: Box<[T]>, len: usize) -> Box<[T]> {
    let mut items = items.into_vec();
    items.truncate(len);
    items.into_boxed_slice()
}

/// A cached node. INVARIANT: `keys` is not empty, ascends strictly and stays below `high`; `children` is as long.
/// Child `i` covers the keys from `keys[i]` to the next separator, the last one to `high`.
#[derive(Debug)]
pub(crate) struct Image<K> {
    pub(crate) at: RemotePtr,
    pub(crate) high: Option<K>,
    pub(crate) stamp: u64,
    keys: Box<[K]>,
    children: Children,
    incarnation: u32,
    /// When it was last used, on the eviction's clock ([`crate::evict`]). A hint: nothing else depends on it.
    used: AtomicU16,
    pub(crate) level: u8,
}

impl<K: CacheKey> Image<K> {
    /// Packs `image`, whose shape is `shape`.
    pub(crate) fn pack<I>(image: NodeImage<K, I>, shape: Shape) -> Self
    where
        I: Iterator<Item = (K, RemotePtr)> + Clone,
    {
        let mut keys = Vec::with_capacity(shape.entries);
        keys.extend(image.entries.clone().map(|(key, _)| key));
        let pointers = image.entries.map(|(_, child)| child);
        let children = match shape.packing {
            Some(packing) => {
                let mut codes = Vec::with_capacity(shape.entries);
                codes.extend(pointers.map(|child| packing.encode(child)));
                Children::Packed(packing, codes.into_boxed_slice())
            }
            None => {
                let mut plain = Vec::with_capacity(shape.entries);
                plain.extend(pointers);
                Children::Plain(plain.into_boxed_slice())
            }
        };
        let mut packed = Self {
            at: image.at,
            high: image.high,
            stamp: 0,
            keys: keys.into_boxed_slice(),
            children,
            incarnation: image.incarnation,
            used: AtomicU16::new(0),
            level: image.level,
        };
        packed.restamp();
        packed
    }

    #[inline]
    pub(crate) fn low(&self) -> K {
        self.keys[0]
    }

    /// Whether `key`, which is not below `low`, is below `high`.
    #[inline]
    pub(crate) fn reaches(&self, key: &K) -> bool {
        self.high.is_none_or(|high| *key < high)
    }

    /// The number of the child for `key`: of the last separator that is not above it, else 0.
    #[inline]
    pub(crate) fn position(&self, key: &K) -> usize {
        search::floor(&self.keys, key).unwrap_or(0)
    }

    /// What is known of child `i`; `None` past the last.
    #[inline]
    pub(crate) fn hit(&self, i: usize, slot: u32) -> Option<Hit<K>> {
        Some(Hit {
            child: self.children.get(i)?,
            child_level: self.level - 1,
            low: *self.keys.get(i)?,
            high: self.keys.get(i + 1).copied().or(self.high),
            origin: self.origin(slot),
        })
    }

    #[inline]
    pub(crate) fn origin(&self, slot: u32) -> Origin<K> {
        Origin {
            node: self.at,
            level: self.level,
            low: self.low(),
            stamp: self.stamp,
            slot,
        }
    }

    /// Whether `origin` names this image.
    #[inline]
    pub(crate) fn is(&self, origin: &Origin<K>) -> bool {
        self.stamp == origin.stamp
            && self.at == origin.node
            && self.level == origin.level
            && self.low() == origin.low
    }

    /// It is used at `now`.
    #[inline]
    pub(crate) fn touch(&self, now: u16) {
        // Relaxed, and two steps: a hint. Written once a tick only, so that readers don't fight for the line.
        if self.used.load(Ordering::Relaxed) != now {
            self.used.store(now, Ordering::Relaxed);
        }
    }

    /// Ticks since it was last used. Wraps: what was not used for 2^16 ticks looks young once.
    #[inline]
    pub(crate) fn age(&self, now: u16) -> u16 {
        // Relaxed: as in `touch`.
        now.wrapping_sub(self.used.load(Ordering::Relaxed))
    }

    /// Bytes that it has allocated.
    pub(crate) fn heap(&self) -> u64 {
        heap_of::<K>(self.keys.len(), matches!(self.children, Children::Packed(..)))
    }

    /// Bytes that it would still have allocated after [`Image::trim`].
    pub(crate) fn heap_below(&self, cut: &K) -> u64 {
        heap_of::<K>(self.below(cut), matches!(self.children, Children::Packed(..)))
    }

    /// Drops what lies at or above `cut`, which is above `low`. What is left is another image, with its own stamp.
    pub(crate) fn trim(&mut self, cut: K) {
        let len = self.below(&cut);
        self.keys = shortened(core::mem::take(&mut self.keys), len);
        self.children.truncate(len);
        self.high = Some(cut);
        self.restamp();
    }

    fn below(&self, cut: &K) -> usize {
        self.keys.partition_point(|separator| separator < cut)
    }

    fn restamp(&mut self) {
        // A hash of the content rather than a counter: a cache's state doesn't then depend on the order in which
        // images came. Two contents of one node with one hash would be taken for each other, which costs a wrong hint
        // at worst: identity also compares address, level and low, and a reader checks the bounds again.
        self.stamp = fingerprint_of(&(
            (self.at, self.level, self.high, self.incarnation),
            &self.keys,
            self.entries()
                .map(|(_, child)| child.raw())
                .fold(0u64, |hash, raw| fingerprint_of(&(hash, raw))),
        ));
    }

    fn entries(&self) -> impl Iterator<Item = (K, RemotePtr)> {
        self.keys
            .iter()
            .enumerate()
            .filter_map(|(i, key)| Some((*key, self.children.get(i)?)))
    }

    /// A copy that anyone may look at.
    pub(crate) fn unpack(&self) -> CachedNode<K> {
        CachedNode {
            at: self.at,
            level: self.level,
            low: self.low(),
            high: self.high,
            incarnation: self.incarnation,
            entries: self.entries().collect(),
        }
    }
}
