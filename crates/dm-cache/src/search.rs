//! The search within packed keys.

use core::hint::select_unpredictable;

/// Returns the position of the last of the ascending `keys` that is not above `key`, or `None` if all are
/// above.
///
/// This is a binary search without branches on keys. Its steps are powers of two, which takes fewer
/// instructions per step than halving the remaining range.
#[inline]
pub(crate) fn floor<K: Ord>(keys: &[K], key: &K) -> Option<usize> {
    if keys.first()? > key {
        return None;
    }
    // The result is among the last `span` keys or among the first `span` keys. In each step of the loop, the key at
    // `at` is not above `key`.
    let span = 1 << keys.len().ilog2();
    let rest = keys.len() - span;
    let mut at = select_unpredictable(keys[rest] <= *key, rest, 0);
    let mut step = span / 2;
    // There is always a key at `at + step`. `get` is used here because it costs less than indexing, which can panic.
    while let Some(middle) = keys.get(at + step)
        && step > 0
    {
        at = select_unpredictable(*middle <= *key, at + step, at);
        step /= 2;
    }
    Some(at)
}

#[cfg(all(test, not(dm_loom)))]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_walk_finds() {
        // Miri would take an hour for all lengths, and the first few lengths reach every branch.
        let longest = if cfg!(miri) { 20 } else { 1000 };
        for len in (0..160u32)
            .chain([255, 256, 257, 1000])
            .filter(|len| *len <= longest)
        {
            let keys: Vec<u32> = (0..len).map(|i| 2 * i + 1).collect();
            for key in 0..2 * len + 3 {
                let expected = keys.iter().rposition(|other| *other <= key);
                assert_eq!(floor(&keys, &key), expected, "{key} among {len}");
            }
        }
    }
}
