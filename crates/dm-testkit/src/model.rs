//! The reference: the answers that a single client must get.

use core::fmt;
use std::collections::BTreeMap;

use dm_index::{Applied, KeyBytes, RangeIndex, Scan};

use crate::{Op, TestKey, value_of};

/// A `BTreeMap` with the operations of a range index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model<K> {
    entries: BTreeMap<K, Vec<u8>>,
    value_bytes: usize,
}

impl<K: TestKey> Model<K> {
    /// Makes an empty index of values of `value_bytes` bytes.
    #[must_use]
    pub const fn new(value_bytes: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            value_bytes,
        }
    }

    /// Returns the keys of the model, each with its value.
    #[must_use]
    pub fn entries(&self) -> &BTreeMap<K, Vec<u8>> {
        &self.entries
    }

    /// Carries out `op` and returns the answer. Returns `None` and changes nothing if `op` is a get or a scan.
    pub fn write(&mut self, op: &Op<K>) -> Option<Applied> {
        let present = |entries: &BTreeMap<K, Vec<u8>>, key: &K| entries.contains_key(key);
        let (key, seed) = match *op {
            Op::Get(_) | Op::Scan(..) => return None,
            Op::Remove(key) => {
                return Some(
                    self.entries
                        .remove(&key)
                        .map_or(Applied::Absent, |_| Applied::Removed),
                );
            }
            Op::Insert(key, _) if present(&self.entries, &key) => return Some(Applied::Present),
            Op::Update(key, _) if !present(&self.entries, &key) => return Some(Applied::Absent),
            Op::Insert(key, seed) | Op::Update(key, seed) | Op::Upsert(key, seed) => (key, seed),
        };
        let before = self.entries.insert(key, value_of(seed, self.value_bytes));
        Some(before.map_or(Applied::Inserted, |_| Applied::Replaced))
    }
}

/// The error that an index answered differently from the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// A description of the operation.
    pub asked: String,
    /// A description of the answer that the model gives.
    pub expected: String,
    /// The index's answer, or its error.
    pub found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: expected {}, found {}",
            self.asked, self.expected, self.found
        )
    }
}

impl core::error::Error for Mismatch {}

/// Compares two answers, and returns a [`Mismatch`] if they differ.
fn same<T: PartialEq + fmt::Debug, E: fmt::Display>(
    asked: &dyn fmt::Debug,
    expected: &T,
    found: &Result<T, E>,
) -> Result<(), Mismatch> {
    let found = match found {
        Ok(found) if found == expected => return Ok(()),
        Ok(found) => format!("{found:?}"),
        Err(e) => format!("error: {e}"),
    };
    Err(Mismatch {
        asked: format!("{asked:?}"),
        expected: format!("{expected:?}"),
        found,
    })
}

/// Runs `op` on the index and on the model, and compares the effects, the values that were read, and
/// their order.
///
/// # Errors
/// Returns [`Mismatch`] if the answers differ, or if the index returns an error.
///
/// ```
/// use dm_index::RangeIndex;
/// use dm_testkit::{Mismatch, Model, Op, TestKey, apply, check_all};
///
/// /// Runs a short script, compares every answer, and then the whole content.
/// async fn script<I: RangeIndex<Key: TestKey>>(index: &I, keys: [I::Key; 2]) -> Result<(), Mismatch> {
///     let mut model = Model::new(index.value_bytes());
///     for op in [Op::Insert(keys[0], 1), Op::Upsert(keys[1], 2), Op::Remove(keys[0])] {
///         apply(index, &mut model, &op).await?;
///     }
///     check_all(index, &model).await
/// }
/// ```
pub async fn apply<I>(index: &I, model: &mut Model<I::Key>, op: &Op<I::Key>) -> Result<(), Mismatch>
where
    I: RangeIndex,
    I::Key: TestKey,
{
    let bytes = index.value_bytes();
    let applied = match *op {
        Op::Get(key) => {
            let mut value = Vec::new();
            let found = index
                .get(&key, &mut value)
                .await
                .map(|found| found.then_some(&value));
            return same(op, &model.entries.get(&key), &found);
        }
        Op::Scan(from, limit) => {
            let mut scan = Scan::new();
            let found = index.scan(&from, limit, &mut scan).await;
            let found = found.map(|()| scan.iter().collect::<Vec<_>>());
            let expected = model.entries.range(from..).take(limit);
            let expected: Vec<_> = expected.map(|(k, v)| (*k, &v[..])).collect();
            return same(op, &expected, &found);
        }
        Op::Insert(key, seed) => index.insert(&key, &value_of(seed, bytes)).await,
        Op::Update(key, seed) => index.update(&key, &value_of(seed, bytes)).await,
        Op::Upsert(key, seed) => index.upsert(&key, &value_of(seed, bytes)).await,
        Op::Remove(key) => index.remove(&key).await,
    };
    let expected = model.write(op);
    same(op, &expected, &applied.map(Some))
}

/// Compares the whole content: one scan over everything, and a get of each key.
///
/// # Errors
/// Returns the first [`Mismatch`].
///
/// [`apply`] has an example.
pub async fn check_all<I>(index: &I, model: &Model<I::Key>) -> Result<(), Mismatch>
where
    I: RangeIndex,
    I::Key: TestKey,
{
    let mut scan = Scan::new();
    let found = index.scan(&I::Key::MIN, usize::MAX, &mut scan).await;
    let count = found.map(|()| scan.len());
    same(&"scan of everything: entries", &model.entries.len(), &count)?;
    for ((key, value), (found_key, found_value)) in model.entries.iter().zip(scan.iter()) {
        let found = Ok::<_, Mismatch>((found_key, found_value));
        same(&"scan of everything: the next entry", &(*key, &value[..]), &found)?;
    }
    let mut value = Vec::new();
    for (key, expected) in &model.entries {
        let found = index
            .get(key, &mut value)
            .await
            .map(|found| found.then_some(&value));
        same(&Op::Get(*key), &Some(expected), &found)?;
    }
    Ok(())
}
