//! One leaf of `dm-leaf` without a tree, the right neighbours that its splits create, and the clients of the leaf.

use dm_alloc::Allocator;
use dm_explore::{Client, Endpoint, Model};
use dm_history::{KvMap, KvOp, KvRet};
use dm_index::{
    Answer, Applied, FenceKeys, Key8, Lead, Merge, Neighbours, NodeAccess, Restructure, Stale, Write,
};
use dm_layout::NodeFormat;
use dm_leaf::{NodeOptions, Nodes};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_sync::{Arc, Fingerprint, fingerprint_of};
use dm_testkit::answer;
use dm_verbs::{Nanos, NodeId, RemotePtr};

use crate::tree::world::loaded;

type Spec = KvMap<u64, u64>;
/// An operation on a key.
pub(crate) type Op = KvOp<u64, u64>;

/// The state that the clients of a compute node share.
pub(crate) struct Leaf<F> {
    nodes: Nodes<Key8, F>,
    locks: Arc<Locks>,
    alloc: Arc<Allocator>,
}

/// The parameters of the model.
#[derive(Clone, Debug)]
pub(crate) struct Script<F> {
    pub(crate) format: F,
    pub(crate) options: NodeOptions,
    pub(crate) locks: LockOptions,
    /// Keys that are inserted before the start, in this order. Unless the format sorts its entries, they fill the slots
    /// in the same order.
    pub(crate) preload: &'static [u64],
    /// Keys that are removed again before the start.
    pub(crate) removed: &'static [u64],
    /// Whether the preload splits the leaf once, and the first client begins with a merge of the two leaves.
    pub(crate) joins: bool,
    /// Number of memory nodes.
    pub(crate) memory_nodes: u16,
    /// Whether the first memory node has no room for a second leaf.
    pub(crate) first_is_full: bool,
    /// Time that passes between a split and the next step of its client.
    pub(crate) split_takes: Nanos,
    /// The operations of each client. Each client has a compute node of its own.
    pub(crate) clients: Vec<Vec<Op>>,
}

impl<F: NodeFormat<Key8> + Clone> Leaf<F> {
    fn new(script: &Script<F>, compute_node: u16) -> Self {
        let words = if script.joins { LOCKS } else { 1 };
        let table = GlobalLockTable::on_chip(script.memory_nodes, words);
        let locks = Arc::new(Locks::new(script.locks, table));
        let alloc = Allocator::new(script.memory_nodes, compute_node).chunk_bytes(4096);
        let alloc = Arc::new(alloc);
        Self {
            nodes: Nodes::new(
                script.format.clone(),
                Arc::clone(&locks),
                Arc::clone(&alloc),
                script.options,
            ),
            locks,
            alloc,
        }
    }
}

/// Returns the address of the leaf, which is the first block of the first chunk.
fn leaf() -> RemotePtr {
    RemotePtr::new(NodeId(0), 4096).unwrap_or(RemotePtr::NULL)
}

/// Number of locks of each memory node in models that merge two leaves.
const LOCKS: u32 = 8;

/// Returns the leaf and the neighbour that was split from it. Before the removals, the leaf holds 10 and 20, and the
/// neighbour holds 30 and 40.
fn pair() -> Neighbours<Key8> {
    Neighbours {
        level: 0,
        left: leaf(),
        right: leaf().add(128),
        between: Key8(30),
        until: None,
        parent: RemotePtr::NULL,
    }
}

impl<F: NodeFormat<Key8> + Clone> Script<F> {
    pub(crate) fn new(format: F, preload: &'static [u64], clients: Vec<Vec<Op>>) -> Self {
        Self {
            format,
            options: NodeOptions::default(),
            locks: LockOptions::default(),
            removed: &[],
            joins: false,
            preload,
            memory_nodes: 1,
            first_is_full: false,
            split_takes: Nanos(0),
            clients,
        }
    }

    /// Builds the model. It checks that all operations are linearizable, that none fails, and that no value that is
    /// read mixes two writes.
    pub(crate) fn model(self, title: String) -> Model<Leaf<F>, Spec> {
        let script = Arc::new(self);
        let (setting_up, opening) = (Arc::clone(&script), Arc::clone(&script));
        let mut model = Model::new(title)
            .memory_nodes(script.memory_nodes)
            .memory(32 << 10, 64)
            .setup(move |v: Endpoint| {
                let script = Arc::clone(&setting_up);
                async move { script.set_up(&v).await }
            })
            .shared(move |node| Leaf::new(&opening, node))
            .fingerprint(|l: &Leaf<F>| fingerprint_of(&(l.locks.fingerprint(), l.alloc.fingerprint())))
            .spec(KvMap::loaded(script.present().map(|k| (k, loaded(k)))))
            .place(leaf(), script.format.node_bytes() as u32, "leaf");
        for i in 0..script.clients.len() {
            let name = char::from(b'A' + i as u8).to_string();
            let script = Arc::clone(&script);
            model = model.client(name, i as u16, move |c| {
                let script = Arc::clone(&script);
                async move {
                    if script.joins && i == 0 {
                        script.join(&c).await;
                    }
                    for op in &script.clients[i] {
                        let run = script.run(&c, op);
                        c.try_op(op.clone(), run).await;
                        c.forget();
                    }
                }
            });
        }
        model
    }

