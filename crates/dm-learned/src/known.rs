//! A compute node's copy of the table, its models, and the leaves that it has learned since.

use core::ops::Bound::{Excluded, Included, Unbounded};
use std::collections::BTreeMap;

use dm_index::{CHILD_BYTES, Child, IndexError, KeyBound, KeyBytes, Run};
use dm_layout::KEY_BYTES_MAX;
use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::RemotePtr;

use crate::learned::Predicts;
use crate::models::Models;
use crate::table::Root;

/// A leaf's address in a copy of the table.
type Address = [u8; CHILD_BYTES];

/// An entry: a key, and the leaf of this key or a leaf to the left of that. It serves all keys from this one up to the
/// next entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct LeafHint<K> {
    pub(crate) low: K,
    pub(crate) leaf: RemotePtr,
}

/// A compute node's copy of the table.
///
/// # Invariants
/// * **I1** Each entry leads to the leaf of its key, or to a leaf to the left, or to the memory of a leaf that was
///   merged away.
/// * **I2** If there is an entry, there is one of the smallest key, and it leads to the first leaf.
#[derive(Debug, Hash)]
pub(crate) struct Known<K: KeyBytes> {
    root: Option<Root>,
    /// The low fence keys of the leaves of the table, or of a part of all known leaves. `leaves` has their addresses.
    lows: Vec<K>,
    leaves: Vec<Address>,
    models: Models,
    /// Whether the copy has each leaf of the table, so that successive entries lead to neighbouring leaves.
    is_complete: bool,
    /// Number of leaves in the table, plus those that this compute node knows to have been made since.
    total: usize,
    /// Number of leaves that this compute node knows, and that the table does not have.
    missing: usize,
    /// The part of `missing` that [`Known::claims_table`] has counted already.
    claimed: usize,
    /// Leaves that were learned since, and are not in `lows`.
    learned: BTreeMap<K, RemotePtr>,
    error: u32,
    predicts: Predicts,
    budget: u64,
}

/// Number of entries that the public code of ROLEX adds to the error above a predicted entry.
const MORE_ABOVE: usize = 2;

/// Maximum number of leaves in a run, without synonym leaves. With a larger error, an operation reads one leaf.
const RUN_MAX: usize = 16;

/// Returns the first 64 bits of a key.
fn lead<K: KeyBytes>(key: &K) -> u64 {
    let mut bytes = [0; KEY_BYTES_MAX];
    key.write_to(&mut bytes);
    bytes.first_chunk().map_or(0, |lead| u64::from_be_bytes(*lead))
}

/// Returns the address of a leaf that fits into a table.
fn packed(leaf: RemotePtr) -> Result<Address, IndexError> {
    let child = Child::of(leaf, CHILD_BYTES)?;
    let mut address = [0; CHILD_BYTES];
    address.copy_from_slice(child.bytes());
    Ok(address)
}

impl<K: KeyBytes> Known<K> {
    /// Makes an empty copy whose models predict with this maximum error, and which will take about `budget` bytes at
    /// most.
    pub(crate) fn new(predicts: Predicts, error: u32, budget: u64) -> Self {
        Self {
            root: None,
            lows: Vec::new(),
            leaves: Vec::new(),
            models: Models::default(),
            is_complete: true,
            total: 0,
            missing: 0,
            claimed: 0,
            learned: BTreeMap::new(),
            error,
            predicts,
            budget,
        }
    }

    pub(crate) fn root(&self) -> Option<Root> {
        self.root
    }

    /// Replaces the copy by the table of `root`, and trains the models.
    pub(crate) fn adopt(&mut self, root: Root, entries: &[(K, RemotePtr)]) -> Result<(), IndexError> {
        self.is_complete = true;
        (self.total, self.missing, self.claimed) = (entries.len(), 0, 0);
        let fits = Self::table_bytes(entries) <= self.budget;
        self.fill(entries, if fits { self.budget } else { self.sample_budget() })?;
        self.root = Some(root);
        Ok(())
    }

    /// Returns the bytes of a complete copy of these entries.
    fn table_bytes(entries: &[(K, RemotePtr)]) -> u64 {
        (entries.len() * (K::LEN + CHILD_BYTES)) as u64
    }

    /// Returns the bytes for a part of the table. The rest of the budget is for leaves that are learned later.
    fn sample_budget(&self) -> u64 {
        self.budget / 4 * 3
    }

