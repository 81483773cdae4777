//! The structure that a compute node's threads share.

use dm_cache::{Addition, Admitted, IndexCache, NodeImage, Origin};
use dm_index::{IndexError, Inner, KeyBytes, Lead, Located, NodeCopy, NodeStore, Split};
use dm_sync::epoch::Epochs;
use dm_sync::{Arc, Mutex};
use dm_verbs::{Event, LocalStep, RemotePtr, Verbs};

use crate::root::Root;

/// How a [`Blink`] works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlinkOptions {
    /// Restarts of a descent before a typed error.
    pub attempts: u32,
    /// T-S5, for study: who loses the race for a new root has no path to go on with, and gives up.
    pub root_race_fatal: bool,
}

impl Default for BlinkOptions {
    fn default() -> Self {
        Self {
            attempts: 1 << 16,
            root_race_fatal: false,
        }
    }
}

/// Inner levels of a B-link tree over inner nodes `S`.
#[derive(Debug)]
pub struct Blink<K: KeyBytes, S> {
    pub(crate) nodes: S,
    pub(crate) cache: IndexCache<K>,
    pub(crate) root_word: RemotePtr,
    /// The root as last seen, and the epoch that it was seen in: in a later one its memory may be another node's.
    /// `None` for not known. Any former root is a way in.
    pub(crate) root: Mutex<Option<(Root, u64)>>,
    /// The epochs that operations run in, where memory is reclaimed.
    pub(crate) epochs: Option<Arc<Epochs>>,
    pub(crate) options: BlinkOptions,
}

/// What a leaf's address was taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof<K> {
    /// A cached image of its parent.
    Cached(Origin<K>),
    /// The parent as just read; nothing to blame.
    Read,
    /// It was the root.
    Root,
}

impl<K: KeyBytes, S> Blink<K, S> {
    /// The tree whose root pointer lies in `root_word` (8-byte aligned, 0 for an empty tree).
    pub fn new(nodes: S, cache: IndexCache<K>, root_word: RemotePtr, options: BlinkOptions) -> Self {
        Self {
            nodes,
            cache,
            root_word,
            root: Mutex::new(None),
            epochs: None,
            options,
        }
    }

    /// This, over nodes whose memory is used again, by operations that run in `epochs`.
    #[must_use]
    pub fn in_epochs(mut self, epochs: Option<Arc<Epochs>>) -> Self {
        self.epochs = epochs;
        self
    }

    /// What the root's address is good for: as long as this is the same, the node there is not another.
    pub(crate) fn epoch(&self) -> u64 {
        self.epochs.as_ref().map_or(0, |epochs| epochs.epoch())
    }

    pub(crate) fn set_root(&self, root: Option<Root>, epoch: u64) {
        self.root.with(|known| *known = root.map(|root| (root, epoch)));
    }

    /// The compute node's cache of inner nodes.
    pub fn cache(&self) -> &IndexCache<K> {
        &self.cache
    }

    /// The inner nodes.
    pub fn nodes(&self) -> &S {
        &self.nodes
    }

    /// The word that points to the root.
    pub fn root_word(&self) -> RemotePtr {
        self.root_word
    }

    /// Shows the cache a node that got the child of `split`, as the write left it.
    pub(crate) fn refresh<V: Verbs>(&self, copy: &mut NodeCopy<K>, split: &Split<K>) -> Result<(), IndexError>
    where
        S: NodeStore<V, K>,
    {
        let addition = Addition {
            at: copy.at,
            level: copy.level,
            low: copy.fences.low,
            high: copy.fences.high,
            incarnation: copy.incarnation,
            entries: copy.folded_entries,
            separator: split.separator,
            child: split.right,
        };
        if copy.folded.is_empty() || !self.cache.add(&addition) {
            self.nodes.unfold(copy)?;
            let _admitted_or_not = self.admit(copy);
        }
        Ok(())
    }

    pub(crate) fn admit(&self, copy: &NodeCopy<K>) -> Admitted {
        self.cache.admit(NodeImage {
            at: copy.at,
            level: copy.level,
            low: copy.fences.low,
            high: copy.fences.high,
            incarnation: copy.incarnation,
            entries: copy.children(),
        })
    }
}

impl<V: Verbs, K: KeyBytes, S: NodeStore<V, K>> Inner<V, K> for Blink<K, S> {
    type Proof = Proof<K>;

    // Always: before every operation, and what it answers is wide.
    #[inline(always)]
    fn known(&self, v: &V, key: &K) -> Option<Located<Proof<K>>> {
        let (leaf, origin) = self.cache.leaf(key)?;
        v.meter().note(Event::CacheHit);
        Some(Located {
            leaf: Lead::hint(leaf),
            proof: Proof::Cached(origin),
        })
    }

    async fn find(&self, v: &V, key: &K) -> Result<Option<Located<Proof<K>>>, IndexError> {
        v.meter().note(Event::CacheMiss);
        self.find_leaf(v, key).await
    }

    async fn locate_run(
        &self,
        v: &V,
        key: &K,
        max: usize,
        run: &mut Vec<RemotePtr>,
    ) -> Result<(), IndexError> {
        v.local(LocalStep::Section).await;
        run.clear();
        if self.cache.run(key, max, |hit| run.push(hit.child)) > 0 {
            v.meter().note(Event::CacheHit);
        } else {
            v.meter().note(Event::CacheMiss);
            let located = self.find_leaf(v, key).await?;
            if self.cache.run(key, max, |hit| run.push(hit.child)) == 0 {
                run.extend(located.map(|l| l.leaf.at));
            }
        }
        Ok(())
    }

    fn stale(&self, _: &V, proof: Proof<K>) {
        match proof {
            Proof::Cached(origin) => {
                self.cache.invalidate(origin);
            }
            Proof::Root => self.root.with(|root| *root = None),
            Proof::Read => {}
        }
    }

    async fn plant(&self, v: &V, leaf: RemotePtr) -> Result<bool, IndexError> {
        let root = Root { at: leaf, level: 0 };
        Ok(v.cas(self.root_word, 0, root.pack()).await? == 0)
    }

    async fn install(&self, v: &V, split: Split<K>) -> Result<(), IndexError> {
        let mut next = Some(split);
        while let Some(split) = next {
            next = self.install_one(v, &split).await?;
        }
        Ok(())
    }

    async fn shrink<L: NodeStore<V, K>>(&self, v: &V, leaves: &L, key: &K) -> Result<(), IndexError> {
        self.shrink_levels(v, leaves, key).await
    }

    async fn build(&self, v: &V, leaves: &[(K, RemotePtr)], fill: f64) -> Result<(), IndexError> {
        self.build_levels(v, leaves, fill).await
    }
}
