//! Published flaws and broken twins, which the feature `study` switches on.

use dm_hopscotch::HopFlaws;
use dm_leaf::LeafFlaws;

/// Published flaws and broken twins, each with a switch of its own. All are off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flaws {
    /// Flaws of reading and writing by the neighbourhood: T-C1, T-C2, T-C6.
    pub hop: HopFlaws,
    /// Flaws of splits and merges: T-C3, and the flaws of Sherman's leaves.
    pub leaf: LeafFlaws,
}

impl Flaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        hop: HopFlaws::NONE,
        leaf: LeafFlaws::NONE,
    };
}
