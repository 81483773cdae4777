//! Tests of the prefix cache: its answers, its evictions, and its size.

use dm_cache::{Apart, PrefixCache, PrefixHit, PrefixImage};
use dm_layout::{Find, NodeTypes, RadixHeader, SlotWord};
use dm_sync::Fingerprint;
use dm_verbs::{NodeId, RemotePtr};

pub(crate) const TYPES: NodeTypes = NodeTypes::SHIPPED;

pub(crate) fn at(line: u64) -> RemotePtr {
    RemotePtr::new(NodeId(1), line * 64).expect("in range")
}

pub(crate) fn leaf(partial: u8, line: u64) -> SlotWord {
    SlotWord::leaf(partial, at(line).raw(), 1).expect("in range")
}

pub(crate) fn inner(partial: u8, line: u64, node_type: u8) -> SlotWord {
    SlotWord::inner(partial, at(line).raw(), node_type).expect("in range")
}

pub(crate) fn image(
    line: u64,
    header: RadixHeader,
    words: &[SlotWord],
) -> PrefixImage<impl Iterator<Item = SlotWord> + Clone> {
    let empty = TYPES.slots(header.node_type()) - words.len();
    let words = words.iter().copied();
    PrefixImage {
        at: at(line),
        header,
        incarnation: 1,
        words: words.chain(core::iter::repeat_n(SlotWord::empty(1), empty)),
    }
}

/// Returns a cache of a root with two children. In the slot of byte 1 there is a node whose header holds the next two
/// bytes ("ab"), with leaves at `x` and `y`. In the slot of byte 2 there is a leaf.
fn small(budget: u64) -> PrefixCache {
    let cache = PrefixCache::new(TYPES, budget);
    let root = RadixHeader::new(0, 3, &[]);
    // In a direct node, each slot has a fixed place.
    let mut words = vec![SlotWord::empty(1); 256];
    words[1] = inner(1, 10, 1);
    words[2] = leaf(2, 20);
    assert!(cache.admit(b"\x01abx", image(1, root, &words)));
    let node = RadixHeader::new(1, 1, b"ab");
    assert!(cache.admit(b"\x01abx", image(10, node, &[leaf(b'x', 30), leaf(b'y', 31)])));
    cache
}

pub(crate) fn hit(cache: &PrefixCache, key: &[u8]) -> PrefixHit {
    cache.lookup(key).expect("the root is cached")
}

#[test]
fn a_cache_takes_over_what_another_holds_if_it_fits() {
    let cache = small(1 << 20);
    let other = PrefixCache::new(TYPES, 1 << 20);
    assert!(other.adopt(&cache));
    assert_eq!(other.fingerprint(), cache.fingerprint());
    assert_eq!(hit(&other, b"\x01abx"), hit(&cache, b"\x01abx"));
    assert!(other.bytes() <= cache.bytes());
    // After the copy, the two caches change independently.
    other.learn(b"\x01abx", at(10), 0, leaf(b'x', 77));
    assert_eq!(hit(&cache, b"\x01abx").find, Find::Child(0, leaf(b'x', 30)));
    // An image has the same age in both caches.
    cache.turn();
    assert!(other.adopt(&cache));
    other.turn();
    assert_eq!(
        (other.lookup(b"\x01abx"), cache.lookup(b"\x01abx").is_some()),
        (None, true)
    );

    let tight = PrefixCache::new(TYPES, other.bytes() - 1);
    assert!(!tight.adopt(&cache) && tight.nodes() == 0);
    let of_others = PrefixCache::new(NodeTypes::new(&[4, 16, 64, 256]).expect("ascending"), 1 << 20);
    assert!(!of_others.adopt(&cache) && of_others.nodes() == 0);
}