    /// Returns the keys that are present at the start.
    fn present(&self) -> impl Iterator<Item = u64> {
        let keys = self.preload.iter().copied();
        keys.filter(|key| !self.removed.contains(key))
    }

    /// Merges the two leaves.
    async fn join(&self, c: &Client<Leaf<F>, Spec>) {
        let pair = pair();
        let joining = c.shared().nodes.join(c.verbs(), &pair, async || Ok(()));
        let joined = Box::pin(joining).await;
        c.check(matches!(joined, Ok(Merge::Done { .. })), || format!("{joined:?}"));
    }

    async fn set_up(&self, v: &Endpoint) {
        let made = Leaf::new(self, 0);
        let at = made.nodes.create(v, 0, FenceKeys::ALL, &[], false).await;
        assert_eq!(at.map(|made| made.at), Ok(leaf()), "the first block of all");
        let mut value = Vec::new();
        for &key in self.preload {
            self.fill(&mut value, loaded(key));
            let key = Key8(key);
            let put = made
                .nodes
                .write(v, Lead::hint(leaf()), 0, &key, Write::Insert(&value), None);
            match put.await {
                Ok(Answer::Split(_, split)) if self.joins => assert_eq!(pair().right, split.right),
                put => assert_eq!(put, Ok(Answer::Done(Applied::Inserted)), "room for {key:?}"),
            }
        }
        for &key in self.removed {
            let at = match pair().between.0 <= key && self.joins {
                true => pair().right,
                false => leaf(),
            };
            let key = Key8(key);
            let put = made.nodes.write(v, Lead::hint(at), 0, &key, Write::Remove, None);
            assert!(put.await.is_ok(), "{key:?} is there");
        }
        if self.first_is_full {
            while dm_verbs::Control::chunk(v, NodeId(0), 4096).await.is_ok() {}
        }
    }

    /// Fills a value of the format's length with `number`. If values are words, the number is stored above the lowest
    /// bit, which is 1 in every word of a leaf.
    fn fill(&self, value: &mut Vec<u8>, number: u64) {
        let number = match self.format.holds_words() {
            true => number << 1 | 1,
            false => number,
        };
        value.clear();
        value.extend(number.to_le_bytes().iter().cycle().take(self.format.value_len()));
    }

    async fn run(&self, c: &Client<Leaf<F>, Spec>, op: &Op) -> Option<KvRet<u64>> {
        let (v, nodes) = (c.verbs(), &c.shared().nodes);
        let (mut at, key) = (Lead::hint(leaf()), Key8(*op.key()));
        let mut value = Vec::new();
        if let KvOp::Insert(_, new) | KvOp::Update(_, new) | KvOp::Upsert(_, new) = op {
            self.fill(&mut value, *new);
        }
        loop {
            let answered = match op {
                KvOp::Get(_) => {
                    let got = Box::pin(nodes.get(v, at, 0, &key, &mut value)).await;
                    got.map(|a| {
                        map(a, |found| {
                            if found {
                                self.found(c, &value)
                            } else {
                                KvRet::Absent
                            }
                        })
                    })
                }
                _ => {
                    let write = match op {
                        KvOp::Insert(..) => Write::Insert(&value),
                        KvOp::Update(..) => Write::Update(&value),
                        KvOp::Upsert(..) => Write::Upsert(&value),
                        KvOp::Remove(_) | KvOp::Get(_) => Write::Remove,
                    };
                    let put = Box::pin(nodes.write(v, at, 0, &key, write, None)).await;
                    put.map(|a| map(a, answer))
                }
            };
            match answered {
                Ok(Answer::Done(ret) | Answer::Sparse(ret)) => return Some(ret),
                Ok(Answer::Split(ret, split)) => {
                    if self.split_takes > Nanos(0) {
                        c.pass_time(self.split_takes);
                    }
                    match ret {
                        Some(ret) => return Some(ret),
                        None => at = Lead::hint(split.right),
                    }
                }
                Ok(Answer::Stale(Stale::Right(right))) => at = right,
                Ok(Answer::Stale(Stale::Elsewhere)) => {
                    c.check(false, || format!("the first leaf does not answer for {key:?}"));
                    return None;
                }
                Err(e) => {
                    c.check(false, || e.to_string());
                    return None;
                }
            }
        }
    }

    /// Returns the number that fills `value`. Checks that all of `value` consists of it.
    fn found(&self, c: &Client<Leaf<F>, Spec>, value: &[u8]) -> KvRet<u64> {
        let number = value.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let number = number >> u32::from(self.format.holds_words());
        let mut whole = Vec::new();
        self.fill(&mut whole, number);
        c.check(whole == value, || format!("a mixture of two values: {value:?}"));
        KvRet::Found(number)
    }
}

fn map<T, U>(answer: Answer<Key8, T>, f: impl FnOnce(T) -> U) -> Answer<Key8, U> {
    match answer {
        Answer::Done(x) => Answer::Done(f(x)),
        Answer::Split(x, split) => Answer::Split(x.map(f), split),
        Answer::Sparse(x) => Answer::Sparse(f(x)),
        Answer::Stale(stale) => Answer::Stale(stale),
    }
}
