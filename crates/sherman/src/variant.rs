//! Named presets: the default, the paper's steps, the published version, and Sherman as other papers measured it.

use core::fmt;
use core::str::FromStr;

use crate::{NodeSize, Options};

/// The leaf layout of a tree.
///
/// ```
/// use sherman::{LeafKind, Variant};
///
/// assert_eq!(Variant::Default.leaf(), LeafKind::TwoLevel);
/// assert_eq!(Variant::AsInSmart.leaf(), LeafKind::Bookend);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeafKind {
    /// Unsorted entries under line versions.
    TwoLevel,
    /// Sorted entries under a checksum, written back as a whole (FG, and every step before `+two-level`).
    Checksummed,
    /// Unsorted entries under versions at both ends, as published: unsound (T-S2a).
    Bookend,
}

/// A named combination of techniques and a node size, for measurements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// All techniques, with lock-and-read, and without known flaws.
    Default,
    /// The default, except that the lock's CAS is awaited before the READ is posted. Operations then take as many round
    /// trips as in the paper.
    PaperRtt,
    /// The published version, with all of its flaws.
    #[cfg(feature = "study")]
    Published,
    /// FG (Ziegler et al., SIGMOD 2019) as in Sherman's Table 1: checksum, sorted leaves, release by FAA.
    Fg,
    /// FG with release by WRITE: the baseline of Sherman's figures.
    FgPlus,
    /// FG+ with write-back and unlock in one chain.
    Combine,
    /// The previous step, with locks in on-chip memory.
    OnChip,
    /// The previous step, with local lock tables, wait queues and handover.
    Hierarchical,
    /// The previous step, with two-level versions in unsorted leaves: Sherman as in its paper.
    TwoLevel,
    /// Sherman as measured in the SMART paper: every technique of Sherman's paper, and nodes of 32 entries. As in the
    /// published code, entries are packed across lines, and versions are at both ends of a node.
    AsInSmart,
    /// Sherman as measured in the CHIME paper: nodes of 1.1 KB, locks in host memory, taken before the READ and without
    /// a local queue, and read delegation and write combining, which that paper uses for all indexes. A node has 61
    /// entries instead of the paper's 64, because each entry has a version at both ends.
    AsInChime,
    /// Sherman as measured in the Dolphin paper: every technique of Sherman's paper. As in the published code, entries
    /// are packed across lines, and versions are at both ends of a node. In that paper, leaves take 1 KB. This preset
    /// does not set the size of nodes, because the default ([`crate::DEFAULT_NODE`]) is the same.
    AsInDolphin,
}

impl Variant {
    /// All presets.
    pub const ALL: &[Self] = &[
        Self::Default,
        Self::PaperRtt,
        #[cfg(feature = "study")]
        Self::Published,
        Self::Fg,
        Self::FgPlus,
        Self::Combine,
        Self::OnChip,
        Self::Hierarchical,
        Self::TwoLevel,
        Self::AsInSmart,
        Self::AsInChime,
        Self::AsInDolphin,
    ];

