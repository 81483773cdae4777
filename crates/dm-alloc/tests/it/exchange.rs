//! Free blocks pass from compute nodes with too many to those that need some. Each block gets to only one of them, and
//! none is lost unless the effect of a request is unknown.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use core::future::{Future, poll_fn};
use core::task::{Context, Waker};
use std::collections::BTreeSet;

use dm_alloc::{AllocError, Allocator, Block, Class, Descriptor, ReclaimOptions, Superblock};
use dm_loopback::{Endpoint, Loopback, Trouble, block_on, run_all};
use dm_sync::epoch::Epochs;
use dm_verbs::{Env, Nanos, NodeId, RemotePtr, Transport, Verbs};

const CLASS: Class = Class { bytes: 1024, kind: 3 };
/// Number of free blocks of a class on a memory node that a compute node keeps. It gives up further blocks in batches.
const KEPT: usize = 16;
const BATCH: usize = 63;
/// The memory node of all blocks.
const NODE: NodeId = NodeId(2);

fn near() -> RemotePtr {
    RemotePtr::new(NODE, 4096).unwrap()
}

/// Makes a pool of three memory nodes whose completions come late, and its superblock.
fn pool(seed: u64) -> (Loopback, Superblock) {
    let pool = Loopback::builder()
        .nodes(3)
        .host_bytes(1 << 20)
        .delays(3)
        .seed(seed);
    let pool = pool.build().unwrap();
    let wanted = Descriptor {
        members: 3,
        ..Descriptor::of(b"test", [])
    };
    let v = pool.connect(0).unwrap();
    let superblock = block_on(Superblock::create_or_open(&v, &wanted)).unwrap();
    (pool, superblock)
}

/// Makes a compute node that does rounds only on request and treats nobody as silent.
fn allocator(superblock: &Superblock, compute_node: u16) -> Allocator {
    let options = ReclaimOptions {
        period: Nanos(u64::MAX),
        looks: u32::MAX,
        ..ReclaimOptions::new()
    };
    Allocator::for_pool(superblock, compute_node, options).chunk_bytes(192 << 10)
}

/// Gives `count` free blocks to `a`, each with its own version.
fn spare(v: &Endpoint, a: &Allocator, count: usize) -> BTreeSet<Block> {
    let taken: Vec<_> = (0..count)
        .map(|_| block_on(a.take(v, CLASS, Some(near()))).unwrap())
        .collect();
    let used = |(i, block): (usize, &Block)| block.after(i as u8).after(i as u8 + 9);
    let used: BTreeSet<_> = taken.iter().enumerate().map(used).collect();
    for block in &used {
        a.give_back(*block, CLASS);
    }
    used
}

async fn collect(v: &Endpoint, a: &Allocator) -> Result<(), AllocError> {
    let seat = Epochs::seat(a.epochs().unwrap());
    a.collect(v, &seat).await
}

/// Returns the blocks that a compute node gets before it must use new memory.
fn received(v: &Endpoint, a: &Allocator) -> Vec<Block> {
    block_on(take_all(v, a))
}

/// Takes the blocks that [`received`] returns, while other clients run.
async fn take_all(v: &Endpoint, a: &Allocator) -> Vec<Block> {
    let mut got = Vec::new();
    loop {
        let block = a.take(v, CLASS, Some(near())).await.unwrap();
        if block.is_fresh() {
            return got;
        }
        got.push(block);
    }
}

/// Checks that all `blocks` are among `of`, and that none of them occurs twice.
fn assert_each_once(blocks: &[Block], of: &BTreeSet<Block>) {
    assert!(
        blocks.iter().all(|block| of.contains(block)),
        "as they were given back"
    );
    let once: BTreeSet<_> = blocks.iter().collect();
    assert_eq!(once.len(), blocks.len(), "some were handed out twice");
}

