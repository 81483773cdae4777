//! Tests of every format with unusual key sizes. Most of these sizes are not multiples of 8 bytes.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::testing::{NodeModel, NodeOp, clustered_key_of, key_of, read_everything};
use crate::{
    Bookend, CheckFailure, Checksummed, FenceKeys, GeometryError, HopGeometry, Hopscotch, Key8, KeyBytes,
    KeyN, Near, NodeFormat, NodeInit, Packed, PackedGeometry, SingleLeaf, SlotGeometry, Slotted,
};

/// Calls a function that is generic over the size of keys, for sizes from which the geometries have every kind of
/// position: the low fence key in spare bytes of line 0, of line 1 or of both, or in a line of its own; two or four
/// pieces of fence keys, with and without padding; lines with no, one and several entries. The integration tests have
/// keys of 8, 16 and 32 bytes.
macro_rules! for_some_sizes {
    ($check:ident $arguments:tt) => {
        for_some_sizes!(@ $check $arguments 9 18 31)
    };
    (@ $check:ident $arguments:tt $($size:literal)*) => { $($check::<$size> $arguments;)* };
}

/// Calls a function with formats for keys of this size. They have entries with and without constant strides, marked
/// entries with children of several lengths, words, and entries larger than a line.
macro_rules! on_formats {
    ($size:ident, $run:ident ( $($argument:expr),* )) => {{
        for value_len in [8, 16, 6, 5, 32] {
            $run(&Slotted::<KeyN<$size>>::with_span(7, value_len).unwrap(), $($argument),*);
        }
        $run(&Slotted::<KeyN<$size>>::with_node_bytes(512, 60).unwrap(), $($argument),*);
        for child in 3..=5 {
            $run(&Slotted::<KeyN<$size>>::marked_with_node_bytes(320, child).unwrap(), $($argument),*);
        }
        $run(&Slotted::<KeyN<$size>>::words_with_node_bytes(320).unwrap(), $($argument),*);
        for value_len in [8, 16, 3, 30] {
            $run(&Packed::<KeyN<$size>>::with_node_bytes(320, value_len).unwrap(), $($argument),*);
        }
        $run(&Bookend::<KeyN<$size>>::with_span(5, 9).unwrap(), $($argument),*);
        $run(&Checksummed::<KeyN<$size>>::with_span(5, 9).unwrap(), $($argument),*);
        // These have two or four pieces of fence keys, and several entries per line, one entry per line, or several
        // lines per entry.
        for (span, neighbourhood, value_len) in [(16, 4, 8), (9, 3, 1), (9, 4, 24), (6, 4, 46), (6, 4, 70)] {
            $run(&Hopscotch::<KeyN<$size>>::new(span, neighbourhood, value_len).unwrap(), $($argument),*);
        }
    }};
}

fn run_ops<const N: usize>(ops: &[[u8; 3]], clustered: bool) {
    fn on<K: KeyBytes, F: NodeFormat<K>>(format: &F, ops: &[[u8; 3]], clustered: bool) {
        let mut model = match clustered {
            true => NodeModel::with_keys(format.clone(), clustered_key_of),
            false => NodeModel::new(format.clone()),
        };
        for op in ops {
            model.apply(NodeOp::from_bytes(*op));
        }
    }
    on_formats!(N, on(ops, clustered));
}

fn read_any<const N: usize>(noise: &[u8], flips: &[(usize, u8)]) {
    fn on<K: KeyBytes, F: NodeFormat<K>>(format: &F, noise: &[u8], flips: &[(usize, u8)]) {
        let key = key_of(noise[0]);
        read_everything(format, noise, &key);
        let mut node = vec![0; format.node_bytes()];
        let value = vec![3; format.value_len()];
        for key_of in [key_of, clustered_key_of] {
            let two = [key_of(noise[0]), key_of(!noise[0])].map(|key| (key, value.as_slice().into()));
            format.build(&mut node, &NodeInit::live(0, FenceKeys::ALL), two);
            for (at, byte) in flips {
                node[at % format.node_bytes()] = *byte;
                read_everything(format, &node, &key);
            }
        }
    }
    on_formats!(N, on(noise, flips));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nodes_behave_as_maps(ops in prop::collection::vec(any::<[u8; 3]>(), 1..120)) {
        // There are few keys, so that operations collide.
        let few: Vec<_> = ops.iter().map(|[op, key, value]| [*op, key % 14 * 19 + key / 128 * 8, *value]).collect();
        for_some_sizes!(run_ops(&few, false));
        let few: Vec<_> = ops.iter().map(|[op, key, value]| [*op, key & 0xdb, *value]).collect();
        for_some_sizes!(run_ops(&few, true));
    }

    #[test]
    fn decoding_is_total(
        noise in prop::collection::vec(any::<u8>(), 2..600),
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..12),
    ) {
        for_some_sizes!(read_any(&noise, &flips));
    }

    /// Checks that the fence keys in the marks equal those in the header, for keys of even and odd lengths.
    #[test]
    fn marks_contain_the_fence_keys(bytes: [u8; 32], low in 0..100_u8, width in 2..100_u8) {
        for_some_sizes!(near_fences(&bytes, low, width));
    }
}

