//! The children of a node on one side of a key, in key order. A scan needs the keys from its first key upwards, and a
//! floor search those from its bound downwards.

use core::cmp::Ordering;

use dm_index::IndexError;
use dm_layout::{NodeTypes, RadixNode, SlotWord};
use dm_verbs::RemotePtr;

use crate::art::KeyText;
use crate::errors::{corrupt, misplaced};
use crate::locate::node_type;

/// A subtree or leaf that may hold wanted keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    Leaf(RemotePtr),
    Node {
        at: RemotePtr,
        node_type: u8,
        /// The first key byte that is not determined by the path to the node.
        from: u8,
        /// Whether all bytes in front of `from` equal those of the bounding key. If so, the subtree may contain keys on
        /// both sides of that key.
        edge: bool,
    },
}

impl Item {
    /// Returns the root of a tree, at `at`.
    pub(crate) fn root(at: RemotePtr, types: &NodeTypes) -> Self {
        Item::Node {
            at,
            node_type: types.largest(),
            from: 0,
            edge: true,
        }
    }
}

/// The side of a key on which keys are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The key and all keys above it.
    Up,
    /// The key and all keys below it.
    Down,
}

impl Side {
    /// Compares a piece of a key with the same piece of the bounding key. `Less` means that the key is not on this
    /// side.
    fn compare<T: Ord + ?Sized>(self, piece: &T, key: &T) -> Ordering {
        match self {
            Side::Up => piece.cmp(key),
            Side::Down => key.cmp(piece),
        }
    }
}

/// Appends to `out` the children of the node at `at` that may hold keys on this side of `key`, in key order. `byte` is
/// the `from` of the node's [`Item::Node`]. `edge` is its `edge`, or `false` if the node's prefix is unknown, so that
/// no child may be left out. `prefix` is a key with the node's prefix. It is compared with `key` only if `edge` is set.
pub(crate) fn children(
    side: Side,
    key: &KeyText,
    node: &RadixNode<'_>,
    at: RemotePtr,
    (byte, mut edge): (u8, bool),
    prefix: &KeyText,
    out: &mut Vec<Item>,
) -> Result<(), IndexError> {
    let branch = node.header().branch();
    let own = usize::from(byte)..usize::from(branch);
    let (Some(partial), Some(&bound)) = (prefix.get(own.clone()), key.get(usize::from(branch))) else {
        return Err(misplaced(at));
    };
    if edge {
        match side.compare(partial, &key[own]) {
            Ordering::Less => return Ok(()),
            Ordering::Equal => {}
            Ordering::Greater => edge = false,
        }
    }
    let wanted = |w: &SlotWord| w.has_child() && (!edge || side.compare(&w.partial(), &bound).is_ge());
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
                edge: edge && word.partial() == bound,
            },
        });
    }
    Ok(())
}
