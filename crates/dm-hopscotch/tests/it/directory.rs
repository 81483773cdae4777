//! Tests of the directory alone, over leaves that the test itself writes. They check which leaves the directory finds,
//! how it corrects its slots, and which verbs it posts.
//!
//! The tests use the keys as a table stores them, so the first bits are those of the key itself.

use dm_hopscotch::{HashTable, Hint, Hopscotch, TableOptions};
use dm_index::{IndexError, Inner, Key8, Located, Run, Split};
use dm_layout::{FenceKeys, KeyBytes, NodeEdit, NodeInit, NodeRead, NodeShape, NodeState};
use dm_loopback::{Endpoint, Loopback, Trouble, block_on};
use dm_verbs::{Counters, Env, Nanos, NodeId, RemotePtr, Verbs};

use crate::common::{open, small};

/// A sixteenth of the key range: the range of one of 16 slots.
const PART: u64 = 1 << 60;

fn leaf(number: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), (2 << 20) + number * 4096).expect("the address is in range")
}

/// Returns the number of a leaf.
fn number(at: RemotePtr) -> u64 {
    (at.offset() - (2 << 20)) / 4096
}

/// Returns the address at which a test puts a directory of this depth.
fn directory(depth: u8) -> RemotePtr {
    RemotePtr::new(NodeId(0), (3 << 20) + (64 << 10) * u64::from(depth)).expect("the address is in range")
}

/// A pool with one table. A test places the leaves and directories itself.
struct World {
    _pool: Loopback,
    v: Endpoint,
    table: HashTable<Key8>,
}

impl World {
    fn new() -> Self {
        Self::of(TableOptions {
            attempts: 20,
            ..small(8)
        })
    }

    fn of(options: TableOptions) -> Self {
        let pool = Loopback::builder().host_bytes(5 << 20).counted_clock(Nanos(50));
        let pool = pool.build().expect("the world is built");
        let v = pool.connect(0).expect("the client connects");
        let table = block_on(open(&v, options));
        Self {
            _pool: pool,
            v,
            table,
        }
    }

    fn write(&self, at: RemotePtr, bytes: &[u8]) {
        block_on(self.v.write(at, bytes)).expect("the address is in range");
    }

    fn word(&self, at: RemotePtr) -> u64 {
        block_on(self.v.word(at)).expect("the address is in range")
    }

    /// Writes a leaf for the keys from `low` up to `high`, with the sibling `next`.
    fn leaf(&self, number: u64, low: u64, high: Option<u64>, next: u64) -> NodeInit<Key8> {
        let fences = FenceKeys {
            low: Key8(low),
            high: high.map(Key8),
        };
        let init = NodeInit {
            sibling: if next == 0 { 0 } else { leaf(next).raw() },
            ..NodeInit::live(0, fences)
        };
        self.write(leaf(number), &image(&init));
        init
    }

    /// Writes a directory of these leaves, and the root word that points to it.
    fn directory(&self, leaves: &[u64]) {
        let depth = leaves.len().ilog2() as u8;
        let slots: Vec<u8> = leaves.iter().flat_map(|n| leaf(*n).raw().to_le_bytes()).collect();
        self.write(directory(depth), &slots);
        self.name(directory(depth), depth);
    }

    /// Writes the root word of the directory at this address.
    fn name(&self, at: RemotePtr, depth: u8) {
        self.write(
            self.table.root_word(),
            &(at.raw() | u64::from(depth)).to_le_bytes(),
        );
    }

    /// Returns the number of the leaf in a slot.
    fn slot(&self, depth: u8, slot: u64) -> u64 {
        number(RemotePtr::from_raw(self.word(directory(depth).add(8 * slot))))
    }

    fn find(&self, key: u64) -> Result<Option<Located<Hint>>, IndexError> {
        block_on(self.table.directory().find(&self.v, &Key8(key)))
    }

