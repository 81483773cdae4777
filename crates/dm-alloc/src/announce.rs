//! The allocator as the handle by which an index announces its operations.

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

    async fn attend(&self, v: &V, seat: &Seat) -> Result<(), IndexError> {
        Ok(Self::attend(self, v, seat).await?)
    }

    async fn beat(&self, v: &V, seat: &Seat) -> Result<(), IndexError> {
        Ok(Self::beat(self, v, seat).await?)
    }

    async fn tend(&self, v: &V) -> Result<(), IndexError> {
        Ok(Self::tend(self, v).await?)
    }

    fn vacate(&self, v: &V, seat: Seat) {
        Self::vacate(self, v, seat);
    }
}
