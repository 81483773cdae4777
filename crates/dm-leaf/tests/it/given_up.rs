//! Tests of splits that are dropped or fail midway, and of nodes that are opened or loaded in unusual ways.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dm_alloc::Allocator;
use dm_index::{Answer, Applied, BulkLoad, Key8, Lead, NodeAccess, NodeCopies, NodeCopy, Restructure, Write};
use dm_layout::{
    Checksummed, FenceKeys, Hopscotch, Lookup, NodeFormat, NodeShape, NodeState, NodeStructure, Slotted,
};
use dm_leaf::Nodes;
use dm_loopback::{Endpoint, Loopback, Trouble, block_on};
use dm_sync::Arc;
use dm_verbs::testing::Altered;
use dm_verbs::{Capability, Env, RemotePtr, VerbError, VerbErrorKind, Verbs};

use crate::common::{Setup, pool};

/// A leaf that is split by its next insert, on a pool with delayed completions.
struct Full<F> {
    world: Loopback,
    v: Endpoint,
    nodes: Nodes<Key8, F>,
    alloc: Arc<Allocator>,
    left: RemotePtr,
    /// The key for which the leaf has no room.
    key: u64,
}

impl<F: NodeFormat<Key8> + Clone> Full<F> {
    fn new(format: &F, spread: bool, seed: u64) -> Self {
        let world = Loopback::builder()
            .nodes(2)
            .host_bytes(256 << 10)
            .delays(3)
            .seed(seed);
        let world = world.build().unwrap();
        let v = world.connect(0).unwrap();
        let mut setup = Setup::plain();
        setup.nodes.spread = spread;
        let full = |keys: u64| {
            let (nodes, alloc) = setup.nodes_and_memory(format.clone(), 2, 0);
            let left = block_on(nodes.create(&v, 0, FenceKeys::ALL, &[], false))
                .unwrap()
                .at;
            for key in 1..=keys {
                let write = Write::Insert(&[1; 8]);
                let done = block_on(nodes.write(&v, Lead::hint(left), 0, &Key8(key), write, None));
                if matches!(done, Ok(Answer::Split(..))) {
                    return (nodes, alloc, left, key);
                }
                assert_eq!(done, Ok(Answer::Done(Applied::Inserted)));
            }
            (nodes, alloc, left, keys + 1)
        };
        let (.., key) = full(u64::MAX);
        let (nodes, alloc, left, _) = full(key - 1);
        Self {
            world,
            v,
            nodes,
            alloc,
            left,
            key,
        }
    }

    /// Polls the splitting insert `polls` times. Then causes `trouble` at the left node's memory node, or drops the
    /// insert if `trouble` is `None`. Returns whether the insert succeeded, or `None` if it had not ended when it was
    /// dropped.
    fn split(&self, polls: u64, trouble: Option<Trouble>) -> Option<bool> {
        let (at, write, key) = (Lead::hint(self.left), Write::Insert(&[2; 8]), Key8(self.key));
        let mut insert = pin!(self.nodes.write(&self.v, at, 0, &key, write, None));
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = || match insert.as_mut().poll(&mut cx) {
            Poll::Ready(done) => Some(done.is_ok()),
            Poll::Pending => None,
        };
        let done = (0..polls).find_map(|_| poll());
        let Some(trouble) = trouble.filter(|_| done.is_none()) else {
            return done;
        };
        self.world.cut(self.left.node(), trouble);
        let done = (0..1000).find_map(|_| poll());
        self.world.restore(self.left.node());
        done
    }

    fn image(&self, at: RemotePtr) -> Vec<u8> {
        let bytes = Restructure::<Endpoint, Key8>::node_bytes(&self.nodes);
        block_on(self.v.read(at, bytes)).unwrap().to_vec()
    }

    /// Returns the sibling of the left node.
    fn right(&self) -> RemotePtr {
        let header = self.nodes.format().header(&self.image(self.left)).unwrap();
        RemotePtr::from_raw(header.sibling)
    }
}

