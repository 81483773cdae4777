//! Operations that ended in an error stay announced until none of their requests can land any more.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use dm_alloc::{AllocError, Allocator, Class, Descriptor, ReclaimFlaws, ReclaimOptions, Superblock};
use dm_loopback::{Endpoint, Loopback, Trouble, block_on};
use dm_sync::Fingerprint;
use dm_sync::epoch::Seat;
use dm_verbs::{Control, ControlRequest, Env, Nanos, NodeId, RemotePtr, Verbs};

const CLASS: Class = Class { bytes: 1024, kind: 3 };

/// Rounds are done when the test asks for them.
const OPTIONS: ReclaimOptions = ReclaimOptions {
    period: Nanos(u64::MAX),
    looks: u32::MAX,
    ..ReclaimOptions::new()
};

/// A compute node of a pool on two memory nodes.
struct Pool {
    world: Loopback,
    v: Endpoint,
    a: Allocator,
    /// The address of the compute node's slot.
    slot: RemotePtr,
}

impl Pool {
    fn new(options: ReclaimOptions) -> Self {
        let world = Loopback::builder().nodes(2).host_bytes(1 << 20).build().unwrap();
        let v = world.connect(0).unwrap();
        let wanted = Descriptor {
            members: 2,
            ..Descriptor::of(b"test", [])
        };
        let superblock = block_on(Superblock::create_or_open(&v, &wanted)).unwrap();
        Self {
            a: Allocator::for_pool(&superblock, 0, options).chunk_bytes(64 << 10),
            slot: superblock.members.unwrap().at.add(64),
            world,
            v,
        }
    }

    /// Takes a seat for a client.
    fn seat(&self, v: &Endpoint) -> Seat {
        self.a.seat(v).unwrap()
    }

    /// Runs an operation on `seat` that ends in an error, and retires a block afterwards.
    fn fails(&self, v: &Endpoint, seat: &Seat) {
        block_on(self.a.prepare(v, seat)).unwrap();
        seat.enter().unwrap().forget();
        let block = block_on(self.a.take(v, CLASS, Some(self.slot))).unwrap();
        self.a.retire(block.after(4), CLASS);
    }

    /// Does more than enough rounds, and returns whether the retired block is free.
    fn frees(&self, v: &Endpoint, seat: &Seat) -> bool {
        for _ in 0..4 {
            block_on(self.a.collect(v, seat)).unwrap();
        }
        self.a.stats().limbo_bytes == 0
    }

    fn is_member(&self) -> bool {
        block_on(self.v.word(self.slot)).unwrap() != 0
    }
}

#[test]
fn it_stays_announced_until_every_memory_node_has_answered() {
    for error_proves in [false, true] {
        let pool = Pool::new(ReclaimOptions {
            flaws: ReclaimFlaws {
                error_proves,
                ..ReclaimFlaws::NONE
            },
            ..OPTIONS
        });
        let (v, seat) = (&pool.v, pool.seat(&pool.v));
        pool.fails(v, &seat);
        pool.world.cut(NodeId(1), Trouble::Unreachable);
        assert_eq!(pool.frees(v, &seat), error_proves);
        assert_eq!(seat.has_forgotten(), !error_proves);
        pool.world.restore(NodeId(1));
        assert!(pool.frees(v, &seat) && !seat.has_forgotten());
    }
}

