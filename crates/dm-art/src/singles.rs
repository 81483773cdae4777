//! Leaves of one entry (SMART, TOS 2024 §4.1). By default, a client updates a leaf in place, under the leaf's lock. The
//! lock is a word at the leaf's end, or an entry of a lock table.

use dm_index::{Condition, IndexError, gather, is_nowhere};
use dm_layout::{CheckFailure, KeyBytes, SingleEntry, SingleLeaf};
use dm_lock::{Attempted, DOUBT, LockWord, Locks};
use dm_sync::{Arc, fingerprint_of};
use dm_verbs::{RemotePtr, Retry, Verbs, Why};

#[cfg(feature = "study")]
use crate::SingleFlaws;
use crate::errors::unaddressable;
use crate::{Single, SingleSeen, SingleStore};

/// Maximum number of leaves that a check reads at once.
const PARALLEL: usize = 64;
/// Number of READs after which a leaf that is still torn is reported as torn.
const LOOKS: u32 = 8;

/// Options of a [`Singles`] store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SingleOptions {
    /// Maximum number of READs of a torn leaf, and of replaced leaves that a scan follows one after the other. After
    /// that, the operation returns an error.
    pub attempts: u32,
    /// Whether an update writes the leaf in place, under its lock. Otherwise it replaces the leaf by another one, and
    /// no operation takes a leaf's lock. All clients of a tree must use the same value.
    pub in_place: bool,
    /// Published flaws that are switched on.
    #[cfg(feature = "study")]
    pub flaws: SingleFlaws,
}

impl SingleOptions {
    /// Returns options with this limit, with updates in place, and without flaws.
    pub fn new(attempts: u32) -> Self {
        Self {
            attempts,
            in_place: true,
            #[cfg(feature = "study")]
            flaws: SingleFlaws::default(),
        }
    }
}

impl Default for SingleOptions {
    fn default() -> Self {
        Self::new(crate::DEFAULT_ATTEMPTS)
    }
}

/// A store of leaves of one entry. With [`SingleOptions::in_place`], a client updates a leaf under the leaf's lock, and
/// writes only the fields that it changes. A removed leaf stays removed.
#[derive(Debug)]
pub struct Singles<K> {
    layout: SingleLeaf<K>,
    locks: Arc<Locks>,
    options: SingleOptions,
}

impl<K: KeyBytes> Singles<K> {
    /// Creates a store of leaves of this layout. `locks` must use lock tables, or the lock words inside the leaves:
    /// [`GlobalLockTable::in_nodes`](dm_lock::GlobalLockTable::in_nodes) with the offset
    /// [`SingleLeaf::lock_at`]. A leaf has room for the lock word in either case.
    pub fn new(layout: SingleLeaf<K>, locks: Arc<Locks>, options: SingleOptions) -> Self {
        Self {
            layout,
            locks,
            options,
        }
    }

    /// Returns the layout of the leaves.
    pub fn layout(&self) -> &SingleLeaf<K> {
        &self.layout
    }

    fn read_len(&self) -> u32 {
        self.layout.read_bytes() as u32
    }

    /// Returns the result of an operation on `key` that finds this entry, if the entry is not the live entry of `key`.
    /// Returns `None` if it is.
    #[inline]
    fn miss(entry: &SingleEntry<'_, K>, key: &K) -> Option<Single<K>> {
        if !entry.live {
            return Some(match entry.next {
                Some(by) => Single::Replaced {
                    key: entry.key,
                    by: RemotePtr::from_raw(by),
                },
                None => Single::Removed,
            });
        }
        (entry.key != *key).then_some(Single::Other {
            key: entry.key,
            depth: entry.depth,
        })
    }

