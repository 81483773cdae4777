//! Tests of the nodes that operations leave on the memory nodes.

use dm_art::ArtOptions;
use dm_index::{Applied, Key8, KeyN, RangeIndex};
use dm_layout::{KeyBytes, NodeTypes};
use dm_loopback::{Endpoint, Loopback, block_on};

use crate::common::{Setup, Tree, draw, homes, pool, size_below};

struct Drawn<K> {
    _pool: Loopback,
    v: Endpoint,
    setup: Setup,
    tree: Tree<K>,
}

impl<K: KeyBytes> Drawn<K> {
    fn new(types: NodeTypes, depth_slack: u8) -> Self {
        let mut setup = Setup::small();
        setup.art = ArtOptions {
            types,
            depth_slack,
            ..setup.art
        };
        let pool = pool(1);
        let v = pool.connect(0).unwrap();
        let tree = setup.open(&v);
        Self {
            _pool: pool,
            v,
            setup,
            tree,
        }
    }

    fn put(&self, key: K) {
        let done = block_on(self.tree.client(&self.v).insert(&key, &[1; 8]));
        assert_eq!(done, Ok(Applied::Inserted));
    }

    fn insert(&self, key: K) -> String {
        self.put(key);
        self.picture()
    }

    fn take(&self, key: K) {
        let done = block_on(self.tree.client(&self.v).remove(&key));
        assert_eq!(done, Ok(Applied::Removed));
    }

    fn remove(&self, key: K) -> String {
        self.take(key);
        self.picture()
    }

    fn picture(&self) -> String {
        draw(&self.v, &self.tree, &self.setup.art.types)
    }
}

fn small() -> NodeTypes {
    Setup::small().art.types
}

#[test]
fn leaves_split_where_their_keys_differ_and_nodes_are_removed_with_their_keys() {
    let tree = Drawn::new(small(), 0);
    let key = |bytes: [u8; 8]| Key8(u64::from_be_bytes(bytes));
    let [a, b, c, d] = [
        [1, 2, 3, 4, 5, 6, 7, 8],
        [1, 2, 3, 4, 9, 6, 7, 8],
        [1, 2, 8, 4, 5, 6, 7, 8],
        [1, 2, 3, 4, 5, 6, 7, 9],
    ]
    .map(key);
    let insert = [
        (a, "256@0{01:leaf0}"),
        // A new node links the old leaf and the new leaf.
        (b, "256@0{01:2@4+020304{05:leaf4 09:leaf4}}"),
        // A new node is put above an existing node, whose header keeps its bytes.
        (c, "256@0{01:2@2+02{03:2@4+020304{05:leaf4 09:leaf4} 08:leaf2}}"),
        (
            d,
            "256@0{01:2@2+02{03:2@4+020304{05:2@7+0607{08:leaf7 09:leaf7} 09:leaf4} 08:leaf2}}",
        ),
    ];
    for (key, picture) in insert {
        assert_eq!(tree.insert(key), picture);
    }
    let remove = [
        // A leaf replaces its node in the slot above, and keeps its link depth.
        (a, "256@0{01:2@2+02{03:2@4+020304{05:leaf7 09:leaf4} 08:leaf2}}"),
        // A node replaces its parent in the slot above.
        (c, "256@0{01:2@4+020304{05:leaf7 09:leaf4}}"),
        (d, "256@0{01:leaf4}"),
        // The root keeps its slots.
        (b, "256@0{01:-}"),
    ];
    for (key, picture) in remove {
        assert_eq!(tree.remove(key), picture);
    }
    assert_eq!(tree.insert(c), "256@0{01:leaf0}");
}

#[test]
fn with_slack_a_split_one_byte_below_keeps_the_link_depth() {
    let tree = Drawn::new(small(), 1);
    assert_eq!(tree.insert(Key8(0)), "256@0{00:leaf1}");
    assert_eq!(tree.insert(Key8(1 << 48)), "256@0{00:2@1{00:leaf1 01:leaf2}}");
    // A node cannot branch below the last byte, so the link depth is limited.
    assert_eq!(
        tree.insert(Key8(1)),
        "256@0{00:2@1{00:2@7+0000000000{00:leaf7 01:leaf7} 01:leaf2}}"
    );
}

