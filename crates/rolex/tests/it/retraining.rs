//! Tests of retraining: what a new table lists, who reads it, and what it costs.

use dm_alloc::Superblock;
use dm_index::{Applied, Child, RangeIndex};
use dm_loopback::{Loopback, block_on};
use dm_testkit::connect;
use dm_verbs::{Counters, Env, Nanos, RemotePtr, Verbs};
use rolex::{Key8, Options, ReclaimOptions, Rolex};

fn options() -> Options {
    Options {
        span: 4,
        chunk_bytes: 64 << 10,
        reclaim: ReclaimOptions {
            period: Nanos(0),
            operations: 1,
            ..ReclaimOptions::new()
        },
        ..Options::new(8)
    }
}

/// Returns the round trips without those of repeated READs. A thread that is suspended for longer than the version
/// window reads a leaf once more.
const fn once_each(counters: Counters) -> u64 {
    counters.round_trips - counters.torn_reads
}

/// A compute node that has not seen any split takes steps to the right, until it reads the table that another one has
/// written.
#[test]
fn another_compute_node_reads_the_new_table() {
    let pool = Loopback::builder().nodes(2).build().expect("memory");
    let (a, b) = (connect(&pool, 0), connect(&pool, 1));
    block_on(async {
        let here = Rolex::<Key8>::create_or_open(&a, &options())
            .await
            .expect("a pool");
        let there = Rolex::<Key8>::create_or_open(&b, &options())
            .await
            .expect("a pool");
        let (writer, reader) = (here.client(&a), there.client(&b));
        let mut value = Vec::new();
        assert_eq!(writer.insert(&Key8(0), &[1; 8]).await, Ok(Applied::Inserted));
        assert_eq!(reader.get(&Key8(0), &mut value).await, Ok(true));
        for n in 1..200 {
            assert_eq!(writer.insert(&Key8(n), &[1; 8]).await, Ok(Applied::Inserted));
        }
        let leaves = here.retrain(&a).await.expect("no faults");
        assert!(leaves > 60, "{leaves}");
        let trips = once_each;
        let before = trips(b.meter().counters());
        assert_eq!(reader.get(&Key8(150), &mut value).await, Ok(true));
        let found = trips(b.meter().counters());
        assert!(
            found - before < 12,
            "a few steps, the root word and the table: {}",
            found - before
        );
        for n in 0..200 {
            assert_eq!(reader.get(&Key8(n), &mut value).await, Ok(true));
        }
        assert_eq!(trips(b.meter().counters()) - found, 200, "one round trip each");
        // Nothing has changed, so no table is written.
        let used = here.allocated_bytes();
        assert_eq!(here.retrain(&a).await, Ok(leaves));
        assert_eq!(here.allocated_bytes(), used);
    });
}

/// Without any visit, the client that splits a leaf writes a table whenever the number of leaves has doubled and at
/// least 64 leaves are new. A compute node that joins later reads this table, and reads each leaf that was made since
/// only once.
#[test]
fn a_compute_node_finds_a_table_and_learns_the_other_leaves_on_its_way() {
    let pool = Loopback::builder().nodes(1).build().expect("memory");
    let (a, b) = (connect(&pool, 0), connect(&pool, 1));
    block_on(async {
        let here = Rolex::<Key8>::create_or_open(&a, &options())
            .await
            .expect("a pool");
        let writer = here.client(&a);
        for n in 0..400 {
            assert_eq!(writer.insert(&Key8(n), &[1; 8]).await, Ok(Applied::Inserted));
        }
        let there = Rolex::<Key8>::create_or_open(&b, &options())
            .await
            .expect("a pool");
        let (reader, mut value) = (there.client(&b), Vec::new());
        let trips = || once_each(b.meter().counters());
        let before = trips();
        assert_eq!(reader.get(&Key8(399), &mut value).await, Ok(true));
        let first = trips() - before;
        let leaves = here.retrain(&a).await.expect("no faults");
        assert!(first > 3 && first < leaves / 2 + 4, "{first} of {leaves}");
        let before = trips();
        for n in 0..400 {
            assert_eq!(reader.get(&Key8(n), &mut value).await, Ok(true));
        }
        assert_eq!(trips() - before, 400);
    });
}