    /// Replaces the content of the copy. If not all entries fit into `budget`, takes every second, third, … one. A key
    /// whose own entry is not taken then has an entry that leads to a leaf further left.
    fn fill(&mut self, entries: &[(K, RemotePtr)], budget: u64) -> Result<(), IndexError> {
        let bytes = Self::table_bytes(entries);
        let step = usize::try_from(bytes.div_ceil(budget.max(1))).unwrap_or(usize::MAX);
        let step = step.max(1);
        let taken = || entries.iter().step_by(step);
        self.leaves = taken().map(|(_, leaf)| packed(*leaf)).collect::<Result<_, _>>()?;
        self.lows = taken().map(|(low, _)| *low).collect();
        self.leaves.shrink_to_fit();
        let slots = match self.predicts {
            Predicts::Leaf => 1,
            Predicts::Run { span } => span,
        };
        self.models = Models::train_slots(self.lows.iter().map(lead), self.error, slots);
        self.is_complete &= step == 1;
        self.learned = BTreeMap::new();
        Ok(())
    }

    /// Returns the average number of leaves for each entry of the copy, or 0 if the copy has all leaves.
    pub(crate) fn gap(&self) -> u32 {
        match self.is_complete {
            true => 0,
            false => u32::try_from(self.total / self.len().max(1)).unwrap_or(u32::MAX),
        }
    }

    /// Returns the position in `lows` of the last entry that `bound` admits for a key.
    fn position(&self, key: &K, bound: KeyBound) -> Option<usize> {
        let includes = |i: usize| match bound {
            KeyBound::At => self.lows[i] <= *key,
            KeyBound::Below => self.lows[i] < *key,
        };
        self.models.count_to(lead(key), includes).checked_sub(1)
    }

    fn listed(&self, position: usize) -> LeafHint<K> {
        LeafHint {
            low: self.lows[position],
            leaf: Child::decode(&self.leaves[position]),
        }
    }

    /// Returns the last entry that `bound` admits for a key.
    #[inline]
    pub(crate) fn entry(&self, key: &K, bound: KeyBound) -> Option<LeafHint<K>> {
        let listed = self.position(key, bound).map(|position| self.listed(position));
        if self.learned.is_empty() {
            return listed;
        }
        let learned = match bound {
            KeyBound::At => self.learned.range(..=key).next_back(),
            KeyBound::Below => self.learned.range(..key).next_back(),
        };
        let learned = learned.map(|(low, leaf)| LeafHint {
            low: *low,
            leaf: *leaf,
        });
        match (listed, learned) {
            (Some(listed), Some(learned)) if learned.low < listed.low => Some(listed),
            (listed, learned) => learned.or(listed),
        }
    }

    /// Returns the entries above a key.
    fn above(&self, key: K) -> impl Iterator<Item = LeafHint<K>> {
        let from = self
            .position(&key, KeyBound::At)
            .map_or(0, |position| position + 1);
        let listed = (from..self.lows.len()).map(|position| self.listed(position));
        let learned = self
            .learned
            .range((Excluded(key), Unbounded))
            .map(|(low, leaf)| LeafHint {
                low: *low,
                leaf: *leaf,
            });
        let (mut listed, mut learned) = (listed.peekable(), learned.peekable());
        core::iter::from_fn(move || match (listed.peek(), learned.peek()) {
            (Some(a), Some(b)) if a.low == b.low => {
                let _replaced = listed.next();
                learned.next()
            }
            (Some(a), Some(b)) if b.low < a.low => learned.next(),
            (None, Some(_)) => learned.next(),
            _ => listed.next(),
        })
    }

    /// Appends up to `max` leaves to `run`, beginning with the leaf that [`Known::entry`] returns. If the copy lacks
    /// leaves of the table, appends only this one. If the models predict runs, adds the leaves of
    /// [`Known::beside_scan`].
    pub(crate) fn run(&self, key: &K, max: usize, run: &mut Run<K>) {
        let Some(first) = self.entry(key, KeyBound::At) else {
            return;
        };
        if !self.is_complete {
            run.push_alone(first.leaf);
            return;
        }
        let mut above = self.above(*key);
        let (mut current, mut last) = (first, first.low);
        for _ in 0..max {
            last = current.low;
            // Several entries lead to one leaf if an entry between them was dropped.
            let following = above.find(|hint| hint.leaf != current.leaf);
            let takes = run.push(
                current.leaf,
                &current.low,
                following.as_ref().map(|hint| &hint.low),
            );
            match following {
                Some(hint) if takes => current = hint,
                _ => break,
            }
        }
        if self.predicts != Predicts::Leaf {
            for leaf in self.beside_scan((key, &first), &last) {
                run.push_beside(leaf);
            }
        }
    }

