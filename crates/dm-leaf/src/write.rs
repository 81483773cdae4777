//! Writing one key: lock and read, judge, edit, write back and unlock.

use dm_index::{Answer, Applied, IndexError, Lead, NodeCopy, Stale, Write};
use dm_layout::{CheckFailure, FenceKeys, Header, KeyBytes, LineLag, NodeFormat, NodeState, Place, ValueRef};
use dm_verbs::{Control, RemotePtr, Verbs, Why};

use crate::Nodes;
use crate::errors::lock_error;
use crate::read::{follow, go_right};

/// What a writer makes of a node that it has locked.
enum Judgement<K> {
    /// It answers for the key.
    Ready(Header<K>),
    /// It does not.
    Stale(Stale),
    /// A split of it was begun and given up: finish it first.
    Unfinished(Header<K>),
    /// It is the right node of a split under way: wait, if it is linked. Or a new root, whose maker may have given up.
    Unborn(Header<K>),
    /// It is being merged: wait.
    Frozen,
    /// The READ was torn although the lock is held: an earlier holder's WRITE is still landing.
    Torn,
}

/// What an edit of the local image came to.
enum Edit {
    /// Nothing to write.
    Nothing(Applied),
    /// These bytes.
    Range(Applied, core::ops::Range<usize>),
    /// No room.
    Full,
}

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    pub(crate) async fn write_entry<V: Verbs + Control>(
        &self,
        v: &V,
        Lead { at, linked }: Lead,
        level: u8,
        key: &K,
        write: Write<'_>,
        mut after: Option<&mut NodeCopy<K>>,
    ) -> Result<Answer<K, Applied>, IndexError> {
        let mut retry = v.retry(self.options.attempts);
        loop {
            let (guard, mut image) = self
                .locks
                .lock_and_read(v, at, at, self.node_len())
                .await
                .map_err(lock_error)?;
            let header = match self.judge(at, &image, level, key) {
                Ok(Judgement::Ready(header)) => header,
                Ok(Judgement::Unfinished(header)) => {
                    self.finish_split(v, guard, at, header, &mut image).await?;
                    continue;
                }
                other => {
                    guard.release().await.map_err(lock_error)?;
                    match other? {
                        Judgement::Stale(stale) => return Ok(Answer::Stale(stale)),
                        //= docs/protocol/reclaim.md R9
                        Judgement::Unborn(_) if !linked => return Ok(Answer::Stale(Stale::Elsewhere)),
                        Judgement::Unborn(header) if header.fences == FenceKeys::ALL => {
                            self.finish_birth(v, at, &mut image).await?;
                        }
                        Judgement::Unborn(_) | Judgement::Frozen => retry.again(at, Why::Changing).await?,
                        _ => retry.again(at, Why::Torn).await?,
                    }
                    continue;
                }
            };
            match self.edit(&mut image, key, write) {
                Ok(Edit::Nothing(applied)) => {
                    guard.release().await.map_err(lock_error)?;
                    return Ok(Answer::Done(applied));
                }
                Ok(Edit::Range(applied, range)) => {
                    let chain = v
                        .chain(at.node())
                        .write(at.add(range.start as u64), &image[range]);
                    guard.write_back(chain).await.map_err(lock_error)?;
                    if let Some(after) = after.take() {
                        self.decode(at, &image, after).map_err(|e| failure(at, e))?;
                    }
                    // A node that answers for all keys has no neighbour.
                    let alone = header.fences == FenceKeys::ALL;
                    if applied == Applied::Removed
                        && !alone
                        && self.is_sparse(&image).map_err(|e| failure(at, e))?
                    {
                        return Ok(Answer::Sparse(applied));
                    }
                    return Ok(Answer::Done(applied));
                }
                Ok(Edit::Full) => {
                    return self
                        .split(v, guard, at, &header, image, (*key, write), after)
                        .await;
                }
                Err(e) => {
                    guard.release().await.map_err(lock_error)?;
                    if e.is_torn() {
                        retry.again(at, Why::Torn).await?;
                        continue;
                    }
                    return Err(failure(at, e));
                }
            }
        }
    }

    #[inline]
    fn judge(&self, at: RemotePtr, bytes: &[u8], level: u8, key: &K) -> Result<Judgement<K>, IndexError> {
        let header = match self.format.accept(bytes) {
            Ok(header) => header,
            Err(CheckFailure::Torn { .. }) => return Ok(Judgement::Torn),
            Err(CheckFailure::Corrupt(what)) => return Err(IndexError::Corrupt { node: at, what }),
        };
        Ok(match header.state {
            NodeState::Dead => Judgement::Stale(follow(header.sibling)),
            _ if header.level != level || *key < header.fences.low => Judgement::Stale(Stale::Elsewhere),
            NodeState::Splitting if header.lag == LineLag::Behind => Judgement::Unfinished(header),
            // Its splitter makes it live before it unlocks the left node.
            NodeState::Splitting => Judgement::Unborn(header),
            NodeState::Frozen => Judgement::Frozen,
            NodeState::Live if header.fences.is_below(key) => Judgement::Stale(go_right(at, header.sibling)?),
            NodeState::Live => Judgement::Ready(header),
        })
    }

    #[inline]
    fn edit(&self, image: &mut [u8], key: &K, write: Write<'_>) -> Result<Edit, CheckFailure> {
        let place = self.format.place(image, key)?;
        Ok(match (write, place) {
            (Write::Insert(_), Place::Present(_)) => Edit::Nothing(Applied::Present),
            (Write::Update(_) | Write::Remove, Place::Free(_) | Place::Full) => {
                Edit::Nothing(Applied::Absent)
            }
            (Write::Update(value) | Write::Upsert(value), Place::Present(slot)) => Edit::Range(
                Applied::Replaced,
                self.format.update(image, slot, ValueRef::from(value)),
            ),
            (Write::Remove, Place::Present(slot)) => {
                Edit::Range(Applied::Removed, self.format.remove(image, slot))
            }
            (Write::Insert(value) | Write::Upsert(value), Place::Free(slot)) => Edit::Range(
                Applied::Inserted,
                self.format.put(image, slot, key, ValueRef::from(value)),
            ),
            (Write::Insert(_) | Write::Upsert(_), Place::Full) => Edit::Full,
        })
    }
}

/// A failure that reading again will not mend, in an image that was accepted before.
pub(crate) fn failure(at: RemotePtr, e: CheckFailure) -> IndexError {
    match e {
        CheckFailure::Corrupt(what) => IndexError::Corrupt { node: at, what },
        CheckFailure::Torn { offset, .. } => IndexError::Corrupt {
            node: at,
            what: dm_layout::Corrupt {
                offset,
                reason: dm_layout::Reason::Order,
            },
        },
    }
}
