//! Scans: the nodes and leaves on the path are read in key order, in parallel.

use dm_index::{IndexError, KeyBytes, Scan, gather};
use dm_verbs::{Control, RemotePtr, Verbs};

use crate::SingleStore;
use crate::art::{ArtClient, KeyText};
use crate::errors::misplaced;
use crate::walk::{Item, Side, children};

/// Maximum number of nodes, or leaves, that are read at once.
const BATCH: usize = 64;

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    pub(crate) async fn scan_keys(
        &self,
        from: &K,
        limit: usize,
        out: &mut Scan<K>,
    ) -> Result<(), IndexError> {
        let text = KeyText::of(from);
        //= docs/protocol/smart.md M20
        let mut items = vec![Item::root(self.art.root, self.art.types())];
        if self.art.options.flaws().scan_trusts_cache
            && let Some(hit) = self.art.cache.lookup(&text)
        {
            items = vec![Item::Node {
                at: hit.at,
                node_type: hit.node_type,
                from: hit.link.map_or(hit.branch, |link| link.branch + 1),
                edge: true,
            }];
        }
        while out.len() < limit && !items.is_empty() {
            let nodes = self.nodes_to_read(&items, limit - out.len());
            if nodes.is_empty() {
                let leaves = items.iter().take(BATCH.min(limit - out.len()));
                let leaves: Vec<RemotePtr> = leaves
                    .map_while(|item| match item {
                        Item::Leaf(at) => Some(*at),
                        Item::Node { .. } => None,
                    })
                    .collect();
                self.take_leaves(from, &leaves, limit, out).await?;
                items.drain(..leaves.len());
            } else {
                items = self.expand(&text, &items, &nodes).await?;
            }
        }
        Ok(())
    }

    /// Returns the positions in `items` of the nodes to read for the next `wanted` keys. It estimates the number of
    /// keys below a node from the node's type.
    fn nodes_to_read(&self, items: &[Item], wanted: usize) -> Vec<usize> {
        let mut keys = 0;
        let mut nodes = Vec::new();
        for (i, item) in items.iter().enumerate() {
            if keys >= wanted || nodes.len() == BATCH {
                break;
            }
            match item {
                // If the items begin with a whole batch of leaves, these are read before any node.
                Item::Leaf(_) if nodes.is_empty() && keys + 1 == BATCH => break,
                Item::Leaf(_) => keys += 1,
                Item::Node { node_type, .. } => {
                    nodes.push(i);
                    // A node of this type usually has more children than fit into the next smaller type.
                    keys += self.art.types().slots(node_type.saturating_sub(1)).max(2);
                }
            }
        }
        nodes
    }

    /// Reads the nodes at the positions `nodes`, and replaces them by those of their children that the scan needs.
    async fn expand(&self, from: &KeyText, items: &[Item], nodes: &[usize]) -> Result<Vec<Item>, IndexError> {
        let types = self.art.types();
        let mut wanted = Vec::with_capacity(nodes.len());
        for &i in nodes {
            if let Item::Node { at, node_type, .. } = items[i] {
                if types.slots(node_type) == 0 {
                    return Err(misplaced(at));
                }
                wanted.push((at, types.bytes(node_type) as u32));
            }
        }
        let mut reads = gather(self.v, &wanted).await?.into_iter();
        let mut nodes = nodes.iter().copied().peekable();
        let mut expanded = Vec::with_capacity(items.len() + 64);
        for (i, item) in items.iter().enumerate() {
            match (item, nodes.next_if_eq(&i).and_then(|_| reads.next())) {
                (
                    &Item::Node {
                        at,
                        node_type,
                        from: byte,
                        edge,
                    },
                    Some(bytes),
                ) => {
                    let node = self.decode(&bytes, at, node_type)?;
                    let (prefix, edge) = match self.prefix(from, &node, at, (byte, edge))? {
                        Some(known) => known,
                        // Boxed, because it is rare and would make the future of every scan large.
                        None => Box::pin(self.shown_prefix(from, (at, node_type))).await?,
                    };
                    children(Side::Up, from, &node, at, (byte, edge), &prefix, &mut expanded)?;
                }
                _ => expanded.push(*item),
            }
        }
        Ok(expanded)
    }

    async fn take_leaves(
        &self,
        from: &K,
        leaves: &[RemotePtr],
        limit: usize,
        out: &mut Scan<K>,
    ) -> Result<(), IndexError> {
        let take = |key: K, value: &[u8]| {
            let last = out.keys().last();
            // If a leaf's key is not above the last key, the leaf is linked at a wrong place.
            if key >= *from && last.is_none_or(|last| *last < key) && out.len() < limit {
                out.push(key, value);
            }
        };
        self.art.leaves.entries(self.v, leaves, take).await
    }
}
