//! A small random number generator for scripts.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). It is meant for scripts, not for statistics.
///
/// ```
/// use dm_testkit::Rng;
///
/// let (mut script, mut again) = (Rng::new(7, 0), Rng::new(7, 0));
/// assert_eq!(script.word(), again.word());
/// assert!(script.below(10) < 10);
/// assert_ne!(script.word(), Rng::new(7, 1).word(), "another stream of the same seed");
/// ```
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Makes stream number `stream` of `seed`.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        // Neighbouring seeds differ in few bits, so one step mixes them first.
        Self(rng.word())
    }

    /// Returns the next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The bias of the multiplication is below limit / 2^64.
        let wide = u128::from(self.word()) * u128::from(limit);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
}
