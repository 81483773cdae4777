//! Keys that a benchmark can draw.

use dm_index::{Key8, KeyBytes, KeyN};
use dm_workload::KeySpace;

/// A key that the harness can make from its number in the workload.
pub trait BenchKey: KeyBytes {
    /// Returns key number `index` of `space`. Different numbers give different keys.
    fn nth(space: &KeySpace, index: u64) -> Self;
}

impl BenchKey for Key8 {
    #[inline]
    fn nth(space: &KeySpace, index: u64) -> Self {
        Key8(space.number(index))
    }
}

impl<const N: usize> BenchKey for KeyN<N> {
    fn nth(space: &KeySpace, index: u64) -> Self {
        KeyN(space.bytes(index))
    }
}
