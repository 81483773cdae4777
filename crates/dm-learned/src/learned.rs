//! The inner structure that the threads of one compute node share.

use dm_alloc::{Allocator, Life};
use dm_index::{
    Approach, Flaw, IndexError, Inner, KeyBound, KeyBytes, Lead, Listing, Located, Merge, Neighbours,
    NodeCopies, Restructure, Run, Split, Survey, merge_sparse, survey_leaves,
};
use dm_sync::{Arc, Fingerprint, Mutex};
use dm_verbs::{Control, Effect, Event, LocalStep, RemotePtr, Verbs};

use crate::known::{Known, LeafHint};
use crate::runs::Runs;
#[cfg(feature = "study")]
use crate::study::Flaws;
use crate::table::{PAGE, PAGE_BYTES, Root, decode_page};

/// Default of [`LearnedOptions::error`], as in ROLEX. With it, a search in local memory compares about six keys.
pub const DEFAULT_ERROR: u32 = 16;
/// Number of steps to the right that an operation takes before it looks for a newer table and learns the leaves on its
/// way. If the compute node's copy lacks leaves, more steps are allowed (see `reach`).
const REACH: u32 = 4;
/// A housekeeping visit writes another table if at least this many known leaves are missing in the current one, and if
/// they are at least one in `LEARNED_PART` of the known leaves.
const LEARNED_MIN: usize = 64;
/// See `LEARNED_MIN`.
const LEARNED_PART: usize = 8;
/// Maximum number of leaves of an index for which a client that has split a leaf writes another table itself, without a
/// visit. It does so if at least `LEARNED_MIN` leaves, and half of those that its compute node knows, are missing in
/// the table. It reads each leaf once.
const OWN_TABLE_MAX: usize = 4096;

/// The kind of prediction that the models of a [`Learned`] make.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Predicts {
    /// A leaf. The low fence keys in the copy of the table show which leaf is the key's leaf, so an operation reads one
    /// leaf.
    Leaf,
    /// A run of leaves, as published for ROLEX: all leaves that may hold the key if the predicted entry is wrong by the
    /// maximum error. [`Runs`](crate::Runs) reads all of them. [`Learned::collect`] never writes a table.
    Run {
        /// Entries of a leaf.
        span: u32,
    },
}

/// Options of a [`Learned`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LearnedOptions {
    /// The kind of prediction that the models make.
    pub predicts: Predicts,
    /// Maximum difference between a predicted and the true position: in leaves, or with [`Predicts::Run`] in entries of
    /// leaves.
    pub error: u32,
    /// Budget in bytes of the compute node's copy of the table.
    pub cache_bytes: u64,
    /// Retry limit of the walk to a leaf that the compute node does not know; exceeding it returns an error.
    pub attempts: u32,
    /// Broken twins.
    #[cfg(feature = "study")]
    pub flaws: Flaws,
}

impl LearnedOptions {
    /// Returns options with this budget and this retry limit, and otherwise the defaults.
    pub const fn new(cache_bytes: u64, attempts: u32) -> Self {
        Self {
            predicts: Predicts::Leaf,
            error: DEFAULT_ERROR,
            cache_bytes,
            attempts,
            #[cfg(feature = "study")]
            flaws: Flaws::NONE,
        }
    }
}

/// A table, as it was read.
#[derive(Debug)]
pub(crate) struct Table<K> {
    pub(crate) entries: Vec<(K, RemotePtr)>,
    /// The pages, and the number of entries in each.
    pub(crate) pages: Vec<(RemotePtr, usize)>,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            pages: Vec::new(),
        }
    }
}

/// An inner structure that predicts a leaf's position in a table of all leaves. The leaves of the index are in the
/// store `L`.
///
/// # Invariants
/// * **I1** The table's first entry always leads to the first leaf, so every key has an entry at or below it.
/// * **I2** All other entries, and all models, are hints. A leaf without an entry is reached through its left
///   neighbour. If an entry leads to a wrong leaf, that leaf's fence keys show this, and the compute node drops the
///   entry from its copy.
///
/// The rules are in `docs/protocol/rolex.md`.
#[derive(Debug)]
pub struct Learned<K: KeyBytes, L> {
    pub(crate) leaves: L,
    pub(crate) alloc: Arc<Allocator>,
    pub(crate) root_word: RemotePtr,
    pub(crate) known: Arc<Mutex<Known<K>>>,
    pub(crate) options: LearnedOptions,
}

impl<K: KeyBytes, L> Learned<K, L> {
    /// Makes the inner structure of an index whose root word is at `root_word`. `leaves` reads the index's leaves, and
    /// `alloc` allocates the pages of tables.
    pub fn new(leaves: L, alloc: Arc<Allocator>, root_word: RemotePtr, options: LearnedOptions) -> Self {
        //= docs/protocol/rolex.md X8
        alloc.restores(PAGE, Life::Unversioned);
        let known = Known::new(options.predicts, options.error, options.cache_bytes);
        Self {
            leaves,
            alloc,
            root_word,
            known: Arc::new(Mutex::new(known)),
            options,
        }
    }

