//! Reads arbitrary bytes as an inner node or as a pool's superblock. Each operation must return an answer or a typed
//! error.
//!
//! The first byte picks one of the two. A descent to any key reads the bytes as an inner node (children of 4 or 8
//! bytes). Or the bytes are the page of a superblock, and a client opens the pool over loopback.
#![no_main]

use dm_alloc::{Descriptor, LockHome, LockPlan, Superblock};
use dm_layout::testing::{key_of, read_everything};
use dm_layout::{Key8, KeyBytes, KeyN, NodeRead, NodeShape, Slotted};
use dm_loopback::{Loopback, block_on};
use dm_verbs::{NodeId, RESERVED_BYTES, RemotePtr, Verbs};
use libfuzzer_sys::fuzz_target;

fn descend<K: KeyBytes>(format: &Slotted<K>, key: u8, bytes: &[u8]) {
    let mut node = bytes.to_vec();
    node.resize(format.node_bytes(), 0);
    let key = key_of(key);
    read_everything(format, &node, &key);
    if format.accept(&node).is_ok()
        && let Ok(Some((slot, separator, child))) = format.floor(&node, &key)
    {
        assert!(separator <= key, "a floor lies at or below the key");
        assert_eq!(child.len(), format.value_len(), "a child is an address");
        let again = format.entry(&node, slot).expect("the floor is an entry");
        assert_eq!(
            again.map(|(k, v)| (k, v.to_vec())),
            Some((separator, child.to_vec()))
        );
    }
}

fn open_pool(bytes: &[u8]) {
    let world = Loopback::builder()
        .nodes(1)
        .host_bytes(1 << 16)
        .build()
        .expect("a small world");
    let v = world.connect(0).expect("the first client");
    let page = &bytes[..bytes.len().min(RESERVED_BYTES as usize)];
    let start = RemotePtr::new(NodeId(0), 0).expect("offset 0");
    v.load(start, page).expect("the page lies in memory");
    let wanted = Descriptor {
        kind: 1,
        locks: LockPlan {
            home: LockHome::Host,
            per_node: 64,
        },
        ..Descriptor::of(b"any.", [])
    };
    if let Ok(superblock) = block_on(Superblock::open(&v, &wanted)) {
        assert!(superblock.memory_nodes() >= 1, "a pool has memory");
    }
}

fuzz_target!(|data: &[u8]| {
    match data {
        [kind, key, bytes @ ..] if kind % 5 < 4 => match kind % 5 {
            0 => descend(
                &Slotted::<Key8>::with_node_bytes(1024, 8).expect("a node"),
                *key,
                bytes,
            ),
            1 => descend(
                &Slotted::<KeyN<32>>::with_node_bytes(1024, 8).expect("a node"),
                *key,
                bytes,
            ),
            2 => descend(
                &Slotted::<Key8>::marked_with_node_bytes(1024, 4).expect("a node"),
                *key,
                bytes,
            ),
            _ => descend(&Slotted::<Key8>::tiny(8).expect("a node"), *key, bytes),
        },
        [_, bytes @ ..] => open_pool(bytes),
        [] => {}
    }
});
