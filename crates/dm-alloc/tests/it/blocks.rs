//! Allocation over loopback: disjoint blocks, preferred memory nodes, exhaustion, reuse.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;

use dm_alloc::{AllocError, Allocator, Class};
use dm_loopback::{Endpoint, Loopback, block_on, run_all};
use dm_sync::{Fingerprint, thread};
use dm_verbs::{NodeId, RemotePtr, Verbs};
use proptest::prelude::*;

const CHUNK: u64 = 64 << 10;

fn world(nodes: u16, host_bytes: u64) -> Loopback {
    Loopback::builder()
        .nodes(nodes)
        .host_bytes(host_bytes)
        .delays(2)
        .build()
        .unwrap()
}

fn alloc(v: &Endpoint, a: &Allocator, size: u32, near: Option<RemotePtr>) -> Result<RemotePtr, AllocError> {
    block_on(a.alloc(v, size, near))
}

/// Panics if any two blocks overlap, or one is unaligned or in the reserved page.
fn assert_disjoint(blocks: impl IntoIterator<Item = (RemotePtr, u32)>) -> usize {
    let mut blocks: Vec<_> = blocks.into_iter().collect();
    blocks.sort();
    for &(block, _) in &blocks {
        assert!(block.offset() % 64 == 0 && block.offset() >= 4096, "{block}");
    }
    for pair in blocks.windows(2) {
        let ((a, size), (b, _)) = (pair[0], pair[1]);
        assert!(
            a.node() != b.node() || a.offset() + u64::from(size) <= b.offset(),
            "{a}+{size} overlaps {b}"
        );
    }
    blocks.len()
}

#[test]
fn no_block_lies_out_of_reach() {
    let world = world(2, 1 << 20);
    let v = world.connect(0).unwrap();
    let a = Allocator::new(2, 0).chunk_bytes(CHUNK).reaching(5 * CHUNK);
    let full = loop {
        match alloc(&v, &a, 1024, None) {
            Ok(block) => assert!(block.offset() + 1024 <= 5 * CHUNK, "{block}"),
            Err(full) => break full,
        }
    };
    assert!(
        matches!(full, AllocError::Exhausted { nodes_tried: 2, .. }),
        "{full}"
    );
    // Each memory node has handed out one chunk that ends beyond the limit, and gets no further request.
    assert!(alloc(&v, &a, 1024, None).is_err());
    let stats = a.stats();
    assert_eq!(stats.wasted_bytes, 2 * CHUNK);
    assert_eq!(
        stats.in_use_bytes as u64,
        stats.fetched_bytes - stats.wasted_bytes
    );
}

#[test]
fn a_chunk_that_ends_where_blocks_may_end_is_used() {
    let world = world(1, 1 << 20);
    let v = world.connect(0).unwrap();
    // Two chunks fit after the reserved page.
    let a = Allocator::new(1, 0).chunk_bytes(CHUNK).reaching(4096 + 2 * CHUNK);
    while alloc(&v, &a, 1024, None).is_ok() {}
    assert_eq!(a.stats().in_use_bytes as u64, 2 * CHUNK);
}

