//! How neighbourhoods are read and written.

use dm_layout::NearFlaws;
use dm_verbs::Nanos;

/// Published flaws and one twin of ours, each off by default; for study. `docs/models.md` has counterexamples of T-C1 and
/// T-C2; the others are not modelled yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HopFlaws {
    /// Of judging what was read: T-C1, T-C2, T-C3, T-C6.
    pub near: NearFlaws,
    /// T-C2: a hop leaves the node version as it is.
    pub hop_unversioned: bool,
    /// A writer does not ask whether a change of structure failed midway under its lock.
    pub never_in_doubt: bool,
}

/// How a [`crate::Neighbourhoods`] store works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopOptions {
    /// A READ of a neighbourhood that took at least this long decides nothing: a version may have wrapped meanwhile.
    ///
    /// A version has 7 bits, and an insert that hops takes at most three of them and at least three verbs one after
    /// another. Over a network of 1.6 µs and more a round trip, 127 versions take above 200 µs. (Whole nodes also count their
    /// hops, in 16 bits.)
    pub read_window: Nanos,
    /// Published flaws.
    pub flaws: HopFlaws,
}

/// Default of [`HopOptions::read_window`].
pub const DEFAULT_READ_WINDOW: Nanos = Nanos::from_micros(200);

impl Default for HopOptions {
    fn default() -> Self {
        Self {
            read_window: DEFAULT_READ_WINDOW,
            flaws: HopFlaws::default(),
        }
    }
}
