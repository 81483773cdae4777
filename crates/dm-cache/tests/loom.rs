//! Runs the caches under loom: admission, lookup, invalidation and eviction. Most models have a mutant that must fail.
#![cfg(dm_loom)]

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dm_cache::{CacheFlaws, Hit, HotspotFlaws, Hotspots, IndexCache, NodeImage, PrefixCache, PrefixImage};
use dm_layout::{NodeTypes, RadixHeader, SlotWord};
use dm_sync::{Arc, thread};
use dm_verbs::{NodeId, RemotePtr};

/// Returns the child that starts at `low`, of the `version`th image.
fn child(low: u64, version: u64) -> RemotePtr {
    RemotePtr::new(NodeId(version as u16), low << 10).expect("a small offset")
}

fn admit(cache: &IndexCache<u64>, lows: &[u64], high: u64, version: u64) {
    cache.admit(NodeImage {
        at: RemotePtr::new(NodeId(0), lows[0] << 20).expect("a small offset"),
        level: 1,
        low: lows[0],
        high: Some(high),
        incarnation: version as u32,
        entries: lows.iter().map(|low| (*low, child(*low, version))),
    });
}

fn assert_covers(hit: &Hit<u64>, key: u64) {
    assert!(
        hit.low <= key && hit.high.is_some_and(|high| key < high),
        "a child of another node"
    );
    assert_eq!(hit.child.offset(), hit.low << 10, "a child of another node");
}

