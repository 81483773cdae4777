//! A client of an index of items.

use dm_alloc::{Allocator, Block};
use dm_index::{Applied, Exchange, IndexError, KeyBytes, Write};
use dm_layout::{Corrupt, KEY_BYTES_MAX, Reason, ValueRef};
use dm_sync::epoch::Running;
use dm_verbs::{Control, Effect, RemotePtr, Verbs, Why};

use crate::bundle::{Bundle, block_bytes, block_of};
use crate::draft::Draft;
use crate::reference::{BLOCK_BYTES_MAX, REFERENCE_BYTES, Reference};

/// A function that maps a key to the part that the index compares. It must preserve the order of keys, so that a
/// smaller key never has a larger prefix. Keys with the same prefix share a block.
///
/// ```
/// use dm_indirect::{Prefix, leading_bytes};
/// use dm_index::Key8;
///
/// // Keys look like "user:4711". Their common beginning would not distinguish them.
/// let number: Prefix<Key8> = |key| leading_bytes(key.strip_prefix(b"user:").unwrap_or(key));
/// assert!(number(b"user:4711") < number(b"user:4712"));
/// ```
pub type Prefix<K> = fn(&[u8]) -> K;

/// Returns a key's first bytes, padded with zeros if the key is shorter.
pub fn leading_bytes<K: KeyBytes>(key: &[u8]) -> K {
    let mut padded = [0; KEY_BYTES_MAX];
    let take = key.len().min(K::LEN);
    padded[..take].copy_from_slice(&key[..take]);
    K::read_from(&padded)
}

/// A client of an index of items. Keys and values are byte strings of variable length. The items with the same prefix
/// share a block of at most 1 MiB. Of this size, a header takes 16 bytes, and the lengths of each item take 8 bytes. If
/// many keys have the same prefix, their block is large, and each write to one of them writes the whole block again.
///
/// `I` is a client of any index whose values have [`REFERENCE_BYTES`] bytes. `alloc` is the allocator of the index's
/// pool. Do not use `I` directly for other operations.
#[derive(Debug)]
pub struct Items<'h, V, I: Exchange> {
    pub(crate) v: &'h V,
    pub(crate) index: I,
    pub(crate) alloc: &'h Allocator,
    pub(crate) prefix: Prefix<I::Key>,
    attempts: u32,
    /// Whether no two keys have the same prefix.
    exact: bool,
    #[cfg(feature = "study")]
    pub(crate) flaws: crate::ItemFlaws,
}

/// A running operation. If it is dropped while the index exchanges a word, it stays announced until the client's
/// requests have landed. Otherwise the old block could be reused and its word could get into the index again. A late
/// CAS would then find the word that it expects.
struct Announced<'s> {
    running: Option<Running<'s>>,
    /// Whether the index exchanges the word.
    exchanges: bool,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        //= docs/protocol/marlin.md B1
        if self.exchanges
            && let Some(running) = self.running.take()
        {
            running.forget();
        }
    }
}

/// The change of the index's word that a write requires.
enum Next {
    /// The word stays unchanged.
    Stays,
    /// The word must point to the block that was written ahead.
    Ahead,
    /// The word must point to a block with these bytes.
    Other(Vec<u8>),
    /// The word must be removed, because no item remains.
    Gone,
}

impl<'h, V: Verbs + Control, I: Exchange> Items<'h, V, I> {
    /// Makes a client of items behind `index`.
    ///
    /// # Errors
    /// Returns [`IndexError::ValueLength`] if the index's values are not as long as references.
    pub fn new(
        v: &'h V,
        index: I,
        alloc: &'h Allocator,
        prefix: Prefix<I::Key>,
        attempts: u32,
    ) -> Result<Self, IndexError> {
        if index.value_bytes() != REFERENCE_BYTES {
            return Err(IndexError::ValueLength {
                found: index.value_bytes(),
                expected: REFERENCE_BYTES,
            });
        }
        Ok(Self {
            v,
            index,
            alloc,
            prefix,
            attempts,
            exact: false,
            #[cfg(feature = "study")]
            flaws: crate::ItemFlaws::default(),
        })
    }

