//! Tests of radix nodes and single leaves: exact bytes, decoding of encoded nodes, and decoding of arbitrary bytes.

use dm_layout::{
    CheckFailure, Find, Key8, KeyBytes, KeyN, NodeTypes, RadixHeader, RadixNode, RadixSlot, Reason,
    SingleLeaf, SlotWord, build_radix_node,
};
use proptest::prelude::*;

fn hex(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes
        .chunks(8)
        .map(|w| w.iter().map(|b| format!("{b:02x}")).collect())
        .collect();
    words.join(" ")
}

#[test]
fn a_node_is_as_pictured() {
    let header = RadixHeader::new(1, 1, &[0xaa, 0xbb]);
    let leaf = SlotWord::leaf(0x10, 0x0003_0000_0000_1040, 1).expect("a pointer");
    let inner = SlotWord::inner(0x20, 0x0001_0000_0000_2000, 3).expect("a pointer");
    let mut bytes = Vec::new();
    build_radix_node(&NodeTypes::TINY, header, 7, &[leaf, inner], &mut bytes);
    assert_eq!(
        hex(&bytes),
        // The words are: depth 1 and type 1 with two bytes; incarnation 7 and "rx"; a leaf of one line on memory node
        // 3; a node of type 3 on memory node 1.
        "0141aabb00000000 0700000072780000 4100000000034110 8000000000010320"
    );
    assert_eq!(SlotWord::empty(7).raw(), 0x0000_0001_0000_0007);
    assert_eq!(SlotWord::removed(0x20, 7).raw(), 0x2000_0002_0000_0007);
    assert_eq!(inner.frozen().raw(), inner.raw() | 1 << 55);
    let shipped = NodeTypes::SHIPPED;
    assert_eq!(
        [1, 2, 3].map(|t| (shipped.bytes(t), shipped.block_bytes(t))),
        [(64, 64), (256, 256), (2064, 2112)]
    );
}

#[test]
fn a_leaf_is_as_pictured() {
    let leaf = SingleLeaf::<Key8>::new(8).expect("small");
    assert_eq!(
        (
            leaf.read_bytes(),
            leaf.lock_at(),
            leaf.block_bytes(),
            leaf.lines()
        ),
        (40, 40, 64, 1)
    );
    let mut bytes = vec![0xff; 64];
    leaf.build(&Key8(0x0102), b"valueval", 3, &mut bytes);
    let sum = hex(&bytes[24..32]);
    assert_eq!(
        hex(&bytes),
        format!(
            "0300000000000000 6c69766500000001 0000000000000102 {sum} 76616c756576616c {z} {z} {z}",
            z = "0".repeat(16)
        )
    );
    let large = SingleLeaf::<KeyN<32>>::new(100).expect("small");
    assert_eq!(
        (large.read_bytes(), large.lock_at(), large.lines()),
        (156, 160, 3)
    );
    assert!(SingleLeaf::<Key8>::new(3_984).is_ok() && SingleLeaf::<Key8>::new(3_993).is_err());
}

#[test]
fn types_are_ascending_up_to_a_direct_one() {
    assert_eq!(NodeTypes::new(&[6, 30, 256]), Ok(NodeTypes::SHIPPED));
    for wrong in [&[][..], &[1, 256], &[6, 6, 256], &[6, 30], &[2; 11]] {
        assert!(NodeTypes::new(wrong).is_err(), "{wrong:?}");
    }
    for count in 1..=10 {
        let types = NodeTypes::geometric(count).expect("as many types as the paper has");
        assert_eq!(usize::from(types.largest()), count);
    }
    let ten = NodeTypes::new(&[4, 6, 10, 16, 25, 40, 64, 102, 161, 256]);
    assert_eq!(NodeTypes::geometric(10), ten);
    assert_eq!(ten.unwrap().describe(), [0x65_3f_27_18_0f_09_05_03, 0xff_a0]);
    assert_eq!(NodeTypes::SHIPPED.describe(), [0xff_1d_05, 0]);
    assert!([0, 11].map(NodeTypes::geometric).iter().all(Result::is_err));
    let t = NodeTypes::SHIPPED;
    assert_eq!([0, 6, 7, 31, 300].map(|n| t.fitting(n)), [1, 1, 2, 3, 3]);
}

