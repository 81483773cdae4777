//! Options of reading and writing by the neighbourhood.

use dm_verbs::Nanos;

#[cfg(feature = "study")]
use crate::HopFlaws;

/// Options of a [`crate::Neighbourhoods`] store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopOptions {
    /// The version window. If a get's READ of a neighbourhood, or of a single entry of several lines, took this long or
    /// longer, its result is not used, because a version or a count of hops may have wrapped meanwhile
    /// (docs/protocol/chime.md H2).
    pub read_window: Nanos,
    /// Whether the chain that begins with the lock's CAS reads the neighbourhood, so that an insert finds free slots in
    /// it (CHIME §4.2.1). If not, an insert's chain reads the leaf's header instead, and the neighbourhood takes a
    /// further round trip, as in the paper without this technique.
    pub vacancy_piggyback: bool,
    /// Whether a get reads only the neighbourhood, whose bytes contain the leaf's range (CHIME §4.2.2). If not, it also
    /// reads the header, in the same chain, as in the paper without this technique.
    pub metadata_replication: bool,
    /// Size in bytes of a compute node's hotspot buffer. If it is 0 or too small for one set of entries, there is no
    /// buffer, and there are no speculative reads.
    pub hotspot_bytes: u64,
    /// Whether leaves are merged. If so, a client that removes the last entry of a neighbourhood checks whether the
    /// leaf is nearly empty. (A remove from a leaf whose entries span lines checks this in any case.)
    pub merges: bool,
    /// Published flaws and broken twins that are switched on.
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
