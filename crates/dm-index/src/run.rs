//! The leaves that one batch of a scan reads, and the guess of how many leaves the scan needs.

use dm_layout::{KEY_BYTES_MAX, KeyBytes};
use dm_verbs::RemotePtr;

use crate::SCAN_BATCH;

/// Consecutive leaves, which [`Inner::locate_run`](crate::Inner::locate_run) collects for a scan. A run is full as soon
/// as its leaves are expected to contain all entries that the scan needs.
///
/// The expectation assumes that every leaf has as many entries as the leaves that earlier scans of this client have
/// read, and that the keys of the first leaf are spread evenly between its fence keys. If the expectation is wrong, the
/// scan reads a leaf too many, or needs another batch.
#[derive(Clone, Debug)]
pub struct Run<K> {
    leaves: Vec<RemotePtr>,
    /// Number of leaves at the end of `leaves` that the scan reads beside its own.
    beside: usize,
    from: K,
    /// Entries that the scan needs from leaves that the run does not have yet. It may be negative.
    missing: f32,
    /// Average number of entries of a leaf.
    per_leaf: f32,
}

/// Additional entries for which a run takes leaves, as a part of the average leaf. In leaves that random inserts have
/// filled, 6 % of the scans then need another batch, instead of 10 %, and scans read 2 % more leaves.
const MARGIN: f32 = 0.1;
/// The weight of one more leaf in the average number of entries.
const WEIGHT: f32 = 1.0 / 16.0;

impl<K: KeyBytes> Default for Run<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: KeyBytes> Run<K> {
    /// Makes a run that takes any number of leaves.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            leaves: Vec::new(),
            beside: 0,
            from: K::MIN,
            missing: f32::INFINITY,
            per_leaf: 0.0,
        }
    }

    /// Removes all leaves, and prepares the run for a scan that needs `entries` entries from the key `from` on. Until
    /// this client has read a leaf, the run expects `per_leaf` entries in each leaf. Returns the maximum number of
    /// leaves that the run takes.
    pub(crate) fn begin(&mut self, from: K, entries: usize, per_leaf: usize) -> usize {
        if self.per_leaf == 0.0 {
            self.per_leaf = per_leaf as f32;
        }
        self.clear();
        self.from = from;
        self.missing = entries as f32 + MARGIN * self.per_leaf;
        // The scan may begin near the end of the first leaf, and then needs one leaf more.
        ((self.missing / self.per_leaf.max(1.0)).ceil() as usize).saturating_add(1)
    }

    /// Learns that `leaves` leaves have `entries` entries together.
    pub(crate) fn saw(&mut self, leaves: usize, entries: usize) {
        let more = entries as f32 - self.per_leaf * leaves as f32;
        self.per_leaf += more * WEIGHT.min(1.0 / leaves.max(1) as f32);
    }

    /// Removes all leaves.
    pub fn clear(&mut self) {
        self.leaves.clear();
        self.beside = 0;
    }

    /// Returns the leaves.
    #[must_use]
    pub fn leaves(&self) -> &[RemotePtr] {
        &self.leaves
    }

    /// Adds the next leaf, which has keys from `low` to below `high`. Does nothing if the run takes no more leaves.
    /// Returns whether it takes more. A run takes at least one leaf.
    pub fn push(&mut self, leaf: RemotePtr, low: &K, high: Option<&K>) -> bool {
        let part = match (self.leaves.is_empty(), high) {
            (true, Some(high)) => part_behind(&self.from, low, high),
            // The last leaf has no upper fence key. It counts as a whole leaf, because there is no leaf behind it.
            (true, None) | (false, _) => 1.0,
        };
        self.add(leaf, part)
    }

    /// Adds the next leaf, whose fence keys are not known. Does nothing if the run takes no more leaves. Returns
    /// whether it takes more.
    pub fn push_alone(&mut self, leaf: RemotePtr) -> bool {
        // Nothing is known about the part of the first leaf in which the scan begins.
        let part = if self.leaves.is_empty() { 0.0 } else { 1.0 };
        self.add(leaf, part)
    }

    /// Adds a leaf that the scan reads with its own leaves, although the scan does not need it. All of the scan's own
    /// leaves must have been added before. Does nothing if the run has as many leaves as are read in one batch.
    pub fn push_beside(&mut self, leaf: RemotePtr) {
        if self.leaves.len() < SCAN_BATCH {
            self.beside += 1;
            self.leaves.push(leaf);
        }
    }

    /// Lets the run begin at `leaf` instead of the first leaf, which is to the left of it.
    pub(crate) fn replace_first(&mut self, leaf: RemotePtr) {
        if self.own() > 1 && self.leaves.get(1) == Some(&leaf) {
            self.leaves.remove(0);
        } else if let Some(first) = self.leaves.first_mut() {
            *first = leaf;
        }
    }

    /// Returns the number of leaves of the scan, which are the first ones.
    pub(crate) fn own(&self) -> usize {
        self.leaves.len() - self.beside
    }

    fn add(&mut self, leaf: RemotePtr, part: f32) -> bool {
        if self.leaves.is_empty() || self.missing > 0.0 {
            self.leaves.push(leaf);
            self.missing -= part * self.per_leaf;
        }
        self.missing > 0.0
    }
}

