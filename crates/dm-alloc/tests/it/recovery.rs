//! Compute nodes fence members that are gone, free their locks, and reset the counts of their shares.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use dm_alloc::{
    AllocError, Allocator, Class, Descriptor, LockHome, LockPlan, Members, PoolBytes, ReclaimFlaws,
    ReclaimOptions, Superblock, Sweep, rest,
};
use dm_index::Reclaim;
use dm_loopback::{Endpoint, Loopback, Trouble, block_on};
use dm_sync::epoch::{Epochs, Seat};
use dm_verbs::testing::Altered;
use dm_verbs::{
    ControlError, ControlRequest, Env, Nanos, NodeId, Place, RemotePtr, VerbError, VerbErrorKind, Verbs,
};

const LEASE: Nanos = Nanos(1600);
/// The words of a lock table.
const WORDS: u32 = 1024;
const PAGE: u64 = 4096;

/// A look counts if half a lease has passed since the last counted one.
const OPTIONS: ReclaimOptions = ReclaimOptions {
    period: Nanos(u64::MAX),
    looks: 2,
    attempts: 8,
    ..ReclaimOptions::new()
};

/// Frees a word if its lowest 16 bits name `member`, which holds the lock.
fn freed(word: u64, member: u16) -> Option<u64> {
    (word as u16 == member).then_some(word >> 16 << 16)
}

/// Clears the count of sharers in the highest 16 bits of a word.
fn unshared(word: u64) -> Option<u64> {
    (word >> 48 != 0).then_some(word << 16 >> 16)
}

struct Pool {
    world: Loopback,
    superblock: Superblock,
    /// A client that belongs to no member.
    v: Endpoint,
}

/// A compute node with one client, which is a member from the start.
struct Node {
    alloc: Allocator,
    seat: Seat,
    v: Endpoint,
}

impl Pool {
    fn new() -> Self {
        Self::with_clock(LEASE)
    }

    /// Makes a pool of two memory nodes and at most four members, whose clock advances by `step` at each reading.
    fn with_clock(step: Nanos) -> Self {
        let world = Loopback::builder().nodes(2).host_bytes(1 << 20);
        let world = world.lease(LEASE).counted_clock(step).build().unwrap();
        let v = world.connect(9).unwrap();
        let wanted = Descriptor {
            members: 4,
            locks: LockPlan {
                home: LockHome::Host,
                per_node: WORDS,
            },
            ..Descriptor::of(b"test", [])
        };
        let superblock = block_on(Superblock::create_or_open(&v, &wanted)).unwrap();
        Self { world, superblock, v }
    }

    fn allocator(&self, compute_node: u16, options: ReclaimOptions, shared: bool) -> Allocator {
        let alloc = Allocator::for_pool(&self.superblock, compute_node, options);
        let alloc = alloc.sweeping(Sweep::of(&self.superblock, freed, unshared));
        if shared {
            alloc.roster().sharing();
        }
        alloc.chunk_bytes(64 << 10)
    }

    fn join(&self, compute_node: u16, options: ReclaimOptions, shared: bool) -> Node {
        let alloc = self.allocator(compute_node, options, shared);
        let seat = Epochs::seat(alloc.epochs().unwrap());
        let v = self.world.connect(compute_node).unwrap();
        block_on(alloc.prepare(&v, &seat)).unwrap();
        Node { alloc, seat, v }
    }

    /// Makes members 1, 2 and so on.
    fn members<const N: usize>(&self, shared: bool) -> [Node; N] {
        core::array::from_fn(|i| self.join(i as u16, OPTIONS, shared))
    }

    fn area(&self) -> RemotePtr {
        self.superblock.members.unwrap().at
    }

    fn word(&self, at: impl Into<Place>) -> u64 {
        block_on(self.v.word(at)).unwrap()
    }

    fn put(&self, at: impl Into<Place>, word: u64) {
        block_on(self.v.write(at, &word.to_le_bytes())).unwrap();
    }

    fn slot_at(&self, i: u64) -> RemotePtr {
        self.area().add(64 * (1 + i))
    }

