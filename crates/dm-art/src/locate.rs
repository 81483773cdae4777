//! Finding the place of a key: first in the cache, then by reading nodes.

use dm_cache::{CachedSlot, PrefixImage, Seen};
use dm_index::{IndexError, KeyBytes};
use dm_layout::{Find, RADIX_HEAD_BYTES, RadixNode, SlotWord};
use dm_verbs::{Control, Event, LocalStep, RemotePtr, Verbs};

use crate::art::{ArtClient, KeyText, shared};
use crate::errors::{corrupt, misplaced};
use crate::{Single, SingleStore};

/// The starting point of a search. Each variant finds the place of a key more reliably than the previous one, and may
/// take more READs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
    /// Start at the cached slot of the key.
    Cache,
    /// Start at the deepest cached node, which is read again.
    Again,
    /// Start at the root. The root and all nodes below it on the path are read again.
    Root,
}

impl From {
    /// Returns the starting point of the next search if a search from this one was not conclusive.
    pub(crate) const fn surer(self) -> Self {
        match self {
            Self::Cache => Self::Again,
            Self::Again | Self::Root => Self::Root,
        }
    }
}

/// A slot on the path of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) slot: CachedSlot,
    /// Whether the slot counts in a proof of absence: it was read within this operation, from a node that was part of
    /// the tree then, and the client did not follow a link that it had read earlier after it had skipped key bytes
    /// (M30).
    pub(crate) fresh: bool,
}

impl Link {
    /// Returns the slot's address.
    pub(crate) fn at(&self) -> RemotePtr {
        self.slot
            .node
            .add((RADIX_HEAD_BYTES + 8 * self.slot.index) as u64)
    }
    /// Returns the address of the slot's child.
    pub(crate) fn child(&self) -> RemotePtr {
        RemotePtr::from_raw(self.slot.word.pointer())
    }
}

/// A node on the path of a key, and the slot that points to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    pub(crate) at: RemotePtr,
    pub(crate) node_type: u8,
    /// The number of slots with children, or `usize::MAX` if it is not known.
    pub(crate) children: usize,
    /// The slot that points to the node; `None` for the root, and if the slot is not known.
    pub(crate) link: Option<Link>,
    /// Whether the client skipped key bytes on its way here, so the key may not have the node's prefix.
    pub(crate) skipped: bool,
}

/// The content of the tree at the place of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// A leaf. It is the key's own leaf, or another one whose key has the same bytes at the branches of the nodes on
    /// the path.
    Leaf(Link, Within),
    /// A slot without a child.
    Vacant(Link, Within),
    /// There is no slot for the key, and the node is full. The flag has the meaning of [`Link::fresh`] for the slots of
    /// the node.
    Full(Within, bool),
    /// A node whose prefix differs from the key at byte `at`, where the node has `byte`.
    Apart {
        link: Link,
        within: Within,
        at: u8,
        byte: u8,
    },
}

impl Place {
    /// Returns the node that contains the place.
    pub(crate) fn within(&self) -> &Within {
        match self {
            Self::Leaf(_, within) | Self::Vacant(_, within) | Self::Full(within, _) => within,
            Self::Apart { within, .. } => within,
        }
    }

    /// Returns whether the links alone prove that the key is absent.
    pub(crate) fn proves_absence(&self) -> bool {
        //= docs/protocol/smart.md M11
        match self {
            Self::Leaf(..) => false,
            Self::Vacant(link, _) | Self::Apart { link, .. } => link.fresh,
            Self::Full(_, fresh) => *fresh,
        }
    }
}

/// Returns whether the content of a leaf, found through a link at this branch, proves that `key` is absent.
pub(crate) fn leaf_proves_absence<K: KeyBytes>(
    found: &Single<K>,
    key: &KeyText,
    branch: u8,
    fresh: bool,
) -> bool {
    //= docs/protocol/smart.md M11
    match found {
        Single::Hit | Single::Differs => false,
        Single::Other { key: other, depth } => {
            //= docs/protocol/smart.md M30
            fresh || *depth <= u64::from(branch) && shared(key, &KeyText::of(other)) as u64 > *depth
        }
        Single::Removed => fresh,
        //= docs/protocol/smart.md M28
        Single::Replaced { .. } => false,
    }
}

