//! Tests of the prefix cache whose index is a hash table of prefixes.

use std::collections::HashMap;

use dm_cache::{PrefixCache, PrefixHit, PrefixIndex};
use dm_layout::{Find, RadixHeader, SlotWord};
use dm_sync::Fingerprint;
use proptest::prelude::*;

use crate::prefix::{TYPES, at, hit, image, inner, leaf};

fn table(budget: u64) -> PrefixCache {
    PrefixCache::with_index(PrefixIndex::Hash, TYPES, budget)
}

/// Returns the words of a root with these filled slots.
fn direct(words: &[SlotWord]) -> Vec<SlotWord> {
    let mut all = vec![SlotWord::empty(1); 256];
    for word in words {
        all[usize::from(word.partial())] = *word;
    }
    all
}

/// Returns a cache of a node for byte 1 whose header holds the next two bytes ("ab"), with leaves at `x` and `y`. With
/// `root`, it also has the root, which has a leaf at byte 2.
fn small(budget: u64, root: bool) -> PrefixCache {
    let cache = table(budget);
    let node = RadixHeader::new(1, 1, b"ab");
    assert!(cache.admit(b"\x01abx", image(10, node, &[leaf(b'x', 30), leaf(b'y', 31)])));
    if root {
        let words = direct(&[inner(1, 10, 1), leaf(2, 20)]);
        assert!(cache.admit(b"\x01abx", image(1, RadixHeader::new(0, 3, &[]), &words)));
    }
    cache
}

#[test]
fn the_deepest_node_answers_whether_or_not_its_parent_is_cached() {
    for root in [false, true] {
        let cache = small(1 << 20, root);
        let x = hit(&cache, b"\x01abx");
        assert_eq!(
            (x.at, x.branch, x.find, x.children, x.apart, x.skipped),
            (at(10), 3, Find::Child(0, leaf(b'x', 30)), 2, None, false)
        );
        assert_eq!(cache.leaf(b"\x01aby"), Some((at(31), 3)));
        assert_eq!(hit(&cache, b"\x01abz").find, Find::Vacant(2, SlotWord::empty(1)));
        // The slot that points to the node is known if the parent is cached.
        let link = x.link.map(|link| (link.node, link.branch, link.index, link.word));
        assert_eq!(link, root.then_some((at(1), 0, 1, inner(1, 10, 1))));
        // A key without the node's prefix finds the parent, if that is cached.
        let apart = cache.lookup(b"\x01aqx").map(|hit| (hit.at, hit.find, hit.apart));
        assert_eq!(
            apart,
            root.then_some((at(1), Find::Child(1, inner(1, 10, 1)), None))
        );
        assert_eq!(cache.leaf(b"\x02..."), root.then_some((at(20), 0)));
        for (byte, node, below) in [(2, at(1), Some(3)), (3, at(10), None)] {
            let over = cache.over(b"\x01abx", byte).map(|(hit, below)| (hit.at, below));
            assert_eq!(over, (root || byte == 3).then_some((node, below)), "byte {byte}");
        }
        assert_eq!(cache.leaf_below(b"\x01aby", at(10)), Some(at(31)));
        assert_eq!(cache.leaf_below(b"\x01abz", at(10)), Some(at(30)));
        assert_eq!(cache.leaf_below(b"\x01aby", at(1)), root.then_some(at(31)));
        assert_eq!(cache.leaf_below(b"\x01aby", at(11)), None);
    }
    // The key must have the part of the prefix that the header holds, and must be longer than the prefix.
    let cache = table(1 << 20);
    assert!(!cache.admit(b"\x01aqx", image(10, RadixHeader::new(1, 1, b"ab"), &[])));
    assert!(!cache.admit(b"\x01ab", image(10, RadixHeader::new(1, 1, b"ab"), &[])));
    assert_eq!((cache.nodes(), cache.lookup(b"\x01abx")), (0, None));
}

