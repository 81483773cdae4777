//! Tests of hopscotch nodes: compared with a plain map, neighbourhood by neighbourhood, completely full, with
//! arbitrary bytes, and exact bytes.

use dm_layout::testing::{NodeModel, NodeOp, key_of, read_everything};
use dm_layout::{
    FenceKeys, Hopscotch, Key8, KeyBytes, KeyN, Lookup, Near, NodeEdit, NodeInit, NodeRead, NodeShape,
    NodeSteps, NodeStructure, Place, SplitBias, SplitRequest,
};
use proptest::prelude::*;

macro_rules! on_every_geometry {
    ($run:ident ( $($argument:expr),* )) => {{
        $run::<Key8>(&Hopscotch::new(64, 8, 8).expect("sound"), $($argument),*);
        $run::<Key8>(&Hopscotch::new(64, 16, 8).expect("sound"), $($argument),*);
        $run::<Key8>(&Hopscotch::new(4, 2, 8).expect("sound").with_version_bits(2).expect("sound"), $($argument),*);
        $run::<Key8>(&Hopscotch::new(7, 3, 1).expect("sound"), $($argument),*);
        $run::<Key8>(&Hopscotch::new(9, 4, 46).expect("sound"), $($argument),*);
        $run::<Key8>(&Hopscotch::new(6, 4, 64).expect("sound"), $($argument),*);
        $run::<Key8>(&Hopscotch::new(16, 8, 200).expect("sound"), $($argument),*);
        $run::<KeyN<32>>(&Hopscotch::new(64, 8, 8).expect("sound"), $($argument),*);
        $run::<KeyN<32>>(&Hopscotch::new(10, 5, 20).expect("sound"), $($argument),*);
        $run::<KeyN<32>>(&Hopscotch::new(2, 2, 100).expect("sound"), $($argument),*);
    }};
}

fn run_ops<K: KeyBytes>(format: &Hopscotch<K>, ops: &[[u8; 3]]) {
    let mut model = NodeModel::new(*format);
    for op in ops {
        model.apply(NodeOp::from_bytes(*op));
    }
}

fn read_any<K: KeyBytes>(format: &Hopscotch<K>, seed: &[u8], flips: &[(usize, u8)]) {
    let key = key_of(seed[0]);
    read_everything(format, &seed[1..], &key);
    let mut noise: Vec<u8> = seed.iter().copied().cycle().take(format.node_bytes()).collect();
    read_everything(format, &noise, &key);
    read_near(format, &noise, &key);
    // A valid node with a few changed bytes reaches more code than random bytes.
    noise = filled(format, 200);
    for (at, byte) in flips {
        noise[at % format.node_bytes()] = *byte;
        read_everything(format, &noise, &key);
        read_near(format, &noise, &key);
        let _ = format.plan_hops(&noise, &key);
    }
}

/// Builds a node of small keys: those of the first `keys` ones that find a slot without a hop.
fn filled<K: KeyBytes>(format: &Hopscotch<K>, keys: u8) -> Vec<u8> {
    let mut image = vec![0; format.node_bytes()];
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
    let value = vec![3; format.value_len()];
    for key in (0..keys).map(key_of) {
        if let Ok(Place::Free(slot)) = format.place(&image, &key) {
            format.put(&mut image, slot, &key, value.as_slice().into());
        }
    }
    image
}

fn read_near<'a, K: KeyBytes>(format: &Hopscotch<K>, node: &'a [u8], key: &K) -> Near<'a> {
    let reach = format.geometry().reach(format.home(key));
    let second = reach.second.clone().map_or(&[][..], |range| &node[range]);
    let parts = (&node[reach.first.clone()], second);
    format.near(&reach, parts, key, true)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nodes_behave_as_maps(ops in prop::collection::vec(any::<[u8; 3]>(), 1..200)) {
        on_every_geometry!(run_ops(&ops));
    }

    #[test]
    fn decoding_is_total(
        seed in prop::collection::vec(any::<u8>(), 2..300),
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..12),
    ) {
        on_every_geometry!(read_any(&seed, &flips));
    }

    /// A neighbourhood gives the same result as the whole node.
    #[test]
    fn a_neighbourhood_gives_the_same_result_as_the_node(keys in any::<u8>()) {
        on_every_geometry!(agree(keys));
    }
}

