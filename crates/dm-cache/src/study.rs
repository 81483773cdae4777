//! Published flaws and broken twins, which the feature `study` switches on.

use crate::cache::IndexCache;
use crate::hotspots::Hotspots;
use crate::state::State;
#[cfg(feature = "study")]
use crate::types::CacheKey;

/// Published flaws that can be switched on one by one, for study. The default has none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CacheFlaws {
    /// T-S7: a reader that located an image, and was then delayed, reads the current content of the slot without
    /// checking that it is still the same image. (In the published code the slot's memory may even have been freed. In
    /// this crate it only belongs to another image.)
    pub recycled_slot: bool,
}

/// Broken twins of [`crate::Hotspots`], off by default. Each has a counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HotspotFlaws {
    /// An entry is changed by a plain store, even if it has changed since it was read.
    pub blind_stores: bool,
}

#[cfg(feature = "study")]
impl<K: CacheKey> IndexCache<K> {
    /// Returns this cache with the given flaws.
    #[must_use]
    pub fn with_flaws(mut self, flaws: CacheFlaws) -> Self {
        self.flaws = flaws;
        self.state.with_write(|state| state.flaws = flaws);
        self
    }
}

#[cfg(feature = "study")]
impl Hotspots {
    /// Returns this table with the given flaws.
    #[must_use]
    pub const fn with_flaws(mut self, flaws: HotspotFlaws) -> Self {
        self.flaws = flaws;
        self
    }
}

impl<K> IndexCache<K> {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> CacheFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = CacheFlaws::default();
        flaws
    }
}

impl<K> State<K> {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> CacheFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = CacheFlaws::default();
        flaws
    }
}

impl Hotspots {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> HotspotFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = HotspotFlaws::default();
        flaws
    }
}