#[test]
fn what_one_has_too_much_of_another_gets_as_it_is() {
    let (pool, superblock) = pool(1);
    let (v, w) = (pool.connect(0).unwrap(), pool.connect(1).unwrap());
    let (a, b) = (allocator(&superblock, 0), allocator(&superblock, 1));
    let given = spare(&v, &a, KEPT + 2 * BATCH - 1);
    block_on(collect(&v, &a)).unwrap();
    assert_eq!(
        a.stats().free_bytes,
        1024 * (KEPT + BATCH - 1) as u64,
        "it kept too much for one more"
    );
    let got = received(&w, &b);
    assert_each_once(&got, &given);
    assert_eq!(got.len(), BATCH);
    let stats = b.stats();
    assert_eq!(
        stats.fetched_bytes,
        64 << 10,
        "one chunk, and that after the last of them"
    );
    assert_eq!(stats.free_bytes, 1024, "what they came in");
    assert_eq!(stats.in_use_bytes, 1024 * (BATCH + 1) as i64);

    // The blocks go back in the magazine in which they came.
    for block in got {
        b.give_back(block, CLASS);
    }
    for _ in 0..KEPT {
        b.give_back(block_on(a.take(&v, CLASS, Some(near()))).unwrap(), CLASS);
    }
    block_on(collect(&w, &b)).unwrap();
    assert_eq!(b.stats().free_bytes, 1024 * KEPT as u64);
}

#[test]
fn a_full_memory_node_still_has_what_others_give() {
    let (pool, superblock) = pool(2);
    let (v, w) = (pool.connect(0).unwrap(), pool.connect(1).unwrap());
    let (a, b) = (allocator(&superblock, 0), allocator(&superblock, 1));
    let mut taken = BTreeSet::new();
    while let Ok(block) = block_on(a.take(&v, CLASS, Some(near()))) {
        taken.insert(block);
    }
    let full = block_on(b.take(&w, CLASS, Some(near())));
    assert!(matches!(full, Err(AllocError::Exhausted { .. })), "{full:?}");
    taken.retain(|block| block.at.node() == NODE);
    // One of the blocks becomes the magazine that lists the others.
    let list = Class {
        kind: u8::MAX,
        ..CLASS
    };
    a.give_back(taken.pop_first().unwrap(), list);
    for block in &taken {
        a.give_back(*block, CLASS);
    }
    block_on(collect(&v, &a)).unwrap();
    let mut got = Vec::new();
    while let Ok(block) = block_on(b.take(&w, CLASS, Some(near()))) {
        got.push(block);
    }
    assert_each_once(&got, &taken);
    assert_eq!(got.len(), BATCH);
}

/// Returns the address of the word that leads to the blocks in the depot.
fn depot(superblock: &Superblock) -> RemotePtr {
    let area = superblock.members.unwrap();
    area.at
        .add(64 * (1 + u64::from(area.slots)) + 16 * u64::from(NODE.0))
}

#[test]
fn a_list_that_cannot_be_read_is_named() {
    let (pool, superblock) = pool(3);
    let (v, w) = (pool.connect(0).unwrap(), pool.connect(1).unwrap());
    let (a, b) = (allocator(&superblock, 0), allocator(&superblock, 1));
    spare(&v, &a, KEPT + BATCH);
    block_on(collect(&v, &a)).unwrap();
    let head = block_on(v.word(depot(&superblock))).unwrap();
    let list = RemotePtr::new(NODE, (head & ((1 << 42) - 1)) * 64).unwrap();
    let entries = block_on(v.word(list.add(8))).unwrap();
    assert_eq!(entries, BATCH as u64 | u64::from(NODE.0) << 16);
    block_on(v.write(list.add(8), &(entries + 1).to_le_bytes())).unwrap();
    let corrupt = block_on(b.take(&w, CLASS, Some(near())));
    assert!(
        matches!(corrupt, Err(AllocError::Corrupt { at, .. }) if at == list),
        "{corrupt:?}"
    );
}

