//! An index client whose gets, updates and upserts are shared with the other clients of its compute node.

use core::cell::Cell;
use core::fmt;
use core::future::Future;
use core::task::Waker;

use dm_index::{Applied, Exchange, Fill, IndexError, KeyBytes, RangeIndex, Scan};
use dm_sync::epoch::Running;
use dm_sync::{Fingerprint, fingerprint_of};
use dm_verbs::{Env, Event, LocalStep};
use either::Either;

use crate::Rdwc;
use crate::lanes::{Came, Lanes, Lead};
use crate::rules::{Told, Wish};

/// The local locks that the clients of one compute node share, for keys `K`.
#[derive(Debug)]
pub struct Combiner<K> {
    reads: Option<Lanes<K>>,
    pub(crate) writes: Option<Lanes<K>>,
}

impl<K: KeyBytes> Combiner<K> {
    /// Makes the locks that `rdwc` requires.
    pub fn new(rdwc: &Rdwc) -> Self {
        let lanes = |on: bool| on.then(|| Lanes::new(rdwc));
        Self {
            reads: lanes(rdwc.delegate),
            writes: lanes(rdwc.combine),
        }
    }

    /// Returns the number of bytes allocated for the locks, for the largest number of waiters so far, and for the
    /// shared values.
    pub fn bytes(&self) -> usize {
        [&self.reads, &self.writes]
            .into_iter()
            .flatten()
            .map(Lanes::bytes)
            .sum()
    }
}

impl<K: KeyBytes> Fingerprint for Combiner<K> {
    fn fingerprint(&self) -> u64 {
        fingerprint_of(&(self.reads.fingerprint(), self.writes.fingerprint()))
    }
}

/// Wraps an index client and shares its operations with the other clients of the compute node.
///
/// A get, update or upsert either runs on the index `I` or is answered by another client's operation. Every other
/// operation goes directly to `I`. Like `I`, the wrapper belongs to one client and is not `Sync`; the clients share the
/// [`Combiner`].
pub struct Combined<'h, V, I: RangeIndex> {
    pub(crate) v: &'h V,
    pub(crate) index: I,
    table: Option<&'h Combiner<I::Key>>,
    /// An empty buffer whose memory is reused.
    wakers: Cell<Vec<Waker>>,
}

impl<V, I: RangeIndex + fmt::Debug> fmt::Debug for Combined<'_, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combined")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// The role of a client in a shared operation.
pub(crate) enum Place<'h, K: KeyBytes> {
    /// The client carries out its operation itself. If it leads, it passes the result to its followers.
    Own(Option<Lead<'h, K>>),
    /// Another client has carried out the operation; this is the result.
    Done(Told),
}

impl<'h, V: Env, I: RangeIndex> Combined<'h, V, I> {
    /// Wraps `index`, the index of client `v`, and shares its operations through `table`. Without a table nothing is
    /// shared.
    ///
    /// All clients of a compute node that use one table must use the same index.
    pub fn new(v: &'h V, index: I, table: Option<&'h Combiner<I::Key>>) -> Self {
        Self {
            v,
            index,
            table,
            wakers: Cell::default(),
        }
    }

