//! A census finds exactly the lost blocks, whatever the members do meanwhile.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;

use dm_alloc::{
    AllocError, Allocator, Block, Census, CensusStep, Class, Descriptor, Life, ReclaimOptions, Restored,
    Superblock,
};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_sync::epoch::{Epochs, Seat};
use dm_verbs::{Env, Nanos, NodeId, RemotePtr, Verbs};

const CLASS: Class = Class { bytes: 1024, kind: 3 };
const LIFE: Life = Life::Header {
    incarnation_at: 4,
    version_at: 0,
};
/// Blocks of the class in its first chunk, whose last line is its record.
const BLOCKS: u64 = 63;
const LEASE: Nanos = Nanos(1600);

/// A look counts if half a lease has passed since the last counted one.
const OPTIONS: ReclaimOptions = ReclaimOptions {
    period: Nanos(u64::MAX),
    looks: 2,
    attempts: 8,
    ..ReclaimOptions::new()
};

struct Pool {
    world: Loopback,
    superblock: Superblock,
}

/// A compute node with one client.
struct Node {
    alloc: Allocator,
    seat: Seat,
    v: Endpoint,
}

impl Pool {
    /// Makes a pool in which no time passes, so that nobody is silent.
    fn new() -> Self {
        Self::with_clock(Nanos(0))
    }

    /// Makes a pool whose clock advances by `step` at each reading.
    fn with_clock(step: Nanos) -> Self {
        let world = Loopback::builder().nodes(2).host_bytes(2 << 20);
        let world = world.lease(LEASE).counted_clock(step).build().unwrap();
        let wanted = Descriptor {
            members: 5,
            ..Descriptor::of(b"test", [])
        };
        let v = world.connect(9).unwrap();
        let superblock = block_on(Superblock::create_or_open(&v, &wanted)).unwrap();
        Self { world, superblock }
    }

    fn node(&self, compute_node: u16) -> Node {
        let alloc = Allocator::for_pool(&self.superblock, compute_node, OPTIONS);
        alloc.restores(CLASS, LIFE);
        let seat = Epochs::seat(alloc.epochs().unwrap());
        let v = self.world.connect(compute_node).unwrap();
        let node = Node { alloc, seat, v };
        node.prepare();
        node
    }
}

impl Node {
    fn prepare(&self) {
        block_on(self.alloc.prepare(&self.v, &self.seat)).unwrap();
    }

    fn round(&self) {
        block_on(self.alloc.collect(&self.v, &self.seat)).unwrap();
    }

    fn take(&self) -> Block {
        let near = RemotePtr::new(NodeId(1), 4096).unwrap();
        block_on(self.alloc.take(&self.v, CLASS, Some(near))).unwrap()
    }

    /// Takes blocks and writes a node of this incarnation and version to each.
    fn nodes(&self, count: usize, (incarnation, version): (u32, u8)) -> Vec<Block> {
        let node = |mut block: Block| {
            (block.incarnation, block.version) = (incarnation, version);
            let mut line = [version; 64];
            line[4..8].copy_from_slice(&incarnation.to_le_bytes());
            block_on(self.v.write(block.at, &line)).unwrap();
            block
        };
        (0..count).map(|_| node(self.take())).collect()
    }

    fn census(&self) -> Census<'_, Endpoint> {
        block_on(self.alloc.begin_census(&self.v)).unwrap().unwrap()
    }

    fn leave(self) -> Allocator {
        let Self { alloc, seat, v } = self;
        alloc.vacate(&v, seat);
        alloc
    }
}

/// Lets all members do rounds until the step is done or the census is over, at most eight rounds each.
fn until(members: &[&Node], step: impl AsyncFn() -> Result<CensusStep, AllocError>) -> CensusStep {
    for _ in 0..8 {
        members.iter().for_each(|member| member.round());
        match block_on(step()).unwrap() {
            CensusStep::Waits => {}
            step => return step,
        }
    }
    CensusStep::Waits
}

/// Takes the steps of a census up to the beginning of the walk.
fn record(census: &mut Census<'_, Endpoint>, members: &[&Node]) {
    assert_eq!(until(members, async || census.told().await), CensusStep::Done);
    block_on(census.grace()).unwrap();
    assert_eq!(until(members, async || census.quiet().await), CensusStep::Done);
}

