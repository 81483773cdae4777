//! A radix tree as the inner structure over leaves of many keys. Its entries hold the low fence key and the address
//! of each leaf.

use core::mem::size_of;
use std::collections::HashMap;

use dm_cache::{IndexCache, NodeImage, Origin, Sketch};
use dm_index::{
    Applied, Exchange, IndexError, Inner, KeyBound, KeyBytes, Lead, Listing, Located, RangeIndex,
    Restructure, Run, Scan, Split, Survey, merge_sparse, survey_leaves,
};
use dm_sync::atomic::{AtomicBool, Ordering};
use dm_sync::{Fingerprint, Mutex, fingerprint_of, fingerprint_unordered};
use dm_verbs::{ClientId, Control, Event, LocalStep, RemotePtr, Verbs};

use crate::art::ArtClient;
use crate::shrink::Reading;
use crate::{Art, ArtOptions, SingleStore};

/// Default of [`SeparatorOptions::run`].
pub const DEFAULT_RUN: usize = 32;

/// Estimated number of bytes that the cache needs for one more image besides the image's entries, for example for new
/// slots.
const IMAGE_BYTES: u64 = 8 << 10;

/// Options of [`Separators`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeparatorOptions {
    /// The maximum number of separators that a client caches at once if the compute node does not know a leaf. It reads
    /// them in one scan.
    pub run: usize,
    /// Whether separators are cached approximately ([`Sketch`]) if they do not all fit into the cache. A hint may then
    /// lead a few leaves too far to the left. Otherwise, a part of the separators is cached exactly, and the others are
    /// not cached.
    pub rough: bool,
    /// Broken twin: a client follows an entry again that has led it to a wrong leaf.
    #[cfg(feature = "study")]
    pub credulous: bool,
    /// T-D12: if the leaf of a get is not cached, the client looks for a separator that equals the key, and treats the
    /// key as absent if there is no such separator. It still caches the separators that it has read.
    #[cfg(feature = "study")]
    pub exact: bool,
}

impl SeparatorOptions {
    /// Returns the defaults.
    pub const fn new() -> Self {
        Self {
            run: DEFAULT_RUN,
            rough: true,
            #[cfg(feature = "study")]
            credulous: false,
            #[cfg(feature = "study")]
            exact: false,
        }
    }
}

impl Default for SeparatorOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// An inner structure that maps the low fence key of each leaf to the leaf's address. The entries are in a radix tree
/// whose leaves `S` have values of 8 bytes. The leaves of the index can be any [`dm_index::NodeAccess`].
///
/// # Invariants
/// * **I1** The entry of the smallest key always leads to the first leaf, so every key has an entry at or below it.
/// * **I2** All other entries are hints. A leaf without an entry is reached through its left neighbour. If an entry
///   leads to a wrong leaf, that leaf's fence keys show this, and the entry is removed.
///
/// The rules are in `docs/protocol/dolphin.md`.
#[derive(Debug)]
pub struct Separators<K: KeyBytes, S> {
    pub(crate) art: Art<K, S>,
    cache: IndexCache<K>,
    /// The approximate cache that replaces `cache` when `cache` is full.
    sketch: Sketch<K>,
    /// Whether `sketch` is in use. If so, `cache` is empty.
    crowded: AtomicBool,
    /// For each client that an entry has led to a wrong leaf, the separator and the address of the latest such entry,
    /// until the client reads this entry again (D5).
    misled: Mutex<HashMap<ClientId, (K, RemotePtr)>>,
    /// Separators whose installation failed or was dropped midway.
    owed: Mutex<Vec<(K, RemotePtr)>>,
    options: SeparatorOptions,
}

/// A separator that is being installed. If the installation fails or is dropped midway, the destructor adds the
/// separator to [`Separators::owed`], so that a later search of the compute node installs it.
struct Entering<'s, K: KeyBytes> {
    owed: &'s Mutex<Vec<(K, RemotePtr)>>,
    entry: Option<(K, RemotePtr)>,
}

impl<K: KeyBytes> Drop for Entering<'_, K> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.owed.with(|owed| owed.push(entry));
        }
    }
}

