//! How neighbourhoods are read and written.

use dm_layout::{EntryFlaws, NearFlaws};
use dm_verbs::Nanos;

/// Published flaws and twins of ours, each off by default; for study. `docs/models.md` has a counterexample of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HopFlaws {
    /// Of judging what was read: T-C1, T-C2, T-C6.
    pub near: NearFlaws,
    /// Of judging one entry that was read alone.
    pub entry: EntryFlaws,
    /// T-C2: a hop leaves the node version as it is.
    pub hop_unversioned: bool,
    /// A writer does not ask whether a change of structure failed midway under its lock.
    pub never_in_doubt: bool,
}

impl HopFlaws {
    /// None of them: the default.
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
        hop_unversioned: false,
        never_in_doubt: false,
    };
}

/// How a [`crate::Neighbourhoods`] store works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopOptions {
    /// A READ of a neighbourhood that took at least this long decides nothing: a version may have wrapped meanwhile.
    ///
    /// A version has 6 bits, and an insert that hops takes at most three of them and at least three verbs one after
    /// another. Over a network of 1.6 µs and more a round trip, 63 versions take above 100 µs. (Whole nodes also count their
    /// hops, in 16 bits.)
    pub read_window: Nanos,
    /// An insert learns of free slots by what it reads behind the lock (CHIME §4.2.1). Off: the leaf's header comes first, in
    /// a round trip of its own, as the paper counts an insert before this step.
    pub vacancy_piggyback: bool,
    /// A get learns what the leaf answers for from the bytes of the neighbourhood (CHIME §4.2.2). Off: it reads the
    /// header besides, behind the same doorbell.
    pub metadata_replication: bool,
    /// Bytes of the hotspot buffer of a compute node; 0 for none, and no speculative reads.
    pub hotspot_bytes: u64,
    /// Leaves are merged: whoever removes the last entry of a neighbourhood looks whether the leaf is nearly empty.
    pub merges: bool,
    /// Published flaws.
    pub flaws: HopFlaws,
}

/// Default of [`HopOptions::read_window`].
pub const DEFAULT_READ_WINDOW: Nanos = Nanos::from_micros(100);

impl Default for HopOptions {
    fn default() -> Self {
        Self {
            read_window: DEFAULT_READ_WINDOW,
            vacancy_piggyback: true,
            metadata_replication: true,
            hotspot_bytes: 0,
            merges: true,
            flaws: HopFlaws::default(),
        }
    }
}
