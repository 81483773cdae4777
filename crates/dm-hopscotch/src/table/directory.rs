//! The directory: it maps the first bits of a key to a leaf. Its results are hints, because each leaf contains its own
//! range.

use dm_alloc::Allocator;
use dm_index::{Hops, IndexError, Inner, KeyBytes, Lead, Located, Restructure, Run, Split};
use dm_layout::{Hopscotch, NodeRead, NodeShape};
use dm_sync::{Arc, Fingerprint, Mutex, fingerprint_of};
use dm_verbs::{Control, Event, LocalStep, RemotePtr, Verbs, Why};
use smallvec::SmallVec;

use super::TableOptions;
use super::known::{Known, Root, leaf_in};
use super::scatter::lead_of;
#[cfg(feature = "study")]
use crate::study::TableFlaws;

/// Maximum number of requests in flight at once.
pub(super) const PARALLEL: usize = 32;

/// The directory of a table, which maps the first bits of keys to leaves. The threads of one compute node share it.
#[derive(Debug)]
pub struct Directory<K> {
    pub(super) format: Hopscotch<K>,
    pub(super) alloc: Arc<Allocator>,
    pub(super) root_word: RemotePtr,
    pub(super) depth_max: u8,
    pub(super) attempts: u32,
    #[cfg(feature = "study")]
    pub(crate) flaws: TableFlaws,
    pub(super) known: Mutex<Known>,
}

/// The source of a leaf's address: the first bits of a key, and the leaf to which their slot led.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hint {
    lead: u64,
    leaf: RemotePtr,
}

impl<K: KeyBytes> Directory<K> {
    /// Creates a directory of leaves of `format`, with memory from `alloc`. `root_word` points to the
    /// directory.
    pub(super) fn new(
        format: Hopscotch<K>,
        alloc: Arc<Allocator>,
        root_word: RemotePtr,
        options: &TableOptions,
    ) -> Self {
        Self {
            format,
            alloc,
            root_word,
            depth_max: options.depth_max,
            attempts: options.attempts,
            #[cfg(feature = "study")]
            flaws: options.flaws,
            known: Mutex::new(Known::default()),
        }
    }

    /// Returns the number of key bits that select a slot in the compute node's copy. Returns `None` if there is no copy
    /// yet.
    pub fn depth(&self) -> Option<u8> {
        self.known.with(|known| known.root().map(|root| root.depth))
    }

