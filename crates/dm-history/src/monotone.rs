//! A cheap check during a run: after a reader has seen a write of a key, it must not see an older write by the same
//! writer.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use crate::stamp::Stamp;

/// The last values that one reader saw, per key and writer.
///
/// If an index is linearizable, and each writer numbers its writes in ascending order, then the sequence
/// numbers of one writer that one reader sees at one key never decrease. Use one `Monotone` per reader, and
/// record the reader's own writes too.
///
/// ```
/// use dm_history::{Monotone, Stamp};
/// let mut seen = Monotone::new();
/// seen.observe(&"k", Stamp { client: 1, sequence: 5 }).unwrap();
/// let back = seen.observe(&"k", Stamp { client: 1, sequence: 4 }).unwrap_err();
/// assert_eq!((back.seen, back.then), (5, 4));
/// ```
#[derive(Clone, Debug)]
pub struct Monotone<K> {
    last: HashMap<K, Vec<Stamp>>,
}

/// The error that a reader saw an older write after a newer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WentBack<K> {
    /// The key.
    pub key: K,
    /// The writer.
    pub client: u32,
    /// The sequence number that the reader saw before.
    pub seen: u32,
    /// The smaller sequence number that the reader saw now.
    pub then: u32,
}

impl<K: fmt::Debug> fmt::Display for WentBack<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            client,
            seen,
            then,
        } = self;
        write!(
            f,
            "key {key:?} went back from write {seen} to write {then} of client {client}"
        )
    }
}

impl<K: fmt::Debug> std::error::Error for WentBack<K> {}

impl<K> Default for Monotone<K> {
    fn default() -> Self {
        Self { last: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Monotone<K> {
    /// Makes a reader that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that this reader saw (or wrote) `stamp` at `key`.
    ///
    /// # Errors
    /// Returns [`WentBack`] if this reader has seen a later write of the same client at this key.
    pub fn observe(&mut self, key: &K, stamp: Stamp) -> Result<(), WentBack<K>> {
        let Some(writers) = self.last.get_mut(key) else {
            self.last.insert(key.clone(), vec![stamp]);
            return Ok(());
        };
        match writers.iter_mut().find(|last| last.client == stamp.client) {
            Some(last) if last.sequence > stamp.sequence => Err(WentBack {
                key: key.clone(),
                client: stamp.client,
                seen: last.sequence,
                then: stamp.sequence,
            }),
            Some(last) => {
                *last = stamp;
                Ok(())
            }
            None => {
                writers.push(stamp);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_and_keys_are_apart_and_a_repeated_read_is_fine() {
        let mut seen = Monotone::new();
        for (key, client, sequence) in [(1, 1, 5), (1, 1, 5), (1, 2, 1), (2, 1, 1), (1, 1, 6)] {
            seen.observe(&key, Stamp { client, sequence }).unwrap();
        }
        let back = seen
            .observe(
                &1,
                Stamp {
                    client: 1,
                    sequence: 5,
                },
            )
            .unwrap_err();
        assert_eq!(
            back.to_string(),
            "key 1 went back from write 6 to write 5 of client 1"
        );
    }
}
