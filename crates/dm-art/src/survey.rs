//! Visits all nodes and leaves of a radix tree for a check.

use dm_index::{Condition, Flaw, IndexError, KEY_BYTES_MAX, KeyBytes, Survey, is_nowhere};
use dm_layout::RadixNode;
use dm_sync::fingerprint_of;
use dm_verbs::{Control, Place, RemotePtr, Verbs};

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

/// A radix node that a walk still has to visit.
struct Branch {
    at: RemotePtr,
    node_type: u8,
    /// The first key byte that the path does not determine.
    from: u8,
    path: [u8; KEY_BYTES_MAX],
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
    /// [`Survey::mends`] returns `true`, this also completes the renewals that other clients have begun.
    ///
    /// # Errors
    /// Returns an error if a verb fails or a renewal cannot be completed. A corrupt node is not an error, but is
    /// recorded as a fault in the survey. It is an error only if this must read the node to find key bytes that no
    /// header holds.
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
        let frozen = self.survey_nodes(client, survey, each).await?;
        if !survey.mends() {
            return Ok(());
        }
        for FrozenNode { key, within } in frozen {
            let running = client.start().await?;
            // Any client may complete a renewal that another client has begun (M16).
            let renewed = client.renew(&KeyText::of(&key), &within).await;
            crate::presence::end_operation(running, renewed)?;
            survey.mended += 1;
        }
        Ok(())
    }

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
            path: [0; KEY_BYTES_MAX],
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
            path[usize::from(begin)..branch].copy_from_slice(partial);
            if begin != from {
                // The skipped bytes come from one leaf below this node. The keys of the other leaves are compared with
                // them.
                let text = KeyText::of(&K::read_from(&path[..K::LEN]));
                if let Below::Leaf(_, other) = client.leaf_below(&text, (at, kind), None).await? {
                    let skipped = usize::from(from)..usize::from(begin);
                    path[skipped.clone()].copy_from_slice(&other[skipped]);
                }
            }
            let children = node.words().filter(|word| word.has_child());
            survey.count(at, 1, children.clone().count(), types.block_bytes(kind) as u64);
            if node.is_frozen() {
                survey.fault(at, Flaw::Unfinished(Condition::Frozen), image);
                frozen.push(FrozenNode {
                    key: K::read_from(&path[..K::LEN]),
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
                path[branch] = word.partial();
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
                    path[branch] = last;
                    let sound = matches!(seen.condition, Condition::Live | Condition::Dead);
                    survey
                        .words
                        .extend(seen.lock.map(|(place, word)| (place, word, sound)));
                    let flaw = match (seen.condition, seen.key) {
                        (Condition::Live | Condition::Dead, Some(key))
                            if KeyText::of(&key)[..=branch] != path[..=branch]
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
