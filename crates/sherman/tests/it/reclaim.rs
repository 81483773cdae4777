//! Tests that every compute node reuses the memory of dead nodes while others read, and that no compute node waits for
//! ever for a silent one.

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use std::rc::Rc;
use std::sync::Barrier;

use dm_index::{Applied, Key8, RangeIndex, Scan};
use dm_loopback::{Loopback, block_on};
use dm_sim::{CostModel, RunEnd, Sim};
use dm_testkit::{AnyEndpoint, connect};
use dm_verbs::{Env, Nanos};
use sherman::{NodeSize, Options, ReclaimOptions, Sherman};

/// Bytes of a chunk for nodes.
const CHUNK: u64 = 256 << 10;

fn small() -> Options {
    Options {
        node: NodeSize::Span(8),
        // Each insertion and removal of all keys takes about half of a chunk on each of two compute nodes. So without
        // reuse, three repetitions would need more chunks.
        chunk_bytes: CHUNK,
        reclaim: ReclaimOptions {
            period: Nanos::from_micros(20),
            operations: 8,
            ..ReclaimOptions::new()
        },
        ..Options::new(8)
    }
}

fn key(i: u64) -> Key8 {
    // The mapping is a bijection, so that neighbours are inserted and removed in scattered order.
    Key8(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

type Trees = [Sherman<Key8>];

fn live(trees: &Trees) -> i64 {
    trees.iter().map(Sherman::allocated_bytes).sum()
}

fn fetched(trees: &Trees) -> u64 {
    trees.iter().map(|t| t.alloc_stats().fetched_bytes).sum()
}

fn limbo(trees: &Trees) -> u64 {
    trees.iter().map(|t| t.alloc_stats().limbo_bytes).sum()
}

fn open(pool: &Loopback, compute_nodes: u16, options: &Options) -> Vec<Sherman<Key8>> {
    let tree = |cn| {
        let v = connect(pool, cn);
        block_on(Sherman::create_or_open(&v, options)).expect("a tree")
    };
    (0..compute_nodes).map(tree).collect()
}

/// Collects four times on every compute node. After that, no block is in limbo.
fn settle(pool: &Loopback, trees: &Trees) {
    for _ in 0..4 {
        for (cn, tree) in (0..).zip(trees) {
            let v = connect(pool, cn);
            block_on(tree.collect(&v)).expect("a round");
        }
    }
}

#[test]
fn later_rounds_of_inserts_and_removes_need_no_new_chunk() {
    for nodes in 1..=3 {
        in_and_out(nodes);
    }
}

/// Inserts and removes all keys several times, over this many memory nodes.
fn in_and_out(nodes: u16) {
    const THREADS: u64 = 4;
    const KEYS: u64 = 1_500;
    let pool = Loopback::builder()
        .nodes(nodes)
        .host_bytes(64 << 20)
        .build()
        .expect("memory");
    let trees = open(&pool, 2, &small());
    // The empty tree has one leaf.
    let v = connect(&pool, 0);
    block_on(async {
        let client = trees[0].client(&v);
        client.insert(&key(0), &[0; 8]).await.expect("room");
        client.remove(&key(0)).await.expect("no trouble");
    });
    let empty = live(&trees);
    let barrier = Barrier::new(THREADS as usize);
    let taken = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let (pool, trees, barrier) = (&pool, &trees[..], &barrier);
                scope.spawn(move || {
                    let cn = (t % 2) as u16;
                    let mut taken = Vec::new();
                    for round in 0..3u64 {
                        let v = connect(pool, cn);
                        let client = trees[usize::from(cn)].client(&v);
                        block_on(async {
                            for i in 0..KEYS {
                                let done = client.insert(&key(i * THREADS + t), &round.to_le_bytes()).await;
                                assert_eq!(done, Ok(Applied::Inserted));
                            }
                            let mut value = Vec::new();
                            for i in 0..KEYS {
                                let key = key(i * THREADS + t);
                                assert_eq!(client.get(&key, &mut value).await, Ok(true));
                                assert_eq!(value, round.to_le_bytes());
                                assert_eq!(client.remove(&key).await, Ok(Applied::Removed));
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
    check(empty, &taken);
}

/// Checks the live, limbo and fetched bytes after each repetition. An empty tree has `empty` live bytes.
fn check(empty: i64, taken: &[(i64, u64, u64)]) {
    for (live, limbo, fetched) in taken {
        assert_eq!((*live, *limbo), (empty, 0), "{taken:?}");
        // In any round, a compute node may need its first chunk for magazines on a memory node. Such a chunk has a
        // quarter of the size.
        assert!(
            *fetched < taken[1].2 + CHUNK,
            "a later round took a new chunk: {taken:?}"
        );
    }
    // In the second round, a compute node may take a chunk for its first magazines, on each memory node.
    assert!(taken[1].2 <= taken[0].2 + CHUNK, "{taken:?}");
}

/// Runs `client` on `clients` threads of each of two compute nodes, concurrently.
fn all<Fut: Future<Output = ()> + 'static>(
    sim: &Sim,
    trees: &Rc<Vec<Sherman<Key8>>>,
    clients: u16,
    client: impl Fn(Rc<Vec<Sherman<Key8>>>, AnyEndpoint, u64) -> Fut,
) {
    for number in 0..2 * clients {
        let v = AnyEndpoint::Sim(sim.endpoint(number % 2, number / 2));
        sim.spawn_task(client(Rc::clone(trees), v, u64::from(number)));
    }
    assert_eq!(sim.run(), RunEnd::Finished);
}

fn simulated(options: Options, memory_nodes: u16, seed: u64) -> (Sim, Rc<Vec<Sherman<Key8>>>) {
    let sim = Sim::builder(CostModel::cx5_ib())
        .compute_nodes(2)
        .memory_nodes(memory_nodes)
        .memory_bytes(16 << 20)
        .seed(seed)
        .build()
        .expect("a testbed");
    let opened = Rc::new(std::cell::RefCell::new(Vec::new()));
    for cn in 0..2 {
        let (v, opened) = (AnyEndpoint::Sim(sim.endpoint(cn, 0)), Rc::clone(&opened));
        sim.spawn_task(async move {
            let tree = Sherman::<Key8>::create_or_open(&v, &options)
                .await
                .expect("a tree");
            opened.borrow_mut().push(tree);
        });
        assert_eq!(sim.run(), RunEnd::Finished);
    }
    let trees = Rc::new(opened.take());
    (sim, trees)
}

#[test]
fn later_rounds_of_simulated_clients_need_no_new_chunk() {
    const CLIENTS: u16 = 8;
    const KEYS: u64 = 300;
    for (seed, members, nodes) in [(0, 63, 1), (1, 63, 1), (2, 63, 2), (3, 63, 3), (1, 0, 1)] {
        let (sim, trees) = simulated(Options { members, ..small() }, nodes, seed);
        all(&sim, &trees, 1, |trees, v, number| async move {
            let client = trees[v.compute_node() as usize].client(&v);
            if number == 0 {
                client.insert(&key(0), &[0; 8]).await.expect("room");
                client.remove(&key(0)).await.expect("no trouble");
            }
        });
        let empty = live(&trees);
        let mut taken = Vec::new();
        for round in 0..3u64 {
            all(&sim, &trees, CLIENTS, move |trees, v, number| async move {
                let client = trees[v.compute_node() as usize].client(&v);
                let mine = |i: u64| key(i * 2 * u64::from(CLIENTS) + number);
                for i in 0..KEYS {
                    let done = client.insert(&mine(i), &round.to_le_bytes()).await;
                    assert_eq!(done, Ok(Applied::Inserted));
                }
                let mut scan = Scan::new();
                client.scan(&Key8(0), 500, &mut scan).await.expect("no trouble");
                assert!(scan.keys().is_sorted_by(|a, b| a < b));
                for i in 0..KEYS {
                    assert_eq!(client.remove(&mine(i)).await, Ok(Applied::Removed));
                }
            });
            for _ in 0..4 {
                all(&sim, &trees, 1, |trees, v, _| async move {
                    trees[v.compute_node() as usize]
                        .collect(&v)
                        .await
                        .expect("a round");
                });
            }
            taken.push((live(&trees), limbo(&trees), fetched(&trees)));
        }
        if members > 0 {
            check(empty, &taken);
        } else {
            // A block that is lost is not in use either.
            assert!(
                live(&trees) == empty && taken[2].2 > taken[0].2,
                "memory must not be reclaimed here: {taken:?}"
            );
        }
    }
}

/// A compute node stops in the middle of an operation. Blocks that the other compute node retires stay in limbo until
/// the lease of the silent compute node has ended and it is fenced. Then the blocks become free.
#[test]
fn a_silent_compute_node_is_fenced_and_its_pinned_blocks_are_freed() {
    let (sim, trees) = simulated(small(), 1, 7);
    let lease = Nanos(10_000_000);
    let [silent, other] = [1, 0].map(|cn| AnyEndpoint::Sim(sim.endpoint(cn, 0)));
    let tree = Rc::clone(&trees);
    sim.spawn_task(async move {
        let client = tree[1].client(&silent);
        client.insert(&key(0), &[1; 8]).await.expect("room");
        // This operation was begun and is not polled any more. So its seat keeps its epoch, and its compute node
        // announces nothing.
        let mut value = Vec::new();
        let key = key(0);
        let mut begun = pin!(client.get(&key, &mut value));
        poll_fn(|cx| {
            assert!(begun.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        core::future::pending().await
    });
    sim.run_for(Nanos::from_millis(1));
    let begun = sim.now();
    let tree = Rc::clone(&trees);
    let worked = Rc::new(std::cell::Cell::new((Nanos(0), 0, Nanos(0))));
    let out = Rc::clone(&worked);
    sim.spawn_task(async move {
        let client = tree[0].client(&other);
        for i in 1..200 {
            client.insert(&key(i), &[1; 8]).await.expect("room");
        }
        for i in 0..200 {
            client.remove(&key(i)).await.expect("no trouble");
        }
        for _ in 0..20 {
            tree[0].collect(&other).await.expect("a round");
        }
        let (then, pinned) = (other.now(), tree[0].alloc_stats().limbo_bytes);
        while tree[0].alloc_stats().limbo_bytes > 0 {
            other.charge(Nanos::from_micros(100)).await;
            tree[0].collect(&other).await.expect("a round");
        }
        out.set((then, pinned, other.now()));
    });
    sim.run_for(Nanos::from_millis(200));
    let (then, pinned, end) = worked.get();
    assert!(
        then - begun < lease && pinned > 0,
        "{pinned} B wait for the silent compute node"
    );
    let took = end - begun;
    assert!(took >= lease && took < Nanos(3 * lease.0), "freed after {took:?}");
}
