//! The last key at or below another: a descent that backtracks where the way it took holds only larger keys.

use dm_index::{IndexError, KeyBytes, SingleStore};
use dm_layout::{RadixNode, SlotWord};
use dm_verbs::{Control, RemotePtr, Verbs};

use crate::art::{ArtClient, KeyText};
use crate::errors::{corrupt, misplaced};
use crate::locate::node_type;
use crate::presence::over;

/// Which key is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bound {
    /// The last one that is not above this.
    At,
    /// The last one below this.
    Below,
}

/// Something that holds smaller keys than all that was tried.
#[derive(Clone, Copy, Debug)]
enum Item {
    Leaf(RemotePtr),
    Node {
        at: RemotePtr,
        node_type: u8,
        /// The first key byte that it says something of.
        from: u8,
        /// All bytes before are the key's: some of what is below may be above the key.
        edge: bool,
    },
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
        let running = self.coming(None).await?;
        let found = self.floor_key(key, bound, value);
        over(running, self.art.alloc.tending(self.v, found).await)
    }

    async fn floor_key(&self, key: &K, bound: Bound, out: &mut Vec<u8>) -> Result<Option<K>, IndexError> {
        let text = KeyText::of(key);
        // The last one holds the largest keys.
        let mut rest = vec![Item::Node {
            at: self.art.root,
            node_type: self.art.types().largest(),
            from: 0,
            edge: true,
        }];
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
                    not_above(&text, &node, at, (from, edge), &mut rest)?;
                }
            }
        }
        Ok(None)
    }
}

/// What a node holds that may not be above the key, in key order.
fn not_above(
    key: &KeyText,
    node: &RadixNode<'_>,
    at: RemotePtr,
    (byte, mut edge): (u8, bool),
    out: &mut Vec<Item>,
) -> Result<(), IndexError> {
    let header = node.header();
    let branch = header.branch();
    //= docs/protocol/smart.md M13
    let (Some(partial), Some(&last)) = (header.partial_from(byte), key.get(usize::from(branch))) else {
        return Err(misplaced(at));
    };
    if edge {
        match partial.cmp(&key[usize::from(byte)..usize::from(branch)]) {
            core::cmp::Ordering::Greater => return Ok(()),
            core::cmp::Ordering::Equal => {}
            core::cmp::Ordering::Less => edge = false,
        }
    }
    let wanted = |w: &SlotWord| w.has_child() && (!edge || w.partial() <= last);
    let mut words: Vec<SlotWord> = node.words().filter(wanted).collect();
    words.sort_unstable_by_key(|w| w.partial());
    for word in words {
        word.decode().map_err(corrupt(at))?;
        let child = RemotePtr::from_raw(word.pointer());
        out.push(match word.is_leaf() {
            true => Item::Leaf(child),
            false => Item::Node {
                at: child,
                node_type: node_type(word),
                from: branch + 1,
                edge: edge && word.partial() == last,
            },
        });
    }
    Ok(())
}
