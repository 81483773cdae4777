//! Tests over loopback that an operation is correct after another operation was dropped midway, and if cached nodes are
//! outdated.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dm_alloc::{Allocator, Descriptor, ReclaimOptions, Superblock};
use dm_art::{Art, ArtFlaws, ArtOptions, SeparatorOptions, SeparatorProof, Separators};
use dm_art::{SingleOptions, Singles};
use dm_cache::IndexCache;
use dm_index::{Applied, IndexError, Inner, Key8, RangeIndex, Split};
use dm_layout::{NodeTypes, SingleLeaf};
use dm_lock::{GlobalLockTable, LockOptions, LockPlace, Locks};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_sync::Arc;
use dm_verbs::trace::{Traced, What};
use dm_verbs::{Env, Nanos, NodeId, Place, RemotePtr};

type Tree = Art<Key8, Singles<Key8>>;

/// Makes a pool of this many memory nodes with delayed completions.
fn pool(memory_nodes: u16) -> Loopback {
    Loopback::builder().nodes(memory_nodes).delays(4).build().unwrap()
}

/// Opens the pool's tree for a compute node, and creates it if there is none. Rounds of reclamation happen only when
/// a test starts them.
fn tree(pool: &Loopback, compute_node: u16, options: ArtOptions) -> Tree {
    let v = pool.connect(compute_node).unwrap();
    let descriptor = Descriptor {
        members: 2,
        ..Descriptor::of(b"test", [0])
    };
    let superblock = block_on(Superblock::create_or_open(&v, &descriptor)).unwrap();
    let leaf = SingleLeaf::<Key8>::new(8).unwrap();
    let in_leaves = GlobalLockTable::in_nodes(superblock.memory_nodes(), leaf.lock_at() as u32);
    let lock_options = LockOptions {
        place: LockPlace::Host,
        ..LockOptions::default()
    };
    let locks = Arc::new(Locks::new(lock_options, in_leaves));
    let reclaim = ReclaimOptions {
        period: Nanos(u64::MAX),
        remembers: true,
        ..ReclaimOptions::new()
    };
    let alloc = Arc::new(Allocator::for_pool(&superblock, compute_node, reclaim));
    let leaves = Singles::new(leaf, locks, SingleOptions::default());
    block_on(Art::open(&v, leaves, alloc, superblock.root_word, options)).unwrap()
}

fn tiny() -> ArtOptions {
    ArtOptions {
        types: NodeTypes::new(&[2, 4, 8, 256]).unwrap(),
        ..ArtOptions::default()
    }
}

/// Polls `future` at most this many times. Returns whether it has ended.
fn ends_within(polls: usize, future: impl Future) -> bool {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    (0..polls).any(|_| matches!(future.as_mut().poll(&mut cx), Poll::Ready(_)))
}

/// Returns the places of the words that the first operation after a dropped one READs, and the number of its
/// housekeeping verbs.
fn settling(memory_nodes: u16) -> (Vec<String>, u64) {
    let pool = pool(memory_nodes);
    let tree = tree(&pool, 0, tiny());
    let v = Traced::new(pool.connect(0).unwrap());
    let client = tree.client(&v);
    // The compute node joins with this operation.
    block_on(client.insert(&Key8(1), b"complete")).unwrap();
    let given_up = (2..20).any(|i| !ends_within(1, client.insert(&Key8(i), b"midway..")));
    assert!(given_up, "every insert ended at its first poll");
    let mut value = Vec::new();
    let mut get = || {
        let before = v.meter().counters().housekeeping_verbs;
        v.take_events();
        block_on(client.get(&Key8(77), &mut value)).unwrap();
        let posted = v.take_events().into_iter().flat_map(|event| match event.what {
            What::Posts { requests, .. } => requests,
            _ => Vec::new(),
        });
        let words = posted.filter(|request| request.verb == "READ" && request.bytes == 8);
        let places: Vec<String> = words.map(|request| request.place).collect();
        (places, v.meter().counters().housekeeping_verbs - before)
    };
    let first = get();
    assert_eq!(
        get(),
        (Vec::new(), 0),
        "a later operation awaited the requests again"
    );
    first
}

