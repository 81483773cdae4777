//! A radix tree as the inner structure over leaves of many keys: where each leaf begins, and its address.

use core::mem::size_of;

use dm_cache::{IndexCache, NodeImage, Origin, Sketch};
use dm_index::{
    Applied, Exchange, IndexError, Inner, KeyBytes, Lead, Located, NodeStore, RangeIndex, Scan, SingleStore,
    Split,
};
use dm_sync::atomic::{AtomicBool, Ordering};
use dm_sync::{Fingerprint, Mutex, fingerprint_of, fingerprint_unordered};
use dm_verbs::{Control, Event, LocalStep, RemotePtr, Verbs};

use crate::art::ArtClient;
use crate::floor::Bound;
use crate::{Art, ArtOptions};

/// Default of [`SeparatorOptions::run`].
pub const DEFAULT_RUN: usize = 32;
/// Separators that a compute node has been misled by and not looked at since. More are forgotten.
const MISLED_MAX: usize = 64;

/// Bytes that an image in the cache may take beside its entries: the slots that are allocated for it and others.
const IMAGE_BYTES: u64 = 8 << 10;

/// How [`Separators`] work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeparatorOptions {
    /// Leaves that a compute node learns of at once when it does not know one.
    pub run: usize,
    /// Where not all separators fit into the cache, all are remembered roughly ([`Sketch`]): a hint may be a few leaves to the
    /// left. Off: some are remembered, and of the others nothing.
    pub rough: bool,
    /// Nowhere published: who is misled by an entry believes it again.
    #[cfg(feature = "study")]
    pub credulous: bool,
    /// T-D12: a get whose leaf the compute node does not know looks for a separator that is its key, and takes the key for
    /// absent where there is none; what it read is remembered all the same.
    #[cfg(feature = "study")]
    pub exact: bool,
}

impl Default for SeparatorOptions {
    fn default() -> Self {
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

/// The leaves of an index by their low fences, in a radix tree of entries `S` with values of 8 bytes: the inner structure of
/// an index whose leaves are any [`NodeStore`].
///
/// # Invariants
/// * **I1** The entry of the smallest key names the first leaf, for ever: every key has an entry at or below it.
/// * **I2** All other entries are hints. A leaf that is missing here is reached over its left neighbour; one that is named
///   wrongly proves by its fences that it is not meant, and then its entry goes.
///
/// The rules are `docs/protocol/dolphin.md`.
#[derive(Debug)]
pub struct Separators<K: KeyBytes, S> {
    pub(crate) art: Art<K, S>,
    cache: IndexCache<K>,
    /// What is remembered instead once that is full.
    sketch: Sketch<K>,
    /// It is: nothing is in `cache` any more.
    crowded: AtomicBool,
    /// Entries that led nowhere, by separator and address.
    misled: Mutex<Vec<(K, RemotePtr)>>,
    /// Separators whose clients gave up entering them.
    owed: Mutex<Vec<(K, RemotePtr)>>,
    options: SeparatorOptions,
}

/// A separator on its way into the tree: if that is given up, somebody else of the compute node enters it.
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

/// What a leaf's address was taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeparatorProof<K> {
    /// What the compute node remembers.
    Cached(Origin<K>),
    /// What the compute node remembers roughly, of this key: that leaf, or one to its right.
    Rough(K, RemotePtr),
    /// The entry of this separator, which named this leaf.
    Read(K, RemotePtr),
}

impl<K: KeyBytes, S> Separators<K, S> {
    /// Over the entries of `art`, which must remember nothing ([`ArtOptions::cache_bytes`] of 0): what its compute node
    /// remembers of them is in `cache`.
    ///
    /// # Errors
    /// [`IndexError::BadInput`] for a tree that has a cache.
    pub fn new(art: Art<K, S>, cache: IndexCache<K>, options: SeparatorOptions) -> Result<Self, IndexError> {
        let ArtOptions { cache_bytes, .. } = art.options;
        if cache_bytes != 0 {
            return Err(IndexError::BadInput {
                why: "separators are remembered in a cache of their own",
            });
        }
        let sketch = Sketch::new(cache.budget());
        Ok(Self {
            art,
            cache,
            sketch,
            crowded: AtomicBool::new(false),
            misled: Mutex::new(Vec::new()),
            owed: Mutex::new(Vec::new()),
            options,
        })
    }

