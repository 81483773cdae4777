//! Checks of ordered range reads.
//!
//! A scan of an index with concurrent writers is not a snapshot: a key that is inserted or removed during the scan may
//! or may not be in the result. But these properties must always hold: the keys ascend strictly, each key is within
//! the bounds and has a value that was written for it, and no key is missing that existed during the whole scan.

use std::fmt;

/// A fault in the result of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanFault<K> {
    /// The key of item `at` is not greater than the previous key: it is out of order or duplicate.
    NotAscending {
        /// Position in the result.
        at: usize,
        /// The previous key.
        before: K,
        /// The key of item `at`.
        key: K,
    },
    /// Item `at` lies outside the requested range.
    OutOfBounds {
        /// Position in the result.
        at: usize,
        /// The key of item `at`.
        key: K,
    },
    /// There are more items than requested.
    TooMany {
        /// The number of items in the result.
        count: usize,
        /// The number of items requested.
        limit: usize,
    },
    /// The value of item `at` was never written for its key.
    Value {
        /// Position in the result.
        at: usize,
        /// The key of item `at`.
        key: K,
        /// The reason why the value is wrong.
        why: String,
    },
    /// A key that existed during the whole scan is missing.
    Missing {
        /// The key.
        key: K,
    },
}

impl<K: fmt::Debug> fmt::Display for ScanFault<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAscending { at, before, key } => {
                write!(f, "scan item {at}: key {key:?} does not come after {before:?}")
            }
            Self::OutOfBounds { at, key } => {
                write!(f, "scan item {at}: key {key:?} is outside of the requested range")
            }
            Self::TooMany { count, limit } => write!(f, "a scan of at most {limit} items returned {count}"),
            Self::Value { at, key, why } => write!(f, "scan item {at}, key {key:?}: {why}"),
            Self::Missing { key } => write!(f, "the scan leaves out key {key:?}, which existed throughout"),
        }
    }
}

impl<K: fmt::Debug> std::error::Error for ScanFault<K> {}

/// Checks the order, bounds and values of a scan. The scan requested at most `limit` keys, from `low` on and below
/// `high` (`None`: no upper bound).
///
/// ```
/// use dm_history::scan::{ScanFault, check_items};
/// let legal = |key: &u32, value: &u32| if *value == key * 10 { Ok(()) } else { Err("another key's value") };
/// assert_eq!(check_items(&1, Some(&9), 10, &[(1, 10), (4, 40)], legal), Ok(()));
/// let twice = check_items(&1, Some(&9), 10, &[(4, 40), (4, 40)], legal);
/// assert_eq!(twice, Err(ScanFault::NotAscending { at: 1, before: 4, key: 4 }));
/// ```
///
/// # Errors
/// Returns the first [`ScanFault`], if there is one. `legal` checks a value, for example with [`crate::check_value`].
pub fn check_items<K, V, E>(
    low: &K,
    high: Option<&K>,
    limit: usize,
    items: &[(K, V)],
    mut legal: impl FnMut(&K, &V) -> Result<(), E>,
) -> Result<(), ScanFault<K>>
where
    K: Ord + Clone,
    E: fmt::Display,
{
    if items.len() > limit {
        return Err(ScanFault::TooMany {
            count: items.len(),
            limit,
        });
    }
    let mut before: Option<&K> = None;
    for (at, (key, value)) in items.iter().enumerate() {
        if let Some(before) = before.filter(|before| *before >= key) {
            return Err(ScanFault::NotAscending {
                at,
                before: before.clone(),
                key: key.clone(),
            });
        }
        if key < low || high.is_some_and(|high| key >= high) {
            return Err(ScanFault::OutOfBounds { at, key: key.clone() });
        }
        if let Err(why) = legal(key, value) {
            return Err(ScanFault::Value {
                at,
                key: key.clone(),
                why: why.to_string(),
            });
        }
        before = Some(key);
    }
    Ok(())
}

