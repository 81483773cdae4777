//! Every size passes the same script in every world.

use dm_testkit::{Family, TestKey, WorldKind, conform};
use dolphin::{NodeTypes, Options, Rdwc};

use crate::common::Tree;

/// Trees whose leaves hold about so many entries, whatever they are; with read delegation and write combining over so many
/// local locks.
struct Trees(usize, NodeTypes, u32);

impl Family for Trees {
    type Index<K: TestKey> = Tree<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        let bytes = 64 + self.0 * (K::LEN + value_bytes + value_bytes / 32 + 2);
        Tree::new(Options {
            leaf_bytes: bytes.next_multiple_of(64),
            types: self.1,
            rdwc: match self.2 {
                0 => Rdwc::OFF,
                locks => Rdwc { locks, ..Rdwc::ON },
            },
            ..Options::new(value_bytes)
        })
    }
}

dm_testkit::conformance! {
    default => Trees(50, NodeTypes::SHIPPED, 0);
}

#[test]
fn small_leaves() {
    conform(&Trees(6, NodeTypes::FINE, 0), WorldKind::SimCx6);
}

#[test]
fn rdwc() {
    conform(&Trees(50, NodeTypes::SHIPPED, 8), WorldKind::LoopbackDelays);
}