    /// Bytes of what the compute node remembers of leaves, every allocation counted.
    pub fn cache_bytes(&self) -> u64 {
        match self.is_crowded() {
            true => self.sketch.bytes(),
            false => self.cache.bytes(),
        }
    }

    /// Whether there is too much to be remembered exactly.
    #[inline]
    fn is_crowded(&self) -> bool {
        // Relaxed: either answer will do. Who still asks the cache finds nothing there.
        self.crowded.load(Ordering::Relaxed)
    }

    /// Remembers neighbouring leaves, up to `high`.
    fn admit(&self, leaves: impl Iterator<Item = (K, RemotePtr)> + Clone, high: Option<K>) {
        let Some((low, at)) = leaves.clone().next() else {
            return;
        };
        let image = NodeImage {
            // Where the run's first leaf lies names it well enough.
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
                // Somebody was quicker: nobody asks here any more. (Whoever cleared it before this was admitted let its lock go
                // after the change, so that is seen.)
                self.cache.clear();
            }
            return;
        }
        //= docs/protocol/dolphin.md D18
        // Relaxed: nothing is published by it.
        if !self.crowded.swap(true, Ordering::Relaxed) {
            for image in self.cache.snapshot() {
                self.sketch.admit(image.entries, image.high);
            }
            self.cache.clear();
        }
        self.sketch.admit(leaves, high);
    }

    /// Remembers one leaf more.
    fn admit_one(&self, separator: K, leaf: RemotePtr) {
        let _remembered_or_not = match self.is_crowded() {
            true => self.sketch.insert(&separator, leaf),
            false => self.cache.insert(1, separator, leaf),
        };
    }

    /// What is remembered of the entry of `low` may be wrong, if it names `leaf`.
    pub(crate) fn doubt(&self, low: &K, leaf: RemotePtr) {
        if self.is_crowded() {
            self.sketch.forget(low, leaf);
        } else if let Some(hit) = self.cache.lookup_at(1, low) {
            self.cache.invalidate(hit.origin);
        }
    }

    /// The leaf that began at `low` is part of the one to its left.
    pub(crate) fn merged(&self, low: &K, leaf: RemotePtr) {
        if self.is_crowded() {
            self.sketch.merged(low, leaf);
        } else {
            self.doubt(low, leaf);
        }
    }

    /// The radix tree.
    pub fn art(&self) -> &Art<K, S> {
        &self.art
    }

    /// Whether this entry has led nowhere; it is looked at now.
    fn was_misled(&self, low: K, leaf: RemotePtr) -> bool {
        self.misled.with(|all| {
            let found = all.iter().position(|entry| *entry == (low, leaf));
            found.map(|i| all.swap_remove(i)).is_some()
        })
    }

    /// Reads all separators into the cache, as far as it admits them; metered as housekeeping. Answers how many.
    ///
    /// # Errors
    /// As any read.
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

    /// Reads the separators from `low` on and remembers their leaves; answers how many, and the first one that is not among
    /// them.
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
        // Where something is known again, the run ends. (What is known roughly is better known anew.)
        let known = |key: &&K| self.cache.lookup_at(1, key).is_some();
        let keys = entries.keys();
        let end = keys.iter().take(run + 1).skip(1).position(|key| known(&key));
        let count = end.map_or(keys.len().min(run), |end| end + 1);
        let high = keys.get(count).copied();
        let leaves = (0..count)
            .filter_map(|i| entries.get(i))
            .map(|(key, value)| (key, address(value)));
        self.admit(leaves, high);
        Ok((count, high))
    }

    /// The leaf of `key` as the entries name it, and the entry's key.
    pub(crate) async fn read<V: Verbs + Control>(
        &self,
        client: &ArtClient<'_, V, K, S>,
        key: &K,
        bound: Bound,
    ) -> Result<Option<(K, RemotePtr)>, IndexError>
    where
        S: SingleStore<V, K>,
    {
        let mut value = Vec::new();
        loop {
            let Some(low) = client.floor(key, bound, &mut value).await? else {
                return Ok(None);
            };
            let leaf = address(&value);
            client.verbs().local(LocalStep::Section).await;
            //= docs/protocol/dolphin.md D5
            if low == K::MIN || self.options.credulous() || !self.was_misled(low, leaf) {
                return Ok(Some((low, leaf)));
            }
            self.strike(client, &low, leaf).await?;
        }
    }

    /// Takes an entry away if it still names that leaf.
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

    /// Enters a separator: over whatever is there.
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
            // Whoever looks for a leaf finds it without: what fails here is owed still.
            if self.enter(&client, entry).await.is_err() {
                break;
            }
        }
        let Some((low, leaf)) = self.read(&client, key, Bound::At).await? else {
            return Ok(None);
        };
        // That others beside it can't be read is not this operation's concern: the next one asks again.
        let _remembered_or_not = self.remember(&client, &low).await;
        Ok(Some(Located {
            //= docs/protocol/dolphin.md D3
            leaf: Lead::hint(leaf),
            proof: SeparatorProof::Read(low, leaf),
        }))
    }
}

