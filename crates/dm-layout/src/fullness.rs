//! The share of a node that is in use.

/// The used share of a node. The format chooses the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fullness {
    /// Units in use. If the entries do not fit, this is more than `of`.
    pub taken: usize,
    /// Total number of units.
    pub of: usize,
}

impl Fullness {
    /// Returns whether at most 1/`parts` of the node is in use.
    #[must_use]
    pub const fn is_at_most_one_in(self, parts: usize) -> bool {
        self.taken * parts <= self.of
    }

    /// Returns whether at least 1/`parts` of the node is free.
    #[must_use]
    pub const fn leaves_one_in(self, parts: usize) -> bool {
        self.taken * parts <= self.of * (parts - 1)
    }
}