#[test]
fn the_first_empty_slot_is_the_one_to_fill() {
    let child = |p| SlotWord::leaf(p, 64, 1).expect("a pointer");
    let mut bytes = Vec::new();
    build_radix_node(
        &NodeTypes::SHIPPED,
        RadixHeader::new(0, 1, &[]),
        1,
        &[child(5), child(0)],
        &mut bytes,
    );
    let node =
        |bytes: &[u8]| RadixNode::decode(bytes, &NodeTypes::SHIPPED, 1).map(|n| [0, 5, 9].map(|p| n.find(p)));
    let empty = SlotWord::empty(1);
    assert_eq!(
        node(&bytes),
        Ok([
            Ok(Find::Child(1, child(0))),
            Ok(Find::Child(0, child(5))),
            Ok(Find::Vacant(2, empty))
        ])
    );
    // Slot 0 loses its child but keeps its key byte, so only this key byte may use the slot.
    let removed = SlotWord::removed(5, 1);
    bytes[16..24].copy_from_slice(&removed.raw().to_le_bytes());
    assert_eq!(
        node(&bytes),
        Ok([
            Ok(Find::Child(1, child(0))),
            Ok(Find::Vacant(0, removed)),
            Ok(Find::Vacant(2, empty))
        ])
    );
    // Other clients filled slots during the READ, so an empty slot is before a slot with a child.
    bytes[16..24].copy_from_slice(&empty.raw().to_le_bytes());
    assert_eq!(
        node(&bytes),
        Ok([
            Ok(Find::Child(1, child(0))),
            Ok(Find::Vacant(0, empty)),
            Ok(Find::Vacant(0, empty))
        ])
    );
    let mut direct = Vec::new();
    build_radix_node(
        &NodeTypes::SHIPPED,
        RadixHeader::new(0, 3, &[]),
        1,
        &[child(5)],
        &mut direct,
    );
    let direct = RadixNode::decode(&direct, &NodeTypes::SHIPPED, 3).expect("a node");
    assert_eq!(
        (direct.find(5), direct.find(6)),
        (Ok(Find::Child(5, child(5))), Ok(Find::Vacant(6, empty)))
    );
}

