//! Eviction of images by the power of two choices.
//!
//! Two images of level 1, or of the lowest level that has one, are drawn, and the one that was not used for longer is
//! evicted (Sherman §4.2.3). A new image starts with half the age of the last evicted image, so an image that is used
//! only once is evicted before images in regular use. Images are drawn by rank and not by key, so every draw finds an
//! image, for any distribution of keys. The number of evictions per new image is bounded.

use core::mem::size_of;

use crate::CacheKey;
use crate::image::Image;
use crate::state::{InTheWay, State};

/// Number of evictions per tick of the clock that measures ages. With a larger number, ages would be too coarse. With a
/// smaller one, almost every lookup would write the tick of its image.
const TICK: u32 = dm_sync::scaled(16, 1) as u32;
/// Maximum number of evictions per new image. It suffices if the new image has at most about 64 times the bytes of an
/// evicted one.
const VICTIMS: u32 = 64;

/// The clock of evictions, and their random generator.
#[derive(Debug)]
pub(crate) struct Clock {
    evictions: u32,
    dice: u64,
    /// The age of the last evicted image.
    last: u16,
}

impl Clock {
    pub(crate) const fn new() -> Self {
        Self {
            evictions: 0,
            dice: 1,
            last: 0,
        }
    }

    /// Returns the current tick, which wraps around.
    #[inline]
    pub(crate) fn now(&self) -> u16 {
        (self.evictions / TICK) as u16
    }

    /// Returns the tick that counts as the last use of a new image.
    pub(crate) fn entered(&self) -> u16 {
        self.now().wrapping_sub(self.last / 2)
    }

    pub(crate) fn age<K: CacheKey>(&self, image: &Image<K>) -> u16 {
        image.age(self.now())
    }

    /// Returns the state on which the next draws and ages depend.
    pub(crate) fn draws(&self) -> (u32, u64, u16) {
        (self.evictions % TICK, self.dice, self.last)
    }

    /// Draws a number below `bound`, which is not 0. The generator is Knuth's for MMIX, whose high bits are
    /// uniform enough for this.
    fn draw(&mut self, bound: u32) -> u32 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (((self.dice >> 32) * u64::from(bound)) >> 32) as u32
    }
}

impl<K: CacheKey> State<K> {
    /// Returns whether anything is ever evicted.
    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        self.budget != u64::MAX
    }

    /// Marks `image` as used.
    #[inline]
    pub(crate) fn touch(&self, image: &Image<K>) {
        if self.is_bounded() {
            image.touch(self.clock.now());
        }
    }

    /// Makes room for `image`, which is not cached yet, and returns the images that overlap it. Returns
    /// `None` if up to [`VICTIMS`] evictions do not make enough room.
    pub(crate) fn room_for(&mut self, image: &Image<K>) -> Option<InTheWay<K>> {
        let mut way = self.in_the_way(image);
        let mut victims = 0;
        while self.exceeds(image, &way) {
            if victims == VICTIMS || !self.evict_below(image.level) {
                return None;
            }
            victims += 1;
            // The evicted image may have been one of the overlapping images.
            way = self.in_the_way(image);
        }
        Some(way)
    }

    /// Returns whether the cache would exceed its budget with `image` in it.
    fn exceeds(&self, image: &Image<K>, way: &InTheWay<K>) -> bool {
        self.heap_with(image, way) + size_of::<crate::IndexCache<K>>() as u64 > self.budget
    }

    /// Returns whether the cache would exceed its budget with this many bytes more.
    pub(crate) fn exceeds_by(&self, bytes: u64) -> bool {
        self.heap() + bytes + size_of::<crate::IndexCache<K>>() as u64 > self.budget
    }

    /// Evicts an image of level 1. If there is none, evicts an image of the lowest level below `level`. Returns `false`
    /// if there is none either.
    fn evict_below(&mut self, level: u8) -> bool {
        let below = usize::from(level.max(2) - 1);
        let Some(number) = self
            .levels
            .iter()
            .take(below)
            .position(|directory| directory.len() > 0)
        else {
            return false;
        };
        let (Some(a), Some(b)) = (self.drawn(number), self.drawn(number)) else {
            return false;
        };
        let victim = self.longer_unused(a, b);
        self.clock.last = self.slab.get(victim).map_or(0, |image| self.clock.age(image));
        self.clock.evictions = self.clock.evictions.wrapping_add(1);
        self.drop_slot(victim)
    }

    /// Returns the slot of a random image of this directory. It is drawn by rank, so the result does not
    /// depend on slot numbers. Therefore two caches with the same content behave in the same way.
    fn drawn(&mut self, number: usize) -> Option<u32> {
        let len = u32::try_from(self.levels.get(number)?.len())
            .ok()
            .filter(|len| *len > 0)?;
        let rank = self.clock.draw(len);
        self.levels[number].nth(rank as usize)
    }

    fn longer_unused(&self, a: u32, b: u32) -> u32 {
        let age = |slot| self.slab.get(slot).map(|image| self.clock.age(image));
        if age(b) > age(a) { b } else { a }
    }
}
