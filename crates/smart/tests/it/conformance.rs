//! Every correct variant passes the same script in every world.

use crate::common::Tree;
use dm_testkit::{Family, TestKey};
use smart::{NodeTypes, Options};

/// Trees with these node sizes and this cache.
struct Trees(NodeTypes, u64);

impl Family for Trees {
    type Index<K: TestKey> = Tree<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        Tree::new(Options {
            types: self.0,
            cache_bytes: self.1,
            ..Options::new(value_bytes)
        })
    }
}

const ALL: u64 = 1 << 30;

dm_testkit::conformance! {
    default => Trees(NodeTypes::SHIPPED, ALL);
}

/// Other sizes change when nodes are copied, and a small cache changes when images are stale: each in the
/// world that shows it best.
mod others {
    use super::*;
    use dm_testkit::{WorldKind, conform};

    #[test]
    fn seven_sizes() {
        conform(&Trees(NodeTypes::FINE, ALL), WorldKind::SimCx6);
    }

    #[test]
    fn small_cache() {
        conform(&Trees(NodeTypes::SHIPPED, 16 << 10), WorldKind::SimCx6Colocated);
    }

    #[test]
    fn no_cache() {
        conform(&Trees(NodeTypes::SHIPPED, 0), WorldKind::SimCx5);
    }
}
