//! Leaves whose sibling pointers form a cycle.

use dm_alloc::Allocator;
use dm_index::{
    BulkLoad, Composed, ComposedOptions, CpuCost, IndexError, Inner, Lead, Located, NodeCopies, NodeCopy,
    RangeIndex, Restructure, Split,
};
use dm_layout::{FenceKeys, Key8, Slotted};
use dm_leaf::{NodeOptions, TwoLevel};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_sync::Arc;
use dm_verbs::RemotePtr;

/// An inner structure that always returns the same leaf.
struct Fixed(RemotePtr);

impl Inner<Endpoint, Key8> for Fixed {
    type Proof = ();
    fn known(&self, _: &Endpoint, _: &Key8) -> Option<Located<()>> {
        Some(Located {
            leaf: Lead::hint(self.0),
            proof: (),
        })
    }
    async fn find(&self, v: &Endpoint, key: &Key8) -> Result<Option<Located<()>>, IndexError> {
        Ok(self.known(v, key))
    }
    async fn locate_run(
        &self,
        _: &Endpoint,
        _: &Key8,
        _: usize,
        run: &mut Vec<RemotePtr>,
    ) -> Result<(), IndexError> {
        run.push(self.0);
        Ok(())
    }
    fn stale(&self, _: &Endpoint, (): ()) {}
    async fn plant(&self, _: &Endpoint, _: RemotePtr) -> Result<bool, IndexError> {
        Ok(false)
    }
    async fn install(&self, _: &Endpoint, _: Split<Key8>) -> Result<(), IndexError> {
        Ok(())
    }
    async fn shrink<L: Restructure<Endpoint, Key8>>(
        &self,
        _: &Endpoint,
        _: &L,
        _: &Key8,
    ) -> Result<(), IndexError> {
        Ok(())
    }
    async fn build(&self, _: &Endpoint, _: &[(Key8, RemotePtr)], _: f64) -> Result<(), IndexError> {
        Ok(())
    }
}

#[test]
fn a_circle_of_leaves_ends_in_a_typed_error() {
    let world = Loopback::builder().nodes(1).build().expect("a world");
    let v = world.connect(0).expect("a client");
    let format = Slotted::<Key8>::with_span(8, 8).expect("a node");
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 64));
    let alloc = Arc::new(Allocator::new(1, 0));
    let leaves = TwoLevel::new(format, Arc::new(locks), alloc, NodeOptions::default());
    let fences = FenceKeys::new(Key8(0), Some(Key8(10)));
    let leaf = block_on(async {
        let at = leaves.create(&v, 0, fences, &[], false).await.expect("room").at;
        let mut copy = NodeCopy::new();
        leaves.copy(&v, at, &mut copy).await.expect("a node");
        copy.sibling = at;
        leaves.load(&v, &copy).await.expect("a node");
        at
    });
    let options = ComposedOptions::new(10, CpuCost::NONE);
    let inner = Fixed(leaf);
    let index = Composed::new(&v, &inner, &leaves, options);
    let mut value = Vec::new();
    assert!(matches!(
        block_on(index.get(&Key8(11), &mut value)),
        Err(IndexError::Exhausted(_))
    ));
    assert!(matches!(
        block_on(index.upsert(&Key8(11), &[0; 8])),
        Err(IndexError::Exhausted(_))
    ));
}

#[test]
fn a_scan_without_bound_of_the_smallest_leaves_is_a_scan() {
    let world = Loopback::builder().nodes(1).build().expect("a world");
    let v = world.connect(0).expect("a client");
    let format = Slotted::<Key8>::with_span(2, 8).expect("a node");
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 64));
    let alloc = Arc::new(Allocator::new(1, 0));
    let leaves = TwoLevel::new(format, Arc::new(locks), alloc, NodeOptions::default());
    let entries = [(Key8(1), &[1; 8][..]), (Key8(2), &[2; 8])];
    let leaf = block_on(leaves.create(&v, 0, FenceKeys::ALL, &entries, false))
        .expect("room")
        .at;
    let options = ComposedOptions::new(10, CpuCost::NONE);
    let inner = Fixed(leaf);
    let index = Composed::new(&v, &inner, &leaves, options);
    let mut scan = dm_index::Scan::new();
    block_on(index.scan(&Key8(0), usize::MAX, &mut scan)).expect("no trouble");
    assert_eq!(scan.keys(), [Key8(1), Key8(2)]);
}
