//! Tests of packed nodes: exact bytes, capacity, splits and merges of all mixtures of shapes, inconsistent lines.

use std::ops::Range;

use dm_layout::{
    CheckFailure, FenceKeys, Key8, KeyBytes, KeyN, Lookup, NodeEdit, NodeInit, NodeRead, NodeShape,
    NodeState, NodeSteps, NodeStructure, Packed, Place, Reason, SplitBias, SplitRequest,
};
use proptest::prelude::*;

fn format() -> Packed<Key8> {
    Packed::with_node_bytes(1024, 8).expect("it fits")
}

/// Returns the value of a key.
fn value(key: &Key8) -> [u8; 8] {
    (!key.0).to_le_bytes()
}

fn built(format: &Packed<Key8>, fences: FenceKeys<Key8>, keys: &[Key8]) -> Vec<u8> {
    let values: Vec<_> = keys.iter().map(value).collect();
    let entries = keys.iter().zip(&values);
    let mut image = vec![0xee; format.node_bytes()];
    let entries = entries.map(|(key, value)| (*key, value.into()));
    format.build(&mut image, &NodeInit::live(0, fences), entries);
    image
}

/// Inserts the key if there is room. Returns the range to WRITE.
fn insert(format: &Packed<Key8>, image: &mut [u8], key: Key8) -> Option<Range<usize>> {
    match format.place(image, &key).expect("sound") {
        Place::Free(slot) => Some(format.put(image, slot, &key, (&value(&key)).into())),
        Place::Present(_) => panic!("no key comes twice"),
        Place::Full => None,
    }
}

fn hex(bytes: &[u8]) -> Vec<String> {
    let lines = bytes.chunks(32);
    lines
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect()
}

#[test]
fn the_bytes_are_as_pictured() {
    let format = Packed::<Key8>::with_node_bytes(256, 8).expect("it fits");
    let init = NodeInit {
        level: 2,
        incarnation: 0x0102_0304,
        version: 0x15,
        state: NodeState::Splitting,
        owner: 0xaabb_ccdd,
        fences: FenceKeys::new(Key8(0x10), Some(Key8(0x99 << 32))),
        sibling: 0x0001_0000_0000_0440,
    };
    let values = [0x1111_u64, 0x2222, 0x3333].map(u64::to_le_bytes);
    let entries = [0x0012_3456_7830, 0x10, 0x1020].into_iter().zip(&values);
    let mut image = vec![0xee; 256];
    let entries = entries.map(|(key, value)| (Key8(key), value.into()));
    format.build(&mut image, &init, entries);
    // The first line has shape 2, with keys of 7 bytes; the other keys use the rest of this line. Two empty lines
    // follow.
    assert_eq!(
        hex(&image),
        [
            "15d802120403020140040000000001000000009900000000ddccbbaa00000000",
            "0000001000000000000000000000000000000000000000000000000000000000",
            "1587207856341200001010000000000000000000000000000000000000001111",
            "0000000000003333000000000000222200000000000000000000000000000000",
            "1500000000000000000000000000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "1500000000000000000000000000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
        ]
    );
}

/// A line has six entries if keys are close to the low fence key. It has fewer if keys are far from it, but never fewer
/// than three.
#[test]
fn nodes_hold_what_their_keys_allow() {
    let filled = |low: u64, step: u64| {
        let mut image = built(&format(), FenceKeys::new(Key8(low), None), &[]);
        let mut keys = (0..).map(|n| Key8(low + n * step));
        let mut fits = |key| insert(&format(), &mut image, key).is_some();
        let count = keys.by_ref().take_while(|key| fits(*key)).count();
        assert_eq!(format().len(&image), Ok(count));
        dm_layout::audit(&format(), &image).expect("sound");
        count
    };
    assert_eq!(filled(77 << 40, 1), 90);
    assert_eq!(filled(0, 700), 90);
    assert_eq!(filled(5, 1 << 25), 75);
    assert_eq!(filled(1, 1 << 50), 60);
    assert_eq!(filled(0, 1 << 58), 45);
}

/// An insert is one WRITE within one line, an update is a WRITE of the value, and a removal writes one byte.
#[test]
fn a_change_is_small() {
    let format = format();
    let mut image = built(&format, FenceKeys::ALL, &[Key8(1), Key8(2)]);
    assert_eq!(insert(&format, &mut image, Key8(3)), Some(65..102));
    assert_eq!(
        insert(&format, &mut image, Key8(1 << 40)),
        Some(129..166),
        "a line of its own"
    );
    let slot = dm_layout::find(&format, &image, &Key8(3))
        .expect("sound")
        .expect("it is there");
    assert_eq!(format.update(&mut image, slot, (&[9; 8]).into()), 94..102);
    assert_eq!(format.remove(&mut image, slot), 65..66);
    assert_eq!(
        insert(&format, &mut image, Key8(4)),
        Some(65..102),
        "where that was"
    );
}