#[test]
fn a_prefix_longer_than_a_header_takes_more_nodes() {
    let key = |parts: &[(usize, u8)]| {
        let mut bytes = [7; 32];
        parts.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        KeyN(bytes)
    };
    // The two keys differ at this byte. The nodes below the root have headers of up to six bytes, and all but the
    // lowest have one child.
    let cases = [
        (6, "256@0{07:2@6+0707070707{01:leaf6 02:leaf6}}"),
        (7, "256@0{07:2@7+070707070707{01:leaf7 02:leaf7}}"),
        (8, "256@0{07:2@7+070707070707{07:2@8{01:leaf8 02:leaf8}}}"),
        (
            14,
            "256@0{07:2@7+070707070707{07:2@14+070707070707{01:leaf14 02:leaf14}}}",
        ),
        (
            15,
            "256@0{07:2@7+070707070707{07:2@14+070707070707{07:2@15{01:leaf15 02:leaf15}}}}",
        ),
    ];
    for (at, picture) in cases {
        let tree = Drawn::new(small(), 0);
        tree.insert(key(&[(at, 1)]));
        assert_eq!(tree.insert(key(&[(at, 2)])), picture, "{at}");
    }
}

/// The header of a child that moves up is extended by the bytes of the node above it. If there is no room for them,
/// that node stays, with one child.
#[test]
fn a_node_moves_up_where_its_header_has_room() {
    let key = |parts: &[(usize, u8)]| {
        let mut bytes = [7; 32];
        parts.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        KeyN(bytes)
    };
    let cases = [
        (
            7,
            "256@0{07:2@3+0707{02:leaf3 01:2@7+070707{01:leaf7 02:leaf7}}}",
            "256@0{07:2@7+070701070707{01:leaf7 02:leaf7}}",
        ),
        (
            8,
            "256@0{07:2@3+0707{02:leaf3 01:2@8+07070707{01:leaf8 02:leaf8}}}",
            "256@0{07:2@3+0707{01:2@8+07070707{01:leaf8 02:leaf8}}}",
        ),
    ];
    for (at, two, one) in cases {
        let tree = Drawn::new(small(), 0);
        tree.insert(key(&[(3, 2)]));
        tree.insert(key(&[(3, 1), (at, 1)]));
        assert_eq!(tree.insert(key(&[(3, 1), (at, 2)])), two);
        assert_eq!(tree.remove(key(&[(3, 2)])), one);
        // The remaining node accepts another child.
        let three = tree.insert(key(&[(3, 3)]));
        assert!(
            three.starts_with("256@0{07:2@3+0707{01:2@") && three.ends_with("} 03:leaf3}}"),
            "{three}"
        );
    }
}

#[test]
fn a_full_node_gives_way_to_one_with_room_for_a_quarter_more() {
    let cases: [(NodeTypes, &[usize]); 3] = [
        (
            NodeTypes::new(&[2, 3, 4, 6, 10, 14, 256]).unwrap(),
            &[2, 3, 4, 6, 10, 14, 256],
        ),
        (NodeTypes::SHIPPED, &[6, 30, 256]),
        (NodeTypes::FINE, &[4, 8, 16, 32, 64, 128, 256]),
    ];
    for (types, sizes) in cases {
        let tree = Drawn::new(types, 0);
        let mut met = vec![0];
        for n in 0..256_u64 {
            // The keys are not inserted in ascending order.
            tree.put(Key8((n * 37 % 256) << 48));
            let size = size_below(&tree.v, &tree.tree, &types, 0);
            if met.last() != Some(&size) {
                met.push(size);
                // Only the new leaf was added to the content.
                assert_eq!(tree.picture().matches("leaf").count() as u64, n + 1);
            }
        }
        assert_eq!(met.split_off(1), sizes);
        // The node keeps its size until only one child is left. Then this child takes the place of the node.
        for n in 2..256 {
            tree.take(Key8(n << 48));
        }
        let two = tree.picture();
        assert!(two.starts_with("256@0{00:256@1{00:leaf1 01:leaf1 02:-"), "{two}");
        assert_eq!(tree.remove(Key8(0)), "256@0{00:leaf1}");
    }
}