/// The image of the root is used for no longer than the other images, so a client reads the root again.
#[test]
fn no_search_passes_a_root_whose_image_has_expired() {
    let cache = small(1 << 20);
    cache.turn();
    // Only the root's child is read again, so the root expires first.
    let node = RadixHeader::new(1, 1, b"ab");
    assert!(cache.admit(b"\x01abx", image(10, node, &[leaf(b'x', 30), leaf(b'y', 31)])));
    let finds = || {
        [
            cache.leaf(b"\x01abx").is_some(),
            cache.lookup(b"\x01abx").is_some(),
            cache.over(b"\x01abx", 3).is_some(),
            cache.leaf_below(b"\x01abx", at(10)).is_some(),
        ]
    };
    assert_eq!(finds(), [true; 4]);
    cache.turn();
    assert_eq!(finds(), [false; 4]);
    // The child's image is still valid and linked, so only the root must be read again.
    let mut words = vec![SlotWord::empty(1); 256];
    words[1] = inner(1, 10, 1);
    words[2] = leaf(2, 20);
    assert!(cache.admit(b"\x01abx", image(1, RadixHeader::new(0, 3, &[]), &words)));
    assert_eq!((finds(), hit(&cache, b"\x01abx").at), ([true; 4], at(10)));
}

/// If an image grows although there is no room, its own children must not be evicted. Otherwise the image would still
/// contain their numbers when other images have these numbers.
#[test]
fn a_grown_image_links_no_evicted_image() {
    for budget in (2_000..8_000).step_by(250) {
        let cache = PrefixCache::new(TYPES, budget);
        let mut words = vec![SlotWord::empty(1); 256];
        let mut seed = budget;
        for byte in 1..=200_u8 {
            words[usize::from(byte)] = inner(byte, 100 + u64::from(byte), 1);
            cache.admit(&[byte, b'x'], image(1, RadixHeader::new(0, 3, &[]), &words));
            for _ in 0..4 {
                seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                let below = 1 + ((seed >> 33) % u64::from(byte)) as u8;
                let leaves = [leaf(b'x', 30), leaf(b'y', 31)];
                let line = 100 + u64::from(below);
                cache.admit(&[below, b'x'], image(line, RadixHeader::new(1, 1, &[]), &leaves));
            }
            for below in 1..=byte {
                let Some(found) = cache.lookup(&[below, b'x']) else {
                    continue;
                };
                let line = 100 + u64::from(below);
                let right = match found.at == at(1) {
                    true => matches!(found.find, Find::Child(_, word) if word == inner(below, line, 1)),
                    false => found.at == at(line),
                };
                assert!(right, "{budget} bytes, {byte}, {below}: {found:?}");
            }
        }
    }
}

/// The cache must not reuse an old image for a node of another type at the same address.
#[test]
fn an_image_of_another_node_type_is_not_reused() {
    let cache = small(1 << 20);
    cache.expire();
    let mut words = vec![SlotWord::empty(1); 256];
    words[1] = inner(1, 10, 2);
    assert!(cache.admit(b"\x01abx", image(1, RadixHeader::new(0, 3, &[]), &words)));
    let found = hit(&cache, b"\x01abx");
    assert_eq!((found.at, found.find), (at(1), Find::Child(1, inner(1, 10, 2))));
}

#[test]
fn the_deepest_node_on_the_way_answers() {
    let cache = small(1 << 20);
    let x = hit(&cache, b"\x01abx");
    assert_eq!(
        (x.at, x.branch, x.find, x.children),
        (at(10), 3, Find::Child(0, leaf(b'x', 30)), 2)
    );
    let link = x.link.expect("not the root");
    assert_eq!(
        (link.node, link.branch, link.index, link.word),
        (at(1), 0, 1, inner(1, 10, 1))
    );
    // The vacant slot is the next one of the node. In a direct node it is the slot of the key byte.
    assert_eq!(hit(&cache, b"\x01abz").find, Find::Vacant(2, SlotWord::empty(1)));
    assert_eq!(hit(&cache, b"\x07abz").find, Find::Vacant(7, SlotWord::empty(1)));
    assert_eq!(
        (hit(&cache, b"\x02...").find, hit(&cache, b"\x02...").link),
        (Find::Child(2, leaf(2, 20)), None)
    );
    // If a key does not have the node's prefix, the lookup returns the parent.
    let apart = hit(&cache, b"\x01aqx");
    assert_eq!(
        (apart.at, apart.apart),
        (at(1), Some(Apart { at: 2, byte: b'b' }))
    );
    assert_eq!(PrefixCache::new(TYPES, 1 << 20).lookup(b"abcd"), None);
}

