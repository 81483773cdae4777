//! Leaves that a client reads whole: unsorted entries, with a version in each line.

use dm_assemble::{OpenError, Pool};
use dm_index::KeyBytes;
use dm_layout::Slotted;
use dm_leaf::{NodeOptions, Nodes};
use dm_lock::Locks;
use dm_sync::Arc;
use dm_verbs::Verbs;

use crate::Options;

/// Whole leaves.
pub(crate) type Whole<K> = Nodes<K, Slotted<K>>;
/// Leaves as operations read and write them.
pub(crate) type Leaves<K> = Whole<K>;

pub(crate) fn format<K: KeyBytes>(options: &Options) -> Result<Slotted<K>, OpenError> {
    Ok(Slotted::with_span(options.span, options.value_bytes)?)
}

pub(crate) fn whole<K: KeyBytes, V: Verbs>(
    pool: &Pool<'_, V>,
    locks: &Arc<Locks>,
    options: &Options,
) -> Result<Whole<K>, OpenError> {
    let nodes = NodeOptions {
        attempts: options.attempts,
        // The memory of dead leaves is reused only for leaves. The nodes of the inner structure have other kinds.
        kind: 2,
        ..NodeOptions::default()
    };
    let (locks, alloc) = (locks.clone(), pool.alloc().clone());
    Ok(Nodes::new(format(options)?, locks, alloc, nodes))
}

pub(crate) fn leaves<K: KeyBytes, V: Verbs>(
    pool: &Pool<'_, V>,
    locks: &Arc<Locks>,
    options: &Options,
) -> Result<Leaves<K>, OpenError> {
    whole(pool, locks, options)
}
