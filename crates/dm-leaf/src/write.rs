//! Writing one key: lock and read, judge, edit, write back and unlock.

use core::fmt;
use core::task::{Context, Poll};

use dm_index::{Answer, Applied, IndexError, Lead, NodeCopy, Stale, Write};
use dm_layout::{CheckFailure, FenceKeys, Judged, KeyBytes, NodeFormat, Place, ValueRef};
use dm_lock::{Guard, LockError, Locking, Writing};
use dm_verbs::{Control, RemotePtr, Verbs, Why, at_once};

use crate::Nodes;
use crate::read::{follow, go_right};

/// What to do about a node that does not let the writer in.
enum Away {
    /// Look elsewhere.
    Stale(Stale),
    /// Try again.
    Wait(Why),
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

/// A write that was begun: how far it came without waiting, if anywhere.
pub struct Begun<'a, V: Verbs>(Option<Stage<'a, V>>);

impl<V: Verbs> Default for Begun<'_, V> {
    #[inline]
    fn default() -> Self {
        Self(None)
    }
}

impl<V: Verbs> fmt::Debug for Begun<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Begun").finish_non_exhaustive()
    }
}

/// One write to one key.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'k, K> {
    at: RemotePtr,
    linked: bool,
    level: u8,
    key: &'k K,
    write: Write<'k>,
}