/// Returns slot `index` of the node that was read at `at`, with the content `word`.
#[inline]
pub(crate) fn slot_of(at: RemotePtr, node: &RadixNode<'_>, index: usize, word: SlotWord) -> CachedSlot {
    CachedSlot {
        node: at,
        incarnation: node.incarnation(),
        branch: node.header().branch(),
        index,
        word,
        seen: Seen::NOT,
    }
}

/// A node that must be read.
#[derive(Debug)]
pub(crate) struct Step {
    at: RemotePtr,
    node_type: u8,
    /// The first key byte that has not been compared yet.
    from: u8,
    link: Option<Link>,
    fresh: bool,
    /// Whether key bytes in front of `from` were skipped.
    skipped: bool,
}

impl Step {
    fn below(link: Link, skipped: bool) -> Self {
        Self {
            skipped,
            at: link.child(),
            node_type: node_type(link.slot.word),
            from: link.slot.branch + 1,
            fresh: link.fresh,
            link: Some(link),
        }
    }
}

/// Returns the type of the node that a slot points to, or 0 for any other word; 0 is not a node type.
pub(crate) fn node_type(word: SlotWord) -> u8 {
    match word.decode() {
        Ok(dm_layout::RadixSlot::Inner { node_type, .. }) => node_type,
        _ => 0,
    }
}

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Returns whether a node is the root, or not known.
    pub(crate) fn is_top(&self, within: &Within) -> bool {
        within.at == self.art.root || within.node_type == 0
    }

    fn root_step(&self) -> Step {
        Step {
            at: self.art.root,
            node_type: self.art.types().largest(),
            from: 0,
            link: None,
            fresh: true,
            skipped: false,
        }
    }

    /// Finds the place of `key`.
    pub(crate) async fn locate(&self, key: &KeyText, from: From) -> Result<Place, IndexError> {
        let step = match from {
            From::Root => self.root_step(),
            From::Cache | From::Again => {
                self.v.local(LocalStep::Section).await;
                return self.locate_entered(key, from).await;
            }
        };
        self.descend(key, step).await
    }

    /// Finds the place of `key` from the cache. The caller has already awaited the local step that must
    /// precede access to the cache.
    pub(crate) async fn locate_entered(&self, key: &KeyText, from: From) -> Result<Place, IndexError> {
        match self.cached(key, from) {
            Ok(place) => Ok(place),
            Err(step) => self.descend(key, step).await,
        }
    }

    /// Returns the place if it is cached, or the step at which reading must begin.
    #[inline]
    pub(crate) fn cached(&self, key: &KeyText, from: From) -> Result<Place, Step> {
        let Some(hit) = self.art.cache.lookup(key) else {
            self.v.meter().note(Event::CacheMiss);
            return Err(self.root_step());
        };
        let stale = |slot| Link { slot, fresh: false };
        let within = Within {
            at: hit.at,
            node_type: hit.node_type,
            children: hit.children,
            link: hit.link.map(stale),
            skipped: hit.skipped,
        };
        if from == From::Again {
            self.v.meter().note(Event::StaleRead);
            return Err(Step {
                at: hit.at,
                node_type: hit.node_type,
                // If the slot above is not known, the key has the node's whole prefix.
                from: hit.link.map_or(hit.branch, |link| link.branch + 1),
                link: within.link,
                fresh: hit.at == self.art.root,
                skipped: hit.skipped,
            });
        }
        let slot = |index, word| stale(hit.slot(index, word));
        let place = match (hit.find, hit.apart) {
            (Find::Child(index, word), Some(apart)) => Place::Apart {
                link: slot(index, word),
                within,
                at: apart.at,
                byte: apart.byte,
            },
            (Find::Child(index, word), None) if word.is_leaf() => Place::Leaf(slot(index, word), within),
            (Find::Child(index, word), None) => {
                self.v.meter().note(Event::CacheMiss);
                return Err(Step::below(slot(index, word), hit.skipped));
            }
            (Find::Vacant(index, word), _) => Place::Vacant(slot(index, word), within),
            (Find::Full, _) => Place::Full(within, false),
        };
        self.v.meter().note(Event::CacheHit);
        Ok(place)
    }

    /// Reads nodes from `step` on downwards.
    pub(crate) async fn descend(&self, key: &KeyText, mut step: Step) -> Result<Place, IndexError> {
        loop {
            // If the tree does not have this node type, the word that led here is not a valid slot of this tree.
            if self.art.types().slots(step.node_type) == 0 {
                return Err(misplaced(step.at));
            }
            let bytes = self.read_node(step.at, step.node_type).await?;
            let node = self.decode(&bytes, step.at, step.node_type)?;
            let header = node.header();
            let branch = header.branch();
            //= docs/protocol/smart.md M13
            let partial = self.art.options.compression.partial(&header, step.from);
            let (Some((begin, partial)), Some(&byte)) = (partial, key.get(usize::from(branch))) else {
                return Err(misplaced(step.at));
            };
            let skipped = step.skipped || begin != step.from;
            let within = |link| Within {
                at: step.at,
                node_type: step.node_type,
                children: node.words().filter(|w| w.has_child()).count(),
                link,
                skipped,
            };
            let rest = &key[usize::from(begin)..];
            if let (Some(i), Some(link)) = (partial.iter().zip(rest).position(|(a, b)| a != b), step.link) {
                return Ok(Place::Apart {
                    link,
                    within: Within {
                        skipped,
                        ..self.around(key, &link).await
                    },
                    at: begin + i as u8,
                    byte: partial[i],
                });
            }
            let frozen = node.is_frozen();
            self.v.local(LocalStep::Section).await;
            if frozen && !step.fresh {
                //= docs/protocol/smart.md M12
                self.art.cache.forget(key, step.at);
                self.v.meter().note(Event::StaleRead);
                step = self.root_step();
                continue;
            }
            if !frozen {
                self.cache().admit(
                    key,
                    PrefixImage {
                        at: step.at,
                        header,
                        incarnation: node.incarnation(),
                        words: node.words(),
                    },
                );
            }
            //= docs/protocol/smart.md M30
            let fresh = step.fresh || !skipped || self.art.options.flaws().trusts_skipped;
            let slot = |index, word| Link {
                slot: slot_of(step.at, &node, index, word),
                fresh,
            };
            match node.find(byte).map_err(corrupt(step.at))? {
                Find::Child(index, word) if word.is_leaf() => {
                    return Ok(Place::Leaf(slot(index, word), within(step.link)));
                }
                Find::Child(index, word) => {
                    let link = slot(index, word);
                    drop(bytes);
                    step = Step::below(link, skipped);
                }
                Find::Vacant(index, word) => return Ok(Place::Vacant(slot(index, word), within(step.link))),
                Find::Full => return Ok(Place::Full(within(step.link), fresh)),
            }
        }
    }

    /// Describes the node that contains the slot of `link`. All fields but the address come from the cache. If the node
    /// is not cached, its type is 0, its number of children is `usize::MAX`, and its own link is `None`.
    async fn around(&self, key: &KeyText, link: &Link) -> Within {
        self.v.local(LocalStep::Section).await;
        let hit = self.art.cache.lookup(key).filter(|hit| hit.at == link.slot.node);
        Within {
            at: link.slot.node,
            node_type: hit.map_or(0, |hit| hit.node_type),
            children: hit.map_or(usize::MAX, |hit| hit.children),
            link: hit
                .and_then(|hit| hit.link)
                .map(|slot| Link { slot, fresh: false }),
            skipped: hit.is_some_and(|hit| hit.skipped),
        }
    }

    /// READs a whole node.
    pub(crate) async fn read_node(&self, at: RemotePtr, node_type: u8) -> Result<V::Lease, IndexError> {
        Ok(self.v.read(at, self.art.types().bytes(node_type) as u32).await?)
    }

    pub(crate) fn decode<'b>(
        &self,
        bytes: &'b [u8],
        at: RemotePtr,
        node_type: u8,
    ) -> Result<RadixNode<'b>, IndexError> {
        RadixNode::decode(bytes, self.art.types(), node_type).map_err(corrupt(at))
    }
}
