//! Compares the caches' own counts of bytes with an allocator that counts, and checks the bytes per key.
#![expect(clippy::unwrap_used, reason = "a test that can't go on stops")]

use core::cell::Cell;
use std::alloc::{GlobalAlloc, Layout, System};

use dm_cache::{Addition, Admitted, IndexCache, NodeImage, PrefixCache, PrefixIndex};
use dm_layout::{NodeTypes, RadixHeader, SlotWord};
use dm_verbs::{NodeId, RemotePtr};

use crate::prefix::{at, image, inner, leaf};

std::thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: i64) {
    // A thread that is ending may have no counter any more. No test reads the counter then.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call is passed on to the system's allocator unchanged. Counting only changes a thread-local number.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promises about `at` and `layout` are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns a pseudo-random number below `bound`.
fn below(state: &mut u64, bound: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

fn offer<K: dm_cache::CacheKey>(
    cache: &IndexCache<K>,
    (id, level, low): (u64, u8, u64),
    (children, step): (u64, u64),
    far: bool,
    key: impl Fn(u64) -> K + Clone,
) -> Admitted {
    let distance = if far { 1 << 45 | 8 } else { 1024 };
    cache.admit(NodeImage {
        at: RemotePtr::new(NodeId(0), id << 10).unwrap(),
        level,
        low: key(low),
        high: Some(key(low + children * step)),
        incarnation: 0,
        entries: (0..children).map(move |i| {
            let at = RemotePtr::new(NodeId(i as u16 % 3), (i * distance) & ((1 << 48) - 1)).unwrap();
            (key(low + i * step), at)
        }),
    })
}

/// Adds a child to the level-1 image that covers `key(low)`, with this key as its separator. Returns whether the cache
/// has added it.
fn grow<K: dm_cache::CacheKey>(cache: &IndexCache<K>, low: u64, key: impl Fn(u64) -> K) -> bool {
    let Some(hit) = cache.lookup_at(1, &key(low)) else {
        return false;
    };
    let nodes = cache.snapshot();
    let node = nodes.iter().find(|node| node.low == hit.origin.low).unwrap();
    cache.add(&Addition {
        at: node.at,
        level: 1,
        low: node.low,
        high: node.high,
        incarnation: node.incarnation,
        entries: node.entries.len() + 1,
        separator: key(low),
        child: hit.child,
    })
}

/// Runs random admissions (new, replacing, trimming), additions, invalidations and clears. After each of them, the
/// cache's count of bytes must be that of the allocator. Returns the largest count.
fn every_byte_is_counted<K: dm_cache::CacheKey>(budget: u64, key: impl Fn(u64) -> K + Copy) -> u64 {
    let (mut rng, mut evicted, mut added, mut top, mut len) = (1, 0, 0, 0, 0);
    let before = LIVE.get();
    let cache = Box::new(IndexCache::new(budget));
    for step in 0..dm_sync::scaled(6_000, 60) {
        let low = below(&mut rng, 1_000_000);
        match below(&mut rng, 10) {
            0..=6 => {
                let level = if below(&mut rng, 20) == 0 { 2 } else { 1 };
                let shape = (1 + below(&mut rng, 60), 1 + below(&mut rng, 20));
                let far = below(&mut rng, 8) == 0;
                let admitted = offer(&cache, (below(&mut rng, 1_000), level, low), shape, far, key);
                assert!(cache.bytes() <= budget, "step {step}: admitted beyond the budget");
                let now = cache.len();
                evicted += usize::from(now <= len && admitted == Admitted::New);
                len = now;
            }
            7 => drop(cache.lookup(&key(low)).map(|hit| cache.invalidate(hit.origin))),
            _ => added += usize::from(grow(&cache, low, key)),
        }
        if step % 2_500 == 2_499 {
            cache.clear();
        }
        assert_eq!(cache.bytes() as i64, LIVE.get() - before, "step {step}");
        top = top.max(cache.bytes());
    }
    drop(cache);
    assert_eq!(LIVE.get(), before);
    assert!(budget == u64::MAX || evicted > 0, "the budget was never reached");
    assert!(dm_sync::SMALL_WORLD || added > 0, "no image has grown");
    top
}

/// Admits and removes random nodes below one root, and learns random slots. After each step, the cache's count of bytes
/// must be that of the allocator.
fn every_byte_of_images_is_counted(index: PrefixIndex, budget: u64) {
    let root: Vec<SlotWord> = (0..=255).map(|p| inner(p, 100 + u64::from(p), 2)).collect();
    let (mut rng, mut top) = (1, 0);
    let before = LIVE.get();
    let cache = Box::new(PrefixCache::with_index(index, NodeTypes::SHIPPED, budget));
    for step in 0..dm_sync::scaled(6_000, 60) {
        if step % 50 == 0 {
            cache.admit(&[0; 4], image(1, RadixHeader::new(0, 3, &[]), &root));
        }
        let n = below(&mut rng, 256);
        let (key, node) = ([n as u8, 7, 0, 0], at(100 + n));
        match below(&mut rng, 8) {
            0..=4 => {
                let leaves: Vec<SlotWord> = (0..below(&mut rng, 20)).map(|p| leaf(p as u8, 9)).collect();
                cache.admit(&key, image(100 + n, RadixHeader::new(1, 2, &[7]), &leaves));
            }
            5..=6 => {
                let (slot, far) = (below(&mut rng, 20), below(&mut rng, 8) == 0);
                let word = SlotWord::leaf(slot as u8, at(9).raw(), if far { 2 } else { 1 }).unwrap();
                cache.learn(&key, node, slot as usize, word);
            }
            _ => cache.forget(&key, node),
        }
        assert!(cache.bytes() <= budget, "step {step}");
        assert_eq!(cache.bytes() as i64, LIVE.get() - before, "step {step}");
        top = top.max(cache.bytes());
    }
    drop(cache);
    assert_eq!(LIVE.get(), before);
    assert!(
        dm_sync::SMALL_WORLD || budget > 1 << 20 || top > budget / 32 * 30,
        "the budget is used, not only kept: {top} of {budget} B"
    );
}

#[test]
fn images_of_radix_nodes() {
    for index in [PrefixIndex::Radix, PrefixIndex::Hash] {
        for budget in [6_000, 1 << 30] {
            every_byte_of_images_is_counted(index, budget);
        }
    }
}

#[test]
fn with_eight_byte_keys() {
    every_byte_is_counted(u64::MAX, |key| key);
}

#[test]
fn with_thirty_two_byte_keys() {
    every_byte_is_counted(u64::MAX, |key| {
        let mut bytes = [0; 32];
        bytes[24..].copy_from_slice(&key.to_be_bytes());
        bytes
    });
}

#[test]
fn within_a_budget_that_is_used() {
    let top = every_byte_is_counted(dm_sync::scaled(100_000, 4_000) as u64, |key| key);
    assert!(
        dm_sync::SMALL_WORLD || top > 95_000,
        "the budget is used, not only kept: {top} B"
    );
}

/// Checks and prints the bytes per key for ten million 8-byte keys. Leaves have 37 entries of at most 54, as random
/// inserts leave them, and inner nodes have 42 children of at most 61.
#[test]
fn bytes_per_key() {
    let nodes = dm_sync::scaled(10_000_000 / 37 / 42, 40) as u64;
    let cache = IndexCache::new(u64::MAX);
    let wide = nodes.next_power_of_two();
    for i in (0..wide)
        .map(|i| i.wrapping_mul(0x9E37_79B9) % wide)
        .filter(|i| *i < nodes)
    {
        cache.admit(NodeImage {
            at: RemotePtr::new(NodeId(0), i << 10).unwrap(),
            level: 1,
            low: i << 32,
            high: Some((i + 1) << 32),
            incarnation: 0,
            // Leaves are anywhere in 64 GiB of each of 8 memory nodes.
            entries: (0..42).map(move |j| {
                let place = (i * 42 + j).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let at =
                    RemotePtr::new(NodeId((place >> 61) as u16), (place >> 20 & 0x3FF_FFFF) << 10).unwrap();
                ((i << 32) + (j << 20), at)
            }),
        });
    }
    let per_key = cache.bytes() as f64 / (nodes * 42 * 37) as f64;
    assert!(
        dm_sync::SMALL_WORLD || per_key <= 0.45,
        "{per_key:.3} B per key, the budget is 0.45"
    );
    println!(
        "{} nodes, {} B, {per_key:.3} B per key",
        cache.len(),
        cache.bytes()
    );
}
