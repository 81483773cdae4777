//! Published flaws and broken twins, which the feature `study` switches on.

use dm_art::ArtFlaws;
use dm_art::SingleFlaws;

/// Published flaws and broken twins. Each can be switched on alone, and all are off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flaws {
    /// Flaws and broken twins of the inner levels: T-M1, T-M3 to T-M8.
    pub inner: ArtFlaws,
    /// Flaws of leaves: T-M2.
    pub leaf: SingleFlaws,
}

impl Flaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        inner: ArtFlaws::NONE,
        leaf: SingleFlaws {
            stale_write_back: false,
        },
    };
}