/// If no line is wide enough for a key and none is empty, a line is rewritten in a shape that has room.
#[test]
fn lines_change_their_shape() {
    let format = Packed::<Key8>::with_node_bytes(128, 16).expect("it fits");
    let put = |image: &mut Vec<u8>, key: u64| match format.place(image, &Key8(key)).expect("sound") {
        Place::Free(slot) => Some(format.put(image, slot, &Key8(key), (&[key as u8; 16]).into())),
        _ => None,
    };
    let mut image = vec![0; 128];
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
    assert_eq!(put(&mut image, 1), Some(65..94));
    assert_eq!(put(&mut image, 1 << 40), Some(65..114), "two of 8 bytes and 16");
    assert_eq!(image[65], 0b0100_0011);
    assert_eq!(put(&mut image, 2), None, "wide lines have two");
    let far = dm_layout::find(&format, &image, &Key8(1 << 40))
        .expect("sound")
        .expect("there");
    format.remove(&mut image, far);
    assert_eq!(put(&mut image, 2), Some(65..114), "where that was");
    assert_eq!(put(&mut image, 3), Some(65..126), "three of 4 bytes and 16");
    assert_eq!(image[65], 0b0000_0111);
    assert_eq!(put(&mut image, 1 << 41), None);
    for key in [1, 2, 3] {
        let found = format.lookup(&image, &Key8(key), 0).expect("sound");
        assert!(matches!(found, Lookup::Found { value, .. } if value.to_vec() == [key as u8; 16]));
    }
}

#[test]
fn lines_that_contradict_themselves_are_reported() {
    // There are two shapes, with three entries and with two.
    let format = Packed::<Key8>::with_node_bytes(192, 16).expect("it fits");
    let mut image = vec![0; 192];
    format.build(
        &mut image,
        &NodeInit::live(0, FenceKeys::ALL),
        [(Key8(7), (&[1; 16]).into())],
    );
    assert!(dm_layout::audit(&format, &image).is_ok());
    // Invalid control bytes: a shape that does not exist, or an entry beyond the last one of each shape.
    for control in [0b1000_0000, 0b1100_0001, 0b0000_1001, 0b0100_0100] {
        image[129] = control;
        let bad = Err(CheckFailure::Corrupt(dm_layout::Corrupt {
            offset: 129,
            reason: Reason::Line,
        }));
        assert_eq!(dm_layout::audit(&format, &image).map(drop), bad);
        assert_eq!(format.len(&image).map(drop), bad);
        assert_eq!(format.visit(&image, |_, _| ()), bad);
    }
    let error = dm_layout::audit(&format, &image)
        .expect_err("as above")
        .to_string();
    assert_eq!(
        error,
        "corrupt node at byte 129: a line with an invalid shape, or with entries that its shape does not have"
    );
}

/// The nodes of one level. A full node is split.
struct Row<K>(Packed<K>, Vec<Vec<u8>>);

impl<K: KeyBytes> Row<K> {
    fn at(&self, key: &K) -> usize {
        let covers = |node: &Vec<u8>| self.0.accept(node).expect("sound").fences.contains(key);
        self.1.iter().position(covers).expect("one covers it")
    }

    /// Inserts the key. If its node is full, splits it first; one split must be enough.
    fn insert(&mut self, key: K, bias: SplitBias) {
        let at = self.at(&key);
        let value = vec![7; self.0.value_len()];
        let node = &mut self.1[at];
        if let Place::Free(slot) = self.0.place(node, &key).expect("sound") {
            self.0.put(node, slot, &key, value.as_slice().into());
            return;
        }
        let request = SplitRequest {
            right_address: 64,
            right_incarnation: 1,
            right_version: 1,
            owner: 1,
            new: Some((key, value.as_slice().into())),
            bias,
        };
        let mut right = vec![0; self.0.node_bytes()];
        let plan = self.0.prepare_split(node, &mut right, &request);
        let plan = plan.expect("sound").expect("a full node has two keys");
        self.0.split_at_once(node, &plan).expect("sound");
        self.0.open(&mut right).expect("sound");
        let (left, right_len) = (
            self.0.len(node).expect("sound"),
            self.0.len(&right).expect("sound"),
        );
        assert!(left > 0 && right_len > 0, "{left} and {right_len}");
        self.1.push(right);
    }

    /// Merges each node with its right neighbour if both fit into one node. Returns the number of merges.
    fn merge(&mut self) -> usize {
        let low = |node: &Vec<u8>| self.0.accept(node).expect("sound").fences.low;
        self.1.sort_by_key(low);
        let before = self.1.len();
        let mut merged: Vec<Vec<u8>> = Vec::new();
        for right in core::mem::take(&mut self.1) {
            if let Some(left) = merged.last_mut()
                && self.0.merge_fits(left, &right).expect("sound")
            {
                let header = self.0.header(&right).expect("sound");
                self.0.announce_merge(left, 1).expect("sound");
                self.0.copy_merge(left, &right).expect("sound");
                self.0.widen_merge(left, &header).expect("sound");
                self.0.open(left).expect("sound");
            } else {
                merged.push(right);
            }
        }
        self.1 = merged;
        before - self.1.len()
    }