/// Takes the steps of a census from the end of the walk, which has reached the blocks `reached`, to the question.
fn ask(census: &mut Census<'_, Endpoint>, members: &[&Node], reached: &[RemotePtr]) {
    census.know(reached);
    assert_eq!(block_on(census.know_depots()).unwrap(), CensusStep::Done);
    block_on(census.grace()).unwrap();
    assert_eq!(until(members, async || census.quiet().await), CensusStep::Done);
    assert_eq!(block_on(census.ask()).unwrap(), CensusStep::Done);
}

fn finish(census: Census<'_, Endpoint>, members: &[&Node]) -> Option<Restored> {
    assert_eq!(until(members, async || census.told().await), CensusStep::Done);
    block_on(census.close()).unwrap()
}

fn addresses(blocks: &[Block]) -> Vec<RemotePtr> {
    blocks.iter().map(|block| block.at).collect()
}

/// Takes blocks until the allocator returns a fresh one, and returns those before it. They come from this compute
/// node's free lists and the depots.
fn used_before(node: &Node) -> Vec<Block> {
    let mut got = Vec::new();
    loop {
        match node.take() {
            block if block.is_fresh() => {
                node.alloc.give_back(block, CLASS);
                return got;
            }
            block => got.push(block),
        }
    }
}

#[test]
fn blocks_of_a_compute_node_that_left_come_back_with_a_new_life() {
    let pool = Pool::new();
    let [dead, other, me] = [0, 1, 2].map(|cn| pool.node(cn));
    let linked = dead.nodes(3, (5, 250));
    let lost = dead.nodes(2, (7, 254));
    dead.alloc.retire(dead.take().after(1), CLASS);
    dead.alloc.give_back(dead.take().after(1), CLASS);
    // Others hold blocks of each kind too.
    let theirs = other.nodes(3, (9, 9));
    other.alloc.retire(theirs[0].after(9), CLASS);
    other.alloc.give_back(theirs[1].after(9), CLASS);
    other
        .alloc
        .give_back_unawaited(other.v.client(), theirs[2].after(9), CLASS);
    drop(dead.leave());

    let members = [&other, &me];
    let mut census = me.census();
    record(&mut census, &members);
    ask(&mut census, &members, &addresses(&linked));
    let blocks = BLOCKS - 3;
    let bytes = blocks * 1024;
    assert_eq!(finish(census, &members), Some(Restored { blocks, bytes }));
    assert_eq!(me.v.meter().counters().restored_blocks, blocks);
    for _ in 0..3 {
        members.iter().for_each(|member| member.round());
    }
    let got = used_before(&me);
    assert_eq!(got.len() as u64, blocks);
    let kept: BTreeSet<_> = addresses(&linked).into_iter().chain(addresses(&theirs)).collect();
    assert!(got.iter().all(|block| !kept.contains(&block.at)));
    let lives: BTreeSet<_> = got
        .iter()
        .filter(|block| addresses(&lost).contains(&block.at))
        .map(|block| (block.incarnation, block.version))
        .collect();
    assert_eq!(lives, BTreeSet::from([(9, 0)]), "two after the last node's");
    // Nothing is lost any more, and the next census says so.
    let mut census = me.census();
    record(&mut census, &members);
    ask(
        &mut census,
        &members,
        &[addresses(&linked), addresses(&got)].concat(),
    );
    assert_eq!(finish(census, &members), Some(Restored::default()));
}

#[test]
fn blocks_that_a_member_takes_during_the_census_are_not_lost() {
    let pool = Pool::new();
    let [other, me] = [0, 1].map(|cn| pool.node(cn));
    let members = [&other, &me];
    let free = other.nodes(4, (1, 1));
    free[..2]
        .iter()
        .for_each(|block| other.alloc.give_back(block.after(1), CLASS));
    let mut census = me.census();
    record(&mut census, &members);
    // These three blocks are linked at places that the walk has already passed, and they are in no free list any more.
    // Two of them are from the free list, and one is from a chunk.
    let linked = [other.take(), other.take(), other.take()];
    ask(&mut census, &members, &[]);
    // The walk has reached no block, and two blocks are lost.
    let lost = Restored {
        blocks: 2,
        bytes: 2048,
    };
    assert_eq!(finish(census, &members), Some(lost));
    (0..3).for_each(|_| members.iter().for_each(|member| member.round()));
    let got = addresses(&used_before(&me));
    assert_eq!(got.len(), 2);
    assert!(linked.iter().all(|block| !got.contains(&block.at)));
}

