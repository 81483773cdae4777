//! Broken twins, which the feature `study` switches on.

/// Broken twins. All are off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flaws {
    /// The root word leads to a table whose WRITEs were not awaited (X3).
    pub table_unawaited: bool,
}

impl Flaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        table_unawaited: false,
    };
}

impl<K: dm_index::KeyBytes, L> crate::Learned<K, L> {
    /// Returns the flaws that are switched on: none without the feature `study`.
    pub(crate) fn flaws(&self) -> Flaws {
        #[cfg(feature = "study")]
        let flaws = self.options.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = Flaws::NONE;
        flaws
    }
}
