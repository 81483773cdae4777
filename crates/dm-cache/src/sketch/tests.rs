//! Tests that a hint is never to the right of a key's leaf and is seldom far to its left, and that the sketch stays
//! within its budget.

use super::*;
use dm_layout::{Key8, KeyN};
use dm_verbs::NodeId;
use std::collections::BTreeMap;

fn at(n: u64) -> RemotePtr {
    RemotePtr::new(NodeId((n % 4) as u16), (n / 4 + 1) * 1024).expect("in range")
}

fn mixed(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(31)
        .wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// Adds leaves of sorted keys in runs of 32, and checks that 100,000 random keys get their leaf or one to the left.
/// Returns the mean number of steps to the key's leaf.
fn steps(keys: &[u64], budget: u64) -> f64 {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys[0] = 0;
    let leaves: Vec<_> = (0u64..)
        .map(at)
        .zip(&keys)
        .map(|(at, key)| (Key8(*key), at))
        .collect();
    let number: BTreeMap<_, _> = leaves.iter().enumerate().map(|(i, (_, at))| (*at, i)).collect();
    let sketch = Sketch::new(budget);
    for (i, run) in leaves.chunks(32).enumerate() {
        let high = leaves.get(32 * (i + 1)).map(|(low, _)| *low);
        assert!(sketch.admit(run.iter().copied(), high));
        assert!(sketch.bytes() <= budget);
    }
    let mut steps = 0;
    for n in 0..100_000 {
        // The key lies anywhere within a leaf.
        let i = (mixed(n) % keys.len() as u64) as usize;
        let end = keys.get(i + 1).copied().unwrap_or(keys[i] + 1);
        let key = keys[i] + mixed(n + 7) % (end - keys[i]).max(1);
        let found = number[&sketch.leaf(&Key8(key)).expect("all is covered")];
        assert!(found <= i, "{key:#x} is in leaf {i}, not in {found}");
        steps += i - found;
    }
    steps as f64 / 1e5
}

#[test]
fn with_room_for_all_leaves_nearly_every_hint_is_right() {
    let random: Vec<_> = (0..50_000).map(mixed).collect();
    let dense: Vec<_> = (0..50_000).map(|n| n * 30).collect();
    for (name, keys) in [("random", random), ("dense", dense)] {
        let off = steps(&keys, 50_000 * 7);
        assert!(off < 0.05, "{name}: {off} steps");
    }
}

#[test]
fn with_less_room_a_hint_is_a_few_leaves_to_the_left() {
    let keys: Vec<_> = (0..50_000).map(mixed).collect();
    for share in [2.0, 4.0, 8.0] {
        let off = steps(&keys, (50_000.0 * 6.5 / share) as u64);
        // Perfectly even thinning would give `best` steps. In the worst case, up to a quarter of the budget is unused.
        let (best, worst) = ((share - 1.0) / 2.0, (share / 0.7 - 1.0) / 2.0 + 0.3);
        assert!(off > best * 0.7 && off < worst, "1 in {share}: {off} steps");
    }
}

#[test]
fn keys_far_apart_are_told_apart() {
    let keys: Vec<_> = (0..10_000u64).map(|n| ((6 * n) << 44) | (n * 42)).collect();
    for budget in [12 << 10, 16 << 10, 32 << 10, 64 << 10] {
        let off = steps(&keys, budget);
        let share = budget as f64 / 61_000.0;
        assert!(off < 1.2 / share, "{budget} bytes: {off} steps");
    }
}

#[test]
fn readmitted_leaves_leave_no_hole() {
    let leaves: Vec<_> = (0..3_000).map(|n| (Key8(n * 70), at(n))).collect();
    let sketch = Sketch::new(9_000);
    for (from, many) in (0..3_000)
        .step_by(100)
        .map(|from| (from, 100))
        .chain((0..500).map(|n| {
            let from = (mixed(n) % 2_950) as usize;
            (from, 1 + (mixed(n + 1) % 40) as usize)
        }))
    {
        let run = leaves[from..from + many].iter().copied();
        let high = leaves.get(from + many).map(|(low, _)| *low);
        assert!(sketch.admit(run, high));
        let known = if from % 100 == 0 && many == 100 {
            from as u64 + 100
        } else {
            3_000
        };
        for key in [0, 69, mixed(from as u64) % (known * 70)] {
            assert!(
                sketch.leaf(&Key8(key)).is_some(),
                "{key} after leaves {from} to {}",
                from + many
            );
        }
    }
    assert!(sketch.bytes() <= 9_000 && sketch.len() > 500, "{sketch:?}");
}

#[test]
fn hints_stay_valid_after_every_change() {
    enter_move_and_forget::<9>();
    enter_move_and_forget::<20>();
    enter_move_and_forget::<32>();
}

fn enter_move_and_forget<const N: usize>() {
    for budget in [700, 2_000, 100_000] {
        let sketch = Sketch::<KeyN<N>>::new(budget);
        let key = |n: u64| {
            // The bytes after the coded part are not zero, so separators are rounded up.
            let mut bytes = [0; N];
            bytes[..8].copy_from_slice(&(n << 44).to_be_bytes());
            bytes[N - 1] = 1;
            KeyN(bytes)
        };
        // The existing leaves, by their first keys.
        let mut leaves = BTreeMap::from([(0u64, at(0))]);
        for step in 0..4_000 {
            let near = mixed(step) % 5_000;
            match mixed(step + 1) % 8 {
                0..4 => {
                    let leaf = at(step);
                    leaves.entry(near).or_insert_with(|| {
                        sketch.insert(&key(near), leaf);
                        leaf
                    });
                }
                4 if near > 0 => {
                    if let Some(gone) = leaves.remove(&near) {
                        sketch.merged(&key(near), gone);
                    }
                }
                5 => {
                    // A client that gets a leaf that no longer exists reports the leaf.
                    if let Some(gone) = sketch
                        .leaf(&key(near))
                        .filter(|gone| !leaves.values().any(|l| l == gone))
                    {
                        assert!(sketch.forget(&key(near), gone) && sketch.leaf(&key(near)).is_none());
                    }
                }
                _ => {
                    let low = leaves.range(..=near).next_back().map_or(0, |(low, _)| *low);
                    let run: Vec<_> = leaves.range(low..).take(6).map(|(k, l)| (key(*k), *l)).collect();
                    let high = leaves.range(low..).nth(6).map(|(k, _)| key(*k));
                    sketch.admit(run, high);
                }
            }
            assert!(sketch.bytes() <= budget, "{} of {budget}", sketch.bytes());
            let looked = mixed(step + 2) % 5_000;
            if let Some(hint) = sketch.leaf(&key(looked)) {
                let alive = leaves.iter().find(|(_, leaf)| **leaf == hint);
                assert!(
                    alive.is_none_or(|(low, _)| *low <= looked),
                    "{looked}: {hint} begins at {alive:?}"
                );
            }
        }
        assert!(budget < 1_000 || sketch.len() > 8, "{}", sketch.len());
    }
}

#[test]
fn a_merged_leaf_is_no_longer_returned() {
    // Codes count in units of 2^31 here, and separators lie anywhere in between.
    let leaves: Vec<_> = (0..400u64)
        .map(|n| (Key8((n << 32) + mixed(n) % (1 << 31)), at(n)))
        .collect();
    let sketch = Sketch::new(1 << 20);
    assert!(sketch.admit(leaves.iter().copied(), None));
    for pair in leaves.chunks(2) {
        let [(_, left), (separator, right)] = *pair else {
            unreachable!()
        };
        let inside = Key8(separator.0 | 0xF000_0000);
        assert_eq!(sketch.leaf(&inside), Some(right));
        assert!(!sketch.merged(&separator, left), "another leaf");
        assert!(sketch.merged(&separator, right));
        assert_eq!(sketch.leaf(&inside), Some(left));
    }
    assert_eq!(sketch.len(), 200);
    // An entry is removed by the key of a client that got a wrong hint, or by its own separator.
    let (separator, leaf) = leaves[100];
    assert!(sketch.forget(&separator, leaf) && !sketch.forget(&separator, leaf));
    assert_eq!(sketch.leaf(&Key8(separator.0 | 0xF000_0000)), None);
    assert_eq!(
        sketch.leaf(&Key8(leaves[99].0.0 | 0xF000_0000)),
        Some(leaves[98].1)
    );
}

#[test]
fn leaves_all_over_large_memory_nodes_are_remembered_in_eight_bytes_each() {
    let far = |n: u64| {
        let offset = 1024 * (1 + mixed(n) % (1 << 26));
        RemotePtr::new(NodeId((mixed(n) >> 40) as u16 % 4), offset).expect("in range")
    };
    let leaves: Vec<_> = (0..20_000).map(|n| (Key8(n * 30), far(n))).collect();
    let sketch = Sketch::new(20_000 * 9);
    for (i, run) in leaves.chunks(32).enumerate() {
        let high = leaves.get(32 * (i + 1)).map(|(low, _)| *low);
        assert!(sketch.admit(run.iter().copied(), high));
    }
    assert!(
        sketch.len() == 20_000 && sketch.bytes() <= 20_000 * 9,
        "{sketch:?}"
    );
    for (low, leaf) in &leaves {
        assert_eq!(sketch.leaf(&Key8(low.0 + 29)), Some(*leaf));
    }
}

#[test]
fn keys_that_share_no_prefix_cost_steps_and_not_all_that_is_known() {
    // The keys come in pairs that differ only in the last of 32 bytes. Keys of different pairs differ in their first
    // bytes. So the two keys of a pair have the same code in a block, unless one of them is the block's low key.
    let key = |n: u64| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&mixed(n).to_be_bytes());
        bytes[24..].copy_from_slice(&mixed(n + 1).to_be_bytes());
        KeyN(bytes)
    };
    let mut keys: Vec<_> = (0..2_000).map(key).collect();
    keys.extend((0..2_000).map(|n| {
        let mut near = key(n);
        near.0[31] ^= 1;
        near
    }));
    keys.push(KeyN([0; 32]));
    keys.sort_unstable();
    let leaves: Vec<_> = keys.iter().copied().zip((0u64..).map(at)).collect();
    let number: BTreeMap<_, _> = leaves.iter().enumerate().map(|(i, (_, at))| (*at, i)).collect();
    for budget in [4_000, 20_000] {
        let sketch = Sketch::new(budget);
        for (i, run) in leaves.chunks(8).enumerate() {
            let high = leaves.get(8 * (i + 1)).map(|(low, _)| *low);
            assert!(sketch.admit(run.iter().copied(), high));
            assert!(sketch.bytes() <= budget);
        }
        for (i, key) in keys.iter().enumerate() {
            let found = number[&sketch.leaf(key).expect("all is covered")];
            assert!(found <= i, "{i}: {found}");
        }
        assert!(sketch.len() > 20, "{sketch:?}");
    }
}

