//! Seeded randomness: the splitmix64 generator (Steele, Lea and Flood, OOPSLA 2014).

use dm_verbs::ClientId;

/// A stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Makes a stream of `client`. `None` selects the stream from which the world itself draws.
    pub(crate) fn new(seed: u64, client: ClientId, stream: Option<u32>) -> Self {
        let stream = stream.map_or(0, |stream| u64::from(stream) + 1);
        // Each mixing step makes the streams of neighbouring numbers independent.
        let mut mixed = Self(seed);
        for part in [u64::from(client.0), stream] {
            mixed = Self(mixed.next() ^ part);
        }
        Self(mixed.next())
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_seed_client_and_number_and_repeat() {
        let first = |seed, client, stream| Rng::new(seed, ClientId(client), stream).next();
        let all = [
            first(0, 1, None),
            first(1, 1, None),
            first(0, 2, None),
            first(0, 1, Some(0)),
            first(0, 1, Some(1)),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(first(0, 1, Some(1)), all[4]);
    }
}
