//! Tests of mixed states of a node that one READ may return, and of the copies that clients make of them.

use dm_alloc::Allocator;
use dm_index::{NodeCopies, NodeCopy, Restructure};
use dm_layout::{FenceKeys, Key8, NodeEdit, NodeRead, NodeShape, Slotted};
use dm_leaf::{NodeOptions, TwoLevel};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_loopback::{Loopback, block_on};
use dm_sync::Arc;
use dm_verbs::Verbs;

/// While a READ is in flight, a key is removed and inserted again in another slot. The READ returns the key in both
/// slots.
#[test]
fn a_key_that_moved_during_the_read_is_copied_once() {
    let world = Loopback::builder().nodes(1).build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    let format = Slotted::<Key8>::with_span(8, 8).expect("the node is valid");
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 64));
    let leaves = TwoLevel::new(
        format,
        Arc::new(locks),
        Arc::new(Allocator::new(1, 0)),
        NodeOptions::default(),
    );
    block_on(async {
        let entries = [(Key8(1), &[1; 8][..]), (Key8(2), &[2; 8]), (Key8(3), &[3; 8])];
        let at = leaves
            .create(&v, 0, FenceKeys::ALL, &entries, false)
            .await
            .expect("the pool has room")
            .at;
        // The test writes the bytes that such a READ returns: key 2 is in its old slot, and in a free slot of another
        // line.
        let mut image = v
            .read(at, format.node_bytes() as u32)
            .await
            .expect("no verb fails");
        let free = format.slots(&image).last().expect("eight slots");
        format.put(&mut image, free, &Key8(2), [9; 8].as_slice().into());
        v.write(at, &image).await.expect("no verb fails");

        let mut copy = NodeCopy::new();
        assert!(leaves.copy(&v, at, &mut copy).await.expect("an accepted image"));
        let keys: Vec<_> = copy.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [Key8(1), Key8(2), Key8(3)]);
    });
}