    fn slot(&self, i: u64) -> u64 {
        self.word(self.slot_at(i))
    }

    fn is_marked(&self, i: u64) -> bool {
        self.slot(i) & 3 == 2
    }

    /// Returns the round of the gate, and the member that resets the counts, or 0.
    fn gate(&self) -> (u64, u64) {
        let word = self.word(self.area().add(16));
        (word >> 16, word & 0xFFFF)
    }

    /// Returns the round of the gate that the member in slot `i` has answered.
    fn answered(&self, i: u64) -> u64 {
        self.word(self.slot_at(i).add(16))
    }

    /// Returns the place of lock word `i` of a memory node.
    fn lock(&self, node: usize, i: u64) -> Place {
        self.superblock.lock_tables[node].add(8 * i)
    }
}

impl Node {
    fn round(&self) -> Result<(), AllocError> {
        block_on(self.alloc.collect(&self.v, &self.seat))
    }

    fn knows_gone(&self, member: u16) -> bool {
        self.alloc.roster().is_gone(member)
    }

    fn is_fenced(&self) -> bool {
        let written = block_on(
            self.v
                .write(RemotePtr::new(NodeId(1), 512 << 10).unwrap(), &[0; 8]),
        );
        matches!(
            written,
            Err(VerbError {
                kind: VerbErrorKind::Fenced,
                ..
            })
        )
    }

    /// Ends a share whose requests may still land.
    fn drop_share(&self) {
        drop(self.alloc.roster().gate().enter(self.v.client().0).unwrap());
    }
}

#[test]
fn an_allocator_says_which_locks_and_members_it_knows() {
    let pool = Pool::new();
    let alloc = pool.allocator(0, OPTIONS, true);
    let tables = alloc.lock_tables().unwrap();
    assert_eq!((tables.words, tables.tables.len()), (WORDS, 2));
    assert!(alloc.roster().shares());
    assert!(Allocator::new(1, 0).lock_tables().is_none());
}

/// A member is silent for a lease. Another member marks its slot, fences it, frees its locks, and then frees its slot.
#[test]
fn a_silent_member_is_fenced_before_its_locks_are_freed() {
    let pool = Pool::new();
    let [dead, alive] = pool.members(false);
    for node in 0..2 {
        pool.put(pool.lock(node, 5), 7 << 32 | 1);
        pool.put(pool.lock(node, 6), 2);
    }
    for _ in 0..2 {
        alive.round().unwrap();
        assert!(pool.slot(0) != 0 && !dead.is_fenced());
        assert_eq!(pool.word(pool.lock(0, 5)), 7 << 32 | 1);
    }
    alive.round().unwrap();
    assert!(pool.slot(0) == 0 && dead.is_fenced() && alive.knows_gone(1));
    for node in 0..2 {
        assert_eq!(pool.word(pool.lock(node, 5)), 7 << 32);
        assert_eq!(pool.word(pool.lock(node, 6)), 2, "another member's");
    }
    let counted = alive.v.meter().counters();
    assert_eq!((counted.expelled, counted.freed_locks), (1, 2));
    assert_ne!(pool.slot(1), 0);
}

/// A member that has no slot is fenced only if a client has asked about it twice.
#[test]
fn a_member_without_a_slot_is_fenced_when_a_client_waits_for_its_lock() {
    for fences in [true, false] {
        let pool = Pool::new();
        let [left, _] = pool.members(false);
        let options = ReclaimOptions {
            looks: if fences { 2 } else { u32::MAX },
            ..OPTIONS
        };
        let node = pool.join(2, options, false);
        // A question that is asked while the member is active does not count after the member has left.
        node.alloc.roster().ask(1);
        node.round().unwrap();
        left.alloc.leave(&left.v);
        assert_eq!(pool.slot(0), 0);
        for _ in 0..2 {
            node.round().unwrap();
            assert!(!left.is_fenced() && !node.knows_gone(1));
            node.alloc.roster().ask(1);
        }
        node.round().unwrap();
        assert_eq!((left.is_fenced(), node.knows_gone(1)), (fences, fences));
    }
}