fn near_fences<const N: usize>(bytes: &[u8; 32], low: u8, width: u8) {
    // The fence keys differ only in their last bytes.
    let fence = |last: u8| {
        let mut key = KeyN::<N>::read_from(bytes);
        key.0[N - 1] = last;
        key
    };
    for value_len in [1, 8, 24, 46, 70] {
        let format = Hopscotch::<KeyN<N>>::new(9, 4, value_len).unwrap();
        let mut node = vec![0; format.geometry().node_bytes()];
        let fences = FenceKeys::new(fence(low), Some(fence(low + width)));
        crate::NodeEdit::build(&format, &mut node, &NodeInit::live(0, fences), []);
        for (key, inside) in [
            (low, true),
            (low + width - 1, true),
            (low.wrapping_sub(1), false),
            (low + width, false),
        ] {
            let key = fence(key);
            let reach = format.geometry().reach(format.home(&key));
            let part = |range: core::ops::Range<usize>| &node[range];
            let parts = (
                part(reach.first.clone()),
                reach.second.clone().map_or(&[][..], part),
            );
            let absent = matches!(format.near(&reach, parts, &key, true), Near::Absent { .. });
            assert_eq!(absent, inside, "{key:?} {fences:?}");
        }
    }
}

/// Sizes of keys and values with which no node is possible are errors. No constructor panics.
#[test]
fn impossible_sizes_are_errors() {
    // A key of 44 bytes and its header fill one line.
    for (key_len, possible) in [
        (1, true),
        (44, true),
        (0, false),
        (45, false),
        (usize::MAX, false),
    ] {
        let expected = (!possible).then_some(GeometryError::KeyBytes(key_len));
        assert_eq!(SlotGeometry::with_node_bytes(1024, key_len, 8).err(), expected);
        assert_eq!(SlotGeometry::with_span(7, key_len, 8).err(), expected);
        assert_eq!(PackedGeometry::with_node_bytes(1024, key_len, 8).err(), expected);
        assert_eq!(HopGeometry::new(16, 4, key_len, 8).err(), expected);
        // The key and the value must also fit into one line together, which is checked first.
        assert_eq!(
            SlotGeometry::marked_with_node_bytes(1024, key_len, 4).is_ok(),
            possible
        );
        assert_eq!(
            SlotGeometry::words_with_node_bytes(1024, key_len).is_ok(),
            possible
        );
        assert_eq!(SlotGeometry::words_with_span(7, key_len).is_ok(), possible);
    }
    // Up to some lengths, such keys fit into a line with a small value, but their header does not.
    for key_len in 45..=200 {
        let wrong = Some(GeometryError::KeyBytes(key_len));
        assert_eq!(PackedGeometry::with_node_bytes(1024, key_len, 0).err(), wrong);
        assert_eq!(HopGeometry::new(16, 4, key_len, 0).err(), wrong);
    }
    // Two of the smaller values do not fit into a node of the maximum size either.
    for value_len in [33_000, 65_537, usize::MAX] {
        let long = GeometryError::ValueBytes(value_len);
        assert_eq!(SlotGeometry::with_node_bytes(1024, 8, value_len), Err(long));
        assert_eq!(SlotGeometry::with_span(7, 8, value_len), Err(long));
        let marked = SlotGeometry::marked_with_node_bytes(1024, 8, value_len);
        assert_eq!(marked, Err(GeometryError::Marked(value_len)));
        let packed = PackedGeometry::with_node_bytes(1024, 8, value_len);
        assert_eq!(packed, Err(GeometryError::Packed(value_len)));
        assert_eq!(HopGeometry::new(7, 4, 8, value_len), Err(long));
        assert_eq!(Bookend::<Key8>::with_node_bytes(1024, value_len), Err(long));
        assert_eq!(Bookend::<Key8>::with_span(7, value_len), Err(long));
        assert_eq!(Checksummed::<Key8>::with_node_bytes(1024, value_len), Err(long));
        assert_eq!(Checksummed::<Key8>::with_span(7, value_len), Err(long));
        assert_eq!(SingleLeaf::<Key8>::new(value_len), Err(long));
    }
    // Two of these values fit into a large node, so the size of the node or the number of entries is wrong.
    let (few, span) = (
        GeometryError::TooFewEntries { capacity: 0 },
        GeometryError::Span(7),
    );
    assert_eq!(SlotGeometry::with_node_bytes(1024, 8, 30_000), Err(few));
    assert_eq!(SlotGeometry::with_span(7, 8, 30_000), Err(span));
    assert_eq!(HopGeometry::new(7, 4, 8, 15_000), Err(span));
    assert_eq!(Bookend::<Key8>::with_node_bytes(1024, 30_000), Err(few));
    assert_eq!(Bookend::<Key8>::with_span(7, 30_000), Err(span));
    assert_eq!(Checksummed::<Key8>::with_node_bytes(1024, 30_000), Err(few));
    assert_eq!(Checksummed::<Key8>::with_span(7, 30_000), Err(span));
    for sound in [
        SlotGeometry::with_span(2, 8, 30_000).err(),
        Bookend::<Key8>::with_span(2, 30_000).err(),
        Checksummed::<Key8>::with_span(2, 30_000).err(),
        HopGeometry::new(2, 2, 8, 15_000).err(),
        SingleLeaf::<Key8>::new(3_900).err(),
    ] {
        assert_eq!(sound, None);
    }
}

