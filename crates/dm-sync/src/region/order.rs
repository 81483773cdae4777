//! The order in which the lines of one READ are served.

/// The order in which a READ's lines are served. An RNIC need not promise any order (`dm_verbs::Caps::read_lines`).
///
/// ```
/// use dm_sync::region::{AtomicUnit, LineOrder, Region};
///
/// let region = Region::anonymous(4096, AtomicUnit::Line)?;
/// region.write(0, &[7; 256])?;
/// let mut bytes = [0; 256];
/// region.read_ordered(0, &mut bytes, LineOrder::Seeded(1))?;
/// assert_eq!(bytes, [7; 256], "nobody wrote meanwhile, so the order does not show");
/// # Ok::<(), dm_sync::region::RegionError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineOrder {
    /// From the lowest address up.
    #[default]
    Increasing,
    /// A permutation drawn from this seed; equal seeds and lengths give equal orders.
    ///
    /// A READ of more than 256 units is served in pieces of 256, which are permuted one after another.
    Seeded(u64),
}

/// Units permuted at once.
const PIECE_UNITS: usize = 256;

impl LineOrder {
    /// Calls `serve` once for each of `0..units`, in this order. Stops at the first error and returns it.
    #[inline]
    pub(super) fn try_for_each<E>(
        self,
        units: usize,
        mut serve: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Increasing => (0..units).try_for_each(serve),
            Self::Seeded(seed) => {
                let mut rng = SplitMix(seed);
                for begin in (0..units).step_by(PIECE_UNITS) {
                    shuffled(PIECE_UNITS.min(units - begin), &mut rng, |i| serve(begin + i))?;
                }
                Ok(())
            }
        }
    }
}

/// Serves the indices below `count` in the order in which a Fisher-Yates shuffle draws them.
fn shuffled<E>(
    count: usize,
    rng: &mut SplitMix,
    mut serve: impl FnMut(usize) -> Result<(), E>,
) -> Result<(), E> {
    let mut indices = [0u8; PIECE_UNITS];
    for (i, slot) in indices.iter_mut().enumerate() {
        *slot = i as u8; // i < 256
    }
    for left in (1..=count).rev() {
        let pick = rng.below(left);
        serve(usize::from(indices[pick]))?;
        indices.swap(pick, left - 1);
    }
    Ok(())
}

/// The splitmix64 generator (Steele, Lea and Flood, OOPSLA 2014), which is good enough for shuffling.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        // The high half of the product is below `bound`, and uniform enough for a shuffle.
        ((u128::from(z) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(order: LineOrder, lines: usize) -> Vec<usize> {
        let mut seen = Vec::new();
        let all: Result<(), ()> = order.try_for_each(lines, |i| {
            seen.push(i);
            Ok(())
        });
        assert_eq!(all, Ok(()));
        seen
    }

    #[test]
    fn every_line_is_served_once_in_the_seed_s_order() {
        for lines in [0, 1, 2, 16, 256, 257, 600] {
            let one = served(LineOrder::Seeded(7), lines);
            assert_eq!(one, served(LineOrder::Seeded(7), lines));
            let mut sorted = one.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..lines).collect::<Vec<_>>());
        }
        assert_ne!(served(LineOrder::Seeded(7), 16), served(LineOrder::Seeded(8), 16));
    }

    #[test]
    fn all_permutations_of_three_come() {
        let seen: std::collections::HashSet<_> = (0..200).map(|s| served(LineOrder::Seeded(s), 3)).collect();
        assert_eq!(seen.len(), 6);
    }
}