#[test]
fn a_member_that_cannot_be_fenced_is_not_gone() {
    let pool = Pool::new();
    let [left] = pool.members(false);
    let alloc = pool.allocator(1, OPTIONS, false);
    let seat = Epochs::seat(alloc.epochs().unwrap());
    const TROUBLE: ControlError = ControlError::Unreachable { node: NodeId(0) };
    let v = Altered {
        refuses: |request| match request {
            ControlRequest::FenceMember { .. } => Some(TROUBLE),
            _ => None,
        },
        ..Altered::new(pool.world.connect(1).unwrap())
    };
    block_on(alloc.prepare(&v, &seat)).unwrap();
    left.alloc.leave(&left.v);
    for failed in [Ok(()), Err(AllocError::Control(TROUBLE))] {
        alloc.roster().ask(1);
        assert_eq!(block_on(alloc.collect(&v, &seat)), failed);
    }
    assert!(!alloc.roster().is_gone(1));
}

#[test]
fn the_locks_of_a_member_that_is_gone_are_freed_on_request() {
    let pool = Pool::new();
    let [left, alive] = pool.members(false);
    pool.put(pool.lock(0, 5), 1);
    pool.put(pool.lock(1, 9), 1);
    left.alloc.leave(&left.v);
    let free = |member| block_on(alive.alloc.free_locks_of(&alive.v, member));
    assert_eq!(free(1), Ok(Some(2)));
    assert!(left.is_fenced() && pool.word(pool.lock(0, 5)) == 0 && pool.word(pool.lock(1, 9)) == 0);
    assert_eq!(free(1), Ok(Some(0)));
    assert_eq!(free(2), Ok(None), "its own number");
    assert_eq!(free(9), Ok(None), "a number that will be drawn soon");
    let plain = Allocator::new(2, 0);
    assert_eq!(block_on(plain.free_locks_of(&pool.v, 1)), Ok(None));
}

#[test]
fn a_look_tells_who_is_a_member() {
    let pool = Pool::new();
    let [first, second] = pool.members(false);
    let look = |node: &Node| block_on(node.alloc.members(&node.v)).unwrap();
    let before = look(&second);
    assert_eq!((&before.active[..], &before.expelled[..]), (&[1, 2][..], &[][..]));
    assert!(before.are_all_in(&look(&first)));
    let word = pool.slot(0);
    pool.put(pool.slot_at(0), word & !3 | 2);
    let marked = look(&second);
    assert_eq!((&marked.active[..], &marked.expelled[..]), (&[2][..], &[1][..]));
    pool.put(pool.slot_at(0), word);
    // A member that joins, and leaves before the next look, has drawn a number.
    let third = pool.join(2, OPTIONS, false);
    third.alloc.leave(&third.v);
    let after = look(&second);
    assert_eq!(after.active, before.active);
    assert!(!before.are_all_in(&after));
    let plain = Allocator::new(2, 0);
    assert_eq!(block_on(plain.members(&pool.v)), Ok(Members::default()));
}

#[test]
fn silent_members_are_outlasted() {
    // The clock advances so little that many rounds fit into a lease.
    let pool = Pool::with_clock(Nanos(4));
    let [dead, alive] = pool.members(false);
    let outlast = |node: &Node| block_on(node.alloc.outlast_silent(&node.v));
    let before = alive.v.now();
    assert_eq!(outlast(&alive), Ok(1));
    let took = alive.v.now().0 - before.0;
    assert!(dead.is_fenced() && pool.slot(0) == 0);
    assert!((LEASE.0..3 * LEASE.0).contains(&took), "{took} ns");
    // A part of a lease lies between two rounds.
    let verbs = alive.v.meter().counters().housekeeping_verbs;
    assert!(verbs < 120, "{verbs} verbs");
    // Nobody else is a member.
    let before = alive.v.now();
    assert_eq!(outlast(&alive), Ok(0));
    assert!(alive.v.now().0 - before.0 < LEASE.0 / 2);
    // A member that fences nobody waits a few leases.
    let pool = Pool::with_clock(Nanos(4));
    let [_dead] = pool.members(false);
    let options = ReclaimOptions {
        looks: u32::MAX,
        ..OPTIONS
    };
    let node = pool.join(1, options, false);
    let before = node.v.now();
    assert_eq!(outlast(&node), Ok(0));
    let took = node.v.now().0 - before.0;
    assert!((8 * LEASE.0..10 * LEASE.0).contains(&took), "{took} ns");
    assert_eq!(block_on(Allocator::new(2, 0).outlast_silent(&pool.v)), Ok(0));
    let before = pool.v.now();
    block_on(rest(&pool.v, Nanos(400)));
    assert!((400..600).contains(&(pool.v.now().0 - before.0)));
}