    /// Calls `find`, which reads if the compute node's copy does not give a leaf. Returns the number of the leaf that
    /// was found, and the counters of the search's verbs.
    fn found(&self, key: u64) -> (u64, Counters) {
        let before = self.v.meter().counters();
        let located = self
            .find(key)
            .expect("the search succeeds")
            .expect("there is a leaf");
        assert!(!located.leaf.linked, "a hint must not count as linked");
        (number(located.leaf.at), self.v.meter().counters() - before)
    }

    /// Returns the number of the leaf to which the compute node's copy leads.
    fn known(&self, key: u64) -> Option<u64> {
        let located = self.table.directory().known(&self.v, &Key8(key))?;
        Some(number(located.leaf.at))
    }

    /// Reports that the leaf of `key` lies further to the right.
    fn doubt(&self, key: u64) {
        let directory = self.table.directory();
        let located = directory
            .known(&self.v, &Key8(key))
            .expect("the directory is cached");
        directory.stale(&self.v, located.proof);
    }

    fn install(&self, left: u64, right: u64, separator: u64, until: Option<u64>) -> Result<(), IndexError> {
        let split = Split {
            level: 0,
            separator: Key8(separator),
            until: until.map(Key8),
            left: leaf(left),
            right: leaf(right),
        };
        block_on(self.table.directory().install(&self.v, split))
    }

    fn run(&self, key: u64, max: usize) -> Vec<u64> {
        let mut run = Run::new();
        run.push_alone(leaf(9));
        let done = block_on(
            self.table
                .directory()
                .locate_run(&self.v, &Key8(key), max, &mut run),
        );
        done.expect("the search succeeds");
        run.leaves().iter().copied().map(number).collect()
    }
}

fn format() -> Hopscotch<Key8> {
    Hopscotch::new(6, 3, 8).expect("the geometry is valid")
}

fn image(init: &NodeInit<Key8>) -> Vec<u8> {
    let mut bytes = vec![0; format().node_bytes()];
    format().build(&mut bytes, init, []);
    bytes
}

#[test]
fn the_first_leaf_is_planted_once() {
    let world = World::new();
    let directory = world.table.directory();
    assert_eq!(world.find(5), Ok(None));
    assert_eq!(
        (directory.depth(), world.known(5), world.run(5, 3)),
        (None, None, vec![])
    );
    let refused = world.install(1, 2, PART, None);
    assert!(matches!(refused, Err(IndexError::Pool { at, .. }) if at == world.table.root_word()));
    assert_eq!(block_on(directory.plant(&world.v, leaf(1))), Ok(true));
    assert_eq!(
        (directory.depth(), world.known(5), world.run(5, 3)),
        (Some(0), Some(1), vec![1])
    );
    assert_eq!(block_on(directory.plant(&world.v, leaf(2))), Ok(false));
    assert_eq!(world.known(5), Some(1));
    assert_eq!(world.word(world.table.root_word()), leaf(1).raw());
    assert!(matches!(
        block_on(directory.build(&world.v, &[], 0.5)),
        Err(IndexError::BadInput { .. })
    ));
    assert_eq!(world.table.root_word(), directory.root_word());
}

#[test]
fn a_directory_is_read_once_and_then_cached() {
    let world = World::new();
    world.directory(&[1, 1, 2, 3]);
    assert_eq!(world.known(0), None);
    let (found, cost) = world.found(9 * PART);
    assert_eq!(
        (found, cost.reads, cost.cache_misses, cost.cache_hits),
        (2, 2, 1, 0)
    );
    for (key, leaf) in [(0, 1), (7 * PART, 1), (8 * PART, 2), (u64::MAX, 3)] {
        let (found, cost) = world.found(key);
        assert_eq!((found, cost.reads, cost.cache_misses), (leaf, 0, 1), "{key:x}");
        let before = world.v.meter().counters();
        assert_eq!(world.known(key), Some(leaf));
        assert_eq!((world.v.meter().counters() - before).cache_hits, 1);
    }
    assert_eq!(world.run(0, 9), [1, 2, 3]);
    assert_eq!(world.run(0, 2), [1, 2]);
    assert_eq!(world.run(9 * PART, 1), [2]);
    // A directory is read again only if the root word points to a deeper one.
    world.directory(&[1, 2]);
    block_on(world.table.warm(&world.v)).expect("the root word is read");
    assert_eq!(world.table.directory().depth(), Some(2));
}

