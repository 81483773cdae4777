//! Reads arbitrary bytes as a radix node or as a leaf of one entry. Each operation must return an answer or a typed
//! error. A decoded node or leaf must encode again.
//!
//! The first byte picks a node of some type, a leaf, or the root of a tree on which operations run.
#![no_main]

use dm_layout::{
    Find, Key8, KeyBytes, KeyN, NodeTypes, RadixHeader, RadixNode, SingleLeaf, SlotWord, build_radix_node,
};
use dm_loopback::{Loopback, block_on};
use dm_verbs::Verbs;
use libfuzzer_sys::fuzz_target;
use smart::{Options, RangeIndex, Scan, Smart};

fn node(types: &NodeTypes, node_type: u8, key_byte: u8, bytes: &[u8]) {
    let Ok(node) = RadixNode::decode(bytes, types, node_type) else {
        return;
    };
    let header = node.header();
    assert_eq!(RadixHeader::unpack(header.pack()), Ok(header));
    assert_eq!(
        usize::from(header.branch()),
        usize::from(header.depth()) + header.partial().len()
    );
    match node.find(key_byte) {
        Ok(Find::Child(_, word)) => {
            assert!(word.has_child() && word.decode().is_ok());
            assert!(types.is_direct(node_type) || word.partial() == key_byte);
        }
        Ok(Find::Vacant(index, word)) => assert!(index < types.slots(node_type) && !word.has_child()),
        Ok(Find::Full) => assert!(!node.words().any(SlotWord::is_empty)),
        Err(_) => {}
    }
    // Copies the node's children, as a renewal does.
    let children: Vec<SlotWord> = node
        .words()
        .filter(|w| w.has_child())
        .map(SlotWord::thawed)
        .collect();
    if children.iter().any(|w| w.decode().is_err()) {
        return;
    }
    let mut copy = Vec::new();
    build_radix_node(types, header, node.incarnation(), &children, &mut copy);
    let copy = RadixNode::decode(&copy, types, node_type).expect("a node that was built");
    assert!(!copy.is_frozen() && copy.header() == header);
    for child in copy.words().filter(|w| w.has_child()) {
        assert!(children.contains(&child), "a child of its own");
    }
}

fn leaf<K: KeyBytes>(value_bytes: usize, bytes: &[u8]) {
    let layout = SingleLeaf::<K>::new(value_bytes).expect("a leaf");
    let Ok(entry) = layout.open(bytes) else { return };
    let mut again = vec![0; layout.block_bytes()];
    layout.build(&entry.key, entry.value, entry.depth, &mut again);
    let built = layout.open(&again).expect("a leaf that was built");
    assert_eq!(
        (built.key, built.value, built.depth),
        (entry.key, entry.value, entry.depth)
    );
    assert_eq!(
        bytes[layout.value_range()],
        again[layout.value_range()],
        "one checksum for one entry"
    );
}

/// Runs operations on a tree whose root has these bytes. They must end, and may fail only with a typed error.
fn tree(key: u8, bytes: &[u8]) {
    let world = Loopback::builder()
        .nodes(1)
        .host_bytes(1 << 18)
        .build()
        .expect("a small world");
    let v = world.connect(0).expect("the first client");
    let options = Options {
        chunk_bytes: 1 << 13,
        attempts: 16,
        ..Options::new(8)
    };
    block_on(async {
        let tree = Smart::<Key8>::create_or_open(&v, &options)
            .await
            .expect("an empty pool");
        let root = bytes.len().min(options.types.bytes(options.types.largest()));
        v.load(tree.root(), &bytes[..root])
            .expect("the root lies in memory");
        let client = tree.client(&v);
        let key = Key8(u64::from(key).wrapping_mul(0x0101_0001_0100_0101));
        let mut value = Vec::new();
        let _any = client.get(&key, &mut value).await;
        let _any = client.upsert(&key, &[7; 8]).await;
        let _any = client.remove(&key).await;
        let _any = client.scan(&Key8(0), 64, &mut Scan::new()).await;
    });
}

fuzz_target!(|data: &[u8]| {
    let [kind, key, bytes @ ..] = data else { return };
    let pick = kind >> 3;
    match kind % 8 {
        0 => node(
            &NodeTypes::SHIPPED,
            1 + pick % NodeTypes::SHIPPED.largest(),
            *key,
            bytes,
        ),
        1 => node(
            &NodeTypes::FINE,
            1 + pick % NodeTypes::FINE.largest(),
            *key,
            bytes,
        ),
        2 => node(
            &NodeTypes::TINY,
            1 + pick % NodeTypes::TINY.largest(),
            *key,
            bytes,
        ),
        3 => leaf::<Key8>(8, bytes),
        4 => leaf::<KeyN<32>>(usize::from(pick), bytes),
        _ => tree(*key, bytes),
    }
});
