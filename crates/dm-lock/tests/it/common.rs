//! A loopback world with locks for each compute node, and counters that the locks guard.

use core::task::{Context, Poll, Waker};
use std::pin::Pin;

use dm_lock::{GlobalLockTable, Guard, LockError, LockId, LockOptions, LockWord, Locks};
use dm_loopback::{Builder, Endpoint, Loopback, block_on};
use dm_verbs::{Place, RemotePtr, Verbs};

/// The number of lock words per memory node: few, so that nodes share locks.
pub(crate) const WORDS: u32 = 64;

pub(crate) struct Bench {
    pub(crate) world: Loopback,
    /// The locks of each compute node.
    pub(crate) locks: Vec<Locks>,
}

pub(crate) fn builder() -> Builder {
    Loopback::builder().host_bytes(1 << 20)
}

/// Makes a world with a lock table on each memory node. The table is in on-chip memory if the world has any; otherwise
/// it is in host memory, 64 KiB from the start.
pub(crate) fn bench(builder: Builder, compute_nodes: usize, options: LockOptions) -> Bench {
    let world = builder.build().unwrap();
    let table = || {
        let places: Vec<Place> = (0..world.memory_nodes())
            .map(|n| match world.caps(dm_verbs::NodeId(n)).chip_bytes {
                0 => RemotePtr::new(dm_verbs::NodeId(n), 64 << 10).unwrap().into(),
                _ => GlobalLockTable::on_chip(n + 1, WORDS).word_at(LockId {
                    node: dm_verbs::NodeId(n),
                    high: 0,
                    index: 0,
                }),
            })
            .collect();
        GlobalLockTable::new(places, WORDS)
    };
    let locks = (0..compute_nodes).map(|_| Locks::new(options, table())).collect();
    Bench { world, locks }
}

impl Bench {
    pub(crate) fn client(&self, compute_node: u16) -> Endpoint {
        self.world.connect(compute_node).unwrap()
    }

    /// Returns the lock word of `node` in memory.
    pub(crate) fn word(&self, node: RemotePtr) -> LockWord {
        LockWord::unpack(self.inspect(self.locks[0].word_at(node).unwrap()))
    }

    pub(crate) fn inspect(&self, at: impl Into<Place>) -> u64 {
        let mut bytes = [0; 8];
        self.world.inspect(at, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    }
}

/// Returns the address of the `i`-th 64-byte node behind the reserved page of memory node `mn`.
pub(crate) fn node(mn: u16, i: u64) -> RemotePtr {
    RemotePtr::new(dm_verbs::NodeId(mn), 4096 + 64 * i).unwrap()
}

pub(crate) fn count(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

pub(crate) async fn add<V: Verbs>(v: &V, locks: &Locks, node: RemotePtr) -> Result<u64, LockError> {
    let (guard, bytes) = locks.lock_and_read(v, node, node, 64).await?;
    let new = count(&bytes) + 1;
    guard
        .write_back(v.chain(node.node()).write_word(node, new))
        .await?;
    Ok(new)
}

pub(crate) fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

pub(crate) fn lock<'a>(v: &'a Endpoint, locks: &'a Locks, node: RemotePtr) -> Guard<'a, Endpoint> {
    block_on(locks.lock(v, node)).unwrap()
}