/// After a slot has led to a wrong leaf, a client reads the root word, the slot, and the leaf to which the slot points.
#[test]
fn a_slot_that_led_to_a_wrong_leaf_is_read_again() {
    let world = World::new();
    // All four slots point to leaf 1, which ends inside the first slot's range. Leaf 2 begins there, leaf 3 begins at
    // the second slot, and leaf 4 begins inside the third slot's range.
    world.leaf(1, 0, Some(2 * PART), 2);
    world.leaf(2, 2 * PART, Some(4 * PART), 3);
    world.leaf(3, 4 * PART, Some(9 * PART), 4);
    world.leaf(4, 9 * PART, None, 0);
    world.directory(&[1, 1, 1, 1]);
    assert_eq!(world.found(3 * PART).0, 1);
    // The first slot is right, although the last keys of its range belong to the next leaf. So it is read again only
    // from time to time.
    world.doubt(3 * PART);
    assert_eq!(world.known(3 * PART), None);
    let (found, cost) = world.found(3 * PART);
    assert_eq!((found, cost.reads, cost.cas), (1, 3, 0));
    for _ in 0..31 {
        world.doubt(3 * PART);
        assert_eq!(world.known(3 * PART), Some(1));
    }
    world.doubt(3 * PART);
    assert_eq!(world.known(3 * PART), None);
    assert_eq!(world.run(3 * PART, 4), [1], "a slot in doubt begins no run");
    // The other slots are corrected, also in the pool. Each leaf on the way takes a READ.
    for (key, leaf, reads) in [(5 * PART, 3, 5), (8 * PART, 3, 5), (12 * PART, 4, 6)] {
        world.doubt(key);
        let (found, cost) = world.found(key);
        assert_eq!((found, cost.reads, cost.cas), (leaf, reads, 1), "{key:x}");
        assert_eq!(world.known(key), Some(leaf));
        assert_eq!(world.slot(2, key / PART / 4), leaf);
        world.doubt(key);
        assert_eq!(world.known(key), None, "the next report drops the slot at once");
    }
}

/// A client finds a correction that another client has made, and reads a directory that has become deeper.
#[test]
fn changes_of_other_clients_are_found() {
    let world = World::new();
    world.leaf(1, 0, Some(8 * PART), 2);
    world.leaf(2, 8 * PART, None, 0);
    world.directory(&[1, 1]);
    assert_eq!(world.found(9 * PART).0, 1);
    world.directory(&[1, 2]);
    world.doubt(9 * PART);
    let (found, cost) = world.found(9 * PART);
    assert_eq!((found, cost.reads, cost.cas), (2, 2, 0));
    assert_eq!(world.known(9 * PART), Some(2));
    // The directory is deeper now. The client reads the root word and the slot, and then the root word and the
    // directory.
    world.directory(&[1, 1, 2, 3]);
    world.doubt(15 * PART);
    let (found, cost) = world.found(15 * PART);
    assert_eq!((found, cost.reads), (3, 4));
    assert_eq!(world.table.directory().depth(), Some(2));
    // The word of this slot is not an address.
    world.write(directory(2), &7_u64.to_le_bytes());
    world.doubt(0);
    let at = directory(2);
    assert!(matches!(world.find(0), Err(IndexError::Pool { at: found, .. }) if found == at));
}