/// The source of a leaf's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeparatorProof<K> {
    /// The compute node's cache.
    Cached(Origin<K>),
    /// The compute node's approximate cache. For this key it returned this leaf, which is the key's leaf or one to its
    /// left.
    Rough(K, RemotePtr),
    /// The entry of this separator, which contained this leaf's address.
    Read(K, RemotePtr),
}

impl<K: KeyBytes, S> Separators<K, S> {
    /// Makes separators whose entries are in `art`. The tree must not have a cache of its own, so its
    /// [`ArtOptions::cache_bytes`] must be 0, because the compute node caches the entries in `cache`.
    ///
    /// # Errors
    /// Returns [`IndexError::BadInput`] if the tree has a cache.
    pub fn new(art: Art<K, S>, cache: IndexCache<K>, options: SeparatorOptions) -> Result<Self, IndexError> {
        let ArtOptions { cache_bytes, .. } = art.options;
        if cache_bytes != 0 {
            return Err(IndexError::BadInput {
                why: "separators have a cache of their own: set the `cache_bytes` of the tree to 0",
            });
        }
        let sketch = Sketch::new(cache.budget());
        Ok(Self {
            art,
            cache,
            sketch,
            crowded: AtomicBool::new(false),
            misled: Mutex::new(HashMap::new()),
            owed: Mutex::new(Vec::new()),
            options,
        })
    }

    /// Returns the size in bytes of the cache of leaves' addresses, with all allocations.
    pub fn cache_bytes(&self) -> u64 {
        match self.is_crowded() {
            true => self.sketch.bytes(),
            false => self.cache.bytes(),
        }
    }

    /// Returns whether there are too many separators to cache them exactly.
    #[inline]
    fn is_crowded(&self) -> bool {
        // Relaxed: an outdated value is harmless. A client that still reads the cache finds nothing there.
        self.crowded.load(Ordering::Relaxed)
    }

    /// Caches the addresses of neighbouring leaves, up to `high`.
    fn admit(&self, leaves: impl Iterator<Item = (K, RemotePtr)> + Clone, high: Option<K>) {
        let Some((low, at)) = leaves.clone().next() else {
            return;
        };
        let image = NodeImage {
            // An image needs an address as its identity. The address of the run's first leaf is used.
            at,
            level: 1,
            low,
            high,
            incarnation: 0,
            entries: leaves.clone(),
        };
        let bytes = IMAGE_BYTES + (leaves.clone().count() * (K::LEN + size_of::<u32>())) as u64;
        let full = self.cache.bytes().saturating_add(bytes) > self.cache.budget();
        if !self.options.rough || !full && !self.is_crowded() {
            let _admitted_or_not = self.cache.admit(image);
            if self.is_crowded() {
                // Another client has switched to the sketch, so this cache is no longer read, and must be emptied. (The
                // load above sees the switch: that client changed `crowded` before it cleared the cache, and this
                // admission took the cache's lock later.)
                self.cache.clear();
            }
            return;
        }
        //= docs/protocol/dolphin.md D18
        // Relaxed: the flag publishes no other data.
        if !self.crowded.swap(true, Ordering::Relaxed) {
            for image in self.cache.snapshot() {
                self.sketch.admit(image.entries, image.high);
            }
            self.cache.clear();
        }
        self.sketch.admit(leaves, high);
    }

    /// Caches the address of one more leaf.
    fn admit_one(&self, separator: K, leaf: RemotePtr) {
        let _remembered_or_not = match self.is_crowded() {
            true => self.sketch.insert(&separator, leaf),
            false => self.cache.insert(1, separator, leaf),
        };
    }

    /// Removes the cached entry of `low`, because it may be wrong. If the cache is exact, this removes the whole image
    /// that contains the entry. If the cache is approximate, this removes the entry only if its address is `leaf`.
    pub(crate) fn doubt(&self, low: &K, leaf: RemotePtr) {
        if self.is_crowded() {
            self.sketch.forget(low, leaf);
        } else if let Some(hit) = self.cache.lookup_at(1, low) {
            self.cache.invalidate(hit.origin);
        }
    }

    /// Records that the leaf that began at `low` was merged into its left neighbour.
    pub(crate) fn merged(&self, low: &K, leaf: RemotePtr) {
        if self.is_crowded() {
            self.sketch.merged(low, leaf);
        } else {
            self.doubt(low, leaf);
        }
    }

    /// Returns the radix tree.
    pub fn art(&self) -> &Art<K, S> {
        &self.art
    }

