//! What can be said of a run in one number.

use serde::{Deserialize, Serialize};

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident, $label:literal, $unit:literal;)*) => {
        /// A figure of a run. Where it is of operations, those of the warm-up are left out.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub(crate) enum Metric { $($(#[$doc])* $name,)* }

        impl Metric {
            /// For axes.
            pub(crate) fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Behind the number.
            pub(crate) fn unit(self) -> &'static str {
                match self { $(Self::$name => $unit,)* }
            }
        }
    };
}

metrics! {
    /// Operations per microsecond.
    Mops, "throughput", "Mops";
    /// Scans among them.
    ScanMops, "range queries", "Mops";
    /// What the NICs allow for these verbs when nothing contends.
    BoundMops, "bound of the NICs", "Mops";
    /// Throughput as a share of that bound.
    OfBound, "throughput, of the bound", "%";
    /// Share of the run for which the busiest memory node's responder stood still behind atomics.
    Stall, "responder stalled by atomics", "%";
    /// Share of the run for which it worked.
    Responder, "responder at work", "%";
    /// Share of operations that another client's READ answered.
    Delegated, "gets delegated", "%";
    /// Share of operations that another client's write covers.
    Combined, "writes combined", "%";
    /// Share of gets that read one entry alone, where their compute node believed it to lie.
    Speculated, "gets that speculate", "%";
    /// Share of those that were right.
    SpeculatedRight, "speculations that are right", "%";
    /// READs, WRITEs and atomics per operation.
    Verbs, "verbs per operation", "";
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
    /// Share of locks that came by handover.
    Handovers, "locks handed over", "%";
    /// READs repeated because they were torn, per million operations.
    TornReads, "torn READs per million operations", "";
    /// Share of write operations that waited for two round trips.
    TwoTrips, "writes with 2 round trips", "%";
    /// Three.
    ThreeTrips, "writes with 3 round trips", "%";
    /// Four.
    FourTrips, "writes with 4 round trips", "%";
    /// 99th percentile of round trips of write operations.
    TripsP99, "p99 of a write's round trips", "";
    /// Median bytes that a write operation without a split wrote, the unlock left out.
    WriteBytes, "bytes written per write", "B";
    /// Share of write operations that split a node.
    Splits, "writes that split", "%";
    /// Share of lookups in the index cache that found the leaf's address.
    HitRatio, "hits in the index cache", "%";
    /// The index cache's bytes per loaded key, every allocation counted.
    CacheBytesPerKey, "index cache", "B per key";
    /// Memory-node bytes per key.
    NodeBytesPerKey, "memory nodes", "B per key";
    /// Reads that returned something else than one whole write of their key. Anything but 0 voids a run.
    WrongValues, "wrong values", "";
    /// Operations that the figures are of.
    Operations, "operations", "";
}

/// Three digits that count.
pub(crate) fn figure(figure: f64) -> String {
    let decimals = match figure.abs() {
        0.0 => return "0".to_owned(),
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.999_5 => 2,
        _ => 3,
    };
    let text = format!("{figure:.decimals$}");
    // Thousands apart: latencies go to tens of thousands of microseconds.
    match text.len() {
        5.. if decimals == 0 => format!("{} {}", &text[..text.len() - 3], &text[text.len() - 3..]),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let all = [0.0, 0.336, 1.03, 24.7, 453.0, 1358.0, 19_890.0].map(figure);
        assert_eq!(all, ["0", "0.336", "1.03", "24.7", "453", "1358", "19 890"]);
    }
}