#[test]
fn slots_are_learnt_and_a_node_that_moved_is_dropped() {
    let cache = small(1 << 20, true);
    cache.learn(b"\x01abz", at(10), 2, leaf(b'z', 40));
    assert_eq!(hit(&cache, b"\x01abz").find, Find::Child(2, leaf(b'z', 40)));
    cache.learn(b"\x01abx", at(10), 0, SlotWord::removed(b'x', 1));
    assert_eq!(
        hit(&cache, b"\x01abx").find,
        Find::Vacant(0, SlotWord::removed(b'x', 1))
    );
    // A word that has no short code makes the image wider. The image stays in the table.
    let far = SlotWord::leaf(b'z', at(41).raw(), 2).expect("in range");
    cache.learn(b"\x01abz", at(10), 2, far);
    assert_eq!(hit(&cache, b"\x01abz").find, Find::Child(2, far));
    // Another node takes this node's place.
    cache.learn(b"\x01abx", at(1), 1, inner(1, 50, 2));
    assert_eq!((hit(&cache, b"\x01abx").at, cache.nodes()), (at(1), 1));
    cache.forget(b"\x01abx", at(1));
    assert_eq!((cache.lookup(b"\x01abx"), cache.nodes()), (None, 0));
}

#[test]
fn a_copy_takes_the_place_of_its_node_and_nodes_below_stay() {
    let between = [inner(b'b', 10, 1), leaf(b'q', 70)];
    let split = RadixHeader::new(1, 1, b"a");
    for root in [false, true] {
        let cache = small(1 << 20, root);
        // The header of the node at byte 1 is split before its last byte.
        cache.replace(b"\x01aqq", at(1), 1, inner(1, 60, 1), image(60, split, &between));
        assert_eq!(hit(&cache, b"\x01abx").at, at(10));
        // Without the parent's image, the cache cannot know the new node's prefix.
        let new = cache.lookup(b"\x01aqq").map(|hit| hit.at);
        assert_eq!(
            (new, cache.nodes()),
            (root.then_some(at(60)), 1 + 2 * usize::from(root))
        );
        let words = [leaf(b'x', 30), leaf(b'y', 31)];
        let copy = image(80, RadixHeader::new(1, 2, b"ab"), &words);
        cache.replace(b"\x01abx", at(60), 0, inner(b'b', 80, 2), copy);
        let found = cache.lookup(b"\x01abx").map(|hit| hit.at);
        assert_eq!(found, root.then_some(at(80)), "the old image is gone");
        assert_eq!(cache.nodes(), 3 * usize::from(root));
    }
}

#[test]
fn images_expire_one_by_one_and_are_copied_with_their_ages() {
    let cache = small(1 << 20, false);
    cache.turn();
    let words = direct(&[inner(1, 10, 1), leaf(2, 20)]);
    assert!(cache.admit(b"\x01abx", image(1, RadixHeader::new(0, 3, &[]), &words)));
    let other = table(1 << 20);
    assert!(other.adopt(&cache));
    assert_eq!(other.fingerprint(), cache.fingerprint());
    other.turn();
    // The node has expired, and the root has not.
    assert_eq!(
        (hit(&other, b"\x01abx").at, hit(&cache, b"\x01abx").at),
        (at(1), at(10))
    );
    other.turn();
    assert_eq!(other.lookup(b"\x01abx"), None);
    other.learn(b"\x01abx", at(10), 0, leaf(b'x', 99));
    assert_eq!(other.lookup(b"\x01abx"), None);

    let tight = table(other.bytes() - 1);
    assert!(!tight.adopt(&cache) && tight.nodes() == 0);
    let radix = PrefixCache::new(TYPES, 1 << 20);
    assert!(!radix.adopt(&cache) && !cache.adopt(&radix) && cache.nodes() == 2);
}

