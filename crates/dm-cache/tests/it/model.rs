//! Compares the cache with a list of images that is searched linearly.
#![expect(clippy::unwrap_used, reason = "a test that can't go on stops")]

use dm_cache::{Addition, Admitted, CachedNode, Hit, IndexCache, NodeImage};
use dm_sync::{Fingerprint, fingerprint_unordered};
use dm_verbs::{NodeId, RemotePtr};
use proptest::collection::vec;
use proptest::prelude::*;

type Node = CachedNode<u64>;

fn offer(cache: &IndexCache<u64>, node: &Node) -> Admitted {
    cache.admit(NodeImage {
        at: node.at,
        level: node.level,
        low: node.low,
        high: node.high,
        incarnation: node.incarnation,
        entries: node.entries.iter().copied(),
    })
}

fn covers(node: &Node, key: u64) -> bool {
    node.low <= key && node.high.is_none_or(|high| key < high)
}

fn overlap(a: &Node, b: &Node) -> bool {
    a.level == b.level && a.high.is_none_or(|high| b.low < high) && b.high.is_none_or(|high| a.low < high)
}

/// Returns the argument of `IndexCache::add` for one more child of `node`, and the node with this child, as an
/// admission would pass it.
fn grown(node: &Node, separator: u64, child: RemotePtr) -> (Addition<u64>, Node) {
    let mut grown = node.clone();
    grown.entries.push((separator, child));
    grown.entries.sort_unstable();
    let addition = Addition {
        at: node.at,
        level: node.level,
        low: node.low,
        high: node.high,
        incarnation: node.incarnation,
        entries: grown.entries.len(),
        separator,
        child,
    };
    (addition, grown)
}

/// Applies the rule of `IndexCache::admit` literally.
fn admit(model: &mut Vec<Node>, newcomer: &Node) -> Admitted {
    let mut replaced = false;
    model.retain_mut(|node| {
        if !overlap(node, newcomer) {
            return true;
        }
        replaced |= node.at == newcomer.at;
        node.high = Some(newcomer.low);
        node.entries.retain(|(key, _)| *key < newcomer.low);
        node.at != newcomer.at && node.low < newcomer.low
    });
    model.push(newcomer.clone());
    model.sort_by_key(|node| (node.level, node.low));
    if replaced {
        Admitted::Replaced
    } else {
        Admitted::New
    }
}

/// Returns the children of `node` from the one for `key` on: child, low, high.
fn children(node: &Node, key: u64) -> Vec<(RemotePtr, u64, Option<u64>)> {
    let highs = node.entries[1..]
        .iter()
        .map(|(key, _)| Some(*key))
        .chain([node.high]);
    let all = node
        .entries
        .iter()
        .zip(highs)
        .map(|((low, child), high)| (*child, *low, high));
    all.filter(|(_, _, high)| high.is_none_or(|high| key < high))
        .collect()
}

fn seen(hit: &Hit<u64>) -> (RemotePtr, u64, Option<u64>) {
    (hit.child, hit.low, hit.high)
}

fn run(model: &[Node], key: u64, max: usize) -> Vec<(RemotePtr, u64, Option<u64>)> {
    let (mut out, mut from) = (Vec::new(), Some(key));
    while let Some(node) = from.and_then(|key| model.iter().find(|node| node.level == 1 && covers(node, key)))
    {
        out.extend(children(node, from.unwrap()));
        from = node.high;
    }
    out.truncate(max);
    out
}

/// Checks that each evicted image was of level 1, or of a lower level than the new image.
fn evicted(before: &[Node], after: &[Node], newcomer: u8) {
    let mut gone = before.iter().filter(|image| !after.contains(image));
    assert!(gone.all(|image| image.level == 1 || image.level < newcomer));
}

