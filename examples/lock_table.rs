//! Uses a lock table of dmkit in a program that has records of its own and no index.
//! Run: `cargo run -p dmkit-examples --bin lock_table`. If your program has its own RDMA layer, see the example
//! `own_rdma` of dm-lock, which also shows the adapter.
#![expect(clippy::print_stdout, reason = "an example prints")]

use dm_lock::{GlobalLockTable, LockError, LockOptions, Locks};
use dm_loopback::{Loopback, run_all};
use dm_verbs::{Env, NodeId, RemotePtr, Verbs};

/// Returns the address of an account, which is a line on one of two memory nodes.
fn account(n: u64) -> RemotePtr {
    RemotePtr::new(NodeId((n % 2) as u16), 4096 + 64 * n).expect("within 48 bits")
}

/// Moves 1 from one account to another, under the locks of both. The unlocks travel with the WRITEs.
async fn transfer<V: Verbs>(v: &V, locks: &Locks, from: RemotePtr, to: RemotePtr) -> Result<(), LockError> {
    let both = locks.lock_set(v, &[from, to]).await?;
    let (has, gets) = (v.word(from).await?, v.word(to).await?);
    let less = v.chain(from.node()).write_word(from, has.wrapping_sub(1));
    let more = v.chain(to.node()).write_word(to, gets.wrapping_add(1));
    both.write_back([less, more]).await
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let world = Loopback::builder().nodes(2).build()?;
    // The clients of a compute node share `locks`: 1024 lock words on each card, and local queues of waiting clients.
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(2, 1024));
    let clients = (0..8).map(|_| world.connect(0)).collect::<Result<Vec<_>, _>>()?;

    let done = run_all(clients.iter().map(|v| {
        let (locks, me) = (&locks, u64::from(v.client().0));
        async move {
            for n in 0..100 {
                transfer(v, locks, account((n + me) % 4), account((n + me + 1) % 4)).await?;
            }
            Ok::<_, LockError>(())
        }
    }));
    done.into_iter().collect::<Result<(), _>>()?;

    let v = &clients[0];
    let balances = run_all((0..4).map(|n| v.word(account(n))));
    let mut sum = 0u64;
    for balance in balances {
        sum = sum.wrapping_add(balance?);
    }
    assert_eq!(sum, 0, "what one account lost, another has");
    let counts: Vec<_> = clients.iter().map(|v| v.meter().counters()).collect();
    let (verbs, trips): (u64, u64) = counts
        .iter()
        .fold((0, 0), |(a, b), c| (a + c.verbs(), b + c.round_trips));
    println!(
        "a transfer took {:.1} verbs in {:.1} round trips",
        verbs as f64 / 800.0,
        trips as f64 / 800.0
    );
    Ok(())
}
