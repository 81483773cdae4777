//! Tests of the exact numbers of verbs and bytes that each operation costs, and of its use of the cache. Unless a test
//! says otherwise, there is one client and one memory node.

use dm_art::{ArtFlaws, ArtOptions};
use dm_index::{Applied, Exchange, IndexError, Key8, RangeIndex, Scan};
use dm_layout::NodeTypes;
use dm_loopback::{Endpoint, block_on};
use dm_verbs::Env;

use crate::common::{Client, Setup, cost, pool};

/// An operation on a key.
#[derive(Clone, Copy, Debug)]
enum Do {
    Get(u64),
    Insert(u64),
    Update(u64),
    Upsert(u64),
    Remove(u64),
    /// Replaces by an exchange the value that the script gives to all keys.
    Exchange(u64),
    Scan(u64, usize),
}

use Do::{Get, Insert, Remove, Scan as Scanned, Update, Upsert};

const VALUE: [u8; 8] = [1; 8];

fn answer(done: Result<Applied, IndexError>) -> String {
    format!("{:?}", done.unwrap())
}

/// Runs the operation. Returns its answer and its cost.
fn told(v: &Endpoint, client: &Client<'_, Key8>, what: Do) -> String {
    let work = async {
        match what {
            Get(key) => match client.get(&Key8(key), &mut Vec::new()).await.unwrap() {
                true => "Found".to_owned(),
                false => "Absent".to_owned(),
            },
            Insert(key) => answer(client.insert(&Key8(key), &VALUE).await),
            Update(key) => answer(client.update(&Key8(key), &VALUE).await),
            Upsert(key) => answer(client.upsert(&Key8(key), &VALUE).await),
            Remove(key) => answer(client.remove(&Key8(key)).await),
            Do::Exchange(key) => answer(client.exchange(&Key8(key), Some(&VALUE), Some(&[2; 8])).await),
            Scanned(key, limit) => {
                let mut scan = Scan::new();
                client.scan(&Key8(key), limit, &mut scan).await.unwrap();
                format!("{}", scan.len())
            }
        }
    };
    let (answer, cost) = cost(v, work);
    format!("{answer}: {cost}")
}

