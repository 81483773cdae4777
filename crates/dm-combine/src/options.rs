//! Options of read delegation and write combining.

/// Options of read delegation and write combining on one compute node.
///
/// Each compute node chooses its own options, because none of this state is in remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rdwc {
    /// Read delegation: concurrent gets of a key share one get.
    pub delegate: bool,
    /// Write combining: concurrent updates and upserts of a key become one write.
    pub combine: bool,
    /// The number of local locks, for gets and for writes each: from 1 to 2²⁴, rounded up to a power of two. A number
    /// outside this range counts as the nearer end of the range.
    pub locks: u32,
    /// Flaws that are switched on, for study.
    #[cfg(feature = "study")]
    pub flaws: crate::RdwcFlaws,
}

/// Default of [`Rdwc::locks`]. So many locks take 96 KiB with 8-byte keys. In SMART's Figure 22 e, with 16 clients per
/// compute node, the curve is flat from 128 locks on; the default is meant for a hundred clients and more.
pub const DEFAULT_LOCKS: u32 = 1024;

impl Rdwc {
    /// Neither read delegation nor write combining.
    pub const OFF: Self = Self {
        delegate: false,
        combine: false,
        locks: DEFAULT_LOCKS,
        #[cfg(feature = "study")]
        flaws: crate::RdwcFlaws::NONE,
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
