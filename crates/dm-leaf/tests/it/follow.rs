//! Tests of leaves that are reached through sibling pointers.

use std::cell::{Cell, RefCell};

use dm_alloc::Allocator;
use dm_index::{
    Applied, BulkLoad, Composed, ComposedOptions, CpuCost, IndexError, Inner, Lead, Located, NodeCopies,
    NodeCopy, RangeIndex, Restructure, Run, Scan, Split,
};
use dm_layout::{FenceKeys, Key8, Slotted};
use dm_leaf::{NodeOptions, TwoLevel};
use dm_lock::{GlobalLockTable, LockOptions, Locks};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_sync::Arc;
use dm_verbs::{Env, NodeId, RemotePtr, VerbErrorKind, Verbs};

/// An inner structure that always returns the same leaf, or also those that it has learnt. It records the calls of
/// `Inner::found`, and counts those of `Inner::stale`.
struct Fixed {
    leaf: RemotePtr,
    learns: bool,
    found: RefCell<Vec<(Key8, RemotePtr, u32)>>,
    stale: Cell<u32>,
}

impl Fixed {
    fn at(leaf: RemotePtr) -> Self {
        Self {
            leaf,
            learns: false,
            found: RefCell::default(),
            stale: Cell::default(),
        }
    }

    fn leaf(&self, key: &Key8) -> RemotePtr {
        let found = self.found.borrow();
        let learnt = found.iter().filter(|(low, ..)| self.learns && low <= key).max();
        learnt.map_or(self.leaf, |&(_, leaf, _)| leaf)
    }
}

impl Inner<Endpoint, Key8> for Fixed {
    type Proof = ();
    fn known(&self, _: &Endpoint, key: &Key8) -> Option<Located<()>> {
        Some(Located {
            leaf: Lead::hint(self.leaf(key)),
            proof: (),
        })
    }
    async fn find(&self, v: &Endpoint, key: &Key8) -> Result<Option<Located<()>>, IndexError> {
        Ok(self.known(v, key))
    }
    async fn locate_run(
        &self,
        _: &Endpoint,
        key: &Key8,
        _: usize,
        run: &mut Run<Key8>,
    ) -> Result<(), IndexError> {
        run.clear();
        run.push_alone(self.leaf(key));
        Ok(())
    }
    fn stale(&self, _: &Endpoint, (): ()) {
        self.stale.set(self.stale.get() + 1);
    }
    async fn found(&self, _: &Endpoint, key: &Key8, leaf: RemotePtr, hops: u32) {
        self.found.borrow_mut().push((*key, leaf, hops));
    }
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
    let world = Loopback::builder().nodes(1).build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    let format = Slotted::<Key8>::with_span(8, 8).expect("the node is valid");
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 64));
    let alloc = Arc::new(Allocator::new(1, 0));
    let leaves = TwoLevel::new(format, Arc::new(locks), alloc, NodeOptions::default());
    let fences = FenceKeys::new(Key8(0), Some(Key8(10)));
    let leaf = block_on(async {
        let at = leaves
            .create(&v, 0, fences, &[], false)
            .await
            .expect("the pool has room")
            .at;
        let mut copy = NodeCopy::new();
        leaves.copy(&v, at, &mut copy).await.expect("the node is valid");
        copy.sibling = at;
        leaves.load(&v, &copy).await.expect("the node is valid");
        at
    });
    let options = ComposedOptions::new(10, CpuCost::NONE);
    let inner = Fixed::at(leaf);
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

