//! The only retry loop: bounded, paused, metered, and ending in a typed error.

use core::fmt;

use crate::{Env, Event, Nanos, Place};

/// The reason for repeating an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// A remote lock is held.
    LockHeld {
        /// The lock word as last seen.
        word: u64,
    },
    /// A READ was torn.
    Torn,
    /// A cached address or fence key was out of date.
    Stale,
    /// A CAS failed because another client changed the word first.
    Raced,
    /// A node is being split or merged.
    Changing,
}

/// The error that the budget of a retry loop is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted {
    /// The address that the last attempt accessed.
    pub at: Place,
    /// The reason why this attempt failed.
    pub why: Why,
    /// Number of attempts that were made.
    pub attempts: u32,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gave up at {} after {} attempts: ", self.at, self.attempts)?;
        match self.why {
            Why::LockHeld { word } => write!(f, "lock held (word {word:#018x})"),
            Why::Torn => f.write_str("every READ was torn"),
            Why::Stale => f.write_str("addresses kept being out of date"),
            Why::Raced => f.write_str("every CAS lost its race"),
            Why::Changing => f.write_str("the node kept changing"),
        }
    }
}

impl core::error::Error for Exhausted {}

/// A bounded retry loop. See [`crate::Verbs::retry`].
///
/// A failed attempt must not change the caller's state, because an explorer merges all failed attempts. If an attempt
/// has changed the state, call [`Retry::again_wiser`] instead of [`Retry::again`].
///
/// ```
/// use dm_verbs::{Exhausted, RemotePtr, Retry, Verbs, Why};
///
/// /// Takes a lock word; at most a hundred attempts, with a pause between them.
/// async fn lock<V: Verbs>(v: &V, at: RemotePtr) -> Result<(), Box<dyn core::error::Error>> {
///     let mut retry: Retry<'_, V> = v.retry(100);
///     loop {
///         match v.cas(at, 0, 1).await? {
///             0 => return Ok(()),
///             word => retry.again(at, Why::LockHeld { word }).await.map_err(|e: Exhausted| e)?,
///         }
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Retry<'e, E> {
    env: &'e E,
    mark: u64,
    made: u32,
    budget: u32,
    /// The time at which [`Retry::again_within`] first found the budget used up.
    since: Option<Nanos>,
}

impl<'e, E: Env> Retry<'e, E> {
    pub(crate) fn new(env: &'e E, budget: u32) -> Self {
        Self {
            env,
            mark: env.mark(),
            made: 0,
            budget: env.budget(budget),
            since: None,
        }
    }

    /// Counts a failed attempt at `at`, and pauses before the next one.
    ///
    /// # Errors
    /// Returns [`Exhausted`] if no attempt is left.
    pub async fn again(&mut self, at: impl Into<Place>, why: Why) -> Result<(), Exhausted> {
        self.count(at.into(), why)?;
        self.env.rewind(self.mark);
        self.env.pause().await;
        Ok(())
    }

    /// Counts a failed attempt and pauses like [`Retry::again`], but the loop may continue beyond its budget for as
    /// long as `limit`. Use it to wait for another client: the thread of that client may not run for a while, and no
    /// number of attempts is certain to cover this time.
    ///
    /// # Errors
    /// Returns [`Exhausted`] if no attempt is left, and `limit` has passed since the budget was used up.
    pub async fn again_within(
        &mut self,
        limit: Nanos,
        at: impl Into<Place>,
        why: Why,
    ) -> Result<(), Exhausted> {
        if let Err(exhausted) = self.count(at.into(), why) {
            // Outside the explorer, `bounded` is always false, and only `limit` ends the loop. The explorer bounds the
            // attempts if its knobs require this. Otherwise the explorer does not get here, because it rewinds the
            // attempts.
            let bounded = self.made > self.env.budget(u32::MAX);
            let since = *self.since.get_or_insert_with(|| self.env.now());
            if bounded || self.env.elapsed(since, limit) {
                return Err(exhausted);
            }
        }
        self.env.rewind(self.mark);
        self.env.pause().await;
        Ok(())
    }

    fn count(&mut self, at: Place, why: Why) -> Result<(), Exhausted> {
        let meter = self.env.meter();
        match why {
            Why::LockHeld { .. } => meter.note(Event::LockRetry),
            Why::Torn => meter.note(Event::TornRead),
            Why::Stale => meter.note(Event::StaleRead),
            Why::Raced | Why::Changing => {}
        }
        self.made = self.made.saturating_add(1);
        if self.made >= self.budget {
            return Err(Exhausted {
                at,
                why,
                attempts: self.made,
            });
        }
        Ok(())
    }

    /// Counts a failed attempt that has changed the caller's state, and pauses like [`Retry::again`]. The explorer
    /// keeps this change: it rewinds later attempts only to this point.
    ///
    /// # Errors
    /// Returns [`Exhausted`] if no attempt is left.
    pub async fn again_wiser(&mut self, at: impl Into<Place>, why: Why) -> Result<(), Exhausted> {
        self.count(at.into(), why)?;
        self.env.pause().await;
        // A rewind beyond the changes of this attempt would lead to a state that the loop never had.
        self.mark = self.env.mark();
        Ok(())
    }

    /// Returns how many attempts have failed so far.
    pub fn failed(&self) -> u32 {
        self.made
    }
}
