//! Tests of the number and the places of splits, in nodes of every format, and of merges whose copying is repeated.
#![expect(clippy::unwrap_used, reason = "a test panics")]

use dm_layout::{
    Bookend, Checksummed, FenceKeys, Hopscotch, Key8, KeyBytes, KeyN, Leaf, NodeFormat, NodeInit, Packed,
    Place, Slotted, SplitBias, SplitRequest, ValueRef,
};
use proptest::prelude::*;

/// Runs a generic function on every shipped kind of format and entry.
macro_rules! on_every_format {
    ($run:ident ( $($argument:expr),* )) => {{
        $run::<Key8, _>(&Slotted::with_node_bytes(1024, 8).unwrap(), $($argument),*);
        $run::<Key8, _>(&Slotted::tiny(8).unwrap(), $($argument),*);
        $run::<Key8, _>(&Slotted::marked_with_node_bytes(1024, 4).unwrap(), $($argument),*);
        $run::<Key8, _>(&Slotted::words_with_node_bytes(1024).unwrap(), $($argument),*);
        $run::<KeyN<32>, _>(&Slotted::with_span(6, 8).unwrap(), $($argument),*);
        $run::<Key8, _>(&Packed::with_node_bytes(1024, 8).unwrap(), $($argument),*);
        $run::<KeyN<32>, _>(&Packed::with_node_bytes(320, 8).unwrap(), $($argument),*);
        $run::<Key8, _>(&Leaf::with_node_bytes(192, 8, true).unwrap(), $($argument),*);
        $run::<Key8, _>(&Leaf::with_node_bytes(320, 100, true).unwrap(), $($argument),*);
        $run::<Key8, _>(&Bookend::with_span(8, 8).unwrap(), $($argument),*);
        $run::<Key8, _>(&Checksummed::with_span(8, 8).unwrap(), $($argument),*);
        $run::<Key8, _>(&Hopscotch::new(64, 8, 8).unwrap(), $($argument),*);
        $run::<KeyN<32>, _>(&Hopscotch::new(16, 4, 8).unwrap(), $($argument),*);
    }};
}

/// A level of nodes that split when they are full.
struct Level<'f, K, F> {
    format: &'f F,
    bias: SplitBias,
    nodes: Vec<Vec<u8>>,
    keys: Vec<K>,
}

impl<'f, K: KeyBytes, F: NodeFormat<K>> Level<'f, K, F> {
    /// Makes one empty node for all keys, or two empty nodes with the separator `cut`.
    fn new(format: &'f F, bias: SplitBias, cut: Option<K>) -> Self {
        let empty = |fences| {
            let mut image = vec![0; format.node_bytes()];
            format.build(&mut image, &NodeInit::live(0, fences), []);
            image
        };
        let right = cut.map(|cut| empty(FenceKeys::new(cut, None)));
        let nodes = [empty(FenceKeys::new(K::MIN, cut))].into_iter().chain(right);
        Self {
            format,
            bias,
            nodes: nodes.collect(),
            keys: Vec::new(),
        }
    }

    /// Returns the position of the node that covers `key`.
    fn at(&self, key: &K) -> usize {
        let covers = |node: &Vec<u8>| self.format.accept(node).unwrap().fences.contains(key);
        self.nodes.iter().position(covers).expect("one covers it")
    }

    /// Inserts ascending keys, beginning with key number `from`, until the next key would need a split.
    fn fill(&mut self, from: u64) {
        for next in (from..).map(key) {
            let at = self.at(&next);
            if self.format.place(&self.nodes[at], &next).unwrap() == Place::Full {
                break;
            }
            self.insert(next);
        }
    }

    fn insert(&mut self, key: K) {
        let (format, at) = (self.format, self.at(&key));
        let value = vec![7 | format.value_mark(); format.value_len()];
        self.keys.push(key);
        let node = &mut self.nodes[at];
        if let Place::Free(slot) = format.place(node, &key).unwrap() {
            format.put(node, slot, &key, value.as_slice().into());
            return;
        }
        let request = SplitRequest {
            right_address: 64,
            right_incarnation: 1,
            right_version: 1,
            owner: 1,
            new: Some((key, value.as_slice().into())),
            bias: self.bias,
        };
        let mut right = vec![0; format.node_bytes()];
        let plan = format.prepare_split(node, &mut right, &request).unwrap().unwrap();
        format.split_at_once(node, &plan).unwrap();
        if let Some((slot, key, value)) = plan.late_right {
            format.put(&mut right, slot, &key, value);
        }
        format.open(&mut right).unwrap();
        self.nodes.push(right);
    }

    /// Checks that every key is in the node that covers it, and that there are no other keys.
    fn check(&self) {
        for node in &self.nodes {
            dm_layout::audit(self.format, node).unwrap();
        }
        let held: usize = self.nodes.iter().map(|node| self.format.len(node).unwrap()).sum();
        assert_eq!(held, self.keys.len());
    }
}

/// Returns key number `n` of an ascending sequence.
fn key<K: KeyBytes>(n: u64) -> K {
    let mut bytes = [0; 32];
    bytes[K::LEN - 8..K::LEN].copy_from_slice(&n.to_be_bytes());
    K::read_from(&bytes)
}

