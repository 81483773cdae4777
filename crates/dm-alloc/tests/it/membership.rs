//! A compute node's membership, verb by verb: what its clients may do, and what its slot says.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use dm_alloc::{AllocError, Allocator, Class, Descriptor, ReclaimFlaws, ReclaimOptions, Superblock};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_sync::epoch::{Epochs, Seat};
use dm_verbs::testing::Altered;
use dm_verbs::{ControlError, ControlRequest, Env, Nanos, RemotePtr, Transport, Verbs};

const CLASS: Class = Class { bytes: 1024, kind: 3 };

/// Rounds run only on request, and nobody is treated as silent.
const OPTIONS: ReclaimOptions = ReclaimOptions {
    period: Nanos(u64::MAX),
    looks: u32::MAX,
    attempts: 8,
    ..ReclaimOptions::new()
};

struct Pool {
    world: Loopback,
    superblock: Superblock,
    v: Endpoint,
}

/// Makes a pool of one memory node and two members, whose completions come after at most `delays` polls.
fn pool(delays: u32, seed: u64) -> Pool {
    pool_in(Loopback::builder().delays(delays).seed(seed))
}

/// Makes a pool of one memory node and two members in a world like this one.
fn pool_in(world: dm_loopback::Builder) -> Pool {
    let world = world.nodes(1).host_bytes(1 << 20).build().unwrap();
    let v = world.connect(7).unwrap();
    let wanted = Descriptor {
        members: 2,
        ..Descriptor::of(b"test", [])
    };
    let superblock = block_on(Superblock::create_or_open(&v, &wanted)).unwrap();
    Pool { world, superblock, v }
}

impl Pool {
    fn allocator(&self, options: ReclaimOptions) -> Allocator {
        Allocator::for_pool(&self.superblock, 0, options).chunk_bytes(64 << 10)
    }

    fn client(&self) -> Endpoint {
        self.world.connect(0).unwrap()
    }

    fn word(&self, offset: u64) -> u64 {
        block_on(self.v.word(self.area().add(offset))).unwrap()
    }

    fn area(&self) -> RemotePtr {
        self.superblock.members.unwrap().at
    }

    fn epoch(&self) -> u64 {
        self.word(0)
    }

    /// Returns the word and the beat of a slot.
    fn slot(&self, i: u64) -> (u64, u64) {
        (self.word(64 * (1 + i)), self.word(64 * (1 + i) + 8))
    }

    /// Frees slot 0, as members do that find its member silent.
    fn expel(&self) {
        let at = self.area().add(64);
        let word = block_on(self.v.word(at)).unwrap();
        assert_eq!(block_on(self.v.cas(at, word, 0)), Ok(word));
    }
}

fn seat(a: &Allocator) -> Seat {
    Epochs::seat(a.epochs().unwrap())
}

fn retire(v: &Endpoint, a: &Allocator) {
    let block = block_on(a.take(v, CLASS, None)).unwrap();
    a.retire(block.after(4), CLASS);
}

/// Polls at most `polls` times, and returns whether the work is over.
fn begin<F: Future + ?Sized>(work: &mut Pin<Box<F>>, polls: u32) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    (0..polls).any(|_| work.as_mut().poll(&mut cx).is_ready())
}