#[test]
fn a_slot_of_a_removed_leaf_is_filled_by_its_own_key_byte_alone() {
    let tree = Drawn::new(small(), 0);
    for n in [1, 2, 3] {
        tree.insert(Key8(n << 48));
    }
    assert_eq!(
        tree.remove(Key8(2 << 48)),
        "256@0{00:4@1{01:leaf1 02:- 03:leaf1}}"
    );
    assert_eq!(
        tree.insert(Key8(4 << 48)),
        "256@0{00:4@1{01:leaf1 02:- 03:leaf1 04:leaf1}}"
    );
    // There is no room for a fifth byte, although one of the four slots has no child. So the node is replaced by a copy
    // without that slot.
    assert_eq!(
        tree.insert(Key8(5 << 48)),
        "256@0{00:4@1{01:leaf1 03:leaf1 04:leaf1 05:leaf1}}"
    );
    assert_eq!(
        tree.insert(Key8(2 << 48)),
        "256@0{00:8@1{01:leaf1 03:leaf1 04:leaf1 05:leaf1 02:leaf1}}"
    );
}

/// The children of the root are spread over the memory nodes by their key bytes, so a key that is inserted again is
/// on the same memory node.
#[test]
fn children_of_the_root_are_spread_and_deeper_nodes_stay_beside_them() {
    let setup = Setup::small();
    for memory_nodes in [1, 2, 3] {
        let world = pool(memory_nodes);
        let v = world.connect(0).unwrap();
        let tree = setup.open::<Key8>(&v);
        let client = tree.client(&v);
        let insert = |n: u64| assert_eq!(block_on(client.insert(&Key8(n), &[1; 8])), Ok(Applied::Inserted));
        (0..256).for_each(|byte| insert(byte << 56));
        let first = homes(&v, &tree, &setup.art.types);
        let root = tree.root().node().0;
        for (byte, home) in &first {
            // The byte is multiplied by the golden ratio, and the fractional part of the product selects the memory
            // node.
            let part = u32::from(*byte).wrapping_mul(0x9E37_79B1);
            let step = (u64::from(part) * u64::from(memory_nodes)) >> 32;
            assert_eq!(
                u64::from(*home),
                (u64::from(root) + step) % u64::from(memory_nodes),
                "{byte}"
            );
        }
        // The node of a split is on the memory node of the leaf.
        (0..256).for_each(|byte| insert(byte << 56 | 1));
        assert_eq!(homes(&v, &tree, &setup.art.types), first);
        let picture = draw(&v, &tree, &setup.art.types);
        assert_eq!(picture.matches("2@7").count(), 256);
    }
}

/// The node of a split below a small node is on the memory node of that node. Each leaf is on the memory node of the
/// node that links it. Below a large node, new nodes are spread over the memory nodes.
#[test]
fn a_split_below_a_small_node_stays_on_its_memory_node_and_one_below_a_large_node_is_spread() {
    let world = pool(3);
    let v = world.connect(0).unwrap();
    let setup = Setup::small();
    let tree = setup.open::<Key8>(&v);
    let client = tree.client(&v);
    // There is a node of 256 slots below the root, with two leaves below each of its slots.
    for n in 0..512 {
        let key = Key8(((n % 256) << 48) | (n / 256));
        assert_eq!(block_on(client.insert(&key, &[1; 8])), Ok(Applied::Inserted));
    }
    let used: Vec<u64> = (0..3)
        .map(|node| crate::common::blocks_on(&v, &tree, &setup.art.types, node))
        .collect();
    // Leaves are on the memory node of their node, and nodes below a large node are spread.
    assert!(used.iter().all(|blocks| *blocks > 150), "{used:?}");
}