    /// Makes one attempt at a write under the lock. `edit` changes `key`'s entry in the image and returns the range
    /// to WRITE.
    async fn write_once<V: Verbs>(
        &self,
        v: &V,
        at: RemotePtr,
        (key, before): (&K, Option<&[u8]>),
        edit: impl FnOnce(&mut [u8]) -> core::ops::Range<usize>,
    ) -> Result<Result<Single<K>, CheckFailure>, IndexError> {
        //= docs/protocol/smart.md M7
        // The guard stays in this frame, because moving it would cost more than the rest of the write.
        let mut guard = self.locks.approach(v, at)?;
        let mut bytes = match guard.attempt(at, self.read_len()).await? {
            Attempted::Locked(bytes) => bytes.expect("an acquisition with a READ gives bytes"),
            Attempted::Not(obstacle) => Box::pin(guard.insist(obstacle, at, self.read_len())).await?,
        };
        let miss = match self.layout.open(&bytes) {
            Ok(entry) => {
                let differs = || {
                    before
                        .is_some_and(|before| before != entry.value)
                        .then_some(Single::Differs)
                };
                Ok(Self::miss(&entry, key).or_else(differs))
            }
            Err(e) => Err(e),
        };
        if let Ok(None) = miss {
            let range = edit(&mut bytes);
            let wanted = guard.is_wanted().await;
            let chain = v
                .chain(at.node())
                .write(at.add(range.start as u64), &bytes[range]);
            match wanted {
                true => Box::pin(guard.hand_on(Some(chain))).await?,
                false => guard.unlock(Some(chain)).await?,
            }
            return Ok(Ok(Single::Hit));
        }
        drop(bytes);
        guard.release().await?;
        Ok(miss.map(|other| other.unwrap_or(Single::Hit)))
    }

    /// Removes the entry of `key` by a CAS of the leaf's state, without the leaf's lock.
    async fn remove_unlocked<V: Verbs>(
        &self,
        v: &V,
        at: RemotePtr,
        (key, before): (&K, Option<&[u8]>),
    ) -> Result<Result<Single<K>, CheckFailure>, IndexError> {
        loop {
            let bytes = v.read(at, self.read_len()).await?;
            match self.layout.open(&bytes) {
                Ok(entry) => {
                    if let Some(miss) = Self::miss(&entry, key) {
                        return Ok(Ok(miss));
                    }
                    if before.is_some_and(|before| before != entry.value) {
                        return Ok(Ok(Single::Differs));
                    }
                }
                Err(e) => return Ok(Err(e)),
            }
            drop(bytes);
            // If the CAS fails, the leaf is not live any more, so the loop ends at the next READ.
            if self.end(v, at, None).await? {
                return Ok(Ok(Single::Hit));
            }
        }
    }

    /// Ends the life of the leaf at `at` by a CAS of its state. If there is a `next` leaf, writes its bytes first.
    /// Returns whether the leaf was still live. This takes one round trip, or two if the leaves are on two memory
    /// nodes.
    async fn end<V: Verbs>(
        &self,
        v: &V,
        at: RemotePtr,
        next: Option<(RemotePtr, &[u8])>,
    ) -> Result<bool, IndexError> {
        let ending = self.layout.ending(next.map(|(next, _)| next.raw()));
        let Some((offset, live, ended)) = ending else {
            return Err(unaddressable());
        };
        let state = at.add(offset as u64);
        //= docs/protocol/smart.md M26
        let chain = match next {
            Some((next, image)) if next.node() == at.node() => v.chain(at.node()).write(next, image),
            Some((next, image)) => {
                v.write(next, image).await?;
                v.chain(at.node())
            }
            None => v.chain(at.node()),
        };
        Ok(chain.cas(state, live, ended).post().await? == live)
    }

    /// Updates an entry with flaw T-M2 (for study only).
    #[cold]
    async fn update_stale<V: Verbs>(
        &self,
        v: &V,
        at: RemotePtr,
        key: &K,
        value: &[u8],
    ) -> Result<Result<Single<K>, CheckFailure>, IndexError> {
        let mut bytes = v.read(at, self.read_len()).await?;
        match self.layout.open(&bytes) {
            Ok(entry) => {
                if let Some(miss) = Self::miss(&entry, key) {
                    return Ok(Ok(miss));
                }
            }
            Err(e) => return Ok(Err(e)),
        }
        let guard = self.locks.lock(v, at).await?;
        self.layout.replace(&mut bytes, value);
        let chain = v.chain(at.node()).write(at, &bytes);
        guard.write_back(chain).await?;
        Ok(Ok(Single::Hit))
    }
}

