//! Published flaws and broken twins, which the feature `study` switches on.

/// Published flaws and broken twins. `docs/models.md` has the same names for the flaws that a model shows (T-S1 and so
/// on). All are off by default.
///
/// T-S2a (bookend versions) is a layout: [`crate::LeafKind::Bookend`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flaws {
    /// T-S1: a torn entry counts as absent.
    pub torn_entry_absent: bool,
    /// T-S2b: a READ is accepted even if it takes so long that a version may have wrapped around.
    pub no_read_window: bool,
    /// T-S3: a lock is handed over before the write-back has completed.
    pub handover_before_write_back: bool,
    /// T-S4: after a split, the parent is updated before the WRITE of the old node has completed.
    pub parent_before_left: bool,
    /// T-S5: a client that loses the race for a root returns an error.
    pub root_race_fatal: bool,
    /// T-S6: each of the two fields of a local ticket lock has this many bits of one word, and an overflow of one field
    /// changes the other.
    pub packed_tickets: Option<u32>,
    /// T-S7: the cache reads a slot that was reused for another node.
    pub recycled_slot: bool,
    /// A scan assumes that a cached inner node lists all leaves of its range, and misses leaves that were split off
    /// since.
    pub scan_trusts_cache: bool,
    /// Broken twin: a split does not wait until its right node is written.
    pub right_unawaited: bool,
    /// Broken twin: a merge makes the left node live before the right one is dead.
    pub open_before_burial: bool,
    /// Broken twin: a client that finishes another client's merge holds the lock of only one of the two nodes.
    pub one_lock_mends: bool,
    /// Broken twin: a client that finishes another client's merge makes both nodes live, although the left one may
    /// already have the right one's keys.
    pub reopens_widened: bool,
    /// T-S13: four 16-bit locks share a word that is released by plain WRITEs.
    pub lanes16: bool,
}

impl Flaws {
    /// No flaw, which is the default.
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
        one_lock_mends: false,
        reopens_widened: false,
        lanes16: false,
    };
    /// All published flaws, switched on.
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
        one_lock_mends: false,
        reopens_widened: false,
        lanes16: true,
    };
}
