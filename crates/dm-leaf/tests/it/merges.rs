//! Tests of merges of two neighbours, with and without a parent, and of the removal of a root with one child.

use std::cell::Cell;

use dm_index::{
    BulkLoad, IndexError, Key8, Lead, Merge, Neighbours, NodeAccess, NodeCopies, NodeCopy, Restructure,
};
use dm_layout::{Checksummed, FenceKeys, Hopscotch, NodeFormat, NodeRead, NodeShape, Place, Slotted};
use dm_leaf::Nodes;
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_verbs::{Effect, RemotePtr, Verbs};

use crate::common::{Setup, cost, pool};

/// Two leaves, [.., 20) and [20, 40), and their parent, which has one more child to the right of them.
struct Family<F> {
    _pool: Loopback,
    v: Endpoint,
    leaves: Nodes<Key8, F>,
    parents: Nodes<Key8, Slotted<Key8>>,
    pair: Neighbours<Key8>,
}

/// The parameters of a [`Family`].
#[derive(Clone, Copy)]
struct Wish {
    left: u64,
    right: u64,
    /// The keys of the parent's entries. Key 0 leads to the left leaf, key 20 to the right leaf, and any other key to
    /// the last leaf.
    children: &'static [u64],
    /// The memory nodes of the left leaf, the right leaf and the parent.
    homes: [u16; 3],
}

const USUAL: Wish = Wish {
    left: 1,
    right: 1,
    children: &[0, 20, 40],
    homes: [0, 0, 0],
};

impl<F: NodeFormat<Key8> + Clone> Family<F> {
    fn new(format: &F, wish: Wish) -> Self {
        let pool = pool(2);
        let v = pool.connect(0).unwrap();
        let leaves = Setup::plain().nodes(format.clone(), 2, 0);
        let parents = Setup::plain().nodes(Slotted::with_span(8, 8).unwrap(), 2, 0);
        let value = vec![7; format.value_len()];
        let made = |home: u16, low: u64, high: Option<u64>, entries: u64| {
            let entries: Vec<_> = (0..entries).map(|n| (Key8(low + n), &value[..])).collect();
            let fences = FenceKeys::new(Key8(low), high.map(Key8));
            loop {
                let made = block_on(leaves.create(&v, 0, fences, &entries, false))
                    .unwrap()
                    .at;
                if made.node().0 == home {
                    return made;
                }
            }
        };
        let left = made(wish.homes[0], 0, Some(20), wish.left);
        let right = made(wish.homes[1], 20, Some(40), wish.right);
        let last = made(0, 40, None, 2);
        let link = |at: RemotePtr, next: RemotePtr| {
            let mut copy = NodeCopy::new();
            assert_eq!(block_on(leaves.copy(&v, at, &mut copy)), Ok(true));
            copy.sibling = next;
            block_on(leaves.load(&v, &copy)).unwrap();
        };
        link(left, right);
        link(right, last);
        let child = |key: &u64| match key {
            0 => left,
            20 => right,
            _ => last,
        };
        let children: Vec<_> = wish
            .children
            .iter()
            .map(|key| (Key8(*key), child(key).raw().to_le_bytes()))
            .collect();
        let children: Vec<_> = children.iter().map(|(key, value)| (*key, &value[..])).collect();
        // The parent is not a root, so it can become sparse.
        let below = FenceKeys::new(Key8(0), Some(Key8(1_000)));
        let parent = loop {
            let made = block_on(parents.create(&v, 1, below, &children, false))
                .unwrap()
                .at;
            if made.node().0 == wish.homes[2] {
                break made;
            }
        };
        Self {
            _pool: pool,
            v,
            leaves,
            parents,
            pair: Neighbours {
                level: 0,
                left,
                right,
                between: Key8(20),
                until: Some(Key8(40)),
                parent,
            },
        }
    }

    fn merge(&self, pair: &Neighbours<Key8>) -> (Result<Merge, IndexError>, NodeCopy<Key8>, String) {
        let mut after = NodeCopy::new();
        let (merged, spent) = cost(
            &self.v,
            self.leaves.merge(&self.v, pair, &self.parents, &mut after),
        );
        (merged, after, spent)
    }

    fn copy(&self, at: RemotePtr) -> (bool, NodeCopy<Key8>) {
        let mut copy = NodeCopy::new();
        let alive = block_on(self.leaves.copy(&self.v, at, &mut copy)).unwrap();
        (alive, copy)
    }

