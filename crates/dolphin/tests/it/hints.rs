//! Tests of wrong and of approximate separators. A wrong one costs additional steps once, and none causes a wrong
//! answer.

use dm_art::{Art, ArtOptions, DEFAULT_TURN, SeparatorOptions, SingleOptions, Singles};
use dm_index::{CpuCost, RangeIndex, Scan};
use dm_layout::SingleLeaf;
use dm_lock::{GlobalLockTable, LockOptions, LockPlace, Locks};
use dm_loopback::{Loopback, block_on};
use dm_sync::Arc;
use dm_verbs::{Env, RemotePtr, Verbs};
use dolphin::{Dolphin, Key8, NodeTypes, Options};

use dm_alloc::{Allocator, ReclaimOptions, Superblock};
use dm_testkit::connect;

/// Number of keys.
const KEYS: u64 = 1_000;

fn options(separators: SeparatorOptions) -> Options {
    Options {
        // The pool has no members, because the test writes the wrong entries with a separate allocator.
        members: 0,
        separators,
        attempts: 200,
        ..Options::new(8)
    }
}

/// Returns options of a client that follows an entry again although it has led to a wrong leaf. Without the feature
/// `study`, these are the default options.
fn follows_wrong_entries_again() -> SeparatorOptions {
    SeparatorOptions {
        #[cfg(feature = "study")]
        credulous: true,
        ..SeparatorOptions::default()
    }
}

/// Opens the tree of separators directly, and installs the separator `at` with the leaf of another one, the first
/// separator from `as_of` on. A request that is delayed for a long time could have the same effect.
async fn mislead<V: Verbs + dm_verbs::Control>(v: &V, at: Key8, as_of: Key8) {
    let superblock = Superblock::inspect(v).await.expect("a pool");
    let entry = SingleLeaf::new(8).expect("small");
    let table = GlobalLockTable::in_nodes(superblock.memory_nodes(), entry.lock_at() as u32);
    let locks = LockOptions {
        place: LockPlace::Host,
        ..LockOptions::default()
    };
    let entries = Singles::new(
        entry,
        Arc::new(Locks::new(locks, table)),
        SingleOptions::default(),
    );
    let alloc = Allocator::for_pool(&superblock, v.compute_node(), ReclaimOptions::new());
    let options = ArtOptions {
        types: NodeTypes::SHIPPED,
        cache_bytes: 0,
        attempts: 100,
        turn: DEFAULT_TURN,
        depth_slack: 0,
        cpu: CpuCost::NONE,
        ..ArtOptions::default()
    };
    let art = Art::<Key8, _>::open(v, entries, Arc::new(alloc), superblock.root_word, options);
    let art = art.await.expect("it is there");
    let client = art.client(v);
    let mut leaf = Vec::new();
    let mut first = Scan::new();
    client.scan(&as_of, 1, &mut first).await.expect("no faults");
    let (_, address) = first.get(0).expect("a separator");
    leaf.extend_from_slice(address);
    assert_ne!(address, RemotePtr::NULL.raw().to_le_bytes());
    client.insert(&at, &leaf).await.expect("no faults");
}

fn looked_up(separators: SeparatorOptions, scan_first: bool) -> Result<(), dm_index::IndexError> {
    let pool = Loopback::builder().nodes(2).build().expect("memory");
    let v = connect(&pool, 0);
    block_on(async {
        let tree = Dolphin::<Key8>::create_or_open(&v, &options(separators))
            .await
            .expect("an empty pool");
        let client = tree.client(&v);
        let mut next = (0..KEYS).map(|n| Key8(n * 2));
        let loaded = client.bulk_load(0.7, |out| {
            out.extend_from_slice(&[7; 8]);
            next.next()
        });
        loaded.await.expect("an empty tree");
        // From here on, the separators of some keys lead to leaves far to the right or to the left.
        mislead(&v, Key8(333), Key8(1_500)).await;
        mislead(&v, Key8(1_001), Key8(1)).await;
        let mut value = Vec::new();
        if scan_first {
            let mut some = Scan::new();
            client.scan(&Key8(333), 3, &mut some).await?;
            assert_eq!(some.keys(), [334, 336, 338].map(Key8));
        }
        for key in 0..2 * KEYS {
            assert_eq!(client.get(&Key8(key), &mut value).await?, key % 2 == 0, "{key}");
        }
        // If an entry leads too far to the left, the client follows sibling pointers to the right. If an entry leads
        // too far to the right, the client removes the entry.
        let other = Dolphin::<Key8>::open(&v, &options(follows_wrong_entries_again()))
            .await
            .expect("a pool");
        let client = other.client(&v);
        let mut all = Scan::new();
        client.scan(&Key8(0), KEYS as usize + 1, &mut all).await?;
        assert_eq!(all.len() as u64, KEYS);
        client.get(&Key8(334), &mut value).await?;
        Ok(())
    })
}

#[test]
fn a_wrong_separator_misleads_a_client_only_once() {
    for scan_first in [false, true] {
        looked_up(SeparatorOptions::default(), scan_first).expect("every key is found");
    }
}