impl<K: KeyBytes> Singles<K> {
    /// Describes a leaf from its bytes, which are empty if there is no memory at its address.
    fn seen(&self, at: RemotePtr, bytes: &[u8]) -> SingleSeen<K> {
        let (condition, key) = match self.layout.open(bytes) {
            _ if bytes.is_empty() => (Condition::Nowhere, None),
            Ok(entry) if entry.live => (Condition::Live, Some(entry.key)),
            Ok(entry) => (Condition::Dead, Some(entry.key)),
            Err(CheckFailure::Torn { .. }) => (Condition::Torn, None),
            Err(CheckFailure::Corrupt(what)) => (Condition::Corrupt(what), None),
        };
        let word = bytes
            .get(self.layout.lock_at()..)
            .and_then(|rest| rest.first_chunk());
        let word = word.map_or(0, |word| u64::from_le_bytes(*word));
        let lock = LockWord::unpack(word);
        let notable = lock.locked || lock.payload & DOUBT != 0;
        SingleSeen {
            condition,
            key,
            next: self
                .layout
                .open(bytes)
                .ok()
                .and_then(|entry| entry.next)
                .map(RemotePtr::from_raw),
            lock: notable.then(|| (at.add(self.layout.lock_at() as u64).into(), word)),
            image: fingerprint_of(bytes),
        }
    }
}

/// Handles a failed check: pauses before another attempt if the leaf was torn. Returns an error if the leaf is corrupt,
/// or if no attempt is left.
async fn again<V: Verbs>(retry: &mut Retry<'_, V>, at: RemotePtr, e: CheckFailure) -> Result<(), IndexError> {
    match e {
        CheckFailure::Torn { .. } => Ok(retry.again(at, Why::Torn).await?),
        CheckFailure::Corrupt(what) => Err(IndexError::Corrupt { node: at, what }),
    }
}

impl<V: Verbs, K: KeyBytes> SingleStore<V, K> for Singles<K> {
    fn value_bytes(&self) -> usize {
        self.layout.value_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.layout.block_bytes() as u32
    }

    fn image(&self, key: &K, value: &[u8], depth: u64, out: &mut Vec<u8>) {
        out.clear();
        out.resize(self.layout.block_bytes(), 0);
        self.layout.build(key, value, depth, out);
    }

    fn depth_at(&self, at: RemotePtr) -> RemotePtr {
        at.add(self.layout.depth_at() as u64)
    }

    async fn get(&self, v: &V, at: RemotePtr, key: &K, value: &mut Vec<u8>) -> Result<Single<K>, IndexError> {
        let mut retry = v.retry(self.options.attempts);
        loop {
            let bytes = v.read(at, self.read_len()).await?;
            //= docs/protocol/smart.md M10
            let failure = match self.layout.open(&bytes) {
                Ok(entry) => {
                    if let Some(miss) = Self::miss(&entry, key) {
                        return Ok(miss);
                    }
                    value.clear();
                    value.extend_from_slice(entry.value);
                    return Ok(Single::Hit);
                }
                Err(failure) => failure,
            };
            drop(bytes);
            again(&mut retry, at, failure).await?;
        }
    }

    fn in_place(&self) -> bool {
        self.options.in_place
    }

    async fn replace(&self, v: &V, at: RemotePtr, next: RemotePtr, image: &[u8]) -> Result<bool, IndexError> {
        self.end(v, at, Some((next, image))).await
    }

