//! Settings that are refused before anything runs, because they are invalid or need more memory than the machine has.

use std::fmt;
use std::fs;

use dm_workload::{OpKind, WorkloadError};

use crate::{Fabric, Faults, Kill, Point, Setting};

/// Approximate number of operations, and below of loaded keys, that one core simulates per second.
const OPS_PER_SECOND: f64 = 3e5;
const KEYS_PER_SECOND: f64 = 1.5e6;
/// Maximum number of slices of time in one run, and below of deaths.
const SLICES_MAX: u64 = 100_000;
const DEATHS_MAX: usize = 1_000;

/// The reason why a setting is not measured.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// A count that must be at least 1 is 0.
    None {
        /// The name of the count, and the option that sets it.
        what: &'static str,
    },
    /// Values are too short for the stamp.
    ValueBytes {
        /// The size of a value in bytes.
        bytes: usize,
    },
    /// The workload is invalid: for example, no keys are loaded, or there are too many clients.
    Workload(WorkloadError),
    /// The run has a warm-up or a duration, but the world has no clock that all clients share.
    Clock,
    /// The faults can't happen in this setting.
    Faults {
        /// The reason.
        why: &'static str,
    },
    /// The machine has less memory than the point needs.
    Memory {
        /// The estimate of the need.
        needs: Needs,
        /// The bytes of the estimate that do not depend on the numbers of keys and inserts.
        fixed: u64,
        /// Bytes of available memory.
        available: u64,
        /// The keys of the setting.
        keys: u64,
        /// The inserts of the setting.
        inserts: u64,
    },
}

/// A rough estimate of the memory and time that a point needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Needs {
    /// Bytes of this machine's memory.
    pub bytes: u64,
    /// Seconds, if the world is the simulator.
    pub seconds: f64,
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabytes = self.bytes as f64 / 1e9;
        let (time, unit) = match self.seconds {
            s if s < 120.0 => (s, "seconds"),
            s if s < 7200.0 => (s / 60.0, "minutes"),
            s => (s / 3600.0, "hours"),
        };
        write!(f, "{gigabytes:.1} GB of memory and roughly {time:.0} {unit}")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None { what } => write!(f, "there must be at least one {what}"),
            Self::ValueBytes { bytes } => write!(
                f,
                "values of {bytes} bytes: a value has at least 8 bytes (--value-size), a stamp by which every read is checked"
            ),
            Self::Workload(e) => e.fmt(f),
            Self::Clock => write!(
                f,
                "the machines of a cluster have no common clock: --warmup and --duration are for the simulator and loopback"
            ),
            Self::Faults { why } => f.write_str(why),
            Self::Memory {
                needs,
                fixed,
                available,
                keys,
                inserts,
            } => {
                let gigabytes = *available as f64 / 1e9;
                write!(
                    f,
                    "{keys} keys (--keys) and {inserts} inserts (--ops) need about {needs}, but {gigabytes:.1} GB of memory are \
                     available: "
                )?;
                let Some(left) = available.checked_sub(*fixed).filter(|left| *left > 0) else {
                    return write!(
                        f,
                        "the nodes alone need {:.1} GB, ask for fewer (--cns, --mns)",
                        *fixed as f64 / 1e9
                    );
                };
                let entries = keys.saturating_add(*inserts) as f64;
                let limit = two_digits(entries * left as f64 / (needs.bytes - fixed).max(1) as f64);
                write!(f, "ask for at most about {limit} keys and inserts in all")
            }
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Workload(e) => Some(e),
            _ => None,
        }
    }
}

/// Rounds down to two significant digits, because an estimate is not more precise.
fn two_digits(count: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float's cast saturates"
    )]
    let count = count as u64;
    let unit = 10_u64.pow(count.checked_ilog10().unwrap_or(0).saturating_sub(1));
    count / unit * unit
}

/// Returns the bytes of memory that new processes can use, if the system reports them.
pub(crate) fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

