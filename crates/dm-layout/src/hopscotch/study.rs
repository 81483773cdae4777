//! Published flaws and broken twins of checking bytes, which the feature `study` switches on.

#[cfg(feature = "study")]
use super::{Hopscotch, Near, Reach};
#[cfg(feature = "study")]
use crate::key::KeyBytes;
#[cfg(feature = "study")]
use crate::value::ValueRef;

/// Flaws of checking a single entry. They are off by default, for study; each has a counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntryFlaws {
    /// Only the key's bytes are compared, even if the entry has been removed.
    pub takes_absent: bool,
    /// T-C6: an entry of a node in reused memory is accepted, whether or not the node was ever linked.
    pub takes_young: bool,
}

/// Published flaws of checking a neighbourhood, off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NearFlaws {
    /// T-C1: the search ends at the first free slot.
    pub stops_at_vacancy: bool,
    /// T-C2: absence is concluded from lines of different versions.
    pub absent_unchecked: bool,
    /// T-C6: a node in reused memory is assumed to be linked, because its range is the expected one.
    pub takes_young: bool,
    /// The marks' range is not checked: the address that led here is assumed to be right.
    pub any_range: bool,
}

#[cfg(feature = "study")]
impl<K: KeyBytes> Hopscotch<K> {
    /// Checks one entry like [`Hopscotch::alone`], but with `flaws`.
    #[must_use]
    pub fn alone_flawed<'a>(&self, entry: &'a [u8], key: &K, flaws: EntryFlaws) -> Option<ValueRef<'a>> {
        self.judge_alone(entry, key, flaws)
    }

    /// Searches a neighbourhood like [`Hopscotch::near`], but with `flaws`.
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
