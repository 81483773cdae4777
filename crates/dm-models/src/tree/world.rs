//! A Sherman tree of tiny nodes, its clients, and what each of them does.

use std::cell::RefCell;
use std::rc::Rc;

use dm_alloc::Superblock;
use dm_explore::{Client, Elapsed, Endpoint, Knobs, Model};
use dm_history::{KvMap, KvOp, KvRet, scan};
use dm_index::{Applied, IndexError, Key8, RangeIndex, Scan};
use dm_sync::Fingerprint;
use dm_verbs::{ClientId, Control, Env, NodeId};
use sherman::{LeafFormat, NodeSize, Options, Sherman};

use super::memory::{as_written, contents};

/// Keys and values are numbers.
pub(crate) type Spec = KvMap<u64, u64>;

/// One thing that a client does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Do {
    Get(u64),
    Insert(u64),
    Update(u64),
    Upsert(u64),
    Remove(u64),
    /// All keys from this one on. Must show those of [`Script::always`], each once and in order.
    Scan(u64),
}

/// The pool before anybody starts, and everybody's operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// Inserted in this order; key k with [`loaded`].
    pub(crate) preload: &'static [u64],
    /// Removed again after that.
    pub(crate) removed: &'static [u64],
    pub(crate) memory_nodes: u16,
    /// Memory node 0 has no room for another node: what is split there goes elsewhere.
    pub(crate) first_is_full: bool,
    /// Compute nodes begin with inner nodes cached.
    pub(crate) warm: bool,
    /// Compute node and operations of each client.
    pub(crate) clients: &'static [(u16, &'static [Do])],
    /// Keys that nobody removes.
    pub(crate) always: &'static [u64],
}

impl Script {
    pub(crate) const EMPTY: Self = Self {
        preload: &[],
        removed: &[],
        memory_nodes: 1,
        first_is_full: false,
        warm: true,
        clients: &[],
        always: &[],
    };
}

/// The value of a loaded key.
pub(crate) const fn loaded(key: u64) -> u64 {
    key * 1000
}

/// Every write's own value: by key, client and number of the operation.
pub(crate) const fn written(key: u64, ClientId(client): ClientId, number: usize) -> u64 {
    loaded(key) + client as u64 * 10 + number as u64
}

/// 2 lines and 3 entries to a node; 16 locks to a memory node.
pub(crate) const fn options() -> Options {
    Options {
        node: NodeSize::Span(3),
        locks_per_node: 16,
        chunk_bytes: 4096,
        cache_bytes: 1 << 20,
        // Reclamation has models of its own.
        members: 0,
        ..Options::new(8)
    }
}

/// The same knobs with time standing still: version windows have models of their own.
pub(crate) fn timeless(knobs: Knobs) -> Knobs {
    Knobs {
        elapsed: Elapsed::Never,
        ..knobs
    }
}

impl Script {
    /// The model: every operation linearizable, none fails.
    pub(crate) fn model<F: LeafFormat<Key8>>(
        self,
        title: String,
        options: Options,
    ) -> Model<Sherman<Key8, F>, Spec> {
        let found: Rc<RefCell<Option<Superblock>>> = Rc::default();
        let keep = Rc::clone(&found);
        let mut model = Model::new(title)
            .memory_nodes(self.memory_nodes)
            .memory(MEMORY, 256)
            .setup(move |v: Endpoint| {
                let keep = Rc::clone(&keep);
                async move {
                    self.set_up::<F>(&v, &options).await.expect("room, and no faults");
                    *keep.borrow_mut() = Some(Superblock::inspect(&v).await.expect("a pool"));
                }
            })
            .shared_opened(move |v: Endpoint, _| {
                let found = Rc::clone(&found);
                async move {
                    let tree = {
                        let found = found.borrow();
                        let found = found.as_ref().expect("set up before");
                        Sherman::<Key8, F>::from_superblock(&v, &options, found)
                    };
                    let tree = tree.expect("the same options");
                    if self.warm {
                        tree.warm(&v).await.expect("no faults");
                    }
                    tree
                }
            })
            .fingerprint(Sherman::fingerprint)
            .spec(KvMap::loaded(self.present().map(|k| (k, loaded(k)))))
            .invariant("memory holds what was written", move |end| {
                as_written(end, &self, &contents::<F>(end)?)
            });
        for (i, &(on, does)) in self.clients.iter().enumerate() {
            let name = char::from(b'A' + i as u8).to_string();
            model = model.client(name, on, move |c| async move {
                for (number, what) in does.iter().enumerate() {
                    self.run(&c, *what, number).await;
                    c.forget();
                }
            });
        }
        model
    }

    /// The loaded keys.
    pub(crate) fn present(self) -> impl Iterator<Item = u64> {
        let keys = self.preload.iter().copied();
        keys.filter(move |k| !self.removed.contains(k))
    }

