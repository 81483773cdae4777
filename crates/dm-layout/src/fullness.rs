//! The fullness of nodes.

/// The used part of a node, in units that its format chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fullness {
    /// Units taken. If the entries do not fit, this is more than `of`.
    pub taken: usize,
    /// Units in all.
    pub of: usize,
}

impl Fullness {
    /// Returns whether at most one part in `parts` is taken.
    #[must_use]
    pub const fn is_at_most_one_in(self, parts: usize) -> bool {
        self.taken * parts <= self.of
    }

    /// Returns whether at least one part in `parts` is free.
    #[must_use]
    pub const fn leaves_one_in(self, parts: usize) -> bool {
        self.taken * parts <= self.of * (parts - 1)
    }
}
