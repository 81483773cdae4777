//! The fullness of nodes.

/// The used part of a node, in units that its format chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fullness {
    /// Units taken. If entries do not fit, this is more than there are.
    pub taken: usize,
    /// Units in all.
    pub of: usize,
}

impl Fullness {
    /// Returns whether at most one in `parts` is taken.
    #[must_use]
    pub const fn is_at_most_one_in(self, parts: usize) -> bool {
        self.taken * parts <= self.of
    }

    /// Returns whether at least one in `parts` is left.
    #[must_use]
    pub const fn leaves_one_in(self, parts: usize) -> bool {
        self.taken * parts <= self.of * (parts - 1)
    }
}
