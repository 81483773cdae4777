//! Published flaws and broken twins, which the feature `study` switches on.

use crate::{ArtOptions, SeparatorOptions};

/// Published flaws, each off by default; for study, each with its counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArtFlaws {
    /// T-M1: who finds a leaf's link depth other than the way it came by puts it right, without looking whether that way
    /// is still the leaf's.
    pub repairs_unchecked: bool,
    /// T-M3: the leaf learns that its link moved deeper after the slot says so, and nobody waits for it.
    pub depth_unawaited: bool,
    /// T-M4: a node that is full is copied without being frozen; who filled one of its slots meanwhile is not told.
    pub switch_unfrozen: bool,
    /// T-M5: a slot that loses its child becomes empty: any key byte may come there.
    pub removal_empties: bool,
    /// T-M6: a merge freezes the slots that have children, not the empty ones.
    pub merge_leaves_empties: bool,
    /// T-M7: a scan whose beginning is cached looks only below the cached node.
    pub scan_trusts_cache: bool,
    /// Nowhere published: cached nodes are used for ever, while their memory is used again.
    pub cache_unpinned: bool,
    /// Nowhere published: who needs a frozen slot waits until whoever froze it has renewed its node.
    pub renewal_waits: bool,
    /// Nowhere published: a block goes back though something may still land in it.
    pub gives_back_early: bool,
}

#[cfg(feature = "study")]
impl ArtFlaws {
    /// None of them: the default.
    pub const NONE: Self = Self {
        repairs_unchecked: false,
        depth_unawaited: false,
        switch_unfrozen: false,
        removal_empties: false,
        merge_leaves_empties: false,
        scan_trusts_cache: false,
        cache_unpinned: false,
        renewal_waits: false,
        gives_back_early: false,
    };
}

impl ArtOptions {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> ArtFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = ArtFlaws::default();
        flaws
    }
}

impl SeparatorOptions {
    /// Returns whether a client believes an entry that has misled it.
    pub(crate) fn credulous(&self) -> bool {
        #[cfg(feature = "study")]
        let credulous = self.credulous;
        #[cfg(not(feature = "study"))]
        let credulous = false;
        credulous
    }

    /// Returns whether a separator leads to its leaf alone (T-D12).
    pub(crate) fn exact(&self) -> bool {
        #[cfg(feature = "study")]
        let exact = self.exact;
        #[cfg(not(feature = "study"))]
        let exact = false;
        exact
    }
}
