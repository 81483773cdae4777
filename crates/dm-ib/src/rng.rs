//! Seeded randomness: the splitmix64 generator (Steele, Lea and Flood, OOPSLA 2014).

use dm_verbs::ClientId;

/// A stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Makes stream number `stream` of a client.
    pub(crate) fn new(seed: u64, client: ClientId, stream: u32) -> Self {
        // Each mixing step makes the streams of neighbouring numbers independent.
        let mut mixed = Self(seed);
        for part in [u64::from(client.0), u64::from(stream)] {
            mixed = Self(mixed.next() ^ part);
        }
        Self(mixed.next())
    }

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
        let all = [first(0, 1, 0), first(1, 1, 0), first(0, 2, 0), first(0, 1, 1)];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(first(0, 1, 1), all[3]);
    }
}
