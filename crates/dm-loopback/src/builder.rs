//! The builder of a world, and its settings.

use core::fmt;
use std::path::{Path, PathBuf};

use dm_sync::Arc;
use dm_sync::region::RegionError;
use dm_verbs::{AtomicUnit, AtomicVsWrite, Caps, CasThenRead, FailedCas, LineOrder, Nanos};

use crate::Loopback;
use crate::world::World;

/// The builder of a [`Loopback`]; every setting has a default.
///
/// ```
/// use dm_loopback::{Builder, Loopback};
/// let world = Loopback::builder().nodes(4).host_bytes(1 << 20).chip_bytes(0).build()?;
/// # Ok::<(), dm_loopback::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder makes nothing until `build` or `open`"]
pub struct Builder {
    pub(crate) nodes: u16,
    pub(crate) host_bytes: u64,
    pub(crate) chip_bytes: u64,
    pub(crate) knobs: Knobs,
    file: Option<PathBuf>,
}

/// The behaviour of a world. Processes that share a pool may use different settings, except for the atomic unit.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    pub(crate) unit: AtomicUnit,
    pub(crate) read_lines: LineOrder,
    pub(crate) masked_atomics: bool,
    pub(crate) cas_then_read: CasThenRead,
    pub(crate) atomic_vs_write: AtomicVsWrite,
    pub(crate) completion: Completion,
    pub(crate) chains_max: u32,
    pub(crate) lease: Nanos,
    pub(crate) clock_step: Option<Nanos>,
    pub(crate) seed: u64,
}

/// The time at which a chain's completion is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    AtFirstPoll,
    /// After at most this number of polls without a result.
    Delayed(u32),
    /// When the executor polls the client again.
    NextTurn,
}

impl Builder {
    /// Default number of memory nodes.
    pub const DEFAULT_NODES: u16 = 2;
    /// Host memory per node in bytes. A page takes no memory before its first use.
    pub const DEFAULT_HOST_BYTES: u64 = dm_sync::scaled(1 << 30, 1 << 16) as u64;
    /// On-chip memory per node in bytes, as in a ConnectX-5 (Sherman §4.3).
    pub const DEFAULT_CHIP_BYTES: u64 = 256 << 10;
    /// Length of a lease.
    pub const DEFAULT_LEASE: Nanos = Nanos::from_millis(10_000);
    /// Maximum number of chains that one client may have open or in flight.
    pub const DEFAULT_CHAINS_MAX: u32 = 4096;
    /// Largest payload in bytes that counts as inline.
    pub const INLINE_BYTES: u32 = 220;

    pub(crate) fn new() -> Self {
        Self {
            nodes: Self::DEFAULT_NODES,
            host_bytes: Self::DEFAULT_HOST_BYTES,
            chip_bytes: Self::DEFAULT_CHIP_BYTES,
            knobs: Knobs {
                unit: AtomicUnit::Line,
                read_lines: LineOrder::Increasing,
                masked_atomics: true,
                cas_then_read: CasThenRead::InOrder,
                atomic_vs_write: AtomicVsWrite::Serialised,
                completion: Completion::AtFirstPoll,
                chains_max: Self::DEFAULT_CHAINS_MAX,
                lease: Self::DEFAULT_LEASE,
                clock_step: None,
                seed: 0,
            },
            file: None,
        }
    }

    /// Sets the number of memory nodes (1 to 1024).
    pub fn nodes(mut self, count: u16) -> Self {
        self.nodes = count;
        self
    }

    /// Sets the host memory per node, rounded up to whole pages of 4096 bytes.
    pub fn host_bytes(mut self, bytes: u64) -> Self {
        self.host_bytes = bytes;
        self
    }

    /// Sets the on-chip memory per node, rounded up to whole lines; 0 for none.
    pub fn chip_bytes(mut self, bytes: u64) -> Self {
        self.chip_bytes = bytes;
        self
    }

    /// Sets the unit that is never torn. With [`AtomicUnit::Word`], lines are really torn.
    pub fn atomic_unit(mut self, unit: AtomicUnit) -> Self {
        self.knobs.unit = unit;
        self
    }

    /// Sets the order in which the lines of a READ are served; [`LineOrder::Any`] draws an order for each
    /// READ.
    pub fn read_lines(mut self, order: LineOrder) -> Self {
        self.knobs.read_lines = order;
        self
    }

    /// Sets whether masked CASes are carried out or refused.
    pub fn masked_atomics(mut self, present: bool) -> Self {
        self.knobs.masked_atomics = present;
        self
    }

    /// Sets the order of an atomic and the READ that follows it. With any value except [`CasThenRead::InOrder`], half
    /// of the READs directly behind an atomic are served as a whole before the atomic, unless they are fenced.
    pub fn cas_then_read(mut self, order: CasThenRead) -> Self {
        self.knobs.cas_then_read = order;
        self
    }

    /// Sets whether atomics and WRITEs to one word exclude each other. With [`AtomicVsWrite::Racy`], an atomic is a
    /// READ and a WRITE, even if it is a CAS that fails, and a WRITE between the two is lost. Atomics of clients that
    /// were connected through one [`Loopback`] and its clones still exclude each other.
    pub fn atomic_vs_write(mut self, order: AtomicVsWrite) -> Self {
        self.knobs.atomic_vs_write = order;
        self
    }

    /// Reports the completion of a chain after at most `polls_max` polls without a result; the number is drawn for
    /// each chain. Effects are not delayed. An error that says that a chain had no effect is not delayed either.
    pub fn delays(mut self, polls_max: u32) -> Self {
        self.knobs.completion = match polls_max {
            0 => Completion::AtFirstPoll,
            polls => Completion::Delayed(polls),
        };
        self
    }

