//! An index made of an inner structure and a node store of leaves.

use core::cell::RefCell;
use core::fmt;
use core::future::Future;

use dm_layout::{FenceKeys, KeyBytes};
use dm_sync::epoch::{Running, Seat};
use dm_verbs::{Effect, LocalStep, RemotePtr, Retry, Verbs, Why};

use crate::{
    Answer, Applied, Exchange, Fill, Hops, IndexError, Inner, Lead, Located, NodeAccess, NodeCopy, NodeStore,
    OldValue, RangeIndex, Reclaim, Restructure, Run, Scan, Stale, Write,
};

mod load;
mod options;
mod scan;
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public only with the feature `study`")
)]
mod study;

use load::Load;
pub use options::{ComposedOptions, CpuCost};
pub use scan::SCAN_BATCH;
#[cfg(feature = "study")]
pub use study::Flaws;

/// A client of an index made of `I` and `L`.
///
/// All clients of a compute node share `I` and `L`; this type holds the client's connection and buffers.
#[derive(Debug)]
pub struct Composed<'h, V, K, I, L> {
    v: &'h V,
    inner: &'h I,
    leaves: &'h L,
    options: ComposedOptions,
    buffers: RefCell<Buffers<K>>,
    presence: Presence<'h>,
}

/// A client's seat among the running operations of its compute node, if memory is reclaimed.
struct Presence<'h> {
    seat: Option<Seat>,
    vacate: Box<dyn Fn(Seat) + 'h>,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            (self.vacate)(seat);
        }
    }
}

impl fmt::Debug for Presence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Presence").field(&self.seat).finish()
    }
}

/// The retry loop of one operation, and its steps along sibling pointers.
struct Way<'h, V> {
    retry: Retry<'h, V>,
    hops: Hops,
}

impl<'h, V: Verbs> Way<'h, V> {
    #[inline(always)]
    fn new(v: &'h V, attempts: u32) -> Self {
        Self {
            retry: v.retry(attempts),
            hops: Hops::default(),
        }
    }
}

/// The reason why an operation must try another leaf.
enum Missed {
    /// The leaf does not cover the key.
    Stale(Stale),
    /// The leaf could not be read or written.
    Failed(IndexError),
}

#[derive(Debug)]
struct Buffers<K> {
    run: Run<K>,
    copy: NodeCopy<K>,
}

impl<K: KeyBytes> Default for Buffers<K> {
    fn default() -> Self {
        Self {
            run: Run::new(),
            copy: NodeCopy::new(),
        }
    }
}

impl<'h, V: Verbs, K: KeyBytes, I: Inner<V, K>, L: NodeAccess<V, K>> Composed<'h, V, K, I, L> {
    /// Makes a client over `v`.
    pub fn new(v: &'h V, inner: &'h I, leaves: &'h L, options: ComposedOptions) -> Self {
        Self {
            v,
            inner,
            leaves,
            options,
            buffers: RefCell::default(),
            presence: Presence {
                seat: leaves.whole().reclaim().seat(v),
                vacate: Box::new(|seat| leaves.whole().reclaim().vacate(v, seat)),
            },
        }
    }