    /// Returns these items for keys of which no two have the same prefix, for example keys that are as long as their
    /// prefix. A block then holds one item, so a write need not know what was there before it: only an exchange reads
    /// the index and the old block first. If the index is a `Composed`, an insert or an update takes three round trips,
    /// and a remove two. An upsert of an absent key takes five, because it tries to swap the word before it inserts it.
    #[must_use]
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Makes a client of items behind `index`, if the index was created for items, as `made_for_items` says. The values
    /// of any other index are not references.
    ///
    /// # Errors
    /// Returns [`IndexError::BadInput`] if `made_for_items` is `false`, and the errors of [`Items::new`].
    pub fn made_for_them(
        made_for_items: bool,
        v: &'h V,
        index: I,
        alloc: &'h Allocator,
        prefix: Prefix<I::Key>,
        attempts: u32,
    ) -> Result<Self, IndexError> {
        if !made_for_items {
            return Err(IndexError::BadInput {
                why: "the index was not created for items",
            });
        }
        Self::new(v, index, alloc, prefix, attempts)
    }

    /// Reads the value of `key` into `value`, which is cleared first. Returns `false` if the key is absent. It
    /// takes two round trips: the index's get, and a READ of the block.
    ///
    /// # Errors
    /// Returns an error if the index returns one or the READ fails, and [`IndexError::Corrupt`] if the index's value is
    /// not a reference, or if a block's bytes contradict each other or the reference.
    pub async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, IndexError> {
        //= docs/protocol/indirect.md N3
        let _running = self.index.begin().await?;
        let mut word = Vec::with_capacity(REFERENCE_BYTES);
        let found = self.index.get(&(self.prefix)(key), &mut word).await?;
        value.clear();
        if !found {
            return Ok(false);
        }
        let reference = self.named(&word)?;
        let block = self.v.read(reference.at(), reference.bytes()).await?;
        let bundle = parse(reference, &block)?;
        let item = bundle.get(key);
        value.extend_from_slice(item.unwrap_or_default());
        Ok(item.is_some())
    }

    /// Adds `key` unless it is present. It takes three round trips if no other key has the same prefix. The block is
    /// written while the index is read, and then the word is exchanged. (With [`Items::exact`], all costs differ.)
    ///
    /// # Errors
    /// Returns an error for the reasons of [`Items::get`], or if no block can be allocated or written. Returns
    /// [`IndexError::BadInput`] if the item, or all items with its prefix together, do not fit into a block, or if the
    /// block is at an address that a [`Reference`] cannot contain. Returns [`IndexError::Exhausted`] if other clients
    /// have changed the word in every attempt.
    pub async fn insert(&self, key: &[u8], value: &[u8]) -> Result<Applied, IndexError> {
        self.apply(key, Write::Insert(value)).await
    }

    /// Replaces the value of `key` if it is present. It takes four round trips if no other key has the same prefix:
    /// those of an insert, and a READ of the old block.
    ///
    /// # Errors
    /// Returns an error for the reasons of [`Items::insert`].
    pub async fn update(&self, key: &[u8], value: &[u8]) -> Result<Applied, IndexError> {
        self.apply(key, Write::Update(value)).await
    }

    /// Adds or replaces `key`.
    ///
    /// # Errors
    /// Returns an error for the reasons of [`Items::insert`].
    pub async fn upsert(&self, key: &[u8], value: &[u8]) -> Result<Applied, IndexError> {
        self.apply(key, Write::Upsert(value)).await
    }

    /// Removes `key`. It takes four round trips if no other key has the same prefix.
    ///
    /// # Errors
    /// Returns an error for the reasons of [`Items::insert`].
    pub async fn remove(&self, key: &[u8]) -> Result<Applied, IndexError> {
        self.apply(key, Write::Remove).await
    }

