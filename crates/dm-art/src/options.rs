//! How a tree works.

use dm_index::CpuCost;
use dm_layout::NodeTypes;
use dm_verbs::Nanos;

/// Default of [`ArtOptions::cache_bytes`].
pub const DEFAULT_CACHE_BYTES: u64 = 64 << 20;
/// Default of [`ArtOptions::turn`].
pub const DEFAULT_TURN: Nanos = Nanos::from_millis(4_000);
/// Default of [`ArtOptions::depth_slack`].
pub const DEFAULT_DEPTH_SLACK: u8 = 1;
/// Default of [`ArtOptions::attempts`].
pub const DEFAULT_ATTEMPTS: u32 = 1 << 20;

/// Published flaws, each off by default; for study, each with its counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArtFlaws {
    /// T-M1: who finds a leaf's link depth other than the way it came by puts it right, without looking whether that way
    /// is still the leaf's.
    pub repairs_unchecked: bool,
    /// T-M3: the leaf learns that its link moved deeper after the slot says so, and nobody waits for it.
    pub depth_unawaited: bool,
    /// T-M4: a node that is full is copied without being frozen; who filled one of its slots meanwhile is not told.
    pub switch_unfrozen: bool,
    /// T-M5: a slot that loses its child becomes empty: any key byte may come there.
    pub removal_empties: bool,
    /// T-M6: a merge freezes the slots that have children, not the empty ones.
    pub merge_leaves_empties: bool,
    /// T-M7: a scan whose beginning is cached looks only below the cached node.
    pub scan_trusts_cache: bool,
    /// Nowhere published: cached nodes are used for ever, while their memory is used again.
    pub cache_unpinned: bool,
    /// Nowhere published: who needs a frozen slot waits until whoever froze it has renewed its node.
    pub renewal_waits: bool,
    /// Nowhere published: a block goes back though something may still land in it.
    pub gives_back_early: bool,
}

/// How an [`crate::Art`] works.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArtOptions {
    /// The sizes of nodes. All clients of a tree must use the same.
    pub types: NodeTypes,
    /// Budget of a compute node's cache of inner nodes, bytes.
    pub cache_bytes: u64,
    /// Attempts of an operation's loop before a typed error.
    pub attempts: u32,
    /// Where memory is used again: how long at least cached nodes are good for. Twice as long at most, and for ever as long as
    /// nothing is retired.
    pub turn: Nanos,
    /// Key bytes by which a leaf's link depth is larger than it need be. A split that far below needs no FAA; in return
    /// it takes a second READ to prove a key absent whose slot leads to another's leaf.
    pub depth_slack: u8,
    /// CPU time of each operation.
    pub cpu: CpuCost,
    /// Published flaws.
    pub flaws: ArtFlaws,
}

impl Default for ArtOptions {
    fn default() -> Self {
        Self {
            types: NodeTypes::SHIPPED,
            cache_bytes: DEFAULT_CACHE_BYTES,
            attempts: DEFAULT_ATTEMPTS,
            turn: DEFAULT_TURN,
            depth_slack: DEFAULT_DEPTH_SLACK,
            cpu: CpuCost::NONE,
            flaws: ArtFlaws::default(),
        }
    }
}
