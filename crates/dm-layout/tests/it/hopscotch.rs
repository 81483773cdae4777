//! Tests of hopscotch nodes. They compare nodes with a plain map, read single neighbourhoods, fill nodes completely,
//! read arbitrary bytes, and check exact bytes.

use dm_layout::testing::{NodeModel, NodeOp, key_of, read_everything};
use dm_layout::{
    CheckFailure, FenceKeys, GeometryError, Hopscotch, Key8, KeyBytes, KeyN, Lookup, Near, NodeEdit,
    NodeInit, NodeRead, NodeShape, NodeSteps, NodeStructure, Place, Reason, SplitBias, SplitRequest,
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
        let known = format.geometry().all();
        let plan = format.plan_hops(&noise, &key, &known).expect("the length");
        if let Some(plan) = plan.filter(|_| format.geometry().is_in_line()) {
            let value = vec![5; format.value_len()];
            format.hop(
                &mut noise.clone(),
                &plan,
                (&key, (&value[..]).into()),
                true,
                |_, _| {},
            );
        }
        format.is_sound(&noise, &known, 1);
    }
}

/// Builds a node of those of the first `keys` small keys that have a free slot without a hop.
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
    read_parts(format, [node, node], key)
}

/// Reads a key's neighbourhood: the first part from one image of the node, and the second part, if it wraps, from
/// another.
fn read_parts<'a, K: KeyBytes>(format: &Hopscotch<K>, nodes: [&'a [u8]; 2], key: &K) -> Near<'a> {
    let reach = format.geometry().reach(format.home(key));
    let second = reach.second.clone().map_or(&[][..], |range| &nodes[1][range]);
    let parts = (&nodes[0][reach.first.clone()], second);
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

/// A writer reads only a neighbourhood and the slots after it. It finds them sound, and plans and makes the same hops
/// as with the whole node.
#[test]
fn hops_need_only_the_bytes_that_were_read() {
    let format = Hopscotch::<Key8>::new(64, 8, 8).expect("sound");
    let geometry = format.geometry();
    let mut planned = 0;
    for seed in 0..20 {
        let mut node = vec![0; format.node_bytes()];
        format.build(&mut node, &NodeInit::live(0, FenceKeys::ALL), []);
        for key in scattered(seed).map(Key8).take(50) {
            if let Ok(Place::Free(slot)) = format.place(&node, &key) {
                format.put(&mut node, slot, &key, (&[7; 8]).into());
            }
        }
        for key in scattered(seed + 50).map(Key8).take(400) {
            if format.place(&node, &key) != Ok(Place::Full) {
                continue;
            }
            let reach = geometry.reach(format.home(&key));
            let (known, more, wrapped) = geometry.beyond(&reach, 14).expect("22 slots of 64");
            let mut seen = vec![0; node.len()];
            for range in [
                Some(reach.first.clone()),
                reach.second.clone(),
                Some(more),
                wrapped,
            ] {
                let range = range.unwrap_or(0..0);
                assert!(
                    seen[range.clone()].iter().all(|byte| *byte == 0),
                    "no byte is read twice"
                );
                seen[range.clone()].copy_from_slice(&node[range]);
            }
            let version = format.header(&node).expect("sound").version;
            assert!(
                format.is_sound(&seen, &known, version),
                "home {}",
                format.home(&key)
            );
            let plan = format.plan_hops(&node, &key, &known).expect("sound");
            assert_eq!(format.plan_hops(&seen, &key, &known), Ok(plan));
            let Some(plan) = plan else { continue };
            planned += 1;
            let (mut whole, mut remote) = (node.clone(), node.clone());
            format.hop(&mut whole, &plan, (&key, (&[9; 8]).into()), true, |_, _| {});
            format.hop(&mut seen, &plan, (&key, (&[9; 8]).into()), true, |at, bytes| {
                remote[at..at + bytes.len()].copy_from_slice(bytes);
            });
            assert_eq!(remote, whole);
        }
    }
    assert!(planned > 100, "{planned}");
    let small = Hopscotch::<Key8>::new(12, 4, 8).expect("sound");
    let reach = small.geometry().reach(0);
    assert_eq!(small.geometry().beyond(&reach, 14), None);
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
        match format.place(&image, &key).expect("sound") {
            Place::Present(_) => panic!("no key comes twice"),
            Place::Free(slot) => drop(format.put(&mut image, slot, &key, (&value).into())),
            Place::Full => {
                let known = format.geometry().all();
                let Some(plan) = format.plan_hops(&image, &key, &known).expect("sound") else {
                    check(&format, &image, seed, count);
                    return count;
                };
                hop_by_ranges(&format, &mut image, &plan, (&key, &value));
            }
        }
    }
    unreachable!("a node fills up")
}