#[test]
fn an_operation_that_began_before_the_record_delays_the_walk() {
    let pool = Pool::new();
    let [other, me] = [0, 1].map(|cn| pool.node(cn));
    let members = [&other, &me];
    let running = other.seat.enter().unwrap();
    let mut census = me.census();
    assert_eq!(until(&members, async || census.told().await), CensusStep::Done);
    block_on(census.grace()).unwrap();
    assert_eq!(until(&members, async || census.quiet().await), CensusStep::Waits);
    drop(running);
    assert_eq!(until(&members, async || census.quiet().await), CensusStep::Done);
}

#[test]
fn a_member_that_leaves_ends_the_census() {
    for asked in [false, true] {
        let pool = Pool::new();
        let [other, me] = [0, 1].map(|cn| pool.node(cn));
        let members = [&other, &me];
        let mut census = me.census();
        record(&mut census, &members);
        if asked {
            ask(&mut census, &members, &[]);
            assert_eq!(until(&members, async || census.told().await), CensusStep::Done);
        }
        let left = other.leave();
        me.round();
        assert_eq!(block_on(census.told()).unwrap(), CensusStep::Over);
        assert_eq!(block_on(census.close()).unwrap(), None);
        assert_eq!(left.stats().free_bytes, 0);
        // The next one is not disturbed.
        let mut census = me.census();
        record(&mut census, &[&me]);
    }
}

#[test]
fn a_compute_node_that_joins_again_after_a_census_has_forgotten_its_memory() {
    let pool = Pool::new();
    let [other, me] = [0, 1].map(|cn| pool.node(cn));
    let taken = other.nodes(5, (1, 1));
    other.alloc.give_back(taken[0].after(1), CLASS);
    other.alloc.retire(taken[1].after(1), CLASS);
    other
        .alloc
        .give_back_unawaited(other.v.client(), taken[2].after(1), CLASS);
    let alloc = other.leave();
    let census = |members: &[&Node], reached: &[RemotePtr]| {
        let mut census = me.census();
        record(&mut census, members);
        ask(&mut census, members, reached);
        finish(census, members).unwrap().blocks
    };
    assert_eq!(census(&[&me], &addresses(&taken[3..])), BLOCKS - 2);
    let seat = Epochs::seat(alloc.epochs().unwrap());
    let v = pool.world.connect(0).unwrap();
    let other = Node { alloc, seat, v };
    other.prepare();
    assert_eq!(
        (other.alloc.stats().free_bytes, other.alloc.stats().limbo_bytes),
        (0, 0)
    );
    let block = other.take();
    assert!(
        block.is_fresh() && block.at.offset() > taken[0].at.offset() + (64 << 10),
        "a new chunk"
    );
    // No census has been taken since, so it keeps its memory now.
    other.alloc.give_back(block.after(1), CLASS);
    let alloc = other.leave();
    let seat = Epochs::seat(alloc.epochs().unwrap());
    let v = pool.world.connect(0).unwrap();
    let other = Node { alloc, seat, v };
    other.prepare();
    assert_eq!(other.take().at, block.at);
}

#[test]
fn a_member_that_joins_during_a_census_records_from_the_start() {
    let pool = Pool::new();
    let [dead, me] = [0, 1].map(|cn| pool.node(cn));
    for block in dead.nodes(79 + 63, (1, 1)) {
        dead.alloc.give_back(block.after(1), CLASS);
    }
    // This gives free blocks to the depot.
    dead.round();
    let mut census = me.census();
    record(&mut census, &[&dead, &me]);
    let joiner = pool.node(2);
    let linked = [joiner.take(), joiner.take()];
    assert!(!linked[0].is_fresh(), "from the depot");
    let members = [&dead, &joiner, &me];
    ask(&mut census, &members, &[]);
    assert_eq!(finish(census, &members), Some(Restored::default()));
}

