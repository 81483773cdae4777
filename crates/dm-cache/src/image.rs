//! A cached node in packed form: its separators, and its child pointers in three or four bytes each if
//! possible.

use core::mem::size_of;

use dm_sync::atomic::{AtomicU16, Ordering};
use dm_sync::fingerprint_of;
use dm_verbs::{NodeId, RemotePtr};

use crate::search;
use crate::types::{Addition, CacheKey, CachedNode, Hit, NodeImage, Origin};

/// The encoding of child pointers in `width` bytes. A pointer is `base` plus two deltas: the high bits are
/// the delta of the memory node, and the low `offset_bits` bits are the delta of the offset in units of `1 <<
/// shift` bytes. Nodes have one size and lie in a few chunks, so 3 bytes suffice if the chunks lie within
/// some GiB, and 4 bytes nearly always.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Packing {
    base: RemotePtr,
    width: u8,
    offset_bits: u8,
    shift: u8,
}

/// The usual unit of encoded offsets, as a power of two: a line, because nodes begin at lines. The unit is smaller if
/// the distance of two children is no multiple of a line. It is larger if codes of 3 or 4 bytes would otherwise have
/// too few bits and all distances allow it.
const LINE_SHIFT: u32 = 6;

impl Packing {
    /// Returns a packing that can represent pointers whose nodes and offsets lie in these ranges, and further pointers
    /// around them. The remaining bits extend the range of offsets by the same amount downwards and upwards, but not
    /// below offset 0. Returns `None` if four bytes are not enough.
    fn around(nodes: (NodeId, NodeId), offsets: (u64, u64), differ: u64) -> Option<Self> {
        let node_bits = u16::BITS - (nodes.1.0 - nodes.0.0).leading_zeros();
        // The largest possible unit is the largest power of two that divides all differences of offsets. The unit is at
        // most a line, unless codes of this width have too few bits to count lines.
        let most = if differ == 0 {
            LINE_SHIFT
        } else {
            differ.trailing_zeros()
        };
        let units = |shift: u32| (offsets.1 >> shift) - (offsets.0 >> shift);
        let tries = [3u8, 4].map(|width| [most.min(LINE_SHIFT), most].map(|shift| (width, shift)));
        let (width, shift, offset_bits) = tries.as_flattened().iter().find_map(|&(width, shift)| {
            let offset_bits = (8 * u32::from(width)).checked_sub(node_bits)?;
            (units(shift) >> offset_bits == 0).then_some((width, shift, offset_bits))
        })?;
        let spare = (1 << offset_bits) - 1 - units(shift);
        let below = (spare / 2).min(offsets.0 >> shift);
        Some(Self {
            base: RemotePtr::new(nodes.0, offsets.0 - (below << shift))?,
            width,
            offset_bits: offset_bits as u8,
            shift: shift as u8,
        })
    }

    /// Returns the code of a pointer, or `None` if this packing cannot represent the pointer.
    fn encode(self, child: RemotePtr) -> Option<u32> {
        let nodes = u64::from(child.node().0.checked_sub(self.base.node().0)?);
        let offset = child.offset().checked_sub(self.base.offset())?;
        let units = offset >> self.shift;
        let reached = units << self.shift == offset
            && units >> self.offset_bits == 0
            && (nodes << self.offset_bits) >> (8 * self.width) == 0;
        reached.then_some((nodes << self.offset_bits | units) as u32)
    }

    #[inline]
    fn decode(self, code: u32) -> RemotePtr {
        let code = u64::from(code);
        let nodes = code >> self.offset_bits;
        let units = code & ((1 << self.offset_bits) - 1);
        // Neither addition can overflow, because the encoded value was a valid pointer, and `base` and the
        // two deltas were computed from it.
        let node = RemotePtr::new(NodeId(nodes as u16), 0).map_or(0, RemotePtr::raw);
        RemotePtr::from_raw(
            self.base
                .raw()
                .wrapping_add(node)
                .wrapping_add(units << self.shift),
        )
    }
}

/// The properties of a valid image, which one pass computes before anything is allocated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    entries: usize,
    packing: Option<Packing>,
}

impl Shape {
    /// Returns the properties of `image`, or `None` if it has no entries or they contradict its bounds.
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
            // To find the lowest bit in which any two offsets differ, it suffices to compare each offset with
            // the first.
            differ |= child.offset().wrapping_sub(first.offset());
        }
        if image.high.is_some_and(|high| high <= last) {
            return None;
        }
        let packing = Packing::around(nodes, offsets, differ);
        Some(Self { entries, packing })
    }
}

/// Returns the part of an image's stamp that belongs to one entry.
fn stamp_of<K: CacheKey>(key: &K, child: RemotePtr) -> u64 {
    fingerprint_of(&(key, child.raw()))
}

/// Returns the size in bytes of `entries` entries whose children take `width` bytes each.
fn heap_of<K>(entries: usize, width: usize) -> u64 {
    (entries * (size_of::<K>() + width)) as u64
}

