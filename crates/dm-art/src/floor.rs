//! Finding the last key below a given key, or at or below it. The descent backtracks if a subtree contains no such key.

use dm_index::{IndexError, KeyBound, KeyBytes};
use dm_verbs::{Control, Verbs};

use crate::SingleStore;
use crate::art::{ArtClient, KeyText};
use crate::errors::misplaced;
use crate::presence::end_operation;
use crate::walk::{Item, Side, children};

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Finds the last entry that `bound` admits for `key`, and writes its value to `value`. The nodes and leaves on the
    /// path are read at different moments, but an entry that is present throughout the search is never skipped.
    pub(crate) async fn floor(
        &self,
        key: &K,
        bound: KeyBound,
        value: &mut Vec<u8>,
    ) -> Result<Option<K>, IndexError> {
        let running = self.start().await?;
        let found = self.floor_key(key, bound, value);
        end_operation(running, self.art.alloc.while_announcing(self.v, found).await)
    }

    async fn floor_key(&self, key: &K, bound: KeyBound, out: &mut Vec<u8>) -> Result<Option<K>, IndexError> {
        let text = KeyText::of(key);
        // The last item holds the largest keys.
        let mut rest = vec![Item::root(self.art.root, self.art.types())];
        while let Some(item) = rest.pop() {
            match item {
                Item::Leaf(at) => {
                    let mut found = None;
                    let take = |other: K, value: &[u8]| {
                        if other < *key || bound == KeyBound::At && other == *key {
                            out.clear();
                            out.extend_from_slice(value);
                            found = Some(other);
                        }
                    };
                    self.art.leaves.entries(self.v, &[at], take).await?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Item::Node {
                    at,
                    node_type,
                    from,
                    edge,
                } => {
                    if self.art.types().slots(node_type) == 0 {
                        return Err(misplaced(at));
                    }
                    let bytes = self.read_node(at, node_type).await?;
                    let node = self.decode(&bytes, at, node_type)?;
                    let (prefix, edge) = match self.prefix(&text, &node, at, (from, edge))? {
                        Some(known) => known,
                        None => Box::pin(self.shown_prefix(&text, (at, node_type))).await?,
                    };
                    children(Side::Down, &text, &node, at, (from, edge), &prefix, &mut rest)?;
                }
            }
        }
        Ok(None)
    }
}