    /// Returns whether this entry is the one that last led this client to a wrong leaf. Forgets it, because the caller
    /// removes the entry now.
    fn was_misled(&self, client: ClientId, low: K, leaf: RemotePtr) -> bool {
        self.misled.with(|all| {
            let wrong = all.get(&client) == Some(&(low, leaf));
            if wrong {
                all.remove(&client);
            }
            wrong
        })
    }

    /// Reads all separators and offers them to the cache. The verbs are metered as housekeeping. Returns the number of
    /// separators.
    ///
    /// # Errors
    /// Returns the errors of [`RangeIndex::scan`].
    pub async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError>
    where
        S: SingleStore<V, K>,
    {
        let _unmetered = v.meter().housekeeping();
        let client = self.art.client_within(v);
        let (mut from, mut known) = (K::MIN, 0);
        loop {
            let (leaves, next) = self.remember(&client, &from).await?;
            known += leaves as u64;
            match next {
                Some(next) => from = next,
                None => return Ok(known),
            }
        }
    }

    /// Caches the leaves of at most [`SeparatorOptions::run`] separators from `low` on, which it reads. Returns their
    /// number, and the first separator that is not among them, if there is one.
    async fn remember<V: Verbs + Control>(
        &self,
        client: &ArtClient<'_, V, K, S>,
        low: &K,
    ) -> Result<(usize, Option<K>), IndexError>
    where
        S: SingleStore<V, K>,
    {
        let run = self.options.run.max(1);
        let mut entries = Scan::new();
        client.scan(low, run + 1, &mut entries).await?;
        client.verbs().local(LocalStep::Section).await;
        // The run ends at a separator that is already cached. (Approximate entries do not count, because it is better
        // to replace them.)
        let known = |key: &&K| self.cache.lookup_at(1, key).is_some();
        let keys = entries.keys();
        let end = keys.iter().skip(1).position(|key| known(&key));
        let count = end.map_or(keys.len().min(run), |end| end + 1);
        let high = keys.get(count).copied();
        let leaves = (0..count)
            .filter_map(|i| entries.get(i))
            .map(|(key, value)| (key, address(value)));
        self.admit(leaves, high);
        Ok((count, high))
    }

    /// Returns the separator and the leaf's address of the last entry that `bound` admits for `key`, or `None` if there
    /// is none. If this is the entry that last led this client to a wrong leaf, removes it and takes the next lower one.
    pub(crate) async fn read<V: Verbs + Control>(
        &self,
        client: &ArtClient<'_, V, K, S>,
        key: &K,
        bound: KeyBound,
    ) -> Result<Option<(K, RemotePtr)>, IndexError>
    where
        S: SingleStore<V, K>,
    {
        let mut value = Vec::new();
        loop {
            let Some(low) = client.floor(key, bound, &mut value).await? else {
                return Ok(None);
            };
            let (leaf, id) = (address(&value), client.verbs().client());
            client.verbs().local(LocalStep::Section).await;
            //= docs/protocol/dolphin.md D5
            if low == K::MIN || self.options.credulous() || !self.was_misled(id, low, leaf) {
                return Ok(Some((low, leaf)));
            }
            self.strike(client, &low, leaf).await?;
        }
    }

    /// Removes an entry if it still contains this leaf's address.
    pub(crate) async fn strike<V: Verbs + Control>(
        &self,
        client: &ArtClient<'_, V, K, S>,
        low: &K,
        leaf: RemotePtr,
    ) -> Result<(), IndexError>
    where
        S: SingleStore<V, K>,
    {
        client
            .exchange(low, Some(&leaf.raw().to_le_bytes()), None)
            .await?;
        client.settle().await
    }

    /// Installs a separator, and replaces an entry that is already there.
    async fn enter<V: Verbs + Control>(
        &self,
        client: &ArtClient<'_, V, K, S>,
        (separator, right): (K, RemotePtr),
    ) -> Result<(), IndexError>
    where
        S: SingleStore<V, K>,
    {
        //= docs/protocol/dolphin.md D4
        let mut entering = Entering {
            owed: &self.owed,
            entry: Some((separator, right)),
        };
        client.upsert(&separator, &right.raw().to_le_bytes()).await?;
        entering.entry = None;
        client.verbs().local(LocalStep::Section).await;
        self.admit_one(separator, right);
        Ok(())
    }

