//! Published flaws and broken twins, which the feature `study` switches on.

use dm_leaf::LeafFlaws;

/// Published flaws and broken twins. All are off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flaws {
    /// T-D3: an update with a share of its leaf's lock returns as soon as the chain with its WRITE is posted.
    pub unawaited: bool,
    /// Flaws of leaves: T-D6 ([`LeafFlaws::parent_before_left`]), T-D7 ([`LeafFlaws::slots_shared`]), T-D14
    /// ([`LeafFlaws::lines_shared`]), and the flaws of splits and merges in Sherman's leaves. T-D12 is
    /// [`SeparatorOptions::exact`](dm_art::SeparatorOptions::exact).
    pub leaf: LeafFlaws,
}

impl Flaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        unawaited: false,
        leaf: LeafFlaws::NONE,
    };
}
