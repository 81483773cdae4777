//! Published flaws and broken twins, which the feature `study` switches on.

#[cfg(feature = "study")]
use dm_layout::{EntryFlaws, NearFlaws};
use dm_layout::{KeyBytes, Near, Reach, ValueRef};
#[cfg(feature = "study")]
use dm_leaf::LeafFlaws;

use crate::table::Directory;
use crate::{HopOptions, Neighbourhoods};

/// Published flaws and broken twins of neighbourhoods. All are off by default. `docs/models.md` has a counterexample of
/// each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HopFlaws {
    /// Flaws of searching a neighbourhood: T-C1, T-C2, T-C6, and a broken twin.
    #[cfg(feature = "study")]
    pub near: NearFlaws,
    /// Flaws of checking a single entry.
    #[cfg(feature = "study")]
    pub entry: EntryFlaws,
    /// T-C2: a hop does not change the hop counts.
    pub hop_uncounted: bool,
    /// Broken twin: a writer does not check whether its lock word is suspect.
    pub never_in_doubt: bool,
}

#[cfg(feature = "study")]
impl HopFlaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        near: NearFlaws {
            stops_at_vacancy: false,
            absent_unchecked: false,
            takes_young: false,
            any_range: false,
        },
        entry: EntryFlaws {
            takes_absent: false,
            takes_young: false,
        },
        hop_uncounted: false,
        never_in_doubt: false,
    };
}

/// Broken twins of growing, and flaws of leaves. All are off by default. `docs/models.md` has a counterexample of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableFlaws {
    /// Broken twin: the root word points to a directory whose WRITE was not awaited (H12).
    pub directory_unawaited: bool,
    /// Flaws of neighbourhoods.
    #[cfg(feature = "study")]
    pub hop: HopFlaws,
    /// Flaws of splits.
    #[cfg(feature = "study")]
    pub leaf: LeafFlaws,
}

impl<K: KeyBytes> Neighbourhoods<K> {
    /// Searches a neighbourhood for `key`. With flaw T-C1, an insert stops at the first free slot.
    pub(crate) fn near<'a>(
        &self,
        reach: &Reach,
        parts: (&'a [u8], &'a [u8]),
        key: &K,
        linked: bool,
        inserts: bool,
    ) -> Near<'a> {
        #[cfg(feature = "study")]
        {
            let mut flaws = self.options.flaws.near;
            flaws.stops_at_vacancy &= inserts;
            self.format.near_flawed(reach, parts, key, linked, flaws)
        }
        #[cfg(not(feature = "study"))]
        {
            let _ = inserts;
            self.format.near(reach, parts, key, linked)
        }
    }

    /// Checks one entry that was read alone.
    pub(crate) fn alone<'a>(&self, entry: &'a [u8], key: &K) -> Option<ValueRef<'a>> {
        #[cfg(feature = "study")]
        {
            self.format.alone_flawed(entry, key, self.options.flaws.entry)
        }
        #[cfg(not(feature = "study"))]
        {
            self.format.alone(entry, key)
        }
    }
}

impl HopOptions {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> HopFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = HopFlaws::default();
        flaws
    }
}

impl<K> Directory<K> {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> TableFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = TableFlaws::default();
        flaws
    }
}