/// If the directory must not grow beyond depth 0, the root word is its only slot. It points to the first leaf even
/// after a split.
#[test]
fn without_a_directory_the_root_word_is_the_slot() {
    let world = World::of(TableOptions {
        depth_max: 0,
        attempts: 20,
        ..small(8)
    });
    world.leaf(1, 0, Some(8 * PART), 2);
    world.leaf(2, 8 * PART, None, 0);
    world.name(leaf(1), 0);
    assert_eq!(world.found(9 * PART).0, 1);
    world.doubt(9 * PART);
    let (found, cost) = world.found(9 * PART);
    assert_eq!(
        (found, cost.reads, cost.cas),
        (1, 2, 0),
        "the root word, and the leaf"
    );
    assert_eq!(world.install(1, 2, 8 * PART, None), Ok(()));
    assert_eq!(world.table.directory().depth(), Some(0));
    assert_eq!(world.word(world.table.root_word()), leaf(1).raw());
}

/// The leaves on the way determine how far a slot is corrected.
#[test]
fn a_slot_is_corrected_as_far_as_leaves_are_live_and_readable() {
    // The second of two slots is looked up. Leaves 1 to 3 begin to its left, one after another.
    let corrected = |prepare: &dyn Fn(&World)| {
        let world = World::new();
        world.leaf(1, 0, Some(PART), 2);
        world.leaf(2, PART, Some(2 * PART), 3);
        world.leaf(3, 2 * PART, Some(9 * PART), 4);
        world.leaf(4, 9 * PART, None, 0);
        world.directory(&[1, 1]);
        assert_eq!(world.found(8 * PART).0, 1);
        world.doubt(8 * PART);
        prepare(&world);
        let found = world
            .find(8 * PART)
            .map(|located| number(located.expect("there is a leaf").leaf.at));
        if let Ok(found) = found {
            assert_eq!((world.slot(1, 1), world.known(8 * PART)), (found, Some(found)));
        }
        found
    };
    let torn = |init: &NodeInit<Key8>| {
        let (mut bytes, next) = (image(init), image(&NodeInit { version: 2, ..*init }));
        let half = bytes.len() / 128 * 64;
        bytes[half..].copy_from_slice(&next[half..]);
        assert!(format().accept(&bytes).is_err_and(|e| e.is_torn()));
        bytes
    };
    assert_eq!(corrected(&|_| {}), Ok(3));
    // A leaf under construction is not linked (H11).
    let unborn = |world: &World| {
        let live = world.leaf(3, 2 * PART, Some(9 * PART), 4);
        let state = NodeState::Splitting;
        world.write(
            leaf(3),
            &image(&NodeInit {
                state,
                owner: 7,
                ..live
            }),
        );
    };
    assert_eq!(corrected(&unborn), Ok(2));
    // Leaf 3 begins to the right of the key, or exactly at it.
    let beyond = |world: &World| {
        let _ = world.leaf(3, 8 * PART + 1, Some(9 * PART), 4);
    };
    assert_eq!(corrected(&beyond), Ok(2));
    let exactly = |world: &World| {
        let _ = world.leaf(3, 8 * PART, Some(9 * PART), 4);
    };
    assert_eq!(corrected(&exactly), Ok(3));
    // A leaf on the way cannot be used: leaf 3 is torn, or leaf 2 is corrupt.
    let half = |world: &World| {
        let init = world.leaf(3, 2 * PART, Some(9 * PART), 4);
        world.write(leaf(3), &torn(&init));
    };
    assert_eq!(corrected(&half), Ok(2));
    assert_eq!(corrected(&|world| world.write(leaf(2), &[0xff; 512])), Ok(1));
    // Leaf 2 has no right neighbour.
    let last = |world: &World| {
        let _ = world.leaf(2, PART, Some(2 * PART), 0);
    };
    assert_eq!(corrected(&last), Ok(2));
    // The slot points to leaf 1. If this leaf is torn, it may be the right one; if it is corrupt, the error is
    // reported.
    let first_half = |world: &World| {
        let init = world.leaf(1, 0, Some(PART), 2);
        world.write(leaf(1), &torn(&init));
    };
    assert_eq!(corrected(&first_half), Ok(1));
    let named = |prepare: &dyn Fn(&World)| match corrected(prepare) {
        Err(IndexError::Pool { at, why }) if at == directory(1).add(8) => why,
        other => panic!("{other:?}"),
    };
    let no_leaf = named(&|world| world.write(leaf(1), &[0xff; 512]));
    let too_far = named(&|world| {
        let _ = world.leaf(1, 8 * PART + 1, None, 0);
    });
    assert_ne!(no_leaf, too_far);
    assert_eq!(
        corrected(&|world| {
            let _ = world.leaf(1, 8 * PART, None, 0);
        }),
        Ok(1)
    );
    let inner = |world: &World| {
        let fences = FenceKeys {
            low: Key8::MIN,
            high: None,
        };
        world.write(leaf(1), &image(&NodeInit::live(1, fences)));
    };
    assert_eq!(named(&inner), too_far);
    // If the sibling pointers form a circle, the search ends.
    let circle = |world: &World| {
        let _ = world.leaf(2, PART, Some(2 * PART), 2);
    };
    assert!(matches!(corrected(&circle), Err(IndexError::Exhausted(_))));
}

