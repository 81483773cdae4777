//! Tests readers that run concurrently with a writer: a reader gets only children that some image had for its key.
#![expect(clippy::unwrap_used, reason = "a test that can't go on stops")]

use dm_cache::{IndexCache, NodeImage};
use dm_sync::atomic::{AtomicBool, Ordering};
use dm_sync::{Arc, thread};
use dm_verbs::{NodeId, RemotePtr};

const STEP: u64 = 8;
const KEYS: u64 = dm_sync::scaled(40_000, 64) as u64;
const ROUNDS: u64 = dm_sync::scaled(200_000, 100) as u64;

/// Returns the leaf that begins at `low`. It is always the same.
fn leaf(low: u64) -> RemotePtr {
    RemotePtr::new(NodeId((low % 5) as u16), low << 10).unwrap()
}

fn admit(cache: &IndexCache<u64>, low: u64, children: u64) {
    cache.admit(NodeImage {
        at: RemotePtr::new(NodeId(0), low << 20).unwrap(),
        level: 1,
        low,
        high: Some(low + children * STEP),
        incarnation: 0,
        entries: (0..children).map(move |i| (low + i * STEP, leaf(low + i * STEP))),
    });
}

fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn readers_get_only_what_was_written() {
    let cache = Arc::new(IndexCache::new(1 << 20));
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (1..=2)
        .map(|seed| {
            let (cache, stop) = (Arc::clone(&cache), Arc::clone(&stop));
            thread::spawn(move || {
                let (mut rng, mut hits, mut out) = (seed, 0u64, Vec::new());
                // Relaxed: the flag only ends the loop. The values that were found are checked separately.
                while !stop.load(Ordering::Relaxed) || hits == 0 {
                    let key = random(&mut rng) % KEYS;
                    let found = cache.find(&key);
                    let hit = found.and_then(|found| cache.read(&found, &key));
                    for hit in hit.into_iter().chain(cache.lookup(&key)) {
                        assert!(hit.low <= key && hit.high.is_some_and(|high| key < high));
                        assert_eq!(hit.child, leaf(hit.low));
                        hits += 1;
                    }
                    out.clear();
                    cache.run(&key, 20, |hit| out.push(hit));
                    assert!(out.windows(2).all(|pair| pair[0].high == Some(pair[1].low)));
                    assert!(out.first().is_none_or(|hit| hit.low <= key));
                    if hits % 64 == 1 {
                        hit.map(|hit| cache.invalidate(hit.origin));
                    }
                }
                hits
            })
        })
        .collect();
    let mut rng = 99;
    for _ in 0..ROUNDS {
        admit(
            &cache,
            random(&mut rng) % (KEYS / STEP) * STEP,
            1 + random(&mut rng) % 40,
        );
    }
    // An image of all keys is cached at the end, so that a reader that starts late finds something too.
    admit(&cache, 0, KEYS / STEP);
    stop.store(true, Ordering::Relaxed); // Relaxed: as above.
    for reader in readers {
        assert!(reader.join().expect("a reader panicked") > 0);
    }
    let nodes = cache.snapshot();
    assert!(
        nodes
            .windows(2)
            .all(|pair| pair[0].high.is_some_and(|high| high <= pair[1].low))
    );
    assert!(cache.bytes() <= 1 << 20);
}