    async fn find_leaf<V: Verbs + Control>(
        &self,
        v: &V,
        key: &K,
    ) -> Result<Option<Located<SeparatorProof<K>>>, IndexError>
    where
        S: SingleStore<V, K>,
    {
        let client = self.art.client_within(v);
        v.local(LocalStep::Section).await;
        while let Some(entry) = self.owed.with(Vec::pop) {
            // If the installation fails, the entry goes back to `owed`. The error is ignored, because the search does
            // not need this entry.
            if self.enter(&client, entry).await.is_err() {
                break;
            }
        }
        let Some((low, leaf)) = self.read(&client, key, KeyBound::At).await? else {
            return Ok(None);
        };
        // An error while reading the neighbours is ignored, because this operation does not need them and the next one
        // reads them again.
        let _remembered_or_not = self.remember(&client, &low).await;
        Ok(Some(Located {
            //= docs/protocol/dolphin.md D3
            leaf: Lead::hint(leaf),
            proof: SeparatorProof::Read(low, leaf),
        }))
    }
}

/// Returns the address in an entry's value.
fn address(value: &[u8]) -> RemotePtr {
    value.first_chunk().map_or(RemotePtr::NULL, |raw| {
        RemotePtr::from_raw(u64::from_le_bytes(*raw))
    })
}

impl<V: Verbs + Control, K: KeyBytes, S: SingleStore<V, K>> Inner<V, K> for Separators<K, S> {
    type Proof = SeparatorProof<K>;

    #[inline(always)]
    fn known(&self, v: &V, key: &K) -> Option<Located<SeparatorProof<K>>> {
        let (leaf, proof) = match self.is_crowded() {
            true => {
                let leaf = self.sketch.leaf(key)?;
                (leaf, SeparatorProof::Rough(*key, leaf))
            }
            false => {
                let (leaf, origin) = self.cache.leaf(key)?;
                (leaf, SeparatorProof::Cached(origin))
            }
        };
        v.meter().note(Event::CacheHit);
        Some(Located {
            leaf: Lead::hint(leaf),
            proof,
        })
    }

    async fn find(&self, v: &V, key: &K) -> Result<Option<Located<SeparatorProof<K>>>, IndexError> {
        v.meter().note(Event::CacheMiss);
        let found = self.find_leaf(v, key).await?;
        if !self.options.exact() {
            return Ok(found);
        }
        // Flaw T-D12: if the search has cached the leaf, it reports the leaf only if the key equals the leaf's
        // separator. Only gets are affected, because a writer searches again before it concludes that the tree has no
        // leaf, and then finds the leaf in the cache.
        Ok(found.filter(|located| match located.proof {
            SeparatorProof::Read(low, _) => low == *key || self.cache.leaf(key).is_none(),
            SeparatorProof::Cached(_) | SeparatorProof::Rough(..) => true,
        }))
    }

    async fn locate_run(&self, v: &V, key: &K, max: usize, run: &mut Run<K>) -> Result<(), IndexError> {
        v.local(LocalStep::Section).await;
        run.clear();
        if self.cache.run(key, max, |hit| push(run, &hit)) > 0 {
            v.meter().note(Event::CacheHit);
            return Ok(());
        }
        v.meter().note(Event::CacheMiss);
        if self.is_crowded() {
            // The sketch does not show which leaves are adjacent, so the entries are read.
            let client = self.art.client_within(v);
            let mut entries = Scan::new();
            if let Some((low, leaf)) = self.read(&client, key, KeyBound::At).await? {
                client.scan(&low, max, &mut entries).await?;
                let mut found = entries.iter().peekable();
                while let Some((low, value)) = found.next()
                    && run.push(address(value), &low, found.peek().map(|(high, _)| high))
                {}
                if run.leaves().is_empty() {
                    run.push_alone(leaf);
                }
            }
            return Ok(());
        }
        let located = self.find_leaf(v, key).await?;
        v.local(LocalStep::Section).await;
        if self.cache.run(key, max, |hit| push(run, &hit)) == 0 {
            located.map(|l| run.push_alone(l.leaf.at));
        }
        Ok(())
    }