/// Words that a CAS changes are aligned, at whatever byte the key before them ends.
#[test]
fn words_that_are_exchanged_are_aligned() {
    fn check<const N: usize>() {
        for value_len in 0..40 {
            let layout = SingleLeaf::<KeyN<N>>::new(value_len).unwrap();
            assert!(layout.depth_at() % 8 == 0 && layout.lock_at() % 8 == 0);
            assert!(layout.lock_at() >= layout.read_bytes() && layout.block_bytes() % 64 == 0);
            assert!(layout.removal().0 % 8 == 0);
        }
        // This includes every format that has a state word.
        for state_word in [
            crate::NodeShape::state_word(&Slotted::<KeyN<N>>::with_node_bytes(512, 8).unwrap()),
            crate::NodeShape::state_word(&Packed::<KeyN<N>>::with_node_bytes(512, 8).unwrap()),
            crate::NodeShape::state_word(&Hopscotch::<KeyN<N>>::new(16, 4, 8).unwrap()),
        ] {
            assert!(state_word.is_none_or(|at| at % 8 == 0), "{state_word:?}");
        }
    }
    for_some_sizes!(check());
}

#[test]
fn single_leaves_come_back_and_mixtures_are_torn() {
    fn check<const N: usize>() {
        let layout = SingleLeaf::<KeyN<N>>::new(13).unwrap();
        let key = KeyN::<N>::read_from(&core::array::from_fn::<_, 32, _>(|at| at as u8 + 1));
        let mut bytes = vec![0; layout.block_bytes()];
        layout.build(&key, &[7; 13], 2, &mut bytes);
        let entry = layout.open(&bytes).unwrap();
        assert_eq!((entry.key, entry.value, entry.depth), (key, &[7; 13][..], 2));
        for at in 16..layout.read_bytes() {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert!(
                matches!(layout.open(&torn), Err(CheckFailure::Torn { .. })),
                "{at}"
            );
        }
    }
    for_some_sizes!(check());
}

/// The hash of a key, which decides its home, depends on every byte of the key.
#[test]
fn every_byte_of_a_key_changes_its_home() {
    fn check<const N: usize>() {
        let format = Hopscotch::<KeyN<N>>::new(64, 8, 8).unwrap();
        let hash = format.hash(&KeyN([5; N]));
        for at in 0..N {
            let mut key = [5; N];
            key[at] = 4;
            assert_ne!(format.hash(&KeyN(key)), hash, "byte {at}");
        }
    }
    for_some_sizes!(check());
    let number = 0x0102_0304_0506_0708_u64;
    let format = Hopscotch::<Key8>::new(64, 8, 8).unwrap();
    let same = Hopscotch::<KeyN<8>>::new(64, 8, 8).unwrap();
    assert_eq!(format.hash(&Key8(number)), same.hash(&KeyN(number.to_be_bytes())));
}