/// Returns a sketch with one full block, and the block's leaves. Leaf `n` begins at `n << 10`.
fn full_block() -> (Sketch<Key8>, Vec<(Key8, RemotePtr)>) {
    let leaves: Vec<_> = (0..BLOCK as u64).map(|n| (Key8(n << 10), at(n))).collect();
    let sketch = Sketch::new(1 << 20);
    // The codes of a block are as fine as its first run of leaves needs. So there are codes between these leaves.
    for (i, run) in leaves.chunks(32).enumerate() {
        let high = leaves.get(32 * (i + 1)).map(|(low, _)| *low);
        assert!(sketch.admit(run.iter().copied(), high));
    }
    assert_eq!(sketch.len(), BLOCK);
    (sketch, leaves)
}

/// Addresses on memory nodes from number 256 on do not fit into an entry.
const TOO_FAR: NodeId = NodeId(256);

#[test]
fn a_leaf_that_does_not_fit_into_a_full_block_removes_no_other_leaf() {
    let (sketch, leaves) = full_block();
    let (low, left) = leaves[BLOCK / 2];
    let between = Key8(low.0 + 512);
    let unfit = RemotePtr::new(TOO_FAR, 1024).expect("in range");
    assert!(!sketch.insert(&between, unfit));
    assert_eq!((sketch.len(), sketch.leaf(&between)), (BLOCK, Some(left)));
    // A leaf that fits divides the block, and all leaves stay.
    let fit = at(BLOCK as u64);
    assert!(sketch.insert(&between, fit));
    assert_eq!((sketch.len(), sketch.leaf(&between)), (BLOCK + 1, Some(fit)));
    for (low, leaf) in &leaves {
        assert_eq!(sketch.leaf(low), Some(*leaf));
    }
}

#[test]
fn a_last_leaf_that_does_not_fit_removes_no_leaf_beyond_the_admitted_range() {
    let (sketch, leaves) = full_block();
    let (low, left) = leaves[BLOCK / 2];
    let [between, high] = [512, 768].map(|far| Key8(low.0 + far));
    let unfit = RemotePtr::new(TOO_FAR, 1024).expect("in range");
    assert!(sketch.admit([(low, left), (between, unfit)], Some(high)));
    assert_eq!(sketch.leaf(&between), None);
    for (low, leaf) in &leaves {
        assert_eq!(sketch.leaf(low), Some(*leaf));
    }
}
