//! The series of tree experiments: an index with its techniques, by a name.

use std::str::FromStr;

use sherman::{Rdwc, Variant};

use crate::cli::Index;

/// An index as a paper, or dmkit, describes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Series {
    pub(crate) index: Index,
    /// The variant of sherman.
    pub(crate) variant: Variant,
    /// The variant of chime.
    pub(crate) chime: chime::Variant,
    pub(crate) rdwc: Rdwc,
    /// Replaces the variant's value.
    pub(crate) lock_and_read: Option<bool>,
}

/// SMART's series: as in its paper, and with one technique more or less.
const SMART: [(&str, Rdwc, bool); 3] = [
    ("smart", Rdwc::ON, false),
    ("smart +lock-and-read", Rdwc::ON, true),
    ("smart -rdwc", Rdwc::OFF, false),
];

/// Dolphin's series: as in its paper except for an insert's lock, and with one technique more. In both, an
/// update shares its leaf and reads it in one chain.
const DOLPHIN: [(&str, bool); 2] = [("dolphin", false), ("dolphin +lock-and-read", true)];

/// CHIME's series: as in its paper, then one technique less after the other, and dmkit's own.
const CHIME: [(&str, chime::Variant, bool); 6] = [
    ("chime", chime::Variant::Speculative, false),
    ("chime +replication", chime::Variant::Replication, false),
    ("chime +vacancy", chime::Variant::Vacancy, false),
    ("chime +hopscotch-leaf", chime::Variant::HopscotchLeaf, false),
    ("chime +lock-and-read", chime::Variant::Speculative, true),
    ("chime default", chime::Variant::Default, true),
];

impl FromStr for Series {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        if let Some(&(_, rdwc, lock_and_read)) = SMART.iter().find(|(name, ..)| *name == s) {
            return Ok(Self {
                index: Index::Smart,
                variant: Variant::Default,
                chime: chime::Variant::Default,
                rdwc,
                lock_and_read: Some(lock_and_read),
            });
        }
        if let Some(&(_, chime, lock_and_read)) = CHIME.iter().find(|(name, ..)| *name == s) {
            return Ok(Self {
                index: Index::Chime,
                variant: Variant::Default,
                chime,
                rdwc: Rdwc::ON,
                lock_and_read: Some(lock_and_read),
            });
        }
        if let Some(&(_, lock_and_read)) = DOLPHIN.iter().find(|(name, _)| *name == s) {
            return Ok(Self {
                index: Index::Dolphin,
                variant: Variant::Default,
                chime: chime::Variant::Default,
                rdwc: Rdwc::OFF,
                lock_and_read: Some(lock_and_read),
            });
        }
        let variant = s.parse::<Variant>().map_err(|e| {
            let smart = SMART.map(|(name, ..)| name).join(", ");
            let chime = CHIME.map(|(name, ..)| name).join(", ");
            let dolphin = DOLPHIN.map(|(name, _)| name).join(", ");
            format!("{e}, {smart}, {chime}, {dolphin}")
        })?;
        Ok(Self {
            index: Index::Sherman,
            variant,
            chime: chime::Variant::Default,
            rdwc: match variant {
                Variant::AsInChime => Rdwc::ON,
                _ => Rdwc::OFF,
            },
            lock_and_read: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_index_and_techniques() {
        let of = |name: &str| name.parse::<Series>().unwrap();
        let smart = of("smart");
        assert_eq!(
            (smart.index, smart.rdwc, smart.lock_and_read),
            (Index::Smart, Rdwc::ON, Some(false))
        );
        assert_eq!(of("smart -rdwc").rdwc, Rdwc::OFF);
        assert_eq!(of("chime +vacancy").chime, chime::Variant::Vacancy);
        assert_eq!(of("as-in-chime").rdwc, Rdwc::ON);
        assert_eq!(of("dolphin").lock_and_read, Some(false));
        assert_eq!(of("as-in-dolphin").variant, Variant::AsInDolphin);
        assert_eq!(of("as-in-smart").variant, Variant::AsInSmart);
        let wrong = "smarter".parse::<Series>().unwrap_err();
        assert!(
            wrong.contains("fg+") && wrong.contains("+lock-and-read"),
            "{wrong}"
        );
    }
}