    fn keys(&self, at: RemotePtr) -> Vec<u64> {
        self.copy(at).1.iter().map(|(key, _)| key.0).collect()
    }

    /// Checks that both leaves have as many keys as before, and that their locks are free.
    #[track_caller]
    fn is_as_before(&self, wish: Wish) {
        assert_eq!(self.keys(self.pair.left).len() as u64, wish.left);
        assert_eq!(self.keys(self.pair.right).len() as u64, wish.right);
        let value = vec![7; self.leaves.format().value_len()];
        for (at, key) in [(self.pair.left, 0), (self.pair.right, 20)] {
            let write = dm_index::Write::Upsert(&value);
            let written = block_on(
                self.leaves
                    .write(&self.v, Lead::hint(at), 0, &Key8(key), write, None),
            );
            assert!(matches!(written, Ok(dm_index::Answer::Done(_))), "{written:?}");
        }
    }
}

fn done(sparse: bool, parent_sparse: bool) -> Result<Merge, IndexError> {
    Ok(Merge::Done {
        sparse,
        parent_sparse,
    })
}

/// Merges a family on these memory nodes. Returns the cost.
fn merged<F: NodeFormat<Key8> + Clone>(format: &F, homes: [u16; 3]) -> String {
    let wish = Wish {
        homes,
        left: 2,
        right: 2,
        ..USUAL
    };
    let family = Family::new(format, wish);
    let (merged, after, spent) = family.merge(&family.pair);
    assert_eq!(merged, done(false, true), "{homes:?}");
    let (alive, left) = family.copy(family.pair.left);
    assert!(alive && left.fences == FenceKeys::new(Key8(0), Some(Key8(40))));
    assert_eq!(family.keys(family.pair.left), [0, 1, 20, 21]);
    let (alive, right) = family.copy(family.pair.right);
    assert_eq!((alive, right.sibling), (false, family.pair.left));
    let children: Vec<_> = after.children().collect();
    assert_eq!(children, [(Key8(0), family.pair.left), (Key8(40), left.sibling)]);
    let mut parent = NodeCopy::new();
    assert_eq!(
        block_on(family.parents.copy(&family.v, family.pair.parent, &mut parent)),
        Ok(true)
    );
    assert!(parent.children().eq(children));
    // The same pair cannot be merged twice.
    assert_eq!(family.merge(&family.pair).0, Ok(Merge::Changed));
    spent
}

#[test]
fn the_left_node_takes_over_all_entries() {
    let (slotted, checksummed) = (
        Slotted::with_span(8, 8).unwrap(),
        Checksummed::with_span(8, 8).unwrap(),
    );
    let found = [
        merged(&slotted, [0, 0, 0]),
        merged(&slotted, [0, 0, 1]),
        merged(&slotted, [1, 1, 0]),
        merged(&checksummed, [0, 0, 0]),
        merged(&checksummed, [0, 0, 1]),
    ];
    // If the parent is not on the memory node of its children, a merge takes one more round trip.
    let expected = [
        "5 reads, 10 writes, 960 bytes_read, 601 bytes_written, 6 round_trips, 3 masked_cas, 1 merges",
        "5 reads, 10 writes, 960 bytes_read, 601 bytes_written, 7 round_trips, 3 masked_cas, 1 merges",
        "5 reads, 10 writes, 960 bytes_read, 601 bytes_written, 7 round_trips, 3 masked_cas, 1 merges",
        "5 reads, 8 writes, 960 bytes_read, 793 bytes_written, 6 round_trips, 3 masked_cas, 1 merges",
        "5 reads, 8 writes, 960 bytes_read, 793 bytes_written, 7 round_trips, 3 masked_cas, 1 merges",
    ];
    assert_eq!(found, expected);
}

/// Without a parent, the merge calls the caller's `unlink` once, when the right leaf is already dead.
#[test]
fn nodes_without_a_parent_are_joined() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) {
        let family = Family::new(format, USUAL);
        let unlinked = Cell::new(0);
        let unlink = async || {
            assert!(!family.copy(family.pair.right).0 && family.copy(family.pair.left).0);
            unlinked.set(unlinked.get() + 1);
            Ok(())
        };
        let (joined, spent) = cost(&family.v, family.leaves.join(&family.v, &family.pair, unlink));
        assert_eq!((joined, unlinked.get()), (done(true, false), 1));
        assert!(spent.ends_with("1 merges"), "{spent}");
        assert_eq!(family.keys(family.pair.left), [0, 20]);
    }
    check(&Slotted::with_span(8, 8).unwrap());
    check(&Checksummed::with_span(8, 8).unwrap());
    check(&Hopscotch::new(16, 4, 8).unwrap());
}