fn agree<K: KeyBytes>(format: &Hopscotch<K>, keys: u8) {
    let node = filled(format, keys);
    for key in (0..=255).map(key_of::<K>) {
        let whole = format.lookup(&node, &key, 0).expect("a node at rest");
        match (read_near(format, &node, &key), whole) {
            (Near::Found { slot, value, .. }, Lookup::Found { slot: s, value: v }) => {
                assert_eq!((slot, value), (s, v), "{key:?}");
            }
            (Near::Absent { free, .. }, Lookup::Absent) => {
                let place = format.place(&node, &key).expect("a node at rest");
                assert_eq!(free.map_or(Place::Full, Place::Free), place, "{key:?}");
            }
            (near, whole) => panic!("{key:?}: {near:?} beside {whole:?}"),
        }
    }
}

/// Returns a pseudo-random sequence of numbers.
fn scattered(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::from_fn(move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Some((x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB))
    })
}

/// Inserts keys until one has no room, even after hops. Returns the number of keys.
fn fill<const H: usize>(seed: u64) -> usize {
    let format = Hopscotch::<Key8>::new(64, H, 8).expect("sound");
    let mut image = vec![0; format.node_bytes()];
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
    for (count, key) in scattered(seed).map(Key8).enumerate() {
        let value = key.0.to_le_bytes();
        let slot = match format.place(&image, &key).expect("sound") {
            Place::Present(_) => panic!("no key comes twice"),
            Place::Free(slot) => slot,
            Place::Full => match format.plan_hops(&image, &key).expect("sound") {
                None => {
                    check(&format, &image, seed, count);
                    return count;
                }
                Some(plan) => {
                    for hop in plan.moves() {
                        format.hop(&mut image, *hop, true).expect("sound");
                    }
                    plan.slot
                }
            },
        };
        format.put(&mut image, slot, &key, (&value).into());
    }
    unreachable!("a node fills up")
}

/// Checks that every key is present once, with its value, after all hops.
fn check(format: &Hopscotch<Key8>, image: &[u8], seed: u64, count: usize) {
    dm_layout::audit(format, image).expect("keys in their neighbourhoods, none twice");
    assert_eq!(format.len(image), Ok(count));
    for key in scattered(seed).take(count).map(Key8) {
        match read_near(format, image, &key) {
            Near::Found { value, .. } => assert_eq!(value.as_u64(), key.0),
            near => panic!("{key:?}: {near:?}"),
        }
    }
}

/// Nodes reach the capacities of CHIME Fig. 19 b: on average 88.1 % and 99.8 % of 64 entries.
#[test]
fn nodes_fill_up_as_the_paper_says() {
    let mean = |fill: fn(u64) -> usize| (0..200).map(fill).sum::<usize>() as f64 / (200.0 * 64.0);
    let (eight, sixteen) = (mean(fill::<8>), mean(fill::<16>));
    assert!(eight >= 0.88, "H 8: {eight}");
    assert!(sixteen >= 0.99, "H 16: {sixteen}");
}

/// All keys have one home, and are inserted in several orders. Each split must make room for the new key.
#[test]
fn crowded_homes_split() {
    let format = Hopscotch::<Key8>::new(64, 8, 8).expect("sound");
    let mut crowd: Vec<Key8> = scattered(5)
        .map(Key8)
        .filter(|k| format.home(k) == 60)
        .take(40)
        .collect();
    for turn in 0..3 {
        match turn {
            0 => {}
            1 => crowd.sort_unstable(),
            _ => crowd.reverse(),
        }
        let mut nodes: Vec<Vec<u8>> = vec![vec![0; format.node_bytes()]];
        format.build(&mut nodes[0], &NodeInit::live(0, FenceKeys::ALL), []);
        for (nth, key) in crowd.iter().enumerate() {
            insert_splitting(&format, &mut nodes, key, nth);
            for key in &crowd[..=nth] {
                let found = nodes
                    .iter()
                    .filter(|n| matches!(read_near(&format, n, key), Near::Found { .. }));
                assert_eq!(found.count(), 1, "{key:?}");
            }
        }
    }
}