/// Failed work stays announced too if it belongs to no client, or if it runs beside the operations of its client. Work
/// that succeeds does not stay announced.
#[test]
fn failed_work_stays_announced_after_its_clients_operation() {
    for (beside, fails) in [(false, true), (true, true), (false, false), (true, false)] {
        let pool = Pool::new(OPTIONS);
        // The client of `seat` has another connection, so it cannot prove anything about this one.
        let (v, w) = (&pool.v, &pool.world.connect(0).unwrap());
        let seat = pool.seat(w);
        block_on(pool.a.prepare(w, &seat)).unwrap();
        block_on(pool.a.prepare(v, &pool.seat(v))).unwrap();
        let work = async {
            if fails {
                Err(AllocError::NoMemoryNodes)
            } else {
                Ok(())
            }
        };
        let done = match beside {
            true => block_on(pool.a.beside(v, work)).map(|ran| assert!(ran.is_some())),
            false => block_on(pool.a.visit(v, work)),
        };
        assert_eq!(done.is_err(), fails);
        let block = block_on(pool.a.take(w, CLASS, Some(pool.slot))).unwrap();
        pool.a.retire(block.after(4), CLASS);
        assert_eq!(pool.frees(w, &seat), !fails);
        // The next client of the failed work's connection reads behind its requests.
        let next = pool.seat(v);
        block_on(pool.a.prepare(v, &next)).unwrap();
        assert!(pool.frees(w, &seat));
    }
}

#[test]
fn it_is_over_when_its_client_is_fenced() {
    let pool = Pool::new(OPTIONS);
    let (v, seat) = (&pool.v, pool.seat(&pool.v));
    pool.fails(v, &seat);
    let other = pool.world.connect(1).unwrap();
    block_on(other.call(ControlRequest::Fence { client: v.client() })).unwrap();
    block_on(pool.a.prepare(v, &seat)).unwrap();
    assert!(!seat.has_forgotten());
}

#[test]
fn the_next_client_of_the_connection_ends_it() {
    let pool = Pool::new(OPTIONS);
    let (v, w) = (&pool.v, &pool.world.connect(0).unwrap());
    let of_another = pool.seat(w);
    // The next client may have come later, or be there already.
    for is_there in [false, true] {
        let (seat, there) = (pool.seat(v), pool.seat(v));
        pool.fails(v, &seat);
        pool.a.vacate(v, seat);
        assert!(!pool.frees(w, &of_another), "another connection proves nothing");
        let next = match is_there {
            true => there,
            false => {
                drop(there);
                let left = pool.seat(v);
                assert!(left.has_forgotten());
                left
            }
        };
        assert!(pool.frees(v, &next) && !next.has_forgotten());
        assert!(!pool.seat(v).has_forgotten(), "nothing is left behind");
    }
}

/// The explorer must tell states apart that differ only in the seats that clients have left, or in who left them: the
/// next client of that connection takes the seat over.
#[test]
fn a_seat_that_was_left_is_a_part_of_the_state() {
    let left_by = |there: usize, operations: u32| {
        let pool = Pool::new(ReclaimOptions {
            operations,
            ..OPTIONS
        });
        let connections = [pool.world.connect(0).unwrap(), pool.world.connect(0).unwrap()];
        let seats = connections.each_ref().map(|v| pool.seat(v));
        for (v, seat) in connections.iter().zip(&seats) {
            pool.fails(v, seat);
        }
        let before = pool.a.fingerprint();
        let [first, second] = seats;
        let (left, kept) = if there == 0 {
            (first, second)
        } else {
            (second, first)
        };
        pool.a.vacate(&connections[there], left);
        let after = pool.a.fingerprint();
        assert_ne!(after, before);
        let again = pool.seat(&connections[there]);
        assert!(again.has_forgotten());
        assert_eq!(pool.a.fingerprint(), before);
        drop((again, kept));
        after
    };
    assert_ne!(left_by(0, 8), left_by(1, 8));
    assert_eq!(left_by(0, 8), left_by(0, 8));
    // The seats allow different numbers of further operations.
    assert_ne!(left_by(0, 8), left_by(0, 9));
}

#[test]
fn the_last_client_takes_its_compute_node_along_unless_something_may_land() {
    let pool = Pool::new(OPTIONS);
    let (v, seat) = (&pool.v, pool.seat(&pool.v));
    pool.fails(v, &seat);
    pool.a.vacate(v, seat);
    assert!(pool.is_member());
    let next = pool.seat(v);
    block_on(pool.a.prepare(v, &next)).unwrap();
    assert!(pool.is_member());
    pool.a.vacate(v, next);
    assert!(!pool.is_member());
}