/// Runs `body` in every interleaving, prints the number of interleavings, and checks that it is at least `floor`.
fn explore(name: &str, floor: usize, body: impl Fn() + Send + Sync + 'static) {
    let runs = StdArc::new(AtomicUsize::new(0));
    let counter = StdArc::clone(&runs);
    loom::model(move || {
        // Relaxed: a counter of runs, read after the model ended.
        counter.fetch_add(1, Ordering::Relaxed);
        body();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{name}: {runs} interleavings");
    assert!(
        runs >= floor,
        "{name}: only {runs} interleavings, at least {floor} expected"
    );
}

/// Runs a lookup of key 60 in two halves. Meanwhile another client invalidates the node that was found, and caches
/// another image in its slot.
fn recycled_slot(flaws: CacheFlaws) {
    explore("recycled slot", 40, move || {
        let cache = Arc::new(IndexCache::new(u64::MAX).with_flaws(flaws));
        admit(&cache, &[0, 50], 100, 1);
        let reader = thread::spawn({
            let cache = Arc::clone(&cache);
            move || {
                let found = cache.find(&60);
                if let Some(hit) = found.and_then(|found| cache.read(&found, &60)) {
                    assert_covers(&hit, 60);
                }
            }
        });
        if let Some(hit) = cache.lookup(&60) {
            cache.invalidate(hit.origin);
        }
        admit(&cache, &[500, 550], 600, 1);
        reader.join().expect("no panic");
        assert_eq!(cache.lookup(&60), None);
        assert_eq!(cache.lookup(&560).map(|hit| hit.child), Some(child(550, 1)));
    });
}

#[test]
fn a_recycled_slot_is_recognised() {
    recycled_slot(CacheFlaws::default());
}

#[test]
#[should_panic(expected = "a child of another node")]
fn a_recycled_slot_that_is_not_checked_is_found() {
    recycled_slot(CacheFlaws { recycled_slot: true });
}

/// Runs two clients that both found the first image stale. One of them then caches a second image, which must stay.
/// Without `check`, the other client removes whatever image is cached for the key.
fn fresher_image_stays(check: bool) {
    explore("fresher image", 20, move || {
        let cache = Arc::new(IndexCache::new(u64::MAX));
        admit(&cache, &[0, 50], 100, 1);
        let stale = cache.lookup(&60).expect("cached").origin;
        let other = thread::spawn({
            let cache = Arc::clone(&cache);
            move || match check {
                true => cache.invalidate(stale),
                // As published, this removes the key's current image.
                false => cache.lookup(&60).is_some_and(|hit| cache.invalidate(hit.origin)),
            }
        });
        cache.invalidate(stale);
        admit(&cache, &[0, 50, 75], 100, 2);
        other.join().expect("no panic");
        assert_eq!(
            cache.lookup(&80).map(|hit| hit.child),
            Some(child(75, 2)),
            "the fresh image is gone"
        );
    });
}

#[test]
fn a_fresher_image_survives() {
    fresher_image_stays(true);
}

#[test]
#[should_panic(expected = "the fresh image is gone")]
fn a_newer_image_is_removed_if_origins_are_not_compared() {
    fresher_image_stays(false);
}

/// Two threads cache the two halves of a split node while a third one collects a run. The run must never contain a key
/// twice.
#[test]
fn a_run_has_no_duplicates() {
    explore("run beside a split", 200, || {
        let cache = Arc::new(IndexCache::new(u64::MAX));
        admit(&cache, &[0, 50], 100, 1);
        let right = thread::spawn({
            let cache = Arc::clone(&cache);
            move || admit(&cache, &[50, 75], 100, 2)
        });
        let scan = thread::spawn({
            let cache = Arc::clone(&cache);
            move || {
                let mut out = Vec::new();
                cache.run(&0, 9, |hit| out.push(hit));
                assert!(
                    out.windows(2).all(|pair| pair[0].high == Some(pair[1].low)),
                    "{out:?}"
                );
                assert_eq!(out.first().map(|hit| hit.low), Some(0));
            }
        });
        admit(&cache, &[0, 25], 50, 2);
        right.join().expect("no panic");
        scan.join().expect("no panic");
        // An older image of the left node was replaced as a whole. The right node is cached in either order.
        let lows: Vec<_> = cache.snapshot().iter().map(|node| node.low).collect();
        assert_eq!(lows, [0, 50]);
    });
}

/// Returns a budget for one node.
fn one_node() -> u64 {
    let probe = IndexCache::new(u64::MAX);
    admit(&probe, &[0, 50], 100, 1);
    probe.bytes()
}

/// Runs a lookup of key 60 in two halves, during which another thread evicts its image and reuses the slot. The mutant
/// is T-S7.
fn evicted_slot(flaws: CacheFlaws) {
    explore("evicted slot", 8, move || {
        let cache = Arc::new(IndexCache::new(one_node()).with_flaws(flaws));
        admit(&cache, &[0, 50], 100, 1);
        let reader = thread::spawn({
            let cache = Arc::clone(&cache);
            move || {
                let found = cache.find(&60);
                if let Some(hit) = found.and_then(|found| cache.read(&found, &60)) {
                    assert_covers(&hit, 60);
                }
            }
        });
        admit(&cache, &[800, 850], 900, 1);
        admit(&cache, &[500, 550], 600, 1);
        reader.join().expect("no panic");
        assert_eq!(cache.len(), 1, "there is room for one");
        assert_eq!(cache.lookup(&560).map(|hit| hit.child), Some(child(550, 1)));
    });
}

#[test]
fn an_evicted_slot_is_recognised() {
    evicted_slot(CacheFlaws::default());
}

#[test]
#[should_panic(expected = "a child of another node")]
fn an_evicted_slot_that_is_not_checked_is_found() {
    evicted_slot(CacheFlaws { recycled_slot: true });
}

/// Runs two clients that each cache a node, although there is room for only one, and then check the bytes. The mutant
/// makes room in one section and caches the node in the next section.
fn budget_holds(in_one_section: bool) {
    explore("budget", 10, move || {
        let budget = one_node();
        let cache = Arc::new(IndexCache::new(if in_one_section { budget } else { u64::MAX }));
        let cached = move |cache: &IndexCache<u64>, low: u64| {
            if !in_one_section && cache.bytes() >= budget {
                cache.clear();
            }
            admit(cache, &[low, low + 50], low + 100, 1);
            assert!(cache.bytes() <= budget, "more bytes than the budget");
        };
        let other = thread::spawn({
            let cache = Arc::clone(&cache);
            move || cached(&cache, 500)
        });
        cached(&cache, 0);
        other.join().expect("no panic");
        assert_eq!(cache.len(), 1);
    });
}

#[test]
fn two_evicting_clients_stay_within_the_budget() {
    budget_holds(true);
}

#[test]
#[should_panic(expected = "more bytes than the budget")]
fn room_made_in_another_section_is_found() {
    budget_holds(false);
}

/// Returns a table of one set.
fn one_set(flaws: HotspotFlaws) -> Hotspots {
    let table = (0..).find_map(Hotspots::new).expect("of some size there is room");
    table.with_flaws(flaws)
}

/// Runs two clients. One finds a key in its slot. The other one reports this slot as wrong, and then finds another key.
/// In the end the table must contain the other key. The mutant writes back an entry that was removed meanwhile.
fn hotspots_stay(flaws: HotspotFlaws) {
    explore("hotspots", 20, move || {
        let hot = Arc::new(one_set(flaws));
        let leaf = RemotePtr::new(NodeId(0), 64).expect("a small offset");
        hot.found(leaf, 1, 7);
        let other = thread::spawn({
            let hot = Arc::clone(&hot);
            move || hot.found(leaf, 1, 7)
        });
        hot.wrong(leaf, 1, 7);
        hot.found(leaf, 2, 9);
        other.join().expect("no panic");
        assert_eq!(hot.guess(leaf, 2), Some(9), "a hotspot is lost");
        assert!(hot.len() <= hot.capacity());
    });
}

#[test]
fn hotspots_are_kept() {
    hotspots_stay(HotspotFlaws::default());
}

#[test]
#[should_panic(expected = "a hotspot is lost")]
fn hotspots_stored_blindly_are_lost() {
    hotspots_stay(HotspotFlaws { blind_stores: true });
}

/// Runs two clients. One copies another compute node's entry. The other one finds a key, whose entry must stay. The
/// mutant overwrites entries that were added meanwhile.
fn hotspots_are_adopted(flaws: HotspotFlaws) {
    explore("adopted hotspots", 4, move || {
        let hot = Arc::new(one_set(flaws));
        let theirs = one_set(HotspotFlaws::default());
        let leaf = RemotePtr::new(NodeId(0), 64).expect("a small offset");
        theirs.found(leaf, 1, 7);
        let adopting = thread::spawn({
            let hot = Arc::clone(&hot);
            move || hot.adopt(&theirs)
        });
        hot.found(leaf, 2, 9);
        adopting.join().expect("no panic");
        assert_eq!(hot.guess(leaf, 2), Some(9), "a hotspot is lost");
        // If the other key was found first, it may have taken the only free place into which this entry could be
        // copied.
        assert!(matches!(hot.guess(leaf, 1), None | Some(7)));
    });
}

#[test]
fn adopted_hotspots_replace_none() {
    hotspots_are_adopted(HotspotFlaws::default());
}

#[test]
#[should_panic(expected = "a hotspot is lost")]
fn hotspots_adopted_blindly_replace_others() {
    hotspots_are_adopted(HotspotFlaws { blind_stores: true });
}

/// A client reports a hotspot as wrong. Meanwhile another key is found, whose count is at its limit, so that all counts
/// of the set are halved. The wrong hotspot must be removed.
#[test]
fn a_hotspot_that_is_wrong_while_counts_are_halved_goes() {
    explore("halved hotspot", 4, || {
        let hot = Arc::new(one_set(HotspotFlaws::default()));
        let leaf = RemotePtr::new(NodeId(0), 64).expect("a small offset");
        (0..3).for_each(|_| hot.found(leaf, 1, 7));
        (0..3).for_each(|_| hot.found(leaf, 2, 9));
        let other = thread::spawn({
            let hot = Arc::clone(&hot);
            move || hot.found(leaf, 2, 9)
        });
        hot.wrong(leaf, 1, 7);
        other.join().expect("no panic");
        assert_eq!(hot.guess(leaf, 1), None, "a wrong hotspot stays");
    });
}

/// Returns the image of a root with these two slots.
fn radix_image(slots: [SlotWord; 2]) -> PrefixImage<impl Iterator<Item = SlotWord> + Clone> {
    PrefixImage {
        at: RemotePtr::new(NodeId(0), 64).expect("a small offset"),
        header: RadixHeader::new(0, 1, &[]),
        incarnation: 1,
        words: slots.into_iter(),
    }
}

/// Returns the slot of key byte `partial`, with a leaf in line `line`.
fn radix_leaf(partial: u8, line: u64) -> SlotWord {
    let at = RemotePtr::new(NodeId(0), 64 * line).expect("a small offset");
    SlotWord::leaf(partial, at.raw(), 1).expect("a small offset")
}

/// Runs an operation that reads a node and caches it, while two turns begin. If the operation began before both turns,
/// no later lookup may find the image. The mutant determines the operation's age only after the READ.
fn turns_count_from_the_beginning(from_the_beginning: bool) {
    explore("turns", 20, move || {
        let cache = Arc::new(PrefixCache::new(NodeTypes::TINY, u64::MAX));
        let operation = thread::spawn({
            let cache = Arc::clone(&cache);
            move || {
                let began = cache.turns();
                let old = cache.leaf(b"a");
                let image = radix_image([radix_leaf(b'a', 9), SlotWord::empty(1)]);
                let read = if from_the_beginning { began } else { cache.turns() };
                cache.since(read).admit(b"a", image);
                (began, old)
            }
        });
        cache.turn();
        cache.turn();
        let (began, old) = operation.join().expect("no panic");
        assert_eq!(old, None, "nothing was cached");
        assert!(
            began > 0 || cache.leaf(b"a").is_none(),
            "an image from before the turn but one"
        );
    });
}

#[test]
fn an_image_is_as_old_as_the_operation_that_read_it() {
    turns_count_from_the_beginning(true);
}

#[test]
#[should_panic(expected = "an image from before the turn but one")]
fn an_image_as_old_as_its_keeping_is_found() {
    turns_count_from_the_beginning(false);
}

/// Runs a client that looks up a key twice, while another client learns that the key's leaf has changed. Each lookup
/// must find one of the two leaves, and the second lookup must not find the old leaf after the first has found the new
/// one. The mutant removes the node's image and caches it again.
fn a_slot_is_learnt_at_once(at_once: bool) {
    explore("learnt slot", 4, move || {
        let cache = Arc::new(PrefixCache::new(NodeTypes::TINY, u64::MAX));
        let [before, after] = [8, 9].map(|line| radix_leaf(b'a', line));
        let other = radix_leaf(b'b', 10);
        assert!(cache.admit(b"a", radix_image([before, other])));
        let reader = thread::spawn({
            let cache = Arc::clone(&cache);
            move || {
                let [first, second] = [0, 1].map(|_| cache.leaf(b"a").map(|(leaf, _)| leaf.offset() / 64));
                assert!(first.is_some() && second.is_some(), "a key without its node");
                assert!(first <= second, "an older leaf behind a newer one");
            }
        });
        let node = radix_image([after, other]);
        if at_once {
            cache.learn(b"a", node.at, 0, after);
        } else {
            cache.forget(b"a", node.at);
            cache.admit(b"a", node);
        }
        reader.join().expect("no panic");
        assert_eq!(cache.leaf(b"a").map(|(leaf, _)| leaf.offset() / 64), Some(9));
    });
}

#[test]
fn readers_find_a_slot_before_or_behind_what_is_learnt() {
    a_slot_is_learnt_at_once(true);
}

#[test]
#[should_panic(expected = "a key without its node")]
fn a_slot_learnt_in_two_sections_is_found() {
    a_slot_is_learnt_at_once(false);
}
