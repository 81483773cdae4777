//! The inner structure: B-link levels. Clients cache their nodes.

use dm_assemble::{OpenError, Pool};
use dm_blink::{Blink, BlinkOptions};
use dm_cache::IndexCache;
use dm_index::{CHILD_BYTES, KeyBytes};
use dm_layout::Slotted;
use dm_leaf::{NodeOptions, Nodes};
use dm_lock::Locks;
use dm_sync::Arc;
use dm_verbs::{Control, Verbs};

use crate::Options;

/// The inner structure, which leads from a key to its leaf.
pub(crate) type Inner<K> = Blink<K, Nodes<K, Slotted<K>>>;

pub(crate) async fn open<K: KeyBytes, V: Verbs + Control>(
    pool: &mut Pool<'_, V>,
    locks: &Arc<Locks>,
    options: &Options,
) -> Result<Inner<K>, OpenError> {
    let alloc = pool.alloc().clone();
    let nodes = NodeOptions {
        attempts: options.attempts,
        // Leaves have another kind, because their bytes differ.
        kind: 1,
        ..NodeOptions::default()
    };
    let format = Slotted::with_span(options.span, CHILD_BYTES)?;
    let nodes = Nodes::new(format, locks.clone(), alloc.clone(), nodes);
    let cache = IndexCache::new(options.cache_bytes);
    let blink = BlinkOptions::new(options.attempts);
    // A cached root is valid only in the epoch in which it was read.
    Ok(Blink::new(nodes, cache, pool.root_word(), blink).in_epochs(alloc.epochs().cloned()))
}

/// Returns the bytes that the compute node keeps, with all allocations.
pub(crate) fn bytes<K: KeyBytes>(inner: &Inner<K>) -> u64 {
    inner.cache().bytes()
}
