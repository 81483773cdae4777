//! Published flaws and broken twins, which the feature `study` switches on.

use dm_leaf::LeafFlaws;
use dm_lock::LockFlaws;

/// Published flaws and broken twins. All are off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flaws {
    /// Flaws of locks: T-B1 ([`LockFlaws::read_before_share`]) and T-B2 ([`LockFlaws::read_while_shared`]).
    pub locks: LockFlaws,
    /// Flaws of leaves: T-B3 ([`LeafFlaws::pointer_first`]) and T-B4 ([`LeafFlaws::slots_shared`]).
    pub leaf: LeafFlaws,
}

impl Flaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        locks: LockFlaws::NONE,
        leaf: LeafFlaws::NONE,
    };
}