/// After a split, all slots of the right leaf point to it.
#[test]
fn a_split_is_entered_in_every_slot_of_its_right_leaf() {
    const SLOTS: u64 = 128;
    let world = World::of(TableOptions {
        depth_max: 7,
        attempts: 20,
        ..small(8)
    });
    let slot = 1 << 57;
    world.leaf(1, 0, Some(9 * slot), 2);
    world.leaf(2, 9 * slot, Some(100 * slot), 3);
    world.leaf(3, 100 * slot, None, 0);
    world.directory(&[1; SLOTS as usize]);
    let before = world.v.meter().counters();
    assert_eq!(world.install(1, 2, 9 * slot, None), Ok(()));
    let cost = world.v.meter().counters() - before;
    assert_eq!(cost.cas, SLOTS - 9);
    let named = |world: &World| (0..SLOTS).map(|n| world.slot(7, n)).collect::<Vec<_>>();
    let expected = |n: u64| if n < 9 { 1 } else { 2 };
    assert!(named(&world).into_iter().eq((0..SLOTS).map(expected)));
    assert!((0..SLOTS).all(|n| world.known(n * slot) == Some(expected(n))));
    // Another split ends at a key inside the last slot but one. It is installed twice. The second time, the slots
    // already point to the right leaf and stay unchanged.
    assert_eq!(world.install(2, 3, 100 * slot, Some(126 * slot + 1)), Ok(()));
    let expected = |n: u64| match n {
        0..9 => 1,
        9..100 => 2,
        100..127 => 3,
        _ => 2,
    };
    assert!(named(&world).into_iter().eq((0..SLOTS).map(expected)));
    let before = world.v.meter().counters();
    assert_eq!(world.install(2, 3, 100 * slot, Some(126 * slot + 1)), Ok(()));
    assert_eq!(
        (world.v.meter().counters() - before).reads,
        1,
        "only the root word is read"
    );
    assert!((0..SLOTS).all(|n| world.known(n * slot) == Some(expected(n))));
    // If a slot points to another leaf, the client walks from that leaf.
    world.write(directory(7).add(8 * 110), &leaf(1).raw().to_le_bytes());
    assert_eq!(world.install(2, 3, 100 * slot, Some(126 * slot + 1)), Ok(()));
    assert_eq!(world.slot(7, 110), 3);
    // If a slot's word is not an address, the client returns an error.
    world.write(directory(7).add(8 * 110), &5_u64.to_le_bytes());
    let refused = world.install(2, 3, 100 * slot, Some(126 * slot + 1));
    assert!(matches!(refused, Err(IndexError::Pool { at, .. }) if at == directory(7).add(8 * 110)));
}