fn check_lookups(cache: &IndexCache<u64>, model: &[Node], key: u64, max: usize) {
    let deepest = model.iter().find(|node| covers(node, key));
    let hit = cache.lookup(&key);
    assert_eq!(hit.as_ref().map(seen), deepest.map(|node| children(node, key)[0]));
    assert_eq!(hit.map(|hit| hit.child_level + 1), deepest.map(|node| node.level));
    assert_eq!(cache.find(&key), hit.map(|hit| hit.origin));
    assert_eq!(hit.and_then(|hit| cache.read(&hit.origin, &key)), hit);
    for level in 0..=4 {
        let node = model.iter().find(|node| node.level == level && covers(node, key));
        assert_eq!(
            cache.lookup_at(level, &key).as_ref().map(seen),
            node.map(|node| children(node, key)[0])
        );
    }
    let mut out = Vec::new();
    assert_eq!(cache.run(&key, max, |hit| out.push(hit)), out.len());
    assert_eq!(out.iter().map(seen).collect::<Vec<_>>(), run(model, key, max));
}

#[derive(Clone, Debug)]
enum Op {
    Admit(Node),
    /// Reports the hit that was this many hits ago as stale. It may have been reported before.
    Invalidate(usize),
    Look(u64, usize),
    /// Adds this child to the node that was offered or grown this many nodes ago, at this distance above the node's
    /// low. The last two numbers are added to the incarnation and to the number of entries. Unless they are 0, they
    /// make these wrong.
    Add(usize, u64, RemotePtr, u32, usize),
    Clear,
}

fn pointer() -> impl Strategy<Value = RemotePtr> {
    // Addresses are near enough for codes of three bytes, for codes of four bytes, or for neither.
    let far = prop_oneof![8 => Just(0u64), 1 => Just(1 << 35), 1 => Just(1 << 47 | 8)];
    (0u16..3, 0u64..1 << 20, far)
        .prop_map(|(mn, kilobyte, far)| RemotePtr::new(NodeId(mn), kilobyte << 10 | far).unwrap())
}

/// Draws nodes of up to 8 children with low keys below `keys`. There are only 11 addresses, so that the same node
/// recurs.
fn node(keys: u64) -> impl Strategy<Value = Node> {
    let rest = vec((1..keys / 8, pointer()), 0..8);
    let head = (
        1u64..12,
        prop_oneof![6 => Just(1u8), 1 => Just(2), 1 => Just(4)],
        0..keys,
        pointer(),
    );
    (head, rest, prop::option::weighted(0.9, 1..keys / 8), 0u32..3).prop_map(
        |((at, level, low, child), rest, last, incarnation)| {
            let mut entries = std::vec![(low, child)];
            let mut key = low;
            for (step, child) in rest {
                key += step;
                entries.push((key, child));
            }
            let at = RemotePtr::new(NodeId(0), at << 10).unwrap();
            let high = last.map(|step| key + step);
            Node {
                at,
                level,
                low,
                high,
                incarnation,
                entries,
            }
        },
    )
}

fn op(keys: u64) -> impl Strategy<Value = Op> {
    prop_oneof![
        40 => node(keys).prop_map(Op::Admit),
        20 => (0usize..8).prop_map(Op::Invalidate),
        40 => (0..keys + keys / 4, 0usize..20).prop_map(|(key, max)| Op::Look(key, max)),
        20 => (0usize..4, 0..keys / 4, pointer(), 0u32..12, 0usize..8).prop_map(|(back, key, child, wrong, more)| {
            Op::Add(back, key, child, wrong / 10, more / 7)
        }),
        1 => Just(Op::Clear),
    ]
}