#[test]
fn of_two_that_give_at_once_both_are_heard_and_of_two_that_take_each_gets_its_own() {
    for seed in 0..16 {
        let (pool, superblock) = pool(seed);
        let clients = [0, 1, 2, 3].map(|cn| pool.connect(cn).unwrap());
        let nodes = [0, 1, 2, 3].map(|cn| allocator(&superblock, cn));
        let all: Vec<_> = clients.iter().zip(&nodes).collect();
        let mut given = BTreeSet::new();
        for (v, a) in &all[..2] {
            given.append(&mut spare(v, a, KEPT + BATCH));
        }
        for done in run_all(all[..2].iter().map(|(v, a)| collect(v, a))) {
            done.unwrap();
        }
        let mut got = run_all(all[2..].iter().map(|(v, a)| take_all(v, a))).concat();
        // The two compute nodes that gave blocks up still have those that they kept.
        got.extend(run_all(all[..2].iter().map(|(v, a)| take_all(v, a))).concat());
        assert_each_once(&got, &given);
        assert_eq!(got.len(), given.len(), "seed {seed}: some are lost");
    }
}

/// The way in which the giving compute node is stopped.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stop {
    Dropped,
    CutOff(Trouble),
}

#[test]
fn who_is_stopped_while_he_gives_loses_nothing_that_is_not_in_doubt() {
    let stops = [
        Stop::Dropped,
        Stop::CutOff(Trouble::Unreachable),
        Stop::CutOff(Trouble::AnswersLost),
    ];
    for stop in stops {
        let mut stopped = 0;
        for polls in 1..80 {
            let (pool, superblock) = pool(polls);
            let (v, w) = (pool.connect(0).unwrap(), pool.connect(1).unwrap());
            let (a, b) = (allocator(&superblock, 0), allocator(&superblock, 1));
            let given = spare(&v, &a, KEPT + BATCH);
            let mut giving = Box::pin(collect(&v, &a));
            let mut cx = Context::from_waker(Waker::noop());
            let over = (0..polls).any(|_| giving.as_mut().poll(&mut cx).is_ready());
            match stop {
                _ if over => drop(giving),
                Stop::Dropped => drop(giving),
                Stop::CutOff(trouble) => {
                    pool.cut(NodeId(0), trouble);
                    let _ = block_on(giving);
                    pool.restore(NodeId(0));
                }
            }
            stopped += u64::from(!over);
            let _ = v.take_deferred();
            let got = [received(&w, &b), received(&v, &a)].concat();
            assert_each_once(&got, &given);
            if stop != Stop::CutOff(Trouble::AnswersLost) {
                assert_eq!(
                    got.len(),
                    given.len(),
                    "{stop:?} after {polls} polls: some are lost"
                );
            }
        }
        assert!(stopped > 8, "{stop:?} at {stopped} moments only");
    }
}

/// A memory node fails at any request of a client that moves blocks into a depot. If the CAS has certainly had no
/// effect, the client keeps the blocks. If it may have had an effect, the client does not hand them out.
#[test]
fn blocks_whose_giving_fails_are_handed_out_at_most_once() {
    for trouble in [Trouble::Unreachable, Trouble::AnswersLost] {
        let mut failed = 0;
        for cut_after in 1..40 {
            let pool = Loopback::builder().nodes(3).host_bytes(1 << 20);
            let pool = pool.suspend_every_wait().build().unwrap();
            let wanted = Descriptor {
                members: 3,
                ..Descriptor::of(b"test", [])
            };
            let (v, w) = (pool.connect(0).unwrap(), pool.connect(1).unwrap());
            let superblock = block_on(Superblock::create_or_open(&v, &wanted)).unwrap();
            let (a, b) = (allocator(&superblock, 0), allocator(&superblock, 1));
            let given = spare(&v, &a, KEPT + BATCH);
            let (mut giving, mut polls) = (Box::pin(collect(&v, &a)), 0);
            let done = block_on(poll_fn(|cx| {
                let polled = giving.as_mut().poll(cx);
                polls += 1;
                if polls == cut_after {
                    pool.cut(NodeId(0), trouble);
                }
                polled
            }));
            pool.restore(NodeId(0));
            let _lost = v.take_deferred();
            failed += u32::from(done.is_err());
            let got = [received(&w, &b), received(&v, &a)].concat();
            assert_each_once(&got, &given);
            if trouble == Trouble::Unreachable {
                assert_eq!(got.len(), given.len(), "cut after {cut_after} polls");
            }
        }
        assert!(failed > 3, "{trouble:?}: {failed}");
    }
}

