//! What is combined, with how many locks, and what was published wrong.

/// Read delegation and write combining of one compute node: which of them, and how large.
///
/// Each compute node's own choice: nothing of it lies in remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rdwc {
    /// Read delegation: concurrent gets of a key share one.
    pub delegate: bool,
    /// Write combining: concurrent updates and upserts of a key become one.
    pub combine: bool,
    /// Local locks of each of the two, rounded up to a power of two; at least 1.
    pub locks: u32,
    /// Flaws for study.
    pub flaws: RdwcFlaws,
}

/// Default of [`Rdwc::locks`]: 96 KiB with 8-byte keys. SMART's Figure 22 e is flat from 128 on, at 16 clients a compute
/// node; this is for a hundred and more.
pub const DEFAULT_LOCKS: u32 = 1024;

impl Rdwc {
    /// Neither.
    pub const OFF: Self = Self {
        delegate: false,
        combine: false,
        locks: DEFAULT_LOCKS,
        flaws: RdwcFlaws::NONE,
    };
    /// Both.
    pub const ON: Self = Self {
        delegate: true,
        combine: true,
        ..Self::OFF
    };

    /// Whether any of the two is on.
    pub const fn is_on(&self) -> bool {
        self.delegate || self.combine
    }
}

impl Default for Rdwc {
    /// Both.
    fn default() -> Self {
        Self::ON
    }
}

/// Flaws, each switchable alone: first those that are published, by their names in
/// `docs/models.md`, then broken twins of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RdwcFlaws {
    /// T-R1: a write joins one that has sampled its value already.
    pub joins_after_sample: bool,
    /// T-R2: combined values go through one buffer of the lock, whoever's key it holds by then.
    pub buffer_of_lock: bool,
    /// T-R3: a get joins a READ that was posted before the get began.
    pub joins_earlier_read: bool,
    /// Twin: a leader that goes away leaves its lock taken and wakes nobody.
    pub leaves_silently: bool,
    /// Twin: a leader that goes away tells its followers that their writes are done.
    pub tells_unknown: bool,
    /// Twin: whoever finds a lock taken follows, whatever its key.
    pub any_key: bool,
    /// Twin: a follower's upsert counts as done by a leader that found the key absent.
    pub absorbs_upserts: bool,
}

impl RdwcFlaws {
    /// None of them.
    pub const NONE: Self = Self {
        joins_after_sample: false,
        buffer_of_lock: false,
        joins_earlier_read: false,
        leaves_silently: false,
        tells_unknown: false,
        any_key: false,
        absorbs_upserts: false,
    };
    /// All that are published.
    pub const PUBLISHED: Self = Self {
        joins_after_sample: true,
        buffer_of_lock: true,
        joins_earlier_read: true,
        ..Self::NONE
    };
}
