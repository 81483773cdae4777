//! Determines the limit of the throughput of a simulated point.

use dm_verbs::Counters;

/// If the busiest resource is busy for at least this share of the time, it limits the throughput.
const BINDS: f64 = 0.9;
/// A cause that takes less than this share is not named.
const NAMED: f64 = 0.1;

/// Returns the limit of the throughput of a point. `resource` is the busiest resource, which was busy for `share` of
/// the time. `lock_waits` is the share of the clients' time in which they waited for locks.
///
/// If `share` is at least [`BINDS`], the limit is the resource. Otherwise the text lists the causes whose share is at
/// least [`NAMED`]: waits for locks, and READs that had to be repeated (as a share of all READs). If there is no such
/// cause, there are too few clients: the throughput is their number divided by the latency of an operation.
pub(super) fn limit((resource, share): (String, f64), lock_waits: f64, c: &Counters) -> String {
    if share >= BINDS {
        return resource;
    }
    let of_reads = |part: u64| part as f64 / c.reads.max(1) as f64;
    let causes = [
        ("lock waits", lock_waits),
        ("torn READs", of_reads(c.torn_reads)),
        ("READs at outdated addresses", of_reads(c.stale_reads)),
    ];
    let mut named: Vec<_> = causes.into_iter().filter(|(_, share)| *share >= NAMED).collect();
    named.sort_by(|a, b| b.1.total_cmp(&a.1));
    if named.is_empty() {
        return "latency of few clients".to_owned();
    }
    let texts = named
        .into_iter()
        .map(|(name, share)| format!("{name} {:.0} %", 100.0 * share));
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the limit of a point whose responder is busy for `share` of the time. Of its 100 READs, `torn` are torn
    /// and `stale` are stale.
    fn of(share: f64, lock_waits: f64, (torn, stale): (u64, u64)) -> String {
        let counters = Counters {
            reads: 100,
            torn_reads: torn,
            stale_reads: stale,
            ..Counters::default()
        };
        limit(("the responder".to_owned(), share), lock_waits, &counters)
    }

    #[test]
    fn a_busy_resource_is_the_limit_whatever_else_takes_time() {
        assert_eq!(of(0.9, 0.0, (0, 0)), "the responder");
        assert_eq!(of(1.0, 0.8, (50, 50)), "the responder");
    }

    #[test]
    fn causes_that_take_a_tenth_are_named_the_largest_first() {
        assert_eq!(of(0.89, 0.1, (0, 0)), "lock waits 10 %");
        assert_eq!(of(0.5, 0.0, (25, 9)), "torn READs 25 %");
        assert_eq!(of(0.5, 0.09, (0, 30)), "READs at outdated addresses 30 %");
        assert_eq!(
            of(0.5, 0.2, (10, 40)),
            "READs at outdated addresses 40 %, lock waits 20 %, torn READs 10 %"
        );
    }

    #[test]
    fn without_a_cause_there_are_too_few_clients() {
        assert_eq!(of(0.89, 0.09, (9, 9)), "latency of few clients");
        let idle = Counters::default();
        assert_eq!(
            limit(("the responder".to_owned(), 0.0), 0.0, &idle),
            "latency of few clients"
        );
    }
}