    /// Returns the leaves that the predictions for the two ends of a scan admit, without those from the scan's first to
    /// its last leaf. The leaves to the right come first, in order. Leaves that were learned are included. On each
    /// side, there are at most two leaves for each position that the prediction admits beside the end's own.
    fn beside_scan(&self, (key, first): (&K, &LeafHint<K>), last: &K) -> impl Iterator<Item = RemotePtr> {
        let admitted = |key| self.models.admitted(lead(key), MORE_ABOVE);
        let (left, right) = (admitted(key), admitted(last));
        let most = [&left, &right].map(|admitted| 2 * (admitted.len() - 1));
        let (left, end) = (self.listed(left.start), self.lows[right.end - 1]);
        let (leaf, low) = (first.leaf, first.low);
        let right = self.above(*last).take_while(move |hint| hint.low <= end);
        let left = core::iter::once(left).chain(self.above(left.low));
        let left = left.take_while(move |hint| hint.low < low && hint.leaf != leaf);
        let sides = right.take(most[1]).chain(left.take(most[0]));
        sides.map(|hint| hint.leaf)
    }

    /// Appends to `leaves` the leaves that the prediction for a key admits. With `synonyms`, each is followed by one of
    /// its synonym leaves, if this compute node knows any: these are leaves that were split off since the table was
    /// written. The synonym leaf of the key's leaf is the one that [`Known::entry`] returns. Appends nothing if the
    /// copy has only a part of the leaves, or if there are more than [`RUN_MAX`] of them.
    pub(crate) fn predicted(&self, key: &K, synonyms: bool, leaves: &mut impl Extend<RemotePtr>) {
        if !self.is_complete || self.lows.is_empty() {
            return;
        }
        let admitted = self.models.admitted(lead(key), MORE_ABOVE);
        if admitted.len() > RUN_MAX {
            return;
        }
        let mut last = None;
        for position in admitted {
            let listed = self.listed(position);
            // Several entries lead to one leaf if entries were dropped.
            if last.replace(listed.leaf) != Some(listed.leaf) {
                leaves.extend([listed.leaf]);
            }
            if !synonyms || self.learned.is_empty() {
                continue;
            }
            let from = Included(listed.low);
            let end = self.lows.get(position + 1);
            let to = end.map_or(Unbounded, |end| Excluded(*end));
            let at_or_below = match end {
                Some(end) if end <= key => Excluded(*end),
                _ => Included(*key.max(&listed.low)),
            };
            let below = self.learned.range((from, at_or_below)).next_back();
            let synonym = below.or_else(|| self.learned.range((from, to)).next());
            leaves.extend(synonym.map(|(_, leaf)| *leaf));
        }
    }

    /// Learns that `leaf` covers `low`. The leaf of every larger key is then this leaf, or one to the right of it. If
    /// the budget is used up, the copy keeps a part of its entries.
    ///
    /// A copy that already is a part keeps its part of the table, and drops every second learned leaf instead. Leaves
    /// are learned where operations are frequent. If such a copy took a part of all its entries again, it would have
    /// fewer entries each time where operations are rare, and the steps from one entry to the next would grow there
    /// without bound.
    pub(crate) fn learn(&mut self, low: K, leaf: RemotePtr) {
        let known = self.entry(&low, KeyBound::At);
        if low == K::MIN || known.is_none_or(|hint| hint.leaf == leaf) {
            return;
        }
        // The next entry may lead to the same leaf, because it was learned from a larger key.
        let next = self.learned.range((Excluded(low), Unbounded)).next();
        let same = next.filter(|(_, at)| **at == leaf).map(|(key, _)| *key);
        if let Some(larger) = same {
            self.learned.remove(&larger);
        }
        self.learned.insert(low, leaf);
        if self.is_complete && same.is_none() {
            self.total += 1;
            self.missing += 1;
        }
        if self.bytes() <= self.budget {
            return;
        }
        if self.is_complete {
            let first = self.entry(&K::MIN, KeyBound::At).into_iter();
            let all = first.chain(self.above(K::MIN)).map(|hint| (hint.low, hint.leaf));
            let all: Vec<_> = all.collect();
            let _filled_or_as_before = self.fill(&all, self.sample_budget());
            // Irregular keys need many models, which may take the rest of the budget.
            if self.bytes() > self.budget {
                let _filled_or_as_before = self.fill(&all, self.budget / 2);
            }
        } else {
            let mut keeps = false;
            self.learned.retain(|_, _| {
                keeps = !keeps;
                keeps
            });
        }
    }