/// Returns the part of the range from `low` to `high` that is at or behind `key`, from 0 to 1.
fn part_behind<K: KeyBytes>(key: &K, low: &K, high: &K) -> f32 {
    let [key, low, high] = [key, low, high].map(|key| {
        let mut bytes = [0; KEY_BYTES_MAX + 8];
        key.write_to(&mut bytes);
        bytes
    });
    let Some(first) = (0..K::LEN).find(|&at| low[at] != high[at]) else {
        return 0.0;
    };
    // Numbers of six bytes are exact.
    let number = |bytes: &[u8]| {
        bytes[first..first + 6]
            .iter()
            .fold(0.0, |n, byte| n * 256.0 + f64::from(*byte))
    };
    if key[..first] != low[..first] {
        return if key < low { 1.0 } else { 0.0 };
    }
    let [key, low, high] = [key, low, high].map(|bytes| number(&bytes));
    if high <= low {
        return 0.0;
    }
    ((high - key) / (high - low)).clamp(0.0, 1.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_layout::{Key8, KeyN};
    use dm_verbs::NodeId;

    fn leaf(n: u64) -> RemotePtr {
        RemotePtr::new(NodeId(0), n * 64).expect("in range")
    }

    /// Pushes leaves that each have 100 keys of a range. Returns the number of leaves that the run takes.
    fn taken(from: u64, entries: usize) -> usize {
        let mut run = Run::<Key8>::new();
        run.begin(Key8(from), entries, 100);
        for n in from / 1_000.. {
            let (low, high) = (Key8(n * 1_000), Key8(n * 1_000 + 1_000));
            if !run.push(leaf(n + 1), &low, Some(&high)) {
                assert!(!run.push(leaf(n + 2), &high, None), "it stays full");
                break;
            }
        }
        run.leaves().len()
    }

    #[test]
    fn a_run_that_begins_at_its_second_leaf_reads_it_once() {
        let run_of = |first, beside: bool| {
            let mut run = Run::<Key8>::new();
            run.push_alone(leaf(1));
            match beside {
                true => run.push_beside(leaf(2)),
                false => drop(run.push_alone(leaf(2))),
            }
            run.replace_first(leaf(first));
            run.leaves().to_vec()
        };
        assert_eq!(run_of(3, false), [leaf(3), leaf(2)]);
        assert_eq!(run_of(2, false), [leaf(2)]);
        assert_eq!(
            run_of(2, true),
            [leaf(2), leaf(2)],
            "the second leaf is not the scan's own"
        );
    }

    #[test]
    fn a_run_ends_where_the_scan_does() {
        // With the margin of 10, 90 entries need one leaf if the scan begins at the leaf's front, and two if it begins
        // in the middle of a leaf.
        assert_eq!(
            [taken(0, 90), taken(0, 91), taken(500, 40), taken(500, 90)],
            [1, 2, 1, 2]
        );
        assert_eq!([taken(7_900, 100), taken(7_900, 101), taken(7_999, 1)], [2, 3, 2]);
    }

    #[test]
    fn a_run_without_fences_reads_a_leaf_more() {
        let mut run = Run::<Key8>::new();
        run.begin(Key8(0), 90, 100);
        assert!(run.push_alone(leaf(1)));
        assert!(!run.push_alone(leaf(2)));
        assert_eq!(run.leaves(), [leaf(1), leaf(2)]);
        run.begin(Key8(0), 0, 100);
        assert!(run.push_alone(leaf(3)), "the margin is missing");
    }

    #[test]
    fn a_scan_without_a_limit_takes_all_leaves() {
        let mut run = Run::<Key8>::new();
        assert_eq!(run.begin(Key8(0), usize::MAX, 1), usize::MAX);
        assert!((1..100).all(|n| run.push_alone(leaf(n))));
    }

    #[test]
    fn a_run_learns_how_full_leaves_are() {
        let mut run = Run::<Key8>::new();
        run.begin(Key8(0), 100, 100);
        for _ in 0..200 {
            run.saw(2, 100);
        }
        run.begin(Key8(0), 100, 100);
        let pushed = (1..).take_while(|n| run.push(leaf(*n), &Key8(n * 10), Some(&Key8(n * 10 + 10))));
        assert_eq!(pushed.count() + 1, 3);
    }

    #[test]
    fn long_keys_are_compared_behind_their_common_part() {
        let key = |last: u8| {
            let mut bytes = [7; 32];
            bytes[31] = last;
            KeyN(bytes)
        };
        let part = |from: u8| part_behind(&key(from), &key(10), &key(20));
        assert_eq!(
            [part(10), part(15), part(20), part(3), part(90)],
            [1.0, 0.5, 0.0, 1.0, 0.0]
        );
        assert_eq!(part_behind(&KeyN([0; 32]), &key(10), &key(20)), 1.0);
        assert_eq!(part_behind(&KeyN([9; 32]), &key(10), &key(20)), 0.0);
        assert_eq!(part_behind(&key(1), &key(1), &key(1)), 0.0);
    }
}
