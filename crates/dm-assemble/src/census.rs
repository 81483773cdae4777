//! Takes a census of an index: finds the blocks that dead members have lost, and gives them back.

use dm_alloc::{AllocError, Census, CensusStep, Restored, rest};
use dm_index::IndexError;
use dm_verbs::{Control, Nanos, Verbs};

use crate::check::{WALKS, Walk};
use crate::{Handle, Parts};

/// Number of leases after which a step of a census is given up if a member does not answer.
const CENSUS_LEASES: u64 = 8;
/// Shortest time after which a step of a census is given up. It allows for compute nodes that cache addresses, which
/// begin operations in a later epoch only after two turns of their caches.
const CENSUS_LEAST: Nanos = Nanos::from_millis(2000);
/// Each list of blocks that the members are asked about adds a lease divided by this number to the time limit. A busy
/// member works through only one list at each look, and it makes at least about 62 looks in a lease.
const LIST_PARTS: u64 = 16;
/// Between two rounds, a census waits for a lease divided by this number.
const CENSUS_PARTS: u64 = 64;

/// The result of a census.
pub(crate) enum Outcome {
    Restored(Restored),
    /// The census ended without a result in this step. The reason may be that members came and went, that one did not
    /// answer, or that the index was in change during each walk.
    Disturbed(&'static str),
    /// A walk cannot reach all nodes of this kind of index.
    Impossible,
}
impl<P: Parts> Handle<P> {
    /// Finds the blocks that dead members have lost, and gives them back.
    pub(crate) async fn take_census<V: Verbs + Control>(&self, v: &V) -> Result<Outcome, IndexError> {
        let beginning = Box::pin(self.alloc.begin_census(v));
        let Some(mut census) = self.alloc.while_announcing(v, beginning).await? else {
            return Ok(Outcome::Disturbed(
                "opening the census, because another member takes one",
            ));
        };
        //= docs/protocol/recovery.md V20
        let patience = self.patience();
        if !self.until(v, patience, async || census.told().await).await? {
            return Ok(Outcome::Disturbed("waiting until all members take part"));
        }
        census.grace().await?;
        if !self.until(v, patience, async || census.quiet().await).await? {
            return Ok(Outcome::Disturbed("waiting for operations before the walk"));
        }
        let walk = Box::pin(self.whole_walk(v));
        let Some(walk) = self.alloc.visit(v, walk).await? else {
            return Ok(Outcome::Disturbed("the walk, which did not reach all nodes"));
        };
        let Some(reached) = walk.survey.reached else {
            return Ok(Outcome::Impossible);
        };
        census.know(&reached);
        drop(reached);
        let knowing = Box::pin(census.know_depots());
        if self.alloc.while_announcing(v, knowing).await? != CensusStep::Done {
            return Ok(Outcome::Disturbed("reading the depots, which changed each time"));
        }
        census.grace().await?;
        if !self.until(v, patience, async || census.quiet().await).await? {
            return Ok(Outcome::Disturbed("waiting for operations after the walk"));
        }
        self.ask(v, census).await
    }

    /// Does the second half of a census: asks the members which of the other blocks they hold, closes the census, and
    /// gives the lost blocks back.
    async fn ask<V: Verbs + Control>(&self, v: &V, mut census: Census<'_, V>) -> Result<Outcome, IndexError> {
        let asking = async { Ok::<_, IndexError>(self.alloc.while_announcing(v, census.ask()).await?) };
        let asked = self.alloc.visit(v, Box::pin(asking));
        if asked.await? != CensusStep::Done {
            return Ok(Outcome::Disturbed(
                "asking the members, because one of them has closed the census",
            ));
        }
        let patience = Nanos(self.patience().0 + census.lists() * self.alloc.lease().0 / LIST_PARTS);
        if !self.until(v, patience, async || census.told().await).await? {
            return Ok(Outcome::Disturbed("waiting until all members say what they hold"));
        }
        let Some(restored) = census.close().await? else {
            return Ok(Outcome::Disturbed(
                "closing the census, because another member did so first or has expelled this one",
            ));
        };
        let has_clients = self.alloc.epochs().is_some_and(|epochs| epochs.seats() > 1);
        if has_clients {
            return Ok(Outcome::Restored(restored));
        }
        // No other client of this compute node is at work, so the compute node may leave the pool after the sweep. The
        // blocks must be in the depots by then, or they are lost again.
        let since = v.now();
        while self.alloc.stats().limbo_bytes > 0 && !v.elapsed(since, self.patience()) {
            self.collect(v).await?;
            rest(v, Nanos(self.alloc.lease().0 / CENSUS_PARTS)).await;
        }
        self.alloc.give_away(v).await?;
        Ok(Outcome::Restored(restored))
    }

    /// Walks up to `WALKS` times, until a walk has reached all nodes. Returns that walk, or `None` if no walk has.
    async fn whole_walk<V: Verbs + Control>(&self, v: &V) -> Result<Option<Walk>, IndexError> {
        for _ in 0..WALKS {
            let walk = self.walk(v, self.survey_of(false).recording()).await?;
            if walk.reached_all() {
                return Ok(Some(walk));
            }
        }
        Ok(None)
    }

    /// Returns the time after which a step of a census is given up, without the additional time for lists of blocks.
    fn patience(&self) -> Nanos {
        let lease = self.alloc.lease();
        Nanos(lease.0.saturating_mul(CENSUS_LEASES).max(CENSUS_LEAST.0))
    }

    /// Does rounds until a step of a census is done. Returns `false` if the census is over, or a member does not answer
    /// within `patience`.
    async fn until<V: Verbs + Control>(
        &self,
        v: &V,
        patience: Nanos,
        step: impl AsyncFn() -> Result<CensusStep, AllocError>,
    ) -> Result<bool, IndexError> {
        let since = v.now();
        loop {
            self.collect(v).await?;
            match step().await? {
                CensusStep::Done => return Ok(true),
                CensusStep::Over => return Ok(false),
                CensusStep::Waits if v.elapsed(since, patience) => return Ok(false),
                CensusStep::Waits => rest(v, Nanos(self.alloc.lease().0 / CENSUS_PARTS)).await,
            }
        }
    }
}