impl Setting {
    /// Refuses a setting that no index could run.
    fn check(&self) -> Result<(), Refusal> {
        let counts = [
            (self.clients == 0, "client thread (--clients)"),
            (self.coroutines == 0, "coroutine (--coroutines)"),
            (self.compute_nodes == 0, "compute node (--cns)"),
            (self.memory_nodes == 0, "memory node (--mns)"),
            (self.ops == 0 && self.least == 0, "operation (--ops)"),
            (self.duration_ns == Some(0), "nanosecond (--duration)"),
        ];
        if let Some((_, what)) = counts.into_iter().find(|(none, _)| *none) {
            return Err(Refusal::None { what });
        }
        if self.value_bytes < 8 {
            return Err(Refusal::ValueBytes {
                bytes: self.value_bytes,
            });
        }
        self.check_faults().map_err(|why| Refusal::Faults { why })?;
        self.plan(self.mix).map_err(Refusal::Workload)?;
        if self.is_timed() && matches!(self.fabric, Fabric::Ib(_)) {
            return Err(Refusal::Clock);
        }
        Ok(())
    }
}

impl Setting {
    /// Returns the reason why the faults can't happen in this setting.
    fn check_faults(&self) -> Result<(), &'static str> {
        let (faults, end) = (&self.faults, self.duration_ns.unwrap_or(0));
        if *faults == Faults::NONE {
            return Ok(());
        }
        let wrong = [
            (
                !self.fabric.is_simulated(),
                "--kill-at, --kill-every, --lease, --recovery and --timeline are for the simulator",
            ),
            (
                faults.kill.is_some() && faults.deaths(end).next().is_none(),
                "no compute node dies before the end: --kill-at and --kill-every need a longer --duration",
            ),
            (
                faults.kill.is_some()
                    && self
                        .compute_nodes
                        .min(u16::try_from(self.clients).unwrap_or(u16::MAX))
                        < 2,
                "there must be a second compute node (--cns) that continues after a death",
            ),
            (
                faults.slice == Some(0) || faults.kill == Some(Kill::Every(0)) || faults.lease == Some(0),
                "--timeline, --kill-every and --lease must be longer than 0",
            ),
            (
                faults.slice.is_some() && self.duration_ns.is_none(),
                "--timeline needs the --duration of which it has the slices",
            ),
            (
                faults
                    .slice
                    .is_some_and(|slice| slice > 0 && end / slice > SLICES_MAX),
                "--timeline has more than 100,000 slices: ask for longer ones, or for a shorter --duration",
            ),
            (
                faults.deaths(end).nth(DEATHS_MAX).is_some(),
                "more than 1,000 compute nodes would die: ask for a longer --kill-every, or for a shorter --duration",
            ),
        ];
        wrong
            .into_iter()
            .find(|(is, _)| *is)
            .map_or(Ok(()), |(_, why)| Err(why))
    }
}

impl Point {
    /// Returns the estimated needs of the point, from the setting and the index's own estimate.
    pub fn needs(&self) -> Needs {
        self.needs_of(&self.setting)
    }

    fn needs_of(&self, at: &Setting) -> Needs {
        // The keys are sorted in memory before they are loaded.
        let list = at.keys.saturating_mul(at.key_bytes as u64);
        let nodes = self
            .driver
            .memory_bytes(at)
            .saturating_mul(at.memory_nodes.into());
        Needs {
            bytes: nodes.saturating_add(list),
            seconds: at.ops as f64 / OPS_PER_SECOND + at.keys as f64 / KEYS_PER_SECOND,
        }
    }

    /// Refuses a setting that cannot be measured, before anything is built.
    ///
    /// # Errors
    /// Returns [`Refusal`] if the setting is invalid, or if the machine has less memory than the point needs.
    pub fn check(&self) -> Result<(), Refusal> {
        self.setting.check()?;
        if matches!(self.setting.fabric, Fabric::Ib(_)) {
            // The memory is on other machines, which check their own sizes.
            return Ok(());
        }
        self.fits(available_bytes().unwrap_or(u64::MAX))
    }

