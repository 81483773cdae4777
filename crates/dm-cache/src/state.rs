//! The state behind the lock of an [`crate::IndexCache`]: slots, a directory per level, and the budget.

use core::mem::size_of;

#[cfg(feature = "study")]
use crate::study::CacheFlaws;
use dm_sync::{Fingerprint, fingerprint_of, fingerprint_unordered};
use dm_verbs::RemotePtr;

use crate::directory::Directory;
use crate::evict::Clock;
use crate::image::{Image, Shape};
use crate::slab::Slab;
use crate::types::{Addition, Admitted, CacheBytes, CacheKey, CachedNode, Hit, NodeImage, Origin};

/// The highest level that is accepted. A tree with a higher level would have at least 2^49 leaves, even with a fan-out
/// of two.
pub(crate) const MAX_LEVEL: u8 = 48;

/// The content of an [`crate::IndexCache`]. INVARIANT: each full slot has exactly one directory entry, which is at the
/// image's level and low, and each entry points to a full slot. Images of one level do not overlap.
#[derive(Debug)]
pub(crate) struct State<K> {
    pub(crate) slab: Slab<K>,
    /// The directory of each level, beginning with level 1.
    pub(crate) levels: Vec<Directory<K>>,
    pub(crate) budget: u64,
    pub(crate) clock: Clock,
    #[cfg(feature = "study")]
    pub(crate) flaws: CacheFlaws,
}

/// The images that overlap a new image: which one is trimmed, and which ones are removed.
pub(crate) struct InTheWay<K> {
    /// The image that starts below the new image and extends into its range. Its part below the new image is kept.
    trimmed: Option<(u32, K)>,
    /// The other overlapping images, which are removed.
    removed: Vec<(u32, K)>,
    /// Number of bytes that the removals and the trimming free, without the memory of directories.
    freed: u64,
    /// Whether one of the images is an older image of the new image's node.
    same_node: bool,
}

impl<K: CacheKey> State<K> {
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            slab: Slab::new(),
            levels: Vec::new(),
            budget,
            clock: Clock::new(),
            #[cfg(feature = "study")]
            flaws: CacheFlaws::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn len_at(&self, level: u8) -> usize {
        self.directory(level).map_or(0, Directory::len)
    }

    /// Returns the size in bytes of all allocations of this state, without the struct itself.
    pub(crate) fn heap(&self) -> u64 {
        self.heap_by_part().total()
    }

    /// Returns the bytes of [`State::heap`], by purpose.
    pub(crate) fn heap_by_part(&self) -> CacheBytes {
        let directories: u64 = self.levels.iter().map(Directory::bytes).sum();
        CacheBytes {
            entries: self.slab.image_bytes(),
            slots: self.slab.bytes(),
            directories: directories + (self.levels.capacity() * size_of::<Directory<K>>()) as u64,
            handle: 0,
        }
    }

    fn directory(&self, level: u8) -> Option<&Directory<K>> {
        self.levels.get(usize::from(level).checked_sub(1)?)
    }

    /// Returns the image of this directory that covers `key`.
    #[inline]
    fn covering(&self, directory: &Directory<K>, key: &K) -> Option<(u32, &Image<K>)> {
        let slot = directory.slot(directory.floor(key)?)?;
        let image = self.slab.get(slot)?;
        image.reaches(key).then_some((slot, image))
    }

    #[inline]
    pub(crate) fn lookup(&self, key: &K) -> Option<Hit<K>> {
        let (slot, image) = self.deepest(key)?;
        self.touch(image);
        image.hit(image.position(key), slot)
    }

    #[inline]
    pub(crate) fn leaf(&self, key: &K) -> Option<(RemotePtr, Origin<K>)> {
        let (slot, image) = self.covering(self.levels.first()?, key)?;
        self.touch(image);
        Some((image.child(image.position(key))?, image.origin(slot)))
    }

    pub(crate) fn lookup_at(&self, level: u8, key: &K) -> Option<Hit<K>> {
        let (slot, image) = self.covering(self.directory(level)?, key)?;
        self.touch(image);
        image.hit(image.position(key), slot)
    }

    pub(crate) fn find(&self, key: &K) -> Option<Origin<K>> {
        let (slot, image) = self.deepest(key)?;
        Some(image.origin(slot))
    }

    #[inline]
    fn deepest(&self, key: &K) -> Option<(u32, &Image<K>)> {
        self.levels
            .iter()
            .find_map(|directory| self.covering(directory, key))
    }

