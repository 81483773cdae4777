//! Suspends clients for a while, as an operating system does.

use std::collections::HashMap;

use dm_verbs::Nanos;

use crate::rng::Dice;

/// The decision whether a poll takes place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Runs,
    /// The task is already suspended.
    Waits,
    /// The task is suspended from now until this time.
    Until(u64),
}

/// The slots of the suspended tasks, and the ends of their suspensions. Times are the engine's, in picoseconds, except
/// for `longest`, which is in nanoseconds.
#[derive(Debug)]
pub(crate) struct Stalls {
    one_in: u64,
    longest: u64,
    dice: Dice,
    until: HashMap<u32, u64>,
}

impl Stalls {
    /// Delays on average one poll in `one_in`, by a time from one nanosecond to `longest` (at most 2^32 - 1 ns).
    pub(crate) fn new(one_in: u32, longest: Nanos, seed: u64) -> Self {
        Self {
            one_in: u64::from(one_in),
            longest: longest.0,
            // A stream that is independent of the engine's own random numbers.
            dice: Dice::new(!seed),
            until: HashMap::new(),
        }
    }

    /// Removes the suspension of slot `task`, in which a new task begins. The last task of the slot may have been
    /// cancelled or crashed while it was suspended, or an event for it may have come after its end.
    pub(crate) fn forget(&mut self, task: u32) {
        self.until.remove(&task);
    }

    /// Returns whether `task` runs if it is polled at `now`. A suspended task runs when its suspension has
    /// ended.
    pub(crate) fn judge(&mut self, task: u32, now: u64) -> Verdict {
        if let Some(&until) = self.until.get(&task) {
            if now < until {
                return Verdict::Waits;
            }
            self.until.remove(&task);
            return Verdict::Runs;
        }
        if self.dice.below(self.one_in) > 0 {
            return Verdict::Runs;
        }
        let until = now + 1_000 * (1 + self.dice.below(self.longest.min(u64::from(u32::MAX))));
        self.until.insert(task, until);
        Verdict::Until(until)
    }
}
