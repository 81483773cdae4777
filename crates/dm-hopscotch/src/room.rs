//! Inserting into a full neighbourhood: entries hop to make room, or the node is split.

use core::ops::Range;

use dm_index::{Answer, Applied, IndexError};
use dm_layout::{HopPlan, Hopscotch, Judged, KeyBytes, NodeRead, NodeShape, Place, Reach, ValueRef};
use dm_lock::Guard;
use dm_verbs::{Control, RemotePtr, Verbs};
use smallvec::SmallVec;

use crate::Neighbourhoods;
use crate::read::stretch;
use crate::write::Written;

/// Number of slots behind a full neighbourhood that an insert reads to find a free slot for hops. In leaves of 64 slots
/// that were filled in random order, 14 slots are enough for two thirds of the inserts that find a full neighbourhood.
/// An insert reads more bytes on average with 8 slots, because it reads the rest of the leaf more often, and with 20
/// slots, because it needs fewer of them.
const SLOTS_BEYOND: usize = 14;

/// The parts of a node that were read under its lock. All other bytes are zero.
pub(crate) struct Image {
    bytes: Vec<u8>,
    parts: SmallVec<[Range<usize>; 4]>,
}

impl Image {
    pub(crate) fn new<K: KeyBytes>(format: &Hopscotch<K>) -> Self {
        Self {
            bytes: vec![0; format.node_bytes()],
            parts: SmallVec::new(),
        }
    }

    /// Adds a part.
    pub(crate) fn fill(&mut self, range: &Range<usize>, bytes: &[u8]) {
        self.bytes[range.clone()].copy_from_slice(bytes);
        self.parts.push(range.clone());
    }

    /// Returns the ranges that are not known yet.
    fn gaps(&mut self) -> SmallVec<[Range<usize>; 4]> {
        self.parts.sort_unstable_by_key(|part| part.start);
        let mut gaps = SmallVec::new();
        let mut end = 0;
        for part in &self.parts {
            if part.start > end {
                gaps.push(end..part.start);
            }
            end = end.max(part.end);
        }
        if end < self.bytes.len() {
            gaps.push(end..self.bytes.len());
        }
        gaps
    }

    /// Reads these ranges of the node at `at`, in one round trip.
    async fn read<V: Verbs>(
        &mut self,
        v: &V,
        at: RemotePtr,
        ranges: &[Range<usize>],
    ) -> Result<(), IndexError> {
        let ranges = ranges.iter().filter(|range| !range.is_empty());
        let post = |range: &Range<usize>| {
            let (from, len) = stretch(at, range);
            v.read(from, len)
        };
        let tickets: SmallVec<[_; 4]> = ranges.clone().map(post).collect();
        for (range, ticket) in ranges.zip(tickets) {
            self.fill(range, &ticket.await?);
        }
        Ok(())
    }
}

impl<K: KeyBytes> Neighbourhoods<K> {
    /// Inserts an absent key, whose neighbourhood is full. `image` contains the neighbourhood, and `version` is the
    /// node's version in it. If the bytes that it reads are torn or contradict this, releases the lock and returns
    /// `None`.
    pub(crate) async fn make_room<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        guard: Guard<'a, V>,
        at: RemotePtr,
        (mut image, version): (Image, u8),
        reach: &Reach,
        (key, value): (&K, &[u8]),
    ) -> Written<K> {
        let (format, geometry) = (&self.format, self.format.geometry());
        let bad = |e| crate::write::failure(at, e);
        if let Some((known, more, wrapped)) = geometry.beyond(reach, SLOTS_BEYOND) {
            let ranges: SmallVec<[_; 2]> = [Some(more), wrapped].into_iter().flatten().collect();
            image.read(v, at, &ranges).await?;
            let bytes = &mut image.bytes;
            //= docs/protocol/chime.md H4a
            if !format.is_sound(bytes, &known, version) {
                guard.release().await?;
                return Ok(None);
            }
            if let Some(plan) = format.plan_hops(bytes, key, &known).map_err(bad)? {
                return self.hop(v, guard, at, bytes, &plan, (key, value)).await;
            }
        }
        let gaps = image.gaps();
        image.read(v, at, &gaps).await?;
        let bytes = &mut image.bytes;
        let Ok(Judged::Here(Place::Full)) = format.judge(bytes, key, 0) else {
            guard.release().await?;
            return Ok(None);
        };
        match format.plan_hops(bytes, key, &geometry.all()).map_err(bad)? {
            Some(plan) => self.hop(v, guard, at, bytes, &plan, (key, value)).await,
            None => {
                let split = self.nodes.split_held(v, guard, at, bytes, (key, value));
                split.await.map(Some)
            }
        }
    }

    /// Makes the hops of a plan, inserts the key, and unlocks, in one chain.
    async fn hop<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        mut guard: Guard<'a, V>,
        at: RemotePtr,
        image: &mut [u8],
        plan: &HopPlan,
        (key, value): (&K, &[u8]),
    ) -> Written<K> {
        //= docs/protocol/chime.md H5
        guard.doubt_if_lost();
        let mut chain = Some(v.chain(at.node()));
        let counted = !self.options.flaws().hop_uncounted;
        let entry = (key, ValueRef::from(value));
        self.format.hop(image, plan, entry, counted, |offset, bytes| {
            chain = chain
                .take()
                .map(|chain| chain.write(at.add(offset as u64), bytes));
        });
        guard.write_back(chain.expect("it was only extended")).await?;
        Ok(Some(Answer::Done(Applied::Inserted)))
    }
}