    fn hold(&self, keys: &[K]) {
        for node in &self.1 {
            dm_layout::audit(&self.0, node).expect("keys inside of their fences, none twice");
        }
        let len = |node: &Vec<u8>| self.0.len(node).expect("sound");
        assert_eq!(self.1.iter().map(len).sum::<usize>(), keys.len());
        for key in keys {
            let found = self.0.lookup(&self.1[self.at(key)], key, 0).expect("sound");
            assert!(matches!(found, Lookup::Found { .. }), "{key:?}");
        }
    }
}

/// Returns a key with those bytes of `number` that `mask` selects, so that keys of all widths occur.
fn key_of<K: KeyBytes>(number: u64, mask: u8) -> K {
    let mut bytes = [0; 32];
    let stride = K::LEN / 8;
    for (nth, byte) in number.to_be_bytes().into_iter().enumerate() {
        if mask >> nth & 1 != 0 {
            bytes[nth * stride + stride - 1] = byte;
        }
    }
    K::read_from(&bytes)
}

fn grow<K: KeyBytes>(format: Packed<K>, numbers: &[(u64, u8)], bias: SplitBias) {
    let mut image = vec![0; format.node_bytes()];
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
    let mut row = Row(format, vec![image]);
    let mut keys: Vec<K> = Vec::new();
    for (number, mask) in numbers {
        let key = key_of(*number, *mask);
        if !keys.contains(&key) {
            row.insert(key, bias);
            keys.push(key);
        }
    }
    row.hold(&keys);
    row.merge();
    row.hold(&keys);
    // After the removal, the rest fits into fewer nodes.
    let gone = keys.split_off(keys.len() / 5);
    for key in &gone {
        let at = row.at(key);
        let slot = dm_layout::find(&row.0, &row.1[at], key)
            .expect("sound")
            .expect("it is there");
        row.0.remove(&mut row.1[at], slot);
    }
    let nodes = row.1.len();
    let merged = row.merge();
    assert!(merged > 0 || nodes < 4, "{nodes} nodes");
    row.hold(&keys);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// After a split there is room for the key that caused it, with any mixture of key widths.
    #[test]
    fn rows_of_nodes_grow_and_shrink(
        numbers in prop::collection::vec((any::<u64>(), prop::sample::select(vec![0x80, 0x81, 0xc0, 0xe0, 0x88, 0xff])), 1..300),
        ascending in any::<bool>(),
    ) {
        let bias = if ascending { SplitBias::Ascending } else { SplitBias::Median };
        for (bytes, value_len) in [(1024, 8), (192, 8), (128, 16), (192, 24), (256, 30), (192, 54)] {
            grow::<Key8>(Packed::with_node_bytes(bytes, value_len).expect("it fits"), &numbers, bias);
        }
        for (bytes, value_len) in [(320, 8), (256, 0), (1024, 16)] {
            grow::<KeyN<32>>(Packed::with_node_bytes(bytes, value_len).expect("it fits"), &numbers, bias);
        }
    }

    /// A node is full only if no line has room for the key in any shape. This never happens before each line has three
    /// entries.
    #[test]
    fn a_node_is_full_only_if_no_line_has_room(numbers in prop::collection::vec((any::<u64>(), any::<u8>()), 90..200)) {
        let format = format();
        let mut image = built(&format, FenceKeys::ALL, &[]);
        let mut keys: Vec<Key8> = Vec::new();
        for (number, mask) in numbers {
            let key = key_of(number, mask);
            if keys.contains(&key) {
                continue;
            }
            if insert(&format, &mut image, key).is_some() {
                keys.push(key);
                prop_assert!(format.takes(&Key8(0), &mut keys.iter().copied()), "a node holds what it takes");
                continue;
            }
            prop_assert!(keys.len() >= 45);
            for line in image.as_chunks::<64>().0.iter().skip(1) {
                let here: Vec<Key8> = keys_in(&format, &image, line);
                let widest = here.iter().chain([&key]).map(width).max().unwrap_or(0);
                let room = [0, 6, 6, 5, 5, 4, 4, 4, 3][widest];
                prop_assert!(here.len() >= room, "{key:?} beside {here:?}");
            }
        }
        // A node that is built at once has room for the same keys as a node with single inserts.
        let again = built(&format, FenceKeys::ALL, &keys);
        for key in &keys {
            let found = format.lookup(&again, key, 0).expect("sound");
            let same = matches!(found, Lookup::Found { value: v, .. } if v.to_vec() == value(key));
            prop_assert!(same, "{key:?}");
        }
    }
}

/// Returns the number of bytes of a key after its leading zero bytes.
fn width(key: &Key8) -> usize {
    8 - key.0.leading_zeros() as usize / 8
}

/// Returns the keys in one line of a node whose low fence key is zero.
fn keys_in(format: &Packed<Key8>, image: &[u8], line: &[u8; 64]) -> Vec<Key8> {
    let at = line.as_ptr().addr() - image.as_ptr().addr();
    let slots = format.slots(image).filter(|slot| slot.offset() / 64 == at / 64);
    let entries = slots.filter_map(|slot| format.entry(image, slot).expect("sound"));
    entries.map(|(key, _)| key).collect()
}
