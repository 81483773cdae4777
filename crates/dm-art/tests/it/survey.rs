//! Tests of surveys of a tree: their counts, and the faults that they find.

use dm_art::{ArtOptions, Compression, Single, SingleStore};
use dm_index::{Condition, Flaw, Key8, RangeIndex, Survey};
use dm_layout::{NodeTypes, RADIX_HEAD_BYTES, RadixNode, RadixSlot, SingleLeaf, SlotWord};
use dm_lock::{DOUBT, LockWord};
use dm_loopback::{Endpoint, Loopback, Trouble, block_on};
use dm_verbs::{NodeId, Place, RemotePtr, Verbs};

use crate::common::{Setup, Tree, pool};

/// A tree of a root, one node below it, and three leaves: two below the node, and one below the root.
struct World {
    pool: Loopback,
    v: Endpoint,
    tree: Tree<Key8>,
    types: NodeTypes,
}

/// The keys of the two leaves below the node, and the key of the leaf below the root.
const PAIR: [u64; 2] = [0x0101_0000_0000_0000, 0x0102_0000_0000_0000];
const OTHER: u64 = 0x0501_0000_0000_0000;
const PATHS: [u64; 3] = [PAIR[0], PAIR[1], OTHER];

/// A child slot in memory: its address and its word.
#[derive(Clone, Copy, Debug)]
struct Child {
    at: RemotePtr,
    word: SlotWord,
}

impl Child {
    fn child(&self) -> RemotePtr {
        RemotePtr::from_raw(self.word.pointer())
    }
}

type Keys = Vec<(RemotePtr, u64, Vec<u8>)>;

impl World {
    fn new() -> Self {
        Self::with(Compression::PESSIMISTIC, PATHS)
    }

    fn with(compression: Compression, keys: [u64; 3]) -> Self {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let base = Setup::small();
        let art = ArtOptions {
            compression,
            ..base.art
        };
        let setup = Setup { art, ..base };
        let tree = setup.open::<Key8>(&v);
        for (key, value) in keys.iter().zip(1..) {
            block_on(tree.client(&v).insert(&Key8(*key), &[value; 8])).unwrap();
        }
        Self {
            // A compute node whose cache is empty.
            tree: setup.open(&v),
            pool,
            v,
            types: setup.art.types,
        }
    }

    /// Returns the child slots of a node, in the order of its bytes.
    fn children(&self, at: RemotePtr, node_type: u8) -> Vec<Child> {
        let bytes = self.types.bytes(node_type) as u32;
        let image = block_on(self.v.read(at, bytes)).unwrap();
        let node = RadixNode::decode(&image, &self.types, node_type).unwrap();
        let slots = (0_u64..).zip(node.words()).filter(|(_, word)| word.has_child());
        let place = |i| at.add(RADIX_HEAD_BYTES as u64 + 8 * i);
        slots.map(|(i, word)| Child { at: place(i), word }).collect()
    }

    /// Returns the root's slot of the node, the root's slot of the leaf, and the node's slots of its two leaves.
    fn slots(&self) -> (Child, Child, [Child; 2]) {
        let (node, leaf) = self.roots();
        let below = self.children(node.child(), node_type(node));
        (node, leaf, below.try_into().unwrap())
    }

    /// Returns the root's slots of the node and of the leaf.
    fn roots(&self) -> (Child, Child) {
        let root = self.children(self.tree.root(), self.types.largest());
        let [node, leaf] = root[..] else {
            panic!("{root:?}")
        };
        assert!(leaf.word.is_leaf() && !node.word.is_leaf());
        (node, leaf)
    }

    fn put(&self, at: RemotePtr, word: u64) {
        block_on(self.v.write(at, &word.to_le_bytes())).unwrap();
    }

    fn survey(&self, mends: bool) -> (Survey, Keys) {
        let (mut survey, mut keys) = (Survey::new(mends, None), Vec::new());
        let each = |_: &mut Survey, at, key: Key8, value: &[u8], _| keys.push((at, key.0, value.to_vec()));
        block_on(self.tree.survey(&self.v, &mut survey, each)).unwrap();
        keys.sort_by_key(|(_, key, _)| *key);
        (survey, keys)
    }