/// If an earlier request that was not awaited has failed, a bulk load returns its error and does not begin, like every
/// operation.
#[test]
fn a_bulk_load_returns_an_earlier_error() {
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
    let inner = Fixed::at(RemotePtr::NULL);
    let index = Composed::new(&v, &inner, &leaves, ComposedOptions::new(10, CpuCost::NONE));
    let outside = RemotePtr::new(NodeId(0), 1 << 40).expect("in range");
    v.write(outside, &[1; 8]).detach();
    match block_on(index.bulk_load(1.0, |_| None)) {
        Err(IndexError::Verb(e)) => assert!(
            e.at == outside.into() && matches!(e.kind, VerbErrorKind::OutOfBounds { .. }),
            "{e}"
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unlimited_scan_over_the_smallest_leaves_succeeds() {
    let world = Loopback::builder().nodes(1).build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    let format = Slotted::<Key8>::with_span(2, 8).expect("the node is valid");
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 64));
    let alloc = Arc::new(Allocator::new(1, 0));
    let leaves = TwoLevel::new(format, Arc::new(locks), alloc, NodeOptions::default());
    let entries = [(Key8(1), &[1; 8][..]), (Key8(2), &[2; 8])];
    let leaf = block_on(leaves.create(&v, 0, FenceKeys::ALL, &entries, false))
        .expect("the pool has room")
        .at;
    let options = ComposedOptions::new(10, CpuCost::NONE);
    let inner = Fixed::at(leaf);
    let index = Composed::new(&v, &inner, &leaves, options);
    let mut scan = Scan::new();
    block_on(index.scan(&Key8(0), usize::MAX, &mut scan)).expect("no verb fails");
    assert_eq!(scan.keys(), [Key8(1), Key8(2)]);
}

/// Makes the leaves [0, 10), [10, 20) and [20, …), which each have one entry, and calls `run` with them.
fn three_leaves(run: impl AsyncFnOnce(&Endpoint, &TwoLevel<Key8>, [RemotePtr; 3])) {
    let world = Loopback::builder().nodes(1).build().expect("the world is built");
    let v = world.connect(0).expect("the client connects");
    let format = Slotted::<Key8>::with_span(8, 8).expect("the node is valid");
    let locks = Locks::new(LockOptions::default(), GlobalLockTable::on_chip(1, 64));
    let alloc = Arc::new(Allocator::new(1, 0));
    let leaves = TwoLevel::new(format, Arc::new(locks), alloc, NodeOptions::default());
    block_on(async {
        let mut copy = NodeCopy::new();
        let mut at = [RemotePtr::NULL; 3];
        // They are made from the last to the first.
        for (i, (low, high)) in [(0, Some(10)), (10, Some(20)), (20, None)]
            .into_iter()
            .enumerate()
            .rev()
        {
            let fences = FenceKeys::new(Key8(low), high.map(Key8));
            let entries = [(Key8(low), &[7; 8][..])];
            let leaf = leaves.create(&v, 0, fences, &entries, false);
            at[i] = leaf.await.expect("the pool has room").at;
            leaves
                .copy(&v, at[i], &mut copy)
                .await
                .expect("the node is valid");
            copy.sibling = at.get(i + 1).copied().unwrap_or_default();
            leaves.load(&v, &copy).await.expect("the node is valid");
        }
        run(&v, &leaves, at).await;
    });
}

#[test]
fn the_inner_structure_receives_the_leaf_that_steps_to_the_right_reached() {
    three_leaves(async |v, leaves, at| {
        let inner = Fixed::at(at[0]);
        let index = Composed::new(v, &inner, leaves, ComposedOptions::default());
        let learnt = || inner.found.take();
        let mut value = Vec::new();
        assert_eq!(index.get(&Key8(0), &mut value).await, Ok(true));
        assert_eq!(learnt(), [], "no step was taken");
        assert_eq!(index.get(&Key8(25), &mut value).await, Ok(false));
        assert_eq!(learnt(), [(Key8(25), at[2], 2)]);
        assert_eq!(index.update(&Key8(10), &[8; 8]).await, Ok(Applied::Replaced));
        assert_eq!(learnt(), [(Key8(10), at[1], 1)]);
        let mut scan = Scan::new();
        index.scan(&Key8(21), 5, &mut scan).await.expect("no verb fails");
        assert_eq!((scan.len(), learnt()), (0, vec![(Key8(21), at[2], 2)]));
    });
}

/// An inner structure that lacks separators leads again to a leaf that the scan has passed. Then the scan follows the
/// sibling pointer that it has read, so it reads each leaf once.
#[test]
fn a_scan_reads_each_leaf_once_if_separators_are_missing() {
    three_leaves(async |v, leaves, at| {
        for learns in [false, true] {
            let inner = Fixed {
                learns,
                ..Fixed::at(at[0])
            };
            let index = Composed::new(v, &inner, leaves, ComposedOptions::default());
            let mut scan = Scan::new();
            let before = v.meter().counters();
            index.scan(&Key8(0), 5, &mut scan).await.expect("no verb fails");
            assert_eq!(scan.keys(), [Key8(0), Key8(10), Key8(20)]);
            assert_eq!((v.meter().counters() - before).reads, 3);
            // Each leaf to which the inner structure led too late is reported once.
            assert_eq!(inner.stale.get(), if learns { 2 } else { 1 });
            assert_eq!(inner.found.take(), [(Key8(10), at[1], 1), (Key8(20), at[2], 1)]);
        }
        // A scan that begins behind the leaf reads it twice: with the run, and alone.
        let inner = Fixed::at(at[0]);
        let index = Composed::new(v, &inner, leaves, ComposedOptions::default());
        let mut scan = Scan::new();
        let before = v.meter().counters();
        index.scan(&Key8(10), 5, &mut scan).await.expect("no verb fails");
        assert_eq!(scan.keys(), [Key8(10), Key8(20)]);
        assert_eq!((v.meter().counters() - before).reads, 4);
        assert_eq!(inner.stale.get(), 1);
    });
}
