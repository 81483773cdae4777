//! Tests that every compute node reuses the memory of removed leaves and of replaced nodes, while others read.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Barrier;

use dm_loopback::{Loopback, block_on};
use dm_sim::{CostModel, RunEnd, Sim};
use dm_testkit::{AnyEndpoint, connect};
use dm_verbs::{Env, Nanos};
use smart::{Applied, Key8, NodeTypes, Options, PrefixIndex, RangeIndex, ReclaimOptions, Scan, Smart};

/// Returns options with small nodes and chunks. `chunk_bytes` is the sum over all memory nodes.
fn small(chunk_bytes: u64, memory_nodes: u16) -> Options {
    let chunk_bytes = (chunk_bytes / u64::from(memory_nodes)).next_multiple_of(4096);
    Options {
        types: NodeTypes::new(&[2, 4, 8, 256]).expect("ascending"),
        chunk_bytes,
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 8,
            ..ReclaimOptions::new()
        },
        turn: Nanos::from_micros(100),
        ..Options::new(8)
    }
}

/// Returns key `i` of one compute node. The keys of the two compute nodes differ in the first byte.
fn key(compute_node: u64, i: u64) -> Key8 {
    // The mapping is a bijection, so that neighbours are inserted and removed in scattered order.
    Key8(compute_node << 56 | i.wrapping_mul(0x9E_3779_B97F_4A7D) & ((1 << 56) - 1))
}

type Trees = [Smart<Key8>];

fn live(trees: &Trees) -> i64 {
    trees.iter().map(Smart::allocated_bytes).sum()
}

fn fetched(trees: &Trees) -> u64 {
    trees.iter().map(|t| t.alloc_stats().fetched_bytes).sum()
}

fn limbo(trees: &Trees) -> u64 {
    trees.iter().map(|t| t.alloc_stats().limbo_bytes).sum()
}

/// Collects five times on every compute node. After that, no block is in limbo.
fn settle(pool: &Loopback, trees: &Trees) {
    for _ in 0..5 {
        for (cn, tree) in (0..).zip(trees) {
            let v = connect(pool, cn);
            block_on(tree.collect(&v)).expect("a round");
        }
    }
}

/// Checks the live, limbo and fetched bytes after each repetition. An empty tree has `empty` live bytes.
#[track_caller]
fn check(empty: i64, taken: &[(i64, u64, u64)]) {
    for (live, limbo, fetched) in taken {
        assert_eq!((*live, *limbo), (empty, 0), "{empty} when empty: {taken:?}");
        assert!(
            *fetched <= taken[1].2,
            "a later round took a new chunk: {taken:?}"
        );
    }
    // In the second round, a compute node may take a chunk for its first magazines, on each memory node.
    assert!(taken[1].2 <= taken[0].2 + (256 << 10), "{taken:?}");
}

/// Threads that the machine suspends delay the reuse of retired blocks, and of blocks on their way to a depot. So later
/// repetitions need a few more chunks. Without any reuse, three repetitions would need three times as many chunks as
/// one.
#[test]
fn later_rounds_of_threads_need_few_new_chunks() {
    const THREADS: u64 = 4;
    const KEYS: u64 = 1_500;
    for memory_nodes in 1..=3 {
        let pool = Loopback::builder().nodes(memory_nodes).host_bytes(64 << 20);
        everything_in_and_out(&pool.build().expect("memory"), THREADS, KEYS);
    }
}

fn everything_in_and_out(pool: &Loopback, threads: u64, keys: u64) {
    let trees: &Trees = &(0..1)
        .map(|cn| {
            let v = connect(pool, cn);
            block_on(Smart::create_or_open(&v, &small(64 << 10, 1))).expect("a tree")
        })
        .collect::<Vec<_>>();
    let empty = live(trees);
    let barrier = Barrier::new(threads as usize);
    let taken = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|t| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let cn = 0;
                    let mut taken = Vec::new();
                    for round in 0..3u64 {
                        let v = connect(pool, cn as u16);
                        let client = trees[cn as usize].client(&v);
                        block_on(async {
                            let mine = |i: u64| key(cn, i * threads + t);
                            for i in 0..keys {
                                let done = client.insert(&mine(i), &round.to_le_bytes()).await;
                                assert_eq!(done, Ok(Applied::Inserted));
                            }
                            // The threads wait for each other, so that the maximum number of live bytes is the same in
                            // each repetition.
                            barrier.wait();
                            let mut value = Vec::new();
                            for i in 0..keys {
                                let key = mine(i);
                                assert_eq!(client.get(&key, &mut value).await, Ok(true));
                                assert_eq!(value, round.to_le_bytes());
                                assert_eq!(client.remove(&key).await, Ok(Applied::Removed));
                                assert_eq!(client.get(&key, &mut value).await, Ok(false));
                            }
                        });
                        drop(client);
                        barrier.wait();
                        if t == 0 {
                            settle(pool, trees);
                            taken.push((live(trees), limbo(trees), fetched(trees)));
                        }
                        barrier.wait();
                    }
                    taken
                })
            })
            .collect();
        let mut taken: Vec<_> = threads.into_iter().map(|t| t.join().expect("no panic")).collect();
        taken.swap_remove(0)
    });
    let back = taken.iter().all(|(live, limbo, _)| (*live, *limbo) == (empty, 0));
    let fetched = [0, 2].map(|round: usize| taken[round].2);
    assert!(
        back && fetched[1] < 2 * fetched[0],
        "{empty} when empty: {taken:?}"
    );
}