    /// Learns of a leaf that this compute node has just made.
    pub(crate) fn split(&mut self, low: K, leaf: RemotePtr) {
        if !self.is_complete {
            self.total += 1;
            self.missing += 1;
        }
        self.learn(low, leaf);
    }

    /// Drops the entry of `key`, if it leads to `leaf`, which is not the key's leaf.
    pub(crate) fn forget_of(&mut self, key: &K, leaf: RemotePtr) {
        if let Some(hint) = self.entry(key, KeyBound::At).filter(|hint| hint.leaf == leaf) {
            self.forget(hint);
        }
    }

    /// Drops an entry, if it still leads to this leaf. Its keys then belong to the nearest entry on the left that leads
    /// to another leaf. The entries in between lead to the same leaf, and are dropped too. The entry of the smallest
    /// key stays, because the first leaf never dies. Returns `false`, and drops nothing, if the entry leads to the
    /// first leaf.
    pub(crate) fn forget(&mut self, hint: LeafHint<K>) -> bool {
        let mut dropped = Vec::new();
        let mut last = hint;
        while last.low > K::MIN && last.leaf == hint.leaf {
            dropped.push(last);
            match self.entry(&last.low, KeyBound::Below) {
                Some(before) => last = before,
                None => return false,
            }
        }
        if last.leaf == hint.leaf {
            return false;
        }
        let Ok(address) = packed(last.leaf) else {
            return false;
        };
        for entry in dropped {
            if self.learned.get(&entry.low) == Some(&entry.leaf) {
                self.learned.remove(&entry.low);
            }
            let position = self.position(&entry.low, KeyBound::At);
            if let Some(position) = position.filter(|position| self.listed(*position) == entry) {
                self.leaves[position] = address;
            }
        }
        true
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.lows.len() + self.learned.len()
    }

    /// Returns the number of leaves that this compute node knows, and that the table does not have.
    pub(crate) fn missing(&self) -> usize {
        self.missing
    }

    /// Returns whether the caller should write a table of all leaves: at least `min` leaves, and at least half of all,
    /// are missing in the table, and there are at most `max`. The leaves that were counted for one caller do not count
    /// for the next one, whether the first one succeeds or not.
    pub(crate) fn claims_table(&mut self, min: usize, max: usize) -> bool {
        let claims = self.missing - self.claimed >= min.max(self.total / 2) && self.total <= max;
        if claims {
            self.claimed = self.missing;
        }
        claims
    }

    /// Returns the number of leaves of the index, as far as this compute node knows.
    pub(crate) fn leaves(&self) -> usize {
        self.total
    }

    /// Returns the number of models.
    pub(crate) fn models(&self) -> usize {
        self.models.count()
    }

    /// Returns the bytes of all allocations. Those of the learned leaves are estimated: the nodes of the standard
    /// library's map are about two thirds full.
    pub(crate) fn bytes(&self) -> u64 {
        let table = self.lows.capacity() * size_of::<K>() + self.leaves.capacity() * CHILD_BYTES;
        let learned = self.learned.len() * (size_of::<(K, RemotePtr)>() + 2) * 3 / 2;
        (table + self.models.heap_bytes() + learned) as u64
    }
}

impl<K: KeyBytes> Fingerprint for Known<K> {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(self)
    }
}

#[cfg(test)]
mod tests {
    use dm_layout::{Key8, KeyN};
    use dm_verbs::NodeId;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    fn leaf(n: u64) -> RemotePtr {
        RemotePtr::new(NodeId(0), n * 64).expect("in range")
    }

    fn root() -> Root {
        Root::of_leaf(leaf(1))
    }

    fn known(lows: &[u64]) -> Known<Key8> {
        let mut known = Known::new(Predicts::Leaf, 4, u64::MAX);
        let entries: Vec<_> = (1..).zip(lows).map(|(n, low)| (Key8(*low), leaf(n))).collect();
        known.adopt(root(), &entries).expect("the addresses fit");
        known
    }

    fn leaf_of(known: &Known<Key8>, key: u64) -> RemotePtr {
        known.entry(&Key8(key), KeyBound::At).expect("a first leaf").leaf
    }

