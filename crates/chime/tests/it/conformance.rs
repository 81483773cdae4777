//! Runs the script of every index on trees with different options. The first two kinds of trees pass it in every world.

use chime::{Options, Rdwc};
use dm_testkit::{Family, TestKey, WorldKind, conform};

use crate::common::Tree;

/// Trees with this span, this neighbourhood, and this number of local locks for read delegation and write combining.
/// With 0 locks, clients share no operations.
struct Trees(usize, usize, u32);

impl Family for Trees {
    type Index<K: TestKey> = Tree<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        Tree::new(Options {
            span: self.0,
            neighbourhood: self.1,
            inner_span: self.0,
            rdwc: match self.2 {
                0 => Rdwc::OFF,
                locks => Rdwc { locks, ..Rdwc::ON },
            },
            ..Options::new(value_bytes)
        })
    }
}

dm_testkit::conformance! {
    default => Trees(64, 8, 0);
    small_nodes => Trees(6, 3, 0);
}

#[test]
fn wide_neighbourhoods() {
    conform(&Trees(64, 16, 0), WorldKind::SimCx6);
}

#[test]
fn rdwc() {
    conform(&Trees(64, 8, 8), WorldKind::LoopbackDelays);
}
