//! Compute nodes that die during a measurement, and the throughput over time.

use dm_verbs::Nanos;

/// The faults of a measurement on the simulator. Times are in nanoseconds of the model, and begin at the end of the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// When the first compute node dies. No other one takes its place.
    pub kill_at: Option<u64>,
    /// The time between two deaths of compute nodes. A new compute node takes the place of each dead one, and the one that
    /// has worked for the longest time dies next.
    pub kill_every: Option<u64>,
    /// How long a member may be silent, instead of the model's lease.
    pub lease: Option<u64>,
    /// Whether the others expel dead members, which frees their locks. Without it, no lease ever ends.
    pub recovery: bool,
    /// The length of a slice, if the throughput over time is recorded.
    pub slice: Option<u64>,
}

/// A lease that no run reaches: eleven days.
const ENDLESS: Nanos = Nanos(1_000_000_000_000_000);

impl Faults {
    /// No faults, and nothing recorded.
    pub const NONE: Self = Self {
        kill_at: None,
        kill_every: None,
        lease: None,
        recovery: true,
        slice: None,
    };

    /// Returns whether compute nodes die.
    pub fn kills(&self) -> bool {
        self.kill_at.is_some() || self.kill_every.is_some()
    }

    /// Returns the times of the deaths before `end`.
    pub(crate) fn deaths(&self, end: u64) -> impl Iterator<Item = u64> {
        let every = self.kill_every.filter(|every| *every > 0);
        let many = every.map_or(0, |every| end.saturating_sub(1) / every);
        let all = (1..=many).map(move |nth| every.unwrap_or(0) * nth);
        self.kill_at.filter(|at| *at < end).into_iter().chain(all)
    }

    /// Returns the lease, unless it is the model's.
    pub(crate) fn lease(&self) -> Option<Nanos> {
        match self.recovery {
            true => self.lease.map(Nanos),
            false => Some(ENDLESS),
        }
    }

    /// Describes when compute nodes die; empty if they do not.
    pub(crate) fn text(&self) -> String {
        let time = |nanos: u64| format!("{} ms", nanos as f64 / 1e6);
        match (self.kill_at, self.kill_every) {
            (None, None) => String::new(),
            (Some(at), None) => format!("at {}", time(at)),
            (None, Some(every)) => format!("every {}", time(every)),
            (Some(at), Some(every)) => format!("at {}, every {}", time(at), time(every)),
        }
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

/// The operations that ended in one slice of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slice {
    /// Operations that ended.
    pub ops: u64,
    /// Operations that ended in an error. Only a run with deaths continues after errors.
    pub failed: u64,
}

/// The consequences of the deaths in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deaths {
    /// Compute nodes that died.
    pub killed: u64,
    /// Members that were expelled.
    pub expelled: u64,
    /// Locks of dead members that were freed.
    pub freed_locks: u64,
    /// Operations that ended in an error.
    pub failed_ops: u64,
    /// For each death after which a member was expelled, the nanoseconds until all of its locks were free.
    pub recoveries: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_come_before_the_end() {
        let of = |kill_at, kill_every| {
            let faults = Faults {
                kill_at,
                kill_every,
                ..Faults::NONE
            };
            faults.deaths(30).collect::<Vec<_>>()
        };
        assert!(of(None, None).is_empty());
        assert_eq!((of(Some(29), None), of(Some(30), None)), (vec![29], vec![]));
        assert_eq!((of(None, Some(10)), of(None, Some(0))), (vec![10, 20], vec![]));
    }
}
