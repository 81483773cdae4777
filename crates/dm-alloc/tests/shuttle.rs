//! Reclamation by the clients of one compute node under shuttle. The models run the real allocator over loopback,
//! where each verb is one step. Each model has broken twins that must be found.
#![cfg(dm_shuttle)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use core::future::{Future, poll_fn};
use core::pin::pin;

use dm_alloc::{Allocator, Block, Class, MemberArea, ReclaimFlaws, ReclaimOptions};
use dm_loopback::{Endpoint, Loopback};
use dm_sync::epoch::{Epochs, Running, Seat};
use dm_sync::schedules::{self, Witness, below, explore, must_fail};
use dm_sync::{Arc, thread};
use dm_verbs::{Nanos, RemotePtr, Verbs};

const CLASS: Class = Class { bytes: 64, kind: 0 };
/// Words that lead to one block each.
const ROOTS: u64 = 2;
/// Operations of each client.
const OPERATIONS: u32 = 8;
/// The time by which the counted clock advances each time a client reads it.
const STEP: Nanos = Nanos(100);

static REUSED: Witness = Witness::new("a block used again");
static LOST: Witness = Witness::new("a block that another put in place first");
static PINNED: Witness = Witness::new("a round beside an operation that ran");
static ENROLLED: Witness = Witness::new("a client that had to enroll anew");

/// Runs `future` to its end. While it is pending, the other threads run first. A delayed request of loopback wakes its
/// own task at once. So without the yield, a schedule that prefers this thread would run no other thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    schedules::block_on(poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            thread::yield_now();
        }
        polled
    }))
}

struct Node {
    alloc: Allocator,
    world: Loopback,
    /// The members' area; the roots follow it.
    area: RemotePtr,
}

/// A client of the compute node.
struct Client<'n> {
    v: Endpoint,
    node: &'n Node,
    seat: Seat,
}

impl Node {
    fn new(flaws: ReclaimFlaws) -> Arc<Self> {
        let world = Loopback::builder()
            .nodes(1)
            .host_bytes(128 << 10)
            .chip_bytes(0)
            // Delays keep requests in flight while other clients run.
            .delays(2)
            .counted_clock(STEP)
            .build()
            .unwrap();
        let options = ReclaimOptions {
            period: Nanos(20 * STEP.0),
            operations: 3,
            // The counted clock advances with each look at it, so nobody may be treated as silent.
            looks: u32::MAX,
            flaws,
            ..ReclaimOptions::new()
        };
        let v = world.connect(0).unwrap();
        let at = block_on(Allocator::new(1, 0).chunk_bytes(4_096).alloc(&v, 4_096, None)).unwrap();
        let area = MemberArea { at, slots: 2 };
        let alloc = Allocator::new(1, 0)
            .chunk_bytes(64 << 10)
            .reclaiming(area, options);
        Arc::new(Self {
            alloc,
            world,
            area: at,
        })
    }

    fn root(&self, number: u64) -> RemotePtr {
        self.area.add(2_048 + 64 * number)
    }

    fn client(&self) -> Client<'_> {
        Client {
            v: self.world.connect(0).unwrap(),
            node: self,
            seat: Epochs::seat(self.alloc.epochs().unwrap()),
        }
    }
}

/// Returns a value that says which root a block belongs to and which write made it.
fn stamp(client: u64, number: u64, root: u64) -> u64 {
    client << 32 | number << 8 | root
}

impl Client<'_> {
    async fn begins(&self) -> Running<'_> {
        loop {
            if let Some(running) = self.seat.enter() {
                return running;
            }
            ENROLLED.seen();
            self.node.alloc.prepare(&self.v, &self.seat).await.unwrap();
        }
    }

    /// Follows a root and looks at the block twice.
    async fn reads(&self, number: u64) {
        let _running = self.begins().await;
        let block = self.v.word(self.node.root(number)).await.unwrap();
        if block == 0 {
            return;
        }
        let block = RemotePtr::from_raw(block);
        let first = self.v.word(block).await.unwrap();
        let second = self.v.word(block).await.unwrap();
        let same = first == second && first & 0xff == number;
        assert!(same, "used again under a reader");
    }

    /// Replaces a block by a new one, and retires the old one.
    async fn replaces(&self, number: u64, stamp: u64) {
        let running = self.begins().await;
        let old = self.v.word(self.node.root(number)).await.unwrap();
        let new = self.node.alloc.take(&self.v, CLASS, None).await.unwrap();
        if !new.is_fresh() {
            REUSED.seen();
        }
        self.v.write(new.at, &stamp.to_le_bytes()).await.unwrap();
        let won = self
            .v
            .cas(self.node.root(number), old, new.at.raw())
            .await
            .unwrap()
            == old;
        if !won {
            LOST.seen();
            self.node.alloc.give_back(new.after(1), CLASS);
        } else if old != 0 {
            let old = Block::fresh(RemotePtr::from_raw(old)).after(1);
            self.node.alloc.retire(old, CLASS);
        }
        drop(running);
    }

    async fn collects(&self) {
        if self.node.alloc.epochs().unwrap().oldest().is_some() {
            PINNED.seen();
        }
        self.node.alloc.collect(&self.v, &self.seat).await.unwrap();
    }
}

fn clients(many: u64, flaws: ReclaimFlaws) {
    let node = Node::new(flaws);
    let threads: Vec<_> = (1..=many)
        .map(|client| {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                let me = node.client();
                for n in 0..OPERATIONS {
                    let number = below(ROOTS);
                    match below(8) {
                        0..3 => block_on(me.reads(number)),
                        3..6 => block_on(me.replaces(number, stamp(client, n.into(), number))),
                        6 => block_on(me.collects()),
                        _ => block_on(me.node.alloc.announce_if_due(&me.v)).unwrap(),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    // No thread reads any more, so three rounds free the rest.
    let last = node.client();
    for _ in 0..3 {
        block_on(last.collects());
    }
    let stats = node.alloc.stats();
    assert_eq!(stats.limbo_bytes, 0, "what nobody reads is not free");
    let used = (0..ROOTS).filter(|n| block_on(last.v.word(node.root(*n))).unwrap() != 0);
    assert_eq!(stats.in_use_bytes, 64 * used.count() as i64, "a block is lost");
}

#[test]
fn blocks_wait_for_the_clients_that_read_them() {
    let witnesses = [&REUSED, &LOST, &PINNED, &ENROLLED];
    explore("four clients", &witnesses, || clients(4, ReclaimFlaws::default()));
}

#[test]
fn flaws_are_noticed() {
    let none = ReclaimFlaws::default();
    let no_grace = ReclaimFlaws {
        no_grace: true,
        ..none
    };
    must_fail("no grace", "used again under a reader", move || {
        clients(4, no_grace)
    });
    let announces_now = ReclaimFlaws {
        announces_now: true,
        ..none
    };
    must_fail("announces now", "used again under a reader", move || {
        clients(4, announces_now);
    });
}
