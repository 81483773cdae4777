//! Growth of the inner levels: separators of split nodes, new roots, and bulk loads.

use dm_index::{
    Answer, Child, FenceKeys, Hops, IndexError, KeyBytes, Lead, NodeAccess, NodeCopy, NodeStore, Split,
    Stale, Write,
};
use dm_verbs::{Effect, LocalStep, RemotePtr, VerbError, Verbs, Why};

use crate::blink::Blink;
use crate::descend::Found;
use crate::root::Root;

impl<K: KeyBytes, S> Blink<K, S> {
    /// Inserts the separator of `split` at the level above it. Returns the split that this caused there, if any.
    pub(crate) async fn install_one<V: Verbs>(
        &self,
        v: &V,
        split: &Split<K>,
    ) -> Result<Option<Split<K>>, IndexError>
    where
        S: NodeStore<V, K>,
    {
        let level = split.level + 1;
        let child = Child::of(split.right, NodeAccess::<V, K>::value_bytes(&self.nodes))?;
        let mut retry = v.retry(self.options.attempts);
        let mut hops = Hops::default();
        let mut copy = NodeCopy::new();
        let Some(mut lead) = self.parent(v, split, &mut copy).await? else {
            return Ok(None);
        };
        // The node where the search for the parent began: a cached one, or one that a descent has just read.
        let mut began = lead.at;
        loop {
            // This is an upsert, so that an installation that may have taken effect can be repeated without
            // harm.
            let write = Write::Upsert(child.bytes());
            match self
                .nodes
                .write(v, lead, level, &split.separator, write, Some(&mut copy))
                .await?
            {
                Answer::Done(_) | Answer::Sparse(_) => {
                    v.local(LocalStep::Section).await;
                    self.refresh(&mut copy, split)?;
                    return Ok(None);
                }
                // Even if the split of the parent has not inserted the separator, readers reach the new node through
                // its left neighbour.
                Answer::Split(_, next) => {
                    v.local(LocalStep::Section).await;
                    self.refresh(&mut copy, split)?;
                    return Ok(Some(next));
                }
                Answer::Stale(stale) => {
                    if let Stale::Right(right) = stale {
                        lead = right;
                        // Each step locks a node. So many steps mean that the search began at an old image, or that
                        // many separators are missing one level higher. A descent only READs the nodes on its way.
                        //= docs/protocol/reclaim.md R10
                        if !hops.step(&mut retry, right.at).await? {
                            continue;
                        }
                    }
                    v.local(LocalStep::Section).await;
                    // Another client may have cached a newer image meanwhile.
                    let hit = self.cache.lookup_at(level, &split.separator);
                    if let Some(hit) = hit.filter(|hit| hit.origin.node == began) {
                        self.cache.invalidate(hit.origin);
                    }
                    if matches!(stale, Stale::Elsewhere) {
                        retry.again(lead.at, Why::Stale).await?;
                    }
                    match self.parent(v, split, &mut copy).await? {
                        Some(found) => (lead, began) = (found, found.at),
                        None => return Ok(None),
                    }
                }
            }
        }
    }

    /// Returns the node into which the separator of `split` must be inserted, or `None` if a new root already
    /// contains it.
    async fn parent<V: Verbs>(
        &self,
        v: &V,
        split: &Split<K>,
        copy: &mut NodeCopy<K>,
    ) -> Result<Option<Lead>, IndexError>
    where
        S: NodeStore<V, K>,
    {
        let level = split.level + 1;
        v.local(LocalStep::Section).await;
        if let Some(hit) = self.cache.lookup_at(level, &split.separator) {
            return Ok(Some(Lead::hint(hit.origin.node)));
        }
        let mut retry = v.retry(self.options.attempts);
        loop {
            match self.descend(v, &split.separator, level, copy).await? {
                // A descent returns an unborn node only if a linked node or the root word led to it, so the node is
                // linked. If the split of the left half is not finished because its client is gone, a writer of the
                // left half finishes it. A writer of the right half cannot finish it, so this returns the left half if
                // it is known.
                Some(Found::Node { left }) => return Ok(Some(Lead::linked(left.unwrap_or(copy.at)))),
                Some(Found::RootBelow(root)) => {
                    if root.level + 1 == level && self.grow(v, root, split).await? {
                        return Ok(None);
                    }
                    if self.options.root_race_fatal() {
                        let why = "published flaw T-S5: lost the race for a new root, so there is no path to continue on";
                        return Err(IndexError::BadInput { why });
                    }
                    // The known root was an old one, or another client has set a new root first.
                    v.local(LocalStep::Section).await;
                    self.root.with(|known| *known = None);
                    retry.again(root.at, Why::Raced).await?;
                }
                None => {
                    return Err(IndexError::Pool {
                        at: self.root_word,
                        why: "the tree has a leaf that was split, but its root word is empty",
                    });
                }
            }
        }
    }

