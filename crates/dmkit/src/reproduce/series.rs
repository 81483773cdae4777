//! What a series of a tree experiment is: an index with its techniques, by a name.

use std::str::FromStr;

use sherman::{Rdwc, Variant};

use crate::cli::Index;

/// An index as a paper, or dmkit, has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Series {
    pub(crate) index: Index,
    pub(crate) variant: Variant,
    pub(crate) rdwc: Rdwc,
    /// Instead of what the variant says.
    pub(crate) lock_and_read: Option<bool>,
}

/// SMART's: as its paper has it, and with one technique more or less.
const SMART: [(&str, Rdwc, bool); 3] = [
    ("smart", Rdwc::ON, false),
    ("smart +lock-and-read", Rdwc::ON, true),
    ("smart -rdwc", Rdwc::OFF, false),
];

impl FromStr for Series {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        if let Some(&(_, rdwc, lock_and_read)) = SMART.iter().find(|(name, ..)| *name == s) {
            return Ok(Self {
                index: Index::Smart,
                variant: Variant::Default,
                rdwc,
                lock_and_read: Some(lock_and_read),
            });
        }
        let variant = s.parse::<Variant>().map_err(|e| {
            let smart = SMART.map(|(name, ..)| name).join(", ");
            format!("{e}, {smart}")
        })?;
        Ok(Self {
            index: Index::Sherman,
            variant,
            rdwc: Rdwc::OFF,
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
        assert_eq!(of("as-in-smart").variant, Variant::AsInSmart);
        let wrong = "smarter".parse::<Series>().unwrap_err();
        assert!(
            wrong.contains("fg+") && wrong.contains("+lock-and-read"),
            "{wrong}"
        );
    }
}
