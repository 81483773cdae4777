//! The search within packed keys.

use core::hint::select_unpredictable;

/// The place of the last of the ascending `keys` that is not above `key`; `None` if all are above.
///
/// A binary search without branches on keys, whose steps are powers of two: fewer instructions a step than one that
/// divides what is left.
#[inline]
pub(crate) fn floor<K: Ord>(keys: &[K], key: &K) -> Option<usize> {
    if keys.first()? > key {
        return None;
    }
    // The answer is in the last `span` keys, or else in the first; the key at `at` is never above `key`.
    let span = 1 << keys.len().ilog2();
    let rest = keys.len() - span;
    let mut at = select_unpredictable(keys[rest] <= *key, rest, 0);
    let mut step = span / 2;
    // There always is a key at `at + step`; what the loop would do about one missing costs less than a panic.
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
        // Miri takes an hour for all of them; every branch is taken within the first few.
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
