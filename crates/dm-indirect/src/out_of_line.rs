//! A range index over items of one size.

use dm_index::{Applied, Exchange, Fill, IndexError, KeyBytes, RangeIndex, Scan};
use dm_sync::epoch::Running;
use dm_verbs::{Control, Verbs};

use crate::Items;

/// [`Items`] as a range index, with keys of type `K` and values of one length. Use it for values that are too large for
/// leaves, and for keys that are too long for the inner structure.
///
/// ```
/// use dm_alloc::Allocator;
/// use dm_indirect::{Items, OutOfLine, leading_bytes};
/// use dm_index::{Exchange, IndexError, Key8, KeyN, RangeIndex};
/// use dm_verbs::{Control, Verbs};
///
/// /// Stores keys of 32 bytes and values of 1 KiB in an index of 8-byte keys and values.
/// async fn large<V: Verbs + Control, I: Exchange<Key = Key8>>(v: &V, index: I, alloc: &Allocator) -> Result<(), IndexError> {
///     let items = Items::new(v, index, alloc, leading_bytes, 1 << 20)?;
///     let large = OutOfLine::<V, I, KeyN<32>>::new(items, 1024);
///     large.insert(&KeyN([7; 32]), &[1; 1024]).await?;
///     assert!(large.insert(&KeyN([8; 32]), &[1; 8]).await.is_err(), "the value has another length");
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct OutOfLine<'h, V, I: Exchange, K> {
    items: Items<'h, V, I>,
    value_bytes: usize,
    _keys: core::marker::PhantomData<fn() -> K>,
}

impl<'h, V, I: Exchange, K: KeyBytes> OutOfLine<'h, V, I, K> {
    /// Makes an index over `items` with values of `value_bytes` bytes.
    pub const fn new(items: Items<'h, V, I>, value_bytes: usize) -> Self {
        Self {
            items,
            value_bytes,
            _keys: core::marker::PhantomData,
        }
    }

    fn key(key: &K) -> Vec<u8> {
        let mut bytes = vec![0; K::LEN];
        key.write_to(&mut bytes);
        bytes
    }

    fn check(&self, value: &[u8]) -> Result<(), IndexError> {
        match value.len() == self.value_bytes {
            true => Ok(()),
            false => Err(IndexError::ValueLength {
                found: value.len(),
                expected: self.value_bytes,
            }),
        }
    }
}

impl<V: Verbs + Control, I: Exchange, K: KeyBytes> RangeIndex for OutOfLine<'_, V, I, K> {
    type Key = K;

    fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    async fn get(&self, key: &K, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        self.items.get(&Self::key(key), value).await
    }
    async fn insert(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        self.check(value)?;
        self.items.insert(&Self::key(key), value).await
    }
    async fn update(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        self.check(value)?;
        self.items.update(&Self::key(key), value).await
    }
    async fn upsert(&self, key: &K, value: &[u8]) -> Result<Applied, IndexError> {
        self.check(value)?;
        self.items.upsert(&Self::key(key), value).await
    }
    async fn remove(&self, key: &K) -> Result<Applied, IndexError> {
        self.items.remove(&Self::key(key)).await
    }

    async fn scan(&self, from: &K, limit: usize, out: &mut Scan<K>) -> Result<(), IndexError> {
        out.reset(self.value_bytes);
        let mut items = Vec::new();
        self.items.scan(&Self::key(from), limit, &mut items).await?;
        for (key, value) in items {
            if key.len() != K::LEN || value.len() != self.value_bytes {
                return Err(IndexError::BadInput {
                    why: "an item's key or value has another length than those of this index",
                });
            }
            out.push(K::read_from(&key), &value);
        }
        Ok(())
    }

    async fn bulk_load(
        &self,
        fill: impl Into<Fill>,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<K>,
    ) -> Result<u64, IndexError> {
        let next = || {
            let mut value = Vec::new();
            let key = next(&mut value)?;
            Some(self.check(&value).map(|()| (Self::key(&key), value)))
        };
        self.items.load_all(fill, next).await
    }
}

impl<V: Verbs + Control, I: Exchange, K: KeyBytes> Exchange for OutOfLine<'_, V, I, K> {
    async fn exchange(
        &self,
        key: &K,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<Applied, IndexError> {
        if let Some(after) = after {
            self.check(after)?;
        }
        self.items.exchange(&Self::key(key), before, after).await
    }

    async fn begin(&self) -> Result<Option<Running<'_>>, IndexError> {
        self.items.index.begin().await
    }
}