#[test]
fn any_image_may_be_evicted_and_used_ones_stay() {
    let fill = |budget| {
        let cache = table(budget);
        let words: Vec<SlotWord> = (0..=255).map(|p| inner(p, 100 + u64::from(p), 1)).collect();
        assert!(cache.admit(&[0; 4], image(1, RadixHeader::new(0, 3, &[]), &words)));
        for n in 0..=255u8 {
            let line = 1_000 + u64::from(n) * 8;
            let leaves: Vec<SlotWord> = (0..5).map(|p| leaf(p, line + u64::from(p))).collect();
            let header = RadixHeader::new(1, 1, &[9]);
            let _kept = cache.admit(&[n, 9, 0, 0], image(100 + u64::from(n), header, &leaves));
            for hot in 0..8u8 {
                let _used = cache.lookup(&[hot, 9, 0, 0]);
            }
            assert!(cache.bytes() <= budget, "{} of {budget}", cache.bytes());
        }
        cache
    };
    let all = fill(1 << 20);
    assert!(all.nodes() == 257 && all.lookup(&[7; 4]).is_some());
    let half = fill(all.bytes() / 2);
    assert!(half.nodes() > 60 && half.nodes() < 257, "{}", half.nodes());
    let kept = |cache: &PrefixCache, n: u8| cache.leaf(&[n, 9, 0, 0]).is_some();
    let hot = (0..8).filter(|&n| kept(&half, n)).count();
    assert!(hot >= 6, "{hot} of 8 hot nodes are left");
    // The root is the largest image and was not used, so it is not kept for the sake of those below.
    assert_eq!(half.lookup(&[7; 4]), None);
    assert_eq!(half.fingerprint(), fill(all.bytes() / 2).fingerprint());
    let none = table(0);
    assert!(!none.admit(&[0; 4], image(1, RadixHeader::new(0, 3, &[]), &[])));
}

/// A node of a tree: a key on its path, its line and header, and its words.
type Node = ([u8; 32], u64, RadixHeader, Vec<SlotWord>);

/// Appends the node of these ascending keys, and the nodes below, to `nodes`. Returns the slot that points to the node.
/// If there is only one key, returns the slot of its leaf. `from` is the first byte that the path does not determine.
fn build(keys: &[[u8; 32]], from: usize, nodes: &mut Vec<Node>) -> SlotWord {
    let [first, .., last] = keys else {
        return leaf(keys[0][from - 1], 1_000_000 + u64::from(keys[0][31]));
    };
    let differ = first.iter().zip(last).position(|(a, b)| a != b);
    let most = if nodes.is_empty() { 0 } else { from + 6 };
    let branch = differ.map_or(31, |at| at).min(most);
    let (line, place) = (1 + nodes.len() as u64, nodes.len());
    let header = RadixHeader::new(from as u8, 3, &first[from..branch]);
    nodes.push((*first, line, header, Vec::new()));
    let groups = keys.chunk_by(|a, b| a[branch] == b[branch]);
    let words: Vec<SlotWord> = groups.map(|keys| build(keys, branch + 1, nodes)).collect();
    let kind = if place == 0 { 3 } else { TYPES.fitting(words.len()) };
    nodes[place].2 = header.typed(kind);
    nodes[place].3 = if kind == 3 { direct(&words) } else { words };
    inner(if from == 0 { 0 } else { first[from - 1] }, line, kind)
}

/// Makes the nodes of a tree whose keys look like mail addresses with the domain in front.
fn addresses() -> Vec<Node> {
    let domains = ["mail.example", "post.example", "letters.test"];
    let families = [
        "anders", "baker", "berg", "moreau", "okafor", "rossi", "silva", "smith",
    ];
    let mut keys = Vec::new();
    for i in 0..4_000usize {
        let text = format!(
            "{}@{}{:03}",
            domains[i % 3],
            families[i / 3 % 8],
            i.wrapping_mul(619) % 1_000
        );
        let mut key = [0; 32];
        key[..text.len()].copy_from_slice(text.as_bytes());
        keys.push(key);
    }
    keys.sort_unstable();
    keys.dedup();
    let mut nodes = Vec::new();
    build(&keys, 0, &mut nodes);
    nodes
}

