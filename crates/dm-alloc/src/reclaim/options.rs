//! How a compute node takes part in reclamation.

use dm_verbs::Nanos;

use crate::members::Look;

/// How a compute node takes part in reclamation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimOptions {
    /// Time between two announcements, at most an eighth of a lease; `Nanos(u64::MAX)` for none but by
    /// [`collect`](crate::Allocator::collect).
    pub period: Nanos,
    /// Operations of a client after which it looks whether its compute node is still a member, due or not.
    pub operations: u32,
    /// Parts of a lease; 0 counts as 1. A member counts as silent, and is fenced off, after so many looks in a row that
    /// found nothing new in its slot, each at least such a part after the one before; `u32::MAX` for never: a silent member
    /// then pins memory.
    pub looks: u32,
    /// Looks at a slot, or at another client's joining, before a typed error.
    pub attempts: u32,
    /// Operations go on beginning in the epoch of the last [`Allocator::turn`], so that what was read since the turn
    /// before is not used again: for compute nodes that remember addresses without asking whose they are.
    ///
    /// [`Allocator::turn`]: crate::Allocator::turn
    pub remembers: bool,
    /// Published nowhere; for study, each with its counterexample.
    pub flaws: ReclaimFlaws,
}

/// What reclamation must not do, switchable for the explorer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReclaimFlaws {
    /// A retired block is free at once.
    pub no_grace: bool,
    /// A block is handed out with the incarnation and version of its last life.
    pub same_life: bool,
    /// The present epoch is announced, not the one of the oldest operation that runs.
    pub announces_now: bool,
    /// A silent member is taken for gone without being fenced.
    pub no_fence: bool,
    /// A dead node is not written dead (for whoever writes nodes).
    pub unburied: bool,
    /// Looks compare so many of a beat's bits, the lowest ones; 0 for all of them.
    pub beat_bits: u32,
    /// While one client announces its compute node, no other does.
    pub one_announces: bool,
    /// A READ that fails counts as proof that all before it has landed.
    pub error_proves: bool,
}

/// Default of [`ReclaimOptions::period`].
pub const DEFAULT_PERIOD: Nanos = Nanos::from_micros(1_000);
/// Default of [`ReclaimOptions::operations`].
pub const DEFAULT_OPERATIONS: u32 = 64;

impl ReclaimOptions {
    /// Defaults.
    pub const fn new() -> Self {
        Self {
            period: DEFAULT_PERIOD,
            operations: DEFAULT_OPERATIONS,
            looks: 4,
            attempts: 1 << 20,
            remembers: false,
            flaws: ReclaimFlaws {
                no_grace: false,
                same_life: false,
                announces_now: false,
                no_fence: false,
                unburied: false,
                beat_bits: 0,
                one_announces: false,
                error_proves: false,
            },
        }
    }
}

impl ReclaimOptions {
    /// These, with at most `attempts` looks before a typed error.
    #[must_use]
    pub fn at_most(self, attempts: u32) -> Self {
        Self {
            attempts: self.attempts.min(attempts),
            ..self
        }
    }

    /// [`ReclaimOptions::period`], short enough for `lease`: two of them, the verbs and half a lease between two operations
    /// stay below it.
    pub(crate) fn period_within(&self, lease: Nanos) -> Nanos {
        match self.period {
            Nanos(u64::MAX) => self.period,
            period => period.min(Nanos(lease.0 / 8)),
        }
    }

    /// Returns how many parts a lease has, at least 1.
    pub(crate) fn parts(&self) -> u32 {
        self.looks.max(1)
    }

    /// Whether silent members are looked for.
    pub(crate) fn watches(&self) -> bool {
        self.looks < u32::MAX
    }

    /// Returns the value that looks compare.
    pub(crate) fn compared(&self, look: Look) -> Look {
        let bits = match self.flaws.beat_bits {
            0 => u64::BITS,
            bits => bits,
        };
        Look {
            beat: look.beat & (u64::MAX >> (u64::BITS - bits)),
            ..look
        }
    }
}

impl Default for ReclaimOptions {
    fn default() -> Self {
        Self::new()
    }
}