    fn stale(&self, _: &V, proof: SeparatorProof<K>) {
        match proof {
            SeparatorProof::Cached(origin) => {
                self.cache.invalidate(origin);
            }
            // An approximate hint may lead to a leaf to the left of the key's leaf, so it is normally kept. But it is
            // dropped if it leads to the left of a separator in `owed`, because separators in `owed` are installed only
            // when a client searches for a leaf.
            SeparatorProof::Rough(key, leaf) => {
                let leads = |owed: &(K, RemotePtr)| owed.0 <= key && self.sketch.leaf(&owed.0) == Some(leaf);
                if self.owed.with(|owed| owed.iter().any(leads)) {
                    self.sketch.forget(&key, leaf);
                }
            }
            SeparatorProof::Read(..) => {}
        }
    }

    fn invalidate(&self, v: &V, proof: SeparatorProof<K>) {
        self.stale(v, proof);
        if let SeparatorProof::Rough(key, leaf) = proof {
            self.sketch.forget(&key, leaf);
        }
        //= docs/protocol/dolphin.md D5
        if let SeparatorProof::Read(low, leaf) = proof {
            // The cached copy of a wrong entry is wrong too.
            self.doubt(&low, leaf);
            self.misled.with(|all| all.insert(v.client(), (low, leaf)));
        }
    }

    fn reach(&self, proof: &SeparatorProof<K>) -> Option<u32> {
        matches!(proof, SeparatorProof::Rough(..)).then(|| self.sketch.reach())
    }

    async fn plant(&self, v: &V, leaf: RemotePtr) -> Result<bool, IndexError> {
        //= docs/protocol/dolphin.md D2
        let client = self.art.client_within(v);
        let applied = client.insert(&K::MIN, &leaf.raw().to_le_bytes()).await?;
        Ok(applied == Applied::Inserted)
    }

    async fn install(&self, v: &V, split: Split<K>) -> Result<(), IndexError> {
        let client = self.art.client_within(v);
        self.enter(&client, (split.separator, split.right)).await
    }

    async fn shrink<L: Restructure<V, K>>(&self, v: &V, leaves: &L, key: &K) -> Result<(), IndexError> {
        let (separators, client) = (self, self.art.client_within(v));
        merge_sparse(v, leaves, key, &Reading { separators, client }).await
    }

    async fn build(&self, v: &V, leaves: &[(K, RemotePtr)], fill: f64) -> Result<(), IndexError> {
        let mut rest = leaves.iter();
        let client = self.art.client_within(v);
        let next = |value: &mut Vec<u8>| {
            let &(low, at) = rest.next()?;
            value.extend_from_slice(&at.raw().to_le_bytes());
            Some(low)
        };
        client.bulk_load(fill, next).await?;
        Ok(())
    }

    async fn survey<L: Restructure<V, K>>(
        &self,
        v: &V,
        leaves: &L,
        survey: &mut Survey,
    ) -> Result<(), IndexError> {
        let mut entries = survey.of_inner();
        let mut listed = Vec::new();
        let client = self.art.client_within(v);
        let list = |_: &mut Survey, _, low: K, value: &[u8], _| listed.push((low, address(value)));
        self.art.survey_by(&client, &mut entries, list).await?;
        survey.include(entries, 1);
        listed.sort_unstable_by_key(|(low, _)| *low);
        //= docs/protocol/dolphin.md D2
        survey_leaves(v, leaves, (&listed, Listing::Hints), survey).await
    }
}

impl<K: KeyBytes, S> Fingerprint for Separators<K, S> {
    fn fingerprint(&self) -> u64 {
        let misled = |all: &mut HashMap<ClientId, (K, RemotePtr)>| {
            fingerprint_unordered(all.iter().map(|(client, entry)| (*client, *entry)))
        };
        let owed = |all: &mut Vec<(K, RemotePtr)>| fingerprint_unordered(all.iter().copied());
        let lists = (self.misled.with(misled), self.owed.with(owed));
        let known = (
            self.cache.fingerprint(),
            self.sketch.fingerprint(),
            self.is_crowded(),
        );
        fingerprint_of(&(self.art.fingerprint(), known, lists))
    }
}

/// Adds a cached child to a run.
fn push<K: KeyBytes>(run: &mut Run<K>, hit: &dm_cache::Hit<K>) {
    run.push(hit.child, &hit.low, hit.high.as_ref());
}
