//! Renewal of nodes. A node that is full, or has at most one child, is frozen word by word, and then replaced according
//! to its content.
//!
//! A renewal has no owner. After each step any client can continue. All clients arrive at the same result, because the
//! frozen words determine the replacement and the parent's slot is changed only once.

use dm_index::{IndexError, KeyBytes};
use dm_layout::{RadixHeader, SlotWord, build_radix_node};
use dm_verbs::{Control, Event, LocalStep, Many, RemotePtr, Ticket, Verbs, Why};

use crate::SingleStore;
use crate::art::{ArtClient, KeyText};
use crate::block::{Block, node_class, retire};
use crate::errors::{corrupt, misplaced, unaddressable};
use crate::locate::{Link, Within, node_type, slot_of};
use crate::publish::{Fresh, Published};

/// Maximum number of CASes in one chain.
const FREEZE_BATCH: usize = 32;

/// A node that no CAS can change any more.
struct Frozen {
    /// The header as it was read. Unless clients skip key bytes, it contains all bytes of the prefix after the parent's
    /// branch.
    header: RadixHeader,
    incarnation: u32,
    /// The words with children, unfrozen.
    children: Vec<SlotWord>,
}

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Renews the node `within` on `key`'s path. If the slot that leads to it is not known, reads the path from the
    /// root on to find the slot. If this ends at a frozen node further up, completes the renewal of that node instead.
    /// Afterwards the caller must search again, even if another client has renewed the node.
    pub(crate) async fn renew(&self, key: &KeyText, within: &Within) -> Result<(), IndexError> {
        if within.at == self.art.root {
            // A root has the largest type. This type has a slot for each value of a key byte, except in a tree of
            // [`NodeTypes::TINY`]. So only the root of such a tree can be full.
            return Err(IndexError::BadInput {
                why: "the root has no room for another key byte",
            });
        }
        let link = match within.link {
            Some(link) if !link.slot.word.is_frozen() => link,
            _ => match self.link_of(key, within.at).await? {
                Some(link) => link,
                None => {
                    // With a hash index, the node may come from a cached image although no cached slot leads to it.
                    // Without this, the next search would find it again.
                    if within.link.is_none() && !self.is_top(within) {
                        self.v.local(LocalStep::Section).await;
                        self.art.cache.forget(key, within.at);
                    }
                    return Ok(());
                }
            },
        };
        self.finish(key, &link).await
    }

    /// Reads from the root on and returns the slot that points to `at`, or to a frozen node above it. Returns `None`
    /// if neither is on `key`'s path.
    async fn link_of(&self, key: &KeyText, at: RemotePtr) -> Result<Option<Link>, IndexError> {
        let mut link: Option<Link> = None;
        let (mut here, mut kind) = (self.art.root, self.art.types().largest());
        loop {
            if self.art.types().slots(kind) == 0 {
                return Err(misplaced(here));
            }
            let bytes = self.read_node(here, kind).await?;
            let node = self.decode(&bytes, here, kind)?;
            if here == at || node.is_frozen() {
                return Ok(link);
            }
            let branch = node.header().branch();
            let Some(&byte) = key.get(usize::from(branch)) else {
                return Err(misplaced(here));
            };
            let dm_layout::Find::Child(index, word) = node.find(byte).map_err(corrupt(here))? else {
                return Ok(None);
            };
            if word.is_leaf() {
                return Ok(None);
            }
            let slot = slot_of(here, &node, index, word);
            link = Some(Link { slot, fresh: true });
            (here, kind) = (RemotePtr::from_raw(word.pointer()), node_type(word));
        }
    }

    /// Freezes the node to which `link` points, and changes the slot of `link` to its replacement, unless the slot has
    /// changed meanwhile.
    async fn finish(&self, key: &KeyText, link: &Link) -> Result<(), IndexError> {
        let (at, kind) = (link.child(), node_type(link.slot.word));
        let node = self.freeze(at, kind).await?;
        let _nested = match self.art.options.flaws().nested_locks {
            true => Some(self.lock_node(at).await?),
            false => None,
        };
        let mut copied = 0;
        let published = match node.children.as_slice() {
            //= docs/protocol/smart.md M19
            [] => {
                let removed = SlotWord::removed(link.slot.word.partial(), link.slot.incarnation);
                self.publish(key, link, &[], None, removed).await?
            }
            [only] => match self.lifted(link, &node.header, *only).await? {
                Some(word) => self.publish(key, link, &[], None, word).await?,
                None => self.copy(key, link, &node, &mut copied).await?,
            },
            _ => self.copy(key, link, &node, &mut copied).await?,
        };
        if published == Published::Done {
            self.v.meter().renewed(self.art.types().slots(kind), copied);
            retire(
                &self.art.alloc,
                at,
                node.incarnation,
                node_class(self.art.types(), kind),
            );
        }
        match published {
            Published::Done if node.children.len() < 2 => self.v.meter().note(Event::Merge),
            Published::Done => {}
            Published::Lost(_) => {
                // The cached path to this node is out of date.
                self.v.local(LocalStep::Section).await;
                self.art.cache.forget(key, at);
                self.art.cache.forget(key, link.slot.node);
            }
        }
        Ok(())
    }

    /// Freezes all words of a node. The caller has read the link to the node before.
    async fn freeze(&self, at: RemotePtr, kind: u8) -> Result<Frozen, IndexError> {
        let flaws = self.art.options.flaws();
        let lock = self.lock_node(at).await?;
        let bytes = self.read_node(at, kind).await?;
        let node = self.decode(&bytes, at, kind)?;
        //= docs/protocol/smart.md M18
        // The header that was read can be used, because it held all bytes of the prefix from the link on before the
        // link was made, and a header never loses bytes.
        let (header, incarnation) = (node.header(), node.incarnation());
        let mut words: Vec<SlotWord> = node.words().collect();
        drop(bytes);
        let mut retry = self.v.retry(self.art.options.attempts);
        loop {
            //= docs/protocol/smart.md M17
            let open: Vec<usize> = (0..words.len())
                .filter(|&i| !words[i].is_frozen())
                .filter(|_| !flaws.switch_unfrozen || words.iter().any(|w| w.is_empty()))
                .filter(|&i| !flaws.merge_leaves_empties || !words[i].is_empty())
                .collect();
            if open.is_empty() {
                break;
            }
            let chains: Vec<_> = open
                .chunks(FREEZE_BATCH)
                .map(|part| self.post_freeze(at, part, &words))
                .collect();
            let mut all = true;
            for (part, chain) in open.chunks(FREEZE_BATCH).zip(chains) {
                let found = chain.await?;
                for (n, &i) in part.iter().enumerate() {
                    let old = SlotWord::from_raw(found.old(n as u16));
                    let done = old == words[i] || old.is_frozen();
                    words[i] = if done { old.frozen() } else { old };
                    all &= done;
                }
            }
            if all {
                break;
            }
            retry.again_wiser(at, Why::Raced).await?;
        }
        //= docs/protocol/smart.md M25
        lock.release().await?;
        for (i, word) in words.iter().enumerate() {
            let checked = word.decode().map_err(corrupt(at));
            checked.map_err(|_| misplaced(slot_at(at, i)))?;
        }
        let children = words.iter().filter(|w| w.has_child());
        Ok(Frozen {
            header,
            incarnation,
            children: children.map(|w| w.thawed()).collect(),
        })
    }

    /// Posts CASes that freeze these words.
    fn post_freeze(&self, at: RemotePtr, part: &[usize], words: &[SlotWord]) -> Ticket<'_, V, Many> {
        let mut chain = self.v.chain(at.node()).many();
        for &i in part {
            chain = chain.free_cas(slot_at(at, i), words[i].raw(), words[i].frozen().raw());
        }
        chain.post()
    }

    /// Returns the word with which the slot of `link` points directly to the only child of a renewed node. If the child
    /// is a node, extends its header first, unless clients skip bytes that no header holds. Returns `None` if the
    /// child's header has no room for the additional bytes.
    async fn lifted(
        &self,
        link: &Link,
        header: &RadixHeader,
        only: SlotWord,
    ) -> Result<Option<SlotWord>, IndexError> {
        let partial = link.slot.word.partial();
        let (at, kind) = (only.pointer(), node_type(only));
        if only.is_leaf() {
            let lines = match only.decode() {
                Ok(dm_layout::RadixSlot::Leaf { lines, .. }) => lines,
                _ => return Ok(None),
            };
            return SlotWord::leaf(partial, at, lines)
                .ok_or_else(unaddressable)
                .map(Some);
        }
        let word = SlotWord::inner(partial, at, kind).ok_or_else(unaddressable)?;
        if self.art.options.compression.skips() {
            return Ok(Some(word));
        }
        let child = RemotePtr::from_raw(at);
        let from = link.slot.branch + 1;
        // The child's header may lack the node's own bytes, and the byte of the child's slot.
        let Some(own) = header.partial_from(from) else {
            return Err(misplaced(link.child()));
        };
        let mut before = own.to_vec();
        before.push(only.partial());
        let mut retry = self.v.retry(self.art.options.attempts);
        let lock = self.lock_node(child).await?;
        let mut seen = self.v.word(child).await?;
        let lifted = loop {
            let below = RadixHeader::unpack(seen).map_err(corrupt(child))?;
            if below.depth() <= from {
                break Some(word);
            }
            let missing = usize::from(below.depth() - from);
            let longer = before.get(..missing).and_then(|more| below.extended(more));
            let most = self.art.options.compression.partial_max();
            let Some(longer) = longer.filter(|header| header.partial().len() <= most) else {
                break None;
            };
            let old = self.v.cas(child, seen, longer.pack()).await?;
            if old == seen {
                break Some(word);
            }
            seen = old;
            retry.again_wiser(child, Why::Raced).await?;
        };
        lock.release().await?;
        Ok(lifted)
    }

    /// Replaces the node by a copy with the same children and room for more. Stores the size of the copy in bytes in
    /// `copied`.
    async fn copy(
        &self,
        key: &KeyText,
        link: &Link,
        node: &Frozen,
        copied: &mut usize,
    ) -> Result<Published, IndexError> {
        let (types, children) = (self.art.types(), &node.children[..]);
        // The copy has room for a quarter more children, so that the next insert does not renew the node
        // again.
        let kind = types.fitting(children.len() + children.len() / 4 + 1);
        let class = node_class(types, kind);
        let mut block = Block::new(self.v, &self.art.alloc, class, Some(link.child())).await?;
        let mut image = Vec::new();
        build_radix_node(
            types,
            node.header.typed(kind),
            block.incarnation(),
            children,
            &mut image,
        );
        *copied = image.len();
        let at = block.at();
        let word = SlotWord::inner(link.slot.word.partial(), at.raw(), kind).ok_or_else(unaddressable)?;
        self.busy(&mut block);
        let fresh = [Fresh {
            at,
            bytes: &image,
            node_type: Some(kind),
        }];
        let published = self.publish(key, link, &fresh, None, word).await?;
        if published != Published::Done {
            block.idle();
        }
        Ok(published)
    }
}

fn slot_at(node: RemotePtr, index: usize) -> RemotePtr {
    node.add((dm_layout::RADIX_HEAD_BYTES + 8 * index) as u64)
}