/// Runs a script of operations, each with its expected answer and cost.
#[track_caller]
fn script(setup: Setup, memory_nodes: u16, steps: &[(Do, &str)]) {
    let world = pool(memory_nodes);
    let v = world.connect(0).unwrap();
    let tree = setup.open::<Key8>(&v);
    let client = tree.client(&v);
    let mut wrong = Vec::new();
    for (step, expected) in steps {
        let found = told(&v, &client, *step);
        if found != *expected {
            wrong.push(format!("({step:?}, \"{found}\")\n  expected \"{expected}\""));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn with_slack(depth_slack: u8) -> Setup {
    let small = Setup::small();
    Setup {
        art: ArtOptions {
            depth_slack,
            ..small.art
        },
        ..small
    }
}

/// Inserts and removes keys so that leaves split, nodes grow and nodes merge. The cache has room for all nodes.
#[test]
fn on_one_memory_node() {
    script(
        with_slack(0),
        1,
        &[
            (
                Get(1),
                "Absent: 1 reads, 2064 bytes_read, 1 round_trips, 1 cache_misses",
            ),
            (
                Get(1),
                "Absent: 1 reads, 2064 bytes_read, 1 round_trips, 1 stale_reads, 1 cache_hits",
            ),
            (
                Insert(1),
                "Inserted: 1 writes, 1 cas, 64 bytes_written, 1 round_trips, 1 cache_hits",
            ),
            (
                Insert(1),
                "Present: 1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits",
            ),
            (
                Get(1),
                "Found: 1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits",
            ),
            (
                Get(2),
                "Absent: 1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits",
            ),
            (
                Update(1),
                "Replaced: 1 reads, 2 writes, 40 bytes_read, 24 bytes_written, 2 round_trips, 1 masked_cas, 1 cache_hits",
            ),
            (
                Update(2),
                "Absent: 1 reads, 1 writes, 40 bytes_read, 8 bytes_written, 2 round_trips, 1 masked_cas, 1 cache_hits",
            ),
            (
                Upsert(1),
                "Replaced: 1 reads, 2 writes, 40 bytes_read, 24 bytes_written, 2 round_trips, 1 masked_cas, 1 cache_hits",
            ),
            (
                Do::Exchange(1),
                "Replaced: 1 reads, 2 writes, 40 bytes_read, 24 bytes_written, 2 round_trips, 1 masked_cas, 1 cache_hits",
            ),
            (
                Do::Exchange(1),
                "Differs: 1 reads, 1 writes, 40 bytes_read, 8 bytes_written, 2 round_trips, 1 masked_cas, 1 cache_hits",
            ),
            (
                Upsert(2),
                "Inserted: 1 reads, 3 writes, 1 cas, 40 bytes_read, 104 bytes_written, 3 round_trips, 1 masked_cas, 1 faa, 1 cache_hits, 1 splits",
            ),
            (
                Get(3),
                "Absent: 1 reads, 32 bytes_read, 1 round_trips, 1 stale_reads, 1 cache_hits",
            ),
            (
                Update(3),
                "Absent: 1 reads, 32 bytes_read, 1 round_trips, 1 stale_reads, 1 cache_hits",
            ),
            (
                Remove(3),
                "Absent: 1 reads, 32 bytes_read, 1 round_trips, 1 stale_reads, 1 cache_hits",
            ),
            (
                Insert(1 << 8),
                "Inserted: 2 writes, 1 cas, 96 bytes_written, 1 round_trips, 1 cache_hits, 1 splits",
            ),
            (
                Insert(3),
                "Inserted: 1 reads, 2 writes, 4 cas, 32 bytes_read, 112 bytes_written, 4 round_trips, 2 cache_hits, 1 renewals, 2 renewed_words, 48 renewed_bytes",
            ),
            (
                Insert(4),
                "Inserted: 1 writes, 1 cas, 64 bytes_written, 1 round_trips, 1 cache_hits",
            ),
            (
                Insert(5),
                "Inserted: 1 reads, 2 writes, 6 cas, 48 bytes_read, 144 bytes_written, 4 round_trips, 2 cache_hits, 1 renewals, 4 renewed_words, 80 renewed_bytes",
            ),
            (
                Remove(5),
                "Removed: 1 reads, 2 writes, 1 cas, 40 bytes_read, 16 bytes_written, 2 round_trips, 1 masked_cas, 1 cache_hits",
            ),
            (
                Remove(5),
                "Absent: 1 reads, 80 bytes_read, 1 round_trips, 1 stale_reads, 1 cache_hits",
            ),
            (
                Insert(5),
                "Inserted: 1 writes, 1 cas, 64 bytes_written, 1 round_trips, 1 cache_hits",
            ),
            (Scanned(0, 9), "6: 9 reads, 2416 bytes_read, 4 round_trips"),
            (Scanned(3, 2), "2: 5 reads, 2256 bytes_read, 4 round_trips"),
            (
                Remove(5),
                "Removed: 1 reads, 2 writes, 1 cas, 40 bytes_read, 16 bytes_written, 2 round_trips, 1 masked_cas, 1 cache_hits",
            ),
            (
                Remove(4),
                "Removed: 2 reads, 2 writes, 1 cas, 120 bytes_read, 16 bytes_written, 3 round_trips, 1 masked_cas, 1 stale_reads, 1 cache_hits",
            ),
            (
                Remove(3),
                "Removed: 1 reads, 2 writes, 1 cas, 40 bytes_read, 16 bytes_written, 2 round_trips, 1 masked_cas, 1 cache_hits",
            ),
            (
                Remove(2),
                "Removed: 2 reads, 2 writes, 10 cas, 120 bytes_read, 16 bytes_written, 6 round_trips, 1 masked_cas, 1 cache_hits, 1 merges, 1 renewals, 8 renewed_words",
            ),
            (
                Remove(1),
                "Removed: 2 reads, 2 writes, 4 cas, 72 bytes_read, 16 bytes_written, 6 round_trips, 1 masked_cas, 1 cache_hits, 1 merges, 1 renewals, 2 renewed_words",
            ),
            (
                Remove(1 << 8),
                "Removed: 1 reads, 2 writes, 1 cas, 40 bytes_read, 16 bytes_written, 2 round_trips, 1 masked_cas, 1 cache_hits",
            ),
            (
                Get(1),
                "Absent: 1 reads, 2064 bytes_read, 1 round_trips, 1 stale_reads, 1 cache_hits",
            ),
        ],
    );
}

#[test]
fn with_slack_a_split_takes_no_faa_and_its_leaf_proves_less() {
    script(
        with_slack(1),
        1,
        &[
            (
                Insert(0),
                "Inserted: 1 reads, 1 writes, 1 cas, 2064 bytes_read, 64 bytes_written, 2 round_trips, 1 cache_misses",
            ),
            (
                Get(1 << 48),
                "Absent: 2 reads, 2104 bytes_read, 2 round_trips, 1 stale_reads, 1 cache_hits",
            ),
            (
                Insert(1 << 48),
                "Inserted: 1 reads, 2 writes, 1 cas, 40 bytes_read, 96 bytes_written, 2 round_trips, 1 cache_hits, 1 splits",
            ),
            (
                Get(1 << 40),
                "Absent: 1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits",
            ),
            (
                Insert(1 << 40),
                "Inserted: 1 reads, 2 writes, 1 cas, 40 bytes_read, 96 bytes_written, 2 round_trips, 1 faa, 1 cache_hits, 1 splits",
            ),
            (
                Insert(1),
                "Inserted: 1 reads, 2 writes, 1 cas, 40 bytes_read, 96 bytes_written, 2 round_trips, 1 faa, 1 cache_hits, 1 splits",
            ),
            (
                Get(2),
                "Absent: 1 reads, 32 bytes_read, 1 round_trips, 1 stale_reads, 1 cache_hits",
            ),
            (
                Get(3 << 40),
                "Absent: 1 reads, 32 bytes_read, 1 round_trips, 1 stale_reads, 1 cache_hits",
            ),
        ],
    );
}

/// Without a cache every operation begins at the root.
#[test]
fn without_a_cache() {
    let small = Setup::small();
    let art = ArtOptions {
        cache_bytes: 0,
        ..small.art
    };
    script(
        Setup { art, ..small },
        1,
        &[
            (
                Insert(1),
                "Inserted: 1 reads, 1 writes, 1 cas, 2064 bytes_read, 64 bytes_written, 2 round_trips, 1 cache_misses",
            ),
            (
                Get(1),
                "Found: 2 reads, 2104 bytes_read, 2 round_trips, 1 cache_misses",
            ),
            (
                Insert(2),
                "Inserted: 2 reads, 2 writes, 1 cas, 2104 bytes_read, 96 bytes_written, 3 round_trips, 1 faa, 1 cache_misses, 1 splits",
            ),
            (
                Get(2),
                "Found: 3 reads, 2136 bytes_read, 3 round_trips, 1 cache_misses",
            ),
            (
                Get(3),
                "Absent: 2 reads, 2096 bytes_read, 2 round_trips, 1 cache_misses",
            ),
            (
                Update(2),
                "Replaced: 3 reads, 2 writes, 2136 bytes_read, 24 bytes_written, 4 round_trips, 1 masked_cas, 1 cache_misses",
            ),
            (
                Remove(2),
                "Removed: 4 reads, 2 writes, 4 cas, 2168 bytes_read, 16 bytes_written, 8 round_trips, 1 masked_cas, 1 cache_misses, 1 merges, 1 renewals, 2 renewed_words",
            ),
        ],
    );
}

/// If a slot and its new child are on different memory nodes, an insert takes one more round trip.
#[test]
fn on_three_memory_nodes() {
    script(
        with_slack(0),
        3,
        &[
            (
                Insert(0),
                "Inserted: 1 reads, 1 writes, 1 cas, 2064 bytes_read, 64 bytes_written, 2 round_trips, 1 cache_misses",
            ),
            (
                Insert(1 << 56),
                "Inserted: 1 writes, 1 cas, 64 bytes_written, 2 round_trips, 1 cache_hits",
            ),
            (
                Insert(2 << 56),
                "Inserted: 1 writes, 1 cas, 64 bytes_written, 1 round_trips, 1 cache_hits",
            ),
            (
                Insert(1 << 56 | 1),
                "Inserted: 1 reads, 2 writes, 1 cas, 40 bytes_read, 96 bytes_written, 3 round_trips, 1 faa, 1 cache_hits, 1 splits",
            ),
            (
                Insert(1 << 56 | 2),
                "Inserted: 1 reads, 2 writes, 4 cas, 32 bytes_read, 112 bytes_written, 5 round_trips, 2 cache_hits, 1 renewals, 2 renewed_words, 48 renewed_bytes",
            ),
            (
                Insert(1 << 56 | 3),
                "Inserted: 1 writes, 1 cas, 64 bytes_written, 1 round_trips, 1 cache_hits",
            ),
            (
                Remove(1 << 56 | 3),
                "Removed: 2 reads, 2 writes, 1 cas, 88 bytes_read, 16 bytes_written, 3 round_trips, 1 masked_cas, 1 stale_reads, 1 cache_hits",
            ),
            (
                Get(2 << 56),
                "Found: 1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits",
            ),
        ],
    );
}

/// A compute node with an outdated cache finds the changes of another compute node, and caches them.
#[test]
fn over_a_cache_that_is_out_of_date() {
    let world = pool(1);
    let (v, w) = (world.connect(0).unwrap(), world.connect(1).unwrap());
    let setup = with_slack(0);
    let (here, there) = (setup.open::<Key8>(&v), setup.open::<Key8>(&w));
    let (here, there) = (here.client(&v), there.client(&w));
    let mut wrong = Vec::new();
    let mut step = |ours: bool, what: Do, expected: &str| {
        let found = match ours {
            true => told(&v, &here, what),
            false => told(&w, &there, what),
        };
        if ours && found != expected {
            wrong.push(format!("({what:?}, \"{found}\")\n  expected \"{expected}\""));
        }
    };
    for (ours, what, expected) in [
        (
            true,
            Insert(1),
            "Inserted: 1 reads, 1 writes, 1 cas, 2064 bytes_read, 64 bytes_written, 2 round_trips, 1 cache_misses",
        ),
        // This client caches an empty slot, and then another client fills the slot.
        (
            true,
            Get(1 << 56),
            "Absent: 1 reads, 2064 bytes_read, 1 round_trips, 1 stale_reads, 1 cache_hits",
        ),
        (false, Insert(1 << 56), ""),
        (
            true,
            Insert(1 << 56),
            "Present: 1 reads, 1 writes, 1 cas, 40 bytes_read, 64 bytes_written, 2 round_trips, 2 cache_hits",
        ),
        (
            true,
            Get(1 << 56),
            "Found: 1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits",
        ),
        // Another client has split the leaf meanwhile, so that a deeper node links it. The cached link still leads to
        // this leaf, but not to the new leaf beside it.
        (false, Insert(2), ""),
        (
            true,
            Get(1),
            "Found: 1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits",
        ),
        (
            true,
            Get(2),
            "Found: 4 reads, 2176 bytes_read, 4 round_trips, 1 stale_reads, 1 cache_hits",
        ),
        (
            true,
            Get(2),
            "Found: 1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits",
        ),
        // Another client has replaced the node by a larger one.
        (false, Insert(3), ""),
        (
            true,
            Get(2),
            "Found: 1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits",
        ),
        (
            true,
            Get(3),
            "Found: 4 reads, 2184 bytes_read, 4 round_trips, 2 stale_reads, 1 cache_hits",
        ),
        (false, Insert(4), ""),
        (false, Insert(5), ""),
        (
            true,
            Insert(6),
            "Inserted: 3 reads, 2 writes, 3 cas, 2192 bytes_read, 144 bytes_written, 6 round_trips, 1 cache_hits, 1 cache_misses",
        ),
        (
            true,
            Get(5),
            "Found: 1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits",
        ),
        // Another client has removed leaves, and thereby a node.
        (false, Remove(6), ""),
        (
            true,
            Get(6),
            "Absent: 2 reads, 120 bytes_read, 2 round_trips, 1 stale_reads, 1 cache_hits",
        ),
        (
            true,
            Update(6),
            "Absent: 1 reads, 80 bytes_read, 1 round_trips, 1 stale_reads, 1 cache_hits",
        ),
        (
            true,
            Insert(6),
            "Inserted: 1 writes, 1 cas, 64 bytes_written, 1 round_trips, 1 cache_hits",
        ),
        (false, Remove(1), ""),
        (false, Remove(2), ""),
        (false, Remove(3), ""),
        (false, Remove(4), ""),
        (false, Remove(5), ""),
        (
            true,
            Get(6),
            "Found: 1 reads, 40 bytes_read, 1 round_trips, 1 cache_hits",
        ),
        (
            true,
            Get(5),
            "Absent: 4 reads, 2224 bytes_read, 4 round_trips, 2 stale_reads, 1 cache_hits",
        ),
        (
            true,
            Remove(5),
            "Absent: 3 reads, 2 writes, 2144 bytes_read, 16 bytes_written, 5 round_trips, 2 masked_cas, 1 stale_reads, 1 cache_hits",
        ),
        (
            true,
            Remove(6),
            "Removed: 1 reads, 2 writes, 1 cas, 40 bytes_read, 16 bytes_written, 2 round_trips, 1 masked_cas, 1 cache_hits",
        ),
        (false, Get(6), ""),
        // Another client has split a header above a cached node.
        (
            true,
            Insert(1),
            "Inserted: 1 writes, 1 cas, 64 bytes_written, 1 round_trips, 1 cache_hits",
        ),
        (
            true,
            Insert(2),
            "Inserted: 1 reads, 2 writes, 1 cas, 40 bytes_read, 96 bytes_written, 2 round_trips, 1 faa, 1 cache_hits, 1 splits",
        ),
        (false, Insert(1 << 48), ""),
        (
            true,
            Get(1 << 48),
            "Found: 3 reads, 2136 bytes_read, 3 round_trips, 1 stale_reads, 1 cache_hits",
        ),
        (
            true,
            Get(2 << 48),
            "Absent: 1 reads, 32 bytes_read, 1 round_trips, 1 stale_reads, 1 cache_hits",
        ),
        (
            true,
            Insert(2 << 48),
            "Inserted: 1 reads, 2 writes, 4 cas, 32 bytes_read, 112 bytes_written, 4 round_trips, 2 cache_hits, 1 renewals, 2 renewed_words, 48 renewed_bytes",
        ),
    ] {
        step(ours, what, expected);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An exchange that expects no value inserts its new value if the key is absent. If its new value is also `None`, it
/// changes nothing.
#[test]
fn an_exchange_reports_whether_it_found_the_expected_value() {
    let world = pool(1);
    let v = world.connect(0).unwrap();
    let tree = Setup::small().open::<Key8>(&v);
    let client = tree.client(&v);
    let exchange = |before: Option<u8>, after: Option<u8>| {
        let (before, after) = (before.map(|b| [b; 8]), after.map(|b| [b; 8]));
        let (before, after) = (before.as_ref().map(|b| &b[..]), after.as_ref().map(|b| &b[..]));
        block_on(client.exchange(&Key8(7), before, after)).unwrap()
    };
    let cases = [
        ((None, None), Applied::Absent),
        ((Some(1), Some(2)), Applied::Differs),
        ((Some(1), None), Applied::Differs),
        ((None, Some(1)), Applied::Inserted),
        ((None, Some(2)), Applied::Differs),
        ((None, None), Applied::Differs),
        ((Some(2), Some(3)), Applied::Differs),
        ((Some(1), Some(3)), Applied::Replaced),
        ((Some(1), None), Applied::Differs),
        ((Some(3), None), Applied::Removed),
        ((Some(3), None), Applied::Differs),
    ];
    for (i, ((before, after), expected)) in cases.into_iter().enumerate() {
        assert_eq!(exchange(before, after), expected, "step {i}");
    }
    // A value of another length is refused before anything is posted.
    let before = v.meter().counters();
    for short in [
        block_on(client.insert(&Key8(1), &[0; 7])),
        block_on(client.update(&Key8(1), &[0; 9])),
        block_on(client.exchange(&Key8(1), None, Some(&[0; 7]))),
    ] {
        assert!(
            matches!(short, Err(IndexError::ValueLength { expected: 8, .. })),
            "{short:?}"
        );
    }
    assert_eq!(v.meter().counters(), before);
    assert_eq!(client.value_bytes(), 8);
    assert_eq!(client.verbs().client(), v.client());
}

/// If a node takes the place of its parent, one CAS adds the parent's key bytes to the node's header.
#[test]
fn a_node_moves_up_with_one_cas_of_its_header() {
    script(
        with_slack(0),
        1,
        &[
            (
                Insert(1),
                "Inserted: 1 reads, 1 writes, 1 cas, 2064 bytes_read, 64 bytes_written, 2 round_trips, 1 cache_misses",
            ),
            (
                Insert(1 << 8),
                "Inserted: 1 reads, 2 writes, 1 cas, 40 bytes_read, 96 bytes_written, 2 round_trips, 1 faa, 1 cache_hits, 1 splits",
            ),
            (
                Insert(2),
                "Inserted: 1 reads, 2 writes, 1 cas, 40 bytes_read, 96 bytes_written, 2 round_trips, 1 faa, 1 cache_hits, 1 splits",
            ),
            // The five CASes are on the leaf's slot, on the two slots of the frozen node, on the header of the child,
            // and on the slot above.
            (
                Remove(1 << 8),
                "Removed: 3 reads, 2 writes, 5 cas, 80 bytes_read, 16 bytes_written, 8 round_trips, 1 masked_cas, 1 cache_hits, 1 merges, 1 renewals, 2 renewed_words",
            ),
        ],
    );
}

/// A scan reads the nodes of its range in parallel, and no node that has only keys above the range.
#[test]
fn a_scan_reads_no_more_than_it_needs() {
    let world = pool(1);
    let v = world.connect(0).unwrap();
    let tree = with_slack(0).open::<Key8>(&v);
    let client = tree.client(&v);
    let insert = |n: u64| assert_eq!(block_on(client.insert(&Key8(n), &VALUE)), Ok(Applied::Inserted));
    // Below the root, leaves alternate with nodes of three keys.
    for byte in 0..8_u64 {
        let keys = if byte % 2 == 0 { 1 } else { 3 };
        (0..keys).for_each(|n| insert(byte << 56 | n));
    }
    let mut wrong = Vec::new();
    for (from, limit, expected) in [
        (0, 1, "1: 2 reads, 2104 bytes_read, 2 round_trips"),
        (0, 2, "2: 4 reads, 2192 bytes_read, 3 round_trips"),
        (0, 4, "4: 6 reads, 2272 bytes_read, 3 round_trips"),
        (0, 5, "5: 8 reads, 2360 bytes_read, 3 round_trips"),
        (0, 16, "16: 21 reads, 2896 bytes_read, 3 round_trips"),
        (1 << 56, 3, "3: 5 reads, 2232 bytes_read, 3 round_trips"),
        (1 << 56, 6, "6: 9 reads, 2400 bytes_read, 3 round_trips"),
    ] {
        let found = told(&v, &client, Scanned(from, limit));
        if found != expected {
            wrong.push(format!(
                "({from}, {limit}, \"{found}\")\n  expected \"{expected}\""
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Another client has removed some children of a node, and the cache does not show this. A remove that leaves only a
/// few children then reads the node again, and renews it if at most one child is left.
#[test]
fn a_remove_reads_a_nearly_empty_node_again() {
    for (others, expected) in [
        (
            2,
            "Removed: 3 reads, 2 writes, 6 cas, 136 bytes_read, 16 bytes_written, 6 round_trips, 1 masked_cas, 1 stale_reads, 1 cache_hits, 1 merges, 1 renewals, 4 renewed_words",
        ),
        (
            1,
            "Removed: 2 reads, 2 writes, 1 cas, 88 bytes_read, 16 bytes_written, 3 round_trips, 1 masked_cas, 1 stale_reads, 1 cache_hits",
        ),
    ] {
        let world = pool(1);
        let (v, w) = (world.connect(0).unwrap(), world.connect(1).unwrap());
        let setup = with_slack(0);
        let (here, there) = (setup.open::<Key8>(&v), setup.open::<Key8>(&w));
        let (here, there) = (here.client(&v), there.client(&w));
        for n in 0..4 {
            assert_eq!(block_on(here.insert(&Key8(n), &VALUE)), Ok(Applied::Inserted));
        }
        for n in 0..others {
            assert_eq!(block_on(there.remove(&Key8(n))), Ok(Applied::Removed));
        }
        assert_eq!(told(&v, &here, Remove(3)), expected, "{others} removed by others");
    }
}

/// If a new node is put above a node that was not in the cache, the new node is allocated on the memory node of that
/// node's parent.
#[test]
fn a_new_node_above_an_uncached_one_is_on_the_parents_memory_node() {
    let world = pool(3);
    let (v, w) = (world.connect(0).unwrap(), world.connect(1).unwrap());
    let setup = with_slack(0);
    let (here, there) = (setup.open::<Key8>(&v), setup.open::<Key8>(&w));
    let (here, there) = (here.client(&v), there.client(&w));
    let (a, b) = (1 << 56 | 0x50 << 16, 1 << 56 | 0x60 << 16);
    for key in [a, b] {
        assert_eq!(block_on(here.insert(&Key8(key), &VALUE)), Ok(Applied::Inserted));
    }
    assert_eq!(
        block_on(there.insert(&Key8(a | 1), &VALUE)),
        Ok(Applied::Inserted)
    );
    // The client reads the leaf. Its first chain writes a leaf and a node, but the CAS in the chain fails, because
    // another client has changed the slot. Then the client reads the node to which the slot leads now, and a second
    // chain writes and links a new node.
    assert_eq!(
        told(&v, &here, Insert(a | 1 << 8)),
        "Inserted: 2 reads, 3 writes, 2 cas, 72 bytes_read, 128 bytes_written, 4 round_trips, 1 cache_hits, 1 cache_misses, 1 splits"
    );
}

/// With flaw T-M1, a reader overwrites a leaf's link depth if it differs from the depth of the reader's path.
#[test]
fn a_flawed_reader_repairs_the_link_depth_that_it_finds() {
    let slack = with_slack(1);
    let flaws = ArtFlaws {
        repairs_unchecked: true,
        ..ArtFlaws::default()
    };
    // A client without a cache reads the leaf by a slot that it has just read.
    let art = ArtOptions {
        flaws,
        cache_bytes: 0,
        ..slack.art
    };
    script(
        Setup { art, ..slack },
        1,
        &[
            (
                Insert(0),
                "Inserted: 1 reads, 1 writes, 1 cas, 2064 bytes_read, 64 bytes_written, 2 round_trips, 1 cache_misses",
            ),
            (
                Get(1 << 48),
                "Absent: 2 reads, 1 cas, 2104 bytes_read, 3 round_trips, 1 cache_misses",
            ),
            (
                Get(1 << 48),
                "Absent: 2 reads, 2104 bytes_read, 2 round_trips, 1 cache_misses",
            ),
        ],
    );
}

/// T-M6: a merge freezes the slots that have a child or had one, but not the empty slots.
#[test]
fn a_flawed_merge_freezes_no_empty_slots() {
    let small = Setup::small();
    let costs = [false, true].map(|merge_leaves_empties| {
        let flaws = ArtFlaws {
            merge_leaves_empties,
            ..ArtFlaws::default()
        };
        let types = NodeTypes::new(&[8, 256]).unwrap();
        let art = ArtOptions {
            flaws,
            types,
            ..small.art
        };
        let world = pool(1);
        let v = world.connect(0).unwrap();
        let tree = Setup { art, ..small }.open::<Key8>(&v);
        let client = tree.client(&v);
        for n in 0..2 {
            assert_eq!(block_on(client.insert(&Key8(n), &VALUE)), Ok(Applied::Inserted));
        }
        let before = v.meter().counters().cas;
        assert_eq!(block_on(client.remove(&Key8(1))), Ok(Applied::Removed));
        v.meter().counters().cas - before
    });
    // The CASes of each merge are on the leaf's slot, on each frozen slot of the node, and on the slot that links the
    // node.
    assert_eq!(costs, [1 + 8 + 1, 1 + 2 + 1]);
}