fn filled(index: PrefixIndex, budget: u64, nodes: &[Node]) -> PrefixCache {
    let cache = PrefixCache::with_index(index, TYPES, budget);
    for (key, line, header, words) in nodes {
        let _kept = cache.admit(key, image(*line, *header, words));
        assert!(cache.bytes() <= budget);
    }
    cache
}

/// A hash index stores each prefix once for each node, so that fewer nodes fit.
#[test]
fn a_radix_index_holds_more_nodes_of_string_keys_than_a_hash_index() {
    let nodes = addresses();
    let [radix, hash] = [PrefixIndex::Radix, PrefixIndex::Hash].map(|index| filled(index, 1 << 30, &nodes));
    assert_eq!((radix.nodes(), hash.nodes()), (nodes.len(), nodes.len()));
    // Both answer each key from its deepest node.
    for (key, line, ..) in &nodes {
        let found = |cache: &PrefixCache| cache.lookup(key).map(|hit| (hit.at, hit.find));
        assert_eq!(found(&radix), found(&hash), "line {line}");
    }
    // The prefixes and the links of the chains and buckets are all that a hash index stores in addition.
    let prefixes: usize = nodes
        .iter()
        .map(|(_, _, header, _)| usize::from(header.branch()))
        .sum();
    let held: usize = nodes.iter().map(|(_, _, header, _)| header.partial().len()).sum();
    let more = hash.bytes() - radix.bytes();
    let least = (prefixes - held + 4 * nodes.len()) as u64;
    assert!(
        (least..least * 5 / 4).contains(&more),
        "{more} bytes more, at least {least}"
    );

    // With a quarter and with half of the memory for all nodes, the radix index has about 35 and 28 percent more of
    // them.
    let counts = [4, 2].map(|part| {
        let budget = radix.bytes() / part;
        [PrefixIndex::Radix, PrefixIndex::Hash].map(|index| filled(index, budget, &nodes).nodes())
    });
    assert_eq!((nodes.len(), counts), (877, [[191, 141], [368, 288]]));
}

/// The reference: the nodes by their prefixes.
#[derive(Default)]
struct Reference(HashMap<Vec<u8>, Known>);

struct Known {
    line: u64,
    words: Vec<SlotWord>,
    age: u8,
}