#[test]
fn the_node_with_most_free_blocks_comes_before_the_turn() {
    let (pool, superblock) = pool(5);
    let v = pool.connect(0).unwrap();
    let a = allocator(&superblock, 0);
    let take = |near| block_on(a.take(&v, CLASS, near)).unwrap();
    let turns: Vec<_> = (0..3).map(|_| take(None)).collect();
    assert_eq!(turns.iter().map(|b| b.at.node().0).collect::<Vec<_>>(), [0, 1, 2]);
    let on = |node| Some(RemotePtr::new(NodeId(node), 4096).unwrap());
    let back = [take(on(1)), take(on(1)), turns[0]];
    for block in back {
        a.give_back(block.after(1), CLASS);
    }
    let next: Vec<_> = (0..5).map(|_| take(None).at.node().0).collect();
    assert_eq!(next[0], 1, "two are free there");
    assert_eq!([next[1], next[2]].iter().sum::<u16>(), 1, "one each");
    assert_eq!(next[3..], [0, 1], "then by turns");
}

#[test]
fn what_is_at_hand_costs_no_verb_and_asks_for_no_chunk() {
    let (pool, superblock) = pool(6);
    let v = pool.connect(0).unwrap();
    let a = allocator(&superblock, 0);
    let on = |node| RemotePtr::new(NodeId(node), 4096).unwrap();
    assert_eq!(a.at_hand(v.client(), CLASS, near()), None);
    let block = block_on(a.take(&v, CLASS, Some(near()))).unwrap();
    a.give_back(block.after(5), CLASS);
    assert_eq!(a.at_hand(v.client(), CLASS, on(1)), None, "none of that node");
    assert_eq!(a.at_hand(v.client(), CLASS, on(7)), None, "no such node");
    let nothing = Class { bytes: 0, ..CLASS };
    assert_eq!(a.at_hand(v.client(), nothing, near()), None);
    assert_eq!(a.at_hand(v.client(), CLASS, near()), Some(block.after(5)));
    let next = a.at_hand(v.client(), CLASS, near()).unwrap();
    assert!(next.is_fresh() && !block.after(5).is_fresh() && next.at != block.at);
}

/// If a WRITE of one client to a block may be in flight, only that client reuses the block.
#[test]
fn a_block_that_was_given_up_unawaited_is_its_clients_alone_until_it_prepares() {
    for seed in 0..8 {
        let (pool, superblock) = pool(seed);
        let (v, w) = (pool.connect(0).unwrap(), pool.connect(0).unwrap());
        let a = allocator(&superblock, 0);
        let seats = [(); 2].map(|()| Epochs::seat(a.epochs().unwrap()));
        let again = |v: &Endpoint| a.at_hand(v.client(), CLASS, near()).unwrap();
        let block = block_on(a.take(&v, CLASS, Some(near()))).unwrap().after(1);
        let in_use = a.stats().in_use_bytes;
        a.give_back_unawaited(v.client(), block, CLASS);
        assert_eq!(a.stats().in_use_bytes, in_use - 1024);
        assert_eq!(a.stats().free_bytes, 1024);
        assert_ne!(again(&w), block);
        let other = Class { kind: 9, ..CLASS };
        assert_ne!(a.at_hand(v.client(), other, near()), Some(block));
        assert_eq!(again(&v), block);

        a.give_back_unawaited(v.client(), block, CLASS);
        block_on(a.prepare(&w, &seats[0])).unwrap();
        assert_ne!(again(&w), block, "it says nothing of the other's WRITE");
        // `prepare` is dropped while it waits.
        for polls in 1.. {
            let mut preparing = Box::pin(a.prepare(&v, &seats[1]));
            let mut cx = Context::from_waker(Waker::noop());
            let over = (0..polls).any(|_| preparing.as_mut().poll(&mut cx).is_ready());
            drop(preparing);
            let _ = v.take_deferred();
            assert_eq!(a.stats().free_bytes, 1024, "after {polls} polls");
            if over {
                break;
            }
            assert_ne!(again(&w), block);
        }
        assert_eq!(again(&w), block, "it has landed");
    }
}
