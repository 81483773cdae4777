//! Uses dmkit's locks in a program that has its own RDMA layer: the threads of two machines move amounts between
//! records.
//!
//! `rdma.rs` stands for the program's own RDMA layer; `adapter.rs` is all that dmkit's code needs to run on that layer.
//!
//! ```text
//! cargo run -p dm-lock --example own_rdma
//! ```

mod adapter;
mod rdma;

use std::error::Error;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use dm_lock::{GlobalLockTable, LockError, LockOptions, LockPlace, Locks};
use dm_verbs::{ClientId, NodeId, Place, RemotePtr, Verbs};

use self::adapter::Client;
use self::rdma::Connection;

const MEMORY_NODES: u16 = 2;
/// The number of lock words at the start of each memory node. There are few of them, so that records share locks.
const LOCKS: u32 = 8;
const RECORDS: u64 = 16;
const START: u64 = 100;

const fn at(node: u16, offset: u64) -> RemotePtr {
    match RemotePtr::new(NodeId(node), offset) {
        Some(at) => at,
        None => RemotePtr::NULL,
    }
}

/// Returns the address of the `n`-th record. Each record is a line behind the locks on one of the two memory
/// nodes.
const fn record(n: u64) -> RemotePtr {
    at((n % 2) as u16, 64 * (LOCKS as u64 + n / 2))
}

/// Returns the locks that the threads of one machine share. All machines of the program must use the same lock tables.
fn locks() -> Locks {
    let options = LockOptions {
        place: LockPlace::Host,
        ..LockOptions::default()
    };
    let tables: Vec<Place> = (0..MEMORY_NODES).map(|node| at(node, 0).into()).collect();
    Locks::new(options, GlobalLockTable::new(tables, LOCKS))
}

/// Moves one unit to a record on another memory node, under the locks of both records. If `from` is empty, no unit
/// moves.
async fn transfer<V: Verbs>(v: &V, locks: &Locks, from: RemotePtr, to: RemotePtr) -> Result<(), LockError> {
    let both = locks.lock_set(v, &[from, to]).await?;
    let (has, gets) = (v.word(from).await?, v.word(to).await?);
    let moved = has.min(1);
    let less = v.chain(from.node()).write_word(from, has - moved);
    let more = v.chain(to.node()).write_word(to, gets + moved);
    both.write_back([less, more]).await
}

/// Runs a future to its end: the thread polls it until it is ready. A program would use its own executor here.
fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        thread::yield_now();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let connection = Connection::new(MEMORY_NODES, 64 << 10);
    let v = Client::new(connection.clone(), ClientId(0), 0);
    for n in 0..RECORDS {
        run(v.write(record(n), &START.to_le_bytes()))?;
    }

    let machines = [locks(), locks()];
    thread::scope(|scope| {
        for thread in 1..=4u16 {
            let (connection, machine) = (connection.clone(), thread % 2);
            let locks = &machines[usize::from(machine)];
            scope.spawn(move || {
                let v = Client::new(connection.clone(), ClientId(thread), machine);
                for n in 0..500 {
                    let (from, to) = (
                        record(n * u64::from(thread) % RECORDS),
                        record((n * 7 + 1) % RECORDS),
                    );
                    if from.node() != to.node() {
                        run(transfer(&v, locks, from, to)).expect("no lock is held for long");
                    }
                }
            });
        }
    });

    let mut sum = 0;
    for n in 0..RECORDS {
        sum += run(v.word(record(n)))?;
    }
    assert_eq!(sum, START * RECORDS, "what one record lost, another has");
    Ok(())
}

#[test]
fn nothing_is_lost_between_records() {
    main().expect("no faults");
}
