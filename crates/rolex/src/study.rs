//! Broken twins, which the feature `study` switches on.

/// Broken twins. All are off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flaws {
    /// Flaws of the table of leaves.
    pub learned: dm_learned::Flaws,
}

impl Flaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        learned: dm_learned::Flaws::NONE,
    };
}