/// `collect` writes a table if many leaves are new, and otherwise none.
#[test]
fn a_compute_node_that_collects_publishes_its_splits() {
    let pool = Loopback::builder().nodes(1).build().expect("memory");
    let v = connect(&pool, 0);
    block_on(async {
        let index = Rolex::<Key8>::create_or_open(&v, &options())
            .await
            .expect("a pool");
        let client = index.client(&v);
        let mut words = Vec::new();
        for n in 0..400 {
            assert_eq!(client.insert(&Key8(n), &[1; 8]).await, Ok(Applied::Inserted));
            index.collect(&v).await.expect("no faults");
            let word = v.word(Superblock::ROOT_WORD).await.expect("no faults");
            if words.last() != Some(&word) {
                words.push(word);
            }
        }
        // The root word points to the first leaf, and then to another table after each 64 new leaves.
        assert_eq!(words.len(), 4, "{words:?}");
    });
}

/// A visit ends although a leaf's header is damaged. A visit replaces a damaged table.
#[test]
fn a_visit_ends_at_damaged_bytes() {
    let pool = Loopback::builder().nodes(1).build().expect("memory");
    let v = connect(&pool, 0);
    block_on(async {
        let options = Options {
            attempts: 200,
            ..options()
        };
        let index = Rolex::<Key8>::create_or_open(&v, &options).await.expect("a pool");
        let client = index.client(&v);
        for n in 0..100 {
            assert_eq!(client.insert(&Key8(n), &[1; 8]).await, Ok(Applied::Inserted));
        }
        let leaves = index.retrain(&v).await.expect("no faults");
        let table = RemotePtr::from_raw(v.word(Superblock::ROOT_WORD).await.expect("no faults") & !63);
        // An entry behind the first one is damaged, and later a bit of each byte of a leaf's header but the first, one
        // at a time.
        v.load(table.add(64), &[0xff; 8]).expect("in range");
        let report = index.check(&v).await.expect("damage is no error");
        assert!(!report.is_clean(), "{report}");
        assert_eq!(index.retrain(&v).await, Ok(leaves));
        let report = index.check(&v).await.expect("no faults");
        assert!(report.is_clean(), "{report}");
        let table = RemotePtr::from_raw(v.word(Superblock::ROOT_WORD).await.expect("no faults") & !63);
        let page = v.read(table, 64).await.expect("no faults").to_vec();
        // The address behind the second low fence key.
        let second = Child::decode(&page[16 + 14 + 8..16 + 28]);
        let head = v.read(second, 64).await.expect("no faults").to_vec();
        for at in 1..64 {
            let mut damaged = head.clone();
            damaged[at] ^= 1;
            v.load(second, &damaged).expect("in range");
            // The visit ends, with an error or with the leaves that it has found.
            let _ended = index.retrain(&v).await;
        }
        v.load(second, &head).expect("in range");
        assert_eq!(index.retrain(&v).await, Ok(leaves));
    });
}

/// The memory of old tables is reused, so it does not grow with the number of visits.
#[test]
fn the_memory_of_old_tables_is_reused() {
    let pool = Loopback::builder()
        .nodes(1)
        .host_bytes(8 << 20)
        .build()
        .expect("memory");
    let v = connect(&pool, 0);
    block_on(async {
        let index = Rolex::<Key8>::create_or_open(&v, &options())
            .await
            .expect("a pool");
        let client = index.client(&v);
        let mut most = 0;
        for turn in 0..40_u64 {
            for n in 0..400 {
                let key = Key8(n * 64 + turn);
                assert_eq!(client.insert(&key, &[1; 8]).await, Ok(Applied::Inserted));
                if turn > 0 {
                    let last = Key8(n * 64 + turn - 1);
                    assert_eq!(client.remove(&last).await, Ok(Applied::Removed));
                }
            }
            index.retrain(&v).await.expect("no faults");
            for _ in 0..4 {
                index.collect(&v).await.expect("no faults");
            }
            if turn == 10 {
                most = index.alloc_stats().in_use_bytes;
            }
        }
        let now = index.alloc_stats().in_use_bytes;
        assert!(now < most * 3 / 2, "{now} after {most}");
        let report = index.check(&v).await.expect("no faults");
        assert!(report.is_clean(), "{report}");
    });
}
