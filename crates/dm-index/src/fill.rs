//! Fill levels of leaves after a bulk load.

use core::str::FromStr;

use dm_layout::Fullness;

use crate::IndexError;

/// The fill level of leaves after a bulk load.
///
/// ```
/// use dm_index::{Fill, Fullness};
///
/// assert_eq!(Fill::from(0.8), Fill::Even(0.8));
/// assert_eq!("as-inserted".parse(), Ok(Fill::AsInserted));
/// assert!("1.5".parse::<Fill>().is_err());
/// // A leaf has 64 slots.
/// assert!(Fill::Even(0.5).allows(Fullness { taken: 32, of: 64 }));
/// assert!(!Fill::Even(0.5).allows(Fullness { taken: 33, of: 64 }));
/// // Of these slots, the loaded keys can use 58.
/// let mean = (0..1000).map(|leaf| Fill::AsInserted.entries(58, leaf)).sum::<usize>() as f64 / 1000.0;
/// assert!((mean / 58.0 - Fill::AsInserted.mean()).abs() < 0.01);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fill {
    /// Each leaf is filled to this share of its room, as [`BulkLoad::share`](crate::BulkLoad::share) counts it. The
    /// share is above 0 and at most 1. A leaf is filled less if it cannot accept more of the keys, or if it is the last
    /// one. It has at least one entry.
    Even(f64),
    /// Leaves are filled as inserts in random order would fill them if full leaves split in halves. Each leaf but the
    /// last one holds at least half of the given keys that it accepts, and at most all of them. The share `x` has the
    /// density `1 / x²` and the mean ln 2. So some leaves split soon, as in a tree that has grown by inserts. Evenly
    /// filled leaves would all split at about the same time, much later.
    ///
    /// *Why `1 / x²`:* let `n(x)` be the number of leaves with the share `x`. A leaf grows in proportion to its keys,
    /// and after a time `t` there are `e^t` times as many leaves of each share, so `n(x) + (x · n(x))' = 0`.
    AsInserted,
}

impl Fill {
    /// Returns whether a leaf may be filled to `full`.
    #[must_use]
    pub fn allows(self, full: Fullness) -> bool {
        match self {
            Self::Even(share) => full.taken as f64 <= full.of as f64 * share,
            Self::AsInserted => full.taken <= full.of,
        }
    }

    /// Returns the number of entries that leaf number `leaf` of a load keeps, at least 1. `most` is the number of given
    /// keys that the leaf accepts and that are [allowed](Self::allows).
    #[must_use]
    pub fn entries(self, most: usize, leaf: u64) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let entries = match self {
            Self::Even(_) => most,
            Self::AsInserted => (most as f64 * drawn(leaf)).round() as usize,
        };
        entries.min(most).max(1)
    }

    /// Returns the average share.
    #[must_use]
    pub const fn mean(self) -> f64 {
        match self {
            Self::Even(share) => share,
            Self::AsInserted => core::f64::consts::LN_2,
        }
    }

    /// Checks that the share is valid, and returns the fill level.
    ///
    /// # Errors
    /// Returns [`IndexError::BadInput`] if a share is not above 0 and at most 1.
    pub fn checked(self) -> Result<Self, IndexError> {
        match self {
            Self::Even(share) if !(share > 0.0 && share <= 1.0) => Err(IndexError::BadInput {
                why: "a fill level must be above 0 and at most 1",
            }),
            fill => Ok(fill),
        }
    }
}

/// Parses a share, or `as-inserted`.
impl FromStr for Fill {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let fill = match s {
            "as-inserted" => Self::AsInserted,
            share => share.parse().map_or(Self::Even(f64::NAN), Self::Even),
        };
        fill.checked().map_err(|_| {
            format!("{s:?} is not a fill level: give a share above 0 and at most 1, or `as-inserted`")
        })
    }
}

/// Makes [`Fill::Even`].
impl From<f64> for Fill {
    fn from(share: f64) -> Self {
        Self::Even(share)
    }
}

/// Returns the share of leaf number `leaf`. This is the inverse of the distribution function of [`Fill::AsInserted`] at
/// a point that depends on `leaf`; successive leaves have points that are spread evenly.
fn drawn(leaf: u64) -> f64 {
    // The points are the fractional parts of multiples of the golden ratio, because they are spread evenly.
    let at = leaf.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
    let at = at as f64 / (1_u64 << 53) as f64;
    1.0 / (2.0 - at)
}