    /// Returns an access to the leaves that reads the run of a key at once. `leaves` reads and writes single leaves.
    pub fn runs<A>(&self, leaves: A) -> Runs<K, A> {
        Runs {
            leaves,
            known: Arc::clone(&self.known),
        }
    }

    /// Returns the bytes that the compute node keeps: its copy of the table, the models, and the leaves that it has
    /// learned since.
    pub fn cache_bytes(&self) -> u64 {
        self.known.with(|known| known.bytes())
    }

    /// Returns the number of models.
    pub fn models(&self) -> usize {
        self.known.with(|known| known.models())
    }

    /// Returns whether so many leaves are missing in the table that a housekeeping visit should write another one.
    /// Returns `false` if the models predict runs.
    pub fn is_outdated(&self) -> bool {
        self.options.predicts == Predicts::Leaf
            && self.known.with(|known| {
                let missing = known.missing();
                missing >= LEARNED_MIN && missing >= known.leaves() / LEARNED_PART
            })
    }

    /// Reads the root word. Returns `None` if the index has no leaf.
    pub(crate) async fn root<V: Verbs>(&self, v: &V) -> Result<Option<Root>, IndexError> {
        Ok(Root::of_word(v.word(self.root_word).await?))
    }

    /// Reads the table of `root` into `table`. The root word must have been read in the same operation. After an error,
    /// `table` has what was read before the error.
    pub(crate) async fn read_table<V: Verbs + Control>(
        &self,
        v: &V,
        root: Root,
        table: &mut Table<K>,
    ) -> Result<(), IndexError> {
        if !root.is_table() {
            table.entries.push((K::MIN, root.at()));
            return Ok(());
        }
        let mut at = root.at();
        while !at.is_null() {
            let bytes = v.read(at, PAGE_BYTES as u32).await?;
            let before = table.entries.len();
            let next = decode_page(at, &bytes, &mut table.entries)?;
            table.pages.push((at, table.entries.len() - before));
            at = next;
            self.alloc.announce_if_due(v).await?;
        }
        Ok(())
    }

    /// Reads the root word, and the table if it is another one than this compute node has. Returns `false` if the index
    /// has no leaf. If this compute node has a copy, an error without an effect is ignored, as if there were no newer
    /// table.
    pub(crate) async fn look<V: Verbs + Control>(&self, v: &V) -> Result<bool, IndexError> {
        v.local(LocalStep::Section).await;
        let known = self.known.with(|known| known.root());
        //= docs/protocol/rolex.md X7
        let harmless = |e: &IndexError| known.is_some() && e.effect() == Effect::None;
        let root = match self.root(v).await {
            Ok(Some(root)) => root,
            Ok(None) => return Ok(false),
            Err(e) if harmless(&e) => return Ok(true),
            Err(e) => return Err(e),
        };
        if known == Some(root) {
            return Ok(true);
        }
        //= docs/protocol/rolex.md X4
        let mut table = Table::default();
        match self.read_table(v, root, &mut table).await {
            Ok(()) => {
                v.local(LocalStep::Section).await;
                self.known.with(|known| known.adopt(root, &table.entries))?;
            }
            Err(e) if harmless(&e) => {}
            Err(e) => return Err(e),
        }
        Ok(true)
    }

    /// Returns the last entry that `bound` admits for `key`.
    async fn entry<V: Verbs>(&self, v: &V, key: &K, bound: KeyBound) -> Option<LeafHint<K>> {
        v.local(LocalStep::Section).await;
        self.known.with(|known| known.entry(key, bound))
    }
}

impl<V, K, L> Inner<V, K> for Learned<K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: NodeCopies<V, K>,
{
    /// The entry that gave the leaf's address, or `None` if this operation has found the leaf by reading.
    type Proof = Option<LeafHint<K>>;

    #[inline]
    fn known(&self, v: &V, key: &K) -> Option<Located<Self::Proof>> {
        let hint = self.known.with(|known| known.entry(key, KeyBound::At))?;
        v.meter().note(Event::CacheHit);
        Some(Located {
            leaf: Lead::hint(hint.leaf),
            proof: Some(hint),
        })
    }

    async fn find(&self, v: &V, key: &K) -> Result<Option<Located<Self::Proof>>, IndexError> {
        v.meter().note(Event::CacheMiss);
        let lead = self.walk_to(v, key).await?;
        Ok(lead.map(|leaf| Located { leaf, proof: None }))
    }