/// Checks that the result of a scan contains every key of `always` in the range that the result covers. `always` must
/// be the keys that existed from the scan's invocation to its return, in ascending order. The result must have passed
/// [`check_items`]. A result of `limit` items covers the range up to its last key; a shorter result covers the whole
/// range.
///
/// ```
/// use dm_history::scan::{ScanFault, check_complete};
///
/// let items = [(1, "a"), (4, "d")];
/// assert_eq!(check_complete(&1, Some(&9), 10, &items, &[1, 4]), Ok(()));
/// assert_eq!(check_complete(&1, Some(&9), 10, &items, &[1, 4, 7]), Err(ScanFault::Missing { key: 7 }));
/// // A result of two requested items covers the range up to the second one.
/// assert_eq!(check_complete(&1, Some(&9), 2, &items, &[1, 4, 7]), Ok(()));
/// ```
///
/// # Errors
/// Returns [`ScanFault::Missing`] for the first missing key, if there is one.
pub fn check_complete<'k, K, V>(
    low: &K,
    high: Option<&K>,
    limit: usize,
    items: &[(K, V)],
    always: impl IntoIterator<Item = &'k K>,
) -> Result<(), ScanFault<K>>
where
    K: Ord + Clone + 'k,
{
    let is_full = items.len() >= limit;
    let last = items.last().map(|(key, _)| key);
    let mut found = items.iter().map(|(key, _)| key).peekable();
    for key in always {
        if key < low {
            continue;
        }
        if high.is_some_and(|high| key >= high) || (is_full && last.is_none_or(|last| key > last)) {
            break;
        }
        while found.next_if(|&candidate| candidate < key).is_some() {}
        if found.peek() != Some(&key) {
            return Err(ScanFault::Missing { key: key.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any_value(_: &u32, _: &()) -> Result<(), &'static str> {
        Ok(())
    }

    fn keys(keys: &[u32]) -> Vec<(u32, ())> {
        keys.iter().map(|&key| (key, ())).collect()
    }

    #[test]
    fn faults_are_named_with_their_place() {
        let check = |found: &[u32], limit| check_items(&10, Some(&20), limit, &keys(found), any_value);
        assert_eq!(check(&[10, 12, 19], 3), Ok(()));
        assert_eq!(
            check(&[12, 11], 3),
            Err(ScanFault::NotAscending {
                at: 1,
                before: 12,
                key: 11
            })
        );
        assert_eq!(check(&[9], 3), Err(ScanFault::OutOfBounds { at: 0, key: 9 }));
        assert_eq!(
            check(&[10, 20], 3),
            Err(ScanFault::OutOfBounds { at: 1, key: 20 })
        );
        assert_eq!(
            check(&[10, 11], 1),
            Err(ScanFault::TooMany { count: 2, limit: 1 })
        );
        let wrong = check_items(&10, None, 3, &keys(&[10, 30]), |key, ()| {
            if *key < 30 { Ok(()) } else { Err("torn") }
        });
        assert_eq!(wrong.unwrap_err().to_string(), "scan item 1, key 30: torn");
    }

    #[test]
    fn a_key_that_was_always_there_must_be_found_within_what_the_scan_answers_for() {
        let check =
            |found: &[u32], limit| check_complete(&10, Some(&20), limit, &keys(found), &[5, 10, 15, 19, 25]);
        assert_eq!(check(&[10, 11, 15, 19], 9), Ok(()));
        assert_eq!(check(&[10, 11, 19], 9), Err(ScanFault::Missing { key: 15 }));
        assert_eq!(
            check(&[10, 15], 9),
            Err(ScanFault::Missing { key: 19 }),
            "it ended early by itself"
        );
        assert_eq!(check(&[10, 15], 2), Ok(()), "it was full");
        assert_eq!(
            check(&[10, 16], 2),
            Err(ScanFault::Missing { key: 15 }),
            "full, but with a hole"
        );
        assert_eq!(check(&[], 0), Ok(()));
        assert_eq!(check(&[], 1), Err(ScanFault::Missing { key: 10 }));
    }
}
