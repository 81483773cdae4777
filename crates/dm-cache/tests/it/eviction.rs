//! Tests of eviction, for different sets of keys: the budget holds, images in use stay, and higher levels are evicted
//! last.
#![expect(clippy::unwrap_used, reason = "a test that can't go on stops")]

use dm_cache::{Admitted, IndexCache, NodeImage};
use dm_verbs::{NodeId, RemotePtr};

/// Number of children of every node.
const FAN_OUT: u64 = 16;

fn at(number: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), number << 10).unwrap()
}

/// Offers the `i`-th node of `level`, with keys `step` apart from `base` on.
fn offer(cache: &IndexCache<u64>, level: u8, i: u64, base: u64, step: u64) -> Admitted {
    let low = base + i * FAN_OUT * step;
    cache.admit(NodeImage {
        at: at(u64::from(level) << 24 | i),
        level,
        low,
        high: Some(low + FAN_OUT * step),
        incarnation: 0,
        entries: (0..FAN_OUT).map(move |j| (low + j * step, at(i * FAN_OUT + j))),
    })
}

/// Returns the bytes of a cache with this many level-1 nodes.
fn bytes_of(nodes: u64) -> u64 {
    let cache = IndexCache::new(u64::MAX);
    for i in 0..nodes {
        offer(&cache, 1, i, 0, 1);
    }
    cache.bytes()
}

/// Looks up keys, and offers the node on a miss, as an index does. Returns the share of hits.
fn hit_rate(cache: &IndexCache<u64>, (base, step): (u64, u64), nodes: impl Iterator<Item = u64>) -> f64 {
    let (mut hits, mut all) = (0u32, 0u32);
    for i in nodes {
        all += 1;
        match cache.lookup(&(base + i * FAN_OUT * step)) {
            Some(hit) if hit.child_level == 0 => hits += 1,
            _ => assert_ne!(offer(cache, 1, i, base, step), Admitted::Full),
        }
    }
    f64::from(hits) / f64::from(all)
}

/// Returns a sequence of accesses to `nodes` nodes. Nine of ten accesses go to an eighth of the nodes, and the others
/// to any node. The cache has room for a quarter of the nodes.
fn skewed(nodes: u64, times: u64) -> impl Iterator<Item = u64> {
    let mut state = 7u64;
    (0..times).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (number, hot) = (state >> 33, !(state >> 20).is_multiple_of(10));
        if hot { number % (nodes / 8) } else { number % nodes }
    })
}

#[test]
fn images_in_use_stay_for_any_distribution_of_keys() {
    let nodes = dm_sync::scaled(1_000, 16) as u64;
    // The keys are dense from 0 on, dense at the end of the key range, and far apart.
    let last = u64::MAX - nodes * FAN_OUT - 1;
    for keys in [(0, 1), (last, 1), (3, u64::MAX / (nodes * FAN_OUT + 1))] {
        let cache = IndexCache::new(bytes_of(nodes / 4));
        hit_rate(&cache, keys, skewed(nodes, 8 * nodes));
        let hits = hit_rate(&cache, keys, skewed(nodes, 20 * nodes));
        // The best possible rate is about 0.92.
        assert!(
            dm_sync::SMALL_WORLD || hits > 0.86,
            "{hits:.3} of lookups hit, keys {keys:?}"
        );
        assert!(cache.bytes() <= bytes_of(nodes / 4));
    }
}

#[test]
fn higher_levels_stay() {
    let budget = bytes_of(dm_sync::scaled(100, 8) as u64);
    let cache = IndexCache::new(budget);
    for i in 0..4 {
        assert_eq!(offer(&cache, 2, i, 0, 1_000), Admitted::New);
    }
    for i in 0..dm_sync::scaled(2_000, 40) as u64 {
        assert_eq!(offer(&cache, 1, i, 0, 1), Admitted::New);
        assert!(cache.bytes() <= budget);
    }
    assert_eq!(cache.len_at(2), 4);
    // The nodes of level 2 replace all nodes of level 1.
    for i in 4.. {
        if offer(&cache, 2, i, 0, 1_000) == Admitted::Full {
            break;
        }
        assert!(cache.bytes() <= budget && i < 10_000);
    }
    assert_eq!(cache.len_at(1), 0);
    assert_eq!(
        offer(&cache, 1, 0, 0, 1),
        Admitted::Full,
        "nothing pinned goes for a level-1 node"
    );
    assert_eq!(
        offer(&cache, 3, 0, 0, 100_000),
        Admitted::New,
        "one pinned goes for a higher one"
    );
}

#[test]
fn a_budget_for_nothing_caches_nothing() {
    for budget in [0, 100, bytes_of(0)] {
        let cache = IndexCache::new(budget);
        for level in 1..4 {
            assert_eq!(offer(&cache, level, 0, 0, 1), Admitted::Full);
        }
        assert!(cache.is_empty());
    }
}

#[test]
fn the_last_image_of_level_one_goes_for_a_higher_one() {
    let many = dm_sync::scaled(4_000, 40) as u64;
    let cache = IndexCache::new(bytes_of(many));
    for i in 0..many {
        offer(&cache, 1, i, 0, 1);
    }
    for i in 1..many {
        let hit = cache.lookup(&(i * FAN_OUT)).unwrap();
        cache.invalidate(hit.origin);
    }
    assert_eq!(cache.len(), 1);
    // Pinned nodes use up the budget.
    let mut i = 0;
    while cache.len_at(1) == 1 {
        assert_eq!(offer(&cache, 2, i, 0, 1_000), Admitted::New);
        i += 1;
    }
    assert!(cache.bytes() <= bytes_of(many));
}