    /// Returns the preset's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::PaperRtt => "paper-rtt",
            #[cfg(feature = "study")]
            Self::Published => "published",
            Self::Fg => "fg",
            Self::FgPlus => "fg+",
            Self::Combine => "+combine",
            Self::OnChip => "+on-chip",
            Self::Hierarchical => "+hierarchical",
            Self::TwoLevel => "+two-level",
            Self::AsInSmart => "as-in-smart",
            Self::AsInChime => "as-in-chime",
            Self::AsInDolphin => "as-in-dolphin",
        }
    }

    /// Returns a line that describes the preset and names the figures that show it.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Default => "every technique, and locks taken in one chain with the READ",
            Self::PaperRtt => {
                "the same, but a lock's CAS is awaited before the READ (the paper's round trips)"
            }
            #[cfg(feature = "study")]
            Self::Published => "the published version with all of its flaws",
            Self::Fg => "FG (SIGMOD 2019): checksums, sorted leaves, release by FAA (Table 1)",
            Self::FgPlus => "FG with release by WRITE: the baseline of Figs. 10 to 14",
            Self::Combine => "FG+ with write-back and unlock in one chain (Figs. 10, 11)",
            Self::OnChip => "in addition, locks in on-chip memory (Figs. 10, 11)",
            Self::Hierarchical => "in addition, local locks with queues and handover (Figs. 10, 11)",
            Self::TwoLevel => "in addition, versions in each line: Sherman as in its paper",
            Self::AsInSmart => "as SMART's paper ran it: nodes of 32 entries (Figs. 11 to 15)",
            Self::AsInChime => {
                "as CHIME's paper ran it: nodes of 1.1 KB, locks in host memory, RDWC (Figs. 12, 15)"
            }
            Self::AsInDolphin => "as Dolphin's paper ran it: nodes of 1 KB (Figs. 6 to 9)",
        }
    }

    /// Returns the preset's leaf layout.
    pub const fn leaf(self) -> LeafKind {
        match self {
            Self::Default | Self::PaperRtt | Self::TwoLevel => LeafKind::TwoLevel,
            #[cfg(feature = "study")]
            Self::Published => LeafKind::Bookend,
            Self::AsInSmart | Self::AsInChime | Self::AsInDolphin => LeafKind::Bookend,
            Self::Fg | Self::FgPlus | Self::Combine | Self::OnChip | Self::Hierarchical => {
                LeafKind::Checksummed
            }
        }
    }

    /// Returns `base` with this preset's techniques and flaws, and with its node size if it has one.
    #[must_use]
    pub const fn apply(self, mut base: Options) -> Options {
        // The number of the paper's cumulative steps.
        let steps = match self {
            Self::Fg | Self::FgPlus => 0,
            Self::Combine => 1,
            Self::OnChip => 2,
            Self::Hierarchical => 3,
            Self::TwoLevel
            | Self::Default
            | Self::PaperRtt
            | Self::AsInSmart
            | Self::AsInChime
            | Self::AsInDolphin => 4,
            #[cfg(feature = "study")]
            Self::Published => 4,
        };
        base.combine = steps >= 1;
        base.on_chip = steps >= 2;
        base.hierarchical = steps >= 3;
        base.handover_max = if steps >= 3 {
            crate::options::DEFAULT_HANDOVER_MAX
        } else {
            0
        };
        base.lock_and_read = matches!(self, Self::Default);
        base.release_by_faa = matches!(self, Self::Fg);
        if matches!(self, Self::AsInSmart) {
            base.node = NodeSize::Span(32);
        }
        if matches!(self, Self::AsInChime) {
            base.node = NodeSize::Bytes(1152);
            base.on_chip = false;
            base.hierarchical = false;
            base.handover_max = 0;
            base.rdwc = dm_combine::Rdwc::ON;
        }
        #[cfg(feature = "study")]
        if matches!(self, Self::Published) {
            base.flaws = crate::Flaws::PUBLISHED;
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
        write!(f, "no variant {:?}; there are", self.0)?;
        Variant::ALL.iter().try_for_each(|v| write!(f, " {v}"))
    }
}

impl core::error::Error for ParseVariantError {}

impl FromStr for Variant {
    type Err = ParseVariantError;
    fn from_str(s: &str) -> Result<Self, ParseVariantError> {
        Self::ALL
            .iter()
            .copied()
            .find(|v| v.name() == s)
            .ok_or_else(|| ParseVariantError(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeafFormat;
    use dm_layout::{Bookend, Key8, NodeShape};

    #[test]
    fn names_parse_back() {
        for v in Variant::ALL.iter().copied() {
            assert_eq!(v.name().parse(), Ok(v));
        }
        assert!("+onchip".parse::<Variant>().is_err());
    }

    #[test]
    fn as_in_smart_has_that_papers_nodes() {
        let options = Variant::AsInSmart.apply(Options::new(8));
        let leaf = <Bookend<Key8> as LeafFormat<Key8>>::of(options.node, 8).expect("a leaf");
        let bytes = leaf.node_bytes();
        assert!(leaf.capacity() == 32 && (600..=640).contains(&bytes), "{bytes}");
        assert!(options.on_chip && !options.lock_and_read && !options.rdwc.is_on());
        // An entry takes 18 bytes, so some entries cross the end of a line.
        assert_eq!(Variant::AsInSmart.leaf(), LeafKind::Bookend);
    }

    #[test]
    fn as_in_chime_has_that_papers_nodes_and_locks() {
        let options = Variant::AsInChime.apply(Options::new(8));
        let leaf = <Bookend<Key8> as LeafFormat<Key8>>::of(options.node, 8).expect("a leaf");
        // The paper's 64 entries take 1131 bytes, or 1148 bytes with a version in each line.
        assert_eq!((leaf.node_bytes(), leaf.capacity()), (1152, 61));
        assert!(!options.on_chip && !options.hierarchical && !options.lock_and_read);
        assert!(options.rdwc.is_on() && options.combine);
    }

    #[test]
    fn as_in_dolphin_has_nodes_of_a_kilobyte() {
        let options = Variant::AsInDolphin.apply(Options::new(8));
        let leaf = <Bookend<Key8> as LeafFormat<Key8>>::of(options.node, 8).expect("a leaf");
        assert_eq!(leaf.node_bytes(), 1024);
        assert!(options.on_chip && options.hierarchical && !options.lock_and_read && !options.rdwc.is_on());
    }

    #[test]
    fn steps_are_cumulative() {
        let on = |v: Variant| {
            let o = v.apply(Options::new(8));
            [
                o.combine,
                o.on_chip,
                o.hierarchical,
                v.leaf() == LeafKind::TwoLevel,
            ]
        };
        assert_eq!(on(Variant::FgPlus), [false; 4]);
        assert_eq!(on(Variant::Combine), [true, false, false, false]);
        assert_eq!(on(Variant::OnChip), [true, true, false, false]);
        assert_eq!(on(Variant::Hierarchical), [true, true, true, false]);
        assert_eq!(on(Variant::TwoLevel), [true; 4]);
    }
}