#[test]
fn requests_of_a_dropped_operation_are_awaited_on_every_memory_node() {
    for memory_nodes in [1, 3] {
        // The client does not record to which memory nodes the dropped insert has posted requests. So it READs a word
        // of each memory node behind them. The operation has no other housekeeping verbs.
        let place =
            |node| Place::from(RemotePtr::new(NodeId(node), 0).unwrap_or(RemotePtr::NULL)).to_string();
        let places: Vec<String> = (0..memory_nodes).map(place).collect();
        assert_eq!(settling(memory_nodes), (places, memory_nodes.into()));
    }
}

/// Returns whether a compute node finds `key` through an outdated cached node. Since the node was cached, the key and
/// another one were removed, the memory of removed nodes and leaves was reused, and the key was inserted again.
fn finds_reinserted_key(cache_unpinned: bool) -> Result<bool, IndexError> {
    let pool = pool(1);
    let options = ArtOptions {
        flaws: ArtFlaws {
            cache_unpinned,
            ..ArtFlaws::default()
        },
        ..tiny()
    };
    let (reader, writer) = (tree(&pool, 0, options), tree(&pool, 1, options));
    let (r, w) = (pool.connect(0).unwrap(), pool.connect(1).unwrap());
    let (key, beside) = (Key8(1), [Key8(2), Key8(4)]);
    let mut value = Vec::new();
    // A compute node without clients would leave the pool and drop its cache, so both clients stay.
    let (reading, writing) = (reader.client(&r), writer.client(&w));
    for key in [key, beside[0], beside[1]] {
        let done = block_on(writing.insert(&key, b"for both"));
        assert_eq!(done, Ok(Applied::Inserted));
    }
    assert_eq!(block_on(reading.get(&key, &mut value)), Ok(true));
    assert_eq!(block_on(writing.remove(&key)), Ok(Applied::Removed));
    // The last removal leaves one child in the node, so the node is renewed and its memory is retired.
    assert_eq!(block_on(writing.remove(&key)), Ok(Applied::Absent));
    assert_eq!(block_on(writing.remove(&beside[1])), Ok(Applied::Removed));
    for _ in 0..6 {
        block_on(reader.collect(&r)).unwrap();
        block_on(writer.collect(&w)).unwrap();
    }
    assert!(writer.alloc().stats().free_bytes > 0, "no memory was freed");
    for key in (1..9).map(|byte| Key8(byte << 56)).chain([key]) {
        let done = block_on(writing.insert(&key, b"is there"));
        assert_eq!(done, Ok(Applied::Inserted));
    }
    block_on(reading.get(&key, &mut value))
}

#[test]
fn images_that_pin_nothing_lead_to_reused_memory() {
    assert_eq!(finds_reinserted_key(false), Ok(true));
    let flawed = finds_reinserted_key(true);
    assert_ne!(flawed, Ok(true), "the flaw had no effect");
}

/// Returns the leaf to which the entries in the pool lead for `key`. They are read by another compute node, which does
/// not have the list of the separators that the first compute node has not installed yet.
fn leaf_in_pool(pool: &Loopback, key: u64) -> RemotePtr {
    let art = tree(
        pool,
        1,
        ArtOptions {
            cache_bytes: 0,
            ..tiny()
        },
    );
    let separators = Separators::new(art, IndexCache::new(1 << 20), SeparatorOptions::default()).unwrap();
    let v = pool.connect(1).unwrap();
    let located = block_on(separators.find(&v, &Key8(key))).unwrap().unwrap();
    located.leaf.at
}

