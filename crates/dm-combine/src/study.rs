//! Published flaws and broken twins, which the feature `study` switches on.

use crate::lanes::Lanes;

/// Flaws for study, each with a switch of its own: first the published flaws, by their names in `docs/models.md`, then
/// the broken twins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RdwcFlaws {
    /// T-R1: a write joins another write whose leader has already read the value that the leader writes.
    pub joins_after_sample: bool,
    /// T-R2: combined values are passed in one buffer per lock, even if the lock is held for another key by the time a
    /// value is stored.
    pub buffer_of_lock: bool,
    /// T-R3: a get joins a READ that was posted before the get began.
    pub joins_earlier_read: bool,
    /// Broken twin: a leader that is dropped leaves its lock held and wakes no client.
    pub leaves_silently: bool,
    /// Broken twin: the followers of a dropped leader return as if their writes were done.
    pub tells_unknown: bool,
    /// Broken twin: every operation that finds a lock held joins the next epoch, whatever its key.
    pub any_key: bool,
    /// Broken twin: a follower's upsert counts as done if its leader found the key absent.
    pub absorbs_upserts: bool,
}

impl RdwcFlaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        joins_after_sample: false,
        buffer_of_lock: false,
        joins_earlier_read: false,
        leaves_silently: false,
        tells_unknown: false,
        any_key: false,
        absorbs_upserts: false,
    };
    /// All published flaws.
    #[cfg(feature = "study")]
    pub const PUBLISHED: Self = Self {
        joins_after_sample: true,
        buffer_of_lock: true,
        joins_earlier_read: true,
        ..Self::NONE
    };
}

impl<K> Lanes<K> {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> RdwcFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = RdwcFlaws::NONE;
        flaws
    }
}