#[test]
fn an_unlinking_that_fails_leaves_the_merge_done() {
    let family = Family::new(&Slotted::with_span(8, 8).unwrap(), USUAL);
    let fails = async || Err(IndexError::BadInput { why: "a test" });
    let failed = block_on(family.leaves.join(&family.v, &family.pair, fails)).unwrap_err();
    assert_eq!(failed.effect(), Effect::Done);
    assert_eq!(family.keys(family.pair.left), [0, 20]);
}

/// A merge is refused if less than a quarter of the merged node would stay free.
#[test]
fn nodes_with_too_many_entries_are_not_merged() {
    let format = Slotted::with_span(8, 8).unwrap();
    for (left, right, fits) in [
        (3, 3, true),
        (6, 0, true),
        (0, 6, true),
        (4, 3, false),
        (0, 7, false),
        (3, 4, false),
    ] {
        let wish = Wish { left, right, ..USUAL };
        let family = Family::new(&format, wish);
        match family.merge(&family.pair).0 {
            Ok(Merge::TooFull) if !fits => family.is_as_before(wish),
            Ok(Merge::Done { sparse, .. }) if fits => assert_eq!(sparse, left + right <= 2),
            other => panic!("{left} and {right}: {other:?}"),
        }
    }
    // Two leaves on different memory nodes cannot be merged.
    let wish = Wish {
        homes: [0, 1, 0],
        ..USUAL
    };
    let family = Family::new(&format, wish);
    let (merged, _, spent) = family.merge(&family.pair);
    assert_eq!((merged, spent.as_str()), (Ok(Merge::TooFull), ""));
    let (joined, spent) = cost(
        &family.v,
        family.leaves.join(&family.v, &family.pair, async || Ok(())),
    );
    assert_eq!((joined, spent.as_str()), (Ok(Merge::TooFull), ""));
    family.is_as_before(wish);
}

#[test]
fn nodes_that_differ_from_the_description_are_not_merged() {
    let format = Slotted::with_span(8, 8).unwrap();
    type Change = fn(&mut Neighbours<Key8>);
    let changes: [Change; 5] = [
        |pair| pair.between = Key8(19),
        |pair| pair.until = None,
        |pair| pair.until = Some(Key8(41)),
        |pair| core::mem::swap(&mut pair.left, &mut pair.right),
        |pair| pair.level = 1,
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let family = Family::new(&format, USUAL);
        let mut pair = family.pair;
        change(&mut pair);
        let (merged, _, spent) = family.merge(&pair);
        assert_eq!(merged, Ok(Merge::Changed), "change {i}");
        // A READ without a lock finds the change.
        assert!(!spent.contains("cas"), "{spent}");
        assert_eq!(
            block_on(
                family
                    .leaves
                    .join(&family.v, &pair, async || -> Result<(), IndexError> {
                        panic!("unlinked")
                    })
            ),
            Ok(Merge::Changed)
        );
        family.is_as_before(USUAL);
    }
}

/// The parent must list both nodes as adjacent children, and the right node must not be the parent's first child.
#[test]
fn a_parent_without_both_entries_prevents_a_merge() {
    let format = Slotted::with_span(8, 8).unwrap();
    let cases: [&'static [u64]; 6] = [
        &[20, 40],
        &[0, 40],
        &[0, 19, 40],
        &[0, 10, 20, 40],
        &[0, 20, 30, 40],
        &[0, 20],
    ];
    for children in cases {
        let wish = Wish { children, ..USUAL };
        let family = Family::new(&format, wish);
        let (merged, _, spent) = family.merge(&family.pair);
        assert_eq!(merged, Ok(Merge::Changed), "{children:?}");
        assert!(
            spent.contains("masked_cas"),
            "the parent is read only under its lock: {spent}"
        );
        family.is_as_before(wish);
    }
    // The parent has another level.
    let family = Family::new(&format, USUAL);
    let pair = Neighbours {
        parent: family.copy(family.pair.right).1.sibling,
        ..family.pair
    };
    assert_eq!(family.merge(&pair).0, Ok(Merge::Changed));
}

