//! Helpers: an inner structure that is a map on the compute node, and nodes of every format.

use std::collections::BTreeMap;
use std::future::Future;

use dm_alloc::Allocator;
use dm_index::{Composed, ComposedOptions, CpuCost, IndexError, Inner, Lead, Located, Merge};
use dm_index::{Neighbours, NodeCopy, Restructure, Run, Split};
use dm_layout::{Key8, NodeFormat};
use dm_leaf::{NodeOptions, Nodes};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_sync::{Arc, Mutex};
use dm_verbs::{Counters, Env, Nanos, RemotePtr};

/// An inner structure that maps the low fence keys of leaves to their addresses. It has only the first leaf and the
/// leaves that its own compute node has split off. Clients reach all others through their left neighbours.
#[derive(Debug, Default)]
pub(crate) struct Table(Mutex<BTreeMap<Key8, RemotePtr>>);

impl Table {
    pub(crate) fn of(first: RemotePtr) -> Self {
        Self(Mutex::new(BTreeMap::from([(Key8(0), first)])))
    }

    fn floor(&self, key: &Key8) -> (Key8, RemotePtr) {
        self.0.with(|all| {
            all.range(..=*key)
                .next_back()
                .map(|(low, at)| (*low, *at))
                .unwrap()
        })
    }
}

impl Inner<Endpoint, Key8> for Table {
    type Proof = Key8;

    fn known(&self, _: &Endpoint, key: &Key8) -> Option<Located<Key8>> {
        let (low, at) = self.floor(key);
        Some(Located {
            leaf: Lead::hint(at),
            proof: low,
        })
    }
    async fn find(&self, v: &Endpoint, key: &Key8) -> Result<Option<Located<Key8>>, IndexError> {
        Ok(self.known(v, key))
    }
    async fn locate_run(
        &self,
        _: &Endpoint,
        key: &Key8,
        max: usize,
        run: &mut Run<Key8>,
    ) -> Result<(), IndexError> {
        run.clear();
        let (low, _) = self.floor(key);
        self.0.with(|all| {
            for (_, at) in all.range(low..).take(max.max(1)) {
                run.push_alone(*at);
            }
        });
        Ok(())
    }
    fn stale(&self, _: &Endpoint, low: Key8) {
        self.0
            .with(|all| if low > Key8(0) { all.remove(&low) } else { None });
    }
    async fn plant(&self, _: &Endpoint, _: RemotePtr) -> Result<bool, IndexError> {
        Ok(false)
    }
    async fn install(&self, _: &Endpoint, split: Split<Key8>) -> Result<(), IndexError> {
        self.0.with(|all| all.insert(split.separator, split.right));
        Ok(())
    }
    async fn shrink<L: Restructure<Endpoint, Key8>>(
        &self,
        v: &Endpoint,
        leaves: &L,
        key: &Key8,
    ) -> Result<(), IndexError> {
        let (mut one, mut other) = (NodeCopy::new(), NodeCopy::new());
        let (low, at) = self.floor(key);
        let left = self.0.with(|all| all.range(..low).next_back().map(|(_, at)| *at));
        for at in [Some(at), left].into_iter().flatten() {
            if !leaves.copy(v, at, &mut one).await? || one.sibling.is_null() {
                continue;
            }
            if !leaves.copy(v, one.sibling, &mut other).await? {
                continue;
            }
            let pair = Neighbours {
                level: 0,
                left: at,
                right: one.sibling,
                between: other.fences.low,
                until: other.fences.high,
                parent: RemotePtr::NULL,
            };
            let unlink = async || {
                self.0.with(|all| all.remove(&pair.between));
                Ok(())
            };
            if matches!(leaves.join(v, &pair, unlink).await?, Merge::Done { .. }) {
                break;
            }
        }
        Ok(())
    }
    async fn build(&self, _: &Endpoint, _: &[(Key8, RemotePtr)], _: f64) -> Result<(), IndexError> {
        Ok(())
    }
}

/// The options with which a compute node uses its nodes.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) locks: LockOptions,
    pub(crate) nodes: NodeOptions,
}

impl Setup {
    pub(crate) fn plain() -> Self {
        Self {
            locks: LockOptions {
                budget: 64,
                ..LockOptions::default()
            },
            nodes: NodeOptions {
                attempts: 64,
                ..NodeOptions::default()
            },
        }
    }

    /// Returns options with which an update within one line shares the node's lock.
    pub(crate) fn sharing() -> Self {
        let plain = Self::plain();
        Self {
            locks: LockOptions {
                shared: true,
                ..plain.locks
            },
            ..plain
        }
    }

    pub(crate) fn nodes<F: NodeFormat<Key8>>(
        &self,
        format: F,
        memory_nodes: u16,
        compute_node: u16,
    ) -> Nodes<Key8, F> {
        self.nodes_and_memory(format, memory_nodes, compute_node).0
    }

    pub(crate) fn nodes_and_memory<F: NodeFormat<Key8>>(
        &self,
        format: F,
        memory_nodes: u16,
        compute_node: u16,
    ) -> (Nodes<Key8, F>, Arc<Allocator>) {
        let locks = Locks::new(self.locks, GlobalLockTable::on_chip(memory_nodes, 64));
        let alloc = Arc::new(Allocator::new(memory_nodes, compute_node).chunk_bytes(16 << 10));
        let nodes = Nodes::new(format, Arc::new(locks), Arc::clone(&alloc), self.nodes);
        (nodes, alloc)
    }
}

/// Makes a pool of this many memory nodes, whose clock advances by a fixed amount at each reading. With only one
/// client, every run posts the same verbs.
pub(crate) fn pool(memory_nodes: u16) -> Loopback {
    let pool = Loopback::builder().nodes(memory_nodes).host_bytes(2 << 20);
    pool.counted_clock(Nanos(50)).build().unwrap()
}

/// A client of the index.
pub(crate) type Client<'h, F> = Composed<'h, Endpoint, Key8, Table, Nodes<Key8, F>>;

pub(crate) fn client<'h, F: NodeFormat<Key8>>(
    v: &'h Endpoint,
    table: &'h Table,
    nodes: &'h Nodes<Key8, F>,
) -> Client<'h, F> {
    let options = ComposedOptions::new(200, CpuCost::NONE);
    Composed::new(v, table, nodes, options)
}

/// Runs `work`. Returns its result, and a list of the counters of this connection that it has increased, without
/// doorbells.
pub(crate) fn cost<T>(v: &Endpoint, work: impl Future<Output = T>) -> (T, String) {
    let before = v.meter().counters();
    let out = block_on(work);
    (out, told(v.meter().counters() - before))
}

pub(crate) fn told(cost: Counters) -> String {
    let some = |&(name, n): &(&str, u64)| n != 0 && name != "doorbells";
    let parts: Vec<String> = cost
        .named()
        .filter(some)
        .map(|(name, n)| format!("{n} {name}"))
        .collect();
    parts.join(", ")
}
