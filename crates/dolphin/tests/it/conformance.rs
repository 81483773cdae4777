//! Runs the script of every index on trees with different options. The default tree passes it in every world.

use dm_testkit::{Family, TestKey, WorldKind, conform};
use dolphin::{NodeTypes, Options, Rdwc};

use crate::common::Tree;

/// Trees whose leaves hold about `entries` entries without packing, for any key size, and more entries with packing.
/// `combining` is the number of local locks for read delegation and write combining; with 0, clients share no
/// operations.
struct Trees {
    entries: usize,
    types: NodeTypes,
    packed: bool,
    combining: u32,
}

impl Trees {
    const DEFAULT: Self = Self {
        entries: 50,
        types: NodeTypes::SHIPPED,
        packed: true,
        combining: 0,
    };
}

impl Family for Trees {
    type Index<K: TestKey> = Tree<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        let bytes = 64 + self.entries * (K::LEN + value_bytes + value_bytes / 32 + 2);
        Tree::new(Options {
            leaf_bytes: bytes.next_multiple_of(64),
            types: self.types,
            packed_keys: self.packed,
            rdwc: match self.combining {
                0 => Rdwc::OFF,
                locks => Rdwc { locks, ..Rdwc::ON },
            },
            ..Options::new(value_bytes)
        })
    }
}

dm_testkit::conformance! {
    default => Trees::DEFAULT;
}

#[test]
fn small_leaves() {
    let small = Trees {
        entries: 6,
        types: NodeTypes::FINE,
        ..Trees::DEFAULT
    };
    conform(&small, WorldKind::SimCx6);
}

#[test]
fn whole_keys() {
    let whole = Trees {
        packed: false,
        ..Trees::DEFAULT
    };
    conform(&whole, WorldKind::LoopbackDelays);
}

#[test]
fn rdwc() {
    let combining = Trees {
        combining: 8,
        ..Trees::DEFAULT
    };
    conform(&combining, WorldKind::LoopbackDelays);
}
