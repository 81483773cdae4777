//! Insert, update, upsert, and exchanges that write a value share one implementation.

use dm_index::{Applied, IndexError, KeyBytes, Write};
use dm_layout::{SlotWord, build_radix_node};
use dm_verbs::{Control, Event, LocalStep, NodeId, RemotePtr, Retry, Verbs, Why};

use crate::art::{ArtClient, KeyText, Scratch};
use crate::block::{Block, leaf_class, node_class};
use crate::errors::{misplaced, unaddressable};
use crate::locate::{From, Link, Place, Within, leaf_proves_absence};
use crate::publish::{Deeper, Fresh, Published};
use crate::{Single, SingleStore};

/// The input of a write.
pub(crate) struct Wanted<'k, K> {
    pub(crate) key: &'k K,
    pub(crate) text: KeyText,
    pub(crate) value: &'k [u8],
    pub(crate) write: Write<'k>,
}

/// The content of the place where a new leaf belongs.
pub(crate) enum Beside<K> {
    /// Nothing: the slot is free, or its leaf was removed.
    Nothing,
    /// A leaf of another key.
    Leaf { key: K, depth: u64 },
    /// A node whose prefix differs from the key at byte `at`, where the node has `byte`.
    Node { at: u8, byte: u8 },
}

/// The result of an attempt.
pub(crate) enum Attempt {
    Done(Applied),
    /// The place was read again.
    At(Box<Place>),
    /// The links and leaves that were read prove nothing. The operation begins again from a more reliable starting
    /// point.
    Surer,
    /// The slot has changed, or its node is being renewed. The operation begins again.
    Raced(RemotePtr),
}

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    pub(crate) async fn write_key(
        &self,
        key: &K,
        value: &[u8],
        write: Write<'_>,
        scratch: &mut Scratch,
    ) -> Result<Applied, IndexError> {
        let wanted = Wanted {
            key,
            text: KeyText::of(key),
            value,
            write,
        };
        let mut from = From::Cache;
        let mut retry = self.v.retry(self.art.options.attempts);
        let mut leaf = None;
        let mut next: Option<Box<Place>> = None;
        self.art.options.cpu.charge(self.v).await;
        loop {
            let place = match next.take() {
                Some(place) => *place,
                None if from == From::Root => self.locate(&wanted.text, from).await?,
                // The usual case needs no future of its own.
                None => {
                    self.v.local(LocalStep::Section).await;
                    match self.cached(&wanted.text, from) {
                        Ok(place) => place,
                        Err(step) => self.descend(&wanted.text, step).await?,
                    }
                }
            };
            match self.attempt(&wanted, &place, &mut leaf, scratch).await? {
                Attempt::Done(applied) => return Ok(applied),
                // The next attempt does not return a place again, because the link of this place was read within the
                // operation.
                Attempt::At(place) => next = Some(place),
                Attempt::Surer if from == From::Root => return Err(misplaced(self.art.root)),
                Attempt::Surer => from = from.surer(),
                Attempt::Raced(at) => {
                    self.raced(&mut retry, at).await?;
                    // Before this, the slot's new content was stored in the cache, or the node was removed from the
                    // cache.
                    from = From::Cache;
                }
            }
        }
    }

    async fn raced(&self, retry: &mut Retry<'_, V>, at: RemotePtr) -> Result<(), IndexError> {
        Ok(retry.again_wiser(at, Why::Raced).await?)
    }

    async fn attempt<'a>(
        &'a self,
        wanted: &Wanted<'_, K>,
        place: &Place,
        leaf: &mut Option<Block<'a>>,
        scratch: &mut Scratch,
    ) -> Result<Attempt, IndexError> {
        let (updates, before) = match wanted.write {
            Write::Exchange { before, .. } => (true, before),
            write => (matches!(write, Write::Update(_)), None),
        };
        let (link, within, beside) = match place {
            Place::Leaf(link, within) => {
                let leaves = &self.art.leaves;
                let found = match wanted.write {
                    Write::Insert(_) => {
                        leaves
                            .get(self.v, link.child(), wanted.key, &mut scratch.value)
                            .await?
                    }
                    _ if !leaves.in_place() => {
                        Box::pin(self.replace_leaf(wanted, link, before, leaf, scratch)).await?
                    }
                    _ => {
                        leaves
                            .update(self.v, link.child(), wanted.key, wanted.value, before)
                            .await?
                    }
                };
                let beside = match found {
                    Single::Hit if matches!(wanted.write, Write::Insert(_)) => {
                        return Ok(Attempt::Done(Applied::Present));
                    }
                    Single::Hit => return Ok(Attempt::Done(Applied::Replaced)),
                    Single::Differs => return Ok(Attempt::Done(Applied::Differs)),
                    Single::Other { key, depth } => Beside::Leaf { key, depth },
                    Single::Removed => Beside::Nothing,
                    Single::Replaced { key, by } => {
                        return Box::pin(self.past_replaced(&wanted.text, link, *within, (key, by))).await;
                    }
                };
                if updates {
                    return Ok(absent(leaf_proves_absence(
                        &found,
                        &wanted.text,
                        link.slot.branch,
                        link.fresh,
                    )));
                }
                (link, within, beside)
            }
            _ if updates => return Ok(absent(place.proves_absence())),
            Place::Vacant(link, within) => (link, within, Beside::Nothing),
            Place::Apart {
                link,
                within,
                at,
                byte,
            } => (link, within, Beside::Node { at: *at, byte: *byte }),
            Place::Full(within, _) => {
                self.renew(&wanted.text, within).await?;
                return Ok(Attempt::Raced(within.at));
            }
        };
        let spot;
        let (link, within, beside) = match within.skipped {
            false => (link, within, beside),
            true => match Box::pin(self.spot(&wanted.text, (*link, *within, beside))).await? {
                Some((link, within, beside)) => {
                    spot = (link, within);
                    (&spot.0, &spot.1, beside)
                }
                None => return Ok(Attempt::Raced(link.slot.node)),
            },
        };
        if link.slot.word.is_frozen() {
            self.renew_begun(&wanted.text, within).await?;
            return Ok(Attempt::Raced(link.slot.node));
        }
        let published = match beside {
            Beside::Nothing => self.put_leaf(wanted, link, within, leaf, scratch).await?,
            Beside::Leaf { key, depth } => {
                let other = KeyText::of(&key);
                let from = usize::from(link.slot.branch) + 1;
                let same = |(a, b): &(&u8, &u8)| a == b;
                let rest = wanted.text.get(from..).unwrap_or(&[]);
                let shared = rest
                    .iter()
                    .zip(other.get(from..).unwrap_or(&[]))
                    .take_while(same)
                    .count();
                let at = from + shared;
                // The other key must have the same bytes as this key before `from`. Otherwise its leaf is linked at a
                // wrong place. The two keys must also differ.
                if at >= wanted.text.len() || other[..from] != wanted.text[..from] {
                    return Err(misplaced(link.child()));
                }
                //= docs/protocol/smart.md M9
                let deeper = (depth < at as u64).then(|| Deeper {
                    at: self.art.leaves.depth_at(link.child()),
                    by: self.art.leaf_depth(at) - depth,
                });
                let word = SlotWord::leaf(other[at], link.child().raw(), link_kind(link));
                self.put_node(wanted, link, within, (at, word, deeper), leaf, scratch)
                    .await?
            }
            Beside::Node { at, byte } => {
                let word = SlotWord::inner(byte, link.child().raw(), link_kind(link));
                self.put_node(wanted, link, within, (usize::from(at), word, None), leaf, scratch)
                    .await?
            }
        };
        let Published::Lost(word) = published else {
            return Ok(Attempt::Done(Applied::Inserted));
        };
        if word.is_frozen() {
            self.renew_begun(&wanted.text, within).await?;
        }
        Ok(Attempt::Raced(link.slot.node))
    }

    /// Completes a renewal that another client has begun.
    async fn renew_begun(&self, key: &KeyText, within: &Within) -> Result<(), IndexError> {
        if self.art.options.flaws().renewal_waits {
            return Ok(());
        }
        //= docs/protocol/smart.md M16
        self.renew(key, within).await
    }

    /// Records that a request to `block` is about to be posted.
    #[inline]
    pub(crate) fn busy(&self, block: &mut Block<'_>) {
        //= docs/protocol/smart.md M15
        if !self.art.options.flaws().gives_back_early {
            block.busy();
        }
    }

    /// Returns the address of the node `within`, near which a new leaf is allocated, so that one chain writes and links
    /// the leaf. Returns `None` for the root, whose children are spread over all memory nodes, and for a node that is
    /// not known.
    fn near(&self, within: &Within) -> Option<RemotePtr> {
        (!self.is_top(within)).then_some(within.at)
    }

    /// Returns an address on a memory node for the child in the slot with `byte`. New children of the root or of a node
    /// that is not known, and new inner nodes below nodes of 256 slots, are spread in this way, because otherwise the
    /// whole tree would be on one memory node. The memory node depends only on the byte and on the memory node of
    /// `within`, so that a key that is removed and inserted again is on the same memory node and reuses memory there.
    fn spread(&self, within: &Within, byte: u8) -> Option<RemotePtr> {
        let nodes = u32::from(self.art.alloc.memory_nodes());
        // Multiples of the golden ratio spread any run of bytes evenly.
        let part = u32::from(byte).wrapping_mul(0x9E37_79B1);
        let step = ((u64::from(part) * u64::from(nodes)) >> 32) as u32;
        let node = (u32::from(within.at.node().0) + step) % nodes.max(1);
        RemotePtr::new(NodeId(node as u16), 0)
    }

    /// Returns an address on the memory node for a new inner node in the slot with `byte`.
    fn near_node(&self, within: &Within, byte: u8) -> Option<RemotePtr> {
        match self.is_top(within) || self.art.types().is_direct(within.node_type) {
            true => self.spread(within, byte),
            false => Some(within.at),
        }
    }

    /// Returns the address of the block for the new leaf, which an earlier attempt may have allocated.
    pub(crate) async fn leaf_block<'a>(
        &'a self,
        leaf: &mut Option<Block<'a>>,
        near: Option<RemotePtr>,
    ) -> Result<RemotePtr, IndexError> {
        if let Some(block) = leaf {
            return Ok(block.at());
        }
        let class = leaf_class(self.art.leaves.block_bytes());
        let block = Block::new(self.v, &self.art.alloc, class, near).await?;
        Ok(leaf.insert(block).at())
    }

    /// Puts a new leaf into a slot that has no child, or whose leaf was removed.
    async fn put_leaf<'a>(
        &'a self,
        wanted: &Wanted<'_, K>,
        link: &Link,
        within: &Within,
        leaf: &mut Option<Block<'a>>,
        scratch: &mut Scratch,
    ) -> Result<Published, IndexError> {
        let branch = link.slot.branch;
        let byte = wanted.text[usize::from(branch)];
        let near = self.near(within).or_else(|| self.spread(within, byte));
        let at = self.leaf_block(leaf, near).await?;
        let leaves = &self.art.leaves;
        let depth = self.art.leaf_depth(usize::from(branch));
        leaves.image(wanted.key, wanted.value, depth, &mut scratch.leaf);
        let lines = (scratch.leaf.len() / dm_layout::LINE_BYTES) as u8;
        let word = SlotWord::leaf(byte, at.raw(), lines).ok_or_else(unaddressable)?;
        let fresh = [Fresh {
            at,
            bytes: &scratch.leaf,
            node_type: None,
        }];
        // There is nothing to write if an earlier attempt has written the leaf.
        let fresh = &fresh[usize::from(holds(leaf, usize::from(branch)))..];
        leaf.iter_mut().for_each(|leaf| self.busy(leaf));
        let published = self.publish(&wanted.text, link, fresh, None, word).await?;
        if published != Published::Done {
            leaf.iter_mut().for_each(|leaf| leaf.written(usize::from(branch)));
        }
        Ok(published)
    }

    /// Puts a new node with branch `at` into the slot of `link`. The new node has two children: the former child of the
    /// slot, which `word` links, and a new leaf. If the shared key bytes do not fit into one header, and clients do not
    /// skip key bytes, this adds further nodes with one child above the new node.
    async fn put_node<'a>(
        &'a self,
        wanted: &Wanted<'_, K>,
        link: &Link,
        within: &Within,
        (at, word, deeper): (usize, Option<SlotWord>, Option<Deeper>),
        leaf: &mut Option<Block<'a>>,
        scratch: &mut Scratch,
    ) -> Result<Published, IndexError> {
        let old = word.ok_or_else(unaddressable)?;
        let types = self.art.types();
        let from = usize::from(link.slot.branch) + 1;
        let compression = self.art.options.compression;
        let above = compression.nodes_above(from, at);
        // All of these nodes have the smallest type that has room for two children, even a node with only one child.
        let kind = types.fitting(2);
        let mut blocks = Vec::with_capacity(above + 1);
        let mut near = self.near_node(within, wanted.text[from - 1]);
        for _ in 0..=above {
            let mut block = Block::new(self.v, &self.art.alloc, node_class(types, kind), near).await?;
            self.busy(&mut block);
            near = Some(block.at());
            blocks.push(block);
        }
        let leaf_at = self.leaf_block(leaf, near).await?;
        self.art.leaves.image(
            wanted.key,
            wanted.value,
            self.art.leaf_depth(at),
            &mut scratch.leaf,
        );
        let lines = (scratch.leaf.len() / dm_layout::LINE_BYTES) as u8;
        let new = SlotWord::leaf(wanted.text[at], leaf_at.raw(), lines).ok_or_else(unaddressable)?;
        // The nodes are built from the lowest one upwards, because each node contains the word of the node below it.
        let mut images = vec![Vec::new(); blocks.len()];
        let mut children = vec![old, new];
        let mut below = link.slot.word;
        for (i, block) in blocks.iter().enumerate().rev() {
            let begin = from + i * (compression.partial_max() + 1);
            let branch = match i == above {
                true => at,
                false => begin + compression.partial_max(),
            };
            let header = compression.header(kind, begin, branch, &wanted.text);
            build_radix_node(types, header, block.incarnation(), &children, &mut images[i]);
            below =
                SlotWord::inner(wanted.text[begin - 1], block.at().raw(), kind).ok_or_else(unaddressable)?;
            children = vec![below];
        }
        let mut fresh: Vec<Fresh<'_>> = Vec::with_capacity(above + 2);
        for (i, block) in blocks.iter().enumerate() {
            fresh.push(Fresh {
                at: block.at(),
                bytes: &images[i],
                node_type: Some(kind),
            });
        }
        if !holds(leaf, at) {
            fresh.push(Fresh {
                at: leaf_at,
                bytes: &scratch.leaf,
                node_type: None,
            });
        }
        leaf.iter_mut().for_each(|leaf| self.busy(leaf));
        let published = self.publish(&wanted.text, link, &fresh, deeper, below).await?;
        match published {
            Published::Done => self.v.meter().note(Event::Split),
            Published::Lost(_) => {
                blocks.iter_mut().for_each(Block::idle);
                leaf.iter_mut().for_each(|leaf| leaf.written(at));
            }
        }
        Ok(published)
    }
}

/// Returns the kind bits of a slot's word: the number of lines of a leaf, or the type of a node, or 0 if there is no
/// child.
pub(crate) fn link_kind(link: &Link) -> u8 {
    match link.slot.word.decode() {
        Ok(dm_layout::RadixSlot::Inner { node_type, .. }) => node_type,
        Ok(dm_layout::RadixSlot::Leaf { lines, .. }) => lines,
        _ => 0,
    }
}

fn absent(proved: bool) -> Attempt {
    if proved {
        Attempt::Done(Applied::Absent)
    } else {
        Attempt::Surer
    }
}

/// Returns whether an earlier attempt has written the leaf for a slot at this branch.
fn holds(leaf: &Option<Block<'_>>, depth: usize) -> bool {
    leaf.as_ref().is_some_and(|block| block.holds == Some(depth))
}
