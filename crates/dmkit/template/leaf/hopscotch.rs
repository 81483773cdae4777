//! Leaves that are hopscotch tables. A get reads only one neighbourhood of a leaf.

use dm_assemble::{OpenError, Pool};
use dm_hopscotch::{HopOptions, Hopscotch, Neighbourhoods};
use dm_index::KeyBytes;
use dm_leaf::{NodeOptions, Nodes};
use dm_lock::Locks;
use dm_sync::Arc;
use dm_verbs::Verbs;

use crate::Options;

/// Whole leaves, for splits, merges, scans and loads.
pub(crate) type Whole<K> = Nodes<K, Hopscotch<K>>;
/// Leaves as operations read and write them.
pub(crate) type Leaves<K> = Neighbourhoods<K>;

pub(crate) fn format<K: KeyBytes>(options: &Options) -> Result<Hopscotch<K>, OpenError> {
    let neighbourhood = (options.span / 2).clamp(2, 8);
    Ok(Hopscotch::new(
        options.span,
        neighbourhood,
        options.value_bytes,
    )?)
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
    let (format, whole) = (format(options)?, whole(pool, locks, options)?);
    let (locks, alloc) = (locks.clone(), pool.alloc().clone());
    let near = HopOptions::default();
    Ok(Neighbourhoods::new(format, whole, locks, alloc, near))
}
