//! Operations of a history, carried out on an index.

use dm_history::{KvOp, KvRet};
use dm_index::{Applied, IndexError, RangeIndex};

use crate::TestKey;

/// Carries out `op` on `index` and returns the answer as a history records it. Keys are [numbered](TestKey::nth), and
/// values are numbers, little-endian, padded with zeros to the length of the index's values.
///
/// It is meant for models of several clients. Their operations are data: the clients record them in a history, and the
/// answers are checked against a [`KvMap`](dm_history::KvMap).
///
/// ```
/// use dm_history::{History, KvMap, KvOp, KvRet, Limits, check};
/// use dm_index::{IndexError, RangeIndex};
/// use dm_testkit::{TestKey, perform};
///
/// /// Carries out a client's operations, and records each in the history.
/// async fn client<I: RangeIndex<Key: TestKey>>(
///     index: &I,
///     ops: &[KvOp<u64, u64>],
///     history: &mut History<KvOp<u64, u64>, KvRet<u64>>,
///     now: impl Fn() -> u64,
/// ) -> Result<(), IndexError> {
///     for op in ops {
///         let call = history.invoke(1, op.clone(), now());
///         let answer = perform(index, op).await?;
///         history.respond(call, answer, now());
///     }
///     Ok(())
/// }
/// ```
///
/// # Errors
/// Returns the errors of the index.
///
/// # Panics
/// Panics if a value does not fit into the index's values, or if the index answers [`Applied::Differs`].
pub async fn perform<I>(index: &I, op: &KvOp<u64, u64>) -> Result<KvRet<u64>, IndexError>
where
    I: RangeIndex,
    I::Key: TestKey,
{
    let key = I::Key::nth(*op.key());
    let value = match *op {
        KvOp::Get(_) | KvOp::Remove(_) => Vec::new(),
        KvOp::Insert(_, value) | KvOp::Update(_, value) | KvOp::Upsert(_, value) => {
            bytes_of(value, index.value_bytes())
        }
    };
    // Boxed, because a future has room for the largest future that it awaits. An explorer makes and drops many of these
    // futures, and most do not need this room.
    let applied = match op {
        KvOp::Get(_) => {
            let mut value = value;
            let found = Box::pin(index.get(&key, &mut value)).await?;
            return Ok(match found {
                true => KvRet::Found(number_in(&value)),
                false => KvRet::Absent,
            });
        }
        KvOp::Insert(..) => Box::pin(index.insert(&key, &value)).await,
        KvOp::Update(..) => Box::pin(index.update(&key, &value)).await,
        KvOp::Upsert(..) => Box::pin(index.upsert(&key, &value)).await,
        KvOp::Remove(_) => Box::pin(index.remove(&key)).await,
    };
    Ok(answer(applied?))
}

/// Returns the bytes of a value that is a number: little-endian, with zeros behind it.
fn bytes_of(value: u64, len: usize) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(len.max(8), 0);
    let beyond = bytes.split_off(len);
    assert!(
        beyond.iter().all(|byte| *byte == 0),
        "the value {value} does not fit into the index's values of {len} bytes"
    );
    bytes
}

/// Returns the number in a value, or `u64::MAX` if the value is anything else.
fn number_in(value: &[u8]) -> u64 {
    let mut word = [0; 8];
    let (number, padding) = value.split_at(value.len().min(8));
    word[..number.len()].copy_from_slice(number);
    match padding.iter().all(|byte| *byte == 0) {
        true => u64::from_le_bytes(word),
        false => u64::MAX,
    }
}

/// Returns the answer of a write as a history records it.
///
/// # Panics
/// Panics on [`Applied::Differs`], because a [`KvOp`] exchanges nothing.
///
/// ```
/// use dm_history::KvRet;
/// use dm_index::Applied;
///
/// assert_eq!(dm_testkit::answer::<u64>(Applied::Present), KvRet::Present);
/// ```
#[must_use]
pub fn answer<V>(applied: Applied) -> KvRet<V> {
    match applied {
        Applied::Inserted => KvRet::Inserted,
        Applied::Replaced => KvRet::Replaced,
        Applied::Removed => KvRet::Removed,
        Applied::Present => KvRet::Present,
        Applied::Absent => KvRet::Absent,
        Applied::Differs => panic!("no operation of a history exchanges values"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_from_values_of_any_length() {
        for (number, len) in [(0, 0), (7, 1), (300, 4), (u64::MAX - 1, 8), (u64::MAX - 1, 20)] {
            let bytes = bytes_of(number, len);
            assert_eq!((bytes.len(), number_in(&bytes)), (len, number));
        }
        // These bytes mix two values.
        assert_eq!(number_in(&[7, 0, 0, 0, 0, 0, 0, 0, 0, 1]), u64::MAX);
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_value_that_is_too_long_is_refused() {
        drop(bytes_of(256, 1));
    }
}
