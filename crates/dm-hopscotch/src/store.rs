//! The store of hopscotch leaves: neighbourhoods in front of whole nodes.

use dm_alloc::Allocator;
use dm_cache::Hotspots;
use dm_index::{Answer, Applied, IndexError, Lead, NodeAccess, NodeCopy, Write};
use dm_layout::{Hopscotch, KeyBytes, NodeShape};
use dm_leaf::Nodes;
use dm_lock::Locks;
use dm_sync::Arc;
use dm_verbs::{Control, Verbs};

use crate::HopOptions;

/// A store of hopscotch leaves, which the threads of one compute node share. The inner store holds
/// whole nodes of the same format, under the same locks.
#[derive(Debug)]
pub struct Neighbourhoods<K> {
    pub(crate) format: Hopscotch<K>,
    pub(crate) nodes: Nodes<K, Hopscotch<K>>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) alloc: Arc<Allocator>,
    /// The hotspot buffer: the slots in which keys were found or written. `None` if its size is too small.
    pub(crate) hotspots: Option<Hotspots>,
    pub(crate) options: HopOptions,
}

impl<K: KeyBytes> Neighbourhoods<K> {
    /// Wraps `nodes`, which must use this format, these locks and this allocator.
    pub fn new(
        format: Hopscotch<K>,
        nodes: Nodes<K, Hopscotch<K>>,
        locks: Arc<Locks>,
        alloc: Arc<Allocator>,
        options: HopOptions,
    ) -> Self {
        Self {
            format,
            nodes,
            locks,
            alloc,
            hotspots: Hotspots::new(options.hotspot_bytes),
            options,
        }
    }

    /// Returns the hotspot buffer, if there is one.
    pub fn hotspots(&self) -> Option<&Hotspots> {
        self.hotspots.as_ref()
    }

    /// Returns the store of whole nodes.
    pub fn nodes(&self) -> &Nodes<K, Hopscotch<K>> {
        &self.nodes
    }

    /// Returns the format of the leaves.
    pub fn format(&self) -> &Hopscotch<K> {
        &self.format
    }

    pub(crate) fn header_len(&self) -> u32 {
        self.format.geometry().header_bytes() as u32
    }

    pub(crate) fn node_len(&self) -> u32 {
        // A node has at most 64 KiB.
        self.format.node_bytes() as u32
    }
}

impl<V: Verbs + Control, K: KeyBytes> NodeAccess<V, K> for Neighbourhoods<K> {
    type Whole = Nodes<K, Hopscotch<K>>;

    fn whole(&self) -> &Nodes<K, Hopscotch<K>> {
        &self.nodes
    }

    fn value_bytes(&self) -> usize {
        NodeAccess::<V, K>::value_bytes(&self.nodes)
    }

    async fn get(
        &self,
        v: &V,
        at: Lead,
        level: u8,
        key: &K,
        value: &mut Vec<u8>,
    ) -> Result<Answer<K, bool>, IndexError> {
        if level == 0 {
            if self.get_alone(v, at.at, key, value).await? {
                return Ok(Answer::Done(true));
            }
            if let Some(found) = self.get_near(v, (at.at, at.linked), key, value).await? {
                return Ok(Answer::Done(found));
            }
        }
        //= docs/protocol/chime.md H2
        self.nodes.get(v, at, level, key, value).await
    }

    async fn write(
        &self,
        v: &V,
        at: Lead,
        level: u8,
        key: &K,
        write: Write<'_>,
        after: Option<&mut NodeCopy<K>>,
    ) -> Result<Answer<K, Applied>, IndexError> {
        //= docs/protocol/chime.md H5
        // A sibling pointer may lead to a node that is not live yet, and a neighbourhood does not show this.
        if level == 0
            && !at.linked
            && after.is_none()
            && let Some(answer) = self.write_near(v, at.at, key, write).await?
        {
            return Ok(answer);
        }
        Box::pin(self.nodes.write(v, at, level, key, write, after)).await
    }
}