#[test]
fn skipped_bytes_are_reported_and_a_leaf_below_shows_them() {
    let cache = PrefixCache::new(TYPES, 1 << 20);
    let header = RadixHeader::new(4, 1, b"e");
    let node = [leaf(b'x', 30), leaf(b'y', 31)];
    assert!(
        !cache.admit(b"abcdex", image(10, header, &node)),
        "the root comes first"
    );
    let mut words = vec![SlotWord::empty(1); 256];
    words[usize::from(b'a')] = inner(b'a', 10, 1);
    assert!(cache.admit(b"abcdex", image(1, RadixHeader::new(0, 3, &[]), &words)));
    // The root's child holds one of the four bytes in front of its branch.
    assert!(cache.admit(b"abcdex", image(10, header, &node)));
    assert_eq!(cache.leaf(b"aqqqey").map(|(leaf, _)| leaf), Some(at(31)));
    let other = hit(&cache, b"aqqqey");
    assert!(other.skipped && other.apart.is_none() && other.at == at(10));
    let apart = hit(&cache, b"aqqqfy");
    let byte = Apart { at: 4, byte: b'e' };
    assert!(apart.skipped && apart.apart == Some(byte) && apart.at == at(1));
    assert!(!hit(&cache, b"qqqqey").skipped);
    // The leaf of the key's own slot comes first, and otherwise any leaf will do.
    assert_eq!(cache.leaf_below(b"aqqqey", at(10)), Some(at(31)));
    assert_eq!(cache.leaf_below(b"aqqqez", at(10)), Some(at(30)));
    assert_eq!(cache.leaf_below(b"aqqqez", at(11)), None);
    for (byte, node, below) in [(3, at(1), Some(5)), (5, at(10), None)] {
        let (over, end) = cache.over(b"aqqqey", byte).expect("the root is cached");
        assert_eq!((over.at, end), (node, below));
    }
}

#[test]
fn it_learns_slot_by_slot_and_drops_what_moved() {
    let cache = small(1 << 20);
    cache.learn(b"\x01abz", at(10), 2, leaf(b'z', 40));
    assert_eq!(hit(&cache, b"\x01abz").find, Find::Child(2, leaf(b'z', 40)));
    // This slot is not stored, because the slots before it are unknown.
    cache.learn(b"\x01abw", at(10), 5, leaf(b'w', 41));
    assert_eq!(hit(&cache, b"\x01abw").find, Find::Vacant(3, SlotWord::empty(1)));
    let removed = SlotWord::removed(b'x', 1);
    cache.learn(b"\x01abx", at(10), 0, removed);
    assert_eq!(
        (hit(&cache, b"\x01abx").find, hit(&cache, b"\x01abx").children),
        (Find::Vacant(0, removed), 2)
    );
    // Another node takes this node's place. The image is removed, and its old address finds nothing.
    let before = cache.bytes();
    cache.learn(b"\x01abx", at(1), 1, inner(1, 50, 2));
    assert_eq!((hit(&cache, b"\x01abx").at, cache.nodes()), (at(1), 1));
    assert_eq!(cache.bytes(), before, "what is dropped is room for what comes");
    cache.learn(b"\x01abx", at(10), 0, leaf(b'x', 99));
    assert_eq!(cache.nodes(), 1);
    // A node whose parent does not point to it is refused.
    assert!(!cache.admit(
        b"\x01abx",
        image(10, RadixHeader::new(1, 1, b"ab"), &[leaf(b'x', 30)])
    ));
    cache.forget(b"\x01abx", at(1));
    assert_eq!(cache.lookup(b"\x01abx"), None);
}

