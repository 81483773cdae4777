//! The part of a radix tree that the threads of one compute node share, and its clients.

use core::cell::RefCell;
use core::marker::PhantomData;
use core::pin::pin;

use dm_alloc::{Allocator, Life};
use dm_cache::PrefixCache;
use dm_index::{Applied, Exchange, Fill, IndexError, KeyBytes, RangeIndex, Scan, Write};
use dm_layout::{KEY_BYTES_MAX, NodeTypes, RadixHeader, SlotWord, build_radix_node};
use dm_lock::Locks;
use dm_sync::{Arc, Fingerprint, Mutex, epoch, fingerprint_of};
use dm_verbs::{Control, Nanos, RemotePtr, Verbs};

use crate::ArtOptions;
use crate::SingleStore;
use crate::block::{Block, LIFE, leaf_class, node_class};
use crate::errors::{misplaced, unaddressable};
use crate::presence::{Clearing, Presence, Running, end_operation};

/// The incarnation of a node in memory that has not held a node before.
pub(crate) const FIRST_INCARNATION: u32 = 1;

/// A radix tree with keys `K` and leaves `L`. The threads of one compute node share it.
#[derive(Debug)]
pub struct Art<K, L> {
    pub(crate) leaves: L,
    pub(crate) cache: PrefixCache,
    pub(crate) alloc: Arc<Allocator>,
    /// The locks of nodes, if a node is changed only under its lock.
    pub(crate) node_locks: Option<Arc<Locks>>,
    pub(crate) root: RemotePtr,
    pub(crate) options: ArtOptions,
    pub(crate) turning: Mutex<Turning>,
    _key: PhantomData<fn() -> K>,
}

/// The progress of the cache's turns. A cached node is used for one to two turns ([`ArtOptions::turn`]).
#[derive(Debug)]
pub(crate) struct Turning {
    /// The epoch in which operations begin. The cached nodes are valid for operations of this epoch.
    pub(crate) epoch: u64,
    /// The time at which the current turn began.
    pub(crate) last: Nanos,
}

impl<K: KeyBytes, L> Art<K, L> {
    /// Returns the link depth of a leaf in a slot of a node with this branch.
    #[inline]
    pub(crate) fn leaf_depth(&self, branch: usize) -> u64 {
        // No node has a branch behind the last byte.
        let last = K::LEN.saturating_sub(1).max(branch);
        //= docs/protocol/smart.md M9
        (branch + usize::from(self.options.depth_slack)).min(last) as u64
    }
}

impl<K, L> Art<K, L> {
    /// Opens the tree to which `root_word` points (8-byte aligned; 0 if there is no tree). If there is no tree, this
    /// creates one. If several clients do this at once, one of them succeeds, and all use its tree.
    ///
    /// # Errors
    /// Returns an error if a verb or an allocation fails, [`IndexError::Corrupt`] if the root word holds a value that
    /// cannot be the address of a root, [`IndexError::BadInput`] if a slot cannot hold the address of a new root, and
    /// the error of [`ArtOptions::check`].
    pub async fn open<V: Verbs + Control>(
        v: &V,
        leaves: L,
        alloc: Arc<Allocator>,
        root_word: RemotePtr,
        options: ArtOptions,
    ) -> Result<Self, IndexError>
    where
        L: SingleStore<V, K>,
    {
        options.check()?;
        let mut root = v.word(root_word).await?;
        if root == 0 {
            root = plant(v, &alloc, &options.types, root_word).await?;
        }
        let at = RemotePtr::from_raw(root);
        if SlotWord::inner(0, root, options.types.largest()).is_none() {
            return Err(misplaced(at));
        }
        let types = &options.types;
        for kind in 1..=types.largest() {
            alloc.restores(node_class(types, kind), LIFE);
        }
        alloc.restores(leaf_class(leaves.block_bytes()), Life::Unversioned);
        Ok(Self {
            leaves,
            cache: PrefixCache::with_index(options.cache_index, options.types, options.cache_bytes),
            alloc,
            node_locks: None,
            root: at,
            options,
            turning: Mutex::new(Turning {
                epoch: 0,
                last: Nanos(0),
            }),
            _key: PhantomData,
        })
    }