#[test]
fn threads_and_coroutines_of_two_compute_nodes_never_share_a_byte() {
    let world = world(3, 8 << 20);
    let shared = [0, 1].map(|cn| Allocator::new(3, cn).chunk_bytes(CHUNK));
    let blocks = thread::scope(|scope| {
        let threads: Vec<_> = (0..4u16)
            .map(|t| {
                let (world, a) = (&world, &shared[usize::from(t % 2)]);
                scope.spawn(move || {
                    let clients: Vec<_> = (0..4).map(|_| world.connect(t % 2).unwrap()).collect();
                    let work = clients.iter().map(|v| async move {
                        let mut mine = Vec::new();
                        for i in 0..100 {
                            let size = [1024, 64, 1131, 40][i % 4];
                            mine.push((a.alloc(v, size, None).await.unwrap(), size));
                        }
                        mine
                    });
                    run_all(work).concat()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(assert_disjoint(blocks), 1600);
    // The 800 blocks are of three classes. Concurrent requests shared a chunk, so each class has one open chunk per
    // memory node.
    for a in &shared {
        let stats = a.stats();
        let used: u64 = 200 * (1024 + 64 + 1152 + 64);
        assert_eq!((stats.in_use_bytes, stats.free_bytes), (used as i64, 0));
        assert!(stats.fetched_bytes <= used + 9 * CHUNK, "{stats:?}");
    }
}

#[test]
fn near_is_a_wish_and_round_robin_balances() {
    let world = world(3, 256 << 10);
    let v = world.connect(0).unwrap();
    let a = Allocator::new(3, 1).chunk_bytes(CHUNK);
    let nodes: Vec<u16> = (0..6)
        .map(|_| alloc(&v, &a, 1024, None).unwrap().node().0)
        .collect();
    assert_eq!(nodes, [1, 2, 0, 1, 2, 0], "starts with the compute node's number");
    let nowhere = RemotePtr::new(NodeId(3), 1 << 16).unwrap();
    assert_eq!(
        alloc(&v, &a, 1024, Some(nowhere)).unwrap().node().0,
        1,
        "no such node"
    );
    let near = RemotePtr::new(NodeId(2), 1 << 16).unwrap();
    let mut on_wished = 0;
    while alloc(&v, &a, 4096, Some(near)).unwrap().node() == near.node() {
        on_wished += 1;
    }
    // The node has 256 KiB. A page of 4 KiB is reserved, and one chunk of 64 KiB has the round robin's two blocks of
    // 1 KiB. The rest has room for 47 blocks of 4 KiB.
    assert_eq!(on_wished, 47, "the whole node was used before another was taken");
}

#[test]
fn all_full_is_an_error_and_a_freed_block_goes_to_its_own_size_only() {
    let world = world(2, 128 << 10);
    let v = world.connect(0).unwrap();
    let a = Allocator::new(2, 0).chunk_bytes(CHUNK);
    let mut blocks = Vec::new();
    let error = loop {
        match alloc(&v, &a, 1000, None) {
            Ok(block) => blocks.push((block, 1024)),
            Err(e) => break e,
        }
    };
    assert_eq!(
        error,
        AllocError::Exhausted {
            wanted: 1000,
            nodes_tried: 2
        }
    );
    // Each of the two memory nodes has 128 KiB less a page. Smaller chunks are fetched when whole ones no longer fit.
    assert_eq!(assert_disjoint(blocks.iter().copied()), 2 * 124);
    assert_eq!(
        alloc(&v, &a, 64, None),
        Err(AllocError::Exhausted {
            wanted: 64,
            nodes_tried: 2
        })
    );

    let (block, _) = blocks[17];
    a.free_unpublished(block, 1000);
    assert_eq!(a.stats().free_bytes, 1024);
    assert_eq!(
        alloc(&v, &a, 64, None),
        Err(AllocError::Exhausted {
            wanted: 64,
            nodes_tried: 2
        })
    );
    assert_eq!(
        alloc(&v, &a, 1024, None),
        Ok(block),
        "same size after rounding up to lines"
    );
}

#[test]
fn sizes_and_worlds_that_cannot_be_are_refused() {
    let world = world(1, 1 << 20);
    let v = world.connect(0).unwrap();
    let a = Allocator::new(1, 0).chunk_bytes(CHUNK);
    let bad = |wanted| Err(AllocError::BadSize { wanted, most: CHUNK });
    assert_eq!(
        (alloc(&v, &a, 0, None), alloc(&v, &a, 65_537, None)),
        (bad(0), bad(65_537))
    );
    assert!(alloc(&v, &a, 65_536, None).is_ok());
    assert_eq!(
        alloc(&v, &Allocator::new(0, 0), 64, None),
        Err(AllocError::NoMemoryNodes)
    );
}

#[test]
fn a_node_that_cannot_be_asked_is_passed_over() {
    let world = world(2, 1 << 20);
    let v = world.connect(0).unwrap();
    let a = Allocator::new(2, 0).chunk_bytes(CHUNK);
    world.cut(NodeId(0), dm_loopback::Trouble::Unreachable);
    assert_eq!(alloc(&v, &a, 64, None).unwrap().node(), NodeId(1));
    world.cut(NodeId(1), dm_loopback::Trouble::Unreachable);
    // The allocator still has a chunk of node 1. It needs the control plane of node 1 only for a new chunk.
    assert_eq!(alloc(&v, &a, 64, None).unwrap().node(), NodeId(1));
    assert!(matches!(
        alloc(&v, &a, CHUNK as u32, None),
        Err(AllocError::Control(_))
    ));
}

#[test]
fn a_dropped_request_lets_the_others_go_on() {
    let world = world(1, 1 << 20);
    let (v, w) = (world.connect(0).unwrap(), world.connect(0).unwrap());
    let a = Allocator::new(1, 0).chunk_bytes(CHUNK);
    let mut cx = core::task::Context::from_waker(core::task::Waker::noop());
    for polls in 0..4 {
        let mut first = Box::pin(a.alloc(&v, 1 << 15, None));
        let mut second = Box::pin(a.alloc(&w, 1 << 15, None));
        for _ in 0..polls {
            if first.as_mut().poll(&mut cx).is_ready() {
                break;
            }
        }
        let _ = second.as_mut().poll(&mut cx).is_ready();
        drop(first);
        drop(second);
    }
    assert!(alloc(&w, &a, 1 << 15, None).is_ok());
}

/// Without reclamation a retired block is lost. It is neither in use nor free, and its hold takes no memory.
#[test]
fn without_reclamation_a_retired_block_is_not_in_use() {
    let class = Class { bytes: 64, kind: 3 };
    let world = world(1, 1 << 20);
    let v = world.connect(0).unwrap();
    let a = Allocator::new(1, 0).chunk_bytes(CHUNK);
    let kept = block_on(a.take(&v, class, None)).unwrap();
    let counts = || {
        let stats = a.stats();
        (stats.in_use_bytes, stats.free_bytes, stats.limbo_bytes)
    };
    let mut bytes = Vec::new();
    for _ in 0..100 {
        let [retired, held] = [(); 2].map(|()| block_on(a.take(&v, class, None)).unwrap());
        assert_eq!(counts(), (192, 0, 0));
        a.retire(retired.after(1), class);
        assert_eq!(counts(), (128, 0, 0));
        let hold = a.hold(held.at);
        a.retire_held(hold, held.after(1), class);
        assert_eq!(counts(), (64, 0, 0));
        bytes.push(a.local_bytes());
    }
    assert!(bytes.iter().all(|b| *b == bytes[0]), "{bytes:?}");
    // A block on a memory node that the pool does not have changes nothing.
    let nowhere = RemotePtr::new(NodeId(9), kept.at.offset()).unwrap();
    a.retire(dm_alloc::Block { at: nowhere, ..kept }, class);
    assert_eq!(counts(), (64, 0, 0));
}

#[test]
fn fresh_blocks_are_zero() {
    let world = world(1, 1 << 20);
    let v = world.connect(0).unwrap();
    let a = Allocator::new(1, 0);
    let block = alloc(&v, &a, 1024, None);
    assert!(
        block.is_ok(),
        "a whole chunk of 8 MB does not fit; what is left does"
    );
    assert!(
        block_on(v.read(block.unwrap(), 1024))
            .unwrap()
            .iter()
            .all(|&b| b == 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Blocks in use are disjoint, and a block is reused only for its size, with any mix of sizes, preferred memory
    /// nodes and frees.
    #[test]
    fn blocks_in_use_never_overlap(
        ops in proptest::collection::vec((1u32..3000, 0u16..4, proptest::bool::weighted(0.4)), 1..200),
    ) {
        let world = world(2, 4 << 20);
        let v = world.connect(0).unwrap();
        let a = Allocator::new(2, 0).chunk_bytes(16 << 10);
        let mut used: Vec<(RemotePtr, u32)> = Vec::new();
        let mut class_of: HashMap<RemotePtr, u32> = HashMap::new();
        for (size, node, free) in ops {
            if free && !used.is_empty() {
                let (block, size) = used.swap_remove(size as usize % used.len());
                a.free_unpublished(block, size);
            } else {
                let near = (node < 2).then(|| RemotePtr::new(NodeId(node), 4096).unwrap());
                let before = a.fingerprint();
                let block = alloc(&v, &a, size, near).unwrap();
                prop_assert_ne!(a.fingerprint(), before);
                let class = size.next_multiple_of(64);
                prop_assert_eq!(*class_of.entry(block).or_insert(class), class, "type-stable");
                used.push((block, size));
            }
        }
        assert_disjoint(used);
    }
}
