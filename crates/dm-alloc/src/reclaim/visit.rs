//! Operations of a compute node that do not belong to any of its clients.

use dm_sync::epoch::{Epochs, Running, Seat};
use dm_verbs::{Control, Verbs};

use super::Reclaim;
use crate::{AllocError, Allocator};

/// A seat that is vacated when it is dropped.
struct Seated<'a, V: Verbs> {
    alloc: &'a Allocator,
    v: &'a V,
    seat: Option<Seat>,
}

impl<V: Verbs> Seated<'_, V> {
    fn seat(&self) -> &Seat {
        self.seat.as_ref().expect("the seat is taken only on drop")
    }
}

impl<V: Verbs> Drop for Seated<'_, V> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            self.alloc.vacate(self.v, seat);
        }
    }
}

/// An operation that counts as forgotten (R2a) unless it is completed.
struct Pinned<'s>(Option<Running<'s>>);

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.forget();
        }
    }
}

impl Allocator {
    /// Runs `work`, which is housekeeping such as a part of a round or of a census, as an operation of its own. Returns
    /// `None`, without running `work`, if this client is not enlisted in the compute node's latest membership. If
    /// `work` fails or is dropped, the operation stays announced until this client's requests have landed (R2a).
    pub(crate) async fn within<V: Verbs, T, E>(
        &self,
        v: &V,
        reclaim: &Reclaim,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Option<T>, E> {
        // Both are read in one section, so that the operation belongs to the membership that is compared: a membership
        // ends in such a section, and the generation changes in it. The roster does not say whether the compute node is
        // a member, because it keeps the number of the last membership.
        let (generation, member) = reclaim
            .membership
            .with(|m| (reclaim.epochs.generation(), m.number()));
        if member != Some(self.roster.number_of(v.client().0)) {
            return Ok(None);
        }
        let seated = Seated {
            alloc: self,
            v,
            seat: Some(Epochs::seat(&reclaim.epochs)),
        };
        let seat = seated.seat();
        seat.enroll(generation, 1);
        let Some(running) = seat.enter() else {
            return Ok(None);
        };
        let mut pinned = Pinned(Some(running));
        let done = work.await?;
        pinned.0.take();
        Ok(Some(done))
    }

    /// Runs `work` as an operation of its own, beside the operation that this client runs now. Use this for
    /// housekeeping whose result that operation does not need. Returns `None`, without running `work`, if this client
    /// is not enlisted in the compute node's latest membership. If `work` fails or is dropped, its operation stays
    /// announced until this client's requests have landed (R2a), even if the client's own operation ends before. If the
    /// pool reclaims nothing, this only runs `work`.
    ///
    /// # Errors
    /// Returns the errors of `work`.
    pub async fn beside<V: Verbs, T, E>(
        &self,
        v: &V,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Option<T>, E> {
        match &self.reclaim {
            Some(reclaim) => self.within(v, reclaim, work).await,
            None => work.await.map(Some),
        }
    }

    /// Runs `work` as an operation of this compute node, so that memory that `work` reads is not reused before `work`
    /// ends. Use this for work that belongs to no client, such as filling a cache. If `work` fails or is dropped, its
    /// operation stays announced until this client's requests have landed (R2a).
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::prepare`] and of `work`.
    pub async fn visit<V: Verbs + Control, T, E: From<AllocError>>(
        &self,
        v: &V,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let Some(epochs) = self.epochs() else {
            return work.await;
        };
        let seated = Seated {
            alloc: self,
            v,
            seat: Some(Epochs::seat(epochs)),
        };
        let seat = seated.seat();
        let running = loop {
            if let Some(running) = seat.enter() {
                break running;
            }
            self.prepare(v, seat).await?;
        };
        let mut pinned = Pinned(Some(running));
        let done = work.await?;
        pinned.0.take();
        Ok(done)
    }

    /// Does a round like [`Allocator::collect`], with a seat of its own. Three such rounds on every compute node free
    /// all blocks that were retired before the first round, unless an operation that began before still runs.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::prepare`].
    pub async fn collect_alone<V: Verbs + Control>(&self, v: &V) -> Result<(), AllocError> {
        let Some(epochs) = self.epochs() else {
            return Ok(());
        };
        let collected = {
            let seat = Epochs::seat(epochs);
            self.collect(v, &seat).await
        };
        self.leave_if_empty(v);
        collected
    }

    /// Ends the membership if this compute node has no clients, so that no other member waits for it.
    pub fn leave_if_empty<V: Verbs>(&self, v: &V) {
        if self.epochs().is_some_and(|epochs| epochs.seats() == 0) {
            self.leave(v);
        }
    }
}