/// Runs `client` on `clients` threads of each of two compute nodes, concurrently.
fn all<Fut: Future<Output = ()> + 'static>(
    sim: &Sim,
    trees: &Rc<Vec<Smart<Key8>>>,
    clients: u16,
    client: impl Fn(Rc<Vec<Smart<Key8>>>, AnyEndpoint, u64) -> Fut,
) {
    for number in 0..2 * clients {
        let v = AnyEndpoint::Sim(sim.endpoint(number % 2, number / 2));
        sim.spawn_task(client(Rc::clone(trees), v, u64::from(number)));
    }
    assert_eq!(sim.run(), RunEnd::Finished);
}

#[test]
fn later_rounds_of_simulated_clients_need_no_new_chunk() {
    const CLIENTS: u16 = 6;
    const KEYS: u64 = 200;
    use PrefixIndex::{Hash, Radix};
    let runs = [
        (1, 63, 1, Radix),
        (2, 63, 2, Radix),
        (3, 63, 3, Radix),
        (1, 0, 1, Radix),
        (2, 63, 2, Hash),
    ];
    for (seed, members, memory_nodes, cache_index) in runs {
        let sim = Sim::builder(CostModel::cx6_roce())
            .compute_nodes(2)
            .memory_nodes(memory_nodes)
            .memory_bytes(32 << 20)
            .seed(seed)
            .build()
            .expect("a testbed");
        let opened = Rc::new(RefCell::new(Vec::new()));
        for cn in 0..2 {
            let (v, opened) = (AnyEndpoint::Sim(sim.endpoint(cn, 0)), Rc::clone(&opened));
            sim.spawn_task(async move {
                // Without reuse, three repetitions need more chunks of this size than one. One repetition leaves room
                // in its chunks for blocks that are not free yet.
                let options = Options {
                    members,
                    cache_index,
                    ..small(240 << 10, memory_nodes)
                };
                let tree = Smart::<Key8>::create_or_open(&v, &options).await;
                opened.borrow_mut().push(tree.expect("a tree"));
            });
            assert_eq!(sim.run(), RunEnd::Finished);
        }
        let trees = Rc::new(opened.take());
        let empty = live(&trees);
        let mut taken = Vec::new();
        for round in 0..3u64 {
            all(&sim, &trees, CLIENTS, move |trees, v, number| async move {
                let cn = u64::from(v.compute_node());
                let client = trees[cn as usize].client(&v);
                let mine = |i: u64| key(cn, i * 2 * u64::from(CLIENTS) + number);
                for i in 0..KEYS {
                    let done = client.insert(&mine(i), &round.to_le_bytes()).await;
                    assert_eq!(done, Ok(Applied::Inserted));
                }
                let mut scan = Scan::new();
                client.scan(&Key8(0), 300, &mut scan).await.expect("no trouble");
                assert!(scan.keys().is_sorted_by(|a, b| a < b));
            });
            // The removes begin after all inserts, so that the maximum number of live bytes is the same in each
            // repetition.
            all(&sim, &trees, CLIENTS, move |trees, v, number| async move {
                let cn = u64::from(v.compute_node());
                let client = trees[cn as usize].client(&v);
                let mine = |i: u64| key(cn, i * 2 * u64::from(CLIENTS) + number);
                let mut value = Vec::new();
                for i in 0..KEYS {
                    assert_eq!(client.remove(&mine(i)).await, Ok(Applied::Removed));
                    // The other compute node's keys are read through an outdated cache.
                    let other = key(1 - cn, i * 2 * u64::from(CLIENTS) + (number ^ 1));
                    if client.get(&other, &mut value).await == Ok(true) {
                        assert_eq!(value, round.to_le_bytes());
                    }
                }
                // During this remove, the CAS of the client's last removal completes. So the client retires that leaf
                // when it is dropped.
                assert_eq!(client.remove(&mine(0)).await, Ok(Applied::Absent));
            });
            for _ in 0..5 {
                all(&sim, &trees, 1, |trees, v, _| async move {
                    let tree = &trees[v.compute_node() as usize];
                    tree.collect(&v).await.expect("a round");
                });
            }
            taken.push((live(&trees), limbo(&trees), fetched(&trees)));
        }
        if members > 0 {
            check(empty, &taken);
        } else {
            assert!(
                live(&trees) > 2 * empty && taken[2].2 > taken[0].2,
                "memory must not be reclaimed here: {taken:?}"
            );
        }
    }
}

