//! Broken twins of items, which can be switched on with the feature `study`.

use dm_index::Exchange;

use crate::Items;

/// Broken twins of [`crate::Items`], for study. All are off by default, and each has a counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ItemFlaws {
    /// The index points to a block before the block's WRITE has completed (N1).
    pub unawaited: bool,
    /// A write replaces the word without comparing it (N2).
    pub blind: bool,
    /// A block is reused at once although its exchange was abandoned (N5).
    pub gives_back: bool,
}

#[cfg(feature = "study")]
impl<V, I: Exchange> Items<'_, V, I> {
    /// Returns these items with the given flaws.
    #[must_use]
    pub fn with_flaws(mut self, flaws: ItemFlaws) -> Self {
        self.flaws = flaws;
        self
    }
}

impl<V, I: Exchange> Items<'_, V, I> {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> ItemFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = ItemFlaws::default();
        flaws
    }
}
