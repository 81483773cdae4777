//! How full nodes are.

/// How much of a node is taken, whatever the parts are that its format reckons in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fullness {
    /// Parts that are taken. More than there are, where entries do not fit.
    pub taken: usize,
    /// Parts that there are.
    pub of: usize,
}

impl Fullness {
    /// Whether at most one in `parts` is taken.
    #[must_use]
    pub const fn is_at_most_one_in(self, parts: usize) -> bool {
        self.taken * parts <= self.of
    }

    /// Whether at least one in `parts` is left.
    #[must_use]
    pub const fn leaves_one_in(self, parts: usize) -> bool {
        self.taken * parts <= self.of * (parts - 1)
    }
}
