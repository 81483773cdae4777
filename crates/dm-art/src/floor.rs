//! The last key at or below another: a descent that backtracks where the way it took holds only larger keys.

use dm_index::{IndexError, KeyBytes, SingleStore};
use dm_verbs::{Control, Verbs};

use crate::art::{ArtClient, KeyText};
use crate::errors::misplaced;
use crate::presence::over;
use crate::walk::{Item, Side, children};

/// Which key is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bound {
    /// The last one that is not above this.
    At,
    /// The last one below this.
    Below,
}

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// The last entry at `key` or below, its value into `value`. Each node and leaf on the way is seen at one moment; an entry
    /// that is there throughout is never passed by for a smaller one.
    pub(crate) async fn floor(
        &self,
        key: &K,
        bound: Bound,
        value: &mut Vec<u8>,
    ) -> Result<Option<K>, IndexError> {
        let running = self.coming().await?;
        let found = self.floor_key(key, bound, value);
        over(running, self.art.alloc.tending(self.v, found).await)
    }

    async fn floor_key(&self, key: &K, bound: Bound, out: &mut Vec<u8>) -> Result<Option<K>, IndexError> {
        let text = KeyText::of(key);
        // The last one holds the largest keys.
        let mut rest = vec![Item::root(self.art.root, self.art.types())];
        while let Some(item) = rest.pop() {
            match item {
                Item::Leaf(at) => {
                    let mut found = None;
                    let take = |other: K, value: &[u8]| {
                        if other < *key || bound == Bound::At && other == *key {
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
                    children(Side::Down, &text, &node, at, (from, edge), &mut rest)?;
                }
            }
        }
        Ok(None)
    }
}
