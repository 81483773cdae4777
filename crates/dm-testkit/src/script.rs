//! Scripts that a fuzzer writes.

use dm_index::RangeIndex;

use crate::{Model, OP_BYTES, Op, TestKey, apply, check_all, value_of};

/// Maximum number of operations of a script. Longer scripts are slower and find nothing new.
const OPS_MAX: usize = 400;
/// Numbered keys of a script: enough for three levels of small nodes.
const KEYS: u64 = 96;

/// Runs `script` on an empty index and a plain map, and compares every answer. Every byte string is a script. If
/// `loaded` is a number, a bulk load of this many keys comes first. `after` is called after every operation, with the
/// operation's number.
///
/// # Panics
/// Panics at the first difference, and if the bulk load fails.
pub async fn run_bytes<I>(index: &I, loaded: Option<u64>, script: &[u8], mut after: impl AsyncFnMut(usize))
where
    I: RangeIndex,
    I::Key: TestKey,
{
    let value_bytes = index.value_bytes();
    let mut model = Model::new(value_bytes);
    if let Some(count) = loaded {
        let mut keys = (0..count).map(I::Key::nth);
        let next = |value: &mut Vec<u8>| {
            let key = keys.next()?;
            model.write(&Op::Insert(key, 1));
            value.extend_from_slice(&value_of(1, value_bytes));
            Some(key)
        };
        let found = index.bulk_load(1.0, next).await;
        assert_eq!(found, Ok(count), "keys that were loaded");
    }
    for (i, bytes) in script.as_chunks::<OP_BYTES>().0.iter().take(OPS_MAX).enumerate() {
        let op = Op::decode(*bytes, KEYS);
        if let Err(difference) = apply(index, &mut model, &op).await {
            panic!("{difference}");
        }
        after(i).await;
    }
    if let Err(difference) = check_all(index, &model).await {
        panic!("after the script: {difference}");
    }
}