    pub(crate) fn read(&self, origin: &Origin<K>, key: &K) -> Option<Hit<K>> {
        if self.flaws().recycled_slot {
            // T-S7: the slot's current content is used as if it were the content that was found there earlier.
            let image = self.slab.get(origin.slot)?;
            return image.hit(image.position(key), origin.slot);
        }
        let (slot, image) = self.named(origin)?;
        (image.low() <= *key && image.reaches(key)).then(|| image.hit(image.position(key), slot))?
    }

    /// Returns the image that `origin` identifies, if it is still cached. It is in its slot, or in another one if it
    /// was admitted again.
    pub(crate) fn named(&self, origin: &Origin<K>) -> Option<(u32, &Image<K>)> {
        if let Some(image) = self.slab.get(origin.slot).filter(|image| image.is(origin)) {
            return Some((origin.slot, image));
        }
        let directory = self.directory(origin.level)?;
        let slot = directory.slot(directory.exactly(&origin.low)?)?;
        let image = self.slab.get(slot).filter(|image| image.is(origin))?;
        Some((slot, image))
    }

    pub(crate) fn run(&self, key: &K, max: usize, mut each: impl FnMut(Hit<K>)) -> usize {
        let mut shown = 0;
        let Some(directory) = self.directory(1) else {
            return 0;
        };
        let mut next = directory.floor(key);
        let mut from = *key;
        while let Some(cursor) = next {
            let Some(slot) = directory.slot(cursor) else { break };
            let Some(image) = self.slab.get(slot) else { break };
            if image.low() > from || !image.reaches(&from) {
                break;
            }
            self.touch(image);
            let mut i = image.position(&from);
            while let Some(hit) = image.hit(i, slot) {
                if shown == max {
                    return max;
                }
                each(hit);
                shown += 1;
                i += 1;
            }
            let Some(high) = image.high() else { break };
            from = high;
            next = directory.next(cursor);
        }
        shown
    }

    /// Caches `image`, which has been checked and packed, or returns it with the reason.
    pub(crate) fn admit(&mut self, image: Image<K>) -> Result<Admitted, (Admitted, Image<K>)> {
        let Some(way) = self.room_for(&image) else {
            return Err((Admitted::Full, image));
        };
        image.touch(self.clock.entered());
        let (low, number) = (image.low(), usize::from(image.level) - 1);
        if let Some((slot, cut)) = way.trimmed {
            self.slab.trim(slot, cut);
        }
        // Slots are freed first, so that the new image reuses one of them. Directory entries are removed
        // last, because `heap_with` assumes this order.
        for (slot, _) in &way.removed {
            self.slab.remove(*slot);
        }
        if self.levels.len() <= number {
            self.levels.reserve_exact(number + 1 - self.levels.len());
            self.levels.resize_with(number + 1, Directory::new);
        }
        let slot = self.slab.insert(image);
        if let Some(slot) = slot {
            self.levels[number].insert(low, slot);
        }
        for (gone, at) in way.removed {
            // The entry at the new image's low now points to the new image.
            if slot.is_none() || at != low {
                self.levels[number].remove(&at, gone);
            }
        }
        debug_assert!(slot.is_some(), "four billion cached nodes");
        Ok(match (slot, way.same_node) {
            (None, _) => Admitted::Full,
            (Some(_), true) => Admitted::Replaced,
            (Some(_), false) => Admitted::New,
        })
    }

    /// Adds one child to the image of a node that is otherwise unchanged. Returns `false` if the node has changed
    /// otherwise, if there is no room, or if the image cannot take the child.
    pub(crate) fn add(&mut self, addition: &Addition<K>) -> bool {
        let Some(directory) = self.directory(addition.level) else {
            return false;
        };
        let found = directory
            .exactly(&addition.low)
            .and_then(|cursor| directory.slot(cursor));
        let image = found.and_then(|slot| Some((slot, self.slab.get(slot)?)));
        let Some((slot, image)) = image.filter(|(_, image)| image.is_before(addition)) else {
            return false;
        };
        if self.is_bounded() && self.exceeds_by(image.heap_of_one()) {
            return false;
        }
        // The image counts as new, as if it had been admitted again.
        image.touch(self.clock.entered());
        self.slab.add(slot, addition.separator, addition.child)
    }

    /// Adds one child to the image that covers `separator`. Returns `false` if there is no such image, if there is no
    /// room, or if the image cannot take the child.
    pub(crate) fn insert(&mut self, level: u8, separator: K, child: RemotePtr) -> bool {
        let covering = self.directory(level).and_then(|d| self.covering(d, &separator));
        let Some((slot, image)) = covering else {
            return false;
        };
        if self.is_bounded() && self.exceeds_by(image.heap_of_one()) {
            return false;
        }
        image.touch(self.clock.entered());
        self.slab.add(slot, separator, child)
    }