fn insert_splitting(format: &Hopscotch<Key8>, nodes: &mut Vec<Vec<u8>>, key: &Key8, nth: usize) {
    let covers = |node: &Vec<u8>| format.accept(node).expect("sound").fences.contains(key);
    let at = nodes.iter().position(covers).expect("sound");
    let value = [9; 8];
    if let Place::Free(slot) = format.place(&nodes[at], key).expect("sound") {
        format.put(&mut nodes[at], slot, key, (&value).into());
        return;
    }
    let mut right = vec![0; format.node_bytes()];
    let request = SplitRequest {
        right_address: 64 * (nth as u64 + 1),
        right_incarnation: 1,
        right_version: 1,
        owner: 1,
        new: Some((*key, (&value).into())),
        bias: SplitBias::Median,
    };
    let plan = format
        .prepare_split(&nodes[at], &mut right, &request)
        .expect("sound")
        .expect("sound");
    format.split_at_once(&mut nodes[at], &plan).expect("sound");
    if let Some((slot, key, value)) = plan.late_right {
        format.put(&mut right, slot, &key, value);
    }
    format.open(&mut right).expect("sound");
    nodes.push(right);
}

/// A get may READ at most 200 bytes for a neighbourhood of 8 entries with 8-byte keys and values.
#[test]
fn a_neighbourhood_is_small() {
    let format = Hopscotch::<Key8>::new(64, 8, 8).expect("sound");
    let geometry = format.geometry();
    assert_eq!(geometry.node_bytes(), 1472);
    let reaches: Vec<_> = (0..64).map(|home| geometry.reach(home)).collect();
    assert_eq!(reaches.iter().filter(|reach| reach.second.is_some()).count(), 7);
    let (least, most) = (
        reaches.iter().map(dm_layout::Reach::bytes).min(),
        reaches.iter().map(dm_layout::Reach::bytes).max(),
    );
    assert_eq!((least, most), (Some(162), Some(175)));
}

/// Lines of several writes prove nothing, except that a key that is found is present.
#[test]
fn mixed_lines_are_seen() {
    let format = Hopscotch::<Key8>::new(64, 8, 8).expect("sound");
    let old = filled(&format, 40);
    let mut new = old.clone();
    let header = format.header(&new).expect("sound");
    format.seal_rest(&mut new, header.version + 1);
    let absent = (41..)
        .map(key_of::<Key8>)
        .find(|k| format.home(k) % 3 == 1)
        .expect("sound");
    let first = format.geometry().reach(format.home(&absent)).first.start / 64 * 64;
    let mut mixed = new.clone();
    mixed[first..first + 64].copy_from_slice(&old[first..first + 64]);
    assert!(matches!(read_near(&format, &old, &absent), Near::Absent { .. }));
    assert!(matches!(read_near(&format, &new, &absent), Near::Absent { .. }));
    assert_eq!(read_near(&format, &mixed, &absent), Near::Unsure);
}

/// A node in reused memory proves nothing to clients with a stale address, and a dead node proves nothing to any
/// client.
#[test]
fn young_and_dead_nodes_prove_nothing() {
    let format = Hopscotch::<Key8>::new(64, 8, 8).expect("sound");
    let mut image = vec![0; format.node_bytes()];
    let init = NodeInit::live(0, FenceKeys::ALL).reusing(1, 1);
    format.build(&mut image, &init, [(Key8(1), (&[0; 8]).into())]);
    let reach = format.geometry().reach(format.home(&Key8(1)));
    let second = reach.second.clone().map_or(&[][..], |range| &image[range]);
    let parts = (&image[reach.first.clone()], second);
    let near = |linked| format.near(&reach, parts, &Key8(1), linked);
    assert_eq!(near(false), Near::Unsure);
    assert!(matches!(near(true), Near::Found { .. }));
    format.bury(&mut image, 64).expect("sound");
    assert_eq!(read_near(&format, &image, &Key8(1)), Near::Unsure);
}