    /// Begins an operation, which ends when the returned guard is dropped. Until then, memory that the operation reads
    /// is not reused.
    async fn start_or_wait(&self) -> Result<Option<Running<'_>>, IndexError> {
        if self.presence.seat.is_some() {
            self.v.local(LocalStep::Section).await;
        }
        match self.try_begin() {
            Ok(running) => Ok(running),
            Err(seat) => self.enrolled(seat).await.map(Some),
        }
    }

    /// Begins an operation. Returns `Ok(None)` if memory is never reused, and the seat as the error if the client must
    /// prepare the seat first.
    #[inline(always)]
    fn try_begin(&self) -> Result<Option<Running<'_>>, &Seat> {
        let Some(seat) = &self.presence.seat else {
            return Ok(None);
        };
        // A client with an operation in progress does not prepare its seat, because that operation belongs to the
        // membership in which it began (R6).
        if !seat.is_running() && (seat.has_forgotten() || self.leaves.whole().reclaim().is_due(self.v)) {
            return Err(seat);
        }
        seat.enter().map(Some).ok_or(seat)
    }

    /// Prepares the seat, and then begins an operation.
    async fn enrolled<'s>(&self, seat: &'s Seat) -> Result<Running<'s>, IndexError> {
        let mut retry = self.v.retry(self.options.attempts);
        loop {
            self.leaves.whole().reclaim().prepare(self.v, seat).await?;
            self.v.local(LocalStep::Section).await;
            if let Some(running) = seat.enter() {
                return Ok(running);
            }
            // The seat refuses again: meanwhile the compute node has left the pool, or the other members have removed
            // it.
            retry.again(RemotePtr::NULL, Why::Changing).await?;
        }
    }

    /// Returns the client's connection.
    pub fn verbs(&self) -> &'h V {
        self.v
    }

    /// Finds the leaf of `key` after a search has found no leaf in the index. For this it makes a leaf, and plants this
    /// leaf as the first one unless another client has been faster.
    async fn planted(&self, key: &K) -> Result<Located<I::Proof>, IndexError> {
        let mut retry = self.v.retry(self.options.attempts);
        loop {
            // The leaf is live from the start. It needs no unborn state, because without leaves in the index no client
            // has an old address of this memory.
            let leaf = self
                .leaves
                .whole()
                .create(self.v, 0, FenceKeys::ALL, &[], false)
                .await?;
            let planted = self.inner.plant(self.v, leaf.at).await;
            let without = |e: &IndexError| e.effect() == Effect::None;
            if planted.as_ref().map_or_else(without, |planted| !planted) {
                // Another client planted its leaf first, or planting failed without effect. Nothing has ever pointed to
                // this leaf.
                self.leaves.whole().forget(leaf);
            }
            if !planted? && self.options.flaws().root_race_fatal {
                return Err(IndexError::BadInput {
                    why: "published flaw T-S5: lost the race for the root",
                });
            }
            if let Some(located) = self.inner.locate(self.v, key).await? {
                return Ok(located);
            }
            retry.again_wiser(leaf.at, Why::Raced).await?;
        }
    }

    /// Carries out a write. This future contains the steps of a write that finds no stale address, splits no node and
    /// gets no error. Most of the other steps are rare and boxed. Unboxed they would make this future larger, and
    /// moving a future copies all of it.
    async fn apply(&self, key: &K, write: Write<'_>) -> Result<Applied, IndexError> {
        let expected = self.leaves.value_bytes();
        if let Some(found) = write.value().map(<[u8]>::len).filter(|&n| n != expected) {
            return Err(IndexError::ValueLength { found, expected });
        }
        let _begun = self.v.operation()?;
        if self.presence.seat.is_some() {
            self.v.local(LocalStep::Section).await;
        }
        let running = match self.try_begin() {
            Ok(running) => running,
            // This future is not boxed, because one operation in a few dozen needs it, and each box is an allocation.
            Err(seat) => Some(self.enrolled(seat).await?),
        };
        self.options.cpu.charge(self.v).await;
        self.v.local(LocalStep::Section).await;
        let mut located = match self.inner.known(self.v, key) {
            Some(located) => located,
            None => match Box::pin(self.found_or_planted(key, write)).await {
                Ok(Ok(located)) => located,
                Ok(Err(applied)) => return end_operation(running, Ok(applied)),
                Err(error) => return end_operation(running, Err(error)),
            },
        };
        let mut way = Way::new(self.v, self.options.attempts);
        let done = loop {
            let missed = match self.leaves.write(self.v, located.leaf, 0, key, write, None).await {
                Ok(Answer::Done(applied)) => {
                    if way.hops.taken() > 0 {
                        let (leaf, hops) = (located.leaf.at, way.hops.taken());
                        self.inner.found(self.v, key, leaf, hops).await;
                    }
                    break Ok(applied);
                }
                Ok(Answer::Split(applied, split)) => {
                    // The write may have taken effect, even if the separator cannot be installed.
                    if let Err(e) = Box::pin(self.inner.install(self.v, split)).await {
                        break Err(e.after_effect(split.right));
                    }
                    match applied {
                        Some(applied) => break Ok(applied),
                        None => Missed::Stale(Stale::Right(Lead::hint(split.right))),
                    }
                }
                Ok(Answer::Sparse(applied)) => {
                    let shrunk = Box::pin(self.inner.shrink(self.v, self.leaves.whole(), key)).await;
                    break shrunk.map_or_else(|e| Err(e.after_effect(located.leaf.at)), |()| Ok(applied));
                }
                Ok(Answer::Stale(stale)) => Missed::Stale(stale),
                Err(error) => Missed::Failed(error),
            };
            match Box::pin(self.next(key, located, missed, &mut way)).await {
                Ok(next) => located = next,
                Err(error) => break Err(error),
            }
        };
        end_operation(running, done)
    }

    /// Finds the leaf of `key` by reading. If the index is empty, makes the first leaf, or returns the result of a write
    /// that adds nothing.
    async fn found_or_planted(
        &self,
        key: &K,
        write: Write<'_>,
    ) -> Result<Result<Located<I::Proof>, Applied>, IndexError> {
        match (self.inner.find(self.v, key).await?, write.if_absent()) {
            (Some(located), _) => Ok(Ok(located)),
            (None, Some(applied)) => Ok(Err(applied)),
            (None, None) => self.planted(key).await.map(Ok),
        }
    }

    /// Returns the next leaf to try when a leaf does not cover `key` or could not be used.
    async fn next(
        &self,
        key: &K,
        located: Located<I::Proof>,
        missed: Missed,
        way: &mut Way<'h, V>,
    ) -> Result<Located<I::Proof>, IndexError> {
        match missed {
            Missed::Stale(stale) => self.follow(key, located, stale, way).await,
            Missed::Failed(error) => self.recover(key, located, error).await,
        }
    }

    /// Returns the next leaf to try when a leaf could not be read or written. If a rough hint led to the failed leaf,
    /// this may be the leaf of another key. Its lock may belong to a dead client, its memory node may be unreachable,
    /// or its bytes may be damaged, while the key's own leaf has none of these problems. Returns `error` if the hint
    /// was exact, if the operation may have had an effect, or if a search finds no leaf.
    async fn recover(
        &self,
        key: &K,
        located: Located<I::Proof>,
        error: IndexError,
    ) -> Result<Located<I::Proof>, IndexError> {
        if error.effect() != Effect::None || self.inner.reach(&located.proof).is_none() {
            return Err(error);
        }
        self.inner.invalidate(self.v, located.proof);
        //= docs/protocol/dolphin.md D18
        self.inner.find(self.v, key).await?.ok_or(error)
    }

    /// Returns the next leaf to try when an address was stale.
    async fn follow(
        &self,
        key: &K,
        located: Located<I::Proof>,
        stale: Stale,
        Way { retry, hops }: &mut Way<'h, V>,
    ) -> Result<Located<I::Proof>, IndexError> {
        let reach = self.inner.reach(&located.proof);
        match stale {
            // Usually the hint is only reported as stale. But an unlinked `right` may come from a dead node, and other
            // operations must not follow a rough hint to a dead node.
            Stale::Right(right) if right.linked || reach.is_none() => {
                self.inner.stale(self.v, located.proof);
            }
            Stale::Right(_) | Stale::Elsewhere => self.inner.invalidate(self.v, located.proof),
        }
        self.leaves.whole().reclaim().announce_if_due(self.v).await?;
        match stale {
            Stale::Right(right) => {
                //= docs/protocol/reclaim.md R10
                if hops.step(retry, right.at).await? {
                    // The address led to a leaf so far to the left of the key that a new search takes fewer steps.
                    // Other operations must not follow this hint.
                    self.inner.invalidate(self.v, located.proof);
                    if let Some(located) = self.inner.locate(self.v, key).await? {
                        return Ok(located);
                    }
                } else if reach.is_some_and(|reach| hops.taken() > reach) {
                    // This took more steps than normal, because the leaves in between have been split. A search finds a
                    // more direct way to the key's leaf, or learns one.
                    self.inner.invalidate(self.v, located.proof);
                    if let Some(located) = self.inner.find(self.v, key).await? {
                        return Ok(located);
                    }
                }
                Ok(Located {
                    leaf: right,
                    proof: located.proof,
                })
            }
            Stale::Elsewhere => {
                retry.again(located.leaf.at, Why::Stale).await?;
                match self.inner.locate(self.v, key).await? {
                    Some(located) => Ok(located),
                    None => self.planted(key).await,
                }
            }
        }
    }
}