/// All memory that memory nodes have handed out is in use, or is known to a compute node, or lies in a depot.
#[test]
fn the_bytes_of_a_pool_add_up() {
    let class = Class { bytes: 1024, kind: 3 };
    let pool = Pool::new();
    let [node] = pool.members::<1>(false);
    let bytes = || block_on(node.alloc.pool_bytes(&node.v)).unwrap();
    assert_eq!(bytes(), PoolBytes::default(), "tables and slots do not count");
    let near = |node| RemotePtr::new(NodeId(node), PAGE);
    let take = |n: u16| block_on(node.alloc.take(&node.v, class, near(n))).unwrap();
    let blocks: Vec<_> = (0..300).map(|i| take(i % 2)).collect();
    let full = bytes();
    assert_eq!((full.allocated % (64 << 10), full.depots), (0, 0));
    assert_eq!(full.allocated, full.own + 300 * 1024);
    assert!(full.allocated >= 300 * 1024 && full.own > 0);
    // Retired and freed blocks still belong to the compute node.
    node.alloc.retire(blocks[0].after(1), class);
    node.alloc.give_back(blocks[1].after(1), class);
    assert_eq!(bytes().own, full.own + 2 * 1024);
    // A round gives the free blocks above a few to the others.
    for block in &blocks[2..] {
        node.alloc.give_back(block.after(1), class);
    }
    let mut now = bytes();
    for _ in 0..8 {
        assert_eq!(now.allocated, now.own + now.depots);
        node.round().unwrap();
        now = bytes();
    }
    assert!(now.depots > 63 * 1024, "{now:?}");
    assert_eq!(now.allocated, now.own + now.depots);
    // A chunk beyond the allocator's limit belongs to its compute node too.
    let pool = Pool::new();
    let alloc = pool.allocator(0, OPTIONS, false).reaching(128 << 10);
    let seat = Epochs::seat(alloc.epochs().unwrap());
    block_on(alloc.prepare(&pool.v, &seat)).unwrap();
    let mut taken = 0;
    while block_on(alloc.take(&pool.v, class, near(0))).is_ok() {
        taken += 1024;
    }
    let bytes = block_on(alloc.pool_bytes(&pool.v)).unwrap();
    assert!(alloc.stats().wasted_bytes >= 64 << 10);
    assert_eq!(bytes.allocated, bytes.own + taken);
}