#[test]
fn a_slot_that_was_read_behind_an_empty_one_is_not_believed() {
    let cache = small(1 << 20);
    let torn = [leaf(b'x', 30), SlotWord::empty(1), leaf(b'q', 33)];
    assert!(cache.admit(b"\x01abx", image(10, RadixHeader::new(1, 1, b"ab"), &torn)));
    assert_eq!(hit(&cache, b"\x01abq").find, Find::Vacant(1, SlotWord::empty(1)));
}

/// Makes a cache with many nodes below the root, each with a few leaves.
fn crowd(budget: u64, nodes: u64) -> PrefixCache {
    let cache = PrefixCache::new(TYPES, budget);
    let words: Vec<SlotWord> = (0..=255).map(|p| inner(p, 100 + u64::from(p), 1)).collect();
    assert!(cache.admit(&[0; 4], image(1, RadixHeader::new(0, 3, &[]), &words)));
    for n in 0..nodes {
        let key = [n as u8, 9, (n / 256) as u8, 0];
        let leaves: Vec<SlotWord> = (0..5).map(|p| leaf(p, 1_000 + n * 8 + u64::from(p))).collect();
        let _kept = cache.admit(&key, image(100 + n % 256, RadixHeader::new(1, 1, &[9]), &leaves));
        // Nodes 0 to 7 are always in use.
        for hot in 0..8u8 {
            let _used = cache.lookup(&[hot, 9, 0, 0]);
        }
        assert!(cache.bytes() <= budget, "{} of {budget}", cache.bytes());
    }
    cache
}

#[test]
fn it_stays_within_its_budget_and_keeps_what_is_used() {
    let all = crowd(1 << 20, 256);
    assert_eq!(all.nodes(), 257);
    let half = crowd(all.bytes() / 2, 256);
    assert!(half.nodes() > 60 && half.nodes() < 200, "{}", half.nodes());
    let kept = (0..8u8)
        .filter(|&hot| hit(&half, &[hot, 9, 0, 0]).at != at(1))
        .count();
    assert!(kept >= 6, "{kept} of 8 hot nodes are left");
    assert_eq!(half.fingerprint(), crowd(all.bytes() / 2, 256).fingerprint());
    let none = PrefixCache::new(TYPES, 0);
    assert!(!none.admit(&[0; 4], image(1, RadixHeader::new(0, 3, &[]), &[])));
}

/// The keys are dense: below a full root, 256 full nodes have leaves.
#[test]
fn dense_keys_take_little_more_than_their_slots() {
    let cache = PrefixCache::new(TYPES, 1 << 30);
    let words: Vec<SlotWord> = (0..=255).map(|p| inner(p, 100 + u64::from(p), 3)).collect();
    assert!(cache.admit(&[0; 4], image(1, RadixHeader::new(0, 3, &[]), &words)));
    for n in 0..=255u8 {
        let words: Vec<SlotWord> = (0..=255)
            .map(|p| leaf(p, 2_000 + u64::from(n) * 256 + u64::from(p)))
            .collect();
        assert!(cache.admit(
            &[n, 0, 0, 0],
            image(100 + u64::from(n), RadixHeader::new(1, 3, &[0, 0]), &words)
        ));
    }
    let per_key = cache.bytes() as f64 / 65_536.0;
    assert!(per_key <= 7.1, "{per_key} bytes a key");
}

