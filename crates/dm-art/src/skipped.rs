//! Handling of key bytes that a client has skipped, because no header on its path holds them
//! ([`Compression`](crate::Compression)).
//!
//! A search skips such bytes, and compares the whole key of the leaf that it finds. An insert must know them, because
//! they decide where the new leaf belongs. It gets them from any leaf below the node. The key of each such leaf has the
//! node's prefix, whether or not the leaf is live, and neither the prefix nor the key ever changes.

use dm_index::{IndexError, KeyBytes};
use dm_layout::{Find, RadixNode};
use dm_verbs::{Control, LocalStep, RemotePtr, Verbs};

use crate::SingleStore;
use crate::art::{ArtClient, KeyText, shared};
use crate::errors::{corrupt, misplaced};
use crate::locate::{Link, Within, node_type, slot_of};
use crate::write::{Beside, link_kind};

/// The result of looking for a leaf below a node.
pub(crate) enum Below {
    /// The address of a leaf, and its key.
    Leaf(RemotePtr, KeyText),
    /// A node without a child, and a key on its path.
    Empty(KeyText, Within),
    /// A leaf whose key could not be read.
    Unread,
}

/// The place of a new leaf.
type Spot<K> = (Link, Within, Beside<K>);

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Finds a leaf below the node of type `kind` at `at`, which is on `key`'s path, and reads its key. `known` is a
    /// leaf whose key the caller has read. If this finds the same leaf, it does not read the leaf again.
    pub(crate) async fn leaf_below(
        &self,
        key: &KeyText,
        (at, kind): (RemotePtr, u8),
        known: Option<(RemotePtr, KeyText)>,
    ) -> Result<Below, IndexError> {
        self.v.local(LocalStep::Section).await;
        let leaf = match self.art.cache.leaf_below(key, at) {
            Some(leaf) => leaf,
            None => match self.read_to_leaf(key, (at, kind)).await? {
                Ok(leaf) => leaf,
                Err((path, within)) => return Ok(Below::Empty(path, within)),
            },
        };
        if let Some((_, text)) = known.filter(|(known, _)| *known == leaf) {
            return Ok(Below::Leaf(leaf, text));
        }
        let mut found = None;
        let leaves = &self.art.leaves;
        leaves
            .inspect(self.v, &[leaf], |_, seen, _| found = seen.key)
            .await?;
        Ok(match found {
            Some(found) => Below::Leaf(leaf, KeyText::of(&found)),
            None => Below::Unread,
        })
    }

    /// Reads nodes from this one on down to a leaf. In each node, it takes the child at `key`'s byte, or the first
    /// child if there is none at that byte. If it gets to a node without a child, returns this node and a key on its
    /// path as the inner error.
    async fn read_to_leaf(
        &self,
        key: &KeyText,
        (mut at, mut kind): (RemotePtr, u8),
    ) -> Result<Result<RemotePtr, (KeyText, Within)>, IndexError> {
        let (mut path, mut link) = (*key, None);
        loop {
            if self.art.types().slots(kind) == 0 {
                return Err(misplaced(at));
            }
            let bytes = self.read_node(at, kind).await?;
            let node = self.decode(&bytes, at, kind)?;
            let branch = node.header().branch();
            let Some(&byte) = path.get(usize::from(branch)) else {
                return Err(misplaced(at));
            };
            let child = match node.find(byte).map_err(corrupt(at))? {
                Find::Child(index, word) => Some((index, word)),
                _ => node.words().enumerate().find(|(_, word)| word.has_child()),
            };
            let Some((index, word)) = child else {
                let within = Within {
                    at,
                    node_type: kind,
                    children: 0,
                    link,
                    skipped: true,
                };
                return Ok(Err((path, within)));
            };
            word.decode().map_err(corrupt(at))?;
            path = path.with(branch, word.partial());
            let child = RemotePtr::from_raw(word.pointer());
            if word.is_leaf() {
                return Ok(Ok(child));
            }
            let slot = slot_of(at, &node, index, word);
            link = Some(Link { slot, fresh: true });
            (at, kind) = (child, node_type(word));
        }
    }

    /// Returns the place of a new leaf of `key`, whose search has skipped key bytes and ended at the given place.
    /// Returns `None` if the tree has changed meanwhile, if the key of a leaf could not be read, or if this had to
    /// renew a node without a child. Then the insert must search again.
    pub(crate) async fn spot(
        &self,
        key: &KeyText,
        (link, within, beside): Spot<K>,
    ) -> Result<Option<Spot<K>>, IndexError> {
        let branch = usize::from(link.slot.branch);
        let child = (link.child(), link_kind(&link));
        let below = match &beside {
            Beside::Leaf { key, .. } => Below::Leaf(link.child(), KeyText::of(key)),
            Beside::Node { .. } => self.leaf_below(key, child, None).await?,
            Beside::Nothing => self.leaf_below(key, (within.at, within.node_type), None).await?,
        };
        //= docs/protocol/smart.md M29
        let Some((leaf, other)) = self.key_of(below, key, &link).await? else {
            return Ok(None);
        };
        let at = shared(key, &other);
        let beside = match beside {
            Beside::Nothing if at >= branch => Some(Beside::Nothing),
            Beside::Leaf { key, depth } if at > branch => Some(Beside::Leaf { key, depth }),
            Beside::Node { .. } if at > branch => {
                other.get(at).map(|&byte| Beside::Node { at: at as u8, byte })
            }
            _ => None,
        };
        if let Some(beside) = beside {
            return Ok(Some((link, within, beside)));
        }
        // The new key differs from the leaf's key at a byte further up. A node on the path skips this byte.
        let Some((link, within, end)) = self.link_over(key, at).await? else {
            self.forget(key, &link).await;
            return Ok(None);
        };
        let child = (link.child(), link_kind(&link));
        let below = self.leaf_below(key, child, Some((leaf, other))).await?;
        let Some((_, other)) = self.key_of(below, key, &link).await? else {
            return Ok(None);
        };
        let at = shared(key, &other);
        if at <= usize::from(link.slot.branch) || at >= usize::from(end) {
            self.forget(key, &link).await;
            return Ok(None);
        }
        let beside = Beside::Node {
            at: at as u8,
            byte: other[at],
        };
        Ok(Some((link, within, beside)))
    }

    /// Returns the leaf in `below` and its key. If there is no leaf or its key is unknown, returns `None`, renews a
    /// node without a child, and removes nodes from the cache, so that the next search reads them again.
    async fn key_of(
        &self,
        below: Below,
        key: &KeyText,
        link: &Link,
    ) -> Result<Option<(RemotePtr, KeyText)>, IndexError> {
        match below {
            Below::Leaf(leaf, text) => return Ok(Some((leaf, text))),
            Below::Empty(path, within) => self.renew(&path, &within).await?,
            Below::Unread => {}
        }
        self.forget(key, link).await;
        Ok(None)
    }

    /// Removes the node that contains `link` from the cache, so that the next search reads it again. If that node is
    /// the root, removes the child of `link` instead.
    async fn forget(&self, key: &KeyText, link: &Link) {
        self.v.local(LocalStep::Section).await;
        let at = match link.slot.node == self.art.root {
            true => link.child(),
            false => link.slot.node,
        };
        self.art.cache.forget(key, at);
    }

    /// Finds the link on `key`'s path that leads across key byte `byte`. The branch of the link's node is at most
    /// `byte`, and the branch of its child is larger. Returns the link, its node, and the branch of the child, or
    /// `None` if the path has no such link.
    async fn link_over(&self, key: &KeyText, byte: usize) -> Result<Option<(Link, Within, u8)>, IndexError> {
        self.v.local(LocalStep::Section).await;
        let mut link = None;
        let root = (self.art.root, self.art.types().largest());
        let (mut at, mut kind) = root;
        if let Some((hit, end)) = self.art.cache.over(key, byte as u8) {
            let Find::Child(index, word) = hit.find else {
                return Ok(None);
            };
            let slot = hit.slot(index, word);
            let within = Within {
                at: hit.at,
                node_type: hit.node_type,
                children: hit.children,
                link: hit.link.map(|slot| Link { slot, fresh: false }),
                skipped: hit.skipped,
            };
            let found = Link { slot, fresh: false };
            if let Some(end) = end {
                return Ok((usize::from(end) > byte).then_some((found, within, end)));
            }
            (at, kind) = (found.child(), node_type(word));
            link = Some((found, within));
        }
        loop {
            if self.art.types().slots(kind) == 0 {
                return Ok(None);
            }
            let bytes = self.read_node(at, kind).await?;
            let node = self.decode(&bytes, at, kind)?;
            let branch = node.header().branch();
            if usize::from(branch) > byte {
                return Ok(link.map(|(link, within)| (link, within, branch)));
            }
            let Some(&own) = key.get(usize::from(branch)) else {
                return Err(misplaced(at));
            };
            let Find::Child(index, word) = node.find(own).map_err(corrupt(at))? else {
                return Ok(None);
            };
            let within = Within {
                at,
                node_type: kind,
                children: node.words().filter(|w| w.has_child()).count(),
                link: link.map(|(link, _)| link),
                skipped: true,
            };
            let slot = slot_of(at, &node, index, word);
            let found = Link { slot, fresh: false };
            (at, kind) = (found.child(), node_type(word));
            link = Some((found, within));
        }
    }

    /// Returns a key that has the prefix of this node at the bytes that its header holds, and whether the node is still
    /// at the edge. `from` and `edge` are those of its [`Item::Node`](crate::walk::Item::Node). Returns `None` if the
    /// node is at the edge and its header does not hold the whole prefix from `from` on. The caller then needs
    /// [`ArtClient::shown_prefix`].
    pub(crate) fn prefix(
        &self,
        bound: &KeyText,
        node: &RadixNode<'_>,
        at: RemotePtr,
        (from, edge): (u8, bool),
    ) -> Result<Option<(KeyText, bool)>, IndexError> {
        let header = node.header();
        //= docs/protocol/smart.md M13
        let partial = self.art.options.compression.partial(&header, from);
        let Some((begin, partial)) = partial.filter(|_| usize::from(header.branch()) < bound.len()) else {
            return Err(misplaced(at));
        };
        if edge && begin != from {
            return Ok(None);
        }
        let mut prefix = *bound;
        for (index, &byte) in (begin..).zip(partial) {
            prefix = prefix.with(index, byte);
        }
        Ok(Some((prefix, edge)))
    }

    /// Returns the key of a leaf below the node, which has the node's prefix, and whether the node is still at the
    /// edge.
    pub(crate) async fn shown_prefix(
        &self,
        bound: &KeyText,
        node: (RemotePtr, u8),
    ) -> Result<(KeyText, bool), IndexError> {
        Ok(match self.leaf_below(bound, node, None).await? {
            Below::Leaf(_, other) => (other, true),
            // Without a leaf, the prefix is unknown, so no child is excluded. This is correct, because the caller
            // compares the key of each leaf with the bound.
            Below::Empty(..) | Below::Unread => (*bound, false),
        })
    }
}
