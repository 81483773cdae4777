//! Knob matrices: all combinations of the settings of some knobs.

use dm_explore::Knobs;
use dm_verbs::{AtomicUnit, AtomicVsWrite, CasThenRead, FailedCas, LineOrder};

/// A freedom of the RNIC, as a knob. A *side* is the number of one of its settings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Knob {
    /// The order of the lines of one READ: any, or increasing.
    ReadOrder,
    /// The order of the lines of one WRITE: increasing, or any.
    WriteOrder,
    /// The unit that is never torn: a line, or a word.
    Unit,
    /// A READ behind a CAS may overtake it line by line, or as a whole, or not at all.
    CasThenRead,
    /// An atomic and a WRITE to one word: they race and a failed CAS writes back, they race and a failed CAS writes
    /// nothing, or they are serialised.
    AtomicVsWrite,
    /// Whether a WRITE may overtake an earlier READ or atomic.
    Overtaking,
    /// Whether WRITEs to host memory take effect before later requests to on-chip memory, and WRITEs to on-chip memory
    /// before later requests to host memory.
    ChipOrder,
    /// Whether the cards have masked atomics.
    Masked,
}

impl Knob {
    /// All knobs of this enum.
    pub const ALL: [Self; 8] = [
        Self::ReadOrder,
        Self::WriteOrder,
        Self::Unit,
        Self::CasThenRead,
        Self::AtomicVsWrite,
        Self::Overtaking,
        Self::ChipOrder,
        Self::Masked,
    ];

    /// Returns the name to print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOrder => "read order",
            Self::WriteOrder => "write order",
            Self::Unit => "unit",
            Self::CasThenRead => "CAS→READ",
            Self::AtomicVsWrite => "atomic vs WRITE",
            Self::Overtaking => "overtaking",
            Self::ChipOrder => "on-chip order",
            Self::Masked => "masked atomics",
        }
    }

    /// Returns the number of settings.
    pub const fn sides(self) -> u8 {
        match self {
            Self::CasThenRead | Self::AtomicVsWrite => 3,
            _ => 2,
        }
    }

    /// Sets the knob in `knobs` to setting number `side`.
    pub fn set(self, knobs: &mut Knobs, side: u8) {
        let second = side > 0;
        match self {
            Self::ReadOrder => knobs.read_lines = order(second),
            Self::WriteOrder => knobs.write_lines = order(!second),
            Self::Unit => {
                knobs.unit = if second {
                    AtomicUnit::Word
                } else {
                    AtomicUnit::Line
                }
            }
            Self::CasThenRead => {
                knobs.cas_then_read = match side {
                    0 => CasThenRead::AnyLineFirst,
                    1 => CasThenRead::WholeReadFirst,
                    _ => CasThenRead::InOrder,
                }
            }
            Self::AtomicVsWrite => {
                (knobs.atomic_vs_write, knobs.failed_cas) = match side {
                    0 => (AtomicVsWrite::Racy, FailedCas::WritesBack),
                    1 => (AtomicVsWrite::Racy, FailedCas::LeavesAlone),
                    _ => (AtomicVsWrite::Serialised, FailedCas::LeavesAlone),
                }
            }
            Self::Overtaking => knobs.write_overtakes = !second,
            Self::ChipOrder => knobs.host_before_chip = !second,
            Self::Masked => knobs.masked_atomics = !second,
        }
    }

    /// Returns the number of the knob's setting in `knobs`.
    pub fn side(self, knobs: &Knobs) -> u8 {
        match self {
            Self::ReadOrder => u8::from(knobs.read_lines == LineOrder::Increasing),
            Self::WriteOrder => u8::from(knobs.write_lines == LineOrder::Any),
            Self::Unit => u8::from(knobs.unit == AtomicUnit::Word),
            Self::CasThenRead => match knobs.cas_then_read {
                CasThenRead::AnyLineFirst => 0,
                CasThenRead::WholeReadFirst => 1,
                CasThenRead::InOrder => 2,
            },
            Self::AtomicVsWrite => match (knobs.atomic_vs_write, knobs.failed_cas) {
                (AtomicVsWrite::Serialised, _) => 2,
                (_, FailedCas::LeavesAlone) => 1,
                _ => 0,
            },
            Self::Overtaking => u8::from(!knobs.write_overtakes),
            Self::ChipOrder => u8::from(!knobs.host_before_chip),
            Self::Masked => u8::from(!knobs.masked_atomics),
        }
    }

    /// Returns the name of setting number `side`.
    pub const fn side_name(self, side: u8) -> &'static str {
        match (self, side) {
            (Self::ReadOrder, 0) | (Self::WriteOrder, 1) => "any",
            (Self::ReadOrder, _) | (Self::WriteOrder, _) => "increasing",
            (Self::Unit, 0) => "line",
            (Self::Unit, _) => "word",
            (Self::CasThenRead, 0) => "any line first",
            (Self::CasThenRead, 1) => "whole READ first",
            (Self::CasThenRead, _) => "in order",
            (Self::AtomicVsWrite, 0) => "racy, a failed CAS writes back",
            (Self::AtomicVsWrite, 1) => "racy",
            (Self::AtomicVsWrite, _) => "serialised",
            (Self::Overtaking, 0) => "WRITE overtakes",
            (Self::Overtaking, _) => "never",
            (Self::ChipOrder, 0) => "host first",
            (Self::ChipOrder, _) => "unordered",
            (Self::Masked, 0) => "yes",
            (Self::Masked, _) => "none",
        }
    }
}