/// Makes the hops of `plan` in `image`. Checks that the ranges that are written contain all changes, and that no key of
/// the node disappears between two WRITEs.
fn hop_by_ranges(
    format: &Hopscotch<Key8>,
    image: &mut Vec<u8>,
    plan: &dm_layout::HopPlan,
    (key, value): (&Key8, &[u8; 8]),
) {
    let mut remote = image.clone();
    let keys: Vec<Key8> = format
        .slots(image)
        .filter_map(|slot| Some(format.entry(image, slot).expect("sound")?.0))
        .collect();
    format.hop(image, plan, (key, value.into()), true, |at, bytes| {
        remote[at..at + bytes.len()].copy_from_slice(bytes);
        for key in &keys {
            let near = read_near(format, &remote, key);
            assert!(matches!(near, Near::Found { .. }), "{key:?}: {near:?}");
        }
    });
    assert_eq!(remote, *image);
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

/// Checks that a node of 64 entries is on average filled to at least 88 % with neighbourhoods of 8 entries, and to at
/// least 99 % with neighbourhoods of 16. CHIME Fig. 19 b shows 88.1 % and 99.8 %.
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

/// Readers do not search outside a key's neighbourhood, so an entry there is damage.
#[test]
fn an_entry_outside_its_neighbourhood_is_corrupt() {
    let format = Hopscotch::<Key8>::new(64, 8, 8).expect("sound");
    let mut image = filled(&format, 0);
    let key = Key8(1);
    let other = scattered(7).map(Key8).find(|other| {
        let away = (format.home(other) + 64 - format.home(&key)) % 64;
        away >= 8
    });
    let Ok(Place::Free(slot)) = format.place(&image, &other.expect("one of many")) else {
        panic!("the node is empty");
    };
    format.put(&mut image, slot, &key, (&[7; 8]).into());
    match format.entry(&image, slot) {
        Err(CheckFailure::Corrupt(corrupt)) => {
            assert_eq!(corrupt.offset, slot.offset());
            assert_eq!(corrupt.reason, Reason::Neighbourhood);
            assert!(corrupt.to_string().contains("neighbourhood"), "{corrupt}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_width_is_named() {
    let format = Hopscotch::<Key8>::new(64, 8, 8).expect("sound");
    let hops = format.with_hop_bits(9).expect_err("a byte has 8 bits");
    assert_eq!(hops, GeometryError::HopBits(9));
    assert!(hops.to_string().contains("hop count of 9 bits"), "{hops}");
    let version = format.with_version_bits(7).expect_err("at most 6 bits");
    assert_eq!(version, GeometryError::VersionBits(7));
}

/// A get READs 162 to 175 bytes for a neighbourhood of 8 entries with 8-byte keys and values.
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

/// An unfinished hop leaves two equal copies of an entry. A repair of the node removes one of them.
#[test]
fn a_writer_removes_the_other_copies_of_an_entry() {
    let format = Hopscotch::<Key8>::new(64, 8, 8).expect("sound");
    let mut image = vec![0; format.node_bytes()];
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
    // Keys are inserted until one needs a hop from one line to another.
    let (new, plan) = scattered(7)
        .map(Key8)
        .find_map(|key| match format.place(&image, &key).expect("sound") {
            Place::Free(slot) => {
                format.put(&mut image, slot, &key, (&[7; 8]).into());
                None
            }
            _ => {
                let plan = format.plan_hops(&image, &key, &format.geometry().all());
                let plan = plan.expect("sound")?;
                let [(from, to)] = *plan.moves() else { return None };
                (from.offset() / 64 != to.offset() / 64).then_some((key, plan))
            }
        })
        .expect("a full neighbourhood");
    let (from, _) = plan.moves()[0];
    let (key, _) = format.entry(&image, from).expect("sound").expect("it hops");
    assert_eq!(format.remove_duplicates(&mut image, from), None);
    // Only the first WRITE takes effect.
    let (mut remote, mut writes) = (image.clone(), 0);
    format.hop(&mut image, &plan, (&new, (&[9; 8]).into()), true, |at, bytes| {
        if writes == 0 {
            remote[at..at + bytes.len()].copy_from_slice(bytes);
        }
        writes += 1;
    });
    assert_eq!(writes, 2);
    assert!(matches!(
        read_near(&format, &remote, &key),
        Near::Found { twice: true, .. }
    ));
    // An absent key that could have made the same hop may be missed.
    let absent = scattered(8)
        .map(Key8)
        .find(|k| format.home(k) == format.home(&key));
    let absent = absent.expect("one of many");
    assert_eq!(read_near(&format, &remote, &absent), Near::Unsure);
    assert!(format.accept(&remote).is_err_and(|e| e.is_torn()));
    format.repair(&mut remote).expect("a node");
    assert!(format.accept(&remote).is_ok());
    assert!(matches!(
        read_near(&format, &remote, &key),
        Near::Found { twice: false, .. }
    ));
    let Ok(Place::Present(first)) = format.place(&remote, &key) else {
        panic!("it is still there")
    };
    assert_eq!(format.remove_duplicates(&mut remote, first), None);
}

/// Returns all states of a small leaf in which keys are inserted with hops and removed, line by line. The lines of one
/// WRITE take effect in increasing or decreasing order.
fn states_of_hops(format: &Hopscotch<Key8>, seed: u64, counted: bool) -> Vec<Vec<u8>> {
    let mut image = vec![0; format.node_bytes()];
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), []);
    let mut states = vec![image.clone()];
    let mut numbers = scattered(seed);
    let mut keys: Vec<Key8> = Vec::new();
    for key in (0..80).map(Key8) {
        let mut writes: Vec<(usize, Vec<u8>)> = Vec::new();
        match format.place(&image, &key).expect("sound") {
            Place::Present(_) => panic!("no key comes twice"),
            Place::Free(slot) => {
                let range = format.put(&mut image, slot, &key, (&[1; 8]).into());
                writes.push((range.start, image[range].to_vec()));
                keys.push(key);
            }
            Place::Full => {
                let known = format.geometry().all();
                if let Some(plan) = format.plan_hops(&image, &key, &known).expect("sound") {
                    let entry = (&key, (&[1; 8]).into());
                    format.hop(&mut image, &plan, entry, counted, |at, bytes| {
                        writes.push((at, bytes.to_vec()));
                    });
                    keys.push(key);
                }
            }
        }
        let number = numbers.next().expect("there is no end") as usize;
        if keys.len() + 2 > format.capacity() {
            let key = keys.swap_remove(number % keys.len());
            let Ok(Place::Present(slot)) = format.place(&image, &key) else {
                panic!("it was inserted")
            };
            let range = format.remove(&mut image, slot);
            writes.push((range.start, image[range].to_vec()));
        }
        for (at, bytes) in writes {
            let mut lines: Vec<usize> = (at / 64..(at + bytes.len()).div_ceil(64)).collect();
            if number % 2 == 0 {
                lines.reverse();
            }
            for line in lines {
                let mut state = states[states.len() - 1].clone();
                let range = at.max(line * 64)..(at + bytes.len()).min(line * 64 + 64);
                state[range.clone()].copy_from_slice(&bytes[range.start - at..range.end - at]);
                states.push(state);
            }
        }
    }
    assert_eq!(states[states.len() - 1], image);
    states
}

/// Counts how often a READ misses a key that was present all the time. The state of each line of a READ is drawn from
/// `window + 1` successive states. A neighbourhood that wraps takes two READs. They may find different states of a line
/// that both contain.
fn missed(format: &Hopscotch<Key8>, window: usize, counted: bool) -> usize {
    let mut missed = 0;
    for seed in 0..30 {
        let states = states_of_hops(format, seed, counted);
        let mut numbers = scattered(seed + 100);
        let has = |state: &Vec<u8>, key: &Key8| dm_layout::find(format, state, key).expect("sound").is_some();
        for during in states.windows(window + 1) {
            let all = (0..80).map(Key8);
            let kept: Vec<Key8> = all
                .filter(|key| during.iter().all(|state| has(state, key)))
                .collect();
            for _ in 0..20 {
                let [seen, again] = [(); 2].map(|()| {
                    let mut seen = during[0].clone();
                    for (line, bytes) in seen.chunks_exact_mut(64).enumerate() {
                        let later = numbers.next().expect("there is no end") as usize % during.len();
                        bytes.copy_from_slice(&during[later][line * 64..][..64]);
                    }
                    seen
                });
                let absent =
                    |key: &&Key8| matches!(read_parts(format, [&seen, &again], key), Near::Absent { .. });
                missed += kept.iter().filter(absent).count();
                if format.accept(&seen).is_ok() {
                    let absent = |key: &&Key8| format.lookup(&seen, key, 0) == Ok(Lookup::Absent);
                    missed += kept.iter().filter(absent).count();
                }
            }
        }
    }
    missed
}

/// A READ whose lines are from different moments finds every key, or proves nothing. It misses keys if hops are not
/// counted, and if counts of one bit wrap during the READ.
#[test]
fn a_key_that_hops_is_never_missed() {
    let (mut uncounted, mut wrapped) = (0, 0);
    for (span, near) in [(9, 5), (9, 8), (9, 9), (12, 4), (12, 11), (16, 16), (7, 3)] {
        let format = Hopscotch::<Key8>::new(span, near, 8).expect("sound");
        assert_eq!(missed(&format, 9, true), 0, "{span} slots");
        uncounted += missed(&format, 9, false);
        wrapped += missed(&format.with_hop_bits(1).expect("a bit"), 30, true);
    }
    assert!(uncounted > 0 && wrapped > 0, "{uncounted}, {wrapped}");
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
            "0055000000000000001022220000000000005400000000000000000000000000",
            "0000005500000000000000301111000000000000005409000000000000001000",
            "0054000000000000000000000000000000000054090000000000000099000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
        ]
    );
}