    /// Checks that a survey finds exactly this fault, and these keys.
    #[track_caller]
    fn finds(&self, at: RemotePtr, is: impl Fn(Flaw) -> bool, keys: &[u64]) {
        let (survey, found) = self.survey(false);
        let [(finding, _)] = survey.faults[..] else {
            panic!("{:?}", survey.faults)
        };
        assert!(
            finding.at == Place::from(at) && is(finding.flaw),
            "{finding:?}, not at {at}"
        );
        let found: Vec<u64> = found.iter().map(|(_, key, _)| *key).collect();
        assert_eq!(found, keys);
    }
}

fn node_type(node: Child) -> u8 {
    let Ok(RadixSlot::Inner { node_type, .. }) = node.word.decode() else {
        panic!("{node:?}")
    };
    node_type
}

fn store(tree: &Tree<Key8>) -> &impl SingleStore<Endpoint, Key8> {
    tree.leaves()
}

fn leaf_bytes() -> u64 {
    SingleLeaf::<Key8>::new(8).unwrap().block_bytes() as u64
}

#[test]
fn a_survey_counts_the_nodes_and_the_leaves() {
    let world = World::new();
    let (_, leaf, below) = world.slots();
    let (survey, keys) = world.survey(false);
    assert_eq!(survey.faults, []);
    let at = [below[0].child(), below[1].child(), leaf.child()];
    let values = (1..).map(|value| vec![value; 8]);
    let expected: Keys = at
        .into_iter()
        .zip(PATHS)
        .zip(values)
        .map(|((at, key), value)| (at, key, value))
        .collect();
    assert_eq!(keys, expected);
    let counted = |survey: &Survey| {
        let counted = survey
            .levels
            .iter()
            .map(|level| (level.nodes, level.entries, level.bytes));
        counted.collect::<Vec<_>>()
    };
    let types = &world.types;
    let nodes = types.block_bytes(types.largest()) + types.block_bytes(types.fitting(2));
    assert_eq!(counted(&survey), [(3, 3, 3 * leaf_bytes()), (2, 4, nodes as u64)]);
    assert_eq!((survey.removed, survey.words.len()), (0, 0));
    // A removed leaf that is still linked counts as removed.
    let removed = world
        .tree
        .leaves()
        .remove(&world.v, below[1].child(), &Key8(PAIR[1]), None);
    assert_eq!(block_on(removed), Ok(Single::Hit));
    let (survey, keys) = world.survey(false);
    assert_eq!(counted(&survey), [(3, 2, 3 * leaf_bytes()), (2, 4, nodes as u64)]);
    assert_eq!((survey.faults.len(), survey.removed, keys.len()), (0, 1, 2));
}