    async fn set_up<F: LeafFormat<Key8>>(self, v: &Endpoint, options: &Options) -> Result<(), IndexError> {
        let tree = Sherman::<Key8, F>::create_or_open(v, options).await;
        let tree = tree.expect("an empty pool");
        let client = tree.client(v);
        for &key in self.preload {
            client.insert(&Key8(key), &loaded(key).to_le_bytes()).await?;
        }
        for &key in self.removed {
            client.remove(&Key8(key)).await?;
        }
        if self.first_is_full {
            while v.chunk(NodeId(0), 4096).await.is_ok() {}
        }
        Ok(())
    }

    async fn run<F: LeafFormat<Key8>>(self, c: &Client<Sherman<Key8, F>, Spec>, what: Do, number: usize) {
        let Some(op) = what.op(c.verbs().client(), number) else {
            return self.scan(c, what).await;
        };
        let ClientId(me) = c.verbs().client();
        let done = c.try_op(op.clone(), async {
            apply(c, &op).await.map_err(|e| fail(c, me, &e)).ok()
        });
        done.await;
    }

    async fn scan<F: LeafFormat<Key8>>(self, c: &Client<Sherman<Key8, F>, Spec>, what: Do) {
        let Do::Scan(from) = what else { return };
        let ClientId(me) = c.verbs().client();
        let (tree, mut out) = (c.shared().client(c.verbs()), Scan::new());
        if let Err(e) = Box::pin(tree.scan(&Key8(from), LIMIT, &mut out)).await {
            fail(c, me, &e);
            return;
        }
        let items: Vec<(u64, u64)> = out.iter().map(|(k, v)| (k.0, number_of(v))).collect();
        // Every value of a key lies within its thousand.
        let legal = |key: &u64, value: &u64| match value / 1000 == *key {
            true => Ok(()),
            false => Err("another key's value"),
        };
        let fault = scan::check_items(&from, None, LIMIT, &items, legal)
            .and_then(|()| scan::check_complete(&from, None, LIMIT, &items, self.always));
        c.check(fault.is_ok(), || format!("{fault:?} in {items:?}"));
    }
}

/// Bytes of host memory of a memory node.
pub(crate) const MEMORY: u64 = 64 << 10;
/// More keys than there are.
pub(crate) const LIMIT: usize = 64;

impl Do {
    /// The key that it may change.
    pub(crate) fn written_key(&self) -> Option<u64> {
        match *self {
            Self::Insert(key) | Self::Update(key) | Self::Upsert(key) | Self::Remove(key) => Some(key),
            Self::Get(_) | Self::Scan(_) => None,
        }
    }

    pub(crate) fn op(self, client: ClientId, number: usize) -> Option<KvOp<u64, u64>> {
        let value = |key| written(key, client, number);
        Some(match self {
            Self::Get(key) => KvOp::Get(key),
            Self::Insert(key) => KvOp::Insert(key, value(key)),
            Self::Update(key) => KvOp::Update(key, value(key)),
            Self::Upsert(key) => KvOp::Upsert(key, value(key)),
            Self::Remove(key) => KvOp::Remove(key),
            Self::Scan(_) => return None,
        })
    }
}

/// An operation's failure is the model's, unless somebody died: then it may have to wait for him.
fn fail<F: LeafFormat<Key8>>(c: &Client<Sherman<Key8, F>, Spec>, me: u16, e: &IndexError) {
    c.check(false, || format!("client {me}: {e}"));
}

pub(crate) fn number_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |b| u64::from_le_bytes(*b))
}

/// Runs an operation on the client's tree. Futures are boxed one by one: the explorer makes and drops many.
pub(crate) async fn apply<F: LeafFormat<Key8>>(
    c: &Client<Sherman<Key8, F>, Spec>,
    op: &KvOp<u64, u64>,
) -> Result<KvRet<u64>, IndexError> {
    apply_to(&c.shared().client(c.verbs()), op).await
}

/// The same on a tree of one's own.
pub(crate) async fn apply_to(
    tree: &impl RangeIndex<Key = Key8>,
    op: &KvOp<u64, u64>,
) -> Result<KvRet<u64>, IndexError> {
    let mut value = Vec::new();
    let (key, new) = match *op {
        KvOp::Get(key) | KvOp::Remove(key) => (Key8(key), [0; 8]),
        KvOp::Insert(key, v) | KvOp::Update(key, v) | KvOp::Upsert(key, v) => (Key8(key), v.to_le_bytes()),
    };
    let applied = match op {
        KvOp::Get(_) => {
            let found = Box::pin(tree.get(&key, &mut value)).await?;
            return Ok(match found {
                true => KvRet::Found(number_of(&value)),
                false => KvRet::Absent,
            });
        }
        KvOp::Insert(..) => Box::pin(tree.insert(&key, &new)).await,
        KvOp::Update(..) => Box::pin(tree.update(&key, &new)).await,
        KvOp::Upsert(..) => Box::pin(tree.upsert(&key, &new)).await,
        KvOp::Remove(_) => Box::pin(tree.remove(&key)).await,
    };
    Ok(answer(applied?))
}

pub(crate) const fn answer(applied: Applied) -> KvRet<u64> {
    match applied {
        Applied::Inserted => KvRet::Inserted,
        Applied::Replaced => KvRet::Replaced,
        Applied::Removed => KvRet::Removed,
        Applied::Present => KvRet::Present,
        Applied::Absent => KvRet::Absent,
    }
}