    async fn locate_run(&self, v: &V, key: &K, max: usize, run: &mut Run<K>) -> Result<(), IndexError> {
        v.local(LocalStep::Section).await;
        run.clear();
        self.known.with(|known| known.run(key, max, run));
        if !run.leaves().is_empty() {
            v.meter().note(Event::CacheHit);
        } else if let Some(located) = self.find(v, key).await? {
            run.push_alone(located.leaf.at);
        }
        Ok(())
    }

    /// Keeps the entry, because the leaf was split, and the entry is still right for the keys that stayed in the leaf.
    fn stale(&self, _: &V, _: Self::Proof) {}

    fn invalidate(&self, _: &V, proof: Self::Proof) {
        //= docs/protocol/rolex.md X6
        if let Some(hint) = proof {
            self.known.with(|known| known.forget(hint));
        }
    }

    fn reach(&self, proof: &Self::Proof) -> Option<u32> {
        // If the copy lacks leaves, the key may be in any of the leaves between two entries. There are seldom more than
        // twice the average number of leaves between them.
        proof.map(|_| REACH.saturating_add(self.known.with(|known| known.gap()).saturating_mul(2)))
    }

    async fn found(&self, v: &V, key: &K, leaf: RemotePtr, _hops: u32) {
        v.local(LocalStep::Section).await;
        self.known.with(|known| known.learn(*key, leaf));
    }

    async fn plant(&self, v: &V, leaf: RemotePtr) -> Result<bool, IndexError> {
        //= docs/protocol/rolex.md X1
        Ok(v.cas(self.root_word, 0, Root::of_leaf(leaf).word()).await? == 0)
    }

    /// Adds the new leaf to this compute node's copy only. Other compute nodes reach it from its left neighbour. While
    /// the index is small, the client writes another table each time the number of leaves has doubled, so that a
    /// compute node which joins later finds a table.
    async fn install(&self, v: &V, split: Split<K>) -> Result<(), IndexError> {
        v.local(LocalStep::Section).await;
        let alone = self.known.with(|known| {
            known.split(split.separator, split.right);
            known.claims_table(LEARNED_MIN, OWN_TABLE_MAX)
        });
        if alone {
            // Boxed, because this is rare, and would make the future of every insert larger. The split is complete
            // already, so an error of writing the table is not an error of the insert.
            let _unmetered = v.meter().housekeeping();
            let written = Box::pin(
                self.alloc
                    .while_announcing(v, self.written_beside(v, OWN_TABLE_MAX)),
            );
            let _written_or_not = written.await;
        }
        Ok(())
    }

    async fn shrink<R: Restructure<V, K>>(&self, v: &V, leaves: &R, key: &K) -> Result<(), IndexError> {
        merge_sparse(v, leaves, key, self).await
    }

    async fn build(&self, v: &V, leaves: &[(K, RemotePtr)], _: f64) -> Result<(), IndexError> {
        match self.publish(v, (None, &[]), leaves).await? {
            Some(_) => Ok(()),
            None => Err(IndexError::NotEmpty {
                root: self.root(v).await?.map_or(RemotePtr::NULL, Root::at),
            }),
        }
    }

    async fn survey<R: Restructure<V, K>>(
        &self,
        v: &V,
        leaves: &R,
        survey: &mut Survey,
    ) -> Result<(), IndexError> {
        let Some(root) = self.root(v).await? else {
            survey.misses_nodes();
            return Ok(());
        };
        let mut table = Table::default();
        match self.read_table(v, root, &mut table).await {
            Ok(()) => {}
            Err(IndexError::Corrupt { node, what }) => {
                survey.fault(node, Flaw::Corrupt(what), 0);
                survey.misses_nodes();
            }
            Err(e) => return Err(e),
        }
        for (page, entries) in table.pages {
            survey.count(page, 1, entries, PAGE_BYTES as u64);
        }
        survey_leaves(v, leaves, (&table.entries, Listing::Hints), survey).await
    }
}

impl<V, K, L> Approach<V, K> for Learned<K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: NodeCopies<V, K>,
{
    async fn leaf_near(&self, v: &V, key: &K, bound: KeyBound) -> Result<Option<RemotePtr>, IndexError> {
        Ok(self.entry(v, key, bound).await.map(|hint| hint.leaf))
    }

    async fn join<R: Restructure<V, K>>(
        &self,
        v: &V,
        leaves: &R,
        pair: &Neighbours<K>,
    ) -> Result<Merge, IndexError> {
        //= docs/protocol/rolex.md X6
        let unlink = async || {
            v.local(LocalStep::Section).await;
            let hint = LeafHint {
                low: pair.between,
                leaf: pair.right,
            };
            self.known.with(|known| known.forget(hint));
            Ok(())
        };
        leaves.join(v, pair, unlink).await
    }
}

impl<K: KeyBytes, L> Fingerprint for Learned<K, L> {
    fn fingerprint(&self) -> u64 {
        self.known.fingerprint()
    }
}