/// If the slots cannot distinguish a split's separator, the directory doubles, provided that it has at most two slots
/// per leaf.
#[test]
fn a_directory_doubles_for_a_separator_that_it_cannot_distinguish() {
    let of = |leaves: &[u64], separator: u64, depth_max: u8| {
        let world = World::of(TableOptions {
            depth_max,
            attempts: 20,
            ..small(8)
        });
        for n in 1..9 {
            world.leaf(n, 0, None, 0);
        }
        world.directory(leaves);
        assert_eq!(world.found(0).0, leaves[0]);
        assert_eq!(world.install(8, 9, separator, None), Ok(()));
        let root = world.word(world.table.root_word());
        let depth = world.table.directory().depth().expect("the directory is cached");
        assert_eq!(root % 64, u64::from(depth), "the root word must have the depth");
        let slots = RemotePtr::from_raw(root - root % 64);
        let found: Vec<u64> = (0..1 << depth)
            .map(|n| number(RemotePtr::from_raw(world.word(slots.add(8 * n)))))
            .collect();
        let last = found[found.len() - 1];
        assert_eq!(
            (world.known(0), world.known(u64::MAX)),
            (Some(found[0]), Some(last))
        );
        found
    };
    assert_eq!(
        of(&[1, 2], 12 * PART + 1, 1),
        [1, 2],
        "the directory has its maximum depth"
    );
    assert_eq!(
        of(&[1, 2], 8 * PART, 9),
        [1, 2],
        "the slots distinguish the separator"
    );
    assert_eq!(of(&[1, 2], 12 * PART, 9), [1, 1, 2, 2]);
    assert_eq!(of(&[1, 1, 2, 2], 14 * PART, 9), [1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(
        of(&[1, 1, 1, 2, 2, 2, 2, 2], 15 * PART, 9).len(),
        8,
        "there are four slots per leaf"
    );
    // The directory doubles as often as necessary.
    assert_eq!(of(&[1, 2], 14 * PART, 9), [1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(of(&[1, 2], 14 * PART, 2), [1, 1, 2, 2]);
}

/// A directory that takes more READs than are in flight at once is read, copied and written completely.
#[test]
fn a_large_directory_is_read_and_written_in_pieces() {
    const DEPTH: u8 = 17;
    const SLOTS: u64 = 1 << DEPTH;
    /// Number of READs of 16 KiB for the whole directory. At most 32 of them are in flight at once.
    const PIECES: u64 = 64;
    let world = World::of(TableOptions {
        depth_max: DEPTH + 1,
        attempts: 20,
        chunk_bytes: 2 << 20,
        ..small(8)
    });
    let bytes: Vec<u8> = (0..SLOTS)
        .flat_map(|n| leaf(n % 200).raw().to_le_bytes())
        .collect();
    world.write(directory(0), &bytes);
    world.name(directory(0), DEPTH);
    let before = world.v.meter().counters();
    block_on(world.table.warm(&world.v)).expect("the directory is read");
    let cost = world.v.meter().counters() - before;
    assert_eq!(
        cost.housekeeping_verbs,
        1 + PIECES,
        "the root word, and the directory"
    );
    for n in 0..SLOTS {
        assert_eq!(world.known(n << (64 - DEPTH)), Some(n % 200));
    }
    let before = world.v.meter().counters();
    assert_eq!(
        world.install((SLOTS - 1) % 200, 301, u64::MAX << (63 - DEPTH), None),
        Ok(())
    );
    let cost = world.v.meter().counters() - before;
    // The old directory is read once to be copied, and once more after the root word has changed. The root word is read
    // before the directory is doubled, after that, and after the split is in the new directory.
    assert_eq!(cost.reads, 2 * PIECES + 3);
    assert_eq!((cost.writes, cost.bytes_written), (2 * PIECES, 8 * 2 * SLOTS));
    let root = world.word(world.table.root_word());
    assert_eq!(root % 64, u64::from(DEPTH) + 1);
    for n in (0..2 * SLOTS).step_by(97).chain([2 * SLOTS - 1]) {
        let expected = if n == 2 * SLOTS - 1 { 301 } else { n / 2 % 200 };
        let word = world.word(RemotePtr::from_raw(root - root % 64).add(8 * n));
        assert_eq!(number(RemotePtr::from_raw(word)), expected);
        assert_eq!(world.known(n << (63 - DEPTH)), Some(expected));
    }
}

/// Runs two compute nodes that install splits at the same time. The split of the first one needs a deeper directory,
/// and so does the split of the second one if `second_grows` is true.
///
/// The second compute node runs to its end after this many polls of the first one. Returns the slots, the bytes of
/// directories that the allocators count as in use, and whether the first one had ended before the second one began.
fn meeting(polls: usize, second_grows: bool) -> (Vec<u64>, i64, bool) {
    const EIGHTH: u64 = 1 << 61;
    let options = TableOptions {
        depth_max: 4,
        attempts: 50,
        ..small(8)
    };
    let pool = Loopback::builder().host_bytes(5 << 20).delays(3).seed(5);
    let pool = pool.counted_clock(Nanos(50)).build().expect("the world is built");
    let connections = [0, 1].map(|node| pool.connect(node).expect("the client connects"));
    let tables = [0, 1].map(|i| block_on(open(&connections[i], options)));
    let [v, w] = &connections;
    for n in 1..5 {
        // Leaf n begins at the n-th pair of slots.
        let fences = FenceKeys {
            low: Key8(2 * (n - 1) * EIGHTH),
            high: None,
        };
        block_on(v.write(leaf(n), &image(&NodeInit::live(0, fences)))).expect("the address is in range");
    }
    let slots: Vec<u8> = [1, 1, 2, 2, 3, 3, 4, 4_u64]
        .iter()
        .flat_map(|n| leaf(*n).raw().to_le_bytes())
        .collect();
    block_on(v.write(directory(3), &slots)).expect("the address is in range");
    let root_word = tables[0].root_word();
    block_on(v.write(root_word, &(directory(3).raw() | 3).to_le_bytes())).expect("the address is in range");
    for (table, v) in tables.iter().zip(&connections) {
        block_on(table.warm(v)).expect("the directory is read");
    }
    let split = |left: u64, right: u64, separator: u64, until: u64| Split {
        level: 0,
        separator: Key8(separator),
        until: Some(Key8(until)),
        left: leaf(left),
        right: leaf(right),
    };
    // Leaf 1 is split in the middle of its second slot. Leaf 3 is split at the start of its second slot, or in its
    // middle.
    let first = tables[0]
        .directory()
        .install(v, split(1, 5, EIGHTH + EIGHTH / 2, 2 * EIGHTH));
    let second = match second_grows {
        true => split(3, 7, 5 * EIGHTH + EIGHTH / 2, 6 * EIGHTH),
        false => split(3, 7, 5 * EIGHTH, 6 * EIGHTH),
    };
    let mut first = core::pin::pin!(first);
    let mut cx = core::task::Context::from_waker(core::task::Waker::noop());
    let mut over = false;
    for _ in 0..polls {
        if let core::task::Poll::Ready(done) = first.as_mut().poll(&mut cx) {
            assert_eq!(done, Ok(()));
            over = true;
            break;
        }
    }
    assert_eq!(block_on(tables[1].directory().install(w, second)), Ok(()));
    let unnamed = block_on(v.word(root_word)).expect("the address is in range") == directory(3).raw() | 3;
    if !over {
        assert_eq!(block_on(first), Ok(()));
    }
    if unnamed {
        // The root word had not changed when the second compute node ended. So the first one must have copied the slot
        // that the second one changed, into the new directory and into its own copy.
        let known = tables[0].directory().known(v, &Key8(6 * EIGHTH - 1));
        assert_eq!(known.map(|located| number(located.leaf.at)), Some(7));
    }
    let root = block_on(v.word(root_word)).expect("the address is in range");
    let slots: Vec<u64> = (0..1 << (root % 64))
        .map(|n| {
            block_on(v.word(RemotePtr::from_raw(root - root % 64).add(8 * n)))
                .expect("the address is in range")
        })
        .map(|word| number(RemotePtr::from_raw(word)))
        .collect();
    for (table, v) in tables.iter().zip(&connections) {
        block_on(table.warm(v)).expect("the directory is read");
        assert_eq!(table.directory().depth(), Some((root % 64) as u8));
    }
    let in_use = tables.iter().map(|table| table.alloc_stats().in_use_bytes).sum();
    (slots, in_use, over)
}

#[test]
fn a_split_that_is_installed_while_a_directory_doubles_is_in_the_new_one() {
    for second_grows in [false, true] {
        let separate = meeting(usize::MAX, second_grows);
        let at_separator = if second_grows { 3 } else { 7 };
        assert_eq!(
            separate.0,
            [1, 1, 1, 5, 2, 2, 2, 2, 3, 3, at_separator, 7, 4, 4, 4, 4]
        );
        let mut cases = 0;
        for polls in 1.. {
            let (slots, in_use, over) = meeting(polls, second_grows);
            assert_eq!((&slots, in_use), (&separate.0, separate.1), "after {polls} polls");
            if over {
                break;
            }
            cases += 1;
        }
        assert!(cases > 5, "{cases} in the middle");
    }
}

/// The memory of a directory to which the root word never pointed is freed. The memory of the current directory is not.
#[test]
fn memory_of_an_unpublished_directory_is_freed() {
    let world = World::of(TableOptions {
        depth_max: 4,
        attempts: 20,
        ..small(8)
    });
    world.leaf(1, 0, None, 0);
    world.leaf(2, 8 * PART, None, 0);
    world.directory(&[1, 2]);
    block_on(world.table.warm(&world.v)).expect("the directory is read");
    let in_use = || world.table.alloc_stats().in_use_bytes;
    let before = in_use();
    // One slot of the old directory does not hold an address, so the directory cannot be copied.
    world.write(directory(1), &7_u64.to_le_bytes());
    let refused = world.install(2, 3, 12 * PART, None);
    assert!(matches!(refused, Err(IndexError::Pool { .. })), "{refused:?}");
    assert_eq!(in_use(), before);
    world.directory(&[1, 2]);
    assert_eq!(world.install(2, 3, 12 * PART, None), Ok(()));
    assert_eq!(in_use(), before + 64);
}

/// If the answer to the CAS of the root word is lost, the root word may point to the new directory, so its memory stays
/// in use.
#[test]
fn a_directory_that_may_be_published_stays_in_use() {
    let mut named = 0;
    for polls in 0.. {
        let pool = Loopback::builder().host_bytes(5 << 20).delays(3).seed(5);
        let pool = pool.counted_clock(Nanos(50)).build().expect("the world is built");
        let v = pool.connect(0).expect("the client connects");
        let table = block_on(open(&v, small(8)));
        let slots: Vec<u8> = [1, 2].iter().flat_map(|n| leaf(*n).raw().to_le_bytes()).collect();
        let word = (directory(1).raw() | 1).to_le_bytes();
        for (at, bytes) in [(directory(1), &slots[..]), (table.root_word(), &word[..])] {
            block_on(v.write(at, bytes)).expect("the address is in range");
        }
        block_on(table.warm(&v)).expect("the directory is read");
        let before = table.alloc_stats().in_use_bytes;
        let split = Split {
            level: 0,
            separator: Key8(12 * PART),
            until: None,
            left: leaf(2),
            right: leaf(3),
        };
        let mut install = core::pin::pin!(table.directory().install(&v, split));
        let mut cx = core::task::Context::from_waker(core::task::Waker::noop());
        if (0..polls).any(|_| install.as_mut().poll(&mut cx).is_ready()) {
            break;
        }
        pool.cut(NodeId(0), Trouble::AnswersLost);
        // The last answers may have arrived already.
        let lost = block_on(install).is_err();
        pool.restore(NodeId(0));
        let root = block_on(v.word(table.root_word())).expect("the address is in range");
        let taken = table.alloc_stats().in_use_bytes - before;
        match root % 64 {
            1 => assert_eq!(taken, 0, "after {polls} polls"),
            _ => {
                assert_eq!(taken, 64, "after {polls} polls");
                named += u32::from(lost);
            }
        }
    }
    assert!(named > 0);
}
