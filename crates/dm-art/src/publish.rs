//! Publishing: new nodes and leaves are written first, then a CAS on a slot makes them part of the tree.

use dm_cache::PrefixImage;
use dm_index::{IndexError, KeyBytes};
use dm_layout::{RadixNode, SlotWord};
use dm_verbs::{Control, LocalStep, RemotePtr, Verbs};

use crate::SingleStore;
use crate::art::{ArtClient, KeyText};
use crate::locate::Link;

/// A WRITE of bytes that nothing points to yet.
pub(crate) struct Fresh<'b> {
    pub(crate) at: RemotePtr,
    pub(crate) bytes: &'b [u8],
    /// The type of the node; `None` for a leaf.
    pub(crate) node_type: Option<u8>,
}

/// A leaf whose link moves to a deeper node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deeper {
    /// The address of the leaf's link depth.
    pub(crate) at: RemotePtr,
    /// The amount by which the depth grows.
    pub(crate) by: u64,
}

/// The result of a CAS on a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Published {
    /// The CAS succeeded.
    Done,
    /// Another client was first: the slot holds this word.
    Lost(SlotWord),
}

impl Published {
    /// Compares the word that the CAS expected with the word that it found.
    #[inline]
    pub(crate) fn of(before: SlotWord, old: u64) -> Self {
        match SlotWord::from_raw(old) {
            old if old == before => Self::Done,
            old => Self::Lost(old),
        }
    }
}

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Writes `fresh`, raises the link depth of `deeper`, and changes the slot of `link` to `word` by a CAS. The CAS
    /// expects the word that the client has read. This takes one round trip if everything is on one memory node,
    /// otherwise two. If nodes have locks, taking and releasing the lock takes two more round trips without contention.
    pub(crate) async fn publish(
        &self,
        key: &KeyText,
        link: &Link,
        fresh: &[Fresh<'_>],
        deeper: Option<Deeper>,
        word: SlotWord,
    ) -> Result<Published, IndexError> {
        let lock = self.lock_node(link.slot.node).await?;
        let published = self.publish_unlocked(key, link, fresh, deeper, word).await?;
        let released = lock.release().await;
        released.map_err(|e| match published {
            Published::Done => e.after_effect(link.slot.node),
            Published::Lost(_) => e,
        })?;
        Ok(published)
    }

    /// Publishes like [`ArtClient::publish`], but takes no lock of the node.
    pub(crate) async fn publish_unlocked(
        &self,
        key: &KeyText,
        link: &Link,
        fresh: &[Fresh<'_>],
        deeper: Option<Deeper>,
        word: SlotWord,
    ) -> Result<Published, IndexError> {
        let v = self.v;
        let slot = link.at();
        let before = link.slot.word;
        let late = deeper.filter(|_| self.art.options.flaws().depth_unawaited);
        let deeper = deeper.filter(|_| late.is_none());
        let one_node = fresh.iter().all(|f| f.at.node() == slot.node())
            && deeper.is_none_or(|d| d.at.node() == slot.node());
        //= docs/protocol/smart.md M14
        //= docs/protocol/smart.md M9
        let old = if one_node {
            let mut chain = v.chain(slot.node()).many();
            for f in fresh {
                chain = chain.write(f.at, f.bytes);
            }
            if let Some(d) = deeper {
                chain = chain.faa(d.at, d.by);
            }
            let chain = chain.cas(slot, before.raw(), word.raw());
            chain.post().await?.old(u16::from(deeper.is_some()))
        } else {
            let written: Vec<_> = fresh.iter().map(|f| v.write(f.at, f.bytes)).collect();
            let deepened = deeper.map(|d| v.faa(d.at, d.by));
            for ticket in written {
                ticket.await?;
            }
            if let Some(ticket) = deepened {
                ticket.await?;
            }
            v.cas(slot, before.raw(), word.raw()).await?
        };
        if let Some(d) = late {
            v.faa(d.at, d.by).detach();
        }
        let published = Published::of(before, old);
        match published {
            Published::Done => self.note_new(key, link, fresh, word).await,
            Published::Lost(old) => {
                self.note_slot(key, link, old).await;
            }
        }
        Ok(published)
    }

    /// Updates the cache after a publication: first the slot, and then the new nodes below it from top to
    /// bottom.
    async fn note_new(&self, key: &KeyText, link: &Link, fresh: &[Fresh<'_>], word: SlotWord) {
        self.v.local(LocalStep::Section).await;
        let cache = self.cache();
        let mut above = Some((link.slot.node, link.slot.index, word));
        for new in fresh {
            let Some(Ok(node)) = new
                .node_type
                .map(|kind| RadixNode::decode(new.bytes, self.art.types(), kind))
            else {
                continue;
            };
            let image = PrefixImage {
                at: new.at,
                header: node.header(),
                incarnation: node.incarnation(),
                words: node.words(),
            };
            match above.take() {
                Some((at, index, word)) => cache.replace(key, at, index, word, image),
                None => {
                    cache.admit(key, image);
                }
            }
        }
        if let Some((at, index, word)) = above {
            cache.learn(key, at, link.slot.seen, index, word);
        }
    }

    /// Updates the cache with the word of a slot. Returns the number of children that the node has now, if the node is
    /// cached.
    pub(crate) async fn note_slot(&self, key: &KeyText, link: &Link, word: SlotWord) -> Option<usize> {
        self.v.local(LocalStep::Section).await;
        self.learn(key, link, word)
    }

    /// Updates the cache as [`ArtClient::note_slot`] does. The caller has already awaited the local step that must
    /// precede access to the cache.
    #[inline]
    pub(crate) fn learn(&self, key: &KeyText, link: &Link, word: SlotWord) -> Option<usize> {
        if word.is_frozen() {
            self.art.cache.forget(key, link.slot.node);
            return None;
        }
        let slot = &link.slot;
        self.cache().learn(key, slot.node, slot.seen, slot.index, word)
    }
}