fn shortened<T>(items: Box<[T]>, len: usize) -> Box<[T]> {
    let mut items = items.into_vec();
    items.truncate(len);
    items.into_boxed_slice()
}

/// Inserts `more` at `at`. The result has no slack, and may be in the same allocation.
fn lengthened<T: Copy>(items: Box<[T]>, at: usize, more: &[T]) -> Box<[T]> {
    let mut items = items.into_vec();
    items.reserve_exact(more.len());
    items.extend_from_slice(more);
    items[at..].rotate_right(more.len());
    items.into_boxed_slice()
}

/// A cached node. INVARIANT: `keys` is not empty, ascends strictly and stays below the upper end. `children` has
/// `width` bytes for each key. Child `i` covers the keys from `keys[i]` to the next separator, and the last child
/// covers the keys up to the upper end. (The fields are in an order with little padding, because every cached node has
/// one of these structs.)
#[derive(Debug)]
pub(crate) struct Image<K> {
    pub(crate) at: RemotePtr,
    pub(crate) stamp: u64,
    keys: Box<[K]>,
    children: Box<[u8]>,
    /// The base of the packed children.
    base: RemotePtr,
    /// The upper end, if there is one.
    upper: K,
    incarnation: u32,
    /// The tick of the image's last use ([`crate::evict`]). It only influences evictions.
    used: AtomicU16,
    pub(crate) level: u8,
    has_upper: bool,
    /// Number of bytes of a packed child, as in [`Packing`], or [`UNPACKED`] if the pointers are too far apart to be
    /// packed.
    width: u8,
    offset_bits: u8,
    shift: u8,
}

/// The value of [`Image::width`] if children are stored as whole pointers.
const UNPACKED: u8 = 8;

impl<K: CacheKey> Image<K> {
    /// Packs `image`, whose properties are `shape`.
    pub(crate) fn pack<I>(image: NodeImage<K, I>, shape: Shape) -> Self
    where
        I: Iterator<Item = (K, RemotePtr)> + Clone,
    {
        let mut keys = Vec::with_capacity(shape.entries);
        keys.extend(image.entries.clone().map(|(key, _)| key));
        let packing = shape.packing.unwrap_or(Packing {
            base: RemotePtr::NULL,
            width: UNPACKED,
            offset_bits: 0,
            shift: 0,
        });
        let width = usize::from(packing.width);
        let mut children = Vec::with_capacity(width * shape.entries);
        for (_, child) in image.entries {
            // `Shape::of` has checked that the packing represents every child.
            let code = match shape.packing {
                Some(packing) => packing.encode(child).map_or(0, u64::from),
                None => child.raw(),
            };
            children.extend_from_slice(&code.to_le_bytes()[..width]);
        }
        let mut packed = Self {
            at: image.at,
            stamp: 0,
            keys: keys.into_boxed_slice(),
            children: children.into_boxed_slice(),
            base: packing.base,
            upper: image.high.unwrap_or(image.low),
            incarnation: image.incarnation,
            used: AtomicU16::new(0),
            level: image.level,
            has_upper: image.high.is_some(),
            width: packing.width,
            offset_bits: packing.offset_bits,
            shift: packing.shift,
        };
        packed.restamp();
        packed
    }

    #[inline]
    pub(crate) fn low(&self) -> K {
        self.keys[0]
    }

    /// Returns the first key that the image does not cover; `None` is plus infinity.
    #[inline]
    pub(crate) fn high(&self) -> Option<K> {
        self.has_upper.then_some(self.upper)
    }

    /// Returns whether `key`, which is not below `low`, is below `high`.
    #[inline]
    pub(crate) fn reaches(&self, key: &K) -> bool {
        *key < self.upper || !self.has_upper
    }

    /// Returns the packing of the children, or `None` if they are not packed.
    #[inline]
    fn packing(&self) -> Option<Packing> {
        (self.width != UNPACKED).then_some(Packing {
            base: self.base,
            width: self.width,
            offset_bits: self.offset_bits,
            shift: self.shift,
        })
    }

    /// Returns the bytes that a child takes.
    fn width(&self) -> usize {
        usize::from(self.width)
    }

    /// Returns child `i`, or `None` past the last.
    #[inline]
    pub(crate) fn child(&self, i: usize) -> Option<RemotePtr> {
        let Some(packing) = self.packing() else {
            let raw = self.children.get(8 * i..)?.first_chunk()?;
            return Some(RemotePtr::from_raw(u64::from_le_bytes(*raw)));
        };
        let code = if packing.width == 3 {
            let [a, b, c] = *self.children.get(3 * i..)?.first_chunk()?;
            u32::from_le_bytes([a, b, c, 0])
        } else {
            u32::from_le_bytes(*self.children.get(4 * i..)?.first_chunk()?)
        };
        Some(packing.decode(code))
    }

    /// Returns the number of the child for `key`: the number of the last separator that is not above the key, or 0.
    #[inline]
    pub(crate) fn position(&self, key: &K) -> usize {
        search::floor(&self.keys, key).unwrap_or(0)
    }