/// The slot of a dead sharer stays marked until all other members have answered. After that, no share is in progress.
#[test]
fn shares_of_a_dead_member_are_reset_when_all_others_have_answered() {
    let pool = Pool::new();
    let [dead, first] = pool.members(true);
    // The second member looks at the slots too, but needs many more looks to find the dead member silent.
    let second = pool.join(
        2,
        ReclaimOptions {
            looks: 100,
            ..OPTIONS
        },
        true,
    );
    pool.put(pool.lock(0, 5), 2 << 48 | 7);
    pool.put(pool.lock(1, 9), 1 << 48 | 1);
    assert_eq!(pool.gate(), (0, 0));
    let gate = |node: &Node| node.alloc.roster().gate().is_shut(node.v.client().0);
    // The second member has a share in progress.
    let pass = second.alloc.roster().gate().enter(second.v.client().0).unwrap();
    for _ in 0..3 {
        assert!(!pool.is_marked(0));
        second.round().unwrap();
        first.round().unwrap();
    }
    assert!(pool.is_marked(0) && dead.is_fenced() && first.v.meter().counters().expelled == 0);
    assert_eq!(
        pool.word(pool.lock(1, 9)),
        1 << 48,
        "the lock is free, and the share counts"
    );
    assert_eq!(pool.gate(), (0, 0));
    first.round().unwrap();
    assert_eq!(pool.gate(), (1, 2));
    assert!(gate(&first) && !gate(&second));
    for _ in 0..3 {
        second.round().unwrap();
        first.round().unwrap();
    }
    assert!(gate(&second) && second.alloc.roster().gate().enter(second.v.client().0).is_none());
    assert_eq!(
        (pool.gate(), pool.answered(2)),
        ((1, 2), 0),
        "the share still runs"
    );
    assert_eq!(pool.word(pool.lock(0, 5)), 2 << 48 | 7);
    pass.done();
    // Another client of the member that resets the counts still shares a lock.
    let other = pool.world.connect(1).unwrap().client().0;
    let roster = first.alloc.roster();
    roster.gate().open();
    let pass = roster.gate().enter(other).unwrap();
    roster.gate().shut();
    second.round().unwrap();
    assert_eq!((pool.gate(), pool.answered(2)), ((1, 2), 1));
    first.round().unwrap();
    assert_eq!((pool.gate(), pool.word(pool.lock(0, 5))), ((1, 2), 2 << 48 | 7));
    second.round().unwrap();
    pass.done();
    let before = first.v.meter().counters().expelled;
    first.round().unwrap();
    assert_eq!(first.v.meter().counters().expelled - before, 1);
    assert_eq!((pool.gate(), pool.slot(0)), ((1, 0), 0));
    assert_eq!((pool.word(pool.lock(0, 5)), pool.word(pool.lock(1, 9))), (7, 0));
    assert!(!gate(&first) && gate(&second));
    second.round().unwrap();
    assert!(!gate(&second));
    // Nothing is left to be done.
    for _ in 0..3 {
        first.round().unwrap();
        second.round().unwrap();
    }
    assert_eq!(pool.gate(), (1, 0));
}

/// The client that resets the counts has an unsettled share itself.
#[test]
fn dropped_shares_are_settled_before_a_member_answers() {
    let pool = Pool::new();
    let [_dead, first, second] = pool.members(true);
    let gates = [&first, &second].map(|node| (node.alloc.roster().gate(), node.v.client().0));
    for node in [&first, &second] {
        node.drop_share();
        // While the gate is open, a share that was dropped costs nothing.
        let before = node.v.meter().counters().housekeeping_verbs;
        block_on(node.alloc.prepare(&node.v, &node.seat)).unwrap();
        assert_eq!(node.v.meter().counters().housekeeping_verbs, before);
    }
    let mut rounds = 0;
    while pool.gate() != (1, 0) {
        rounds += 1;
        assert!(rounds < 12, "{:?}", pool.gate());
        first.round().unwrap();
        second.round().unwrap();
    }
    assert!(gates.iter().all(|(gate, client)| gate.is_clear(*client)));
    assert_eq!((pool.answered(2), pool.slot(0)), (1, 0));
    // A client also settles when it prepares its next operation behind a shut gate.
    second.drop_share();
    let (gate, client) = gates[1];
    gate.shut();
    for reads in [2, 0] {
        let before = second.v.meter().counters().housekeeping_verbs;
        block_on(second.alloc.prepare(&second.v, &second.seat)).unwrap();
        assert_eq!(second.v.meter().counters().housekeeping_verbs - before, reads);
        assert!(gate.is_clear(client));
    }
    gate.open();
}

