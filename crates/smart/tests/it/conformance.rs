//! Runs the script of every index on trees with different techniques. Those of the macro run in every world, and those
//! of `others` in one world each.

use crate::common::{Tree, art, hash_cache, hybrid, optimistic, plain, under_tables};
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

/// Trees whose options are those that the function makes from the default ones.
struct With(fn(Options) -> Options);

impl Family for With {
    type Index<K: TestKey> = Tree<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        Tree::new((self.0)(Options::new(value_bytes)))
    }
}

const ALL: u64 = 1 << 30;

dm_testkit::conformance! {
    default => Trees(NodeTypes::SHIPPED, ALL);
    under_tables => With(under_tables);
    art => With(art);
    plain => With(plain);
    optimistic => With(optimistic);
    hybrid => With(hybrid);
    hash_cache => With(hash_cache);
}

/// Other node sizes change when nodes are copied, and smaller caches change which images are stale. Each setting runs
/// in the world that shows its effect best.
mod others {
    use super::*;
    use dm_testkit::{WorldKind, conform};

    #[test]
    fn seven_sizes() {
        conform(&Trees(NodeTypes::FINE, ALL), WorldKind::SimCx6);
    }

    #[test]
    fn ten_sizes() {
        let ten = NodeTypes::geometric(10).expect("as many as the paper has");
        conform(&Trees(ten, ALL), WorldKind::SimCx6);
    }

    #[test]
    fn small_cache() {
        conform(&Trees(NodeTypes::SHIPPED, 16 << 10), WorldKind::SimCx6Colocated);
    }

    #[test]
    fn small_hash_cache() {
        let small = |options| Options {
            cache_bytes: 16 << 10,
            ..hash_cache(options)
        };
        conform(&With(small), WorldKind::SimCx6Colocated);
    }

    #[test]
    fn art_with_hash_cache() {
        conform(&With(|options| art(hash_cache(options))), WorldKind::SimCx6);
    }

    #[test]
    fn out_of_place() {
        conform(&With(crate::common::out_of_place), WorldKind::SimCx6);
    }

    #[test]
    fn no_cache() {
        conform(&Trees(NodeTypes::SHIPPED, 0), WorldKind::SimCx5);
    }
}