    /// Returns this tree with locks of nodes (ROWEX): a client takes a node's lock before it changes the node. Readers
    /// take no lock. All clients of the tree must use the same lock tables. The leaves may use the same locks.
    #[must_use]
    pub fn with_node_locks(self, locks: Arc<Locks>) -> Self {
        Self {
            node_locks: Some(locks),
            ..self
        }
    }

    /// Returns a client over `v`'s connections.
    pub fn client<'h, V: Verbs + Control>(&'h self, v: &'h V) -> ArtClient<'h, V, K, L> {
        self.client_of(v, self.presence(v, false))
    }

    /// Returns a client whose operations run inside other operations of the same connection. The outer operation has
    /// prepared its own seat, so this client only enrols its seat. Both seats belong to the same allocator. The tree
    /// must not have a cache ([`ArtOptions::cache_bytes`] of 0).
    pub(crate) fn client_within<'h, V: Verbs + Control>(&'h self, v: &'h V) -> ArtClient<'h, V, K, L> {
        self.client_of(v, self.presence(v, true))
    }

    fn client_of<'h, V: Verbs>(&'h self, v: &'h V, presence: Presence<'h>) -> ArtClient<'h, V, K, L> {
        ArtClient {
            v,
            art: self,
            scratch: RefCell::default(),
            clearing: RefCell::new(None),
            presence,
        }
    }

    /// Returns the compute node's cache of inner nodes.
    pub fn cache(&self) -> &PrefixCache {
        &self.cache
    }

    /// Returns the store of the leaves.
    pub fn leaves(&self) -> &L {
        &self.leaves
    }

    /// Returns the allocator.
    pub fn alloc(&self) -> &Allocator {
        &self.alloc
    }

    /// Returns the address of the root node. It never changes, because no client replaces the root.
    pub fn root(&self) -> RemotePtr {
        self.root
    }

    pub(crate) fn types(&self) -> &NodeTypes {
        &self.options.types
    }
}

/// Creates the root node and tries to set the root word. Returns the address in the root word, which is another
/// client's root if that client was faster.
async fn plant<V: Verbs + Control>(
    v: &V,
    alloc: &Allocator,
    types: &NodeTypes,
    root_word: RemotePtr,
) -> Result<u64, IndexError> {
    let kind = types.largest();
    let mut block = Block::new(v, alloc, node_class(types, kind), Some(root_word)).await?;
    let at = block.at();
    if SlotWord::inner(0, at.raw(), kind).is_none() {
        return Err(unaddressable());
    }
    let mut image = Vec::new();
    let header = RadixHeader::new(0, kind, &[]);
    build_radix_node(types, header, block.incarnation(), &[], &mut image);
    block.busy();
    //= docs/protocol/smart.md M14
    v.write(at, &image).await?;
    match v.cas(root_word, 0, at.raw()).await? {
        0 => Ok(at.raw()),
        other => {
            block.idle();
            Ok(other)
        }
    }
}

/// A client of a radix tree: a coroutine with its own connections and buffers.
#[derive(Debug)]
pub struct ArtClient<'h, V: Verbs, K, L> {
    pub(crate) v: &'h V,
    pub(crate) art: &'h Art<K, L>,
    pub(crate) scratch: RefCell<Scratch>,
    /// Declared before `presence`, so that it is dropped first: dropping it may retire a leaf, which needs the seat.
    pub(crate) clearing: RefCell<Option<Clearing<'h, V>>>,
    pub(crate) presence: Presence<'h>,
}

/// Buffers that a client reuses in all its writes.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) value: Vec<u8>,
    pub(crate) leaf: Vec<u8>,
}

/// The bytes of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyText {
    bytes: [u8; KEY_BYTES_MAX],
    len: usize,
}

impl KeyText {
    pub(crate) fn of<K: KeyBytes>(key: &K) -> Self {
        let mut bytes = [0; KEY_BYTES_MAX];
        key.write_to(&mut bytes[..K::LEN]);
        Self { bytes, len: K::LEN }
    }

    /// Returns this key with another byte at this index.
    pub(crate) fn with(mut self, index: u8, byte: u8) -> Self {
        self.bytes[usize::from(index)] = byte;
        self
    }
}

/// Returns the number of leading bytes that two keys share.
pub(crate) fn shared(a: &KeyText, b: &KeyText) -> usize {
    a.iter().zip(b.iter()).take_while(|(a, b)| a == b).count()
}