/// The member that the gate names is dead too, or has left. Another member takes over the gate and resets the counts.
#[test]
fn another_member_takes_the_gate_over() {
    for left in [false, true] {
        let pool = Pool::new();
        let [_dead, owner] = pool.members(true);
        // The next member needs more looks to find another one silent.
        let next = pool.join(2, ReclaimOptions { looks: 6, ..OPTIONS }, true);
        pool.put(pool.lock(0, 5), 2 << 48);
        for _ in 0..4 {
            next.round().unwrap();
            owner.round().unwrap();
        }
        assert_eq!(pool.gate(), (1, 2));
        next.round().unwrap();
        if left {
            pool.put(pool.slot_at(1), 0);
            // One look without the slot is not enough, because its READ may have been posted before the member had the
            // slot.
            next.round().unwrap();
            assert!(pool.gate() == (1, 2) && !owner.is_fenced());
        }
        let mut seen = vec![pool.gate()];
        for _ in 0..24 {
            next.round().unwrap();
            if seen.last() != Some(&pool.gate()) {
                seen.push(pool.gate());
            }
        }
        assert_eq!(seen, [(1, 2), (1, 3), (1, 0)], "left: {left}");
        assert!(owner.is_fenced() && next.knows_gone(2));
        assert_eq!((pool.slot(0), pool.slot(1)), (0, 0));
        assert_eq!(pool.word(pool.lock(0, 5)), 0);
    }
}

/// A member that leaves while shares of its clients may still land marks its slot instead of freeing it.
#[test]
fn whoever_leaves_with_shares_marks_its_slot() {
    for (shared, looks, shares, marked) in [
        (true, 2, true, true),
        (true, 2, false, false),
        (true, u32::MAX, true, false),
        (false, 2, true, false),
    ] {
        let pool = Pool::new();
        let node = pool.join(0, ReclaimOptions { looks, ..OPTIONS }, shared);
        if shares {
            node.drop_share();
        }
        node.alloc.leave(&node.v);
        assert_eq!(pool.is_marked(0), marked, "{shared}, {looks}, {shares}");
        assert_eq!(pool.slot(0) != 0, marked);
    }
}

/// The gate is shut although no member is marked. This happens if the client that has reset the counts dies or is
/// dropped before it opens the gate.
#[test]
fn a_gate_that_was_left_shut_is_opened() {
    let pool = Pool::new();
    let [first, second] = pool.members(true);
    pool.put(pool.area().add(16), 1 << 16 | 1);
    second.round().unwrap();
    assert_eq!(pool.answered(1), 1);
    first.round().unwrap();
    first.round().unwrap();
    assert_eq!(pool.gate(), (1, 0));
    second.round().unwrap();
    // The only member that is marked is the one that was to reset the counts.
    pool.put(pool.area().add(16), 2 << 16 | 2);
    let mut seen = vec![pool.gate()];
    for _ in 0..12 {
        first.round().unwrap();
        if seen.last() != Some(&pool.gate()) {
            assert!(second.is_fenced(), "its last requests might land later");
            seen.push(pool.gate());
        }
    }
    assert_eq!(seen, [(2, 2), (2, 1), (2, 0)]);
}

/// Another member has marked the owner of the gate, and might not have fenced it yet.
#[test]
fn a_gate_is_not_taken_from_a_member_that_may_still_act() {
    let pool = Pool::new();
    let [_owner] = pool.members(true);
    let next = pool.join(
        1,
        ReclaimOptions {
            looks: 100,
            ..OPTIONS
        },
        true,
    );
    pool.put(pool.area().add(16), 1 << 16 | 1);
    pool.put(pool.slot_at(0), pool.slot(0) & !3 | 2);
    for _ in 0..5 {
        next.round().unwrap();
        assert_eq!(pool.gate(), (1, 1));
    }
}

#[test]
fn a_member_with_a_flaw_shares_behind_a_shut_gate() {
    for gate_ignored in [false, true] {
        let pool = Pool::new();
        let flaws = ReclaimFlaws {
            gate_ignored,
            ..ReclaimFlaws::NONE
        };
        let node = pool.join(0, ReclaimOptions { flaws, ..OPTIONS }, true);
        pool.put(pool.area().add(16), 1 << 16 | 9);
        node.round().unwrap();
        let is_shut = node.alloc.roster().gate().is_shut(node.v.client().0);
        assert_eq!(is_shut, !gate_ignored);
    }
}

