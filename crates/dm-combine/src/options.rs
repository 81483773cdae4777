//! Options of read delegation and write combining, and their published flaws.

/// Options of read delegation and write combining on one compute node.
///
/// Each compute node chooses its own options, because none of this state is in remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rdwc {
    /// Read delegation: concurrent gets of a key share one get.
    pub delegate: bool,
    /// Write combining: concurrent updates and upserts of a key become one write.
    pub combine: bool,
    /// The number of local locks, for gets and for writes each: at least 1, rounded up to a power of two.
    pub locks: u32,
    /// Flaws for study.
    pub flaws: RdwcFlaws,
}

/// Default of [`Rdwc::locks`]: 96 KiB with 8-byte keys. SMART's Figure 22 e is flat from 128 locks on, with 16
/// clients per compute node; the default suits a hundred clients and more.
pub const DEFAULT_LOCKS: u32 = 1024;

impl Rdwc {
    /// Neither read delegation nor write combining.
    pub const OFF: Self = Self {
        delegate: false,
        combine: false,
        locks: DEFAULT_LOCKS,
        flaws: RdwcFlaws::NONE,
    };
    /// Both read delegation and write combining.
    pub const ON: Self = Self {
        delegate: true,
        combine: true,
        ..Self::OFF
    };

    /// Returns whether at least one of the two is on.
    pub const fn is_on(&self) -> bool {
        self.delegate || self.combine
    }
}

impl Default for Rdwc {
    /// Returns [`Rdwc::ON`].
    fn default() -> Self {
        Self::ON
    }
}

/// Flaws for study, each of which can be switched on alone: first the published ones, by their names in
/// `docs/models.md`, then our own broken twins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RdwcFlaws {
    /// T-R1: a write joins a write whose value was sampled already.
    pub joins_after_sample: bool,
    /// T-R2: combined values go through one buffer per lock, even if the lock is held for another key by then.
    pub buffer_of_lock: bool,
    /// T-R3: a get joins a READ that was posted before the get began.
    pub joins_earlier_read: bool,
    /// Twin: a leader that is dropped leaves its lock held and wakes no client.
    pub leaves_silently: bool,
    /// Twin: a leader that is dropped tells its followers that their writes are done.
    pub tells_unknown: bool,
    /// Twin: every operation that finds a lock held follows, whatever its key.
    pub any_key: bool,
    /// Twin: a follower's upsert counts as done if its leader found the key absent.
    pub absorbs_upserts: bool,
}

impl RdwcFlaws {
    /// No flaw.
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
    pub const PUBLISHED: Self = Self {
        joins_after_sample: true,
        buffer_of_lock: true,
        joins_earlier_read: true,
        ..Self::NONE
    };
}