    async fn update(
        &self,
        v: &V,
        at: RemotePtr,
        key: &K,
        value: &[u8],
        before: Option<&[u8]>,
    ) -> Result<Single<K>, IndexError> {
        let mut retry = v.retry(self.options.attempts);
        loop {
            let done = if self.options.flaws().stale_write_back {
                self.update_stale(v, at, key, value).await?
            } else {
                let edit = |bytes: &mut [u8]| {
                    self.layout.replace(bytes, value);
                    self.layout.value_range()
                };
                self.write_once(v, at, (key, before), edit).await?
            };
            match done {
                Ok(done) => return Ok(done),
                Err(e) => again(&mut retry, at, e).await?,
            }
        }
    }

    async fn remove(
        &self,
        v: &V,
        at: RemotePtr,
        key: &K,
        before: Option<&[u8]>,
    ) -> Result<Single<K>, IndexError> {
        let mut retry = v.retry(self.options.attempts);
        loop {
            let edit = |bytes: &mut [u8]| {
                let (at, removed) = self.layout.removal();
                bytes[at..at + removed.len()].copy_from_slice(&removed);
                at..at + removed.len()
            };
            let done = match self.options.in_place {
                true => self.write_once(v, at, (key, before), edit).await?,
                false => self.remove_unlocked(v, at, (key, before)).await?,
            };
            match done {
                Ok(done) => return Ok(done),
                Err(e) => again(&mut retry, at, e).await?,
            }
        }
    }

    async fn entries(
        &self,
        v: &V,
        at: &[RemotePtr],
        mut each: impl FnMut(K, &[u8]),
    ) -> Result<(), IndexError> {
        let wanted: Vec<_> = at.iter().map(|&at| (at, self.read_len())).collect();
        let read = gather(v, &wanted).await?;
        for (&at, mut bytes) in at.iter().zip(read) {
            let mut retry = v.retry(self.options.attempts);
            let (mut at, mut hops) = (at, 0);
            loop {
                let open = self.layout.open(&bytes).map(|entry| {
                    if entry.live {
                        each(entry.key, entry.value);
                    }
                    entry.next
                });
                drop(bytes);
                match open {
                    //= docs/protocol/smart.md M28
                    Ok(Some(next)) => {
                        at = RemotePtr::from_raw(next);
                        hops += 1;
                        match hops {
                            // Finding that the first leaf was replaced does not count as a failed attempt, because it
                            // may have been replaced long ago. A new retry loop begins here, so that the explorer never
                            // rewinds a failed attempt at the next leaf to a point before this step.
                            1 => retry = v.retry(self.options.attempts),
                            // Later leaves were replaced during this operation.
                            _ => retry.again_wiser(at, Why::Stale).await?,
                        }
                    }
                    Ok(None) => break,
                    Err(e) => again(&mut retry, at, e).await?,
                }
                bytes = v.read(at, self.read_len()).await?;
            }
        }
        Ok(())
    }

    async fn inspect(
        &self,
        v: &V,
        at: &[RemotePtr],
        mut each: impl FnMut(usize, SingleSeen<K>, &[u8]),
    ) -> Result<(), IndexError> {
        let len = self.layout.block_bytes() as u32;
        for (batch, first) in at.chunks(PARALLEL).zip((0..).step_by(PARALLEL)) {
            let tickets: Vec<_> = batch.iter().map(|&at| v.read(at, len)).collect();
            for (i, ticket) in tickets.into_iter().enumerate() {
                let mut read = ticket.await;
                let mut looks = 0;
                let seen = loop {
                    let bytes = match &read {
                        Ok(bytes) => bytes,
                        Err(e) if is_nowhere(e) => break self.seen(batch[i], &[]),
                        Err(e) => return Err((*e).into()),
                    };
                    looks += 1;
                    match self.seen(batch[i], bytes) {
                        seen if seen.condition != Condition::Torn || looks == LOOKS => break seen,
                        _ => v.pause().await,
                    }
                    read = v.read(batch[i], len).await;
                };
                let bytes: &[u8] = read.as_deref().unwrap_or(&[]);
                let value = self.layout.open(bytes).map_or(&[][..], |entry| entry.value);
                each(first + i, seen, value);
            }
        }
        Ok(())
    }
}