/// Fills a node that is not the last of its level, and then inserts `count` keys into its range, in descending order.
/// Returns the number of splits.
fn behind_a_full_node<K: KeyBytes, F: NodeFormat<K>>(format: &F, bias: SplitBias, count: u64) -> usize {
    let mut level = Level::<K, F>::new(format, bias, Some(key(1 << 16)));
    level.fill(0);
    let before = level.nodes.len();
    for below in 1..=count {
        level.insert(key((1 << 16) - below));
    }
    level.check();
    level.nodes.len() - before
}

fn descending<K: KeyBytes, F: NodeFormat<K>>(format: &F) {
    let count = 2 * format.capacity() as u64;
    let [median, ascending] =
        [SplitBias::Median, SplitBias::Ascending].map(|bias| behind_a_full_node(format, bias, count));
    assert_eq!(ascending, median, "{}: {count} inserts", F::NAME);
}

#[test]
fn descending_keys_split_a_full_node_in_the_middle() {
    on_every_format!(descending());
}

fn ascending<K: KeyBytes, F: NodeFormat<K>>(format: &F) {
    let splits = |bias| {
        let mut level = Level::<K, F>::new(format, bias, None);
        (0..10 * format.capacity() as u64).for_each(|n| level.insert(key(n)));
        level.check();
        level.nodes.len() - 1
    };
    let [median, ascending] = [SplitBias::Median, SplitBias::Ascending].map(splits);
    assert!(
        ascending * 4 < median * 3,
        "{}: {median} and {ascending} splits",
        F::NAME
    );
}

#[test]
fn ascending_keys_fill_the_nodes_of_a_level() {
    on_every_format!(ascending());
}

/// Checks that both biases split nodes that are not the last of their level at the same keys.
fn cuts<K: KeyBytes, F: NodeFormat<K>>(format: &F, numbers: &[u16]) {
    let [median, ascending] = [SplitBias::Median, SplitBias::Ascending].map(|bias| {
        let mut level = Level::<K, F>::new(format, bias, Some(key(1 << 16)));
        for n in numbers {
            let key = key(u64::from(*n));
            if !level.keys.contains(&key) {
                level.insert(key);
            }
        }
        level.check();
        let mut lows: Vec<_> = level
            .nodes
            .iter()
            .map(|node| format.accept(node).unwrap().fences.low)
            .collect();
        lows.sort_unstable();
        lows
    });
    assert_eq!(median, ascending, "{}", F::NAME);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn elsewhere_the_middle_is_meant(numbers in prop::collection::vec(any::<u16>(), 1..400)) {
        on_every_format!(cuts(&numbers));
    }
}

/// If only a part of a merge's copies has taken effect, the copying is repeated. Every entry gets its earlier place
/// again, so lines that readers have seen do not change.
#[test]
fn a_copy_that_landed_in_part_is_repeated_to_the_byte() {
    fn check<F: NodeFormat<Key8>>(format: &F, keys: [&[u64]; 2], gone: &[u64]) {
        let value = vec![7; format.value_len()];
        let built = |keys: &[u64], fences| {
            let mut image = vec![0; format.node_bytes()];
            let entries = keys.iter().map(|key| (Key8(*key), ValueRef::from(&value[..])));
            format.build(
                &mut image,
                &NodeInit::live(0, fences),
                entries.collect::<Vec<_>>(),
            );
            image
        };
        let between = Key8(keys[1][0]);
        let mut left = built(keys[0], FenceKeys::new(Key8(0), Some(between)));
        for key in gone {
            let slot = dm_layout::find(format, &left, &Key8(*key))
                .unwrap()
                .expect("present");
            format.remove(&mut left, slot);
        }
        let mut right = built(keys[1], FenceKeys::new(between, None));
        format.freeze(&mut right, 9).unwrap();
        format.announce_merge(&mut left, 10).unwrap();
        assert_eq!(format.merge_fits(&left, &right), Ok(true));
        let mut copied = left.clone();
        let rest = format.copy_merge(&mut copied, &right).unwrap();
        let lines = rest.len() / 64;
        for mask in 0..1_u64 << lines {
            let mut mixed = left.clone();
            for line in (0..lines).filter(|line| mask >> line & 1 != 0) {
                let line = rest.start + line * 64..rest.start + (line + 1) * 64;
                mixed[line.clone()].copy_from_slice(&copied[line]);
            }
            format.accept(&mixed).expect("readers accept it");
            assert_eq!(format.merge_fits(&mixed, &right), Ok(true), "{mask:b}");
            let again = format.copy_merge(&mut mixed, &right).unwrap();
            assert_eq!(again, rest);
            assert!(mixed[again.clone()] == copied[again], "{mask:b}");
        }
    }
    // In packed nodes, the removed keys leave lines with a wide shape.
    let wide = [
        &[3, 5, 70_000, 80_000, 1 << 40, 1 << 41][..],
        &[1 << 50, 1 << 51, (1 << 51) + 1][..],
    ];
    check(
        &Packed::with_node_bytes(384, 8).unwrap(),
        wide,
        &[70_000, 1 << 40],
    );
    check(&Packed::with_node_bytes(384, 8).unwrap(), wide, &[]);
    check(
        &Slotted::with_node_bytes(384, 8).unwrap(),
        [&[1, 2, 3, 4, 5], &[20, 21, 22]],
        &[2, 4],
    );
    check(
        &Hopscotch::new(32, 8, 8).unwrap(),
        [&[1, 2, 3, 4, 5, 6, 7], &[20, 21, 22, 23, 24]],
        &[2, 4],
    );
}