    /// Returns the size in bytes of this object, including the compute node's copy of the slots.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.known.with(|known| known.heap_bytes())
    }

    /// Returns the number of entries in a leaf.
    pub(super) fn capacity(&self) -> usize {
        self.format.geometry().span()
    }

    /// Returns the address of the word that points to the directory.
    pub fn root_word(&self) -> RemotePtr {
        self.root_word
    }

    /// Reads the root word. If the compute node has no copy of the directory, or the directory is deeper than the copy,
    /// reads the directory too. Returns the root of the copy afterwards, or `None` if the table has no leaf.
    pub(super) async fn look<V: Verbs>(&self, v: &V) -> Result<Option<Root>, IndexError> {
        let word = v.word(self.root_word).await?;
        let Some(root) = Root::unpack(word) else {
            return Ok(None);
        };
        v.local(LocalStep::Section).await;
        let known = self.known.with(|known| known.root());
        if known.is_some_and(|known| known.depth >= root.depth) {
            return Ok(known);
        }
        let slots = self.read_slots(v, root).await?;
        v.local(LocalStep::Section).await;
        Ok(self.known.with(|known| {
            known.adopt(root, slots);
            known.root()
        }))
    }

    fn located(&self, lead: u64, leaf: RemotePtr) -> Located<Hint> {
        Located {
            leaf: Lead::hint(leaf),
            proof: Hint { lead, leaf },
        }
    }

    /// Reads the root word and a slot that led to `known`, a leaf left of the key. Corrects the copy, and also the slot
    /// itself if it still points to `known` (see `settle`). Returns the leaf to which the slot points afterwards, or
    /// `None` if the root word has changed.
    async fn look_up<V: Verbs>(
        &self,
        v: &V,
        root: Root,
        lead: u64,
        known: RemotePtr,
    ) -> Result<Option<RemotePtr>, IndexError> {
        let number = root.number(lead);
        let (now, seen) = match root.depth {
            0 => (v.word(self.root_word).await?, root.at),
            _ => {
                let (now, slot) = (v.word(self.root_word), v.word(root.slot(number)));
                (now.await?, self.leaf_of(root, number, slot.await?)?)
            }
        };
        if now != root.pack() {
            return Ok(None);
        }
        if seen == known {
            return self.settle(v, root, number, seen).await.map(Some);
        }
        v.local(LocalStep::Section).await;
        self.known.with(|known| known.correct(root, number, seen));
        Ok(Some(seen))
    }

    /// Returns the leaf to which a slot's word points.
    pub(super) fn leaf_of(&self, root: Root, number: u64, word: u64) -> Result<RemotePtr, IndexError> {
        leaf_in(word).ok_or(IndexError::Pool {
            at: root.slot(number),
            why: "a slot of the directory does not hold the address of a leaf",
        })
    }

    /// Walks right from the leaf at `from`, to which a slot points, until a leaf covers the slot's first key. If the
    /// walk meets a leaf that cannot be used, it ends at the leaf before. If it ends at another leaf than `from`, a CAS
    /// makes the slot point to that leaf. Otherwise the slot stays unchanged. It is then usually right: the leaf at
    /// `from` ends inside the slot's range, and only operations on the later keys of the range take a step to the
    /// right. Returns the leaf to which the slot points afterwards.
    async fn settle<V: Verbs>(
        &self,
        v: &V,
        root: Root,
        number: u64,
        from: RemotePtr,
    ) -> Result<RemotePtr, IndexError> {
        let first: K = root.first_key(number);
        let bad = |why| IndexError::Pool {
            at: root.slot(number),
            why,
        };
        let mut retry = v.retry(self.attempts);
        let mut hops = Hops::default();
        let (mut leaf, mut at) = (from, from);
        loop {
            let bytes = v.read(at, self.format.node_bytes() as u32).await?;
            let header = match self.format.accept(&bytes) {
                Ok(header) => header,
                // A leaf whose image is torn may still contain the key. If a leaf further right is corrupt, a client
                // that needs a key from there reports the error.
                Err(e) if at != from || e.is_torn() => break,
                Err(_) => {
                    return Err(bad(
                        "a slot of the directory leads to something other than a leaf",
                    ));
                }
            };
            if at == from && (header.level != 0 || first < header.fences.low) {
                return Err(bad(
                    "a slot of the directory leads to a leaf to the right of its keys",
                ));
            }
            //= docs/protocol/chime.md H11
            if at != from && (self.format.is_unborn(&bytes) || first < header.fences.low) {
                break;
            }
            leaf = at;
            if !header.fences.is_below(&first) || header.sibling == 0 {
                break;
            }
            at = RemotePtr::from_raw(header.sibling);
            let _far = hops.step(&mut retry, at).await?;
        }
        if leaf == from {
            v.local(LocalStep::Section).await;
            self.known.with(|known| known.accept(root, number, leaf));
            return Ok(leaf);
        }
        let found = v.cas(root.slot(number), from.raw(), leaf.raw()).await?;
        if found != from.raw() {
            leaf = self.leaf_of(root, number, found)?;
        }
        v.local(LocalStep::Section).await;
        self.known.with(|known| known.correct(root, number, leaf));
        Ok(leaf)
    }

    /// Makes the slots whose first keys moved to the right leaf in `split` point to the right leaf instead of the left
    /// one.
    async fn enter<V: Verbs>(&self, v: &V, root: Root, split: &Split<K>) -> Result<(), IndexError> {
        let mut slots = root.slots(&split.separator, split.until.as_ref());
        let (left, right) = (split.left.raw(), split.right.raw());
        let mut others: Vec<(u64, u64)> = Vec::new();
        while !slots.is_empty() {
            let batch = slots.start..slots.end.min(slots.start + PARALLEL as u64);
            slots.start = batch.end;
            let posted: SmallVec<[_; PARALLEL]> = batch
                .clone()
                .map(|number| v.cas(root.slot(number), left, right))
                .collect();
            for (number, ticket) in batch.zip(posted) {
                match ticket.await? {
                    found if found == left || found == right => {
                        v.local(LocalStep::Section).await;
                        self.known.with(|known| known.correct(root, number, split.right));
                    }
                    found => others.push((number, found)),
                }
            }
        }
        // These slots point to a third leaf. It may be further right, because the right leaf has been split since. It
        // may be further left, because an earlier split is not in the directory yet.
        for (number, found) in others {
            let leaf = self.leaf_of(root, number, found)?;
            self.settle(v, root, number, leaf).await?;
        }
        Ok(())
    }
}

