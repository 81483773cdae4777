//! Compute nodes that die during a measurement, and the throughput over time.

use dm_verbs::Nanos;

/// The compute nodes that die. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// The first compute node dies at this time and is not replaced.
    At(u64),
    /// At the end of each period of this length, the compute node that has worked longest dies and is replaced.
    Every(u64),
}

/// The faults of a measurement on the simulator. Times are in nanoseconds of the model, counted from the end of the
/// warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// The compute nodes that die.
    pub kill: Option<Kill>,
    /// The time for which a member may be silent; `None` selects the model's lease.
    pub lease: Option<u64>,
    /// Whether the other members expel dead ones and free their locks. If not, no lease ever ends.
    pub recovery: bool,
    /// The length of a slice, if the throughput over time is recorded.
    pub slice: Option<u64>,
}

/// A lease that no run reaches: eleven days.
const ENDLESS: Nanos = Nanos(1_000_000_000_000_000);

impl Faults {
    /// No faults, and nothing recorded.
    pub const NONE: Self = Self {
        kill: None,
        lease: None,
        recovery: true,
        slice: None,
    };

    /// Returns the times of the deaths before `end`.
    pub(crate) fn deaths(&self, end: u64) -> impl Iterator<Item = u64> {
        let (first, step) = match self.kill {
            None => (end, 1),
            Some(Kill::At(at)) => (at, u64::MAX),
            // The setting's check refuses a period of 0; `max` only prevents an endless iterator.
            Some(Kill::Every(every)) => (every, every.max(1)),
        };
        let next = move |at: &u64| at.checked_add(step);
        core::iter::successors(Some(first), next).take_while(move |at| *at < end)
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
        match self.kill {
            None => String::new(),
            Some(Kill::At(at)) => format!("at {}", time(at)),
            Some(Kill::Every(every)) => format!("every {}", time(every)),
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
    /// Operations that ended without an error.
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
        let of = |kill| Faults { kill, ..Faults::NONE }.deaths(30).collect::<Vec<_>>();
        assert!(of(None).is_empty());
        assert_eq!(
            (of(Some(Kill::At(0))), of(Some(Kill::At(29)))),
            (vec![0], vec![29])
        );
        assert!(of(Some(Kill::At(30))).is_empty());
        assert_eq!(of(Some(Kill::Every(10))), [10, 20]);
    }
}
