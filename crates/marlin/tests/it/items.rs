//! Tests of exchanges, and of items of variable length.

use dm_index::{Exchange, IndexError, Key8};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{Family, HoldsItems, OutOfLines, TestKey, WorldKind, conform, connect, exchanges};
use dm_verbs::{Control, Verbs};
use marlin::{Items, Marlin, Options, Prefix};

use crate::common::Tree;

struct Blocks;

impl Family for Blocks {
    type Index<K: TestKey> = OutOfLines<Tree<K>>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        OutOfLines::new(Tree::new(Options::items()), value_bytes)
    }
}

impl<K: TestKey> HoldsItems for Tree<K> {
    fn items<'h, V: Verbs + Control>(
        tree: &'h Marlin<K>,
        v: &'h V,
        prefix: Prefix<K>,
    ) -> Result<Items<'h, V, impl Exchange<Key = K>>, IndexError> {
        tree.items(v, prefix)
    }
}

#[test]
fn items_pass_the_script_of_every_index() {
    conform(&Blocks, WorldKind::LoopbackDelays);
}

#[test]
fn values_are_compared_and_exchanged() {
    for shared in [true, false] {
        let pool = Loopback::builder().nodes(2).host_bytes(64 << 20).build();
        let pool = pool.expect("memory");
        let v = connect(&pool, 0);
        let options = Options {
            shared,
            ..Options::new(8)
        };
        block_on(async {
            let tree = Marlin::<Key8>::create_or_open(&v, &options).await;
            exchanges(&tree.expect("a pool").client(&v)).await;
        });
    }
}
