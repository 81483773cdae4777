//! How nodes are read and written.

use dm_layout::SplitBias;
use dm_verbs::Nanos;

/// Published flaws of reading and splitting, each off by default; for study, each with its counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeafFlaws {
    /// T-S1: an entry whose versions disagree counts as absent instead of being read again.
    pub torn_entry_absent: bool,
    /// T-S2b: a READ that took longer than the version window is not repeated.
    pub no_read_window: bool,
    /// T-S4, T-D6: a split does not wait for the old node's WRITE before the parent, or the separator, leads to the new one.
    pub parent_before_left: bool,
    /// No published flaw, but a broken twin of ours: the right node of a split is not awaited before the left one
    /// points to it (S12).
    pub right_unawaited: bool,
    /// T-C3: the right node of a split is born live, with the entry that made it, while the left one may still be half
    /// written (H6).
    pub right_born_live: bool,
    /// A broken twin of ours: the left node of a merge is open, with the keys of both, before the right one is dead (S24).
    pub open_before_burial: bool,
    /// T-D7: where locks are shared, a removal and an insert into a free slot share the node as an update does: a value lands
    /// under another key.
    pub slots_shared: bool,
    /// T-D14: where locks are shared, an update of a value over several lines shares the node too: of two, each writes the
    /// version that the other does, and their lines stay mixed.
    pub lines_shared: bool,
    /// A merged node is not written dead. For study of reclamation.
    pub unburied: bool,
}

impl LeafFlaws {
    /// None of them: the default.
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

/// How a [`crate::Nodes`] store works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeOptions {
    /// Attempts at a READ that is torn, or at a node that is being split, before a typed error.
    pub attempts: u32,
    /// A READ that took at least this long is repeated: a version may have wrapped meanwhile.
    ///
    /// Between two node-level writes of one node lie at least half its capacity in inserts, each a lock and a write
    /// (≥ 2 round trips). At 8 version bits a wrap takes 256 of them; the default is far below that on any network.
    pub read_window: Nanos,
    /// Where a split cuts.
    pub bias: SplitBias,
    /// The right half of a split goes to any memory node; else beside the left one, as merges need it.
    pub spread: bool,
    /// Nodes of one size and kind use each other's memory again. Different formats must be of different kinds.
    pub kind: u8,
    /// Published flaws.
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
