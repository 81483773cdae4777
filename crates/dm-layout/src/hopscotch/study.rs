//! Flaws of checking bytes, of which some are published. The feature `study` compiles them in. T-C1, T-C2 and T-C6 are
//! models in `dm-models` that show such flaws.

#[cfg(feature = "study")]
use super::{Hopscotch, Near, Reach};
#[cfg(feature = "study")]
use crate::key::KeyBytes;
#[cfg(feature = "study")]
use crate::value::ValueRef;

/// Flaws of checking a single entry. All are off by default, and each has a counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntryFlaws {
    /// Only the key's bytes are compared, although the entry may have been removed.
    pub takes_absent: bool,
    /// T-C6: an entry of a node in reused memory is accepted, even if the node was never linked.
    pub takes_young: bool,
}

/// Flaws of checking a neighbourhood. All are off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NearFlaws {
    /// T-C1: the search ends at the first free slot.
    pub stops_at_vacancy: bool,
    /// T-C2: lines of different versions count as proof of absence.
    pub absent_unchecked: bool,
    /// T-C6: a node in reused memory counts as linked if its range is the expected one.
    pub takes_young: bool,
    /// The range in the marks is not checked, as if the address could not be stale.
    pub any_range: bool,
}

#[cfg(feature = "study")]
impl<K: KeyBytes> Hopscotch<K> {
    /// Checks one entry as [`Hopscotch::alone`] does, but with these `flaws`.
    #[must_use]
    pub fn alone_flawed<'a>(&self, entry: &'a [u8], key: &K, flaws: EntryFlaws) -> Option<ValueRef<'a>> {
        self.judge_alone(entry, key, flaws)
    }

    /// Looks up a key in a neighbourhood as [`Hopscotch::near`] does, but with these `flaws`.
    #[must_use]
    pub fn near_flawed<'a>(
        &self,
        reach: &Reach,
        parts: (&'a [u8], &'a [u8]),
        key: &K,
        linked: bool,
        flaws: NearFlaws,
    ) -> Near<'a> {
        self.search_near(reach, parts, key, linked, flaws)
    }
}
