//! Writes that share a node's lock. Several clients can update values at the same time if each update writes within one
//! line. Values that are words are changed by CAS.

use dm_index::{Answer, Applied, IndexError, Write};
use dm_layout::{Judged, KeyBytes, NodeFormat, Place, ValueRef};
use dm_lock::LockError;
use dm_verbs::{Control, RemotePtr, Verbs, Why};

use crate::Nodes;
use crate::read::{follow, go_right};
use crate::write::failure;

/// The decision of a writer that shares a node's lock.
enum Found<K> {
    /// Write this range of the image, and return this result.
    Range(core::ops::Range<usize>, Applied),
    /// Exchange the word at this offset, from the first of these words to the second one.
    Word(usize, u64, u64),
    /// There is nothing to write. Return this result.
    Answer(Answer<K, Applied>),
    /// The writer cannot do this write under a share. It must hold the lock alone.
    Nothing,
}

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    /// Returns whether `write` tries a share of the lock first.
    #[inline]
    pub(crate) fn shares(&self, write: Write<'_>) -> bool {
        self.locks.options().shared
            && (self.format.updates_in_line() || self.options.flaws().lines_shared)
            && match write {
                Write::Update(_) => true,
                // Only if values are words, a CAS shows which old value this client replaces.
                //= docs/protocol/marlin.md B2
                Write::Swap { after: Some(_), .. }
                | Write::Exchange {
                    before: Some(_),
                    after: Some(_),
                } => self.format.holds_words(),
                Write::Insert(_) | Write::Remove => self.options.flaws().slots_shared,
                _ => false,
            }
    }

    /// Returns whether `write` adds a key, and may hold the lock beside clients that share it. It may do so because it
    /// changes only a free slot, which no sharer changes.
    //= docs/protocol/marlin.md B3
    #[inline]
    pub(crate) fn inserts_beside(&self, write: Write<'_>) -> bool {
        let inserts = matches!(
            write,
            Write::Insert(_)
                | Write::Exchange {
                    before: None,
                    after: Some(_)
                }
        );
        inserts && self.locks.options().shared && self.format.holds_words()
    }

    /// Writes under a share of the lock. Returns `None` and writes nothing if the writer must hold the lock alone.
    pub(crate) async fn write_shared<V: Verbs + Control>(
        &self,
        v: &V,
        at: RemotePtr,
        (level, key): (u8, &K),
        write: Write<'_>,
    ) -> Result<Option<Answer<K, Applied>>, IndexError> {
        let mut retry = v.retry(self.options.attempts);
        loop {
            match self.try_shared(v, at, (level, key), write).await? {
                Some(Answer::Done(Applied::Differs))
                    if matches!(write, Write::Update(_) | Write::Swap { .. }) =>
                {
                    // Another client has updated the value after this one had read it.
                    retry.again_wiser(at, Why::Raced).await?;
                }
                answer => return Ok(answer),
            }
        }
    }

    /// Tries a write once, as [`Nodes::write_shared`] does. Returns [`Applied::Differs`] if the value is not the
    /// expected one, or if another client has changed it since it was read.
    async fn try_shared<V: Verbs + Control>(
        &self,
        v: &V,
        at: RemotePtr,
        (level, key): (u8, &K),
        write: Write<'_>,
    ) -> Result<Option<Answer<K, Applied>>, IndexError> {
        if self.locks.is_shut(v) {
            // This future is boxed, because it is rare and would make the futures of operations large.
            let open = Box::pin(self.locks.until_open(v, at));
            match self.alloc.while_announcing(v, open).await {
                Ok(()) => {}
                Err(LockError::Held(_)) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
        let sharing = self.locks.share_and_read(v, at, at, self.node_len());
        //= docs/protocol/reclaim.md R2
        let (share, mut image) = match self.alloc.while_announcing(v, sharing).await {
            Ok(shared) => shared,
            // Other clients held the lock at each attempt to share it, or sharing is forbidden. So this client takes
            // the lock alone: clients that do so queue for the lock and get it in turn.
            Err(LockError::Held(_)) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        match self.found(at, &mut image, (level, key), write)? {
            //= docs/protocol/dolphin.md D10
            Found::Range(range, applied) => {
                let chain = v
                    .chain(at.node())
                    .write(at.add(range.start as u64), &image[range]);
                share.write_back(chain).await?;
                Ok(Some(Answer::Done(applied)))
            }
            //= docs/protocol/marlin.md B2
            Found::Word(offset, before, after) => {
                let found = share.exchange(at.add(offset as u64), before, after).await?;
                let applied = match found == before {
                    true => Applied::Replaced,
                    false => Applied::Differs,
                };
                Ok(Some(Answer::Done(applied)))
            }
            Found::Answer(answer) => {
                //= docs/protocol/dolphin.md D11
                share.leave().await?;
                Ok(Some(answer))
            }
            Found::Nothing => {
                share.leave().await?;
                Ok(None)
            }
        }
    }

    /// Decides a write from an image that was read under a share, while no client moves entries.
    fn found(
        &self,
        at: RemotePtr,
        image: &mut [u8],
        (level, key): (u8, &K),
        write: Write<'_>,
    ) -> Result<Found<K>, IndexError> {
        Ok(match self.format.judge(image, key, level) {
            Ok(Judged::Here(Place::Present(slot)))
                if self.format.holds_words() && write.value().is_some() =>
            {
                let found = self.format.entry(image, slot).map_err(|e| failure(at, e))?;
                let found = found.map(|(_, value)| value);
                match (write, found, write.meeting(found)) {
                    // Only flaw T-B4 allows an insert here.
                    (Write::Insert(_), ..) => Found::Answer(Answer::Done(Applied::Present)),
                    (_, Some(before), Some(Write::Update(after) | Write::Upsert(after))) => {
                        let (before, after) = (before.as_u64(), ValueRef::from(after).as_u64());
                        Found::Word(slot.offset(), before, after)
                    }
                    _ => Found::Answer(Answer::Done(Applied::Differs)),
                }
            }
            Ok(Judged::Here(Place::Present(slot))) => match write {
                Write::Update(value) => {
                    let range = self.format.update(image, slot, ValueRef::from(value));
                    Found::Range(range, Applied::Replaced)
                }
                // Only flaws T-D7 and T-B4 allow a remove or an insert here.
                Write::Remove => Found::Range(self.format.remove(image, slot), Applied::Removed),
                _ => Found::Nothing,
            },
            Ok(Judged::Here(place)) => match (write, place) {
                (Write::Update(_) | Write::Swap { .. }, _) => Found::Answer(Answer::Done(Applied::Absent)),
                (Write::Exchange { .. }, _) => Found::Answer(Answer::Done(Applied::Differs)),
                (Write::Insert(value), Place::Free(slot)) => {
                    let range = self.format.put(image, slot, key, ValueRef::from(value));
                    Found::Range(range, Applied::Inserted)
                }
                _ => Found::Nothing,
            },
            Ok(Judged::GoRight { sibling }) => Found::Answer(Answer::Stale(go_right(at, sibling)?)),
            Ok(Judged::Stale(dm_layout::Stale::Dead { forward })) => {
                Found::Answer(Answer::Stale(follow(forward)))
            }
            // This client must hold the lock alone to finish another client's change, to wait, or to report that the
            // node is stale or corrupt.
            _ => Found::Nothing,
        })
    }
}