fn order(increasing: bool) -> LineOrder {
    if increasing {
        LineOrder::Increasing
    } else {
        LineOrder::Any
    }
}

/// Returns all combinations of settings of the knobs in `turned`. The other knobs are as in `base`.
///
/// ```
/// use dm_explore::Knobs;
/// use dm_models::{Knob, covered, matrix};
///
/// let all = matrix(&Knobs::weak(), &[Knob::ALL[0]]);
/// assert_eq!(covered(&all)[0].1.len(), all.len());
/// ```
pub fn matrix(base: &Knobs, turned: &[Knob]) -> Vec<Knobs> {
    let mut all = vec![base.clone()];
    for &knob in turned {
        all = all
            .iter()
            .flat_map(|k| {
                (0..knob.sides()).map(move |side| {
                    let mut k = k.clone();
                    knob.set(&mut k, side);
                    k
                })
            })
            .collect();
    }
    all
}

/// Returns, for each knob, the numbers of the settings that occur in `all`.
///
/// See [`matrix`] for an example.
pub fn covered<'k>(all: impl IntoIterator<Item = &'k Knobs>) -> Vec<(Knob, Vec<u8>)> {
    let all: Vec<&Knobs> = all.into_iter().collect();
    Knob::ALL
        .into_iter()
        .map(|knob| {
            let mut sides: Vec<u8> = all.iter().map(|k| knob.side(k)).collect();
            sides.sort_unstable();
            sides.dedup();
            (knob, sides)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_that_was_set_is_the_side_it_is_turned_to() {
        for base in [Knobs::weak(), Knobs::strong()] {
            for knob in Knob::ALL {
                for side in 0..knob.sides() {
                    let mut knobs = base.clone();
                    knob.set(&mut knobs, side);
                    assert_eq!(knob.side(&knobs), side, "{knob:?}");
                }
            }
        }
        assert!(
            Knob::ALL.iter().all(|k| k.side(&Knobs::weak()) == 0),
            "weak is side 0 of every knob"
        );
    }

    #[test]
    fn a_matrix_has_every_combination_once() {
        let all = matrix(&Knobs::weak(), &[Knob::ReadOrder, Knob::CasThenRead, Knob::Unit]);
        assert_eq!(all.len(), 12);
        assert!(all.iter().enumerate().all(|(i, a)| !all[..i].contains(a)));
        let turned: Vec<Knob> = covered(&all)
            .into_iter()
            .filter(|(_, s)| s.len() > 1)
            .map(|(k, _)| k)
            .collect();
        assert_eq!(turned, [Knob::ReadOrder, Knob::Unit, Knob::CasThenRead]);
    }
}