/// If the right node holds the new entry, it becomes live even if its split is dropped. Until then, the `owner` in its
/// header is 1 plus the id of the splitting client.
#[test]
fn a_right_node_that_is_linked_and_complete_is_opened() {
    fn check<F: NodeFormat<Key8> + Clone>(format: &F) -> [u32; 2] {
        let mut met = [0; 2];
        for (polls, seed) in (1..80).flat_map(|polls| (0..4).map(move |seed| (polls, seed))) {
            let full = Full::new(format, true, seed);
            let over = full.split(polls, None).is_some();
            let at = full.right();
            if over || at.is_null() {
                continue;
            }
            let me = u32::from(full.v.client().0) + 1;
            let (left, right) = (full.image(full.left), full.image(at));
            if format.is_unborn(&right) {
                met[0] += 1;
                assert_eq!(format.header(&right).unwrap().owner, me);
                assert_eq!(format.header(&left).unwrap().state, NodeState::Splitting);
                let found = format.lookup(&right, &Key8(full.key), 0);
                assert!(
                    F::ANYWHERE || matches!(found, Ok(Lookup::Absent)),
                    "complete after {polls} polls, and not opened"
                );
            } else {
                met[1] += 1;
            }
            if format.header(&left).unwrap().state == NodeState::Splitting {
                assert_eq!(format.header(&left).unwrap().owner, me);
            }
        }
        met
    }
    for met in [
        check(&Slotted::with_span(4, 8).unwrap()),
        check(&Hopscotch::new(16, 4, 8).unwrap()),
    ] {
        assert!(met[0] > 0 && met[1] > 0, "{met:?}");
    }
}

/// A split that failed without an effect frees its block. If the left node may already link the block, the block is not
/// freed.
#[test]
fn a_failed_split_frees_its_block_unless_the_block_may_be_linked() {
    let format = Slotted::with_span(4, 8).unwrap();
    let (mut failed, mut linked) = (0, 0);
    for trouble in [Trouble::Unreachable, Trouble::AnswersLost] {
        for (polls, seed) in (1..40).flat_map(|polls| (0..4).map(move |seed| (polls, seed))) {
            let full = Full::new(&format, true, seed);
            let before = full.alloc.stats().in_use_bytes;
            if full.split(polls, Some(trouble)) != Some(false) {
                continue;
            }
            failed += 1;
            let is_linked = !full.right().is_null();
            linked += u32::from(is_linked);
            let bytes = i64::from(Restructure::<Endpoint, Key8>::node_bytes(&full.nodes));
            let taken = full.alloc.stats().in_use_bytes - before;
            assert_eq!(
                taken,
                if is_linked { bytes } else { 0 },
                "{trouble:?} after {polls}"
            );
        }
    }
    assert!(failed > linked && linked > 0, "{linked} of {failed}");
}

/// A node that is no longer unborn is not opened.
#[test]
fn a_node_that_died_unopened_stays_dead() {
    let format = Checksummed::with_span(4, 8).unwrap();
    let pool = pool(1);
    let v = pool.connect(0).unwrap();
    let nodes = Setup::plain().nodes(format, 1, 0);
    let made = block_on(nodes.create(&v, 0, FenceKeys::ALL, &[], true)).unwrap();
    let mut image = block_on(v.read(made.at, format.node_bytes() as u32))
        .unwrap()
        .to_vec();
    format.bury(&mut image, 0).unwrap();
    block_on(v.write(made.at, &image)).unwrap();
    assert_eq!(block_on(nodes.open(&v, &made)), Ok(()));
    assert_eq!(block_on(nodes.copy(&v, made.at, &mut NodeCopy::new())), Ok(false));
}

#[test]
fn a_node_that_cannot_be_loaded_directly_is_written() {
    let pool = pool(1);
    let v = Altered {
        refuses_load: |at| {
            let kind = VerbErrorKind::Unsupported(Capability::DirectLoad);
            Some(VerbError::refused(kind, at))
        },
        ..Altered::new(pool.connect(0).unwrap())
    };
    let nodes = Setup::plain().nodes(Slotted::<Key8>::with_span(4, 8).unwrap(), 1, 0);
    let (mut copy, mut found) = (NodeCopy::new(), NodeCopy::new());
    let entries = [(Key8(7), &[7; 8][..])];
    let made = block_on(nodes.create(&v, 0, FenceKeys::ALL, &entries, false)).unwrap();
    assert_eq!(block_on(nodes.copy(&v, made.at, &mut copy)), Ok(true));
    copy.at = block_on(BulkLoad::<Altered<Endpoint>, Key8>::reserve(&nodes, &v)).unwrap();
    assert_eq!(block_on(nodes.load(&v, &copy)), Ok(()));
    assert_eq!(block_on(nodes.copy(&v, copy.at, &mut found)), Ok(true));
    assert!(found.iter().eq(copy.iter()) && found.entries.len() == 1);
}
