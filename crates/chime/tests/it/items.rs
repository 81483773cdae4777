//! Runs the script of every index on items of variable length, over hopscotch leaves. Also tests exchanges.

use chime::{Chime, Items, Options, Prefix, Variant};
use dm_index::{Exchange, IndexError, Key8};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{Family, HoldsItems, OutOfLines, TestKey, WorldKind, conform, connect, exchanges};
use dm_verbs::{Control, Verbs};

use crate::common::Tree;

/// Trees of items, with small hopscotch leaves.
struct Blocks;

impl Family for Blocks {
    type Index<K: TestKey> = OutOfLines<Tree<K>>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        let options = Options {
            span: 12,
            neighbourhood: 4,
            ..Options::items()
        };
        OutOfLines::new(Tree::new(options), value_bytes)
    }
}

impl<K: TestKey> HoldsItems for Tree<K> {
    fn items<'h, V: Verbs + Control>(
        tree: &'h Chime<K>,
        v: &'h V,
        prefix: Prefix<K>,
    ) -> Result<Items<'h, V, impl Exchange<Key = K>>, IndexError> {
        tree.items(v, prefix)
    }
}

#[test]
fn items_pass_the_script_of_every_index_on_threads() {
    conform(&Blocks, WorldKind::LoopbackDelays);
}

#[test]
fn items_pass_the_script_of_every_index_in_virtual_time() {
    conform(&Blocks, WorldKind::SimCx6);
}

#[test]
fn items_pass_the_script_on_cards_with_weak_capabilities() {
    for number in 0..dm_testkit::WEAK_WORLDS {
        conform(&Blocks, WorldKind::SimWeak(number));
    }
}

#[test]
fn values_are_compared_and_exchanged() {
    for variant in [Variant::Default, Variant::HopscotchLeaf] {
        let pool = Loopback::builder()
            .nodes(2)
            .host_bytes(64 << 20)
            .build()
            .expect("a world");
        let v = connect(&pool, 0);
        block_on(async {
            let options = variant.apply(Options::new(8));
            let tree = Chime::<Key8>::create_or_open(&v, &options).await.expect("a tree");
            exchanges(&tree.client(&v)).await;
        });
    }
}