/// A root with one child is removed if the caller's commit succeeds.
#[test]
fn a_root_with_one_child_is_removed_if_its_caller_agrees() {
    let format = Slotted::<Key8>::with_span(8, 8).unwrap();
    let cases: [(FenceKeys<Key8>, u64, u8, bool, bool); 6] = [
        (FenceKeys::ALL, 1, 1, true, true),
        (FenceKeys::ALL, 1, 1, false, false),
        (FenceKeys::ALL, 2, 1, true, false),
        (FenceKeys::ALL, 0, 1, true, false),
        (FenceKeys::ALL, 1, 2, true, false),
        (FenceKeys::new(Key8(0), Some(Key8(9))), 1, 1, true, false),
    ];
    for (fences, children, level, agrees, ends) in cases {
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let nodes = Setup::plain().nodes(format, 1, 0);
        let entries: Vec<_> = (0..children).map(|n| (Key8(n), &[5; 8][..])).collect();
        let at = block_on(nodes.create(&v, 1, fences, &entries, false)).unwrap().at;
        let asked = Cell::new(false);
        let commit = async |value: &[u8]| {
            assert_eq!(value, [5; 8]);
            asked.set(true);
            Ok(agrees)
        };
        let case = format!("{fences:?} {children} {level} {agrees}");
        assert_eq!(
            block_on(nodes.collapse(&v, at, level, commit)),
            Ok(ends),
            "{case}"
        );
        assert_eq!(asked.get(), ends || !agrees, "{case}");
        let mut copy = NodeCopy::new();
        assert_eq!(block_on(nodes.copy(&v, at, &mut copy)), Ok(!ends), "{case}");
        // The lock is free, and a dead root has no forwarding address.
        let write = dm_index::Write::Update(&[6; 8]);
        let written = block_on(nodes.write(&v, Lead::hint(at), 1, &Key8(0), write, None)).unwrap();
        assert_eq!(
            written == dm_index::Answer::Stale(dm_index::Stale::Elsewhere),
            ends,
            "{case}"
        );
    }
}

/// If another client is writing the node, the merge returns `Changed`. If a node's bytes contradict each other, it
/// returns an error.
#[test]
fn a_torn_node_has_changed_and_garbage_is_reported() {
    // Each entry spans two lines or more, so an entry can be torn.
    let format = Slotted::<Key8>::with_span(4, 100).unwrap();
    type Damage = fn(&mut [u8], usize);
    let cases: [(Damage, bool); 4] = [
        (|image, _| *image.iter_mut().rev().nth(63).unwrap() ^= 0x05, false),
        (|image, entry| image[(entry / 64 + 1) * 64] ^= 0x50, false),
        (|image, entry| image[entry] = 0x0e, true),
        (|image, _| image.fill(0xff), true),
    ];
    for (i, (damage, corrupt)) in cases.into_iter().enumerate() {
        for is_left in [true, false] {
            let family = Family::new(&format, USUAL);
            let (at, key) = match is_left {
                true => (family.pair.left, Key8(0)),
                false => (family.pair.right, Key8(20)),
            };
            let bytes = format.node_bytes() as u32;
            let mut image = block_on(family.v.read(at, bytes)).unwrap().to_vec();
            let Ok(Place::Present(slot)) = format.place(&image, &key) else {
                panic!("{key:?} is missing")
            };
            damage(&mut image, slot.offset());
            block_on(family.v.write(at, &image)).unwrap();
            let (merged, _, spent) = family.merge(&family.pair);
            match corrupt {
                true => assert!(
                    matches!(merged, Err(IndexError::Corrupt { .. })),
                    "{i}: {merged:?}"
                ),
                false => assert_eq!(merged, Ok(Merge::Changed), "{i}"),
            }
            assert!(!spent.contains("cas"), "{spent}");
        }
    }
}

#[test]
fn a_parent_of_many_children_is_not_sparse() {
    let children = &[0, 20, 40, 50, 60];
    let family = Family::new(&Slotted::with_span(8, 8).unwrap(), Wish { children, ..USUAL });
    assert_eq!(family.merge(&family.pair).0, done(true, false));
}