#[test]
fn only_one_census_is_taken_at_a_time_and_a_dropped_one_ends() {
    let pool = Pool::new();
    let [other, me] = [0, 1].map(|cn| pool.node(cn));
    let census = me.census();
    assert!(block_on(other.alloc.begin_census(&other.v)).unwrap().is_none());
    drop(census);
    let mut census = other.census();
    record(&mut census, &[&other, &me]);
}

#[test]
fn an_expelled_member_ends_the_census_and_its_blocks_come_back_in_the_next_one() {
    let pool = Pool::with_clock(LEASE);
    let [dead, me] = [0, 1].map(|cn| pool.node(cn));
    let linked = dead.nodes(1, (1, 1));
    let mut census = me.census();
    record(&mut census, &[&dead, &me]);
    for _ in 0..4 {
        me.round();
    }
    assert_eq!(block_on(census.told()).unwrap(), CensusStep::Over);
    drop(census);
    let mut census = me.census();
    record(&mut census, &[&me]);
    ask(&mut census, &[&me], &addresses(&linked));
    assert_eq!(finish(census, &[&me]).unwrap().blocks, BLOCKS - 1);
}

#[test]
fn a_compute_node_that_has_only_retired_blocks_forgets_them_too() {
    let pool = Pool::new();
    let [maker, other, me] = [0, 1, 2].map(|cn| pool.node(cn));
    let block = maker.nodes(1, (1, 1))[0];
    other.alloc.retire(block.after(1), CLASS);
    let alloc = other.leave();
    let members = [&maker, &me];
    let mut census = me.census();
    record(&mut census, &members);
    ask(&mut census, &members, &[]);
    assert_eq!(finish(census, &members).unwrap().blocks, 1);
    let seat = Epochs::seat(alloc.epochs().unwrap());
    let v = pool.world.connect(1).unwrap();
    let other = Node { alloc, seat, v };
    other.prepare();
    let all = [&maker, &me, &other];
    for _ in 0..5 {
        all.iter().for_each(|member| member.round());
    }
    let (mine, theirs) = (addresses(&used_before(&me)), addresses(&[other.take()]));
    assert!(!mine.contains(&theirs[0]), "both have {:?}", theirs[0]);
}

#[test]
fn a_block_that_is_held_between_operations_is_not_lost() {
    let pool = Pool::new();
    let [other, me] = [0, 1].map(|cn| pool.node(cn));
    let members = [&other, &me];
    // A leaf whose key a SMART client has removed is in this state. It is unlinked, and the operation that unlinked it
    // has ended. The client retires it in a later operation.
    let held = other.nodes(1, (1, 1))[0];
    let hold = other.alloc.hold(held.at);
    let mut census = me.census();
    record(&mut census, &members);
    ask(&mut census, &members, &[]);
    assert_eq!(
        finish(census, &members).unwrap().blocks,
        0,
        "{:?} is held",
        held.at
    );
    // Once the block is retired, it becomes free after three rounds.
    other.alloc.retire_held(hold, held.after(1), CLASS);
    (0..3).for_each(|_| members.iter().for_each(|member| member.round()));
    assert_eq!(other.take().at, held.at);
}

#[test]
fn a_block_that_was_held_before_a_lost_membership_is_forgotten() {
    let pool = Pool::new();
    let [other, me] = [0, 1].map(|cn| pool.node(cn));
    let block = other.nodes(1, (1, 1))[0];
    let held = other.alloc.hold(block.at);
    let alloc = other.leave();
    let members = [&me];
    let mut census = me.census();
    record(&mut census, &members);
    ask(&mut census, &members, &[]);
    assert_eq!(finish(census, &members).unwrap().blocks, BLOCKS);
    let seat = Epochs::seat(alloc.epochs().unwrap());
    let v = pool.world.connect(0).unwrap();
    let other = Node { alloc, seat, v };
    other.prepare();
    other.alloc.retire_held(held, block.after(1), CLASS);
    assert_eq!(other.alloc.stats().limbo_bytes, 0, "it has another owner");
}
