//! The builder of a simulation.

use core::fmt;

use dm_verbs::{Caps, Nanos};

use crate::engine::{Engine, Node, Setup};
use crate::memory::Memory;
use crate::model::{CostModel, Ticks};
use crate::queue::QueueKind;
use crate::sim::Sim;
use crate::stalls::Stalls;

/// Default host memory of a memory node in bytes.
pub const DEFAULT_MEMORY_BYTES: u64 = 64 << 20;

/// The reason why a simulation could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// There must be at least one compute and one memory node.
    NoNodes,
    /// There are more cards than numbers for them (65535).
    TooManyNodes,
    /// Memory of this many bytes could not be mapped.
    Memory {
        /// The size in bytes.
        bytes: u64,
        /// The operating system's reason.
        reason: std::io::Error,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("a testbed needs a compute node and a memory node"),
            Self::TooManyNodes => f.write_str("a testbed has at most 65535 cards"),
            Self::Memory { bytes, reason } => {
                write!(f, "can't map {bytes} bytes for a memory node: {reason}")
            }
        }
    }
}

impl core::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::NoNodes | Self::TooManyNodes => None,
            Self::Memory { reason, .. } => Some(reason),
        }
    }
}

/// The parameters of a simulation. The defaults are one compute and one memory node with separate cards, 64 MiB of host
/// memory, seed 0, small pages, no stalls, and the timing wheel.
///
/// ```
/// use dm_sim::{CostModel, QueueKind, Sim, SimBuilder};
/// use dm_verbs::{NodeId, RemotePtr, Verbs};
///
/// /// Runs a client that adds to a counter a hundred times, and returns the digest of the run.
/// fn run(builder: SimBuilder) -> u64 {
///     let sim = builder.build().expect("it has nodes");
///     sim.spawn(0, 0, |v| async move {
///         for _ in 0..100 {
///             v.faa(RemotePtr::new(NodeId(0), 4096).expect("in range"), 1).await.expect("the node is up");
///         }
///     });
///     sim.run();
///     sim.digest()
/// }
/// let bed = Sim::builder(CostModel::cx6_roce()).memory_nodes(2).memory_bytes(1 << 20).seed(7);
/// assert_eq!(run(bed.clone()), run(bed.clone().queue(QueueKind::Heap)));
/// assert_ne!(run(bed.clone()), run(bed.seed(8)));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct SimBuilder {
    model: CostModel,
    compute_nodes: u16,
    memory_nodes: u16,
    colocated: bool,
    seed: u64,
    memory_bytes: u64,
    huge_pages: bool,
    queue: QueueKind,
    stalls: Option<(u32, Nanos)>,
}

impl SimBuilder {
    pub(crate) fn new(model: CostModel) -> Self {
        Self {
            model,
            compute_nodes: 1,
            memory_nodes: 1,
            colocated: false,
            seed: 0,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            huge_pages: false,
            queue: QueueKind::Wheel,
            stalls: None,
        }
    }

    /// Sets the number of machines that run clients.
    pub fn compute_nodes(mut self, n: u16) -> Self {
        self.compute_nodes = n;
        self
    }
    /// Sets the number of machines that lend memory.
    pub fn memory_nodes(mut self, n: u16) -> Self {
        self.memory_nodes = n;
        self
    }
    /// Sets whether compute node i and memory node i are one machine with one card.
    pub fn colocated(mut self, yes: bool) -> Self {
        self.colocated = yes;
        self
    }
    /// Sets the seed. Together with the code and the model, it determines the whole run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
    /// Sets the host memory per memory node. A page takes no real memory before its first use.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }
    /// Uses huge pages for host memory if the system has them. Random access is then faster, but the first
    /// access is slower, so access all memory once before you measure.
    pub fn huge_pages(mut self, yes: bool) -> Self {
        self.huge_pages = yes;
        self
    }
    /// Suspends clients from time to time, as an operating system does: on average, one poll in `one_in` is late by up
    /// to `longest`, and by 4.3 seconds at most. Requests that the client has already posted proceed meanwhile.
    pub fn stalls(mut self, one_in: u32, longest: Nanos) -> Self {
        self.stalls = Some((one_in.max(1), longest));
        self
    }
    /// Sets the length of the lease that a client gets when it joins, instead of [`CostModel::lease_ns`].
    pub fn lease(mut self, length: Nanos) -> Self {
        self.model.lease_ns = length.0 as f64;
        self
    }
    /// Sets the event queue; results do not depend on it.
    pub fn queue(mut self, kind: QueueKind) -> Self {
        self.queue = kind;
        self
    }

    /// Builds the simulation.
    ///
    /// # Errors
    /// Returns [`BuildError`] if there are no nodes or too many, or if memory cannot be mapped.
    ///
    /// # Panics
    /// Panics if [`CostModel::buckets`] is not a power of two.
    pub fn build(self) -> Result<Sim, BuildError> {
        if self.compute_nodes == 0 || self.memory_nodes == 0 {
            return Err(BuildError::NoNodes);
        }
        if !self.colocated && self.compute_nodes.checked_add(self.memory_nodes).is_none() {
            return Err(BuildError::TooManyNodes);
        }
        let ticks = Ticks::new(&self.model);
        let caps = Caps {
            host_bytes: self.memory_bytes,
            inline_bytes: ticks.inline,
            ..self.model.caps
        };
        let first = if self.colocated {
            0
        } else {
            usize::from(self.compute_nodes)
        };
        let nodes = (0..usize::from(self.memory_nodes))
            .map(|i| {
                Memory::new(
                    self.memory_bytes as usize,
                    caps.chip_bytes as usize,
                    self.huge_pages,
                )
                .map(|memory| Node::new(memory, first + i, caps, ticks.bucket_mask as usize + 1))
                .map_err(|reason| BuildError::Memory {
                    bytes: self.memory_bytes,
                    reason,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let nics = usize::from(self.compute_nodes).max(first + nodes.len());
        let engine = Engine::new(Setup {
            ticks,
            caps,
            nics,
            nodes,
            seed: self.seed,
            queue: self.queue,
        });
        let stalls = self
            .stalls
            .map(|(one_in, longest)| Stalls::new(one_in, longest, self.seed));
        Ok(Sim::new(
            self.model,
            self.compute_nodes,
            first,
            engine,
            self.seed,
            stalls,
        ))
    }
}
