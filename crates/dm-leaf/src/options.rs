//! Options of reading and writing nodes.

use dm_layout::SplitBias;
use dm_verbs::Nanos;

/// Published flaws of reading and splitting nodes, for study. All are off by default, and each has a counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeafFlaws {
    /// T-S1: an entry whose versions disagree counts as absent instead of being read again.
    pub torn_entry_absent: bool,
    /// T-S2b: a READ that took longer than the version window is not repeated.
    pub no_read_window: bool,
    /// T-S4, T-D6: a split does not wait for the WRITE of the old node before the parent, or the separator, leads to
    /// the new one.
    pub parent_before_left: bool,
    /// Our own broken twin: the right node of a split is not awaited before the left node points to it (S12).
    pub right_unawaited: bool,
    /// T-C3: the right node of a split is live from the start and holds the entry that caused the split, while the
    /// left node may still be half written (H6).
    pub right_born_live: bool,
    /// Our own broken twin: a merge opens the left node, with the keys of both, before the right node is dead (S24).
    pub open_before_burial: bool,
    /// T-D7: if locks are shared, a remove, and an insert into a free slot, share the node's lock as an update does.
    /// A value can end up under another key.
    pub slots_shared: bool,
    /// T-D14: if locks are shared, an update of a value that spans several lines shares the node's lock too. Two
    /// concurrent updates then write the same version, and their lines stay mixed.
    pub lines_shared: bool,
    /// A merged node is not marked dead. For the study of reclamation.
    pub unburied: bool,
}

impl LeafFlaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        torn_entry_absent: false,
        no_read_window: false,
        parent_before_left: false,
        right_unawaited: false,
        right_born_live: false,
        slots_shared: false,
        lines_shared: false,
        open_before_burial: false,
        unburied: false,
    };
}

/// Options of a [`crate::Nodes`] store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeOptions {
    /// Maximum number of attempts at a READ that is torn, or at a node that is being split; then the operation
    /// returns an error.
    pub attempts: u32,
    /// The version window: a READ that took at least this long is repeated, because a version may have wrapped
    /// meanwhile.
    ///
    /// Between two node-level writes of one node lie at least half its capacity in inserts, each of which locks and
    /// writes the node (at least 2 round trips). With versions of 8 bits, a wrap takes 256 node-level writes. On any
    /// network the default is far below that time.
    pub read_window: Nanos,
    /// The position at which a node is split.
    pub bias: SplitBias,
    /// Whether the right half of a split may go to any memory node. If not, it goes to the memory node of the left
    /// half, which merges require.
    pub spread: bool,
    /// The kind of node. Nodes of the same size and kind reuse each other's memory, so different formats must have
    /// different kinds.
    pub kind: u8,
    /// Published flaws that are switched on.
    pub flaws: LeafFlaws,
}

/// Default of [`NodeOptions::read_window`].
pub const DEFAULT_READ_WINDOW: Nanos = Nanos::from_micros(1_000);
/// Default of [`NodeOptions::attempts`].
pub const DEFAULT_ATTEMPTS: u32 = 1 << 20;

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            attempts: DEFAULT_ATTEMPTS,
            read_window: DEFAULT_READ_WINDOW,
            bias: SplitBias::Median,
            spread: false,
            kind: 0,
            flaws: LeafFlaws::default(),
        }
    }
}
