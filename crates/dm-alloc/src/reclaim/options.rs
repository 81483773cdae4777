//! The options of reclamation.

use dm_verbs::Nanos;

use crate::members::Look;

/// Options for a compute node's part in reclamation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimOptions {
    /// Time between two announcements, at most a 62nd of a lease. It is a quarter of that while a member may soon be
    /// expelled, or while the counts of sharers are being reset. With `Nanos(u64::MAX)` only
    /// [`collect`](crate::Allocator::collect) announces.
    pub period: Nanos,
    /// Number of operations after which a client prepares its seat again ([`prepare`](crate::Allocator::prepare)), even
    /// if no round is due.
    pub operations: u32,
    /// Number of parts of a lease; 0 counts as 1. A member counts as silent, and is fenced, after this number of
    /// consecutive looks that found its slot unchanged. Between two looks lies at least one such part. With `u32::MAX`
    /// no member is fenced, and a silent member prevents memory from being freed.
    pub looks: u32,
    /// Retry limit for taking a slot; exceeding it is a typed error.
    pub attempts: u32,
    /// Lets operations begin in the latest epoch that was known at the turn before the last [`Allocator::turn`],
    /// instead of the current epoch. So memory whose address a client has read since that turn is not reused. This is
    /// for compute nodes that remember addresses and do not check which node is there now.
    ///
    /// [`Allocator::turn`]: crate::Allocator::turn
    pub remembers: bool,
    /// Deliberate errors, for study. Each has a counterexample.
    #[cfg(feature = "study")]
    pub flaws: super::ReclaimFlaws,
}

/// Default of [`ReclaimOptions::period`].
pub const DEFAULT_PERIOD: Nanos = Nanos::from_micros(1_000);
/// Minimum number of periods in a lease. With the default of 16 parts, a part of a lease and the round trip of a look
/// together take a little less than four periods. So a look that is posted four periods after a counted one counts too,
/// and a dead member is found little more than a lease after its death.
const PERIODS_MIN: u64 = 62;
/// A period is divided by this while a member may soon be expelled, or while the counts of sharers are being reset.
const HURRY: u64 = 4;
/// Default of [`ReclaimOptions::operations`].
pub const DEFAULT_OPERATIONS: u32 = 64;

impl ReclaimOptions {
    /// Returns the defaults.
    pub const fn new() -> Self {
        Self {
            period: DEFAULT_PERIOD,
            operations: DEFAULT_OPERATIONS,
            looks: 16,
            attempts: 1 << 20,
            remembers: false,
            #[cfg(feature = "study")]
            flaws: super::ReclaimFlaws::NONE,
        }
    }
}

impl ReclaimOptions {
    /// Lowers [`ReclaimOptions::attempts`] to `attempts` if it is higher.
    #[must_use]
    pub fn at_most(self, attempts: u32) -> Self {
        Self {
            attempts: self.attempts.min(attempts),
            ..self
        }
    }

    /// Returns [`ReclaimOptions::period`], but at most a 62nd of `lease`. With `hurried`, returns a quarter of that. A
    /// period of `Nanos(u64::MAX)` is returned unchanged.
    pub(crate) fn period_within(&self, lease: Nanos, hurried: bool) -> Nanos {
        match self.period {
            Nanos(u64::MAX) => self.period,
            period => {
                let period = period.min(Nanos(lease.0 / PERIODS_MIN));
                Nanos(if hurried { period.0 / HURRY } else { period.0 })
            }
        }
    }

    /// Returns the number of parts of a lease, at least 1.
    pub(crate) fn parts(&self) -> u32 {
        self.looks.max(1)
    }

    /// Returns the number of parts after which a silent member may soon be expelled.
    pub(crate) fn parts_of_suspicion(&self) -> u32 {
        self.parts() - self.parts() / 4
    }

    /// Returns whether this compute node looks for silent members.
    pub(crate) fn watches(&self) -> bool {
        self.looks < u32::MAX
    }

    /// Returns the part of a look that is compared with other looks.
    pub(crate) fn compared(&self, look: Look) -> Look {
        let bits = match self.flaws().beat_bits {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_short_if_the_lease_is_or_somebody_may_be_expelled() {
        let options = ReclaimOptions::new();
        let lease = Nanos::from_millis(31);
        assert_eq!(
            options.period_within(Nanos::from_millis(100), false),
            DEFAULT_PERIOD
        );
        assert_eq!(options.period_within(lease, false), Nanos::from_micros(500));
        assert_eq!(options.period_within(lease, true), Nanos::from_micros(125));
        let never = ReclaimOptions {
            period: Nanos(u64::MAX),
            ..options
        };
        assert_eq!(never.period_within(lease, true), Nanos(u64::MAX));
        let parts = |looks| ReclaimOptions { looks, ..options }.parts_of_suspicion();
        assert_eq!([0, 1, 4, 16].map(parts), [1, 1, 3, 12]);
    }
}
