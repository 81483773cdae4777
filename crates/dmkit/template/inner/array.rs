//! The fence keys and leaves that a compute node has learned. Replace this by a model that predicts leaves.

use dm_index::{KeyBytes, Run};
use dm_sync::{Fingerprint, Mutex, fingerprint_of};
use dm_verbs::RemotePtr;

/// A sorted array of the known leaves. Each entry has a fence key, and the leaf to which this key belonged at some
/// time.
#[derive(Debug)]
pub(super) struct Array<K>(Mutex<Vec<(K, RemotePtr)>>);

impl<K: KeyBytes> Array<K> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Replaces all entries.
    pub(super) fn fill(&self, leaves: &[(K, RemotePtr)]) {
        self.0.with(|known| *known = leaves.to_vec());
    }

    /// Returns the leaf of the last fence key at or below `key`.
    pub(super) fn leaf(&self, key: &K) -> Option<RemotePtr> {
        self.0.with(|known| {
            let after = known.partition_point(|(low, _)| low <= key);
            known[..after].last().map(|(_, leaf)| *leaf)
        })
    }

    /// Appends up to `max` leaves to `run`, beginning with the leaf that [`Array::leaf`] returns.
    pub(super) fn run(&self, key: &K, max: usize, run: &mut Run<K>) {
        self.0.with(|known| {
            let after = known.partition_point(|(low, _)| low <= key);
            if let Some(first) = after.checked_sub(1) {
                let mut found = known[first..].iter().take(max).peekable();
                while let Some((low, leaf)) = found.next()
                    && run.push(*leaf, low, found.peek().map(|(high, _)| high))
                {}
            }
        });
    }

    /// Learns that the key `low` belongs to `leaf`. Every larger key then belongs to this leaf or to one to the right
    /// of it.
    pub(super) fn learn(&self, low: K, leaf: RemotePtr) {
        self.0.with(|known| {
            let after = known.partition_point(|(fence, _)| *fence <= low);
            let (left, right) = known.split_at_mut(after);
            match (left.last_mut(), right.first_mut()) {
                (Some(entry), _) if entry.1 == leaf => {}
                (Some(entry), _) if entry.0 == low => entry.1 = leaf,
                (_, Some(entry)) if entry.1 == leaf => entry.0 = low,
                _ => known.insert(after, (low, leaf)),
            }
        });
    }

    /// Removes every entry that leads to this leaf.
    pub(super) fn forget(&self, leaf: RemotePtr) {
        self.0.with(|known| known.retain(|(_, at)| *at != leaf));
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.0.with(|known| known.len())
    }

    /// Returns the bytes of the allocation.
    pub(super) fn bytes(&self) -> usize {
        self.0
            .with(|known| known.capacity() * size_of::<(K, RemotePtr)>())
    }
}

impl<K: KeyBytes> Fingerprint for Array<K> {
    fn fingerprint(&self) -> u64 {
        self.0.with(|known| fingerprint_of(known))
    }
}
