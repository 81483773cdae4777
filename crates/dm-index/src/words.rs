//! A minimal index with one word per key, for few keys.

use dm_layout::Key8;
use dm_verbs::{MaskedCas, MaskedCasError, RemotePtr, Verbs, masked_cas};

use crate::{Applied, Fill, IndexError, RangeIndex, Scan};

/// A client of an index whose keys are the numbers below a bound. Each key has one word of remote memory, with a bit
/// that says whether the key is present, and a value of 4 bytes. Every operation on one key takes a single verb if the
/// world has masked atomics.
///
/// It is so simple that tests, models and examples can use it for code that wraps an index.
#[derive(Clone, Copy, Debug)]
pub struct Words<'h, V> {
    v: &'h V,
    base: RemotePtr,
    keys: u64,
}

/// Bytes of a value.
const VALUE: usize = 4;
/// The bit that is set in the word of a present key.
const PRESENT: u64 = 1 << 63;
/// Retry limit of an emulated masked CAS.
const ATTEMPTS: u32 = 1 << 16;

impl<'h, V: Verbs> Words<'h, V> {
    /// Makes an index over `keys` words of zeroed memory from `base` on, which must be aligned to words.
    pub fn new(v: &'h V, base: RemotePtr, keys: u64) -> Self {
        Self { v, base, keys }
    }

    /// Returns the address of the word of `key`.
    ///
    /// # Errors
    /// Returns [`IndexError::BadInput`] if the key is at or above the bound.
    pub fn word_of(&self, key: &Key8) -> Result<RemotePtr, IndexError> {
        if key.0 >= self.keys {
            return Err(IndexError::BadInput {
                why: "the key is not below the index's bound",
            });
        }
        Ok(self.base.add(key.0 * 8))
    }

    /// Replaces the key's word by `swap`. If `compare` is given, does so only if the word's presence bit equals that of
    /// `compare`. Returns the previous word.
    async fn swap(&self, key: &Key8, compare: Option<u64>, swap: u64) -> Result<u64, IndexError> {
        let at = self.word_of(key)?;
        let _begun = self.v.operation()?;
        let take = MaskedCas {
            compare: compare.unwrap_or(0),
            compare_mask: compare.map_or(0, |_| PRESENT),
            swap,
            swap_mask: u64::MAX,
        };
        match masked_cas(self.v, at, take, compare.unwrap_or(0), ATTEMPTS).await {
            Ok(old) => Ok(old),
            Err(MaskedCasError::Verb(e)) => Err(e.into()),
            Err(MaskedCasError::Exhausted(e)) => Err(e.into()),
        }
    }
}

fn pack(value: &[u8]) -> Result<u64, IndexError> {
    let word = <[u8; VALUE]>::try_from(value).map_err(|_| IndexError::ValueLength {
        found: value.len(),
        expected: VALUE,
    })?;
    Ok(PRESENT | u64::from(u32::from_le_bytes(word)))
}

/// Returns the value in a word, if its key is present.
fn unpack(word: u64) -> Option<[u8; VALUE]> {
    // The cast keeps the lower half of the word, which is the value.
    (word & PRESENT != 0).then_some((word as u32).to_le_bytes())
}

impl<V: Verbs> RangeIndex for Words<'_, V> {
    type Key = Key8;

    fn value_bytes(&self) -> usize {
        VALUE
    }

    async fn get(&self, key: &Key8, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        let at = self.word_of(key)?;
        let _begun = self.v.operation()?;
        value.clear();
        let found = unpack(self.v.word(at).await?);
        value.extend(found.into_iter().flatten());
        Ok(found.is_some())
    }

    async fn insert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        let old = self.swap(key, Some(0), pack(value)?).await?;
        Ok(unpack(old).map_or(Applied::Inserted, |_| Applied::Present))
    }

    async fn update(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        let old = self.swap(key, Some(PRESENT), pack(value)?).await?;
        Ok(unpack(old).map_or(Applied::Absent, |_| Applied::Replaced))
    }

    async fn upsert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        let old = self.swap(key, None, pack(value)?).await?;
        Ok(unpack(old).map_or(Applied::Inserted, |_| Applied::Replaced))
    }

    async fn remove(&self, key: &Key8) -> Result<Applied, IndexError> {
        let old = self.swap(key, Some(PRESENT), 0).await?;
        Ok(unpack(old).map_or(Applied::Absent, |_| Applied::Removed))
    }

    async fn scan(&self, from: &Key8, limit: usize, out: &mut Scan<Key8>) -> Result<(), IndexError> {
        let _begun = self.v.operation()?;
        out.reset(VALUE);
        for key in (from.0..self.keys).map(Key8) {
            if out.len() == limit {
                break;
            }
            if let Some(value) = unpack(self.v.word(self.word_of(&key)?).await?) {
                out.push(key, &value);
            }
        }
        Ok(())
    }

    async fn bulk_load(
        &self,
        _fill: impl Into<Fill>,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<Key8>,
    ) -> Result<u64, IndexError> {
        let (mut value, mut total) = (Vec::new(), 0);
        while let Some(key) = next(&mut value) {
            self.v.load(self.word_of(&key)?, &pack(&value)?.to_le_bytes())?;
            value.clear();
            total += 1;
        }
        Ok(total)
    }
}
