//! Operations of a compute node that do not belong to any of its clients.

use dm_sync::epoch::Epochs;
use dm_verbs::{Control, Verbs};

use crate::{AllocError, Allocator};

impl Allocator {
    /// Runs `work` as an operation of this compute node: memory that it reads is not reused before it ends. It is meant
    /// for work that belongs to no client, such as filling a cache.
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
        let done = {
            let seat = Epochs::seat(epochs);
            let running = loop {
                if let Some(running) = seat.enter() {
                    break running;
                }
                self.prepare(v, &seat).await?;
            };
            let done = work.await;
            drop(running);
            done
        };
        self.leave_if_empty(v);
        done
    }

    /// Does a round like [`Allocator::collect`], without a seat of the caller. Three such rounds on every compute node
    /// free all blocks that were retired before the first round.
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
