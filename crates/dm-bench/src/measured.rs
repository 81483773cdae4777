//! The result of a point.

use dm_sim::Busy;
use dm_verbs::Counters;
use hdrhistogram::Histogram;

use crate::{Deaths, Slice};

/// The result of a point.
#[derive(Debug)]
#[non_exhaustive]
pub struct Measured {
    /// The number of operations. If the run has a warm-up time or a duration, only operations that ended in the
    /// measured time count.
    pub ops: u64,
    /// The duration of these operations, in the world's time.
    pub seconds: f64,
    /// Latencies in nanoseconds, of the operations after the warm-up. If the run has a duration, operations that ended
    /// after it are left out.
    pub latency: Histogram<u64>,
    /// Sums over all clients.
    pub counters: Counters,
    /// The operations after the warm-up.
    pub counted: Counted,
    /// The number of operations that were made, counted or not, divided by the operations of the trace; 0 without a
    /// trace.
    pub trace_passes: f64,
    /// Operations with a wrong answer: a value that is not one whole write of its key, a loaded key that is missing, a
    /// new key that is already present, or a scan that is out of order.
    pub wrong_values: u64,
    /// Bytes of the largest cache of a compute node, including what the node has learned about hot keys.
    pub cache_bytes: u64,
    /// The largest size, over all compute nodes, of a compute node's other tables, for locks and for shared operations.
    pub local_bytes: u64,
    /// Bytes in use over all memory nodes.
    pub remote_bytes: u64,
    /// The number of keys in this memory.
    pub keys: u64,
    /// The busiest resource, if the world is the simulator.
    pub busiest: Option<Busiest>,
    /// The share of the clients' time in which they waited for locks that were not free.
    pub lock_waits: f64,
    /// The counts of a steady run. They are 0 unless the world is the simulator.
    pub steady: Steady,
    /// The costs of single write operations.
    pub writes: WriteCosts,
    /// The consequences of the deaths in the run.
    pub deaths: Deaths,
    /// The operations of each slice of the run's time, if they were recorded.
    pub timeline: Vec<Slice>,
    /// The shares of time of the busiest RNIC, in a simulated run.
    pub nic: NicShares,
    /// The promises of the device and the assumptions of the user, for real queue pairs.
    pub promises: Option<String>,
}

/// The operations after the warm-up, and their costs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    /// The number of operations.
    pub ops: u64,
    /// The number of gets among them.
    pub gets: u64,
    /// The sum of their costs. Verbs between operations are not included.
    pub counters: Counters,
}

/// The resource of a simulated testbed that was busy for the longest time, while operations were counted.
#[derive(Debug, Clone, Copy)]
pub struct Busiest {
    /// The resource, and its node. `ns` is the time for which it was busy.
    pub resource: Busy,
    /// The share of time for which it was busy. This includes the effects of skew and of repeated work.
    pub share: f64,
}

/// The activity of the responder of the busiest memory node's RNIC, as shares of the time in which operations were
/// counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct NicShares {
    /// The share of time in which an atomic waits for an earlier atomic on the same bytes, and the responder serves no
    /// other request.
    pub stalled: f64,
    /// The share of time in which the responder works.
    pub worked: f64,
}

/// The operations between the end of the warm-up and the moment when the first client stops.
#[derive(Debug, Clone, Copy, Default)]
pub struct Steady {
    /// The end of the last operation of the warm-up, in nanoseconds of the world's time; 0 if there was none.
    pub from: u64,
    /// The time at which the first client stopped, in nanoseconds of the world's time; 0 if each client did only its
    /// own share of the operations.
    pub until: u64,
    /// The number of operations.
    pub ops: u64,
    /// The number of scans among them.
    pub scans: u64,
}

/// The costs of single write operations. A read-modify-write includes its read.
#[derive(Debug, Clone)]
pub struct WriteCosts {
    /// Round trips.
    pub round_trips: Histogram<u64>,
    /// Payload bytes of the write operations that split no node. The 8 bytes of an unlock are not counted.
    pub bytes: Histogram<u64>,
    /// Write operations.
    pub count: u64,
    /// Write operations that split a node.
    pub splits: u64,
    /// Locks that these operations got by a handover.
    pub handovers: u64,
}
