//! Writing one key: lock the node and read the key's neighbourhood, edit an entry, write it back and unlock. An insert
//! into a full neighbourhood is in [`room`](crate::room).

use dm_index::{Answer, Applied, IndexError, NodeCopy, Restructure, Write};
use dm_layout::{
    CheckFailure, Corrupt, Judged, KeyBytes, LINE_BYTES, NodeEdit, NodeRead, Place, Reason, ValueRef,
};
use dm_lock::{Attempted, Guard};
use dm_verbs::{Control, RemotePtr, Verbs};

use crate::Neighbourhoods;
use crate::edit::{Done, ENTRY_MAX, Edit};
use crate::room::Image;

/// The result of a write by the neighbourhood. `None` means that nothing was written. The store of whole nodes must
/// then do the write.
pub(crate) type Written<K> = Result<Option<Answer<K, Applied>>, IndexError>;

impl<K: KeyBytes> Neighbourhoods<K> {
    /// Writes `key` by its neighbourhood.
    pub(crate) async fn write_near<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        at: RemotePtr,
        key: &K,
        write: Write<'_>,
    ) -> Written<K> {
        let reach = self.format.geometry().reach(self.format.home(key));
        let (first, second) = self.under_lock(at, &reach);
        let apart = inserts(write) && !self.options.vacancy_piggyback;
        let (read_at, read_len) = if apart { (at, self.header_len()) } else { first };
        // The guard stays in this frame on the common path, because moving it would cost more than the rest of the
        // write.
        let mut guard = self.locks.approach(v, at)?;
        let mut attempt = guard.attempt(read_at, read_len);
        if let Some((at, len)) = second.filter(|_| !apart) {
            attempt = attempt.and_read(at, len);
        }
        let attempted = (&mut attempt).await?;
        let mut rest = attempt.take_second();
        let mut bytes = match attempted {
            Attempted::Locked(bytes) => bytes.expect("an acquisition with a READ gives bytes"),
            Attempted::Not(obstacle) => {
                //= docs/protocol/reclaim.md R2
                let insisting = guard.insist(obstacle, read_at, read_len);
                let bytes = Box::pin(self.alloc.while_announcing(v, insisting)).await?;
                // The lock was not held yet when this READ was served.
                rest = None;
                bytes
            }
        };
        if apart {
            drop(bytes);
            rest = second.map(|(at, len)| v.read(at, len));
            bytes = v.read(first.0, first.1).await?;
        }
        let rest = match (rest, second) {
            (Some(rest), _) => Some(rest.await?),
            (None, Some((at, len))) => Some(v.read(at, len).await?),
            (None, None) => None,
        };
        if !self.format.geometry().is_in_line() {
            return self.write_whole(v, guard, at, bytes, key, write).await;
        }
        let mut entry = [0; ENTRY_MAX];
        let parts = (&bytes[..], rest.as_deref().unwrap_or(&[]));
        let near = self.judged(&guard, &reach, parts, key, write);
        let edit = self.edit(near, key, write, &mut entry);
        let (offset, edit, done) = match edit {
            Edit::Bytes(offset, edit, done) => (offset, edit, done),
            Edit::Nothing(applied) => {
                match guard.is_wanted().await {
                    true => Box::pin(guard.hand_on(None)).await?,
                    false => guard.unlock(None).await?,
                }
                return Ok(Some(Answer::Done(applied)));
            }
            Edit::Full(version, value) => {
                let mut image = Image::new(&self.format);
                image.fill(&reach.first, &bytes);
                if let (Some(range), Some(rest)) = (&reach.second, &rest) {
                    image.fill(range, rest);
                }
                drop((bytes, rest));
                let room = self.make_room(v, guard, at, (image, version), &reach, (key, value));
                return Box::pin(room).await;
            }
            Edit::Unsure => {
                guard.release().await?;
                return Ok(None);
            }
        };
        drop((bytes, rest));
        let wanted = guard.is_wanted().await;
        let chain = v.chain(at.node()).write(at.add(offset as u64), edit);
        match wanted {
            true => Box::pin(guard.hand_on(Some(chain))).await?,
            false => guard.unlock(Some(chain)).await?,
        }
        Ok(Some(self.written(v, at, key, done).await))
    }

    /// Returns the result of a completed write of one entry.
    async fn written<V: Verbs + Control>(
        &self,
        v: &V,
        at: RemotePtr,
        key: &K,
        done: Done,
    ) -> Answer<K, Applied> {
        if done.applied != Applied::Removed {
            self.remember(v, at, key, done.slot).await;
            return Answer::Done(done.applied);
        }
        // The removed entry was the last one of its neighbourhood, so the node may be sparse. The client reads the
        // whole node to find out. It ignores an error of this READ, because the remove has already taken effect.
        match done.lonely {
            true => match v.read(at, self.node_len()).await {
                Ok(image) => self.removed::<V>(at, &image),
                Err(_) => Answer::Done(done.applied),
            },
            false => Answer::Done(done.applied),
        }
    }

    /// Writes `key` in a node that was read whole under its lock.
    async fn write_whole<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        mut guard: Guard<'a, V>,
        at: RemotePtr,
        mut image: V::Lease,
        key: &K,
        write: Write<'_>,
    ) -> Written<K> {
        let format = &self.format;
        let Ok(Judged::Here(place)) = format.judge(&image, key, 0) else {
            drop(image);
            guard.release().await?;
            return Ok(None);
        };
        //= docs/protocol/chime.md H9
        if let Place::Present(slot) = place
            && let Some(range) = format.remove_duplicates(&mut image, slot)
        {
            v.write(at.add(range.start as u64), &image[range]).await?;
        }
        let found = match (write, place) {
            (write, Place::Present(slot)) if write.needs_old() => match format.entry(&image, slot) {
                Ok(entry) => entry.map(|(_, value)| value),
                Err(e) => {
                    let e = failure(at, e);
                    drop(image);
                    guard.release().await?;
                    return Err(e);
                }
            },
            _ => None,
        };
        let Some(write) = write.meeting(found) else {
            return settled(guard, Applied::Differs).await;
        };
        let (applied, range) = match (write, place) {
            (Write::Insert(_), Place::Present(_)) => return settled(guard, Applied::Present).await,
            (Write::Update(_) | Write::Remove, Place::Free(_) | Place::Full) => {
                return settled(guard, Applied::Absent).await;
            }
            (Write::Update(value) | Write::Upsert(value), Place::Present(slot)) => (
                Applied::Replaced,
                format.update(&mut image, slot, ValueRef::from(value)),
            ),
            (Write::Remove, Place::Present(slot)) => (Applied::Removed, format.remove(&mut image, slot)),
            (Write::Insert(value) | Write::Upsert(value), Place::Free(slot)) => {
                let range = format.put(&mut image, slot, key, ValueRef::from(value));
                (Applied::Inserted, range)
            }
            (Write::Insert(value) | Write::Upsert(value), Place::Full) => {
                // Entries that span lines do not hop.
                let split = self.nodes.split_held(v, guard, at, &mut image, (key, value));
                return split.await.map(Some);
            }
            (Write::Exchange { .. } | Write::Swap { .. }, _) => {
                unreachable!("`Write::meeting` has turned it into another write")
            }
        };
        // If only some lines of the entry were written when this client failed, the next writer must find the lock word
        // suspect.
        if range.len() > LINE_BYTES {
            guard.doubt_if_lost();
        }
        let chain = v
            .chain(at.node())
            .write(at.add(range.start as u64), &image[range]);
        guard.write_back(chain).await?;
        if applied == Applied::Removed {
            return Ok(Some(self.removed::<V>(at, &image)));
        }
        Ok(Some(Answer::Done(applied)))
    }

    /// Returns the result of a completed remove, computed from the image of the node. The node may have changed since.
    /// This is harmless, because the result is only a hint that the node is sparse.
    fn removed<V: Verbs + Control>(&self, at: RemotePtr, image: &[u8]) -> Answer<K, Applied> {
        match Restructure::<V, K>::show(&self.nodes, at, image, &mut NodeCopy::new()) {
            Ok(true) => Answer::Sparse(Applied::Removed),
            Ok(false) | Err(_) => Answer::Done(Applied::Removed),
        }
    }
}

/// Releases the lock without a write, and returns the result.
async fn settled<K, V: Verbs>(guard: Guard<'_, V>, applied: Applied) -> Written<K> {
    guard.release().await?;
    Ok(Some(Answer::Done(applied)))
}

/// Converts a failed check to [`IndexError::Corrupt`]. An earlier check has accepted the same image, so it is not torn.
pub(crate) fn failure(node: RemotePtr, e: CheckFailure) -> IndexError {
    let what = match e {
        CheckFailure::Corrupt(what) => what,
        CheckFailure::Torn { offset, .. } => Corrupt {
            offset,
            reason: Reason::Order,
        },
    };
    IndexError::Corrupt { node, what }
}

/// Returns whether a write may need a free slot.
pub(crate) const fn inserts(write: Write<'_>) -> bool {
    matches!(
        write,
        Write::Insert(_)
            | Write::Upsert(_)
            | Write::Exchange {
                before: None,
                after: Some(_)
            }
    )
}
