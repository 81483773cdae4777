//! Published flaws and broken twins, which the feature `study` switches on.

use super::ComposedOptions;

/// Published flaws of index operations, off by default. They are for study: each has a counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flaws {
    /// T-S5: a client that loses the race for the first leaf or for a new root returns an error instead of continuing.
    pub root_race_fatal: bool,
    /// A scan assumes that a cached inner node lists all leaves of its range, and does not compare the leaves' fence
    /// keys.
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
