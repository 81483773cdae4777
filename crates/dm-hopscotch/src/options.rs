//! How neighbourhoods are read and written.

use dm_verbs::Nanos;

#[cfg(feature = "study")]
use crate::HopFlaws;

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
    #[cfg(feature = "study")]
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
            #[cfg(feature = "study")]
            flaws: HopFlaws::default(),
        }
    }
}