proptest! {
    #[test]
    fn headers_come_back(depth in 0u8..=248, kind in 1u8..32, partial in prop::collection::vec(any::<u8>(), 0..=6)) {
        let header = RadixHeader::new(depth, kind, &partial);
        prop_assert_eq!(RadixHeader::unpack(header.pack()), Ok(header));
        prop_assert_eq!(usize::from(header.branch()), usize::from(depth) + partial.len());
        for from in depth..=header.branch() {
            prop_assert_eq!(header.partial_from(from), Some(&partial[usize::from(from - depth)..]));
        }
        prop_assert_eq!(header.partial_from(header.branch() + 1), None);
        if let Some(longer) = header.extended(&[1, 2]) {
            prop_assert_eq!((longer.branch(), longer.depth()), (header.branch(), depth - 2));
            prop_assert_eq!(longer.partial_from(depth), Some(&partial[..]));
        }
    }

    #[test]
    fn every_header_word_is_one_or_refused(word: u64) {
        if let Ok(header) = RadixHeader::unpack(word) {
            prop_assert_eq!(header.pack(), word);
        }
    }

    #[test]
    fn slots_come_back(partial: u8, node in 0u64..256, line in 1u64..1 << 40, kind in 1u8..64) {
        let at = (node << 48) | (line * 64);
        let leaf = SlotWord::leaf(partial, at, kind).expect("in range");
        for word in [leaf, leaf.frozen()] {
            prop_assert_eq!(word.decode(), Ok(RadixSlot::Leaf { partial, at, lines: kind }));
            prop_assert_eq!((word.pointer(), word.partial(), word.is_leaf()), (at, partial, true));
        }
        prop_assert_eq!(leaf.frozen().thawed(), leaf);
        prop_assert_eq!(SlotWord::inner(partial, at, kind).is_some(), kind < 32);
        prop_assert_eq!(SlotWord::leaf(partial, at + 8, kind), None);
        prop_assert_eq!(SlotWord::leaf(partial, node << 48, kind), None);
        prop_assert_eq!(SlotWord::inner(partial, node << 48, kind), None);
    }

    #[test]
    fn every_slot_word_is_one_or_refused(raw: u64) {
        let word = SlotWord::from_raw(raw);
        let back = match word.decode() {
            Ok(RadixSlot::Empty) => { prop_assert!(word.is_empty()); return Ok(()) }
            Ok(RadixSlot::Removed { partial }) => SlotWord::removed(partial, raw as u32),
            Ok(RadixSlot::Inner { partial, at, node_type }) => SlotWord::inner(partial, at, node_type).expect("in range"),
            Ok(RadixSlot::Leaf { partial, at, lines }) => SlotWord::leaf(partial, at, lines).expect("in range"),
            Err(_) => return Ok(()),
        };
        // Bits without a meaning, in a slot without a child, are not compared.
        prop_assert_eq!(back.decode(), word.decode());
    }

    #[test]
    fn any_bytes_are_a_node_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..6, partial: u8) {
        if let Ok(node) = RadixNode::decode(&bytes, &NodeTypes::SHIPPED, kind) {
            let _ = (node.find(partial), node.is_frozen());
        }
        let _ = SingleLeaf::<Key8>::new(8).expect("small").open(&bytes);
        let _ = SingleLeaf::<KeyN<32>>::new(33).expect("small").open(&bytes);
    }

    #[test]
    fn leaves_come_back_and_mixtures_are_torn(key: u64, a: [u8; 90], b: [u8; 90], cut in 1usize..98) {
        let layout = SingleLeaf::<Key8>::new(90).expect("small");
        let mut bytes = vec![0; layout.block_bytes()];
        layout.build(&Key8(key), &a, 2, &mut bytes);
        let entry = layout.open(&bytes).expect("whole");
        prop_assert_eq!((entry.key, entry.value, entry.live, entry.depth), (Key8(key), &a[..], true, 2));
        let mut other = bytes.clone();
        layout.replace(&mut other, &b);
        let range = layout.value_range();
        let mut mixed = other.clone();
        mixed[range.start..range.start + cut].copy_from_slice(&bytes[range.start..range.start + cut]);
        if mixed != other && mixed != bytes {
            let torn = matches!(layout.open(&mixed), Err(CheckFailure::Torn { .. }));
            prop_assert!(torn);
        }
        let (at, state) = layout.removal();
        other[at..at + 8].copy_from_slice(&state);
        let gone = layout.open(&other).expect("whole");
        prop_assert_eq!((gone.live, gone.value), (false, &b[..]));
    }
}

/// The branch of a header is the sum of two of its fields, so a header whose branch does not fit must not exist.
#[test]
fn the_branch_of_a_header_fits_into_a_byte() {
    let longest = RadixHeader::new(249, 1, &[7; 6]);
    assert_eq!(longest.branch(), 255);
    assert_eq!(RadixHeader::unpack(longest.pack()), Ok(longest));
    // The same word with the next depth.
    let beyond = RadixHeader::unpack(longest.pack() + 1);
    assert_eq!(beyond.map_err(|e| e.reason), Err(Reason::Count));
    assert!(std::panic::catch_unwind(|| RadixHeader::new(250, 1, &[7; 6])).is_err());
}

#[test]
fn keys_of_both_sizes_are_read_back() {
    fn check<K: KeyBytes>(key: K) {
        let layout = SingleLeaf::<K>::new(0).expect("small");
        let mut bytes = vec![0; layout.block_bytes()];
        layout.build(&key, &[], 0, &mut bytes);
        assert_eq!(layout.open(&bytes).expect("whole").key, key);
    }
    check(Key8(u64::MAX));
    check(KeyN([9; 32]));
}
