//! Implements `Reclaim` for the allocator: an index announces its operations through it.

use dm_index::{IndexError, Reclaim};
use dm_sync::epoch::Seat;
use dm_verbs::{Control, Verbs};

use crate::Allocator;

impl<V: Verbs + Control> Reclaim<V> for Allocator {
    fn seat(&self, v: &V) -> Option<Seat> {
        Self::seat(self, v)
    }

    #[inline]
    fn is_due(&self, v: &V) -> bool {
        Self::is_due(self, v)
    }

    async fn prepare(&self, v: &V, seat: &Seat) -> Result<(), IndexError> {
        Ok(Self::prepare(self, v, seat).await?)
    }

    async fn keep_alive(&self, v: &V, seat: &Seat) -> Result<(), IndexError> {
        Ok(Self::keep_alive(self, v, seat).await?)
    }

    async fn announce_if_due(&self, v: &V) -> Result<(), IndexError> {
        Ok(Self::announce_if_due(self, v).await?)
    }

    async fn while_announcing<T>(&self, v: &V, work: impl Future<Output = T>) -> T {
        Self::while_announcing(self, v, work).await
    }

    async fn land(&self, v: &V) -> Result<(), IndexError> {
        Ok(Self::land(self, v).await?)
    }

    fn vacate(&self, v: &V, seat: Seat) {
        Self::vacate(self, v, seat);
    }
}
