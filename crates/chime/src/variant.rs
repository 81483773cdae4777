//! Named presets: the default, and the steps of the paper.

use core::fmt;
use core::str::FromStr;

use crate::Options;

/// A preset: dmkit's default, or one of the paper's steps. The steps add the techniques in the paper's order
/// (Fig. 15 a), and each step includes all earlier ones.
///
/// The steps start from Sherman as it is measured in the CHIME paper (`sherman`'s `as-in-chime`), and have its locks:
/// the locks are in host memory and have no local queue, and the READ is posted after the lock's CAS has completed. In
/// the paper, clients share operations (RDWC) in all steps, so this is not a step.
///
/// Two of the paper's steps are one step here. To save bytes, the paper replicates the sibling pointer instead of the
/// fence keys, and validates it against the parent (+sibling validation). The leaves here have exact fence keys in
/// bytes that would otherwise be unused, so this saves nothing. The nearest step is [`Variant::Replication`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// All techniques, with lock-and-read, with on-chip locks and local queues, and with smaller leaves.
    Default,
    /// Hopscotch leaves of the paper's size. A get also reads the leaf's header, and an insert reads the header first.
    HopscotchLeaf,
    /// The previous step, with inserts that find the free slots without reading the header.
    Vacancy,
    /// The previous step, with gets that find the leaf's range without reading the header.
    Replication,
    /// The previous step, with hotspots that are read as single entries: CHIME as in its paper.
    Speculative,
}

impl Variant {
    /// All presets.
    pub const ALL: [Self; 5] = [
        Self::Default,
        Self::HopscotchLeaf,
        Self::Vacancy,
        Self::Replication,
        Self::Speculative,
    ];

    /// Returns the preset's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::HopscotchLeaf => "+hopscotch-leaf",
            Self::Vacancy => "+vacancy",
            Self::Replication => "+replication",
            Self::Speculative => "+speculative",
        }
    }

    /// Returns a line that describes the preset. For the first three steps, it names the figure of the paper that shows
    /// the step.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Default => {
                "every technique, locks on chip with local queues, taken in one chain with the READ"
            }
            Self::HopscotchLeaf => "Sherman as CHIME's paper ran it, with hopscotch leaves (Fig. 15 a)",
            Self::Vacancy => "in addition, an insert knows the free slots (Fig. 15 a)",
            Self::Replication => "in addition, a get knows the leaf's range (Fig. 15 a)",
            Self::Speculative => "in addition, hot entries are read alone: CHIME as in its paper",
        }
    }

    /// Returns `base` with this preset's techniques. The default preset returns `base` unchanged, and the last step
    /// leaves the size of the hotspot buffer as it is.
    #[must_use]
    pub const fn apply(self, mut base: Options) -> Options {
        let steps = match self {
            Self::Default => return base,
            Self::HopscotchLeaf => 0,
            Self::Vacancy => 1,
            Self::Replication => 2,
            Self::Speculative => 3,
        };
        base.span = crate::PUBLISHED_SPAN;
        base.on_chip = false;
        base.hierarchical = false;
        base.handover_max = 0;
        base.lock_and_read = false;
        base.vacancy_piggyback = steps >= 1;
        base.metadata_replication = steps >= 2;
        if steps < 3 {
            base.hotspot_bytes = 0;
        }
        base
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that is not a preset's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseVariantError(String);

impl fmt::Display for ParseVariantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no variant {:?} of chime; there are", self.0)?;
        Variant::ALL.iter().try_for_each(|v| write!(f, " {v}"))
    }
}

impl core::error::Error for ParseVariantError {}

impl FromStr for Variant {
    type Err = ParseVariantError;
    fn from_str(s: &str) -> Result<Self, ParseVariantError> {
        Self::ALL
            .into_iter()
            .find(|v| v.name() == s)
            .ok_or_else(|| ParseVariantError(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for v in Variant::ALL {
            assert_eq!(v.name().parse(), Ok(v));
        }
        assert!("+sibling".parse::<Variant>().is_err());
    }

    #[test]
    fn steps_are_cumulative() {
        let on = |v: Variant| {
            let o = v.apply(Options::new(8));
            assert!(!o.lock_and_read && !o.on_chip && !o.hierarchical);
            assert_eq!(o.span, crate::PUBLISHED_SPAN);
            [o.vacancy_piggyback, o.metadata_replication, o.hotspot_bytes > 0]
        };
        assert_eq!(on(Variant::HopscotchLeaf), [false; 3]);
        assert_eq!(on(Variant::Vacancy), [true, false, false]);
        assert_eq!(on(Variant::Replication), [true, true, false]);
        assert_eq!(on(Variant::Speculative), [true; 3]);
    }
}
