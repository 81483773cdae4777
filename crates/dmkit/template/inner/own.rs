//! The inner structure: an array of fence keys, as a beginning for your own structure.

mod array;
mod fences;
mod walk;

use dm_assemble::{OpenError, Pool};
use dm_index::KeyBytes;
use dm_lock::Locks;
use dm_sync::Arc;
use dm_verbs::{Control, Verbs};

use crate::Options;
use crate::leaf::{Whole, whole};
use array::Array;
use fences::Fences;

/// The inner structure, which leads from a key to its leaf.
pub(crate) type Inner<K> = Fences<K, Whole<K>>;

pub(crate) async fn open<K: KeyBytes, V: Verbs + Control>(
    pool: &mut Pool<'_, V>,
    locks: &Arc<Locks>,
    options: &Options,
) -> Result<Inner<K>, OpenError> {
    Ok(Fences {
        array: Array::new(),
        root_word: pool.root_word(),
        leaves: whole(pool, locks, options)?,
        attempts: options.attempts,
    })
}

/// Returns the bytes that the compute node keeps, with all allocations.
pub(crate) fn bytes<K: KeyBytes>(inner: &Inner<K>) -> u64 {
    inner.array.bytes() as u64
}