impl<'k, K> Wanted<'k, K> {
    #[inline]
    pub(crate) fn new(Lead { at, linked }: Lead, (level, key): (u8, &'k K), write: Write<'k>) -> Self {
        Self {
            at,
            linked,
            level,
            key,
            write,
        }
    }
}

/// How far a write came without waiting.
enum Stage<'a, V: Verbs> {
    /// To the lock.
    Locking(Option<Locking<'a, V>>),
    /// Not even there.
    Locked(LockError),
    /// To a node that is not let be written with one entry's WRITE.
    Judged(Guard<'a, V>, V::Lease, Result<Judged, CheckFailure>),
    /// To the write-back.
    Writing(Option<Writing<'a, V>>, V::Lease, Applied),
    /// To its end, with something else than plain success.
    Over(Result<(), LockError>, V::Lease, Applied),
}

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    pub(crate) async fn write_entry<V: Verbs + Control>(
        &self,
        v: &V,
        at: Lead,
        level: u8,
        key: &K,
        write: Write<'_>,
        after: Option<&mut NodeCopy<K>>,
    ) -> Result<Answer<K, Applied>, IndexError> {
        let wanted = Wanted::new(at, (level, key), write);
        let mut begun = Begun::default();
        if after.is_none()
            && let Poll::Ready(applied) = at_once(|cx| self.begin(v, &wanted, cx, &mut begun)).await
        {
            return Ok(Answer::Done(applied));
        }
        self.write_slowly(v, wanted, after, begun).await
    }

    /// The usual way, as far as it goes without waiting. `Pending`: not to its end, but to the stage in `later`.
    // A plain function: what it knows stays in registers, where an async one keeps it for a time when it waits.
    #[inline]
    pub(crate) fn begin<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        &Wanted {
            at,
            level,
            key,
            write,
            ..
        }: &Wanted<'_, K>,
        cx: &mut Context<'_>,
        begun: &mut Begun<'a, V>,
    ) -> Poll<Applied> {
        if self.shares(write) {
            return Poll::Pending;
        }
        let mut wait = |stage| {
            begun.0 = Some(stage);
            Poll::Pending
        };
        let mut locking = None;
        let node = (at, at, self.node_len());
        let (guard, mut image) = match self.locks.begin_lock_and_read(v, node, cx, &mut locking) {
            Poll::Ready(Ok(locked)) => locked,
            Poll::Ready(Err(e)) => return wait(Stage::Locked(e)),
            Poll::Pending => return wait(Stage::Locking(locking)),
        };
        let place = match self.format.judge(&image, key, level) {
            Ok(Judged::Here(place)) if !self.is_twofold(&image, place) => place,
            other => return wait(Stage::Judged(guard, image, other)),
        };
        let (applied, range) = match (write, place) {
            // What there is most of, without the way round.
            (Write::Insert(value) | Write::Upsert(value), Place::Free(slot)) => {
                let range = self.format.put(&mut image, slot, key, ValueRef::from(value));
                (Applied::Inserted, range)
            }
            (Write::Update(value) | Write::Upsert(value), Place::Present(slot)) => {
                let range = self.format.update(&mut image, slot, ValueRef::from(value));
                (Applied::Replaced, range)
            }
            _ => match self.edit(&mut image, key, write, place) {
                Ok(Edit::Range(applied, range)) => (applied, range),
                // The image is as it was.
                _ => return wait(Stage::Judged(guard, image, Ok(Judged::Here(place)))),
            },
        };
        let chain = v
            .chain(at.node())
            .write(at.add(range.start as u64), &image[range]);
        let mut writing = None;
        match guard.begin_write_back(chain, cx, &mut writing) {
            Poll::Ready(Ok(())) if applied != Applied::Removed => Poll::Ready(applied),
            Poll::Ready(done) => wait(Stage::Over(done, image, applied)),
            Poll::Pending => wait(Stage::Writing(writing, image, applied)),
        }
    }

    /// Whether the key lies in two slots, so that one WRITE does not do.
    #[inline]
    fn is_twofold(&self, image: &[u8], place: Place) -> bool {
        match place {
            Place::Present(slot) => F::TWINS && self.format.has_twins(image, slot),
            Place::Free(_) | Place::Full => false,
        }
    }

    /// The answer to a write that has come through.
    #[inline]
    fn written(
        &self,
        at: RemotePtr,
        image: &[u8],
        applied: Applied,
    ) -> Result<Answer<K, Applied>, IndexError> {
        match applied == Applied::Removed && self.is_lonely(at, image)? {
            true => Ok(Answer::Sparse(applied)),
            false => Ok(Answer::Done(applied)),
        }
    }

    /// The rest of a write that has to wait, or to try again.
    pub(crate) async fn write_slowly<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        Wanted {
            at,
            linked,
            level,
            key,
            write,
        }: Wanted<'_, K>,
        after: Option<&mut NodeCopy<K>>,
        Begun(mut begun): Begun<'a, V>,
    ) -> Result<Answer<K, Applied>, IndexError> {
        if begun.is_none() && after.is_none() && self.shares(write) {
            let shared = self.write_shared(v, at, (level, key), write).await?;
            if let Some(answer) = shared {
                return Ok(answer);
            }
        }
        let mut retry = v.retry(self.options.attempts);
        loop {
            let (guard, mut image, judged) = match begun.take() {
                Some(Stage::Judged(guard, image, judged)) => (guard, image, judged),
                Some(Stage::Locked(e)) => return Err(e.into()),
                Some(Stage::Over(done, image, applied)) => {
                    done?;
                    return self.written(at, &image, applied);
                }
                Some(Stage::Writing(writing, image, applied)) => {
                    Writing::resume(writing).await?;
                    return self.written(at, &image, applied);
                }
                begun => {
                    let locked = async {
                        match begun {
                            Some(Stage::Locking(locking)) => Locking::resume(locking).await,
                            _ => self.locks.lock_and_read(v, at, at, self.node_len()).await,
                        }
                    };
                    //= docs/protocol/reclaim.md R2
                    let (guard, image) = self.alloc.tending(v, locked).await?;
                    let judged = self.format.judge(&image, key, level);
                    (guard, image, judged)
                }
            };
            let place = match judged {
                Ok(Judged::Here(place)) => place,
                Ok(Judged::Unfinished) => {
                    self.finish_split(v, guard, at, &mut image).await?;
                    continue;
                }
                //= docs/protocol/reclaim.md R9
                Ok(Judged::Unborn) if !linked => {
                    guard.release().await?;
                    return Ok(Answer::Stale(Stale::Elsewhere));
                }
                Ok(Judged::Unborn) if self.opens_here(at, &image)? => {
                    self.finish_birth(v, guard, at, &mut image).await?;
                    continue;
                }
                other => {
                    drop(image);
                    match self.turned_away(guard, at, other).await? {
                        Away::Stale(stale) => return Ok(Answer::Stale(stale)),
                        Away::Wait(why) => retry.again(at, why).await?,
                    }
                    self.have_patience(v, &retry).await?;
                    continue;
                }
            };
            //= docs/protocol/chime.md H9
            if let Place::Present(slot) = place
                && let Some(range) = self.format.part_twins(&mut image, slot)
            {
                v.write(at.add(range.start as u64), &image[range]).await?;
            }
            match self.edit(&mut image, key, write, place) {
                Ok(Edit::Range(applied, range)) => {
                    let chain = v
                        .chain(at.node())
                        .write(at.add(range.start as u64), &image[range]);
                    guard.write_back(chain).await?;
                    if let Some(after) = after {
                        self.fold(at, &image, after).map_err(|e| failure(at, e))?;
                    }
                    return self.written(at, &image, applied);
                }
                Ok(Edit::Nothing(applied)) => {
                    guard.release().await?;
                    return Ok(Answer::Done(applied));
                }
                Ok(Edit::Full) => {
                    return self.split(v, guard, at, level, image, (*key, write), after).await;
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

    /// Gives the lock back: the node does not answer for the key, or not now.
    async fn turned_away<V: Verbs>(
        &self,
        guard: Guard<'_, V>,
        at: RemotePtr,
        judged: Result<Judged, CheckFailure>,
    ) -> Result<Away, IndexError> {
        guard.release().await?;
        Ok(match judged {
            Ok(Judged::GoRight { sibling }) => Away::Stale(go_right(at, sibling)?),
            Ok(Judged::Stale(dm_layout::Stale::Dead { forward })) => Away::Stale(follow(forward)),
            Ok(Judged::Stale(_)) => Away::Stale(Stale::Elsewhere),
            Ok(Judged::Here(_) | Judged::Unfinished | Judged::Unborn | Judged::Frozen) => {
                Away::Wait(Why::Changing)
            }
            // An earlier holder's WRITE is still landing.
            Err(CheckFailure::Torn { .. }) => Away::Wait(Why::Torn),
            Err(CheckFailure::Corrupt(what)) => return Err(IndexError::Corrupt { node: at, what }),
        })
    }

    /// Whether whoever finds this node linked and unborn, under its lock, is to make it live: a root, whose maker may have
    /// given up, or a node of a format that is written whole. (Of others' right nodes the splitter does it.)
    fn opens_here(&self, at: RemotePtr, image: &[u8]) -> Result<bool, IndexError> {
        let header = self.format.header(image).map_err(|e| failure(at, e))?;
        Ok(header.fences == FenceKeys::ALL || self.format.state_word().is_none())
    }

    /// Whether a node that an entry was removed from should be merged with a neighbour, and has one. The write rested on
    /// the lines of header and entry alone: bytes elsewhere that contradict themselves are found only here, and reported
    /// with an unknown effect, though the entry is gone.
    fn is_lonely(&self, at: RemotePtr, image: &[u8]) -> Result<bool, IndexError> {
        let bad = |e| failure(at, e);
        // A node that answers for all keys has no neighbour.
        let alone = self.format.header(image).map_err(bad)?.fences == FenceKeys::ALL;
        Ok(!alone && self.is_sparse(image).map_err(bad)?)
    }

    #[inline]
    fn edit(&self, image: &mut [u8], key: &K, write: Write<'_>, place: Place) -> Result<Edit, CheckFailure> {
        let found = match (write, place) {
            (Write::Exchange { .. }, Place::Present(slot)) => self.format.entry(image, slot)?.map(|(_, v)| v),
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
            (Write::Exchange { .. }, _) => unreachable!("an exchange is another write by now"),
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
