//! Published flaws and broken twins, which the feature `study` switches on.

use crate::{ArtOptions, SeparatorOptions, SingleOptions};

/// Published flaws and broken twins, for study. All are off by default, and each has a counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArtFlaws {
    /// T-M1: if the link depth in a leaf differs from the depth on the client's own path, the client overwrites it. The
    /// client does not check that its path still leads to the leaf.
    pub repairs_unchecked: bool,
    /// T-M3: a leaf's link depth is raised after the CAS on the slot, and not awaited.
    pub depth_unawaited: bool,
    /// T-M4: a full node is copied without being frozen. A client that fills a slot of the old node meanwhile does not
    /// notice that the node is being replaced.
    pub switch_unfrozen: bool,
    /// T-M5: a slot that loses its child becomes empty, so that a client may fill it with any key byte.
    pub removal_empties: bool,
    /// T-M6: a merge does not freeze the empty slots.
    pub merge_leaves_empties: bool,
    /// T-M7: if the beginning of a scan is cached, the scan reads only below the cached node.
    pub scan_trusts_cache: bool,
    /// Broken twin: cached nodes are used for ever, although their memory is reused.
    pub cache_unpinned: bool,
    /// Broken twin: a client that needs a frozen slot does not complete the renewal, but waits until another client
    /// does. A writer that finds a replaced leaf does not change its slot, but waits until another client does.
    pub renewal_waits: bool,
    /// Broken twin: a renewal takes the lock of the frozen node again, and holds it while it swaps the parent's slot.
    pub nested_locks: bool,
    /// T-M8: an out-of-place update changes the slot first, and then the state of the old leaf.
    pub swings_first: bool,
    /// Broken twin: an out-of-place update gives the old leaf back to the allocator at once.
    pub frees_at_once: bool,
    /// Broken twin: an out-of-place update changes the slot by one CAS, and takes its failure as proof that no slot
    /// leads to the old leaf.
    pub swings_once: bool,
    /// Broken twin: a block goes back to the allocator although a request to it may still be in flight.
    pub gives_back_early: bool,
    /// Broken twin: a node that a client reaches through a cached link proves that a key is absent, although the client
    /// skipped key bytes on its way.
    pub trusts_skipped: bool,
}

#[cfg(feature = "study")]
impl ArtFlaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        repairs_unchecked: false,
        depth_unawaited: false,
        switch_unfrozen: false,
        removal_empties: false,
        merge_leaves_empties: false,
        scan_trusts_cache: false,
        cache_unpinned: false,
        renewal_waits: false,
        nested_locks: false,
        swings_first: false,
        frees_at_once: false,
        swings_once: false,
        gives_back_early: false,
        trusts_skipped: false,
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
    /// Returns whether a client follows an entry again after the entry has led it to a wrong leaf.
    pub(crate) fn credulous(&self) -> bool {
        #[cfg(feature = "study")]
        let credulous = self.credulous;
        #[cfg(not(feature = "study"))]
        let credulous = false;
        credulous
    }

    /// Returns whether flaw T-D12 is switched on.
    pub(crate) fn exact(&self) -> bool {
        #[cfg(feature = "study")]
        let exact = self.exact;
        #[cfg(not(feature = "study"))]
        let exact = false;
        exact
    }
}

/// Published flaws of leaves of one entry. All are off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SingleFlaws {
    /// T-M2: an update writes back the whole leaf, with the link depth and state that it read before it took the
    /// lock.
    pub stale_write_back: bool,
}

impl SingleOptions {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> SingleFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = SingleFlaws::default();
        flaws
    }
}