/// The nodes are those of a tree of 10 million uniform random keys, with 153 keys below each node of the third level.
/// Some slots of such a node lead to a leaf, some lead to a node with two or more keys, and some are empty.
#[test]
fn random_keys_take_little_more_than_their_slots() {
    const NODES: u64 = 96;
    const KEYS: u64 = 153;
    let cache = PrefixCache::new(TYPES, 1 << 30);
    let words: Vec<SlotWord> = (0..NODES as u8)
        .map(|p| inner(p, 100 + u64::from(p), 3))
        .collect();
    let mut all = vec![SlotWord::empty(1); 256];
    all[..words.len()].copy_from_slice(&words);
    assert!(cache.admit(&[0; 4], image(1, RadixHeader::new(0, 3, &[]), &all)));
    let (mut state, mut line) = (7_u64, 10_000_u64);
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for n in 0..NODES {
        let mut below = vec![Vec::new(); 256];
        for _ in 0..KEYS {
            let (first, second) = (random(), random());
            let slot: &mut Vec<u8> = &mut below[usize::from(first)];
            if !slot.contains(&second) {
                slot.push(second);
            }
        }
        let mut words = vec![SlotWord::empty(1); 256];
        for (byte, keys) in below.iter().enumerate().filter(|(_, keys)| !keys.is_empty()) {
            line += 1;
            words[byte] = match keys.len() {
                1 => leaf(byte as u8, line),
                _ => inner(byte as u8, line, 1),
            };
        }
        let node = image(100 + n, RadixHeader::new(1, 3, &[]), &words);
        assert!(cache.admit(&[n as u8, 0, 0, 0], node));
        for (byte, keys) in below.iter().enumerate().filter(|(_, keys)| keys.len() > 1) {
            let leaves: Vec<SlotWord> = keys.iter().map(|&second| leaf(second, 5_000)).collect();
            let at = (words[byte].pointer() & ((1 << 48) - 1)) / 64;
            let node = image(at, RadixHeader::new(2, 1, &[]), &leaves);
            assert!(cache.admit(&[n as u8, byte as u8, 0, 0], node));
        }
    }
    let per_key = cache.bytes() as f64 / (NODES * KEYS) as f64;
    assert!((9.0..=13.6).contains(&per_key), "{per_key} bytes a key");
    // The nodes with two or more keys are cached too.
    assert!(cache.nodes() > 30 * NODES as usize);
}