impl<V: Verbs, K: KeyBytes, I: Inner<V, K>, L: NodeAccess<V, K>> Exchange for Composed<'_, V, K, I, L> {
    async fn exchange(
        &self,
        key: &K,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<Applied, IndexError> {
        self.apply(key, Write::Exchange { before, after }).await
    }

    async fn swap(&self, key: &K, before: &mut Vec<u8>, after: Option<&[u8]>) -> Result<Applied, IndexError> {
        let old = OldValue::in_buffer(core::mem::take(before));
        let write = Write::Swap { before: &old, after };
        let done = self.apply(key, write).await;
        *before = old.into_bytes();
        done
    }

    async fn begin(&self) -> Result<Option<Running<'_>>, IndexError> {
        let _begun = self.v.operation()?;
        self.start_or_wait().await
    }
}

impl<V: Verbs, K: KeyBytes, I: Inner<V, K>, L: NodeAccess<V, K>> RangeIndex for Composed<'_, V, K, I, L> {
    type Key = K;

    fn value_bytes(&self) -> usize {
        self.leaves.value_bytes()
    }

    async fn get(&self, key: &K, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        let _begun = self.v.operation()?;
        if self.presence.seat.is_some() {
            self.v.local(LocalStep::Section).await;
        }
        let running = match self.try_begin() {
            Ok(running) => running,
            Err(seat) => Some(self.enrolled(seat).await?),
        };
        self.options.cpu.charge(self.v).await;
        value.clear();
        self.v.local(LocalStep::Section).await;
        let mut located = match self.inner.known(self.v, key) {
            Some(located) => located,
            None => match Box::pin(self.inner.find(self.v, key)).await {
                Ok(Some(located)) => located,
                other => return end_operation(running, other.map(|_| false)),
            },
        };
        let mut way = Way::new(self.v, self.options.attempts);
        loop {
            let missed = match self.leaves.get(self.v, located.leaf, 0, key, value).await {
                Ok(Answer::Done(found) | Answer::Split(Some(found), _) | Answer::Sparse(found)) => {
                    if way.hops.taken() > 0 {
                        let (leaf, hops) = (located.leaf.at, way.hops.taken());
                        self.inner.found(self.v, key, leaf, hops).await;
                    }
                    return Ok(found);
                }
                Ok(Answer::Split(None, split)) => Missed::Stale(Stale::Right(Lead::hint(split.right))),
                Ok(Answer::Stale(stale)) => Missed::Stale(stale),
                Err(error) => Missed::Failed(error),
            };
            match Box::pin(self.next(key, located, missed, &mut way)).await {
                Ok(next) => located = next,
                // A get may have posted the CAS that makes the first leaf, and that CAS may still take effect.
                Err(error) => return end_operation(running, Err(error)),
            }
        }
    }

    #[inline]
    fn insert(&self, key: &K, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>> {
        self.apply(key, Write::Insert(value))
    }
    #[inline]
    fn update(&self, key: &K, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>> {
        self.apply(key, Write::Update(value))
    }
    #[inline]
    fn upsert(&self, key: &K, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>> {
        self.apply(key, Write::Upsert(value))
    }
    #[inline]
    fn remove(&self, key: &K) -> impl Future<Output = Result<Applied, IndexError>> {
        self.apply(key, Write::Remove)
    }

    async fn scan(&self, from: &K, limit: usize, out: &mut Scan<K>) -> Result<(), IndexError> {
        let _begun = self.v.operation()?;
        let running = self.start_or_wait().await?;
        self.options.cpu.charge(self.v).await;
        out.reset(self.leaves.value_bytes());
        // The scan takes the buffers. If it is dropped midway, they are lost, and the next scan allocates new
        // ones.
        let mut buffers = self.buffers.take();
        let result = self.scan_into(from, limit, &mut buffers, out).await;
        self.buffers.replace(buffers);
        end_operation(running, result)
    }

    async fn bulk_load(
        &self,
        fill: impl Into<Fill>,
        next: impl FnMut(&mut Vec<u8>) -> Option<K>,
    ) -> Result<u64, IndexError> {
        let fill = fill.into().checked()?;
        let _begun = self.v.operation()?;
        //= docs/protocol/reclaim.md R17
        let running = self.start_or_wait().await?;
        // Boxed, because it is rare and would make the futures of operations large.
        let loading = Box::pin(self.load(fill, next));
        let loaded = self.leaves.whole().reclaim().while_announcing(self.v, loading);
        end_operation(running, loaded.await)
    }
}

impl<V: Verbs, K: KeyBytes, I: Inner<V, K>, L: NodeAccess<V, K>> Composed<'_, V, K, I, L> {
    /// Loads an empty index, within an operation.
    async fn load(
        &self,
        fill: Fill,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<K>,
    ) -> Result<u64, IndexError> {
        if let Some(located) = self.inner.locate(self.v, &K::MIN).await? {
            return Err(IndexError::NotEmpty {
                root: located.leaf.at,
            });
        }
        //= docs/protocol/reclaim.md R11
        self.leaves.whole().reclaim().land(self.v).await?;
        let mut load = Load::begin(self.v, self.leaves.whole(), fill).await?;
        let mut value = Vec::with_capacity(self.leaves.value_bytes());
        while let Some(key) = next(&mut value) {
            load.push(self.v, self.leaves.whole(), (key, &value)).await?;
            value.clear();
        }
        let (leaves, total) = load.end(self.v, self.leaves.whole()).await?;
        self.inner.build(self.v, &leaves, fill.mean()).await?;
        Ok(total)
    }
}

/// Ends an operation with the result `done`. If a request of the operation may still take effect, the seat stays pinned
/// ([`Running::forget`]) until [`Reclaim::prepare`] proves that all requests have completed.
pub fn end_operation<T>(running: Option<Running<'_>>, done: Result<T, IndexError>) -> Result<T, IndexError> {
    //= docs/protocol/reclaim.md R2a
    if let (Some(running), Err(error)) = (running, &done)
        && error.effect() != Effect::None
    {
        running.forget();
    }
    done
}