    fn fits(&self, available: u64) -> Result<(), Refusal> {
        let needs = self.needs();
        if needs.bytes <= available {
            return Ok(());
        }
        let empty = Setting {
            keys: 0,
            ops: 0,
            ..self.setting.clone()
        };
        Err(Refusal::Memory {
            needs,
            fixed: self.needs_of(&empty).bytes,
            available,
            keys: self.setting.keys,
            inserts: self.setting.operations(OpKind::Insert),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy;

    fn refused(change: impl FnOnce(&mut Setting)) -> String {
        let mut point = toy::point(1, 100);
        change(&mut point.setting);
        let refusal = point.check().unwrap_err().to_string();
        let run = point.run().unwrap_err().to_string();
        assert_eq!(refusal, run, "a program hears the same");
        refusal
    }

    #[test]
    fn nothing_is_not_measured() {
        assert_eq!(toy::point(1, 100).check(), Ok(()));
        for (told, option) in [
            (refused(|at| at.clients = 0), "--clients"),
            (refused(|at| at.coroutines = 0), "--coroutines"),
            (refused(|at| at.compute_nodes = 0), "--cns"),
            (refused(|at| at.memory_nodes = 0), "--mns"),
            (refused(|at| at.ops = 0), "--ops"),
            (refused(|at| at.duration_ns = Some(0)), "--duration"),
        ] {
            assert!(
                told.starts_with("there must be at least one ") && told.contains(option),
                "{told}"
            );
        }
        let clients = refused(|at| at.clients = 1_000_000);
        assert!(clients.contains("1000000 is not between"), "{clients}");
        let keys = refused(|at| at.keys = 0);
        assert!(keys.contains("none are loaded"), "{keys}");
        let value = refused(|at| at.value_bytes = 4);
        assert!(value.contains("at least 8 bytes (--value-size)"), "{value}");
    }

    #[test]
    fn too_much_memory_is_refused_with_the_estimate_and_the_limit() {
        let told = refused(|at| at.keys = 1_000_000_000_000);
        assert!(told.contains("1000000000000 keys (--keys)"), "{told}");
        assert!(
            told.contains("GB of memory and roughly 185 hours, but "),
            "{told}"
        );
        let far = refused(|at| at.keys = u64::MAX);
        assert!(far.contains("at most about"), "{far}");

        let mut point = toy::point(1, 100);
        point.setting.keys = 10_000_000;
        let bytes = point.needs().bytes;
        assert!(bytes > 10_000_000 * 24, "{bytes}");
        assert_eq!(point.fits(bytes), Ok(()));
        let empty = Setting {
            keys: 0,
            ops: 0,
            ..point.setting.clone()
        };
        let fixed = point.needs_of(&empty).bytes;
        let half = point.fits((bytes + fixed) / 2).unwrap_err().to_string();
        assert!(
            half.ends_with("ask for at most about 5000000 keys and inserts in all"),
            "{half}"
        );
        let nodes = point.fits(fixed).unwrap_err().to_string();
        assert!(
            nodes.contains("the nodes alone need") && nodes.ends_with("(--cns, --mns)"),
            "{nodes}"
        );
    }

    #[test]
    fn this_machine_tells_its_memory() {
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!([0.0, 7.0, 1234.0, 98_765.4].map(two_digits), [0, 7, 1200, 98_000]);
    }

    #[test]
    fn faults_that_can_not_happen_are_refused() {
        let refused = |faults, change: fn(&mut Setting)| {
            let mut setting = Setting {
                faults,
                duration_ns: Some(1_000),
                compute_nodes: 2,
                ..toy::setting(4, 1_000)
            };
            change(&mut setting);
            setting.check().err().map(|why| why.to_string())
        };
        let none = Faults::NONE;
        let kill = |at| Faults {
            kill: Some(Kill::At(at)),
            ..none
        };
        assert_eq!(refused(kill(999), |_| {}), None);
        let told = |faults, change, words: &str| {
            let why = refused(faults, change).expect("a refusal");
            assert!(why.contains(words), "{why}");
        };
        told(kill(1_000), |_| {}, "--duration");
        told(kill(10), |at| at.duration_ns = None, "--duration");
        told(kill(10), |at| at.compute_nodes = 1, "--cns");
        told(kill(10), |at| at.fabric = Fabric::Loopback, "simulator");
        let every = |every| Faults {
            kill: Some(Kill::Every(every)),
            ..none
        };
        assert_eq!(refused(every(100), |_| {}), None);
        told(every(0), |_| {}, "longer than 0");
        told(every(1), |at| at.duration_ns = Some(5_000), "1,000 compute nodes");
        let slices = |slice| Faults {
            slice: Some(slice),
            ..none
        };
        assert_eq!(refused(slices(10), |_| {}), None);
        told(slices(0), |_| {}, "--timeline");
        told(slices(10), |at| at.duration_ns = None, "--duration");
        told(slices(1), |at| at.duration_ns = Some(1_000_000), "100,000");
    }
}
