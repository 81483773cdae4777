//! Published flaws and broken twins, which the feature `study` switches on.

/// Published flaws, each switchable alone, by their names in `docs/models.md`. Off by default.
///
/// T-S2a (bookend versions) is a layout: [`crate::LeafKind::Bookend`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flaws {
    /// T-S1: a torn entry counts as absent.
    pub torn_entry_absent: bool,
    /// T-S2b: no guard against version wrap.
    pub no_read_window: bool,
    /// T-S3: a lock is handed over before the write-back has completed.
    pub handover_before_write_back: bool,
    /// T-S4: the parent learns of a split before the old node's WRITE has completed.
    pub parent_before_left: bool,
    /// T-S5: losing the race for a root is fatal.
    pub root_race_fatal: bool,
    /// T-S6: local tickets of this many bits, packed side by side, that carry into each other.
    pub packed_tickets: Option<u32>,
    /// T-S7: the cache reads a recycled slot.
    pub recycled_slot: bool,
    /// A scan assumes that the leaves named by a cached inner node are all there are, and misses leaves that
    /// were split off since.
    pub scan_trusts_cache: bool,
    /// Not a published flaw but our own broken twin: a split does not wait for its right node to be written.
    pub right_unawaited: bool,
    /// Another one of our own: a merge opens the left node before the right one is dead.
    pub open_before_burial: bool,
    /// T-S13: four 16-bit locks share a word that is released by plain WRITEs.
    pub lanes16: bool,
}

impl Flaws {
    /// None of them: the default.
    pub const NONE: Self = Self {
        torn_entry_absent: false,
        no_read_window: false,
        handover_before_write_back: false,
        parent_before_left: false,
        root_race_fatal: false,
        packed_tickets: None,
        recycled_slot: false,
        scan_trusts_cache: false,
        right_unawaited: false,
        open_before_burial: false,
        lanes16: false,
    };
    /// All published flaws.
    pub const PUBLISHED: Self = Self {
        torn_entry_absent: true,
        no_read_window: true,
        handover_before_write_back: true,
        parent_before_left: true,
        root_race_fatal: true,
        packed_tickets: Some(32),
        recycled_slot: true,
        scan_trusts_cache: true,
        right_unawaited: false,
        open_before_burial: false,
        lanes16: true,
    };
}