fn play(ops: Vec<Op>, budget: u64) {
    let cache = IndexCache::new(budget);
    let (mut model, mut origins) = (Vec::new(), Vec::new());
    let mut recent = Vec::new();
    for op in ops {
        if let Op::Admit(node) = &op {
            recent.push(node.clone());
        }
        match op {
            Op::Admit(node) if budget == u64::MAX => {
                assert_eq!(offer(&cache, &node), admit(&mut model, &node));
            }
            Op::Admit(node) => {
                let admitted = offer(&cache, &node);
                if admitted != Admitted::Full {
                    admit(&mut model, &node);
                }
                // Some images may be gone, but none may be new or changed, and the offered image must be cached if it
                // was admitted.
                let left = cache.snapshot();
                assert!(left.iter().all(|image| model.contains(image)));
                assert_eq!(left.contains(&node), model.contains(&node));
                assert!(left.is_empty() || cache.bytes() <= budget);
                evicted(&model, &left, node.level);
                model = left;
            }
            Op::Invalidate(back) => {
                let Some((origin, node)) = origins.iter().rev().nth(back).cloned() else {
                    continue;
                };
                // The image is removed if and only if exactly this image is still cached.
                let place = model.iter().position(|other| *other == node);
                assert_eq!(cache.invalidate(origin), place.is_some());
                place.map(|place| model.remove(place));
            }
            Op::Look(key, max) => {
                check_lookups(&cache, &model, key, max);
                if let Some(hit) = cache.lookup(&key) {
                    let node = model.iter().find(|node| covers(node, key)).unwrap();
                    origins.push((hit.origin, node.clone()));
                }
            }
            Op::Add(back, key, child, wrong, more) => {
                let Some(node) = recent.iter().rev().nth(back).cloned() else {
                    continue;
                };
                let separator = node.low + key;
                let (mut addition, _) = grown(&node, separator, child);
                addition.incarnation += wrong;
                addition.entries += more;
                // `add` identifies the image by everything except its entries, of which only the number counts.
                let place = model.iter().position(|other: &Node| {
                    let same = (other.at, other.level, other.low, other.high);
                    same == (addition.at, addition.level, addition.low, addition.high)
                        && other.incarnation == addition.incarnation
                        && other.entries.len() + 1 == addition.entries
                });
                let known = |other: &Node| other.entries.iter().any(|(key, _)| *key == separator);
                let place = place.filter(|place| covers(&node, separator) && !known(&model[*place]));
                let before = cache.bytes();
                let added = cache.add(&addition);
                // The addition may fail because the packing or the budget does not allow it. But it must never be made
                // in a wrong place.
                assert!(!added || place.is_some());
                assert!(added || cache.bytes() == before);
                if let Some(place) = place.filter(|_| added) {
                    model[place] = grown(&model[place], separator, child).1;
                    recent.push(model[place].clone());
                }
                assert!(model.is_empty() || cache.bytes() <= budget);
            }
            Op::Clear => {
                cache.clear();
                model.clear();
            }
        }
        assert_eq!(cache.snapshot(), model);
        assert_eq!(cache.len(), model.len());
        assert_eq!(
            cache.len_at(1),
            model.iter().filter(|node| node.level == 1).count()
        );
    }
    // The same content, admitted in another order into a fresh cache, is the same state.
    if budget == u64::MAX {
        let other = IndexCache::new(budget);
        for node in model.iter().rev() {
            offer(&other, node);
        }
        assert_eq!(other.fingerprint(), cache.fingerprint());
        if let Some(node) = model.first() {
            other.invalidate(other.lookup_at(node.level, &node.low).unwrap().origin);
            assert_ne!(other.fingerprint(), cache.fingerprint());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if dm_sync::SMALL_WORLD { 8 } else { 256 }))]

    /// With few keys, nearly every image overlaps another one.
    #[test]
    fn agrees_where_images_overlap(ops in vec(op(64), 1..80)) {
        play(ops, u64::MAX);
    }

    /// With many keys, a directory has more than one page.
    #[test]
    fn agrees_where_images_are_many(ops in vec(op(100_000), 200..400)) {
        play(ops, u64::MAX);
    }

    /// The budget is soon used up.
    #[test]
    fn agrees_when_full(ops in vec(op(256), 1..120), budget in 0u64..14_000) {
        play(ops, budget);
    }

    /// The cache refuses an inconsistent image and does not panic. Such images are possible, because their bytes come
    /// from the network.
    #[test]
    fn malformed_images_are_refused(
        level in 0u8..60, low in 0u64..4, high in prop::option::of(0u64..8),
        entries in vec((0u64..8, any::<u64>()), 0..4),
    ) {
        let cache = IndexCache::new(u64::MAX);
        let ascending = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let bounded = entries.first().is_some_and(|first| first.0 == low)
            && entries.last().is_some_and(|last| high.is_none_or(|high| last.0 < high));
        let sound = ascending && bounded && (1..=48).contains(&level);
        let entries: Vec<_> = entries.iter().map(|(key, raw)| (*key, RemotePtr::from_raw(*raw))).collect();
        let node = Node { at: RemotePtr::NULL, level, low, high, incarnation: 0, entries };
        prop_assert_eq!(offer(&cache, &node), if sound { Admitted::New } else { Admitted::Malformed });
        prop_assert_eq!(cache.snapshot(), if sound { vec![node] } else { vec![] });
    }
}

