//! Published flaws and broken twins, which the feature `study` switches on.

/// Published flaws, with their names in `docs/models.md`. Each can be switched on alone, and all are off by
/// default.
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
    /// T-S4: the parent is updated after a split before the old node's WRITE has completed.
    pub parent_before_left: bool,
    /// T-S5: losing the race for a root is fatal.
    pub root_race_fatal: bool,
    /// T-S6: the two fields of a local ticket lock have this many bits in one word, and an overflow of one
    /// changes the other.
    pub packed_tickets: Option<u32>,
    /// T-S7: the cache reads a recycled slot.
    pub recycled_slot: bool,
    /// A scan takes the leaves of a cached inner node for all leaves, and misses leaves that were split off
    /// since.
    pub scan_trusts_cache: bool,
    /// Our own broken twin, not a published flaw: a split does not wait until its right node is written.
    pub right_unawaited: bool,
    /// Another broken twin of our own: a merge makes the left node live before the right one is dead.
    pub open_before_burial: bool,
    /// Another one: a client that ends another client's merge holds the lock of only one of the two nodes.
    pub one_lock_mends: bool,
    /// Another one: a client that ends another client's merge opens both nodes, although the left one has all keys.
    pub reopens_widened: bool,
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
        one_lock_mends: false,
        reopens_widened: false,
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
        one_lock_mends: false,
        reopens_widened: false,
        lanes16: true,
    };
}
