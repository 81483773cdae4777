//! How full a bulk load leaves leaves.

use core::str::FromStr;

use dm_layout::Fullness;

use crate::IndexError;

/// How full a bulk load leaves leaves.
///
/// ```
/// use dm_index::{Fill, Fullness};
///
/// assert_eq!(Fill::from(0.8), Fill::Even(0.8));
/// assert_eq!("as-inserted".parse(), Ok(Fill::AsInserted));
/// assert!("1.5".parse::<Fill>().is_err());
/// // 64 slots, of which these keys could take 58.
/// assert!(Fill::Even(0.5).allows(Fullness { taken: 32, of: 64 }));
/// assert!(!Fill::Even(0.5).allows(Fullness { taken: 33, of: 64 }));
/// let mean = (0..1000).map(|leaf| Fill::AsInserted.entries(58, leaf)).sum::<usize>() as f64 / 1000.0;
/// assert!((mean / 58.0 - Fill::AsInserted.mean()).abs() < 0.01);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fill {
    /// Each leaf to this share of what it has for the keys that come ([`NodeStore::share`](crate::NodeStore::share)), above 0
    /// and at most 1; less where it takes no more of them.
    Even(f64),
    /// As inserts in random order leave leaves that split in halves: each holds between a half and all of what it takes
    /// of the keys that come, a share `x` with a density of `1 / x²`, and ln 2 on average. So some are about to split,
    /// as in a tree that has grown, while leaves that are filled evenly split all at once, late.
    ///
    /// *Why `1 / x²`:* a leaf grows in proportion to its keys, and of the leaves of any share there are `e^t` times as
    /// many after a time `t`: `n(x) + (x · n(x))' = 0`.
    AsInserted,
}

impl Fill {
    /// Whether a leaf may be filled so far, before it is known what it takes.
    #[must_use]
    pub fn allows(self, full: Fullness) -> bool {
        match self {
            Self::Even(share) => full.taken as f64 <= full.of as f64 * share,
            Self::AsInserted => full.taken <= full.of,
        }
    }

    /// Entries that leaf number `leaf` of a load keeps of `most`, which are all that it takes, and is
    /// [allowed](Self::allows), of the keys that come: at least 1.
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

    /// The share on average.
    #[must_use]
    pub const fn mean(self) -> f64 {
        match self {
            Self::Even(share) => share,
            Self::AsInserted => core::f64::consts::LN_2,
        }
    }

    /// This, if it can be.
    ///
    /// # Errors
    /// [`IndexError::BadInput`] for a share that is not above 0 and at most 1.
    pub fn checked(self) -> Result<Self, IndexError> {
        match self {
            Self::Even(share) if !(share > 0.0 && share <= 1.0) => Err(IndexError::BadInput {
                why: "a fill lies above 0 and at most at 1",
            }),
            fill => Ok(fill),
        }
    }
}

/// A share, or `as-inserted`.
impl FromStr for Fill {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let fill = match s {
            "as-inserted" => Self::AsInserted,
            share => share.parse().map_or(Self::Even(f64::NAN), Self::Even),
        };
        fill.checked()
            .map_err(|_| format!("{s:?} is no fill: a share above 0 and at most 1, or `as-inserted`"))
    }
}

/// [`Fill::Even`].
impl From<f64> for Fill {
    fn from(share: f64) -> Self {
        Self::Even(share)
    }
}

/// The share of leaf number `leaf`: the law's inverse at points that are spread evenly, and scattered over the leaves.
fn drawn(leaf: u64) -> f64 {
    // Multiples of the golden ratio, of which any number in a row lie as far apart as they can; in bits of a fraction.
    let at = leaf.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
    let at = at as f64 / (1_u64 << 53) as f64;
    1.0 / (2.0 - at)
}