    #[test]
    fn a_dropped_entry_leads_to_the_leaf_on_its_left() {
        let mut known = known(&[0, 10, 20, 30]);
        let all = [5, 10, 25, u64::MAX].map(|key| leaf_of(&known, key));
        assert_eq!(all, [1, 2, 3, 4].map(leaf));
        let wrong = known.entry(&Key8(25), KeyBound::At).expect("an entry");
        known.forget(wrong);
        assert_eq!(leaf_of(&known, 25), leaf(2));
        assert_eq!(leaf_of(&known, 30), leaf(4));
        known.forget(wrong);
        assert_eq!(
            leaf_of(&known, 25),
            leaf(2),
            "the entry does not lead there any more"
        );
        known.forget(LeafHint {
            low: Key8(0),
            leaf: leaf(1),
        });
        assert_eq!(leaf_of(&known, 5), leaf(1));
        let mut run = Run::new();
        known.run(&Key8(12), 10, &mut run);
        assert_eq!(run.leaves(), [2, 4].map(leaf));
    }

    /// If the entry led to that leaf again, a client would follow the same address for ever.
    #[test]
    fn an_entry_does_not_lead_to_a_leaf_again_that_it_was_dropped_for() {
        let mut known = known(&[0, 10, 20, 30]);
        known.forget(LeafHint {
            low: Key8(20),
            leaf: leaf(3),
        });
        known.forget(LeafHint {
            low: Key8(30),
            leaf: leaf(4),
        });
        assert_eq!(leaf_of(&known, 35), leaf(2));
        // The leaf to which three entries lead is merged.
        known.forget(LeafHint {
            low: Key8(30),
            leaf: leaf(2),
        });
        assert_eq!([15, 25, 35].map(|key| leaf_of(&known, key)), [leaf(1); 3]);
        let first = known.entry(&Key8(35), KeyBound::At).expect("an entry");
        known.forget(first);
        assert_eq!(leaf_of(&known, 35), leaf(1));
    }

    #[test]
    fn learned_leaves_are_between_those_of_the_table() {
        let mut known = known(&[0, 10, 20, 30]);
        known.learn(Key8(17), leaf(9));
        known.learn(Key8(15), leaf(9));
        assert_eq!(known.learned.len(), 1, "one entry for each leaf");
        assert_eq!(
            [14, 15, 19, 20].map(|key| leaf_of(&known, key)),
            [2, 9, 9, 3].map(leaf)
        );
        let mut run = Run::new();
        known.run(&Key8(11), 3, &mut run);
        assert_eq!(run.leaves(), [2, 9, 3].map(leaf));
        known.learn(Key8(20), leaf(8));
        assert_eq!(
            leaf_of(&known, 25),
            leaf(8),
            "a learned leaf replaces that of the table"
        );
        known.forget(LeafHint {
            low: Key8(20),
            leaf: leaf(8),
        });
        known.forget(LeafHint {
            low: Key8(20),
            leaf: leaf(3),
        });
        assert_eq!(leaf_of(&known, 25), leaf(9));
        known.forget(LeafHint {
            low: Key8(15),
            leaf: leaf(9),
        });
        assert_eq!((leaf_of(&known, 16), known.learned.len()), (leaf(2), 0));
    }

    #[test]
    fn a_small_budget_takes_a_part_of_the_table() {
        let mut known = Known::new(Predicts::Leaf, 4, 200);
        let entries: Vec<_> = (0..40).map(|n| (Key8(n * 10), leaf(n + 1))).collect();
        known.adopt(root(), &entries).expect("the addresses fit");
        assert_eq!(known.len(), 10);
        for key in 0..400 {
            assert_eq!(leaf_of(&known, key), leaf(key / 40 * 4 + 1));
        }
        let mut run = Run::new();
        known.run(&Key8(50), 5, &mut run);
        assert_eq!(run.leaves(), [leaf(5)]);
        assert_eq!(known.gap(), 4);
        // The learned leaves use the rest of the budget, and the part of the table stays.
        for round in 0..50 {
            for n in (0..40).filter(|n| n % 7 == round % 7) {
                known.learn(Key8(n * 10), leaf(n + 1));
                assert!(known.bytes() <= known.budget && known.len() >= 10);
            }
        }
        assert_eq!(known.gap(), 40 / known.len() as u32);
        for key in 0..400 {
            let found = leaf_of(&known, key);
            assert!(found <= leaf(key / 10 + 1) && found >= leaf(key / 40 * 4 + 1));
        }
    }