    /// Sets the value of `key` to `after` if it is `before`, as [`Exchange::exchange`] does. This takes three round
    /// trips if there is no item with this prefix, and four if `key` has the only one: one of them is a READ of the old
    /// block. If other keys have the same prefix, writing their common block takes a fifth. If the value is not
    /// `before`, it takes at most two.
    ///
    /// # Errors
    /// Returns an error for the reasons of [`Items::insert`].
    pub async fn exchange(
        &self,
        key: &[u8],
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<Applied, IndexError> {
        self.apply(key, Write::Exchange { before, after }).await
    }

    async fn apply(&self, key: &[u8], write: Write<'_>) -> Result<Applied, IndexError> {
        let value_bytes = write.value().map_or(0, <[u8]>::len);
        // This saturates, because lengths whose sum overflows are also too long.
        if key.len().saturating_add(value_bytes) > BLOCK_BYTES_MAX - block_bytes(0, 0) {
            return Err(IndexError::BadInput {
                why: "the item does not fit into a block of 1 MiB",
            });
        }
        let prefix = (self.prefix)(key);
        //= docs/protocol/indirect.md N3
        let mut operation = Announced {
            running: self.index.begin().await?,
            exchanges: false,
        };
        // Most keys share their prefix with no other key. For such a key, the block that is written here is already the
        // final one. Its WRITE is in flight while the index is read, if the index is read first.
        let mut ahead = match write.value() {
            Some(value) => Some(Draft::write(self.v, self.alloc, &block_of([(key, value)])).await?),
            None => None,
        };
        let mut retry = self.v.retry(self.attempts);
        if self.exact && !matches!(write, Write::Exchange { .. }) {
            loop {
                match self
                    .write_own(&prefix, write, ahead.as_mut(), &mut operation)
                    .await?
                {
                    Applied::Differs => retry.again_wiser(RemotePtr::NULL, Why::Raced).await?,
                    applied => return Ok(applied),
                }
            }
        }
        let mut word = Vec::with_capacity(REFERENCE_BYTES);
        loop {
            let found = self.index.get(&prefix, &mut word).await?;
            let before = found.then(|| self.named(&word)).transpose()?;
            let (applied, next) = match before {
                None => after_nothing(write),
                Some(reference) => {
                    let block = self.v.read(reference.at(), reference.bytes()).await?;
                    after(parse(reference, &block)?, key, write)
                }
            };
            // The WRITE was in flight together with the other requests, so it has usually completed.
            if let Some(ahead) = ahead.as_mut().filter(|_| !self.flaws().unawaited) {
                ahead.landed().await?;
            }
            let mut other = None;
            let mut draft = match next {
                Next::Stays => return Ok(applied),
                Next::Gone => None,
                Next::Ahead => ahead.as_mut(),
                Next::Other(bytes) => Some(other.insert(Draft::write(self.v, self.alloc, &bytes).await?)),
            };
            let after = match &mut draft {
                Some(draft) => Some(self.word_of(draft).await?),
                None => None,
            };
            operation.exchanges = true;
            let before_word = before.map(Reference::encode);
            let words = (
                before_word.as_ref().map(|w| &w[..]),
                after.as_ref().map(|w| &w[..]),
            );
            //= docs/protocol/indirect.md N2
            let exchanged = match words {
                (_, Some(after)) if self.flaws().blind => self.index.upsert(&prefix, after).await,
                (before, after) => self.index.exchange(&prefix, before, after).await,
            };
            operation.exchanges = false;
            if let Some(draft) = draft {
                draft.set_known(may_have_published(&exchanged));
            }
            if exchanged? != Applied::Differs {
                //= docs/protocol/indirect.md N4
                if let Some(reference) = before {
                    self.retire(reference);
                }
                return Ok(applied);
            }
            let at = before.map_or(RemotePtr::NULL, Reference::at);
            retry.again_wiser(at, Why::Raced).await?;
        }
    }

    /// Tries once to write an item that shares its block with no other one ([`Items::exact`]). The block that was
    /// written ahead is final. The index returns the word that it replaces. Returns [`Applied::Differs`] if another
    /// client was faster.
    async fn write_own(
        &self,
        prefix: &I::Key,
        write: Write<'_>,
        mut ahead: Option<&mut Draft<'_, V>>,
        operation: &mut Announced<'_>,
    ) -> Result<Applied, IndexError> {
        let after = match &mut ahead {
            Some(draft) => Some(self.word_of(draft).await?),
            None => None,
        };
        let after = after.as_ref().map(|word| &word[..]);
        let mut old = Vec::with_capacity(REFERENCE_BYTES);
        operation.exchanges = true;
        //= docs/protocol/indirect.md N2a
        let done = match (write, after) {
            (Write::Insert(_), Some(word)) => self.index.insert(prefix, word).await,
            (_, after) => self.index.swap(prefix, &mut old, after).await,
        };
        let done = match (write, after, done) {
            (Write::Upsert(_), Some(word), Ok(Applied::Absent)) => {
                match self.index.insert(prefix, word).await {
                    Ok(Applied::Present) => Ok(Applied::Differs),
                    done => done,
                }
            }
            (.., done) => done,
        };
        operation.exchanges = false;
        if let Some(draft) = ahead {
            draft.set_known(may_have_published(&done));
        }
        let done = done?;
        if matches!(done, Applied::Replaced | Applied::Removed) {
            //= docs/protocol/indirect.md N4
            self.retire(self.named(&old)?);
        }
        Ok(done)
    }

    /// Returns the word that publishes `draft`, after its WRITE has landed. From here on, the block counts as published,
    /// even if the caller's future is dropped.
    async fn word_of(&self, draft: &mut Draft<'_, V>) -> Result<[u8; REFERENCE_BYTES], IndexError> {
        //= docs/protocol/indirect.md N1
        if !self.flaws().unawaited {
            draft.landed().await?;
        }
        draft.set_known(!self.flaws().gives_back);
        Ok(draft.reference().encode())
    }

    /// Decodes the index's word.
    pub(crate) fn named(&self, word: &[u8]) -> Result<Reference, IndexError> {
        let corrupt = |what| IndexError::Corrupt {
            node: RemotePtr::NULL,
            what,
        };
        let reference = Reference::decode(word).map_err(corrupt)?;
        match reference.at().node().0 < self.alloc.memory_nodes() {
            true => Ok(reference),
            false => Err(corrupt(Corrupt {
                offset: 0,
                reason: Reason::Length,
            })),
        }
    }

    /// Retires a block to which nothing points any more.
    fn retire(&self, reference: Reference) {
        // The block counts as fresh here, because no reader compares the incarnations of blocks of items.
        let block = Block::fresh(reference.at());
        self.alloc.retire(block.after(block.version), reference.class());
    }
}

/// Returns the result of a write, and the change that it requires, if there is no item with the prefix.
fn after_nothing(write: Write<'_>) -> (Applied, Next) {
    match write.meeting(None) {
        Some(Write::Insert(_) | Write::Upsert(_)) => (Applied::Inserted, Next::Ahead),
        Some(_) => (Applied::Absent, Next::Stays),
        None => (Applied::Differs, Next::Stays),
    }
}

/// Returns whether a write of the index has put its word into the index, or may have done so.
fn may_have_published(done: &Result<Applied, IndexError>) -> bool {
    match done {
        Ok(applied) => matches!(applied, Applied::Inserted | Applied::Replaced | Applied::Removed),
        Err(e) => e.effect() != Effect::None,
    }
}

/// Returns the result of a write, and the change that it requires, if `bundle` holds the items with the prefix.
fn after(bundle: Bundle<'_>, key: &[u8], write: Write<'_>) -> (Applied, Next) {
    let found = bundle.get(key);
    let Some(write) = write.meeting(found.map(ValueRef::from)) else {
        return (Applied::Differs, Next::Stays);
    };
    let present = found.is_some();
    let applied = match (write, present) {
        (Write::Insert(_), true) => return (Applied::Present, Next::Stays),
        (Write::Insert(_) | Write::Upsert(_), false) => Applied::Inserted,
        (Write::Update(_) | Write::Upsert(_), true) => Applied::Replaced,
        (Write::Remove, true) => Applied::Removed,
        _ => return (Applied::Absent, Next::Stays),
    };
    let next = match (write.value(), bundle.alone() == Some(key)) {
        (Some(_), true) => Next::Ahead,
        (value, _) => bundle.with(key, value).map_or(Next::Gone, Next::Other),
    };
    (applied, next)
}

/// Parses a block. Returns an error if the length of the block is not that of the reference, because no writer makes
/// such a reference.
pub(crate) fn parse(reference: Reference, block: &[u8]) -> Result<Bundle<'_>, IndexError> {
    let length = Corrupt {
        offset: 12,
        reason: Reason::Length,
    };
    let parsed = Bundle::parse(block).and_then(|bundle| match bundle.block_bytes() == block.len() {
        true => Ok(bundle),
        false => Err(length),
    });
    parsed.map_err(|what| IndexError::Corrupt {
        node: reference.at(),
        what,
    })
}

#[cfg(test)]
mod tests {
    use dm_index::{Key8, KeyN};

    use super::leading_bytes;

    #[test]
    fn prefixes_of_every_size_keep_the_order_of_keys() {
        let long: [u8; 40] = core::array::from_fn(|at| at as u8 + 1);
        assert_eq!(
            leading_bytes::<Key8>(&long),
            Key8(u64::from_be_bytes([1, 2, 3, 4, 5, 6, 7, 8]))
        );
        let key: KeyN<13> = leading_bytes(&long);
        assert_eq!(key.0, long[..13]);
        for len in 0..long.len() {
            assert!(leading_bytes::<KeyN<13>>(&long[..len]) <= key, "{len} bytes");
        }
        assert!(leading_bytes::<KeyN<13>>(b"ab") < leading_bytes(b"ab\x01"));
    }
}