/// The address in an entry's value.
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
        // T-D12. Who writes asks again before it believes that there is no leaf at all, and by then it is remembered.
        Ok(found.filter(|located| match located.proof {
            SeparatorProof::Read(low, _) => low == *key || self.cache.leaf(key).is_none(),
            SeparatorProof::Cached(_) | SeparatorProof::Rough(..) => true,
        }))
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
            return Ok(());
        }
        v.meter().note(Event::CacheMiss);
        if self.is_crowded() {
            // Which leaves follow on each other is not remembered: their entries say so.
            let client = self.art.client_within(v);
            let mut entries = Scan::new();
            if let Some((low, leaf)) = self.read(&client, key, Bound::At).await? {
                client.scan(&low, max, &mut entries).await?;
                run.extend(entries.iter().map(|(_, value)| address(value)));
                if run.is_empty() {
                    run.push(leaf);
                }
            }
            return Ok(());
        }
        let located = self.find_leaf(v, key).await?;
        v.local(LocalStep::Section).await;
        if self.cache.run(key, max, |hit| run.push(hit.child)) == 0 {
            run.extend(located.map(|l| l.leaf.at));
        }
        Ok(())
    }

    fn stale(&self, _: &V, proof: SeparatorProof<K>) {
        match proof {
            SeparatorProof::Cached(origin) => {
                self.cache.invalidate(origin);
            }
            // The leaf may well be to the right of where a rough hint leads. Where separators are owed, one who knows nothing
            // is needed: those who look them up enter what is owed.
            SeparatorProof::Rough(key, leaf) => {
                let leads = |owed: &(K, RemotePtr)| owed.0 <= key && self.sketch.leaf(&owed.0) == Some(leaf);
                if self.owed.with(|owed| owed.iter().any(leads)) {
                    self.sketch.forget(&key, leaf);
                }
            }
            SeparatorProof::Read(..) => {}
        }
    }

    fn misled(&self, v: &V, proof: SeparatorProof<K>) {
        self.stale(v, proof);
        if let SeparatorProof::Rough(key, leaf) = proof {
            self.sketch.forget(&key, leaf);
        }
        //= docs/protocol/dolphin.md D5
        if let SeparatorProof::Read(low, leaf) = proof {
            // What was remembered of the entry says the same.
            self.doubt(&low, leaf);
            self.misled.with(|all| {
                if all.contains(&(low, leaf)) {
                    return;
                }
                // Those of operations that were given up stay: the oldest makes room.
                if all.len() == MISLED_MAX {
                    all.remove(0);
                }
                all.push((low, leaf));
            });
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

    async fn shrink<L: NodeStore<V, K>>(&self, v: &V, leaves: &L, key: &K) -> Result<(), IndexError> {
        self.shrink_leaf(v, leaves, key).await
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
}

impl<K: KeyBytes, S> Fingerprint for Separators<K, S> {
    fn fingerprint(&self) -> u64 {
        let lists = [&self.misled, &self.owed];
        let lists = lists.map(|list| list.with(|all| fingerprint_unordered(all.iter().copied())));
        let known = (
            self.cache.fingerprint(),
            self.sketch.fingerprint(),
            self.is_crowded(),
        );
        fingerprint_of(&(self.art.fingerprint(), known, lists))
    }
}
