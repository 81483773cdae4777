//! Visits all nodes and leaves of a radix tree for a check.

use dm_index::{Condition, Flaw, IndexError, KEY_BYTES_MAX, KeyBytes, Survey, is_nowhere};
use dm_layout::RadixNode;
use dm_sync::fingerprint_of;
use dm_verbs::{Control, LocalStep, Place, RemotePtr, Verbs};

use crate::SingleStore;
use crate::art::{Art, ArtClient, KeyText};
use crate::locate::{Within, node_type};
use crate::skipped::Below;

/// A leaf, as [`SingleStore::inspect`] found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SingleSeen<K> {
    /// The leaf's state; [`Condition::Dead`] if its key was removed, or if another leaf has replaced it.
    pub condition: Condition,
    /// Its key, if it can be read.
    pub key: Option<K>,
    /// The leaf that has replaced it, if one has.
    pub next: Option<RemotePtr>,
    /// The place and the value of its lock word, if the lock is held or in doubt.
    pub lock: Option<(Place, u64)>,
    /// A hash of its bytes.
    pub image: u64,
}

/// The key bytes on the path to a node or a leaf. A byte is `None` if no node on the path holds it, and no leaf shows
/// it.
type Path = [Option<u8>; KEY_BYTES_MAX];

/// Returns a key on this path. Unknown bytes are 0.
fn key_on<K: KeyBytes>(path: &Path) -> K {
    K::read_from(&path.map(Option::unwrap_or_default)[..K::LEN])
}

/// Returns whether the first bytes of `key` are those of the path, as far as these are known.
fn is_on(key: &[u8], path: &[Option<u8>]) -> bool {
    path.iter()
        .zip(key)
        .all(|(byte, own)| byte.is_none_or(|byte| byte == *own))
}

/// A radix node that a walk still has to visit.
struct Branch {
    at: RemotePtr,
    node_type: u8,
    /// The first key byte that the link to this node does not determine.
    from: u8,
    path: Path,
}

/// A leaf that a walk still has to visit.
#[derive(Clone, Copy)]
struct LinkedLeaf<K> {
    at: RemotePtr,
    /// The key byte of the slot that leads to it.
    last: u8,
    /// The key of the leaf that it has replaced, if it was found through that leaf.
    replaces: Option<K>,
}

/// A frozen node, and a key on its path.
pub(crate) struct FrozenNode<K> {
    key: K,
    within: Within,
}

impl<K: KeyBytes, L> Art<K, L> {
    /// Visits all nodes and leaves, and adds their counts and faults to `survey`. Radix nodes count as level 1. For
    /// each live leaf, `each` receives the leaf's address, the key, the value and a hash of the leaf. If
    /// [`Survey::mends`] returns `true`, this then also completes the renewals that it has found unfinished. Their
    /// faults stay in `survey`.
    ///
    /// If memory is reused, this must run within an operation of this compute node, such as
    /// [`Allocator::visit`](dm_alloc::Allocator::visit).
    ///
    /// Other clients may change the tree meanwhile, and this takes no locks:
    /// * Each node is read once, and the walk continues at the children that this READ shows. A key that is in the tree
    ///   during the whole walk is found once, unless a fault hides it. A key that is inserted or removed meanwhile may
    ///   or may not be found. An update that replaces the key's leaf does not hide the key.
    /// * A node that another client renews is recorded as unfinished, like one that a dead client has left. So is a
    ///   node that was replaced after the READ of the node above it, and its replacement is not visited. A second walk
    ///   tells these cases apart: a renewal that another client completes leaves no fault in the same place.
    /// * With a compression that skips key bytes, a leaf below each node that lacks bytes is read in addition. If the
    ///   key of that leaf cannot be read, the missing bytes of the other keys are not checked.
    ///
    /// # Errors
    /// Returns an error if a verb fails, unless it is a READ at an address without memory, or if a renewal cannot be
    /// completed. A corrupt node is not an error, but is recorded as a fault in the survey.
    pub async fn survey<V: Verbs + Control>(
        &self,
        v: &V,
        survey: &mut Survey,
        each: impl FnMut(&mut Survey, RemotePtr, K, &[u8], u64),
    ) -> Result<(), IndexError>
    where
        L: SingleStore<V, K>,
    {
        self.survey_by(&self.client(v), survey, each).await
    }

    pub(crate) async fn survey_by<V: Verbs + Control>(
        &self,
        client: &ArtClient<'_, V, K, L>,
        survey: &mut Survey,
        each: impl FnMut(&mut Survey, RemotePtr, K, &[u8], u64),
    ) -> Result<(), IndexError>
    where
        L: SingleStore<V, K>,
    {
        client.v.local(LocalStep::Section).await;
        // The caller's operation may be the first one since this compute node has joined the pool again. The cache may
        // then hold addresses from before (M22), and `leaf_below` uses the cache.
        self.refresh();
        let frozen = self.survey_nodes(client, survey, each).await?;
        if !survey.mends() {
            return Ok(());
        }
        for FrozenNode { key, within } in frozen {
            let running = client.start().await?;
            // Any client may complete a renewal that another client has begun (M16). If another client has completed
            // this one since the walk has read the node, this does nothing, or it renews a frozen node further up.
            let renewed = client.renew(&KeyText::of(&key), &within).await;
            crate::presence::end_operation(running, renewed)?;
            survey.mended += 1;
        }
        Ok(())
    }