/// Stays pending for `polls` polls.
async fn ready_after(polls: u32) {
    let mut polled = 0;
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        polled += 1;
        match polled > polls {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

fn is_fenced<T>(done: &Result<T, AllocError>) -> bool {
    matches!(done, Err(AllocError::Control(ControlError::Fenced)))
}

#[test]
fn three_rounds_free_what_was_retired_before_the_first() {
    let pool = pool(0, 1);
    let (v, a) = (pool.client(), pool.allocator(OPTIONS));
    let seat = seat(&a);
    let mut block = block_on(a.take(&v, CLASS, None)).unwrap();
    for cycle in 0..4 {
        block = block.after(cycle);
        a.retire(block, CLASS);
        let stats = a.stats();
        assert_eq!(
            (stats.limbo_bytes, stats.in_use_bytes, stats.free_bytes),
            (1024, 0, 0)
        );
        for _ in 0..3 {
            block_on(a.collect(&v, &seat)).unwrap();
        }
        let stats = a.stats();
        assert_eq!((stats.limbo_bytes, stats.free_bytes), (0, 1024), "cycle {cycle}");
        assert_eq!(block_on(a.take(&v, CLASS, None)), Ok(block));
        assert_eq!(a.stats().in_use_bytes, 1024);
    }
    // While an earlier operation runs, the announced epoch stays.
    block_on(a.prepare(&v, &seat)).unwrap();
    let running = seat.enter().unwrap();
    a.retire(block.after(9), CLASS);
    for _ in 0..6 {
        block_on(a.collect(&v, &seat)).unwrap();
    }
    assert_eq!(a.stats().limbo_bytes, 1024);
    drop(running);
}

#[test]
fn who_has_no_clients_leaves_when_its_work_is_done() {
    let pool = pool(0, 2);
    let (v, a) = (pool.client(), pool.allocator(OPTIONS));
    retire(&v, &a);
    for round in 1..4 {
        block_on(a.collect_alone(&v)).unwrap();
        assert_eq!(pool.slot(0).0, 0, "after round {round}");
    }
    assert_eq!(a.stats().free_bytes, 1024);
    let seen = block_on(a.visit(&v, async { Ok::<_, AllocError>(pool.slot(0).0) }));
    assert_ne!(seen.unwrap(), 0, "a member while it works");
    assert_eq!(pool.slot(0).0, 0);
    let seat = seat(&a);
    block_on(a.collect_alone(&v)).unwrap();
    assert_ne!(pool.slot(0).0, 0, "this client stays");
    drop(seat);
    a.leave_if_empty(&v);
    assert_eq!(pool.slot(0).0, 0);
}

#[test]
fn nobody_leaves_while_an_operation_or_an_announcement_is_under_way() {
    let pool = pool(3, 3);
    let (v, w, a) = (pool.client(), pool.client(), pool.allocator(OPTIONS));
    let seat = seat(&a);
    block_on(a.prepare(&v, &seat)).unwrap();
    let running = seat.enter().unwrap();
    a.leave(&w);
    assert_ne!(pool.slot(0).0, 0);
    drop(running);
    let mut under_way = 0;
    for _ in 0..8 {
        let mut round = Box::pin(a.collect(&v, &seat));
        if begin(&mut round, 1) {
            continue;
        }
        under_way += 1;
        a.leave(&w);
        assert_ne!(pool.slot(0).0, 0);
        block_on(round).unwrap();
    }
    assert!(under_way > 0);
    a.leave(&w);
    assert_eq!(pool.slot(0).0, 0);
    assert!(seat.enter().is_none(), "it has to join first");
}

#[test]
fn a_client_is_enlisted_once_and_does_no_round_that_is_not_due() {
    let pool = pool(0, 4);
    let v = Altered::new(pool.client());
    let a = pool.allocator(OPTIONS);
    let seat = seat(&a);
    assert!(is_fenced(&block_on(a.keep_alive(&v, &seat))), "no member yet");
    block_on(a.prepare(&v, &seat)).unwrap();
    let before = pool.slot(0);
    let within = Epochs::seat(a.epochs().unwrap());
    assert!(within.enter().is_none());
    block_on(a.enroll_within(&v, &within));
    assert!(within.enter().is_some());
    for _ in 0..3 {
        block_on(a.prepare(&v, &seat)).unwrap();
        block_on(a.keep_alive(&v, &seat)).unwrap();
        block_on(a.announce_if_due(&v)).unwrap();
        block_on(a.while_announcing(&v, ready_after(9)));
    }
    assert_eq!(pool.slot(0), before, "none was due");
    let member = ControlRequest::Enlist { member: 1 };
    assert_eq!(*v.asked.borrow(), [ControlRequest::Join, member]);
    block_on(a.collect(&v, &seat)).unwrap();
    assert_ne!(pool.slot(0), before);
}

#[test]
fn a_round_that_is_due_is_done_by_whoever_comes() {
    let world = Loopback::builder()
        .nodes(1)
        .host_bytes(1 << 20)
        .counted_clock(Nanos(10_000));
    let world = world.build().unwrap();
    let v = world.connect(0).unwrap();
    let wanted = Descriptor {
        members: 2,
        ..Descriptor::of(b"test", [])
    };
    let superblock = block_on(Superblock::create_or_open(&v, &wanted)).unwrap();
    let pool = Pool {
        v: world.connect(7).unwrap(),
        world,
        superblock,
    };
    let a = pool.allocator(ReclaimOptions {
        period: Nanos(1),
        ..OPTIONS
    });
    let seat = seat(&a);
    block_on(a.prepare(&v, &seat)).unwrap();
    let mut before = pool.slot(0);
    let mut changed = |what| {
        let now = pool.slot(0);
        assert_ne!(now, before, "{what} did no round");
        before = now;
    };
    block_on(a.prepare(&v, &seat)).unwrap();
    changed("prepare");
    block_on(a.keep_alive(&v, &seat)).unwrap();
    changed("beat");
    block_on(a.announce_if_due(&v)).unwrap();
    changed("tend");
    block_on(a.while_announcing(&v, ready_after(9)));
    changed("tending");
}

#[test]
fn who_is_expelled_is_told_and_joins_anew() {
    let pool = pool(0, 5);
    let (v, w, a) = (pool.client(), pool.client(), pool.allocator(OPTIONS));
    let (one, two) = (seat(&a), seat(&a));
    block_on(a.prepare(&v, &one)).unwrap();
    // A round that announces a new epoch, a round that does not, and a new client each notice the expulsion.
    for fresh in [true, false] {
        if fresh {
            retire(&v, &a);
            block_on(a.collect(&v, &one)).unwrap();
        }
        let word = pool.slot(0).0;
        pool.expel();
        assert!(is_fenced(&block_on(a.collect(&v, &one))), "fresh: {fresh}");
        assert!(one.enter().is_none() && is_fenced(&block_on(a.keep_alive(&v, &one))));
        block_on(a.prepare(&v, &one)).unwrap();
        assert!(one.enter().is_some());
        let (number, before) = (pool.slot(0).0 >> 2 & 0xFFFF, word >> 2 & 0xFFFF);
        assert_eq!(number, before + 1, "another member");
    }
    pool.expel();
    block_on(a.prepare(&w, &two)).unwrap();
    assert!(two.enter().is_some());
    assert_eq!(pool.slot(0).0 >> 2 & 0xFFFF, 4, "0 is no number");
    assert!(one.enter().is_none());
}

/// Work beside an operation runs only while its compute node is a member, and only for a client of this membership.
#[test]
fn who_is_no_member_does_no_housekeeping() {
    let pool = pool(0, 6);
    let (v, w, a) = (pool.client(), pool.client(), pool.allocator(OPTIONS));
    let runs = || {
        let ran = core::cell::Cell::new(false);
        let work = async {
            ran.set(true);
            Ok::<_, AllocError>(())
        };
        let answered = block_on(a.beside(&v, work)).unwrap().is_some();
        assert_eq!(answered, ran.get());
        answered
    };
    assert!(!runs(), "it has never joined");
    let (one, two) = (seat(&a), seat(&a));
    assert!(!runs(), "a seat is no membership");
    block_on(a.prepare(&v, &one)).unwrap();
    assert!(runs());
    a.leave(&v);
    assert!(!runs(), "it has left");
    block_on(a.prepare(&v, &one)).unwrap();
    assert!(runs());
    pool.expel();
    assert!(is_fenced(&block_on(a.collect(&v, &one))));
    assert!(!runs(), "it was expelled");
    block_on(a.prepare(&w, &two)).unwrap();
    assert!(!runs(), "this client belongs to the earlier membership");
    block_on(a.prepare(&v, &one)).unwrap();
    assert!(runs());
}

/// The point of a round at which its compute node's slot was taken away.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Was {
    /// It was drawing its tag, before its announcement.
    Drawing,
    /// Its announcement had been posted.
    Posted,
    /// It had not begun: its announcement was posted afterwards.
    Late,
}

#[test]
fn a_round_of_an_earlier_membership_does_nothing_to_the_next() {
    for was in [Was::Drawing, Was::Posted, Was::Late] {
        let mut met = 0;
        for seed in 0..40 {
            let pool = pool(3, seed);
            let (v, w, a) = (pool.client(), pool.client(), pool.allocator(OPTIONS));
            let (one, two) = (seat(&a), seat(&a));
            block_on(a.prepare(&v, &one)).unwrap();
            block_on(a.prepare(&w, &two)).unwrap();
            if was == Was::Drawing {
                retire(&v, &a);
            }
            if was == Was::Late {
                pool.expel();
            }
            let before = pool.slot(0);
            let mut round = Box::pin(a.collect(&v, &one));
            let over = begin(&mut round, 1);
            let posted = pool.slot(0) != before;
            if over || posted != (was != Was::Drawing) {
                continue;
            }
            met += 1;
            if was != Was::Late {
                pool.expel();
            }
            assert!(is_fenced(&block_on(a.collect(&w, &two))));
            block_on(a.prepare(&w, &two)).unwrap();
            assert_eq!(
                is_fenced(&block_on(round)),
                was != Was::Posted,
                "{was:?}, seed {seed}"
            );
            assert!(two.enter().is_some(), "the new membership stays");
            block_on(a.collect(&w, &two)).unwrap();
        }
        assert!(met > 0, "{was:?}");
    }
}

#[test]
fn one_client_at_a_time_draws_a_tag() {
    for seed in 0..8 {
        let pool = pool(3, seed);
        let (v, w, a) = (pool.client(), pool.client(), pool.allocator(OPTIONS));
        let (one, two) = (seat(&a), seat(&a));
        block_on(a.prepare(&v, &one)).unwrap();
        block_on(a.prepare(&w, &two)).unwrap();
        retire(&v, &a);
        let mut round = Box::pin(a.collect(&v, &one));
        if begin(&mut round, 1) {
            continue;
        }
        assert_eq!(pool.epoch(), 1);
        retire(&w, &a);
        block_on(a.collect(&w, &two)).unwrap();
        assert_eq!(pool.epoch(), 1, "the second waits for the next round");
        block_on(round).unwrap();
        block_on(a.collect(&w, &two)).unwrap();
        assert_eq!(pool.epoch(), 2);
    }
}

/// An abandoned announcement of a new epoch may have landed. The next announcement must still change the slot, so it
/// changes the beat.
#[test]
fn an_announcement_behind_one_that_was_given_up_beats() {
    let mut given_up = 0;
    for seed in 0..8 {
        let pool = pool(3, seed);
        let (v, a) = (pool.client(), pool.allocator(OPTIONS));
        let seat = seat(&a);
        retire(&v, &a);
        block_on(a.collect(&v, &seat)).unwrap();
        let mut round = Box::pin(a.collect(&v, &seat));
        if begin(&mut round, 1) {
            continue;
        }
        drop(round);
        let _ = v.take_deferred();
        given_up += 1;
        let landed = pool.slot(0);
        assert_eq!(landed.0 >> 18, 1);
        block_on(a.collect(&v, &seat)).unwrap();
        assert_ne!(pool.slot(0), landed, "it looks silent");
    }
    assert!(given_up > 0);
}

#[test]
fn a_client_that_gives_up_joining_leaves_it_to_the_next() {
    // Five of these steps are the time for which a client waits for another one's join.
    let step = Nanos::from_millis(2_000);
    for polls in 1..40 {
        let world = Loopback::builder().delays(3).seed(polls);
        let pool = pool_in(world.lease(Nanos::from_millis(10)).counted_clock(step));
        let (v, w, a) = (pool.client(), pool.client(), pool.allocator(OPTIONS));
        let (one, two) = (seat(&a), seat(&a));
        let mut joining = Box::pin(a.prepare(&v, &one));
        let over = begin(&mut joining, polls as u32);
        if !over && pool.slot(0).0 == 0 {
            let stuck = block_on(a.prepare(&w, &two));
            let Err(AllocError::Contended(e)) = stuck else {
                panic!("{stuck:?} beside a client that joins")
            };
            assert_eq!((e.at, e.attempts), (pool.area().into(), 5));
        }
        drop(joining);
        let _ = v.take_deferred();
        block_on(a.prepare(&w, &two)).unwrap();
        assert!(two.enter().is_some());
        assert!(
            pool.slot(0).0 == 0 || pool.slot(1).0 == 0,
            "after {polls} polls one of the two is nobody's"
        );
    }
}

#[test]
fn who_remembers_begins_operations_in_the_epoch_of_the_last_turn() {
    let pool = pool(0, 6);
    let (v, a) = (
        pool.client(),
        pool.allocator(ReclaimOptions {
            remembers: true,
            ..OPTIONS
        }),
    );
    let seat = seat(&a);
    let mut forgotten = 0;
    assert_eq!(a.turn(|| forgotten += 1), 0);
    for _ in 0..5 {
        retire(&v, &a);
        block_on(a.collect(&v, &seat)).unwrap();
    }
    assert_eq!((pool.epoch(), a.turned(), a.epochs().unwrap().epoch()), (5, 0, 0));
    assert_eq!((a.turn(|| forgotten += 1), a.turned()), (0, 5));
    assert_eq!((a.turn(|| forgotten += 1), a.turned()), (5, 5));
    assert_eq!(a.turn(|| forgotten += 1), 5, "nothing to gain");
    assert_eq!(forgotten, 2);
    assert_eq!(pool.allocator(OPTIONS).turned(), 0);
}

/// Three flaws do what their names say. Models rely on it.
#[test]
fn flaws_do_what_they_are_called() {
    let pool = pool(3, 7);
    let with = |flaws| pool.allocator(ReclaimOptions { flaws, ..OPTIONS });
    let v = pool.client();
    let a = with(ReclaimFlaws {
        no_grace: true,
        same_life: true,
        ..ReclaimFlaws::default()
    });
    let block = block_on(a.take(&v, CLASS, None)).unwrap();
    a.retire(block.after(3).after(7), CLASS);
    let again = a.at_hand(v.client(), CLASS, block.at).unwrap();
    assert_eq!((again.at, again.incarnation, again.version), (block.at, 2, 6));

    let a = with(ReclaimFlaws {
        one_announces: true,
        ..ReclaimFlaws::default()
    });
    let (w, one, two) = (pool.client(), seat(&a), seat(&a));
    block_on(a.prepare(&v, &one)).unwrap();
    block_on(a.prepare(&w, &two)).unwrap();
    let mut met = 0;
    for _ in 0..8 {
        let before = pool.slot(0);
        let mut round = Box::pin(a.collect(&v, &one));
        if begin(&mut round, 1) {
            assert_ne!(pool.slot(0), before, "alone");
            continue;
        }
        met += 1;
        let posted = pool.slot(0);
        block_on(a.collect(&w, &two)).unwrap();
        assert_eq!(pool.slot(0), posted, "the other is in it");
        block_on(round).unwrap();
        assert_ne!(pool.slot(0), before, "alone");
    }
    assert!(met > 0);
}

#[test]
fn a_slot_more_than_there_are_is_refused() {
    let pool = pool(0, 8);
    let v = pool.client();
    let members = [0, 1, 2].map(|_| pool.allocator(OPTIONS));
    for (i, a) in members.iter().enumerate() {
        let done = block_on(a.prepare(&v, &seat(a)));
        match i {
            0 | 1 => done.unwrap(),
            _ => assert_eq!(done, Err(AllocError::NoSlot { slots: 2 })),
        }
    }
}

/// A memory node refuses a chunk, and says that it has more memory left than the chunk takes.
#[test]
fn a_memory_node_that_contradicts_itself_is_asked_for_less_each_time() {
    let pool = pool(0, 9);
    let v = Altered {
        refuses: |request| match *request {
            ControlRequest::Chunk { node, bytes } => Some(ControlError::OutOfMemory {
                node,
                wanted: bytes,
                left: u64::MAX,
            }),
            _ => None,
        },
        ..Altered::new(pool.client())
    };
    let a = Allocator::new(1, 0).chunk_bytes(64 << 10);
    let full = block_on(a.alloc(&v, 1024, None));
    assert!(matches!(full, Err(AllocError::Exhausted { .. })), "{full:?}");
    let asked: Vec<u64> = v.asked.borrow().iter().map(bytes_of).collect();
    assert_eq!(
        asked,
        (1..=16).rev().map(|pages| pages * 4096).collect::<Vec<_>>()
    );
}

fn bytes_of(request: &ControlRequest) -> u64 {
    match *request {
        ControlRequest::Chunk { bytes, .. } => bytes,
        _ => 0,
    }
}