/// The bytes of one entry prove a value only if the entry is present, has the key, and its node was certainly linked.
#[test]
fn an_entry_proves_itself() {
    for value_len in [8, 46, 200] {
        let format = Hopscotch::<Key8>::new(16, 8, value_len).expect("sound");
        let (key, value) = (Key8(7), vec![5; value_len]);
        let with = |init: &NodeInit<Key8>| {
            let mut image = vec![0; format.node_bytes()];
            format.build(&mut image, init, [(key, value.as_slice().into())]);
            image
        };
        let first = with(&NodeInit::live(0, FenceKeys::ALL));
        let Ok(Place::Present(slot)) = format.place(&first, &key) else {
            panic!("it was put there")
        };
        let entry = format.geometry().entry(format.geometry().number_of(slot));
        let alone = |image: &[u8], key: Key8| {
            let found = format.alone(&image[entry.clone()], &key);
            found.map(|value| value.to_vec())
        };
        assert_eq!(alone(&first, key).as_ref(), Some(&value));
        assert_eq!(alone(&first, Key8(8)), None);
        let mut removed = first.clone();
        format.remove(&mut removed, slot);
        assert_eq!(alone(&removed, key), None);
        let mut used = with(&NodeInit::live(0, FenceKeys::ALL).reusing(1, 1));
        assert_eq!(alone(&used, key), None);
        // A node whose structure has changed since it was built is linked.
        format.seal_rest(&mut used, 2);
        assert_eq!(alone(&used, key).as_ref(), Some(&value));
        format.bury(&mut used, 64).expect("sound");
        assert_eq!(alone(&used, key), None);
        if !format.geometry().is_in_line() {
            // One line belongs to an older write.
            let mut newer = first.clone();
            format.update(&mut newer, slot, vec![6; value_len].as_slice().into());
            let torn = entry.start..entry.start + 64;
            newer[torn.clone()].copy_from_slice(&first[torn]);
            assert_eq!(alone(&newer, key), None);
        }
    }
    assert!(
        Hopscotch::<Key8>::new(64, 8, 8)
            .expect("sound")
            .geometry()
            .entry(63)
            .len()
            <= 24
    );
}

/// An unfinished hop leaves equal copies of an entry. A writer of one copy removes the others first.
#[test]
fn a_writer_removes_the_other_copies_of_an_entry() {
    let format = Hopscotch::<Key8>::new(64, 8, 8).expect("sound");
    let mut image = filled(&format, 30);
    let key = key_of::<Key8>(3);
    let Ok(Place::Present(from)) = format.place(&image, &key) else {
        panic!("it was put there")
    };
    assert_eq!(format.remove_duplicates(&mut image, from), None);
    let near = (0..8).map(|n| (format.home(&key) + n) % 64);
    let free = near
        .map(|n| format.geometry().entry(n).start)
        .find(|at| image[*at] & 1 == 0);
    let to = format
        .slots(&image)
        .find(|slot| Some(slot.offset()) == free)
        .expect("room in the neighbourhood");
    format.hop(&mut image, (from, to), true).expect("sound");
    assert!(matches!(
        read_near(&format, &image, &key),
        Near::Found { twice: true, .. }
    ));
    let Ok(Place::Present(first)) = format.place(&image, &key) else {
        panic!("it is there twice")
    };
    assert!(format.remove_duplicates(&mut image, first).is_some());
    assert!(matches!(
        read_near(&format, &image, &key),
        Near::Found { twice: false, .. }
    ));
}

fn hex(bytes: &[u8]) -> Vec<String> {
    let lines = bytes.chunks(32);
    lines
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect()
}

#[test]
fn the_bytes_are_as_pictured() {
    let format = Hopscotch::<Key8>::new(4, 2, 8).expect("sound");
    let mut image = vec![0xee; format.node_bytes()];
    let init = NodeInit {
        sibling: 0x440,
        version: 0x15,
        ..NodeInit::live(0, FenceKeys::new(Key8(0x10), Some(Key8(0x99))))
    };
    let values = [0x1111_u64, 0x2222].map(u64::to_le_bytes);
    format.build(
        &mut image,
        &init,
        [
            (Key8(0x30), (&values[0]).into()),
            (Key8(0x10), (&values[1]).into()),
        ],
    );
    assert_eq!(
        hex(&image),
        [
            "15d4001101000000400400000000000000000000000000990000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "5500000000000000102222000000000000540000000000000000000000000000",
            "0000550000000000000030111100000000000054090000000000000000001000",
            "5400000000000000000000000000000000540900000000000000000099000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
        ]
    );
}
