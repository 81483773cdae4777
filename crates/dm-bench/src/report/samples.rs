//! Rows for tests. Their curves look like those of an index whose RNIC saturates.

use super::Row;

/// Returns the rows of three workloads, with three curves of six points each.
pub(crate) fn samples() -> Vec<Row> {
    let mut rows = Vec::new();
    for (workload, most) in [("c", 40.0), ("a", 18.0), ("load", 12.0)] {
        for (index, variant, part) in [
            ("sherman", "", 1.0),
            ("sherman", "published", 0.86),
            ("fg+", "", 0.35),
        ] {
            for clients in [16_u32, 32, 64, 128, 256, 512] {
                // This models a closed loop of `clients` on one server: first the unloaded latency, then a queue.
                let (unloaded, bound) = (2.6 / part, most * part);
                let mops = bound * (1.0 - (-f64::from(clients) / (unloaded * bound)).exp());
                let p50 = f64::from(clients) / mops;
                rows.push(Row {
                    index: index.to_owned(),
                    variant: variant.to_owned(),
                    workload: workload.to_owned(),
                    distribution: "zipf:0.99".to_owned(),
                    ranks: 60_000_000,
                    fabric: "sim:cx6-100g".to_owned(),
                    simulated: true,
                    clients,
                    keys: 1_000_000,
                    key_bytes: 8,
                    value_bytes: 8,
                    fill: "0.8".to_owned(),
                    ops: 1_000_000,
                    seeds: 1,
                    seconds: 1.0 / mops,
                    mops,
                    bound_mops: Some(bound * 1.05),
                    bound_by: Some("mn rx".to_owned()),
                    bound_share: Some(mops / (bound * 1.05)),
                    limit: Some("mn rx".to_owned()),
                    mean_us: p50 * 1.1,
                    p50_us: p50,
                    p90_us: p50 * 1.4,
                    p99_us: p50 * (2.0 + f64::from(clients) / 40.0),
                    p999_us: p50 * 9.0,
                    max_us: p50 * 20.0,
                    round_trips: 1.52,
                    verbs: 2.25,
                    bytes_read: 1024.0,
                    bytes_written: 17.4,
                    lock_retries: 0.013,
                    torn_reads: 0.000_2,
                    delegated: 0.078,
                    combined: 0.0,
                    cache_bytes: 450_000,
                    local_bytes: 65_536,
                    remote_bytes_per_key: 31.4,
                    wrong_values: 0,
                    seed: 7,
                    assumptions: "CAS before READ in a chain; atomic and WRITE serialised".to_owned(),
                    ..Row::default()
                });
            }
        }
    }
    rows
}
