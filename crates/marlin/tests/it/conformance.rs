//! Runs the script of every index on trees with different options. The default options and small nodes run in every
//! world, and each other tree runs in one world.

use dm_testkit::{Family, TestKey, WorldKind, conform};
use marlin::{DEFAULT_NODE_BYTES, Options, Rdwc};

use crate::common::Tree;

/// Trees with nodes of this many bytes, whose other options are changed by a function.
struct Trees(usize, fn(&mut Options));

impl Trees {
    const fn new(change: fn(&mut Options)) -> Self {
        Self(DEFAULT_NODE_BYTES, change)
    }
}

impl Family for Trees {
    type Index<K: TestKey> = Tree<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        let mut options = Options {
            node_bytes: self.0,
            ..Options::new(value_bytes)
        };
        (self.1)(&mut options);
        Tree::new(options)
    }
}

dm_testkit::conformance! {
    default => Trees::new(|_| {});
    small_nodes => Trees(384, |_| {});
}

#[test]
fn published() {
    conform(&Trees::new(|o| *o = o.published()), WorldKind::SimCx6);
}

#[test]
fn alone() {
    conform(&Trees::new(|o| o.shared = false), WorldKind::LoopbackDelays);
}

#[test]
fn without_local_queues() {
    conform(&Trees(384, |o| o.hierarchical = false), WorldKind::SimCx5);
}

#[test]
fn rdwc() {
    conform(
        &Trees::new(|o| o.rdwc = Rdwc { locks: 8, ..Rdwc::ON }),
        WorldKind::LoopbackDelays,
    );
}
