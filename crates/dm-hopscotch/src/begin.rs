//! One entry's write, as far as it goes without waiting: a plain function over what the write turns out to be.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use dm_index::{Applied, NodeStore, Write};
use dm_layout::{Judged, KeyBytes, Near, NodeFormat, Place, Reach, Slot, ValueRef};
use dm_lock::{Guard, LockError, Locking, Writing};
use dm_verbs::{Control, LocalStep, RemotePtr, Step, Verbs};

use crate::Neighbourhoods;
use crate::read::stretch;
use crate::write::inserts;

/// Bytes of an entry that lies in a line.
pub(crate) const ENTRY_MAX: usize = 64;

/// A write that was begun: how far it came without waiting, if anywhere.
pub struct Begun<'a, V: Verbs>(pub(crate) Option<Stage<'a, V>>);

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

/// How far a write came without waiting.
pub(crate) enum Stage<'a, V: Verbs> {
    /// To the lock.
    Locking(Option<Locking<'a, V>>),
    /// Not even there.
    Failed(LockError),
    /// To bytes, read under the lock, that one entry's WRITE does not do for.
    Locked(Guard<'a, V>, V::Lease),
    /// To the write-back.
    Writing(Option<Writing<'a, V>>, Done),
    /// To its end, with something else than plain success.
    Over(Result<(), LockError>, Done),
    /// To the local step before the hotspots.
    Noting(Step<'a, V>, Done),
}

/// What a write does to an entry.
#[derive(Clone, Copy)]
pub(crate) struct Done {
    pub(crate) applied: Applied,
    pub(crate) slot: Slot,
    /// There is no other entry in its neighbourhood.
    pub(crate) lonely: bool,
}

/// What a neighbourhood, read under the lock, makes of a write.
pub(crate) enum Edit<'x> {
    /// Nothing is to be written.
    Nothing(Applied),
    /// These bytes, at this offset.
    Bytes(usize, &'x [u8], Done),
    /// No slot is free.
    Full,
    /// It decides nothing.
    Unsure,
}

impl<K: KeyBytes, S> Neighbourhoods<K, S> {
    /// The usual way, as far as it goes without waiting. `Pending`: not to its end, but to the stage in `begun`.
    // A plain function: what it knows stays in registers, where an async one keeps it for a time when it waits.
    #[inline]
    pub(crate) fn begin<'a, V: Verbs + Control>(
        &'a self,
        v: &'a V,
        at: RemotePtr,
        key: &K,
        write: Write<'_>,
        cx: &mut Context<'_>,
        begun: &mut Begun<'a, V>,
    ) -> Poll<Applied>
    where
        S: NodeStore<V, K>,
    {
        if !self.options.vacancy_piggyback {
            return Poll::Pending;
        }
        let mut wait = |stage| {
            begun.0 = Some(stage);
            Poll::Pending
        };
        let hash = self.format.hash(key);
        let reach = self.format.geometry().reach(self.format.home_of(hash));
        let (from, len) = self.behind_lock(at, &reach);
        let mut locking = None;
        let (guard, mut bytes) = match self
            .locks
            .begin_lock_and_read(v, (at, from, len), cx, &mut locking)
        {
            Poll::Ready(Ok(locked)) => locked,
            Poll::Ready(Err(e)) => return wait(Stage::Failed(e)),
            Poll::Pending => return wait(Stage::Locking(locking)),
        };
        let mut entry = [0; ENTRY_MAX];
        let edit = match self.is_near(&reach) {
            true => {
                let near = self.judged(&guard, &reach, &bytes, key, write);
                self.edit(near, key, write, &mut entry)
            }
            false => self.put_whole(&mut bytes, key, write),
        };
        let Edit::Bytes(offset, edit, done) = edit else {
            return wait(Stage::Locked(guard, bytes));
        };
        let chain = v.chain(at.node()).write(at.add(offset as u64), edit);
        let mut writing = None;
        match guard.begin_write_back(chain, cx, &mut writing) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(failed) => return wait(Stage::Over(failed, done)),
            Poll::Pending => return wait(Stage::Writing(writing, done)),
        }
        if done.applied == Applied::Removed {
            return match done.lonely {
                true => wait(Stage::Over(Ok(()), done)),
                false => Poll::Ready(done.applied),
            };
        }
        if let Some(hotspots) = &self.hotspots {
            let mut step = v.local(LocalStep::Section);
            if Pin::new(&mut step).poll(cx).is_pending() {
                return wait(Stage::Noting(step, done));
            }
            hotspots.found(at, hash, self.number(done.slot));
        }
        Poll::Ready(done.applied)
    }

    /// Whether what a writer reads behind its lock is one neighbourhood.
    #[inline]
    pub(crate) fn is_near(&self, reach: &Reach) -> bool {
        self.format.geometry().is_in_line() && reach.second.is_none()
    }

    /// What a writer reads behind its lock: one READ follows it in its chain, of all lines where those that matter are
    /// not together.
    #[inline]
    pub(crate) fn behind_lock(&self, at: RemotePtr, reach: &Reach) -> (RemotePtr, u32) {
        match self.is_near(reach) {
            true => stretch(at, &reach.first),
            false => (at, self.node_len()),
        }
    }

    /// A neighbourhood that was read under the lock.
    #[inline]
    pub(crate) fn judged<'b, V: Verbs>(
        &self,
        guard: &Guard<'_, V>,
        reach: &Reach,
        bytes: &'b [u8],
        key: &K,
        write: Write<'_>,
    ) -> Near<'b> {
        let mut flaws = self.options.flaws.near;
        flaws.stops_at_vacancy &= inserts(write);
        //= docs/protocol/chime.md H5
        match guard.in_doubt() && !self.options.flaws.never_in_doubt {
            true => Near::Unsure,
            false => self.format.near(reach, (bytes, &[]), key, false, flaws),
        }
    }

    /// What `write` does to the neighbourhood `near`. A new entry is put together in `entry`.
    #[inline]
    pub(crate) fn edit<'x>(
        &self,
        near: Near<'_>,
        key: &K,
        write: Write<'x>,
        entry: &'x mut [u8; ENTRY_MAX],
    ) -> Edit<'x> {
        let found = match near {
            Near::Unsure | Near::Found { twice: true, .. } => return Edit::Unsure,
            Near::Found { value, .. } => Some(value),
            Near::Absent { .. } => None,
        };
        let Some(write) = write.meeting(found) else {
            return Edit::Nothing(Applied::Differs);
        };
        match (write, near) {
            (Write::Insert(_), Near::Found { .. }) => Edit::Nothing(Applied::Present),
            (Write::Insert(value) | Write::Upsert(value), Near::Absent { free, version }) => {
                let Some(slot) = free else { return Edit::Full };
                let len = self.format.encode_entry(version, key, value, entry);
                let done = Done {
                    applied: Applied::Inserted,
                    slot,
                    lonely: false,
                };
                Edit::Bytes(slot.offset(), &entry[..len], done)
            }
            (Write::Update(value) | Write::Upsert(value), Near::Found { slot, lonely, .. }) => {
                let done = Done {
                    applied: Applied::Replaced,
                    slot,
                    lonely,
                };
                Edit::Bytes(self.format.value_offset(slot), value, done)
            }
            (
                Write::Remove,
                Near::Found {
                    slot,
                    version,
                    lonely,
                    ..
                },
            ) => {
                entry[0] = dm_layout::Hopscotch::<K>::removed_byte(version);
                let done = Done {
                    applied: Applied::Removed,
                    slot,
                    lonely: lonely && self.options.merges,
                };
                Edit::Bytes(slot.offset(), &entry[..1], done)
            }
            (Write::Update(_) | Write::Remove, Near::Absent { .. }) => Edit::Nothing(Applied::Absent),
            (Write::Exchange { .. }, _) => {
                unreachable!("an exchange that meets what it expects is another write")
            }
            (_, Near::Unsure) => Edit::Unsure,
        }
    }

    /// What an insert that finds room does to a whole node.
    fn put_whole<'x>(&self, image: &'x mut [u8], key: &K, write: Write<'_>) -> Edit<'x> {
        let (Write::Insert(value) | Write::Upsert(value)) = write else {
            return Edit::Unsure;
        };
        let Ok(Judged::Here(Place::Free(slot))) = self.format.judge(image, key, 0) else {
            return Edit::Unsure;
        };
        let range = self.format.put(image, slot, key, ValueRef::from(value));
        let done = Done {
            applied: Applied::Inserted,
            slot,
            lonely: false,
        };
        Edit::Bytes(range.start, &image[range], done)
    }
}