    /// Returns a copy of 40 leaves with 16 entries each, whose low fence keys are multiples of 1,000. Its models
    /// predict runs, as published.
    fn published() -> Known<Key8> {
        let mut known = Known::new(Predicts::Run { span: 16 }, 16, u64::MAX);
        let entries: Vec<_> = (0..40).map(|n| (Key8(n * 1_000), leaf(n + 1))).collect();
        known.adopt(root(), &entries).expect("the addresses fit");
        known
    }

    fn predicted(known: &Known<Key8>, key: u64, synonyms: bool) -> Vec<RemotePtr> {
        let mut leaves = Vec::new();
        known.predicted(&Key8(key), synonyms, &mut leaves);
        leaves
    }

    #[test]
    fn a_run_has_the_leaves_that_the_error_admits_and_their_known_synonyms() {
        let mut known = published();
        assert_eq!(predicted(&known, 2_500, true), [2, 3, 4].map(leaf));
        assert_eq!(predicted(&known, 2_900, true), [2, 3, 4, 5].map(leaf));
        assert_eq!(predicted(&known, 0, true), [1, 2].map(leaf));
        known.learn(Key8(2_300), leaf(90));
        known.learn(Key8(2_400), leaf(91));
        known.learn(Key8(2_700), leaf(92));
        known.learn(Key8(1_500), leaf(93));
        // Each leaf is followed by at most one synonym leaf. For the key's leaf, it is the synonym leaf that covers the
        // key.
        assert_eq!(predicted(&known, 2_500, true), [2, 93, 3, 91, 4].map(leaf));
        assert_eq!(leaf_of(&known, 2_500), leaf(91));
        assert_eq!(predicted(&known, 2_500, false), [2, 3, 4].map(leaf));
        let wrong = known.entry(&Key8(3_000), KeyBound::At).expect("an entry");
        known.forget(wrong);
        assert_eq!(predicted(&known, 3_500, false), [3, 92, 5].map(leaf));
    }

    #[test]
    fn a_scan_also_reads_what_the_predictions_for_its_ends_admit() {
        let mut known = published();
        let scanned = |known: &Known<Key8>| {
            let mut run = Run::new();
            known.run(&Key8(2_500), 3, &mut run);
            run.leaves().to_vec()
        };
        assert_eq!(scanned(&known), [3, 4, 5, 6, 2].map(leaf));
        for n in 0..30 {
            known.learn(Key8(1_100 + n), leaf(100 + n));
        }
        assert_eq!(scanned(&known).len(), 8, "two leaves for each position");
    }

    proptest! {
        /// The first 8 bytes of all keys may be the same.
        #[test]
        fn an_entry_is_the_last_one_at_or_below_the_key(
            lows in btree_set((0..3_u8, 0..200_u8), 1..100),
            learned in vec(((0..3_u8, 0..200_u8), 200..300_u64), 0..20),
            keys in vec((0..4_u8, 0..=255_u8), 20),
        ) {
            let key = |(lead, tail): (u8, u8)| {
                let mut bytes = [0; 16];
                (bytes[7], bytes[15]) = (lead, tail);
                KeyN(bytes)
            };
            let lows = core::iter::once((0, 0)).chain(lows).collect::<std::collections::BTreeSet<_>>();
            let mut map: BTreeMap<_, _> = (1..).zip(&lows).map(|(n, low)| (key(*low), leaf(n))).collect();
            let mut known = Known::new(Predicts::Leaf, 1, u64::MAX);
            let entries: Vec<_> = map.iter().map(|(low, leaf)| (*low, *leaf)).collect();
            known.adopt(root(), &entries).expect("the addresses fit");
            for (n, (low, _)) in (200..).zip(learned) {
                if low > (0, 0) {
                    known.learn(key(low), leaf(n));
                    map.insert(key(low), leaf(n));
                }
            }
            for at in keys {
                let hint = known.entry(&key(at), KeyBound::At).expect("a first leaf");
                let expected = map.range(..=key(at)).next_back().expect("a first leaf");
                prop_assert_eq!((&hint.low, &hint.leaf), expected);
                let below = known.entry(&key(at), KeyBound::Below);
                let expected = map.range(..key(at)).next_back();
                prop_assert_eq!(below.as_ref().map(|hint| (&hint.low, &hint.leaf)), expected);
            }
        }
    }
}
