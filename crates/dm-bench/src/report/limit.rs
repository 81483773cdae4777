//! Determines the limit of the throughput of a simulated point.

use crate::Measured;

/// If the busiest resource is busy for at least this share of the time, it limits the throughput.
const BINDS: f64 = 0.9;
/// A cause that takes less than this share is not named.
const NAMED: f64 = 0.1;

/// Returns the limit of the throughput of a point. `resource` is the busiest resource, which was busy for `share` of
/// the time. If `share` is at least [`BINDS`], the limit is this resource. Otherwise it is the time that clients spent
/// on waiting or on repeated work. If both are small, there are too few clients: the throughput is their number divided
/// by the latency of an operation.
pub(super) fn limit(resource: &str, share: f64, m: &Measured) -> String {
    if share >= BINDS {
        return resource.to_owned();
    }
    let c = &m.counters;
    let of = |part: u64, all: u64| part as f64 / all.max(1) as f64;
    let causes = [
        ("lock waits", m.lock_waits),
        ("torn READs", of(c.torn_reads, c.reads)),
        ("READs at outdated addresses", of(c.stale_reads, c.reads)),
    ];
    let mut named: Vec<_> = causes.into_iter().filter(|(_, share)| *share >= NAMED).collect();
    named.sort_by(|a, b| b.1.total_cmp(&a.1));
    match named.is_empty() {
        true => "latency of few clients".to_owned(),
        false => {
            let texts = named
                .into_iter()
                .map(|(name, share)| format!("{name} {:.0} %", 100.0 * share));
            texts.collect::<Vec<_>>().join(", ")
        }
    }
}