    /// Reports completions only when the executor ([`block_on`](crate::block_on) or [`run_all`](crate::run_all)) polls
    /// again. As with a network card, the poll that posts a chain never finds the chain complete. Effects are not
    /// delayed. An error that says that a chain had no effect is not delayed either. With another executor, the delayed
    /// completions never arrive.
    pub fn suspend_every_wait(mut self) -> Self {
        self.knobs.completion = Completion::NextTurn;
        self
    }

    /// Sets how many chains one client may have open or in flight.
    pub fn chains_max(mut self, count: u32) -> Self {
        self.knobs.chains_max = count;
        self
    }

    /// Sets the length of the lease that a client gets when it joins. The world itself never ends a lease.
    pub fn lease(mut self, length: Nanos) -> Self {
        self.knobs.lease = length;
        self
    }

    /// Replaces the machine's clock by one that advances by `step` at each query. Then a single client posts the same
    /// verbs in every run, however often its thread is descheduled, because the time that it sees depends only on the
    /// number of queries. Leases between several processes need the machine's clock.
    pub fn counted_clock(mut self, step: Nanos) -> Self {
        self.knobs.clock_step = Some(step);
        self
    }

    /// Sets the seed of delays, of orders, and of the clients' random streams.
    pub fn seed(mut self, seed: u64) -> Self {
        self.knobs.seed = seed;
        self
    }

    /// Puts the pool into a new file, which other processes of this machine can open with [`Loopback::open`].
    /// The file remains after the world is dropped.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Makes the world: all memory is zero, and there are no clients.
    ///
    /// # Errors
    /// Returns [`BuildError`] if a setting is out of range, memory cannot be allocated, or the file exists or cannot
    /// be made.
    pub fn build(self) -> Result<Loopback, BuildError> {
        let world = match &self.file {
            None => World::in_memory(&self)?,
            Some(path) => World::create(&self, path)?,
        };
        Ok(Loopback {
            world: Arc::new(world),
        })
    }

    /// Opens a pool that another world made with [`Builder::file`]. The pool determines the number and the sizes of the
    /// memory nodes and the atomic unit, whatever the builder's settings are.
    ///
    /// # Errors
    /// Returns [`BuildError`] if the file cannot be opened, or is not such a pool.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Loopback, BuildError> {
        Ok(Loopback {
            world: Arc::new(World::open(self.knobs, path.as_ref())?),
        })
    }
}

impl Knobs {
    /// Returns the capabilities of a node with these memories and settings.
    pub(crate) fn caps(&self, host_bytes: u64, chip_bytes: u64) -> Caps {
        Caps {
            host_bytes,
            chip_bytes,
            masked_atomics: self.masked_atomics,
            inline_bytes: Builder::INLINE_BYTES,
            atomic_unit: self.unit,
            read_lines: self.read_lines,
            write_lines: LineOrder::Increasing,
            cas_then_read: self.cas_then_read,
            atomic_vs_write: self.atomic_vs_write,
            failed_cas: match self.atomic_vs_write {
                AtomicVsWrite::Racy => FailedCas::WritesBack,
                AtomicVsWrite::Serialised => FailedCas::LeavesAlone,
            },
            host_before_chip: true,
        }
    }
}

/// The reason why a world could not be made or opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// There must be 1 to 1024 memory nodes.
    BadNodeCount {
        /// The requested number.
        nodes: u16,
    },
    /// A node's host memory has no room after the reserved page, or one of its memories is larger than pointers can
    /// address.
    BadSize {
        /// The larger of the two sizes that were requested for host memory and on-chip memory, in bytes.
        bytes: u64,
    },
    /// The memory of a node, or the control region, could not be allocated or mapped.
    Memory(RegionError),
    /// The file system refused.
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        kind: std::io::ErrorKind,
    },
    /// The file is not a loopback pool.
    NotAPool {
        /// The path of the file.
        path: PathBuf,
        /// The first eight bytes of the file as a little-endian word; bytes beyond its end count as 0.
        format: u64,
    },
    /// The file is a pool of another version of this crate.
    OtherVersion {
        /// The path of the file.
        path: PathBuf,
        /// The version of the pool.
        found: u64,
        /// The version that this build supports.
        known: u64,
    },
    /// The file's header is inconsistent, or the file is shorter than the pool that the header describes.
    Corrupt {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadNodeCount { nodes } => write!(f, "{nodes} memory nodes: there must be 1 to 1024"),
            Self::BadSize { bytes } => write!(f, "a memory node of {bytes} bytes: too small or too big"),
            Self::Memory(e) => write!(f, "no memory for a memory node: {e}"),
            Self::Io { path, kind } => write!(f, "{}: {kind}", path.display()),
            Self::NotAPool { path, format } => {
                write!(
                    f,
                    "{} is no loopback pool (it begins with {format:#018x})",
                    path.display()
                )
            }
            Self::OtherVersion { path, found, known } => {
                write!(
                    f,
                    "{} is a loopback pool of version {found}; this build supports version {known}",
                    path.display()
                )
            }
            Self::Corrupt { path, reason } => write!(f, "{}: corrupt header: {reason}", path.display()),
        }
    }
}

impl core::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Memory(e) => Some(e),
            _ => None,
        }
    }
}

impl From<RegionError> for BuildError {
    fn from(e: RegionError) -> Self {
        Self::Memory(e)
    }
}