/// A client that enlists in a later membership is not fenced with the earlier one any more. So its earlier requests
/// must have landed before.
#[test]
fn a_client_of_an_earlier_membership_settles_before_it_enlists_again() {
    for cut in [false, true] {
        let pool = Pool::new();
        let alloc = pool.allocator(0, OPTIONS, true);
        let seat = Epochs::seat(alloc.epochs().unwrap());
        let v = pool.world.connect(0).unwrap();
        let (gate, client) = (alloc.roster().gate(), v.client().0);
        let drop_share = || drop(gate.enter(client).unwrap());
        // A client that was not enlisted before enlists without any READ, so its shares stay unsettled.
        drop_share();
        block_on(alloc.prepare(&v, &seat)).unwrap();
        assert_eq!(gate.unsettled(client), 1);
        // It enlists in the same membership again.
        let again = Epochs::seat(alloc.epochs().unwrap());
        block_on(alloc.prepare(&v, &again)).unwrap();
        assert_eq!(gate.unsettled(client), 1);
        // The compute node's slot is taken away.
        pool.put(pool.slot_at(0), 0);
        let fenced = block_on(alloc.collect(&v, &seat));
        assert_eq!(fenced, Err(AllocError::Control(ControlError::Fenced)));
        if cut {
            pool.world.cut(NodeId(1), Trouble::Unreachable);
            let prepared = block_on(alloc.prepare(&v, &seat));
            assert!(matches!(prepared, Err(AllocError::Contended(_))), "{prepared:?}");
            assert_eq!(gate.unsettled(client), 1);
            pool.world.restore(NodeId(1));
        }
        block_on(alloc.prepare(&v, &seat)).unwrap();
        assert!(gate.is_clear(client) && seat.enter().is_some());
    }
}

/// Member numbers wrap, so the next number may be that of a member that still has a slot.
#[test]
fn a_number_that_is_in_use_is_not_drawn() {
    let pool = Pool::new();
    let [_first, _second] = pool.members(false);
    pool.put(pool.area().add(8), 1);
    let _third = pool.join(2, OPTIONS, false);
    assert_eq!(pool.slot(2) >> 2 & 0xFFFF, 3);
}

/// An index uses the allocator through this trait.
#[test]
fn an_index_announces_its_operations() {
    fn due<R: Reclaim<Endpoint>>(reclaim: &R, v: &Endpoint) -> bool {
        reclaim.is_due(v)
    }
    fn seat<R: Reclaim<Endpoint>>(reclaim: &R, v: &Endpoint) -> Option<Seat> {
        reclaim.seat(v)
    }
    fn is_fenced(done: Result<(), dm_index::IndexError>) -> bool {
        done.is_err()
    }
    let pool = Pool::new();
    let options = ReclaimOptions {
        period: Nanos(1),
        ..OPTIONS
    };
    let (alloc, v) = (pool.allocator(0, options, false), pool.world.connect(0).unwrap());
    let never = pool.allocator(1, OPTIONS, false);
    assert!(due(&alloc, &v) && !due(&never, &v));
    assert!(seat(&Allocator::new(1, 0), &v).is_none());
    let seat = seat(&alloc, &v).unwrap();
    assert_eq!(pool.slot(0), 0);
    block_on(Reclaim::prepare(&alloc, &v, &seat)).unwrap();
    let changed = |before| (pool.slot(0), pool.word(pool.slot_at(0).add(8))) != before;
    let before = (pool.slot(0), pool.word(pool.slot_at(0).add(8)));
    block_on(Reclaim::keep_alive(&alloc, &v, &seat)).unwrap();
    assert!(pool.slot(0) != 0 && changed(before));
    let before = (pool.slot(0), pool.word(pool.slot_at(0).add(8)));
    block_on(Reclaim::announce_if_due(&alloc, &v)).unwrap();
    assert!(changed(before));
    // When the last client leaves, its compute node leaves the pool.
    Reclaim::vacate(&alloc, &v, seat);
    assert_eq!(pool.slot(0), 0);
    let seat = Reclaim::seat(&alloc, &v).unwrap();
    assert!(
        is_fenced(block_on(Reclaim::keep_alive(&alloc, &v, &seat))),
        "no member"
    );
}