/// Compares the cache with a `HashMap` while slots are learnt, nodes are replaced, and images are evicted.
#[test]
fn the_cache_agrees_with_the_tree() {
    use std::collections::HashMap;
    let mut state = 99_u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for budget in [3_000, 6_000, 1 << 20] {
        let cache = PrefixCache::new(TYPES, budget);
        // The real tree: the first byte of each node, with its place and slots. Every node is a child of the root.
        let mut nodes: HashMap<u8, (u64, Vec<SlotWord>)> = HashMap::new();
        let mut root = vec![SlotWord::empty(1); 256];
        let mut next = 1_000;
        for step in 0..6_000 {
            let first = random(40) as u8;
            let mut learnt = 0;
            let key = |second: u8| [first, second, 0, 0];
            match random(6) {
                0 => {
                    // A node is added, or replaced by a copy without the removed slots. Its image is offered to the
                    // cache.
                    next += 10;
                    let mut words = nodes.remove(&first).map_or(Vec::new(), |(_, words)| words);
                    words.retain(|w| w.has_child());
                    let kind = if words.len() < 6 { 1 } else { 2 };
                    let word = inner(first, next, kind);
                    let copy = image(next, RadixHeader::new(1, kind, &[]), &words);
                    root[usize::from(first)] = word;
                    cache.replace(&key(0), at(1), usize::from(first), word, copy);
                    nodes.insert(first, (next, words));
                }
                1 => {
                    let _known = cache.admit(&key(0), image(1, RadixHeader::new(0, 3, &[]), &root));
                    if let Some((line, words)) = nodes.get(&first) {
                        let kind = if let Ok(dm_layout::RadixSlot::Inner { node_type, .. }) =
                            root[usize::from(first)].decode()
                        {
                            node_type
                        } else {
                            1
                        };
                        let _kept = cache.admit(&key(0), image(*line, RadixHeader::new(1, kind, &[]), words));
                    }
                }
                2 if random(10) == 0 => cache.forget(&key(0), at(nodes.get(&first).map_or(1, |n| n.0))),
                _ => {
                    let Some((line, words)) = nodes.get_mut(&first) else {
                        continue;
                    };
                    let second = random(20) as u8;
                    learnt = second;
                    next += 1;
                    let leaf_of = match random(4) {
                        // A leaf of another size has no short code.
                        0 => SlotWord::leaf(second, at(next).raw(), 2).expect("in range"),
                        1 => SlotWord::removed(second, 1),
                        _ => leaf(second, next),
                    };
                    let full = TYPES.slots(if words.len() < 6 { 1 } else { 2 });
                    match words.iter().position(|w| w.partial() == second) {
                        Some(index) => {
                            words[index] = leaf_of;
                            cache.learn(&key(second), at(*line), index, leaf_of);
                        }
                        None if words.len() + 1 < full && leaf_of.has_child() => {
                            words.push(leaf_of);
                            cache.learn(&key(second), at(*line), words.len() - 1, leaf_of);
                        }
                        None => {}
                    }
                }
            }
            assert!(
                cache.bytes() <= budget,
                "step {step}: {} of {budget}",
                cache.bytes()
            );
            // A learnt slot must be in the cache, unless its image was removed. Otherwise a client that has lost a race
            // for the slot would try its CAS on the same old word for ever.
            if let (Some(hit), Some((line, words))) = (cache.lookup(&key(learnt)), nodes.get(&first)) {
                let known = words.iter().any(|w| w.partial() == learnt && w.has_child());
                if known && hit.at == at(*line) {
                    assert!(
                        !matches!(hit.find, Find::Vacant(_, word) if word.is_empty()),
                        "step {step}"
                    );
                }
            }
            let second = random(20) as u8;
            let Some(hit) = cache.lookup(&key(second)) else {
                continue;
            };
            if hit.branch == 0 {
                continue;
            }
            let (line, words) = &nodes[&first];
            assert_eq!(hit.at, at(*line), "step {step}: it learns of every copy");
            if let Find::Child(index, word) = hit.find {
                assert_eq!(words[index], word, "step {step}");
            }
        }
        assert!(cache.nodes() > 5, "{} nodes in {budget} bytes", cache.nodes());
    }
}

/// If a new node is inserted between two cached nodes, or replaces one, no image below it is removed.
#[test]
fn images_below_a_new_node_stay() {
    let cache = small(1 << 20);
    // The header of the node at byte 1 is split before its last byte.
    let between = [inner(b'b', 10, 1), leaf(b'q', 70)];
    let header = RadixHeader::new(1, 1, b"a");
    cache.replace(b"\x01aqq", at(1), 1, inner(1, 60, 1), image(60, header, &between));
    assert_eq!(
        (
            hit(&cache, b"\x01aqq").at,
            hit(&cache, b"\x01abx").at,
            cache.nodes()
        ),
        (at(60), at(10), 3)
    );
    assert_eq!(hit(&cache, b"\x01abx").link.map(|link| link.node), Some(at(60)));
    // The node in between is replaced by a larger copy.
    cache.replace(
        b"\x01aqq",
        at(1),
        1,
        inner(1, 80, 2),
        image(80, RadixHeader::new(1, 2, b"a"), &between),
    );
    assert_eq!(
        (
            hit(&cache, b"\x01aqq").at,
            hit(&cache, b"\x01abx").at,
            cache.nodes()
        ),
        (at(80), at(10), 3)
    );
    cache.forget(b"\x01aqq", at(80));
    assert_eq!(cache.nodes(), 1);
}