#[cfg(feature = "study")]
#[test]
fn a_client_that_follows_the_same_wrong_entry_again_fails() {
    for scan_first in [false, true] {
        looked_up(follows_wrong_entries_again(), scan_first).expect_err("the retry limit is reached");
    }
}

/// If the cache has room for only a third of the exact separators, clients still never search the radix tree for a
/// leaf. On average, a call takes less than two round trips for steps to the right.
#[test]
fn a_small_cache_stores_all_separators_approximately() {
    const MANY: u64 = 60_000;
    let pool = dm_testkit::counted().nodes(2).build().expect("memory");
    let v = connect(&pool, 0);
    block_on(async {
        let tight = Options {
            leaf_bytes: 256,
            cache_bytes: 32 << 10,
            members: 0,
            ..Options::new(8)
        };
        let tree = Dolphin::<Key8>::create_or_open(&v, &tight)
            .await
            .expect("an empty pool");
        let client = tree.client(&v);
        let spread = |n: u64| Key8((n << 44) | (n * 7));
        let mut next = (0..MANY).map(spread);
        let loaded = client.bulk_load(0.6, |value| {
            value.extend_from_slice(&[1; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(MANY));
        let leaves = tree.warm(&v).await.expect("separators");
        assert!(
            tree.cache_bytes() <= tight.cache_bytes && leaves > 3_000,
            "{leaves} leaves"
        );
        let before = v.meter().counters();
        let mut value = Vec::new();
        for n in (0..MANY).step_by(59) {
            assert_eq!(client.get(&spread(n), &mut value).await, Ok(true));
            assert_eq!(
                client.update(&spread(n), &[2; 8]).await,
                Ok(dolphin::Applied::Replaced)
            );
            assert_eq!(client.get(&Key8(spread(n).0 + 1), &mut value).await, Ok(false));
        }
        let cost = v.meter().counters() - before;
        let calls = 3 * MANY.div_ceil(59);
        assert_eq!((cost.cache_misses, cost.torn_reads), (0, 0));
        // Clients that know the leaf of every key need 4 round trips for 3 calls.
        let steps = (cost.round_trips - calls * 4 / 3) as f64 / calls as f64;
        assert!(
            steps > 0.2 && steps < 2.0,
            "{steps} round trips for steps to the right a call, {leaves} leaves"
        );
        // Clients also find changes: new leaves, and leaves that are removed.
        for n in 0..3_000 {
            let key = Key8(spread(n).0 + 3);
            assert_eq!(client.insert(&key, &[3; 8]).await, Ok(dolphin::Applied::Inserted));
        }
        for n in 0..6_000 {
            assert_eq!(client.remove(&spread(n)).await, Ok(dolphin::Applied::Removed));
        }
        let mut scan = Scan::new();
        assert_eq!(client.scan(&Key8(0), 5_000, &mut scan).await, Ok(()));
        let expected = (0..3_000)
            .map(|n| Key8(spread(n).0 + 3))
            .chain((6_000..8_000).map(spread));
        assert!(scan.keys().iter().copied().eq(expected));
        assert!(tree.cache_bytes() <= tight.cache_bytes);
        // A client with an empty cache finds them too.
        let cold = Dolphin::<Key8>::create_or_open(&v, &tight)
            .await
            .expect("the pool");
        let cold_client = cold.client(&v);
        for n in (6_000..MANY).step_by(97) {
            assert_eq!(cold_client.get(&spread(n), &mut value).await, Ok(true));
        }
        assert!(cold.cache_bytes() <= tight.cache_bytes);
    });
}

/// Another compute node splits the last leaf many times. A client that stores approximations of the old separators
/// follows the sibling pointers to the new leaf only once.
#[test]
fn an_approximate_hint_that_leads_too_far_left_is_replaced() {
    let pool = dm_testkit::counted().nodes(2).build().expect("memory");
    let (v, w) = (connect(&pool, 0), connect(&pool, 1));
    block_on(async {
        let rough = Options {
            leaf_bytes: 256,
            cache_bytes: 4 << 10,
            ..options(SeparatorOptions::default())
        };
        let tree = Dolphin::<Key8>::create_or_open(&v, &rough).await.expect("a pool");
        let client = tree.client(&v);
        for n in 0..KEYS {
            client.insert(&Key8(n), &[1; 8]).await.expect("memory");
        }
        let mut value = Vec::new();
        let last = Key8(KEYS - 1);
        assert_eq!(client.get(&last, &mut value).await, Ok(true));
        assert!(tree.cache_bytes() <= rough.cache_bytes);

        let other = Dolphin::<Key8>::create_or_open(&w, &rough)
            .await
            .expect("the pool");
        let appender = other.client(&w);
        for n in KEYS..2 * KEYS {
            appender.insert(&Key8(n), &[2; 8]).await.expect("memory");
        }
        let mut trips = Vec::new();
        for _ in 0..3 {
            let before = v.meter().counters();
            assert_eq!(client.get(&Key8(2 * KEYS - 1), &mut value).await, Ok(true));
            trips.push((v.meter().counters() - before).round_trips);
        }
        assert!(trips[0] > 12, "the first search was short: {trips:?}");
        assert!(
            trips[1] <= 4 && trips[2] <= 4,
            "a later search was long: {trips:?}"
        );
    });
}