    /// Returns the images that overlap `newcomer` on its level. The newest image of a range wins. A node keeps its low
    /// key when it splits. So in an older image, the entries at or above the new image's low have been moved or merged
    /// away. The entries below it may still be valid.
    pub(crate) fn in_the_way(&self, newcomer: &Image<K>) -> InTheWay<K> {
        let mut way = InTheWay {
            trimmed: None,
            removed: Vec::new(),
            freed: 0,
            same_node: false,
        };
        let Some(directory) = self.directory(newcomer.level) else {
            return way;
        };
        let low = newcomer.low();
        let mut next = directory.floor(&low).or_else(|| directory.first());
        while let Some(cursor) = next {
            next = directory.next(cursor);
            let Some(slot) = directory.slot(cursor) else { break };
            let Some(image) = self.slab.get(slot) else { break };
            if newcomer.high().is_some_and(|high| image.low() >= high) {
                break;
            }
            if !image.reaches(&low) {
                continue;
            }
            if image.at != newcomer.at && image.low() < low {
                way.trimmed = Some((slot, low));
                way.freed += image.heap() - image.heap_below(&low);
            } else {
                way.same_node |= image.at == newcomer.at;
                way.removed.push((slot, image.low()));
                way.freed += image.heap();
            }
        }
        way
    }

    /// Returns an upper bound of the allocated bytes after `image` is cached.
    pub(crate) fn heap_with(&self, image: &Image<K>, way: &InTheWay<K>) -> u64 {
        let slot = if way.removed.is_empty() {
            self.slab.cost_of_one_more()
        } else {
            0
        };
        let missing = usize::from(image.level).saturating_sub(self.levels.len());
        let entry = match self.directory(image.level) {
            Some(directory) if directory.exactly(&image.low()).is_some() => 0,
            Some(directory) => directory.cost_of(&image.low()),
            None => {
                Directory::<K>::new().cost_of(&image.low()) + (missing * size_of::<Directory<K>>()) as u64
            }
        };
        self.heap() - way.freed + image.heap() + slot + entry
    }

    /// Removes the image that `origin` identifies. Returns whether it was cached.
    pub(crate) fn remove(&mut self, origin: &Origin<K>) -> bool {
        let found = self.named(origin).map(|(slot, _)| slot);
        found.is_some_and(|slot| self.drop_slot(slot))
    }

    /// Removes the image in `slot`. Returns whether there was one.
    pub(crate) fn drop_slot(&mut self, slot: u32) -> bool {
        let Some(image) = self.slab.get(slot) else {
            return false;
        };
        let (low, number) = (image.low(), usize::from(image.level) - 1);
        self.slab.remove(slot);
        self.levels[number].remove(&low, slot);
        true
    }

    pub(crate) fn clear(&mut self) {
        self.slab = Slab::new();
        self.levels = Vec::new();
    }

    pub(crate) fn snapshot(&self) -> Vec<CachedNode<K>> {
        self.levels
            .iter()
            .flat_map(Directory::slots)
            .filter_map(|slot| self.slab.get(slot).map(Image::unpack))
            .collect()
    }
}

impl<K: CacheKey> Fingerprint for State<K> {
    fn fingerprint(&self) -> u64 {
        // A stamp is a hash of the whole image, so the images' identities are the content.
        let images = fingerprint_unordered(
            self.slab
                .iter()
                .map(|(_, image)| (image.at, image.level, image.low(), image.stamp)),
        );
        // The unused room, the random generator and the ages decide which images are admitted and evicted
        // next. Without a budget they have no effect.
        let room = self.is_bounded().then(|| {
            let ages = self
                .slab
                .iter()
                .map(|(_, image)| (image.stamp, self.clock.age(image)));
            let left = self.budget.saturating_sub(self.heap());
            (left, self.clock.draws(), fingerprint_unordered(ages))
        });
        // Only the flawed reader depends on the slot in which an image is.
        let slots = self.flaws().recycled_slot.then(|| {
            let full: Vec<_> = self
                .slab
                .iter()
                .map(|(slot, image)| (slot, image.stamp))
                .collect();
            fingerprint_of(&(full, self.slab.free_slots().collect::<Vec<_>>()))
        });
        fingerprint_of(&(images, room, slots))
    }
}

/// Checks an offered image and packs it. This needs no lock.
pub(crate) fn prepare<K, I>(image: NodeImage<K, I>) -> Option<Image<K>>
where
    K: CacheKey,
    I: Iterator<Item = (K, RemotePtr)> + Clone,
{
    if !(1..=MAX_LEVEL).contains(&image.level) {
        return None;
    }
    let shape = Shape::of(&image)?;
    Some(Image::pack(image, shape))
}