#[test]
fn a_separator_of_a_dropped_operation_is_installed_by_the_next_search() {
    let leaf = |i: u64| RemotePtr::new(NodeId(0), i << 12).unwrap();
    let (first, right) = (leaf(16), leaf(17));
    let split = Split {
        level: 0,
        separator: Key8(50),
        until: None,
        left: first,
        right,
    };
    let (mut given_up, mut by_search) = (0, 0);
    for polls in 0.. {
        let pool = pool(1);
        let art = tree(
            &pool,
            0,
            ArtOptions {
                cache_bytes: 0,
                ..tiny()
            },
        );
        let separators = Separators::new(art, IndexCache::new(1 << 20), SeparatorOptions::default()).unwrap();
        let (v, w) = (pool.connect(0).unwrap(), pool.connect(0).unwrap());
        assert_eq!(block_on(separators.plant(&v, first)), Ok(true));
        let over = ends_within(polls, separators.install(&v, split));
        let found = |v: &Endpoint, key| {
            let located = block_on(separators.find(v, &Key8(key))).unwrap().unwrap();
            located.leaf.at
        };
        // If an installation was polled and then dropped, its separator is in the list `owed`, and the next search
        // installs it, unless the entry is in the tree already. If it was never polled, its separator is lost.
        let installed = if polls == 0 { first } else { right };
        let before = leaf_in_pool(&pool, 60);
        assert!(before == first || before == installed, "after {polls} polls");
        assert_eq!(found(&w, 60), installed, "after {polls} polls");
        assert_eq!(found(&w, 49), first);
        assert_eq!(leaf_in_pool(&pool, 60), installed, "after {polls} polls");
        by_search += u32::from(before != installed);
        if over {
            break;
        }
        given_up += 1;
    }
    assert!(given_up > 2, "the installation ended after {given_up} polls");
    assert!(by_search > 0, "no search had to install the separator");
}

/// The operation that runs after a renewal was dropped midway.
#[derive(Clone, Copy, Debug)]
enum Next {
    Insert(u64),
    Remove(u64),
}

/// The keys below a full node with two children: a leaf, and a node with two leaves.
const UNDER: [u64; 3] = [1 << 56, 1 << 56 | 1, 1 << 56 | 1 << 16];

/// Drops an insert that renews the node after this many polls. Then another compute node runs `next`. Returns whether
/// the insert had ended, and the result of `next`.
fn after_a_dropped_renewal(
    polls: usize,
    options: ArtOptions,
    next: Next,
) -> (bool, Result<Applied, IndexError>) {
    let pool = Loopback::builder().delays(4).counted_clock(Nanos(50));
    let pool = pool.build().unwrap();
    let trees = [
        tree(
            &pool,
            0,
            ArtOptions {
                cache_bytes: 1 << 20,
                ..options
            },
        ),
        tree(&pool, 1, options),
    ];
    let (v, w) = (pool.connect(0).unwrap(), pool.connect(1).unwrap());
    let (here, there) = (trees[0].client(&v), trees[1].client(&w));
    for key in UNDER {
        assert_eq!(
            block_on(here.insert(&Key8(key), b"is there")),
            Ok(Applied::Inserted)
        );
        assert_eq!(block_on(there.get(&Key8(key), &mut Vec::new())), Ok(true));
    }
    let over = ends_within(polls, here.insert(&Key8(1 << 56 | 2 << 16), b"the next"));
    let done = match next {
        Next::Insert(key) => block_on(there.insert(&Key8(key), b"is there")),
        Next::Remove(key) => block_on(there.remove(&Key8(key))),
    };
    if done.is_ok() {
        for key in UNDER {
            let gone = matches!(next, Next::Remove(removed) if removed == key);
            assert_eq!(
                block_on(there.get(&Key8(key), &mut Vec::new())),
                Ok(!gone),
                "{key:x}"
            );
        }
    }
    (over, done)
}

#[test]
fn a_dropped_renewal_is_completed_by_the_next_client() {
    for cache_bytes in [0, 1 << 20] {
        let options = ArtOptions {
            types: NodeTypes::new(&[2, 4, 256]).unwrap(),
            cache_bytes,
            attempts: 30,
            ..tiny()
        };
        let nexts = [
            // These insert a key beside a leaf, a key beside both children, and a key for which a new node is put above
            // the lower node, and remove two keys.
            Next::Insert(1 << 56 | 1 << 16 | 1),
            Next::Insert(1 << 56 | 3 << 16),
            Next::Insert(1 << 56 | 1 << 8),
            Next::Remove(1 << 56 | 1 << 16),
            Next::Remove(1 << 56 | 1),
        ];
        for next in nexts {
            for polls in 1.. {
                let (over, done) = after_a_dropped_renewal(polls, options, next);
                let expected = match next {
                    Next::Insert(_) => Applied::Inserted,
                    Next::Remove(_) => Applied::Removed,
                };
                assert_eq!(
                    done,
                    Ok(expected),
                    "{next:x?} after {polls} polls, {cache_bytes} of cache"
                );
                if over {
                    break;
                }
            }
        }
    }
}

