//! Tests of published flaws and their corrections: T-S7, duplicate images in a level, and the removal of a newer image
//! instead of a stale one.
#![expect(clippy::unwrap_used, reason = "a test that can't go on stops")]

use dm_cache::{Admitted, CacheFlaws, Hit, IndexCache, NodeImage};
use dm_verbs::{NodeId, RemotePtr};

fn at(kilobytes: u64) -> RemotePtr {
    RemotePtr::new(NodeId(0), kilobytes << 10).unwrap()
}

/// Offers a level-1 node. `children[i]` covers `[keys[i], keys[i + 1])`, and the last key is the upper fence key.
fn offer(cache: &IndexCache<u64>, node: u64, keys: &[u64], children: &[u64]) -> Admitted {
    let (high, separators) = keys.split_last().unwrap();
    cache.admit(NodeImage {
        at: at(node),
        level: 1,
        low: separators[0],
        high: Some(*high),
        incarnation: 0,
        entries: separators
            .iter()
            .copied()
            .zip(children.iter().map(|child| at(*child))),
    })
}

fn held_up_reader(flaws: CacheFlaws) -> Option<Hit<u64>> {
    let cache = IndexCache::new(u64::MAX).with_flaws(flaws);
    offer(&cache, 1, &[0, 50, 100], &[10, 11]);
    // A reader finds the node for key 60, and is delayed.
    let found = cache.find(&60).unwrap();
    // A second client finds that node stale. A third client caches a node of another range, which reuses the slot.
    cache.invalidate(cache.lookup(&60).unwrap().origin);
    offer(&cache, 2, &[500, 550, 600], &[20, 21]);
    cache.read(&found, &60)
}

#[test]
fn s7_a_recycled_slot_is_recognised() {
    assert_eq!(held_up_reader(CacheFlaws::default()), None);
}

#[test]
fn s7_the_flaw_returns_a_child_of_another_node() {
    let wrong = held_up_reader(CacheFlaws { recycled_slot: true }).expect("whatever is in the slot");
    assert_eq!(
        (wrong.child, wrong.low),
        (at(20), 500),
        "the child for key 60 is at {}",
        at(11)
    );
}

#[test]
fn an_image_that_came_back_is_the_same_image() {
    let cache = IndexCache::new(u64::MAX);
    offer(&cache, 1, &[0, 100], &[10]);
    let before = cache.lookup(&5).unwrap();
    cache.invalidate(before.origin);
    offer(&cache, 2, &[500, 600], &[20]);
    offer(&cache, 1, &[0, 100], &[10]);
    let now = cache.lookup(&5).unwrap();
    assert_ne!(now.origin, before.origin, "it is in another slot");
    assert_eq!(cache.read(&before.origin, &5), Some(now));
    assert!(cache.invalidate(before.origin));
}

#[test]
fn s9_a_split_leaves_no_duplicates() {
    let cache = IndexCache::new(u64::MAX);
    offer(&cache, 1, &[0, 25, 50, 75, 100], &[10, 11, 12, 13]);
    // The node was split at 50. The new sibling is read first, and the old node later.
    assert_eq!(offer(&cache, 2, &[50, 75, 100], &[12, 13]), Admitted::New);
    let run = |cache: &IndexCache<u64>| {
        let mut out = Vec::new();
        cache.run(&0, 99, |hit| out.push(hit));
        out.iter().map(|hit| hit.child.offset() >> 10).collect::<Vec<_>>()
    };
    assert_eq!(run(&cache), [10, 11, 12, 13]);
    assert_eq!(cache.lookup(&60).unwrap().origin.node, at(2));
    assert_eq!(
        offer(&cache, 1, &[0, 10, 25, 50], &[10, 14, 11]),
        Admitted::Replaced
    );
    assert_eq!(run(&cache), [10, 14, 11, 12, 13]);
    // The nodes are merged again: the sibling's image is removed.
    assert_eq!(offer(&cache, 1, &[0, 50, 100], &[15, 16]), Admitted::Replaced);
    assert_eq!((run(&cache), cache.len()), (vec![15, 16], 1));
}

#[test]
fn s11_a_fresher_image_survives_the_invalidation_of_the_stale_one() {
    let cache = IndexCache::new(u64::MAX);
    offer(&cache, 1, &[0, 100], &[10]);
    let stale = cache.lookup(&60).unwrap();
    offer(&cache, 1, &[0, 50, 100], &[10, 11]);
    assert!(!cache.invalidate(stale.origin));
    assert_eq!(cache.lookup(&60).unwrap().child, at(11));
    assert_eq!(cache.read(&stale.origin, &60), None);
}
