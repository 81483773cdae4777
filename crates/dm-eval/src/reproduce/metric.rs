//! The metrics of a run.

use serde::{Deserialize, Serialize};

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident, $label:literal, $unit:literal;)*) => {
        /// A figure of a run. Throughputs, latencies, busy shares, shared operations, failed attempts to lock, outdated
        /// addresses and figures of single write operations do not include the warm-up. Counts of verbs, hits in the
        /// cache, torn READs and speculations do, and so do the attempts and the handovers of locks without a tree.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub(crate) enum Metric { $($(#[$doc])* $name,)* }

        impl Metric {
            /// Returns the label for axes.
            pub(crate) fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Returns the unit behind the number.
            pub(crate) fn unit(self) -> &'static str {
                match self { $(Self::$name => $unit,)* }
            }
        }
    };
}

metrics! {
    /// Operations per microsecond.
    Mops, "throughput", "Mops";
    /// Scans per microsecond.
    ScanMops, "range queries", "Mops";
    /// The throughput at which the busiest resource of the testbed would be busy all the time.
    BoundMops, "bound of the busiest resource", "Mops";
    /// Throughput as a share of that bound.
    OfBound, "throughput, of the bound", "%";
    /// Share of the clients' time in which they waited for locks that were not free.
    LockWaits, "clients waiting for locks", "%";
    /// Share of the measured time for which the busiest memory node's responder waited for atomics on the same bytes.
    Stall, "responder stalled by atomics", "%";
    /// Share of the measured time for which the busiest memory node's responder worked.
    Responder, "responder at work", "%";
    /// Share of gets that another client's READ answered.
    Delegated, "gets delegated", "%";
    /// Share of write operations that another client's write superseded.
    Combined, "writes combined", "%";
    /// Share of gets, apart from delegated ones, that read a single entry at the place where their compute node
    /// expected it.
    Speculated, "gets that speculate", "%";
    /// Share of these speculations that were right.
    SpeculatedRight, "speculations that are right", "%";
    /// READs, WRITEs and atomics per operation.
    Verbs, "verbs per operation", "";
    /// Round trips per operation. Requests that are under way together count once.
    RoundTrips, "round trips per operation", "";
    /// Payload bytes of READs per operation.
    ReadBytes, "bytes read per operation", "B";
    /// Payload bytes of WRITEs per nanosecond.
    GbytesPerS, "payload", "GB/s";
    /// Median latency.
    P50, "p50 latency", "µs";
    /// 90th percentile.
    P90, "p90 latency", "µs";
    /// 99th percentile.
    P99, "p99 latency", "µs";
    /// Failed attempts to lock per operation.
    LockRetries, "failed CAS per operation", "";
    /// Handovers as a share of the locks that were taken, or as a share of a tree's write operations.
    Handovers, "locks handed over", "%";
    /// READs repeated because they were torn, per million operations.
    TornReads, "torn READs per million operations", "";
    /// READs at cached addresses that were out of date, as a share of lookups that found an address in the index cache.
    Stale, "cached addresses out of date", "%";
    /// Share of write operations that waited for two round trips.
    TwoTrips, "writes with 2 round trips", "%";
    /// Share of write operations that waited for three round trips.
    ThreeTrips, "writes with 3 round trips", "%";
    /// Share of write operations that waited for four round trips.
    FourTrips, "writes with 4 round trips", "%";
    /// 99th percentile of round trips of write operations.
    TripsP99, "p99 of a write's round trips", "";
    /// Median bytes that a write operation without a split wrote, without the unlock.
    WriteBytes, "bytes written per write", "B";
    /// Share of write operations that split a node.
    Splits, "writes that split", "%";
    /// Share of lookups in the index cache that found the leaf's address.
    HitRatio, "hits in the index cache", "%";
    /// The bytes of the largest index cache per key of the index, including every allocation and the record of hot
    /// keys.
    CacheBytesPerKey, "index cache", "B per key";
    /// Memory-node bytes per key.
    NodeBytesPerKey, "memory nodes", "B per key";
    /// Bytes of the block that each item has outside of the leaves.
    BlockBytes, "block of an item", "B";
    /// Mean number of accesses of the same block that begin during a counted access. An access that begins during a
    /// counted one is not counted itself.
    Redundant, "redundant accesses", "";
    /// Share of a hash table's entries that are in use when an insert fails for the first time.
    LoadFactor, "maximum load factor", "%";
    /// Entries that a lookup in a hash table reads.
    EntriesRead, "entries read per lookup", "";
    /// Bytes that a lookup in a leaf reads, as a multiple of the bytes of an item.
    ReadAmplification, "read amplification", "×";
    /// Bytes that an update in a leaf writes, as a multiple of the bytes of an item.
    WriteAmplification, "write amplification", "×";
    /// Bytes that an update in a leaf writes.
    UpdateBytes, "bytes written per update", "B";
    /// Bytes of a leaf without those of keys and values, per item for which it has room.
    Metadata, "metadata", "B per key";
    /// Operations with a wrong answer. If this is not 0, the run is invalid.
    WrongValues, "wrong values", "";
    /// The number of operations behind the figures.
    Operations, "operations", "";
}

impl Metric {
    /// Returns whether the figure is a number of operations or of bytes per time.
    pub(crate) fn is_throughput(self) -> bool {
        matches!(self, Self::Mops | Self::ScanMops | Self::GbytesPerS)
    }

    /// Returns whether the figure is the time of an operation.
    pub(crate) fn is_latency(self) -> bool {
        matches!(self, Self::P50 | Self::P90 | Self::P99)
    }

    /// Returns whether the figure is a number of bytes in use, so that it does not depend on the speed of anything.
    pub(crate) fn is_memory(self) -> bool {
        matches!(
            self,
            Self::CacheBytesPerKey | Self::NodeBytesPerKey | Self::Metadata
        )
    }
}
