//! Writes that share a node's lock. Several updates of values that lie in one line can run at the same time.

use dm_index::{Answer, Applied, IndexError, Write};
use dm_layout::{Judged, KeyBytes, NodeFormat, Place, ValueRef};
use dm_lock::LockError;
use dm_verbs::{Control, RemotePtr, Verbs};

use crate::Nodes;
use crate::read::{follow, go_right};

/// The decision of a writer that shares a node's lock.
enum Found<K> {
    /// Write this range of the image, and return this result.
    Range(core::ops::Range<usize>, Applied),
    /// There is nothing to write. Return this result.
    Answer(Answer<K, Applied>),
    /// No decision: the writer must hold the lock alone.
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
                Write::Insert(_) | Write::Remove => self.options.flaws().slots_shared,
                _ => false,
            }
    }

    /// Writes under a share of the lock. Returns `None` and writes nothing if the writer must hold the lock alone.
    pub(crate) async fn write_shared<V: Verbs + Control>(
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
            // Other clients held the lock one after another. A client that wants to hold the lock alone queues for it,
            // so this client does that instead.
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
            Ok(Judged::Here(Place::Present(slot))) => match write {
                Write::Update(value) => {
                    let range = self.format.update(image, slot, ValueRef::from(value));
                    Found::Range(range, Applied::Replaced)
                }
                // Only flaw T-D7 allows this and the insert below.
                Write::Remove => Found::Range(self.format.remove(image, slot), Applied::Removed),
                _ => Found::Nothing,
            },
            Ok(Judged::Here(place)) => match (write, place) {
                (Write::Update(_), _) => Found::Answer(Answer::Done(Applied::Absent)),
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
            // This client must hold the lock alone to finish the split, to wait, or to report the error.
            _ => Found::Nothing,
        })
    }
}
