//! From a key to its place: over the cache as far as it goes, then by reading.

use dm_cache::{CachedSlot, PrefixImage, Seen};
use dm_index::{IndexError, KeyBytes, Single, SingleStore};
use dm_layout::{Find, RADIX_HEAD_BYTES, RadixNode, SlotWord};
use dm_verbs::{Control, Event, LocalStep, RemotePtr, Verbs};

use crate::art::{ArtClient, KeyText};
use crate::errors::{corrupt, misplaced};

/// Where a search begins. Each is surer than the one before it, and costs more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
    /// At what the cache says of the key's slot.
    Cache,
    /// At the deepest cached node, read anew.
    Again,
    /// At the root, read anew, as all below it.
    Root,
}

impl From {
    /// What to try when a cached link did not prove what was to be proved.
    pub(crate) const fn surer(self) -> Self {
        match self {
            Self::Cache => Self::Again,
            Self::Again | Self::Root => Self::Root,
        }
    }
}

/// A slot on a key's way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) slot: CachedSlot,
    /// It was read within this operation, from a node that was part of the tree then.
    pub(crate) fresh: bool,
}

impl Link {
    /// The slot's address.
    pub(crate) fn at(&self) -> RemotePtr {
        self.slot
            .node
            .add((RADIX_HEAD_BYTES + 8 * self.slot.index) as u64)
    }
    /// What it points to.
    pub(crate) fn child(&self) -> RemotePtr {
        RemotePtr::from_raw(self.slot.word.pointer())
    }
}

/// A node on a key's way, and how it is linked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    pub(crate) at: RemotePtr,
    pub(crate) node_type: u8,
    /// Slots with children.
    pub(crate) children: usize,
    /// The slot that points to it; `None` for the root.
    pub(crate) link: Option<Link>,
}

/// What there is where the key belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// A leaf: the key's, or one that shares its bytes as far as the link.
    Leaf(Link, Within),
    /// A slot to be filled.
    Vacant(Link, Within),
    /// No slot, in a node that was read within the operation or not.
    Full(Within, bool),
    /// A node whose prefix the key leaves at byte `at`, where the node has `byte`.
    Apart {
        link: Link,
        within: Within,
        at: u8,
        byte: u8,
    },
}

impl Place {
    /// The node that it is in.
    pub(crate) fn within(&self) -> &Within {
        match self {
            Self::Leaf(_, within) | Self::Vacant(_, within) | Self::Full(within, _) => within,
            Self::Apart { within, .. } => within,
        }
    }

    /// The key is proved to be absent, by links alone.
    pub(crate) fn proves_absence(&self) -> bool {
        //= docs/protocol/smart.md M11
        match self {
            Self::Leaf(..) => false,
            Self::Vacant(link, _) | Self::Apart { link, .. } => link.fresh,
            Self::Full(_, fresh) => *fresh,
        }
    }
}

/// What a leaf that is not the key's proves about the key, over a link of this branch.
pub(crate) fn leaf_proves_absence<K>(found: &Single<K>, branch: u8, fresh: bool) -> bool {
    //= docs/protocol/smart.md M11
    match found {
        Single::Hit | Single::Differs => false,
        Single::Other { depth, .. } => fresh || *depth <= u64::from(branch),
        Single::Removed => fresh,
    }
}

/// A node to be read.
#[derive(Debug)]
pub(crate) struct Step {
    at: RemotePtr,
    node_type: u8,
    /// The first key byte that is not known to be right.
    from: u8,
    link: Option<Link>,
    fresh: bool,
}

impl Step {
    fn below(link: Link) -> Self {
        Self {
            at: link.child(),
            node_type: node_type(link.slot.word),
            from: link.slot.branch + 1,
            fresh: link.fresh,
            link: Some(link),
        }
    }
}

/// The type of the node that a slot points to; 0 for a leaf, which is no type.
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
    fn root_step(&self) -> Step {
        Step {
            at: self.art.root,
            node_type: self.art.types().largest(),
            from: 0,
            link: None,
            fresh: true,
        }
    }

    /// Finds the key's place.
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

    /// The same from the cache, behind the local step before its section.
    pub(crate) async fn locate_entered(&self, key: &KeyText, from: From) -> Result<Place, IndexError> {
        match self.cached(key, from) {
            Ok(place) => Ok(place),
            Err(step) => self.descend(key, step).await,
        }
    }

    /// What the cache says, or where to begin to read.
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
        };
        if from == From::Again {
            self.v.meter().note(Event::StaleRead);
            return Err(Step {
                at: hit.at,
                node_type: hit.node_type,
                from: hit.link.map_or(0, |link| link.branch + 1),
                link: within.link,
                fresh: hit.link.is_none(),
            });
        }
        let slot = |index, word| {
            stale(CachedSlot {
                node: hit.at,
                incarnation: hit.incarnation,
                branch: hit.branch,
                index,
                word,
                seen: hit.seen,
            })
        };
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
                return Err(Step::below(slot(index, word)));
            }
            (Find::Vacant(index, word), _) => Place::Vacant(slot(index, word), within),
            (Find::Full, _) => Place::Full(within, false),
        };
        self.v.meter().note(Event::CacheHit);
        Ok(place)
    }

    /// Reads down from `step` on.
    pub(crate) async fn descend(&self, key: &KeyText, mut step: Step) -> Result<Place, IndexError> {
        loop {
            // A slot names no type that the tree has not, or it is no slot of this tree.
            if self.art.types().slots(step.node_type) == 0 {
                return Err(misplaced(step.at));
            }
            let bytes = self.read_node(step.at, step.node_type).await?;
            let node = self.decode(&bytes, step.at, step.node_type)?;
            let header = node.header();
            let branch = header.branch();
            //= docs/protocol/smart.md M13
            let (Some(partial), Some(&byte)) = (header.partial_from(step.from), key.get(usize::from(branch)))
            else {
                return Err(misplaced(step.at));
            };
            let within = |link| Within {
                at: step.at,
                node_type: step.node_type,
                children: node.words().filter(|w| w.has_child()).count(),
                link,
            };
            let rest = &key[usize::from(step.from)..];
            if let (Some(i), Some(link)) = (partial.iter().zip(rest).position(|(a, b)| a != b), step.link) {
                return Ok(Place::Apart {
                    link,
                    within: self.around(key, &link).await,
                    at: step.from + i as u8,
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
            let slot = |index, word| Link {
                slot: CachedSlot {
                    node: step.at,
                    incarnation: node.incarnation(),
                    branch,
                    index,
                    word,
                    seen: Seen::NOT,
                },
                fresh: true,
            };
            match node.find(byte).map_err(corrupt(step.at))? {
                Find::Child(index, word) if word.is_leaf() => {
                    return Ok(Place::Leaf(slot(index, word), within(step.link)));
                }
                Find::Child(index, word) => {
                    let link = slot(index, word);
                    drop(bytes);
                    step = Step::below(link);
                }
                Find::Vacant(index, word) => return Ok(Place::Vacant(slot(index, word), within(step.link))),
                Find::Full => return Ok(Place::Full(within(step.link), true)),
            }
        }
    }

    /// The node of a slot, as far as it is needed to renew it: its own link, from the cache if that is known there.
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
