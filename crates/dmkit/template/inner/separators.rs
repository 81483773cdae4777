//! The inner structure: a radix tree whose entries have the first key of each leaf.

use dm_art::{Art, ArtOptions, SeparatorOptions, Separators, SingleOptions, Singles};
use dm_assemble::{OpenError, Pool};
use dm_cache::IndexCache;
use dm_index::KeyBytes;
use dm_layout::SingleLeaf;
use dm_lock::{LockPlace, Locks};
use dm_sync::Arc;
use dm_verbs::{Control, Verbs};

use crate::{Options, lock_options};

/// The inner structure, which leads from a key to its leaf.
pub(crate) type Inner<K> = Separators<K, Singles<K>>;

pub(crate) async fn open<K: KeyBytes, V: Verbs + Control>(
    pool: &mut Pool<'_, V>,
    _leaf_locks: &Arc<Locks>,
    options: &Options,
) -> Result<Inner<K>, OpenError> {
    // An entry is a leaf of one key, with its own lock.
    let entry = SingleLeaf::new(8)?;
    let locks = pool.locks_in_nodes(entry.lock_at(), lock_options(options, LockPlace::Host))?;
    let entries = Singles::new(entry, locks, SingleOptions::new(options.attempts));
    let art = ArtOptions {
        // Separators are cached, so the radix nodes that lead to them need no cache.
        cache_bytes: 0,
        attempts: options.attempts,
        depth_slack: 0,
        ..ArtOptions::default()
    };
    let (alloc, root) = (pool.alloc().clone(), pool.root_word());
    let art = Art::open(pool.verbs(), entries, alloc, root, art).await?;
    let cache = IndexCache::new(options.cache_bytes);
    Ok(Separators::new(art, cache, SeparatorOptions::default())?)
}

/// Returns the bytes that the compute node keeps, with all allocations.
pub(crate) fn bytes<K: KeyBytes>(inner: &Inner<K>) -> u64 {
    inner.cache_bytes()
}
