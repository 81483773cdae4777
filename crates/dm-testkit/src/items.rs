//! Indexes of items of variable length, for the tests of every index.

use dm_index::{Applied, Exchange, IndexError, KeyBytes, RangeIndex};
use dm_indirect::{Items, OutOfLine, Prefix, leading_bytes};
use dm_verbs::{Control, Verbs};

use crate::{Failure, IndexUnderTest, TestKey};

/// An index that can hold items.
pub trait HoldsItems: IndexUnderTest {
    /// Makes a client that stores items.
    ///
    /// # Errors
    /// Returns an error if the index was not opened for items.
    fn items<'h, V: Verbs + Control>(
        handle: &'h Self::Handle,
        v: &'h V,
        prefix: Prefix<Self::Key>,
    ) -> Result<Items<'h, V, impl Exchange<Key = Self::Key>>, IndexError>;
}

/// An index that stores items of one size in `I`. Groups of four keys share a block.
#[derive(Clone, Copy, Debug)]
pub struct OutOfLines<I> {
    index: I,
    value_bytes: usize,
}

impl<I> OutOfLines<I> {
    /// Makes an index with values of `value_bytes` bytes, regardless of `index`'s values.
    pub const fn new(index: I, value_bytes: usize) -> Self {
        Self { index, value_bytes }
    }
}

/// Returns the leading bytes of `key` as a key of the index. The two lowest bits of the last byte of `key` are cleared,
/// so that four neighbours share a block.
///
/// ```
/// use dm_index::Key8;
/// use dm_testkit::by_fours;
///
/// assert_eq!(by_fours::<Key8>(&[0, 0, 0, 0, 0, 0, 0, 7]), Key8(4));
/// ```
pub fn by_fours<K: KeyBytes>(key: &[u8]) -> K {
    let mut key = key.to_vec();
    if let Some(last) = key.last_mut() {
        *last &= !3;
    }
    leading_bytes(&key)
}

impl<I: HoldsItems> IndexUnderTest for OutOfLines<I> {
    type Key = I::Key;
    type Handle = (I::Handle, usize);

    fn value_bytes(&self) -> usize {
        self.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<Self::Handle, Failure> {
        Ok((self.index.open(v).await?, self.value_bytes))
    }
    fn client<'h, V: Verbs + Control>(
        (handle, value_bytes): &'h Self::Handle,
        v: &'h V,
    ) -> impl RangeIndex<Key = I::Key> {
        let items = I::items(handle, v, by_fours).expect("an index of references");
        OutOfLine::new(items, *value_bytes)
    }
}

/// Checks the answers and effects of exchanges and swaps on an index with values of 8 bytes. The index must not contain
/// the keys used here, which are enough for nodes to split.
///
/// # Panics
/// Panics if an answer or an effect is wrong.
pub async fn exchanges<I: Exchange<Key: TestKey>>(index: &I) {
    let value = |n: u64| n.to_le_bytes();
    let mut found = Vec::new();
    for n in 0..300 {
        let key = I::Key::nth(n);
        let (a, b) = (value(n), value(n + 1000));
        for (before, after, applied, left) in [
            (None, None, Applied::Absent, None),
            (Some(a), Some(b), Applied::Differs, None),
            (Some(a), None, Applied::Differs, None),
            (None, Some(a), Applied::Inserted, Some(a)),
            (None, Some(b), Applied::Differs, Some(a)),
            (None, None, Applied::Differs, Some(a)),
            (Some(b), Some(a), Applied::Differs, Some(a)),
            (Some(b), None, Applied::Differs, Some(a)),
            (Some(a), Some(b), Applied::Replaced, Some(b)),
            (Some(b), None, Applied::Removed, None),
            (None, Some(b), Applied::Inserted, Some(b)),
        ] {
            let answer = index.exchange(
                &key,
                before.as_ref().map(|v| &v[..]),
                after.as_ref().map(|v| &v[..]),
            );
            assert_eq!(answer.await, Ok(applied), "key {n}, {before:?} to {after:?}");
            assert_eq!(index.get(&key, &mut found).await, Ok(left.is_some()), "key {n}");
            assert_eq!(found, left.map(Vec::from).unwrap_or_default(), "key {n}");
        }
        for (after, applied, old) in [
            (Some(a), Applied::Replaced, Some(b)),
            (Some(b), Applied::Replaced, Some(a)),
            (None, Applied::Removed, Some(b)),
            (None, Applied::Absent, None),
            (Some(a), Applied::Absent, None),
        ] {
            let after = after.as_ref().map(|v| &v[..]);
            let answer = index.swap(&key, &mut found, after).await;
            assert_eq!(answer, Ok(applied), "key {n}, to {after:?}");
            if let Some(old) = old {
                assert_eq!(found, old, "key {n}");
            }
        }
        let wrong = index.swap(&key, &mut found, Some(&[1; 7])).await;
        assert!(
            matches!(wrong, Err(IndexError::ValueLength { found: 7, .. })),
            "{wrong:?}"
        );
        assert_eq!(index.insert(&key, &b).await, Ok(Applied::Inserted), "key {n}");
    }
    let wrong = index.exchange(&I::Key::nth(0), None, Some(&[1; 7])).await;
    assert!(
        matches!(wrong, Err(IndexError::ValueLength { found: 7, .. })),
        "{wrong:?}"
    );
}