#[test]
fn a_client_dropped_midway_stays_announced_until_its_connection_is_used_again() {
    let pool = Loopback::builder().nodes(1).delays(4).build().expect("memory");
    let [v, w] = [0, 1].map(|_| connect(&pool, 0));
    let options = Options {
        // Collections run only when the test calls `collect`.
        reclaim: ReclaimOptions {
            period: Nanos(u64::MAX),
            ..ReclaimOptions::new()
        },
        ..small(64 << 10, 1)
    };
    let tree = block_on(Smart::<Key8>::create_or_open(&w, &options)).expect("a tree");
    let rounds = || {
        for _ in 0..5 {
            block_on(tree.collect(&w)).expect("a round");
        }
        tree.alloc_stats().limbo_bytes
    };
    let client = tree.client(&v);
    let midway = (0..20).any(|i| {
        block_on(client.insert(&key(0, 2 * i), b"complete")).expect("no trouble");
        let (next, value) = (key(0, 2 * i + 1), b"midway..");
        let mut cut = std::pin::pin!(client.insert(&next, value));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        cut.as_mut().poll(&mut cx).is_pending()
    });
    assert!(midway, "every insert ended at its first poll");
    drop(client);
    let other = tree.client(&w);
    for i in 100..110 {
        assert_eq!(
            block_on(other.insert(&key(0, i), b"soon out")),
            Ok(Applied::Inserted)
        );
    }
    for i in 100..110 {
        assert_eq!(block_on(other.remove(&key(0, i))), Ok(Applied::Removed));
    }
    assert!(rounds() > 0, "its operation still counts as one that runs");
    let mut value = Vec::new();
    block_on(tree.client(&v).get(&key(0, 0), &mut value)).expect("no trouble");
    assert_eq!(rounds(), 0);
}

/// Two compute nodes update the same keys in turn. Each update replaces a leaf, and each leaf is used again.
#[test]
fn replaced_leaves_are_used_again() {
    const KEYS: u64 = 200;
    let pool = Loopback::builder().nodes(2).host_bytes(64 << 20);
    let pool = pool.build().expect("memory");
    let vs = [0, 1].map(|cn| connect(&pool, cn));
    let options = crate::common::out_of_place(small(64 << 10, 2));
    let trees: &Trees = &vs
        .each_ref()
        .map(|v| block_on(Smart::create_or_open(v, &options)).expect("a tree"));
    let clients = [trees[0].client(&vs[0]), trees[1].client(&vs[1])];
    for i in 0..KEYS {
        let inserted = block_on(clients[0].insert(&key(0, i), &[0; 8]));
        assert_eq!(inserted, Ok(Applied::Inserted));
    }
    let before = live(trees);
    let mut taken = Vec::new();
    let mut value = Vec::new();
    for round in 1..20u64 {
        for i in 0..KEYS {
            let (writer, reader) = (&clients[(round % 2) as usize], &clients[(i % 2) as usize]);
            let updated = block_on(writer.update(&key(0, i), &round.to_le_bytes()));
            assert_eq!(updated, Ok(Applied::Replaced));
            assert_eq!(block_on(reader.get(&key(0, i), &mut value)), Ok(true));
            assert_eq!(value, round.to_le_bytes());
        }
        settle(&pool, trees);
        assert_eq!((live(trees), limbo(trees)), (before, 0));
        taken.push(fetched(trees));
    }
    // On a busy machine, all leaves of a round may wait to be used again at once. They fit into one chunk of 32 KiB for
    // each compute node on each memory node. If no leaf were used again, the rounds would take 230 KB more than the
    // first one.
    assert!(
        taken[18] <= taken[0] + (4 << 15),
        "later rounds took new chunks: {taken:?}"
    );
    let report = block_on(trees[0].check(&vs[0])).expect("no faults");
    assert!(report.is_clean() && report.keys == KEYS, "{report}");
}
