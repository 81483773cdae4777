//! Random numbers that depend only on the seed: splitmix64 (Steele, Lea and Flood 2014) for clients, and a cheaper
//! generator for the model.

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// One stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Makes stream number `stream` of `client`, which is independent of every other stream.
    pub(crate) fn stream(seed: u64, client: u16, stream: u32) -> Self {
        Self(mix(mix(seed ^ 0x5EED)
            ^ u64::from(client) << 32
            ^ u64::from(stream)))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }
}

/// The generator for the model's own random numbers; most verbs need two. It is a linear congruential generator
/// (multiplier: Steele and Vigna 2021). `below` uses only the upper half of the state; `bits` uses the whole state
/// after mixing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed ^ GOLDEN))
    }

    #[inline]
    fn step(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(1);
        self.0
    }

    /// Returns 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        mix(self.step())
    }

    /// Returns a uniform number below `end`, or 0 if `end` is 0. All callers pass an `end` below 2^32, so the
    /// bias is negligible.
    #[inline]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((self.step() >> 32) * end) >> 32
    }
}
