//! Merging a node into its left neighbour, and ending a root that has one child.
//!
//! With both nodes locked (as a set), L left of R:
//! 1. WRITE R's head: Frozen.
//! 2. One chain to L: its head (Frozen, lines may run ahead), its rest (R's entries in free slots, version + 1), its
//!    head again (version + 1, R's fence and sibling, Live). A reader that mixes these finds one state of L (S2).
//! 3. WRITE R whole: Dead, forwarding to L, version + 1 on every line.
//! 4. Unlock both. Then, by the caller, the parent forgets R.
//!
//! On one memory node all of it is one chain. On two, each step is awaited before the next.

use dm_index::{IndexError, Merge};
use dm_layout::{FenceKeys, Header, KeyBytes, NodeFormat, NodeState, Part};
use dm_verbs::{Effect, Event, RemotePtr, Verbs};

use crate::Nodes;
use crate::errors::lock_error;
use crate::write::failure;

/// A node is sparse when at most one in this many of its slots is taken.
const SPARSE: usize = 4;
/// A merged node leaves at least one in this many of its slots free, so that it does not split at once.
const SPARE: usize = 4;

/// What is owed to the right node if the merge is given up: to be thawed, or buried.
struct Owed<'v, V: Verbs> {
    v: &'v V,
    at: RemotePtr,
    bytes: Option<Vec<u8>>,
}

impl<V: Verbs> Drop for Owed<'_, V> {
    fn drop(&mut self) {
        // Behind what was posted before it, and before the guards' unlocks.
        if let Some(bytes) = &self.bytes {
            self.v.write(self.at, bytes).detach();
        }
    }
}

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    pub(crate) fn is_sparse(&self, image: &[u8]) -> Result<bool, dm_layout::CheckFailure> {
        Ok(self.format.len(image)? * SPARSE <= self.format.capacity())
    }

    /// A live node of `level`, judged under its lock; `None` if it is anything else, or torn.
    fn settled(&self, at: RemotePtr, bytes: &[u8], level: u8) -> Result<Option<Header<K>>, IndexError> {
        match self.format.accept(bytes) {
            Ok(header) if header.state == NodeState::Live && header.level == level => Ok(Some(header)),
            Ok(_) => Ok(None),
            Err(e) if e.is_torn() => Ok(None),
            Err(e) => Err(failure(at, e)),
        }
    }

    pub(crate) async fn merge_nodes<V: Verbs>(
        &self,
        v: &V,
        [left_at, right_at]: [RemotePtr; 2],
        level: u8,
        between: &K,
        until: Option<&K>,
    ) -> Result<Merge, IndexError> {
        let set = self
            .locks
            .lock_set(v, &[left_at, right_at])
            .await
            .map_err(lock_error)?;
        let reads = [
            v.read(left_at, self.node_len()),
            v.read(right_at, self.node_len()),
        ];
        let [left, right] = reads;
        let (mut left, mut right) = (left.await?, right.await?);
        let headers = (
            self.settled(left_at, &left, level)?,
            self.settled(right_at, &right, level)?,
        );
        let (Some(l), Some(r)) = headers else {
            set.release().await.map_err(lock_error)?;
            return Ok(Merge::Changed);
        };
        let meet = l.fences.high == Some(*between) && l.sibling == right_at.raw() && r.fences.low == *between;
        if !meet || r.fences.high.as_ref() != until {
            set.release().await.map_err(lock_error)?;
            return Ok(Merge::Changed);
        }
        let bad = |e| failure(left_at, e);
        let entries = self.format.len(&left).map_err(bad)? + self.format.len(&right).map_err(bad)?;
        if entries * SPARE > self.format.capacity() * (SPARE - 1) {
            set.release().await.map_err(lock_error)?;
            return Ok(Merge::TooFull);
        }

        // All images are made before anything is written.
        let thawed = right[self.format.range(Part::Head)].to_vec();
        let owner = u32::from(v.client().0) + 1;
        let frozen = self.format.freeze(&mut right, owner).map_err(bad)?;
        let frozen = (right_at.add(frozen.start as u64), right[frozen].to_vec());
        let mut steps: Vec<(RemotePtr, Vec<u8>)> = Vec::with_capacity(3);
        let announced = self.format.announce_merge(&mut left, owner).map_err(bad)?;
        let by_steps = !self.format.range(Part::Rest).is_empty();
        if by_steps {
            steps.push((left_at.add(announced.start as u64), left[announced].to_vec()));
        }
        let copied = self.format.copy_merge(&mut left, &right).map_err(bad)?;
        if by_steps {
            steps.push((left_at.add(copied.start as u64), left[copied].to_vec()));
        }
        // Formats that are written back whole know one step: this one.
        let switched = self.format.finish_merge(&mut left, &r).map_err(bad)?;
        steps.push((left_at.add(switched.start as u64), left[switched].to_vec()));
        self.format.bury(&mut right, left_at.raw()).map_err(bad)?;

        let mut chain = v.chain(left_at.node());
        if left_at.node() == right_at.node() {
            chain = chain.write(frozen.0, &frozen.1);
            for (at, bytes) in &steps {
                chain = chain.write(*at, bytes);
            }
            chain = chain.write(right_at, &right);
            set.write_back([(left_at.node(), chain)])
                .await
                .map_err(lock_error)?;
        } else {
            let mut owed = Owed {
                v,
                at: frozen.0,
                bytes: Some(thawed.clone()),
            };
            v.write(frozen.0, &frozen.1).await?;
            for (at, bytes) in &steps {
                chain = chain.write(*at, bytes);
            }
            // From the posting on, the right node's keys live in the left one.
            (owed.at, owed.bytes) = (right_at, Some(right.to_vec()));
            if let Err(e) = chain.await {
                //= docs/protocol/sherman.md S28
                // Buried, its entries would be gone if the left node did not take them over. Frozen they are still read.
                let untouched = e.overall() == Effect::None;
                (owed.at, owed.bytes) = (frozen.0, untouched.then_some(thawed));
                return Err(e.into());
            }
            v.write(right_at, &right).await?;
            owed.bytes = None;
            set.release().await.map_err(lock_error)?;
        }
        v.meter().note(Event::Merge);
        Ok(Merge::Done)
    }

    pub(crate) async fn collapse_node<V: Verbs>(
        &self,
        v: &V,
        at: RemotePtr,
        level: u8,
        commit: impl AsyncFnOnce(&[u8]) -> Result<bool, IndexError>,
    ) -> Result<bool, IndexError> {
        let (guard, mut image) = self
            .locks
            .lock_and_read(v, at, at, self.node_len())
            .await
            .map_err(lock_error)?;
        let bad = |e| failure(at, e);
        let alone = self
            .settled(at, &image, level)?
            .is_some_and(|h| h.fences == FenceKeys::ALL && h.sibling == 0);
        let mut entries = Vec::new();
        if alone {
            self.format
                .gather(&image, &FenceKeys::ALL, &mut entries)
                .map_err(bad)?;
        }
        let [(_, only)] = entries[..] else {
            guard.release().await.map_err(lock_error)?;
            return Ok(false);
        };
        let value = only.to_vec();
        drop(entries);
        if !commit(&value).await? {
            guard.release().await.map_err(lock_error)?;
            return Ok(false);
        }
        //= docs/protocol/sherman.md S27
        // It forwards nowhere: what took its place is of another level, and perhaps of another format.
        self.format.bury(&mut image, 0).map_err(bad)?;
        guard
            .write_back(v.chain(at.node()).write(at, &image))
            .await
            .map_err(lock_error)?;
        Ok(true)
    }
}