    /// Returns the client's connection.
    pub fn verbs(&self) -> &'h V {
        self.v
    }

    /// Returns the client's own index.
    pub fn index(&self) -> &I {
        &self.index
    }

    /// Joins the queue of the key's local lock, and waits until it is decided which client carries out the operation.
    /// If another client carries out a get, its value is written to `value`.
    async fn place(
        &self,
        lanes: &'h Lanes<I::Key>,
        key: &I::Key,
        wish: Wish,
        value: &mut Vec<u8>,
    ) -> Place<'h, I::Key> {
        //= docs/protocol/combine.md C11
        self.v.local(LocalStep::Section).await;
        let mut join = lanes.join(key, self.v.client(), wish, value);
        match (&mut join).await {
            Came::Alone => {
                self.v.meter().note(Event::WentAlone);
                Place::Own(None)
            }
            Came::Leads => Place::Own(Some(lanes.lead(join.at()))),
            Came::Elected => {
                self.v.local(LocalStep::HandOff).await;
                let at = join.at();
                join.begin();
                Place::Own(Some(lanes.lead(at)))
            }
            Came::Told(told) => {
                self.v.local(LocalStep::HandOff).await;
                Place::Done(told)
            }
        }
    }

    /// Ends a shared operation that this client has led, and passes the result, if there is one, to its
    /// followers.
    pub(crate) async fn tell(&self, lead: Lead<'h, I::Key>, answer: Option<(Told, &[u8])>) {
        //= docs/protocol/combine.md C11
        self.v.local(LocalStep::Section).await;
        lead.tell(answer, &self.wakers);
    }

    /// Carries out a get through the key's local lock.
    async fn shared_get(
        &self,
        lanes: &'h Lanes<I::Key>,
        key: &I::Key,
        value: &mut Vec<u8>,
    ) -> Result<bool, IndexError> {
        value.clear();
        let lead = match self.place(lanes, key, Wish::Get, value).await {
            Place::Own(lead) => lead,
            Place::Done(told) => {
                self.v.meter().note(Event::Delegated);
                return Ok(told == Told::Got(true));
            }
        };
        let result = self.index.get(key, value).await;
        if let Some(lead) = lead {
            let found = result.as_ref().ok();
            self.tell(lead, found.map(|&found| (Told::Got(found), value.as_slice())))
                .await;
        }
        result
    }

    /// Carries out a write through the key's local lock.
    async fn shared_write(
        &self,
        lanes: &'h Lanes<I::Key>,
        key: &I::Key,
        value: &[u8],
        wish: Wish,
    ) -> Result<Applied, IndexError> {
        if lanes.flaws().buffer_of_lock {
            return Box::pin(self.write_as_published(lanes, key, value, wish)).await;
        }
        let lead = match self.place(lanes, key, wish, &mut Vec::new()).await {
            Place::Own(lead) => lead,
            Place::Done(told) => return Ok(self.combined(told)),
        };
        //= docs/protocol/combine.md C4
        let result = self.apply(key, value, wish).await;
        if let Some(lead) = lead {
            let answer = result.as_ref().ok().map(|&applied| Told::Applied(applied));
            self.tell(lead, answer.map(|told| (told, [].as_slice()))).await;
        }
        result
    }

    /// Returns the local locks for a write that may be shared.
    #[inline]
    fn writes(&self, value: &[u8]) -> Option<&'h Lanes<I::Key>> {
        // A value of another length is not shared, because the index refuses it.
        //= docs/protocol/combine.md C2
        let lanes = self.table?.writes.as_ref();
        lanes.filter(|_| value.len() == self.index.value_bytes())
    }

    /// Carries out the write on the index. This is not an `async fn`, because that would cost about 80 more
    /// instructions.
    #[inline]
    pub(crate) fn apply(
        &self,
        key: &I::Key,
        value: &[u8],
        wish: Wish,
    ) -> impl Future<Output = Result<Applied, IndexError>> {
        match wish {
            Wish::Upsert => Either::Left(self.index.upsert(key, value)),
            Wish::Update | Wish::Get => Either::Right(self.index.update(key, value)),
        }
    }

    /// Converts the result of another client's write into the result of this client's write, and counts it.
    pub(crate) fn combined(&self, told: Told) -> Applied {
        self.v.meter().note(Event::Combined);
        match told {
            Told::Applied(applied) => applied,
            Told::Got(_) => unreachable!("a write is answered by a write"),
        }
    }
}

/// Exchanges are never shared, like inserts and removes.
impl<V: Env, I: Exchange> Exchange for Combined<'_, V, I> {
    async fn exchange(
        &self,
        key: &I::Key,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<Applied, IndexError> {
        self.index.exchange(key, before, after).await
    }

    async fn swap(
        &self,
        key: &I::Key,
        before: &mut Vec<u8>,
        after: Option<&[u8]>,
    ) -> Result<Applied, IndexError> {
        self.index.swap(key, before, after).await
    }

    fn begin(&self) -> impl Future<Output = Result<Option<Running<'_>>, IndexError>> {
        self.index.begin()
    }
}

impl<V: Env, I: RangeIndex> RangeIndex for Combined<'_, V, I> {
    type Key = I::Key;

    fn value_bytes(&self) -> usize {
        self.index.value_bytes()
    }

    // An operation that is not shared returns the index's own future, without another layer of `async` around
    // it.
    #[inline]
    fn get(&self, key: &I::Key, value: &mut Vec<u8>) -> impl Future<Output = Result<bool, IndexError>> {
        match self.table.and_then(|table| table.reads.as_ref()) {
            None => Either::Left(self.index.get(key, value)),
            Some(lanes) => Either::Right(self.shared_get(lanes, key, value)),
        }
    }

    #[inline]
    fn insert(&self, key: &I::Key, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>> {
        self.index.insert(key, value)
    }
    #[inline]
    fn update(&self, key: &I::Key, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>> {
        match self.writes(value) {
            None => Either::Left(self.index.update(key, value)),
            Some(lanes) => Either::Right(self.shared_write(lanes, key, value, Wish::Update)),
        }
    }
    #[inline]
    fn upsert(&self, key: &I::Key, value: &[u8]) -> impl Future<Output = Result<Applied, IndexError>> {
        match self.writes(value) {
            None => Either::Left(self.index.upsert(key, value)),
            Some(lanes) => Either::Right(self.shared_write(lanes, key, value, Wish::Upsert)),
        }
    }
    #[inline]
    fn remove(&self, key: &I::Key) -> impl Future<Output = Result<Applied, IndexError>> {
        self.index.remove(key)
    }
    #[inline]
    fn scan(
        &self,
        from: &I::Key,
        limit: usize,
        out: &mut Scan<I::Key>,
    ) -> impl Future<Output = Result<(), IndexError>> {
        self.index.scan(from, limit, out)
    }
    #[inline]
    fn bulk_load(
        &self,
        fill: impl Into<Fill>,
        next: impl FnMut(&mut Vec<u8>) -> Option<I::Key>,
    ) -> impl Future<Output = Result<u64, IndexError>> {
        self.index.bulk_load(fill, next)
    }
}