#[test]
fn a_survey_finds_faults_and_goes_on_behind_them() {
    let nowhere = RemotePtr::new(NodeId(0), 1 << 40).unwrap();
    // A slot leads to an address without memory.
    let world = World::new();
    let (node, leaf, below) = world.slots();
    let moved = |child: Child, at: RemotePtr| {
        let moved = match child.word.decode().unwrap() {
            RadixSlot::Inner {
                partial, node_type, ..
            } => SlotWord::inner(partial, at.raw(), node_type),
            RadixSlot::Leaf { partial, lines, .. } => SlotWord::leaf(partial, at.raw(), lines),
            other => panic!("{other:?}"),
        };
        moved.unwrap().raw()
    };
    let restore = |child: Child| world.put(child.at, child.word.raw());
    world.put(leaf.at, moved(leaf, nowhere));
    world.finds(nowhere, |flaw| flaw == Flaw::Nowhere, &PAIR);
    restore(leaf);
    world.put(node.at, moved(node, nowhere));
    world.finds(nowhere, |flaw| flaw == Flaw::Nowhere, &[OTHER]);
    // A node leads back to the root.
    world.put(node.at, moved(node, world.tree.root()));
    world.finds(world.tree.root(), |flaw| flaw == Flaw::Cycle, &[OTHER]);
    restore(node);
    // A slot leads to the leaf of another slot.
    world.put(below[0].at, moved(below[0], below[1].child()));
    world.finds(below[1].child(), |flaw| flaw == Flaw::Path, &[PAIR[1], OTHER]);
    restore(below[0]);
    // The bytes of a leaf or of a node are corrupt.
    for (at, bytes, keys) in [
        (leaf.child(), leaf_bytes(), &PAIR[..]),
        (
            node.child(),
            world.types.bytes(world.types.fitting(2)) as u64,
            &[OTHER],
        ),
    ] {
        let before = block_on(world.v.read(at, bytes as u32)).unwrap().to_vec();
        block_on(world.v.write(at, &vec![0xff; bytes as usize])).unwrap();
        world.finds(at, |flaw| matches!(flaw, Flaw::Corrupt(_)), keys);
        block_on(world.v.write(at, &before)).unwrap();
    }
    assert_eq!(world.survey(false).0.faults, []);
    // A slot contains a node type that does not exist.
    let unknown = SlotWord::inner(node.word.partial(), node.child().raw(), 9).unwrap();
    world.put(node.at, unknown.raw());
    world.finds(world.tree.root(), |flaw| flaw == Flaw::Path, &[OTHER]);
    restore(node);
    // The header of a node says that it branches behind the last byte of the keys.
    let third = 0x0101_0100_0000_0000;
    block_on(world.tree.client(&world.v).insert(&Key8(third), &[4; 8])).unwrap();
    let (node, _) = world.roots();
    let lower = world.children(node.child(), node_type(node))[0].child();
    let header = block_on(world.v.word(lower)).unwrap();
    let [_, kind, ..] = header.to_le_bytes();
    let behind = u64::from_le_bytes([2, kind & 0x1f | 6 << 5, 1, 1, 1, 1, 1, 1]);
    world.put(lower, behind);
    world.finds(lower, |flaw| flaw == Flaw::Path, &[PAIR[1], OTHER]);
    world.put(lower, header);
    assert_eq!(world.survey(false).1.len(), 4);
    // A memory node that does not answer causes an error, not a fault.
    world.pool.cut(NodeId(0), Trouble::Unreachable);
    let mut survey = Survey::new(false, None);
    let failed = world.tree.survey(&world.v, &mut survey, |_, _, _, _, _| {});
    assert!(block_on(failed).is_err());
}

/// In a tree that skips key bytes, the first leaf below a node shows the bytes that the node skips. If this leaf cannot be
/// read, the survey still finds the leaves beside it, and no fault in them.
#[test]
fn skipped_bytes_that_no_leaf_shows_are_not_compared() {
    // The root has a node that skips two bytes. Below it are a leaf, and a node with two leaves that skips three bytes.
    let keys = [
        0x0101_0101_0101_0101,
        0x0101_0101_0101_0102,
        0x0101_0102_0000_0000,
    ];
    let world = World::with(Compression::OPTIMISTIC, keys);
    let [upper] = world.children(world.tree.root(), world.types.largest())[..] else {
        panic!("the root has one child");
    };
    let [lower, _] = world.children(upper.child(), node_type(upper))[..] else {
        panic!("the node has two children");
    };
    let below = world.children(lower.child(), node_type(lower));
    let sound = || assert_eq!(world.survey(false).0.faults, []);
    sound();
    let corrupted = |at: RemotePtr, bytes: u64, keys: &[u64]| {
        let before = block_on(world.v.read(at, bytes as u32)).unwrap().to_vec();
        block_on(world.v.write(at, &vec![0xff; bytes as usize])).unwrap();
        world.finds(at, |flaw| matches!(flaw, Flaw::Corrupt(_)), keys);
        block_on(world.v.write(at, &before)).unwrap();
        sound();
    };
    corrupted(below[0].child(), leaf_bytes(), &keys[1..]);
    corrupted(
        lower.child(),
        world.types.bytes(node_type(lower)) as u64,
        &keys[2..],
    );
    let nowhere = RemotePtr::new(NodeId(0), 1 << 40).unwrap();
    let moved = SlotWord::inner(lower.word.partial(), nowhere.raw(), node_type(lower)).unwrap();
    world.put(lower.at, moved.raw());
    world.finds(nowhere, |flaw| flaw == Flaw::Nowhere, &keys[2..]);
    world.put(lower.at, lower.word.raw());
    // A client has removed both leaves of the lower node, and has not renewed the node.
    for slot in &below {
        world.put(slot.at, SlotWord::removed(slot.word.partial(), 1).raw());
    }
    let (survey, found) = world.survey(false);
    assert_eq!((survey.faults, found.len(), found[0].1), (vec![], 1, keys[2]));
    // The key bytes of slots are always compared.
    let RadixSlot::Leaf { lines, .. } = below[1].word.decode().unwrap() else {
        panic!("{below:?}");
    };
    let other = SlotWord::leaf(below[0].word.partial(), below[1].word.pointer(), lines).unwrap();
    world.put(below[0].at, other.raw());
    world.finds(below[1].child(), |flaw| flaw == Flaw::Path, &keys[2..]);
}