/// If no client finishes a renewal, a client that waits for it returns an error after a bounded number of attempts.
#[test]
fn the_wait_for_a_renewal_is_bounded() {
    let options = ArtOptions {
        types: NodeTypes::new(&[2, 4, 256]).unwrap(),
        cache_bytes: 0,
        attempts: 30,
        flaws: ArtFlaws {
            renewal_waits: true,
            ..ArtFlaws::default()
        },
        ..tiny()
    };
    let mut waited = 0;
    for polls in 1.. {
        let (over, done) = after_a_dropped_renewal(polls, options, Next::Insert(1 << 56 | 1 << 8));
        match done {
            Ok(Applied::Inserted) => {}
            Err(IndexError::Exhausted(_)) => waited += 1,
            other => panic!("{other:?}"),
        }
        if over {
            break;
        }
    }
    assert!(waited > 0, "nothing was frozen");
}

/// The cache drops an approximate hint that leads to the left of a separator which a dropped operation did not install.
/// The next client then reads the tree and installs the separator. Other hints stay.
#[test]
fn a_rough_hint_to_the_left_of_an_owed_separator_is_dropped() {
    const LEAVES: u64 = 400;
    let leaf = |i: u64| RemotePtr::new(NodeId(0), (16 + i) << 12).unwrap();
    let pool = pool(1);
    let art = tree(
        &pool,
        0,
        ArtOptions {
            cache_bytes: 0,
            ..tiny()
        },
    );
    let separators = Separators::new(art, IndexCache::new(9 << 10), SeparatorOptions::default()).unwrap();
    let v = pool.connect(0).unwrap();
    assert_eq!(block_on(separators.plant(&v, leaf(0))), Ok(true));
    let split = |n: u64, right: u64| Split {
        level: 0,
        separator: Key8(n),
        until: None,
        left: RemotePtr::NULL,
        right: leaf(right),
    };
    for n in 1..LEAVES {
        assert_eq!(block_on(separators.install(&v, split(100 * n, n))), Ok(()));
    }
    assert_eq!(block_on(separators.warm(&v)), Ok(LEAVES));
    let owed = 100 * 300 + 50;
    assert!(!ends_within(1, separators.install(&v, split(owed, LEAVES))));
    let hint = |key: u64| separators.known(&v, &Key8(key));
    let left = hint(owed).unwrap();
    assert!(matches!(left.proof, SeparatorProof::Rough(..)));
    // The first key has another hint, and the second one lies to the left of the separator. So their hints stay.
    let last = hint(100 * LEAVES).unwrap();
    assert_ne!(last.leaf.at, left.leaf.at);
    let before = hint(owed - 1).unwrap();
    assert_eq!(before.leaf.at, left.leaf.at);
    for (key, others) in [(100 * LEAVES, last), (owed - 1, before)] {
        separators.stale(&v, others.proof);
        assert_eq!(hint(key).map(|hint| hint.leaf.at), Some(others.leaf.at), "{key}");
    }
    assert_ne!(leaf_in_pool(&pool, owed + 1), leaf(LEAVES));
    separators.stale(&v, left.proof);
    assert_ne!(hint(owed + 1).map(|hint| hint.leaf.at), Some(left.leaf.at));
    let found = block_on(separators.find(&v, &Key8(owed + 1))).unwrap().unwrap();
    assert_eq!(found.leaf.at, leaf(LEAVES));
    assert_eq!(leaf_in_pool(&pool, owed + 1), leaf(LEAVES));
}