impl core::ops::Deref for KeyText {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<K, L> Fingerprint for Art<K, L> {
    /// Returns a hash of the cache and of the allocator's state. Leaves have fingerprints of their own.
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(self.cache.fingerprint(), self.alloc.fingerprint()))
    }
}

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Returns the client's connection.
    pub fn verbs(&self) -> &V {
        self.v
    }

    fn check(&self, value: &[u8]) -> Result<(), IndexError> {
        let (found, expected) = (value.len(), self.art.leaves.value_bytes());
        if found != expected {
            return Err(IndexError::ValueLength { found, expected });
        }
        Ok(())
    }

    async fn apply(&self, key: &K, write: Write<'_>) -> Result<Applied, IndexError> {
        if let Some(value) = write.value() {
            self.check(value)?;
        }
        let _begun = self.v.operation()?;
        let running = self.start().await?;
        // The future is pinned here, because passing it by value would copy it.
        let done = match write.value() {
            None => {
                let before = match write {
                    Write::Exchange { before, .. } => before,
                    _ => None,
                };
                let removing = pin!(self.remove_key(key, before));
                self.art.alloc.while_announcing(self.v, removing).await
            }
            Some(value) => {
                // The buffers are taken for the duration of the write. If the write is dropped, the next one
                // allocates new buffers.
                let mut scratch = self.scratch.take();
                let done = {
                    let writing = pin!(self.write_key(key, value, write, &mut scratch));
                    self.art.alloc.while_announcing(self.v, writing).await
                };
                self.scratch.replace(scratch);
                done
            }
        };
        end_operation(running, done)
    }
}

impl<V, K, L> Exchange for ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    async fn exchange(
        &self,
        key: &K,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<Applied, IndexError> {
        // An exchange that finds no value although it expects one, or a value although it expects none, returns
        // `Differs`.
        let met = |applied| match applied {
            Applied::Absent | Applied::Present => Applied::Differs,
            applied => applied,
        };
        match (before, after) {
            (None, Some(after)) => self.apply(key, Write::Insert(after)).await.map(met),
            (Some(_), _) => self.apply(key, Write::Exchange { before, after }).await.map(met),
            (None, None) => Ok(match self.get(key, &mut Vec::new()).await? {
                true => Applied::Differs,
                false => Applied::Absent,
            }),
        }
    }

    async fn begin(&self) -> Result<Option<epoch::Running<'_>>, IndexError> {
        let _begun = self.v.operation()?;
        // The plain guard does not await requests in flight. The caller must await the requests that it posts.
        Ok(self.start().await?.and_then(Running::plain))
    }
}

impl<V, K, L> RangeIndex for ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    type Key = K;

    fn value_bytes(&self) -> usize {
        self.art.leaves.value_bytes()
    }

    async fn get(&self, key: &K, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        let _begun = self.v.operation()?;
        value.clear();
        let running = self.start().await?;
        let getting = pin!(self.get_key(key, value));
        end_operation(running, self.art.alloc.while_announcing(self.v, getting).await)
    }

    fn insert(&self, key: &K, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>> {
        self.apply(key, Write::Insert(value))
    }
    fn update(&self, key: &K, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>> {
        self.apply(key, Write::Update(value))
    }
    fn upsert(&self, key: &K, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>> {
        self.apply(key, Write::Upsert(value))
    }
    fn remove(&self, key: &K) -> impl Future<Output = Result<Applied, IndexError>> {
        self.apply(key, Write::Remove)
    }

    async fn scan(&self, from: &K, limit: usize, out: &mut Scan<K>) -> Result<(), IndexError> {
        let _begun = self.v.operation()?;
        let running = self.start().await?;
        self.art.options.cpu.charge(self.v).await;
        out.reset(self.art.leaves.value_bytes());
        let scanned = self.scan_keys(from, limit, out);
        end_operation(running, self.art.alloc.while_announcing(self.v, scanned).await)
    }

    async fn bulk_load(
        &self,
        fill: impl Into<Fill>,
        next: impl FnMut(&mut Vec<u8>) -> Option<K>,
    ) -> Result<u64, IndexError> {
        let fill = fill.into().checked()?;
        let _begun = self.v.operation()?;
        let running = self.start().await?;
        let loaded = self.load_keys(fill.mean(), next);
        end_operation(running, self.art.alloc.while_announcing(self.v, loaded).await)
    }
}