    /// Puts a new root above `root`, which was split. Returns `false` if `root` is no longer the root.
    async fn grow<V: Verbs>(&self, v: &V, root: Root, split: &Split<K>) -> Result<bool, IndexError>
    where
        S: NodeStore<V, K>,
    {
        let bytes = NodeAccess::<V, K>::value_bytes(&self.nodes);
        let (left, right) = (Child::of(root.at, bytes)?, Child::of(split.right, bytes)?);
        let entries = [(K::MIN, left.bytes()), (split.separator, right.bytes())];
        let level = root.level + 1;
        //= docs/protocol/reclaim.md R9
        let node = self
            .nodes
            .create(v, level, FenceKeys::ALL, &entries, true)
            .await?;
        let new = Root { at: node.at, level };
        let epoch = self.epoch();
        let posted = v.cas(self.root_word, root.pack(), new.pack()).await;
        let without = |e: &VerbError| e.overall() == Effect::None;
        if posted
            .as_ref()
            .map_or_else(without, |found| *found != root.pack())
        {
            // No pointer to the new node was ever written.
            self.nodes.forget(node);
            return posted.map(|_| false).map_err(IndexError::from);
        }
        posted?;
        self.nodes.open(v, &node).await?;
        v.local(LocalStep::Section).await;
        self.set_root(Some(new), epoch);
        Ok(true)
    }

    /// Builds all inner levels above the leaves of a bulk load, and sets the root.
    pub(crate) async fn build_levels<V: Verbs>(
        &self,
        v: &V,
        leaves: &[(K, RemotePtr)],
        fill: f64,
    ) -> Result<(), IndexError>
    where
        S: NodeStore<V, K>,
    {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let fan_out = ((self.nodes.capacity() as f64 * fill) as usize).max(2);
        let mut below = leaves.to_vec();
        let mut level = 0;
        while below.len() > 1 {
            level += 1;
            below = self.build_level(v, level, &below, fan_out).await?;
        }
        let Some(&(_, at)) = below.first() else {
            return Ok(());
        };
        let old = v.cas(self.root_word, 0, Root { at, level }.pack()).await?;
        match Root::unpack(old) {
            Some(root) => Err(IndexError::NotEmpty { root: root.at }),
            None => Ok(()),
        }
    }

    async fn build_level<V: Verbs>(
        &self,
        v: &V,
        level: u8,
        below: &[(K, RemotePtr)],
        fan_out: usize,
    ) -> Result<Vec<(K, RemotePtr)>, IndexError>
    where
        S: NodeStore<V, K>,
    {
        let mut copy = NodeCopy::new();
        copy.value_bytes = NodeAccess::<V, K>::value_bytes(&self.nodes);
        copy.level = level;
        copy.incarnation = 1;
        let mut made = Vec::with_capacity(below.len().div_ceil(fan_out));
        let mut at = self.nodes.reserve(v).await?;
        let mut rest = below;
        while let Some(&(low, _)) = rest.first() {
            let (children, tail) = rest.split_at(fan_out.min(rest.len()));
            let next = match tail.first() {
                Some(&(high, _)) => Some((high, self.nodes.reserve(v).await?)),
                None => None,
            };
            copy.at = at;
            copy.fences = FenceKeys::new(low, next.map(|(high, _)| high));
            copy.sibling = next.map_or(RemotePtr::NULL, |(_, sibling)| sibling);
            copy.entries.clear();
            copy.values.clear();
            for &(key, child) in children {
                let at = u32::try_from(copy.values.len()).expect("a node has less than 4 GiB");
                copy.entries.push((key, at));
                let child = Child::of(child, copy.value_bytes)?;
                copy.values.extend_from_slice(child.bytes());
            }
            self.nodes.load(v, &copy).await?;
            made.push((low, at));
            at = next.map_or(RemotePtr::NULL, |(_, sibling)| sibling);
            rest = tail;
        }
        Ok(made)
    }

    /// Reads all inner nodes into the cache, top down, as far as the cache admits them. The verbs are metered as
    /// housekeeping. Stops early at a node that has been merged away or replaced. Returns the number of nodes that were
    /// read before that.
    ///
    /// # Errors
    /// Returns an error if a verb fails or a retry limit is reached, and [`IndexError::Corrupt`] if a node's bytes
    /// contradict each other.
    pub async fn warm<V: Verbs>(&self, v: &V) -> Result<u64, IndexError>
    where
        S: NodeStore<V, K>,
    {
        let _unmetered = v.meter().housekeeping();
        let Some(Root {
            at: mut first,
            level: mut level @ 1..,
        }) = self.root(v).await?
        else {
            return Ok(0);
        };
        let mut copy = NodeCopy::new();
        let mut nodes = 0;
        loop {
            // `first` is the leftmost node of its level.
            let mut at = first;
            let mut down = RemotePtr::NULL;
            let mut last = None;
            loop {
                let alive = self.nodes.copy(v, at, &mut copy).await?;
                // Each step must lead down or to the right, so that corrupt pointers cannot cause an endless
                // loop.
                let onwards = copy.level == level && last.is_none_or(|low| low < copy.fences.low);
                if !alive || !onwards {
                    return Ok(nodes);
                }
                last = Some(copy.fences.low);
                if down.is_null() {
                    down = copy.child(0).unwrap_or(RemotePtr::NULL);
                }
                nodes += 1;
                let _admitted_or_not = self.admit(&copy);
                if copy.sibling.is_null() {
                    break;
                }
                at = copy.sibling;
            }
            if down.is_null() || level == 1 {
                return Ok(nodes);
            }
            first = down;
            level -= 1;
        }
    }
}
