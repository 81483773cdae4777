//! Published flaws and broken twins, which the feature `study` switches on.

use super::ComposedOptions;

/// Published flaws of the operation text, off by default. For study: each has its counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flaws {
    /// T-S5: who loses the race for the first leaf or a new root has no path to go on with, and gives up.
    pub root_race_fatal: bool,
    /// A scan takes the leaves that a cached inner node names for all there are, whatever their fences say.
    pub scan_trusts_cache: bool,
}

impl ComposedOptions {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> Flaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = Flaws::default();
        flaws
    }
}
