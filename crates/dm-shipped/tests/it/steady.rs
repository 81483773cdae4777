//! Tests that a measurement begins with the caches that a long run would have.

use dm_bench::{Distribution, Fabric, Setting};

/// Returns the round trips per get of SMART. The cache holds a third of the inner nodes. `warm_up_ns` is the simulated
/// time of gets before the measurement, in addition to 200 µs in which the clients join the pool.
fn round_trips(warm_up_ns: u64) -> f64 {
    let setting = Setting {
        distribution: Distribution::Zipf {
            theta: Distribution::USUAL_THETA,
        },
        compute_nodes: 1,
        memory_nodes: 1,
        clients: 32,
        keys: 400_000,
        ranks: 24_000_000,
        ops: 20_000 + warm_up_ns / 50,
        cache_bytes: 1_300_000,
        warm_up_ns: 200_000 + warm_up_ns,
        ..Setting::new("sim:cx6-roce".parse::<Fabric>().expect("a preset"))
    };
    let point = dm_shipped::shipped().point("smart", "default", setting);
    let measured = point.expect("a variant").run().expect("no faults");
    measured.counters.round_trips as f64 / measured.ops as f64
}

#[test]
fn a_limited_cache_is_in_its_steady_state_from_the_begin() {
    let [begin, late] = [0, 40_000_000].map(round_trips);
    // If the cache held only the hottest keys, it would have 4 % fewer misses.
    assert!(
        (0.98..1.02).contains(&(begin / late)),
        "{begin:.3} round trips at the begin, {late:.3} later"
    );
    assert!(begin > 1.2, "{begin:.3} round trips: the cache holds all");
}
