//! The write of one key: lock and read, check, edit, write back and unlock.

use dm_index::{Answer, Applied, IndexError, Lead, NodeCopy, Stale, Write};
use dm_layout::{
    CheckFailure, FenceKeys, Judged, KeyBytes, LINE_BYTES, NodeFormat, NodeState, Place, ValueRef,
};
use dm_lock::{Attempted, Guard};
use dm_verbs::{Control, RemotePtr, Verbs, Why};

use crate::Nodes;
use crate::mend::Mend;
use crate::read::{follow, go_right};

/// The next action of a writer that must not change the node.
enum Away {
    /// Continue at another node.
    Stale(Stale),
    /// Try the same node again.
    Wait(Why),
}

/// The result of an edit of the local image.
enum Edit {
    /// Nothing changed.
    Nothing(Applied),
    /// These bytes changed.
    Range(Applied, core::ops::Range<usize>),
    /// There is no free slot.
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
        after: Option<&mut NodeCopy<K>>,
    ) -> Result<Answer<K, Applied>, IndexError> {
        if self.format.holds_words() {
            self.check_word(write)?;
        }
        if after.is_none()
            && self.shares(write)
            && let Some(answer) = self.write_shared(v, at, (level, key), write).await?
        {
            return Ok(answer);
        }
        let mut beside = self.inserts_beside(write);
        let mut retry = v.retry(self.options.attempts);
        loop {
            // The guard stays in this frame, and the lock is taken and released in steps. Moving the guard, and the
            // futures around it, would cost more than the rest of the write.
            let mut guard = self.locks.approach(v, at)?;
            if beside {
                guard = guard.beside_sharers();
            }
            let mut image = match guard.attempt(at, self.node_len()).await? {
                Attempted::Locked(image) => image.expect("an acquisition with a READ gives bytes"),
                Attempted::Not(obstacle) => {
                    //= docs/protocol/reclaim.md R2
                    let insisting = guard.insist(obstacle, at, self.node_len());
                    Box::pin(self.alloc.while_announcing(v, insisting)).await?
                }
            };
            let judged = self.format.judge(&image, key, level);
            //= docs/protocol/marlin.md B4
            if beside && !is_for_one_entry(&judged) {
                drop(image);
                guard.release().await?;
                beside = false;
                continue;
            }
            let place = match judged {
                Ok(Judged::Here(place)) => place,
                Ok(Judged::Unfinished) => {
                    Box::pin(self.finish_split(v, guard, at, &mut image)).await?;
                    continue;
                }
                // If the client that created this node has died, the node may stay torn for ever. No linked node leads
                // to it, so no client mends it.
                //= docs/protocol/reclaim.md R9
                Ok(Judged::Unborn) | Err(CheckFailure::Torn { .. })
                    if !linked && self.is_unlinked(&image) =>
                {
                    guard.release().await?;
                    return Ok(Answer::Stale(Stale::Elsewhere));
                }
                Ok(Judged::Unborn) if self.opens_here(at, &image)? => {
                    Box::pin(self.finish_opening(v, guard, at, &mut image)).await?;
                    continue;
                }
                Ok(Judged::Frozen) => {
                    match Box::pin(self.mend(v, guard, at, &mut image)).await? {
                        Mend::Again => {}
                        Mend::Gone(stale) => return Ok(Answer::Stale(stale)),
                        Mend::Wait => {
                            retry.again(at, Why::Changing).await?;
                            Box::pin(self.have_patience(v, &retry)).await?;
                        }
                    }
                    continue;
                }
                Err(CheckFailure::Torn { .. }) if self.is_doubtful(&guard) => {
                    let torn = self.format.torn_entry(&image, key);
                    match torn {
                        //= docs/protocol/sherman.md S24b
                        // The client that was writing this entry is gone. So this client may overwrite the whole entry.
                        Some(slot) if self.format.accept(&image).is_ok() => Place::Present(slot),
                        _ => {
                            match Box::pin(self.mend(v, guard, at, &mut image)).await? {
                                Mend::Again => {}
                                Mend::Gone(stale) => return Ok(Answer::Stale(stale)),
                                Mend::Wait => {
                                    retry.again(at, Why::Torn).await?;
                                    Box::pin(self.have_patience(v, &retry)).await?;
                                }
                            }
                            continue;
                        }
                    }
                }
                other => {
                    let forward = self.forward(&image);
                    drop(image);
                    match Box::pin(self.turned_away(guard, at, other, forward)).await? {
                        Away::Stale(stale) => return Ok(Answer::Stale(stale)),
                        Away::Wait(why) => retry.again(at, why).await?,
                    }
                    Box::pin(self.have_patience(v, &retry)).await?;
                    continue;
                }
            };
            //= docs/protocol/chime.md H9
            if let Place::Present(slot) = place
                && let Some(range) = self.format.remove_duplicates(&mut image, slot)
            {
                v.write(at.add(range.start as u64), &image[range]).await?;
            }
            match self.edit(&mut image, key, write, place) {
                Ok(Edit::Range(applied, mut range)) => {
                    if self.options.flaws().pointer_first && applied == Applied::Inserted {
                        let word = range.start..range.start + 8;
                        range.start = word.end;
                        v.write(at.add(word.start as u64), &image[word]).await?;
                    }
                    // If this client fails now, possibly only some lines of the entry are written. Then the next writer
                    // must find the lock word suspect.
                    if range.start / LINE_BYTES != (range.end - 1) / LINE_BYTES {
                        guard.doubt_if_lost();
                    }
                    let wanted = guard.is_wanted().await;
                    let chain = v
                        .chain(at.node())
                        .write(at.add(range.start as u64), &image[range]);
                    match wanted {
                        true => Box::pin(guard.hand_on(Some(chain))).await?,
                        false => guard.unlock(Some(chain)).await?,
                    }
                    if let Some(after) = after {
                        self.fold(at, &image, after).map_err(|e| failure(at, e))?;
                    }
                    return match applied == Applied::Removed && self.is_lonely(at, &image)? {
                        true => Ok(Answer::Sparse(applied)),
                        false => Ok(Answer::Done(applied)),
                    };
                }
                Ok(Edit::Nothing(applied)) => {
                    match guard.is_wanted().await {
                        true => Box::pin(guard.hand_on(None)).await?,
                        false => guard.unlock(None).await?,
                    }
                    return Ok(Answer::Done(applied));
                }
                Ok(Edit::Full) => {
                    return Box::pin(self.split(v, guard, at, level, &mut image, (*key, write), after)).await;
                }
                Err(e) => {
                    guard.release().await?;
                    if e.is_torn() {
                        retry.again(at, Why::Torn).await?;
                        continue;
                    }
                    return Err(failure(at, e));
                }
            }
        }
    }

    /// Checks that the value of a write is a word with the mark of its format.
    fn check_word(&self, write: Write<'_>) -> Result<(), IndexError> {
        let mark = self.format.value_mark();
        match write.value().and_then(<[u8]>::first) {
            Some(first) if first & mark != mark => Err(IndexError::BadInput {
                why: "the lowest bit of a word is not set",
            }),
            _ => Ok(()),
        }
    }

    /// Returns whether an earlier change under this lock may have failed midway. If so, torn bytes may stay torn for
    /// ever.
    pub(crate) fn is_doubtful<V: Verbs>(&self, guard: &Guard<'_, V>) -> bool {
        guard.in_doubt() && !self.options.flaws().forgets_doubt
    }

    /// Returns whether a client that got the address from a cache must not wait for this node.
    fn is_unlinked(&self, image: &[u8]) -> bool {
        self.format.is_unborn(image) && !self.options.flaws().waits_for_unborn
    }

    /// Returns the forwarding address of an image whose header is dead. The header lies in one line, so it can be read
    /// even if the image is torn.
    fn forward(&self, image: &[u8]) -> Option<u64> {
        let header = self.format.header(image).ok()?;
        (header.state == NodeState::Dead).then_some(header.sibling)
    }

    /// Releases the lock, because the node does not cover the key, or cannot be written now. `forward` is the
    /// forwarding address if the header is dead. Returns what the writer does next.
    async fn turned_away<V: Verbs>(
        &self,
        guard: Guard<'_, V>,
        at: RemotePtr,
        judged: Result<Judged, CheckFailure>,
        forward: Option<u64>,
    ) -> Result<Away, IndexError> {
        guard.release().await?;
        Ok(match judged {
            Ok(Judged::GoRight { sibling }) => Away::Stale(go_right(at, sibling)?),
            Ok(Judged::Stale(dm_layout::Stale::Dead { forward })) => Away::Stale(follow(forward)),
            Ok(Judged::Stale(_)) => Away::Stale(Stale::Elsewhere),
            Ok(Judged::Here(_) | Judged::Unfinished | Judged::Unborn | Judged::Frozen) => {
                Away::Wait(Why::Changing)
            }
            Err(CheckFailure::Torn { .. }) => match forward {
                // The header is that of a dead node, but other lines are those of the next node in this memory. The
                // client that writes the next node may have died.
                //= docs/protocol/sherman.md S26
                Some(forward) => Away::Stale(follow(forward)),
                // A WRITE of an earlier lock holder is still being executed.
                None => Away::Wait(Why::Torn),
            },
            Err(CheckFailure::Corrupt(what)) => return Err(IndexError::Corrupt { node: at, what }),
        })
    }

    /// Returns whether a writer that finds this locked node linked but unborn must make it live. It must do so for a
    /// root, because the client that created the root may have failed, and for a node of a format that is written
    /// whole. In all other cases the node is the right one of a split, and the splitting client or a writer of the left
    /// node makes it live.
    pub(crate) fn opens_here(&self, at: RemotePtr, image: &[u8]) -> Result<bool, IndexError> {
        let header = self.format.header(image).map_err(|e| failure(at, e))?;
        Ok(header.fences == FenceKeys::ALL || self.format.state_word().is_none())
    }

    /// Returns whether a node from which an entry was removed is sparse and has a neighbour with which it could be
    /// merged. The write has checked only the lines of the header and of the entry, so corrupt bytes elsewhere are
    /// found only here. They cause an error with an unknown effect, although the entry was removed.
    fn is_lonely(&self, at: RemotePtr, image: &[u8]) -> Result<bool, IndexError> {
        let bad = |e| failure(at, e);
        // A node that covers all keys has no neighbour.
        let alone = self.format.header(image).map_err(bad)?.fences == FenceKeys::ALL;
        Ok(!alone && self.is_sparse(image).map_err(bad)?)
    }

    #[inline]
    fn edit(&self, image: &mut [u8], key: &K, write: Write<'_>, place: Place) -> Result<Edit, CheckFailure> {
        let found = match (write, place) {
            (write, Place::Present(slot)) if write.needs_old() => {
                self.format.entry(image, slot)?.map(|(_, value)| value)
            }
            _ => None,
        };
        let Some(write) = write.meeting(found) else {
            return Ok(Edit::Nothing(Applied::Differs));
        };
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
            (Write::Exchange { .. } | Write::Swap { .. }, _) => {
                unreachable!("`meeting` has turned it into another write")
            }
        })
    }
}

/// Returns whether a writer that holds the lock beside sharers can continue. It cannot if the node is full or unborn,
/// if another client's change of the node is unfinished, or if the image is torn or corrupt.
const fn is_for_one_entry(judged: &Result<Judged, CheckFailure>) -> bool {
    matches!(
        judged,
        Ok(Judged::Here(Place::Present(_) | Place::Free(_)) | Judged::GoRight { .. } | Judged::Stale(_))
    )
}

/// Converts a failed check to an error. The caller knows that reading the node again would not help.
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