/// No client renews the root, so a frozen slot in it is damage. A survey that mends reports it and goes on.
#[test]
fn a_frozen_root_is_a_fault() {
    let world = World::new();
    let (node, ..) = world.slots();
    world.put(node.at, node.word.frozen().raw());
    let (survey, keys) = world.survey(true);
    let found: Vec<_> = survey.faults.iter().map(|(finding, _)| *finding).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].at, Place::from(world.tree.root()));
    assert_eq!(found[0].flaw, Flaw::Unfinished(Condition::Frozen));
    assert_eq!((keys.len(), survey.mended), (3, 0));
}

/// A survey finds a renewal that was begun and not finished. A survey that mends finishes it.
#[test]
fn a_survey_that_mends_finishes_a_replacement() {
    for mends in [false, true] {
        let world = World::new();
        let (node, ..) = world.slots();
        // A client freezes all slots of a node that it replaces.
        let slots = world.types.slots(world.types.fitting(2)) as u64;
        for i in 0..slots {
            let at = node.child().add(RADIX_HEAD_BYTES as u64 + 8 * i);
            let word = SlotWord::from_raw(block_on(world.v.word(at)).unwrap());
            world.put(at, word.frozen().raw());
        }
        let (survey, keys) = world.survey(mends);
        let found: Vec<_> = survey.faults.iter().map(|(finding, _)| *finding).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at, Place::from(node.child()));
        assert_eq!(found[0].flaw, Flaw::Unfinished(Condition::Frozen));
        assert_eq!((keys.len(), survey.mended), (3, u64::from(mends)));
        let (again, keys) = world.survey(mends);
        assert_eq!((again.faults.len(), keys.len()), (usize::from(!mends), 3));
        assert_eq!(world.slots().0.child() == node.child(), !mends);
    }
}

/// A survey follows a replaced leaf to its replacement, which must have the same key.
#[test]
fn a_survey_compares_the_keys_of_a_replaced_leaf_and_its_replacement() {
    for (key, sound) in [(OTHER, true), (OTHER + 1, false)] {
        let world = World::new();
        let (_, leaf, _) = world.slots();
        let next = RemotePtr::new(NodeId(0), 3 << 20).unwrap();
        let leaves = store(&world.tree);
        let mut image = Vec::new();
        leaves.image(&Key8(key), &[9; 8], 7, &mut image);
        let replaced = leaves.replace(&world.v, leaf.child(), next, &image);
        assert_eq!(block_on(replaced), Ok(true));
        match sound {
            true => {
                let (survey, keys) = world.survey(false);
                assert_eq!(survey.faults, []);
                assert_eq!(keys[2], (next, OTHER, vec![9; 8]));
            }
            // Both keys have the key bytes of the path.
            false => world.finds(next, |flaw| flaw == Flaw::Path, &PAIR),
        }
    }
}

/// A lock word of a leaf is a part of the survey if it is held or in doubt.
#[test]
fn a_survey_lists_the_lock_words_of_leaves() {
    let world = World::new();
    let (_, leaf, _) = world.slots();
    let place = leaf
        .child()
        .add(SingleLeaf::<Key8>::new(8).unwrap().lock_at() as u64);
    let free = LockWord {
        count: 7,
        payload: 6,
        ..LockWord::default()
    };
    let held = LockWord {
        locked: true,
        owner: 5,
        ..free
    };
    let doubted = LockWord {
        payload: 6 | DOUBT,
        ..free
    };
    for (word, listed) in [(free, false), (held, true), (doubted, true)] {
        world.put(place, word.pack());
        let expected = listed.then(|| (Place::from(place), word.pack(), true));
        assert_eq!(world.survey(false).0.words, Vec::from_iter(expected));
    }
}