    /// Visits all nodes and leaves, as [`Art::survey`] says. Returns the nodes of which the walk has seen a frozen slot,
    /// except for the root, which no client renews.
    async fn survey_nodes<V: Verbs + Control>(
        &self,
        client: &ArtClient<'_, V, K, L>,
        survey: &mut Survey,
        mut each: impl FnMut(&mut Survey, RemotePtr, K, &[u8], u64),
    ) -> Result<Vec<FrozenNode<K>>, IndexError>
    where
        L: SingleStore<V, K>,
    {
        let (v, types) = (client.v, self.types());
        let mut visited = std::collections::HashSet::new();
        let mut frozen = Vec::new();
        let mut left = vec![Branch {
            at: self.root,
            node_type: types.largest(),
            from: 0,
            path: [None; KEY_BYTES_MAX],
        }];
        while let Some(Branch {
            at,
            node_type: kind,
            from,
            mut path,
        }) = left.pop()
        {
            if !visited.insert(at) {
                survey.fault(at, Flaw::Cycle, 0);
                continue;
            }
            let bytes = match v.read(at, types.bytes(kind) as u32).await {
                Ok(bytes) => bytes,
                Err(e) if is_nowhere(&e) => {
                    survey.fault(at, Flaw::Nowhere, 0);
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            let image = fingerprint_of(&*bytes);
            let node = match RadixNode::decode(&bytes, types, kind) {
                Ok(node) => node,
                Err(what) => {
                    survey.fault(at, Flaw::Corrupt(what), image);
                    continue;
                }
            };
            let header = node.header();
            let branch = usize::from(header.branch());
            let partial = self.options.compression.partial(&header, from);
            let Some((begin, partial)) = partial.filter(|_| branch < K::LEN) else {
                survey.fault(at, Flaw::Path, image);
                continue;
            };
            let put = |path: &mut [Option<u8>], bytes: &[u8]| {
                path.iter_mut()
                    .zip(bytes)
                    .for_each(|(at, byte)| *at = Some(*byte));
            };
            put(&mut path[usize::from(begin)..branch], partial);
            if begin != from {
                // The skipped bytes come from one leaf below this node. The keys of the other leaves are compared with
                // them.
                let text = KeyText::of(&key_on::<K>(&path));
                match client.leaf_below(&text, (at, kind), None).await {
                    Ok(Below::Leaf(_, other)) => {
                        let skipped = usize::from(from)..usize::from(begin);
                        put(&mut path[skipped.clone()], &other[skipped]);
                    }
                    // The bytes stay unknown. If they cannot be read, the walk reports a fault when it gets there.
                    Ok(Below::Empty(..) | Below::Unread) | Err(IndexError::Corrupt { .. }) => {}
                    Err(IndexError::Verb(e)) if is_nowhere(&e) => {}
                    Err(e) => return Err(e),
                }
            }
            let children = node.words().filter(|word| word.has_child());
            survey.count(at, 1, children.clone().count(), types.block_bytes(kind) as u64);
            if node.is_frozen() {
                survey.fault(at, Flaw::Unfinished(Condition::Frozen), image);
            }
            if node.is_frozen() && at != self.root {
                frozen.push(FrozenNode {
                    key: key_on(&path),
                    within: Within {
                        at,
                        node_type: kind,
                        children: children.clone().count(),
                        link: None,
                        skipped: begin != from,
                    },
                });
            }
            let mut leaves = Vec::new();
            for word in children {
                let child = RemotePtr::from_raw(word.pointer());
                path[branch] = Some(word.partial());
                match word.decode() {
                    Err(what) => survey.fault(at, Flaw::Corrupt(what), image),
                    Ok(_) if word.is_leaf() => leaves.push(LinkedLeaf {
                        at: child,
                        last: word.partial(),
                        replaces: None,
                    }),
                    Ok(_) if types.slots(node_type(word)) == 0 => survey.fault(at, Flaw::Path, image),
                    Ok(_) => left.push(Branch {
                        at: child,
                        node_type: node_type(word),
                        from: header.branch() + 1,
                        path,
                    }),
                }
            }
            drop(bytes);
            while !leaves.is_empty() {
                let addresses: Vec<RemotePtr> = leaves.iter().map(|leaf| leaf.at).collect();
                let mut replacements = Vec::new();
                let looking = self.leaves.inspect(v, &addresses, |i, seen, value| {
                    let LinkedLeaf { at, last, replaces } = leaves[i];
                    path[branch] = Some(last);
                    let sound = matches!(seen.condition, Condition::Live | Condition::Dead);
                    survey
                        .words
                        .extend(seen.lock.map(|(place, word)| (place, word, sound)));
                    let flaw = match (seen.condition, seen.key) {
                        (Condition::Live | Condition::Dead, Some(key))
                            if !is_on(&KeyText::of(&key), &path[..=branch])
                                || replaces.is_some_and(|replaced| replaced != key) =>
                        {
                            Flaw::Path
                        }
                        (Condition::Live, Some(key)) => {
                            survey.count(at, 0, 1, u64::from(self.leaves.block_bytes()));
                            return each(survey, at, key, value, seen.image);
                        }
                        (Condition::Dead, _) => {
                            survey.count(at, 0, 0, u64::from(self.leaves.block_bytes()));
                            //= docs/protocol/smart.md M28
                            match seen.next {
                                Some(next) if visited.insert(next) => replacements.push(LinkedLeaf {
                                    at: next,
                                    last,
                                    replaces: seen.key,
                                }),
                                Some(next) => survey.fault(next, Flaw::Cycle, seen.image),
                                None => survey.removed += 1,
                            }
                            return;
                        }
                        (Condition::Corrupt(what), _) => Flaw::Corrupt(what),
                        (Condition::Nowhere, _) => Flaw::Nowhere,
                        _ => Flaw::Torn,
                    };
                    survey.count(at, 0, 0, u64::from(self.leaves.block_bytes()));
                    survey.fault(at, flaw, seen.image);
                });
                looking.await?;
                leaves = replacements;
            }
        }
        Ok(frozen)
    }
}