    /// Returns child `i` with its range, or `None` past the last.
    #[inline]
    pub(crate) fn hit(&self, i: usize, slot: u32) -> Option<Hit<K>> {
        Some(Hit {
            child: self.child(i)?,
            child_level: self.level - 1,
            low: *self.keys.get(i)?,
            high: self.keys.get(i + 1).copied().or(self.high()),
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

    /// Returns whether `origin` identifies this image.
    #[inline]
    pub(crate) fn is(&self, origin: &Origin<K>) -> bool {
        self.stamp == origin.stamp
            && self.at == origin.node
            && self.level == origin.level
            && self.low() == origin.low
    }

    /// Marks the image as used at `now`.
    #[inline]
    pub(crate) fn touch(&self, now: u16) {
        // Relaxed, and not a single atomic operation, because the tick is a hint. It is written only once per tick, so
        // that readers do not contend for the cache line.
        if self.used.load(Ordering::Relaxed) != now {
            self.used.store(now, Ordering::Relaxed);
        }
    }

    /// Returns the ticks since the image's last use. This wraps: an image that was not used for 2^16 ticks counts as
    /// just used.
    #[inline]
    pub(crate) fn age(&self, now: u16) -> u16 {
        // Relaxed: as in `touch`.
        now.wrapping_sub(self.used.load(Ordering::Relaxed))
    }

    /// Returns the bytes that the image has allocated.
    pub(crate) fn heap(&self) -> u64 {
        heap_of::<K>(self.keys.len(), self.width())
    }

    /// Returns the number of bytes that the image will have allocated after [`Image::trim`].
    pub(crate) fn heap_below(&self, cut: &K) -> u64 {
        heap_of::<K>(self.below(cut), self.width())
    }

    /// Removes the entries at or above `cut`, which is above `low`. This gives the image another identity, because its
    /// stamp changes.
    pub(crate) fn trim(&mut self, cut: K) {
        let len = self.below(&cut);
        self.keys = shortened(core::mem::take(&mut self.keys), len);
        self.children = shortened(core::mem::take(&mut self.children), len * self.width());
        (self.upper, self.has_upper) = (cut, true);
        self.restamp();
    }

    /// Returns whether this image shows the node of `addition` before the addition: it has the same node and range, and
    /// one entry less.
    pub(crate) fn is_before(&self, addition: &Addition<K>) -> bool {
        self.at == addition.at
            && self.level == addition.level
            && self.incarnation == addition.incarnation
            && self.low() == addition.low
            && self.high() == addition.high
            && self.keys.len() + 1 == addition.entries
    }

    /// Returns the bytes that one more entry allocates.
    pub(crate) fn heap_of_one(&self) -> u64 {
        heap_of::<K>(1, self.width())
    }

    /// Adds `child`, which starts at `separator`. Returns `false` and does nothing if there is no place for it, or if
    /// the packing cannot represent it. This gives the image another identity, because its stamp changes.
    pub(crate) fn add(&mut self, separator: K, child: RemotePtr) -> bool {
        let Some(before) = search::floor(&self.keys, &separator) else {
            return false;
        };
        if self.keys[before] == separator || !self.reaches(&separator) {
            return false;
        }
        let place = (before + 1) * self.width();
        let code = match self.packing() {
            Some(packing) => packing.encode(child).map(u64::from),
            None => Some(child.raw()),
        };
        let Some(code) = code else { return false };
        let children = core::mem::take(&mut self.children);
        self.children = lengthened(children, place, &code.to_le_bytes()[..self.width()]);
        self.keys = lengthened(core::mem::take(&mut self.keys), before + 1, &[separator]);
        self.stamp = self.stamp.wrapping_add(stamp_of(&separator, child));
        true
    }

    fn below(&self, cut: &K) -> usize {
        self.keys.partition_point(|separator| separator < cut)
    }

    fn restamp(&mut self) {
        // The stamp is a hash of the content and not a counter, so a cache's state does not depend on the order in
        // which images were admitted. If two contents of one node had the same hash, one would be mistaken for the
        // other. At worst this gives a wrong hint, because the identity also includes address, level and low, and a
        // reader checks the bounds again. The stamp is the sum of the hashes of all entries, so that adding an entry
        // need not hash the others again. (The sum does not depend on the order of the entries, but their keys fix this
        // order.)
        let head = fingerprint_of(&(self.at, self.level, self.high(), self.incarnation));
        let entries = self.entries().map(|(key, child)| stamp_of(&key, child));
        self.stamp = entries.fold(head, u64::wrapping_add);
    }

    fn entries(&self) -> impl Iterator<Item = (K, RemotePtr)> {
        self.keys
            .iter()
            .enumerate()
            .filter_map(|(i, key)| Some((*key, self.child(i)?)))
    }

    /// Returns a copy in the public format.
    pub(crate) fn unpack(&self) -> CachedNode<K> {
        CachedNode {
            at: self.at,
            level: self.level,
            low: self.low(),
            high: self.high(),
            incarnation: self.incarnation,
            entries: self.entries().collect(),
        }
    }
}
