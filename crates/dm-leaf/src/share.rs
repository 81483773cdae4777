//! Writing one key while others do so too: an update of a value inside one line, under a share of the node's lock.

use dm_index::{Answer, Applied, IndexError, Write};
use dm_layout::{Judged, KeyBytes, NodeFormat, Place, ValueRef};
use dm_lock::LockError;
use dm_verbs::{Control, RemotePtr, Verbs};

use crate::Nodes;
use crate::read::{follow, go_right};

/// What a share of a node is good for.
enum Found<K> {
    /// These bytes, and then this answer.
    Range(core::ops::Range<usize>, Applied),
    /// This answer, with nothing to write.
    Answer(Answer<K, Applied>),
    /// Nothing: the lock is to be taken alone.
    Nothing,
}

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    /// Whether `write` goes by a share of the lock first.
    #[inline]
    pub(crate) fn shares(&self, write: Write<'_>) -> bool {
        self.locks.options().shared
            && (self.format.updates_in_line() || self.options.flaws.lines_shared)
            && match write {
                Write::Update(_) => true,
                Write::Insert(_) | Write::Remove => self.options.flaws.slots_shared,
                _ => false,
            }
    }

    /// The shared way, to its end; `None`, and nothing done, where the lock is to be taken alone.
    pub(crate) async fn write_shared<V: Verbs + Control>(
        &self,
        v: &V,
        at: RemotePtr,
        (level, key): (u8, &K),
        write: Write<'_>,
    ) -> Result<Option<Answer<K, Applied>>, IndexError> {
        let sharing = self.locks.share_and_read(v, at, at, self.node_len());
        //= docs/protocol/reclaim.md R2
        let (share, mut image) = match self.alloc.tending(v, sharing).await {
            Ok(shared) => shared,
            // One holder after another: the queue is fair.
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
                match answer {
                    // On to another leaf, and not to wait for this one: dropping a share gives it back.
                    Answer::Stale(_) => drop(share),
                    _ => share.leave().await?,
                }
                Ok(Some(answer))
            }
            Found::Nothing => {
                share.leave().await?;
                Ok(None)
            }
        }
    }

    /// What is to be done about an image that was read under a share: nobody moves its entries.
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
                // T-D7, as below.
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
            // What is to be finished, waited for or reported is so by who has it alone.
            _ => Found::Nothing,
        })
    }
}
