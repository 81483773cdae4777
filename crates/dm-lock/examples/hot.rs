//! Measures how many nanoseconds an update under a lock takes over loopback, once for a client that is alone, and once
//! with four clients that take turns on one thread.
#![expect(clippy::print_stdout, reason = "an example that measures prints")]

use dm_lock::{GlobalLockTable, Local, LockError, LockOptions, LockWord, Locks};
use dm_loopback::{Endpoint, Loopback, block_on, run_all};
use dm_verbs::{ChipPtr, Env, NodeId, RemotePtr, VerbError, Verbs};

async fn add(v: &Endpoint, locks: &Locks, node: RemotePtr, times: u64) -> Result<(), LockError> {
    for _ in 0..times {
        let (guard, bytes) = locks.lock_and_read(v, node, node, 64).await?;
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[..8]);
        let chain = v
            .chain(node.node())
            .write_word(node, u64::from_le_bytes(word) + 1);
        guard.write_back(chain).await?;
    }
    Ok(())
}

/// Posts the same verbs without the lock code, to measure the cost of the transport.
async fn bare(v: &Endpoint, lock: ChipPtr, node: RemotePtr, times: u64) -> Result<(), VerbError> {
    let take = LockWord::acquire(v.client(), 0);
    for _ in 0..times {
        let (old, bytes) = v.chain(node.node()).masked_cas(lock, take).read(node, 64).await?;
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[..8]);
        let chain = v
            .chain(node.node())
            .write_word(node, u64::from_le_bytes(word) + 1);
        chain
            .write_word(lock, LockWord::unpack(old).released(0).pack())
            .await?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const TIMES: u64 = 400_000;
    let world = Loopback::builder().host_bytes(1 << 20).build()?;
    let clients = [
        world.connect(0)?,
        world.connect(0)?,
        world.connect(0)?,
        world.connect(0)?,
    ];
    let node = RemotePtr::new(NodeId(0), 4096).expect("within 48 bits");
    let start = clients[0].now();
    block_on(bare(&clients[0], ChipPtr::NULL, node, TIMES))?;
    println!(
        "{:32} {:5} ns alone",
        "the four verbs alone",
        (clients[0].now() - start).0 / TIMES
    );
    let with = |local| LockOptions {
        local,
        ..LockOptions::default()
    };
    for (name, options) in [
        ("no local lock", with(Local::Off)),
        ("local lock, no queue", with(Local::Spin)),
        ("queue, handover 4", LockOptions::default()),
        (
            "no lock-and-read, not combined",
            LockOptions {
                lock_and_read: false,
                combine: false,
                ..LockOptions::default()
            },
        ),
    ] {
        let locks = Locks::new(options, GlobalLockTable::on_chip(2, 1024));
        let v = &clients[0];
        block_on(add(v, &locks, node, 1000))?;
        let start = v.now();
        block_on(add(v, &locks, node, TIMES))?;
        let alone = (v.now() - start).0 / TIMES;
        let start = v.now();
        let all = run_all(clients.iter().map(|v| add(v, &locks, node, TIMES / 4)));
        all.into_iter().collect::<Result<(), _>>()?;
        let queued = (v.now() - start).0 / TIMES;
        println!("{name:32} {alone:5} ns alone, {queued:5} ns with 4 coroutines");
    }
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(2, 1024));
    println!(
        "bytes of a lock future {}, of an update's {}",
        size_of_val(&locks.lock(&clients[0], node)),
        size_of_val(&add(&clients[0], &locks, node, 1))
    );
    Ok(())
}
