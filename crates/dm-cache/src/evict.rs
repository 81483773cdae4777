//! Making room: power of two choices among images.
//!
//! Two images of level 1 are drawn, and the image that was not used for longer goes (Sherman §4.2.3). A
//! newcomer counts as half as old as what went last: one that is used once only is gone before those in use. Images
//! are drawn by their rank, and not keys, so the keys' distribution is of no account and every draw meets one. How many go
//! for one newcomer is bounded.

use core::mem::size_of;

use crate::CacheKey;
use crate::image::Image;
use crate::state::{InTheWay, State};

/// Evictions in a tick of the clock that ages are told by: less often, and ages are coarse; more often, and every lookup
/// writes.
const TICK: u32 = dm_sync::scaled(16, 1) as u32;
/// Images that go at most for one newcomer: enough for a node of the largest size among ones of the smallest.
const VICTIMS: u32 = 64;

/// The time of evictions, and their dice.
#[derive(Debug)]
pub(crate) struct Clock {
    evictions: u32,
    dice: u64,
    /// The age of what went last.
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

    /// The tick that it is. Wraps.
    #[inline]
    pub(crate) fn now(&self) -> u16 {
        (self.evictions / TICK) as u16
    }

    /// When a newcomer counts as last used.
    pub(crate) fn entered(&self) -> u16 {
        self.now().wrapping_sub(self.last / 2)
    }

    pub(crate) fn age<K: CacheKey>(&self, image: &Image<K>) -> u16 {
        image.age(self.now())
    }

    /// What the next draws depend on.
    pub(crate) fn draws(&self) -> (u32, u64, u16) {
        (self.evictions % TICK, self.dice, self.last)
    }

    /// A number below `bound`, which is not 0. Knuth's MMIX generator: its high bits are even enough for this.
    fn draw(&mut self, bound: u32) -> u32 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (((self.dice >> 32) * u64::from(bound)) >> 32) as u32
    }
}

impl<K: CacheKey> State<K> {
    /// Whether anything is ever evicted.
    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        self.budget != u64::MAX
    }

    /// `image` was used.
    #[inline]
    pub(crate) fn touch(&self, image: &Image<K>) {
        if self.is_bounded() {
            image.touch(self.clock.now());
        }
    }

    /// Makes room for `image`, which is not cached yet; what is in its way then. `None` if there is no room to be made.
    pub(crate) fn room_for(&mut self, image: &Image<K>) -> Option<InTheWay<K>> {
        let mut way = self.in_the_way(image);
        let mut victims = 0;
        while self.exceeds(image, &way) {
            if victims == VICTIMS || !self.evict_below(image.level) {
                return None;
            }
            victims += 1;
            // The victim may have been in the way.
            way = self.in_the_way(image);
        }
        Some(way)
    }

    /// Whether the cache would be larger than its budget with `image` in it.
    fn exceeds(&self, image: &Image<K>, way: &InTheWay<K>) -> bool {
        self.heap_with(image, way) + size_of::<crate::IndexCache<K>>() as u64 > self.budget
    }

    /// Whether the cache would be larger than its budget with so many bytes more.
    pub(crate) fn exceeds_by(&self, bytes: u64) -> bool {
        self.heap() + bytes + size_of::<crate::IndexCache<K>>() as u64 > self.budget
    }

    /// Drops an image of level 1, or if there is none one of the lowest level below `level`; `false` if there is none.
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

    /// The slot of an image of this directory, by chance. Drawn by rank: which slots images happen to be in is of no
    /// account, so that states of a cache are told apart by its content.
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