/// A node that gets one child after another is cached completely. Its leaves are allocated one after the other.
#[test]
fn children_are_added_without_admitting_the_node_anew() {
    let at = RemotePtr::new(NodeId(1), 1 << 30).unwrap();
    let child = |i: u64| at.add(i << 10);
    let mut node = Node {
        at,
        level: 1,
        low: 0,
        high: Some(1 << 20),
        incarnation: 3,
        entries: vec![(0, child(0))],
    };
    let cache = IndexCache::new(u64::MAX);
    assert_eq!(offer(&cache, &node), Admitted::New);
    for i in 1..48 {
        let before = cache.lookup(&(i << 8)).expect("all is covered").origin;
        let (addition, grown) = grown(&node, (i * 5 % 48) << 8, child(i));
        assert!(cache.add(&addition));
        assert!(!cache.add(&addition), "it is there");
        assert_eq!(cache.read(&before, &0), None, "another image has another stamp");
        node = grown;
        assert_eq!(cache.snapshot(), [node.clone()]);
        let fresh = IndexCache::new(u64::MAX);
        offer(&fresh, &node);
        assert_eq!(
            (fresh.bytes(), fresh.fingerprint()),
            (cache.bytes(), cache.fingerprint())
        );
    }
}

/// The test caches thousands of images, so that pages split and merge, and then removes all of them.
#[test]
fn a_large_directory_grows_and_shrinks() {
    let count = dm_sync::scaled(20_000, 60) as u64;
    let cache = IndexCache::new(u64::MAX);
    // An odd multiplier modulo a power of two visits every number once, in scattered order.
    let numbers = |salt: u64| {
        let wide = count.next_power_of_two();
        (0..wide)
            .map(move |i| i.wrapping_mul(0x9E37_79B9 | 1).wrapping_add(salt) % wide)
            .filter(move |i| *i < count)
    };
    for i in numbers(0) {
        let at = RemotePtr::new(NodeId(1), i << 10).unwrap();
        let entries = vec![(i * 10, at), (i * 10 + 5, at.add(1024))];
        let node = Node {
            at,
            level: 1,
            low: i * 10,
            high: Some(i * 10 + 10),
            incarnation: 0,
            entries,
        };
        assert_eq!(offer(&cache, &node), Admitted::New);
    }
    let mut out = Vec::new();
    assert_eq!(cache.run(&0, usize::MAX, |hit| out.push(hit)), 2 * count as usize);
    assert!(out.windows(2).all(|pair| pair[0].high == Some(pair[1].low)));
    let full = cache.bytes();
    for (gone, i) in numbers(7).enumerate() {
        let hit = cache.lookup(&(i * 10 + 7)).expect("not removed yet");
        assert_eq!((hit.low, hit.child.offset()), (i * 10 + 5, (i + 1) << 10));
        assert!(cache.invalidate(hit.origin));
        assert!(cache.lookup(&(i * 10)).is_none());
        assert_eq!(cache.len() as u64, count - gone as u64 - 1);
    }
    // The slots remain for later images, but the pages of the directory are freed.
    assert!(cache.is_empty() && cache.bytes() < full);
    assert_eq!(
        cache.fingerprint(),
        IndexCache::<u64>::new(u64::MAX).fingerprint()
    );
    assert_ne!(cache.fingerprint(), fingerprint_unordered([0]));
}
