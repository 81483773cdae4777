//! The inner levels of a tree, which the threads of one compute node share.

use dm_cache::{Addition, Admitted, IndexCache, NodeImage, Origin};
use dm_index::{
    IndexError, Inner, KeyBytes, Lead, Located, NodeCopy, NodeStore, Restructure, Run, Split, Survey,
};
use dm_sync::epoch::Epochs;
use dm_sync::{Arc, Mutex};
use dm_verbs::{Event, LocalStep, RemotePtr, Verbs};

use crate::root::Root;

/// Options of a [`Blink`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlinkOptions {
    /// Retry limit of a descent, and of the insertion of a separator; exceeding it returns an error.
    pub attempts: u32,
    /// Flaw T-S5, for study: a client that loses the race for a new root returns an error instead of continuing.
    #[cfg(feature = "study")]
    pub root_race_fatal: bool,
}

impl Default for BlinkOptions {
    fn default() -> Self {
        Self::new(1 << 16)
    }
}

impl BlinkOptions {
    /// Returns options without flaws.
    pub fn new(attempts: u32) -> Self {
        Self {
            attempts,
            #[cfg(feature = "study")]
            root_race_fatal: false,
        }
    }

    /// Returns whether T-S5 is switched on.
    pub(crate) fn root_race_fatal(&self) -> bool {
        #[cfg(feature = "study")]
        let fatal = self.root_race_fatal;
        #[cfg(not(feature = "study"))]
        let fatal = false;
        fatal
    }
}

/// The inner levels of a B-link tree, with inner nodes in the store `S`.
#[derive(Debug)]
pub struct Blink<K: KeyBytes, S> {
    pub(crate) nodes: S,
    pub(crate) cache: IndexCache<K>,
    pub(crate) root_word: RemotePtr,
    /// The root that a client of this compute node last read or set, with the epoch in which the client began to do
    /// so. In a later epoch another node may use the root's memory. Until then, a former root is a valid entry point
    /// too.
    pub(crate) root: Mutex<Option<(Root, u64)>>,
    /// The epochs in which operations run, if memory is reclaimed.
    pub(crate) epochs: Option<Arc<Epochs>>,
    pub(crate) options: BlinkOptions,
}

/// The source of a leaf's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof<K> {
    /// A cached image of the leaf's parent.
    Cached(Origin<K>),
    /// The parent, read within this operation. If the address is stale, there is no image to invalidate.
    Read,
    /// The leaf was the root.
    Root,
}

impl<K: KeyBytes, S> Blink<K, S> {
    /// Creates the handle of the tree whose root word is at `root_word` (8-byte aligned). A root word of 0 means an
    /// empty tree.
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

    /// Sets the epochs in which operations run, for nodes whose memory is reused.
    #[must_use]
    pub fn in_epochs(mut self, epochs: Option<Arc<Epochs>>) -> Self {
        self.epochs = epochs;
        self
    }

    /// Returns the current epoch, or 0 if memory is not reclaimed. A cached root may be used only in the epoch in which
    /// it was read, because in a later epoch another node may use its memory.
    pub(crate) fn epoch(&self) -> u64 {
        self.epochs.as_ref().map_or(0, |epochs| epochs.epoch())
    }

    pub(crate) fn set_root(&self, root: Option<Root>, epoch: u64) {
        self.root.with(|known| *known = root.map(|root| (root, epoch)));
    }

    /// Returns the compute node's cache of inner nodes.
    pub fn cache(&self) -> &IndexCache<K> {
        &self.cache
    }

    /// Returns the store of the inner nodes.
    pub fn nodes(&self) -> &S {
        &self.nodes
    }

    /// Updates the cache with the node to which the new child of `split` was just added.
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

    // This is always inlined, because it runs before every operation, and its result is large.
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

    async fn locate_run(&self, v: &V, key: &K, max: usize, run: &mut Run<K>) -> Result<(), IndexError> {
        v.local(LocalStep::Section).await;
        run.clear();
        if self.cache.run(key, max, |hit| push(run, &hit)) > 0 {
            v.meter().note(Event::CacheHit);
        } else {
            v.meter().note(Event::CacheMiss);
            let located = self.find_leaf(v, key).await?;
            if self.cache.run(key, max, |hit| push(run, &hit)) == 0 {
                located.map(|l| run.push_alone(l.leaf.at));
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

    async fn shrink<L: Restructure<V, K>>(&self, v: &V, leaves: &L, key: &K) -> Result<(), IndexError> {
        self.shrink_levels(v, leaves, key).await
    }

    async fn build(&self, v: &V, leaves: &[(K, RemotePtr)], fill: f64) -> Result<(), IndexError> {
        self.build_levels(v, leaves, fill).await
    }

    async fn survey<L: Restructure<V, K>>(
        &self,
        v: &V,
        leaves: &L,
        survey: &mut Survey,
    ) -> Result<(), IndexError> {
        self.survey_levels(v, leaves, survey).await
    }
}

/// Adds a cached child to a run.
fn push<K: KeyBytes>(run: &mut Run<K>, hit: &dm_cache::Hit<K>) {
    run.push(hit.child, &hit.low, hit.high.as_ref());
}