impl Reference {
    /// Returns the valid node with the longest prefix that the key has.
    fn deepest(&self, key: &[u8]) -> Option<(usize, &Known)> {
        let lengths = (0..key.len()).rev();
        lengths
            .filter_map(|len| Some((len, self.0.get(&key[..len])?)))
            .find(|(_, known)| known.age < 2)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Admit(u8, Vec<u8>),
    Learn(u8, u8, u8),
    Forget(u8),
    Turn,
    Nothing,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = proptest::collection::vec(0..40u8, 0..20);
    prop_oneof![
        4 => (0..5u8, bytes).prop_map(|(branch, bytes)| Step::Admit(branch, bytes)),
        4 => (0..5u8, 0..40u8, 0..5u8).prop_map(|(branch, byte, kind)| Step::Learn(branch, byte, kind)),
        1 => (0..5u8).prop_map(Step::Forget),
        1 => Just(Step::Turn),
        2 => Just(Step::Nothing),
    ]
}

/// Compares an answer with the reference. A cache that evicts may answer from a shallower node, or not at all.
fn agrees(known: &Reference, key: &[u8], hit: Option<PrefixHit>, whole: bool) -> Result<(), TestCaseError> {
    let deepest = known.deepest(key);
    let Some(hit) = hit else {
        prop_assert!(!whole || deepest.is_none());
        return Ok(());
    };
    let branch = usize::from(hit.branch);
    let node = known.0.get(&key[..branch]).filter(|node| node.age < 2);
    prop_assert_eq!(node.map(|node| at(node.line)), Some(hit.at));
    prop_assert!(!whole || deepest.is_some_and(|(len, _)| len == branch));
    let words = node.map_or(&[][..], |node| &node.words);
    let place = words.iter().position(|word| word.partial() == key[branch]);
    let index = |place| {
        if branch == 0 {
            usize::from(key[branch])
        } else {
            place
        }
    };
    let expected = match place {
        Some(place) if words[place].has_child() => Find::Child(index(place), words[place]),
        Some(place) => Find::Vacant(index(place), words[place]),
        None => Find::Vacant(index(words.len()), SlotWord::empty(1)),
    };
    prop_assert_eq!(hit.find, expected);
    prop_assert_eq!(hit.children, words.iter().filter(|word| word.has_child()).count());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Runs random steps on nodes with few different prefixes, so that most steps meet nodes of earlier steps.
    #[test]
    fn it_answers_as_a_map_of_prefixes(
        steps in proptest::collection::vec((step(), proptest::collection::vec(0..3u8, 5)), 0..400),
        budget in prop_oneof![Just(1_200u64), Just(3_000), Just(1 << 20)],
    ) {
        let (cache, mut known) = (table(budget), Reference::default());
        for (number, (step, key)) in steps.iter().enumerate() {
            let line = 1 + number as u64;
            match step {
                Step::Admit(branch, bytes) => {
                    let prefix = &key[..usize::from(*branch)];
                    let mut words: Vec<SlotWord> = Vec::new();
                    for &byte in bytes {
                        if words.iter().all(|word| word.partial() != byte) {
                            words.push(if byte % 5 == 0 { inner(byte, 100_000, 1) } else { leaf(byte, line) });
                        }
                    }
                    let (kind, slots) = match branch {
                        0 => (3, direct(&words)),
                        _ => (2, words.clone()),
                    };
                    let depth = branch.saturating_sub(1);
                    let header = RadixHeader::new(depth, kind, &prefix[usize::from(depth)..]);
                    cache.admit(key, image(line, header, &slots));
                    known.0.insert(prefix.to_vec(), Known { line, words, age: 0 });
                }
                Step::Learn(branch, byte, kind) => {
                    let Some(node) = known.0.get_mut(&key[..usize::from(*branch)]).filter(|node| node.age < 2) else {
                        continue;
                    };
                    let word = match kind {
                        0 => SlotWord::removed(*byte, 1),
                        1 => SlotWord::leaf(*byte, at(line).raw(), 2).expect("in range"),
                        _ => leaf(*byte, line),
                    };
                    let place = node.words.iter().position(|known| known.partial() == *byte);
                    match place {
                        Some(place) => node.words[place] = word,
                        None if word.has_child() && node.words.len() < 29 => node.words.push(word),
                        None => continue,
                    }
                    let index = match branch {
                        0 => usize::from(*byte),
                        _ => place.unwrap_or(node.words.len() - 1),
                    };
                    cache.learn(key, at(node.line), index, word);
                }
                Step::Forget(branch) => {
                    if let Some(node) = known.0.remove(&key[..usize::from(*branch)]) {
                        cache.forget(key, at(node.line));
                    }
                }
                Step::Turn => {
                    cache.turn();
                    known.0.values_mut().for_each(|node| node.age += u8::from(node.age < 2));
                }
                Step::Nothing => {}
            }
            prop_assert!(cache.bytes() <= budget, "{} of {} bytes", cache.bytes(), budget);
            agrees(&known, key, cache.lookup(key), budget == 1 << 20)?;
            let leaf = known.deepest(key).and_then(|(len, node)| {
                let word = node.words.iter().find(|word| word.partial() == key[len] && word.is_leaf())?;
                Some((dm_verbs::RemotePtr::from_raw(word.pointer()), len as u8))
            });
            prop_assert!(budget < 1 << 20 || cache.leaf(key) == leaf);
        }
    }
}
