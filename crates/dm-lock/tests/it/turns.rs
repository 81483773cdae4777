//! Local turns: which client may be handed a lock, and what it receives with its turn.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::future::Future;
use std::sync::Arc;
use std::task::Wake;

use dm_lock::local::{Acquire, AlreadyHeld, Arrival, Handed, LocalLockTable, Orphan, Turn};
use dm_lock::{GlobalLockTable, Local, LockId, LockOptions, Locks};
use dm_sync::Mutex;
use dm_verbs::{Capability, Caps, ClientId, NodeId};

const ID: LockId = LockId {
    node: NodeId(0),
    high: 0,
    index: 7,
};
const HANDED: Handed = Handed { raw: 9, payload: 3 };

fn poll<'t, O: Orphan>(acquire: &mut Acquire<'t, O>) -> Poll<Result<(Turn<'t>, Arrival), AlreadyHeld>> {
    Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_turn_can_be_handed_over_while_somebody_waits_up_to_the_bound() {
    let table = LocalLockTable::new(1);
    let first = table.try_acquire(ID, ClientId(1)).unwrap().unwrap();
    assert!(!first.can_hand_over(), "nobody waits");
    let mut second = table.acquire(ID, ClientId(2), |_| None);
    let mut third = table.acquire(ID, ClientId(3), |_| None);
    assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
    assert!(first.can_hand_over());
    first.hand_over(HANDED).unwrap();
    let Poll::Ready(Ok((second, _))) = poll(&mut second) else {
        panic!("it was handed over")
    };
    assert!(
        !second.can_hand_over(),
        "one in a row is the bound, though somebody waits"
    );
    let second = second.hand_over(HANDED).unwrap_err();
    second.pass();
    assert!(poll(&mut third).is_ready());
}

#[test]
fn an_unsettled_word_is_passed_on_with_the_turn() {
    let table = LocalLockTable::new(1);
    let mut first = table.try_acquire(ID, ClientId(1)).unwrap().unwrap();
    first.set_unsettled(Some(5));
    assert_eq!(first.unsettled(), Some(5));
    let mut second = table.acquire(ID, ClientId(2), |_| None);
    assert!(poll(&mut second).is_pending());
    first.pass();
    let Poll::Ready(Ok((mut second, _))) = poll(&mut second) else {
        panic!("it was passed on")
    };
    assert_eq!(second.unsettled(), Some(5));
    second.set_unsettled(None);
    second.pass();
    let third = table.try_acquire(ID, ClientId(3)).unwrap().unwrap();
    assert_eq!(third.unsettled(), None);
}

/// A waiter is dropped after a lock was handed to it. The unsettled word that its orphan returns goes to the next
/// client.
#[test]
fn the_unlock_of_a_dropped_waiter_goes_to_the_next_client() {
    let table = LocalLockTable::new(8);
    let first = table.try_acquire(ID, ClientId(1)).unwrap().unwrap();
    let mut second = table.acquire(ID, ClientId(2), |handed: Handed| Some(handed.raw + 1));
    let mut third = table.acquire(ID, ClientId(3), |_| None);
    assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
    first.hand_over(HANDED).unwrap();
    drop(second);
    let Poll::Ready(Ok((third, arrival))) = poll(&mut third) else {
        panic!("the turn goes on")
    };
    assert_eq!(arrival.handed, None, "the lock itself was given back");
    assert_eq!(third.unsettled(), Some(HANDED.raw + 1));
}

#[test]
fn locks_say_how_they_were_made() {
    let options = LockOptions {
        local: Local::Off,
        shared: true,
        ..LockOptions::default()
    };
    let locks = Locks::new(options, GlobalLockTable::on_chip(1, 64));
    assert_eq!(*locks.options(), options);
    assert_eq!(locks.needs(), options.needs());
    assert!(locks.needs().contains(&Capability::MaskedAtomics));
    let caps = |masked_atomics| Caps {
        masked_atomics,
        ..Caps::default()
    };
    assert!(locks.check(&caps(false)).is_err() && locks.check(&caps(true)).is_ok());
}

/// All locks of the table are in one shard.
#[test]
fn locks_of_a_shard_keep_their_waiters_apart() {
    let table = LocalLockTable::for_locks(8, 1);
    let ids = [6, 7].map(|index| LockId { index, ..ID });
    let [first, second] = ids.map(|id| table.try_acquire(id, ClientId(1)).unwrap().unwrap());
    let [mut of_first, mut of_second] = [(ids[0], 2), (ids[1], 3)].map(|(id, client)| {
        let mut waiter = table.acquire(id, ClientId(client), |_| None);
        assert!(poll(&mut waiter).is_pending());
        waiter
    });
    second.hand_over(HANDED).unwrap();
    assert!(poll(&mut of_first).is_pending());
    assert!(poll(&mut of_second).is_ready());
    first.pass();
    assert!(poll(&mut of_first).is_ready());
}

struct Flag(Mutex<bool>);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.with(|woken| *woken = true);
    }
}

#[test]
fn a_waiting_client_is_woken_by_its_last_waker() {
    let table = LocalLockTable::new(8);
    let first = table.try_acquire(ID, ClientId(1)).unwrap().unwrap();
    let mut second = table.acquire(ID, ClientId(2), |_| None);
    let flags = [(); 2].map(|()| Arc::new(Flag(Mutex::new(false))));
    for flag in &flags {
        let waker = Waker::from(Arc::clone(flag));
        assert!(
            Pin::new(&mut second)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    first.pass();
    assert_eq!(flags.map(|flag| flag.0.with(|woken| *woken)), [false, true]);
    assert!(poll(&mut second).is_ready());
}