impl<V: Verbs + Control, K: KeyBytes> Inner<V, K> for Directory<K> {
    type Proof = Hint;

    #[inline]
    fn known(&self, v: &V, key: &K) -> Option<Located<Hint>> {
        let lead = lead_of(key);
        let leaf = self.known.with(|known| known.leaf(lead))?;
        v.meter().note(Event::CacheHit);
        Some(self.located(lead, leaf))
    }

    async fn find(&self, v: &V, key: &K) -> Result<Option<Located<Hint>>, IndexError> {
        v.meter().note(Event::CacheMiss);
        let lead = lead_of(key);
        let mut retry = v.retry(self.attempts);
        loop {
            v.local(LocalStep::Section).await;
            let (root, leaf, guess) = self
                .known
                .with(|known| (known.root(), known.leaf(lead), known.guess(lead)));
            if let Some(leaf) = leaf {
                return Ok(Some(self.located(lead, leaf)));
            }
            if let (Some(root), Some(guess)) = (root, guess)
                && let Some(leaf) = self.look_up(v, root, lead, guess).await?
            {
                return Ok(Some(self.located(lead, leaf)));
            }
            // There is no copy, or the root word points to a deeper directory.
            if self.look(v).await?.is_none() {
                return Ok(None);
            }
            retry.again_wiser(self.root_word, Why::Stale).await?;
        }
    }

    async fn locate_run(&self, v: &V, key: &K, max: usize, run: &mut Run<K>) -> Result<(), IndexError> {
        run.clear();
        v.local(LocalStep::Section).await;
        self.known.with(|known| known.run(lead_of(key), max, run));
        if run.leaves().is_empty()
            && let Some(located) = self.find(v, key).await?
        {
            run.push_alone(located.leaf.at);
        }
        Ok(())
    }

    fn stale(&self, _: &V, hint: Hint) {
        self.known.with(|known| known.doubt(hint.lead, hint.leaf));
    }

    async fn plant(&self, v: &V, leaf: RemotePtr) -> Result<bool, IndexError> {
        let root = Root { at: leaf, depth: 0 };
        let planted = v.cas(self.root_word, 0, root.pack()).await? == 0;
        if planted {
            v.local(LocalStep::Section).await;
            self.known.with(|known| known.adopt(root, vec![leaf.raw()]));
        }
        Ok(planted)
    }

    async fn install(&self, v: &V, split: Split<K>) -> Result<(), IndexError> {
        let mut retry = v.retry(self.attempts);
        v.local(LocalStep::Section).await;
        let mut root = self.known.with(|known| known.root());
        if root.is_none() {
            root = self.look(v).await?;
        }
        loop {
            let Some(now) = root else {
                return Err(IndexError::Pool {
                    at: self.root_word,
                    why: "the table has a leaf that was split, but its root word is empty",
                });
            };
            self.enter(v, now, &split).await?;
            //= docs/protocol/chime.md H13
            root = self.look(v).await?;
            if root == Some(now) {
                if !self.grow(v, now, &split.separator).await? {
                    return Ok(());
                }
                root = self.look(v).await?;
            }
            retry.again_wiser(self.root_word, Why::Raced).await?;
        }
    }

    async fn shrink<L: Restructure<V, K>>(&self, _: &V, _: &L, _: &K) -> Result<(), IndexError> {
        //= docs/protocol/chime.md H10
        Ok(())
    }

    async fn build(&self, _: &V, _: &[(K, RemotePtr)], _: f64) -> Result<(), IndexError> {
        Err(IndexError::BadInput {
            why: "a hash table cannot be built from leaves: its leaves are made by splits",
        })
    }
}

impl<K> Fingerprint for Directory<K> {
    fn fingerprint(&self) -> u64 {
        self.known.with(|known| fingerprint_of(known))
    }
}
