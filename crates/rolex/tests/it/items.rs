//! Tests of exchanges, and of items of variable length (ROLEX-Indirect).

use dm_index::{Exchange, IndexError, Key8};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{Family, HoldsItems, OutOfLines, TestKey, WorldKind, conform, connect, exchanges};
use dm_verbs::{Control, Verbs};
use rolex::{ChimeLearned, Items, Options, Prefix, Published, PublishedParts, Rolex, RolexParts};

use crate::common::{Learns, Opened, Tree};

struct Blocks;

impl Family for Blocks {
    type Index<K: TestKey> = OutOfLines<Tree<RolexParts<K>>>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        OutOfLines::new(Tree::new(Options::items()), value_bytes)
    }
}

struct PublishedBlocks;

impl Family for PublishedBlocks {
    type Index<K: TestKey> = OutOfLines<Tree<PublishedParts<K>>>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        OutOfLines::new(Tree::new(Options::published_items()), value_bytes)
    }
}

impl<P: Learns> HoldsItems for Tree<P> {
    fn items<'h, V: Verbs + Control>(
        index: &'h Opened<P>,
        v: &'h V,
        prefix: Prefix<P::Key>,
    ) -> Result<Items<'h, V, impl Exchange<Key = P::Key>>, IndexError> {
        index.handle.items(v, prefix)
    }
}

#[test]
fn items_pass_the_script_of_every_index() {
    conform(&Blocks, WorldKind::LoopbackDelays);
}

#[test]
fn items_as_published_pass_the_script_of_every_index() {
    conform(&PublishedBlocks, WorldKind::LoopbackDelays);
}

#[test]
fn values_are_compared_and_exchanged() {
    let pool = || Loopback::builder().nodes(2).host_bytes(64 << 20).build();
    let pools = [(); 3].map(|()| pool().expect("memory"));
    let [whole, hop, published] = pools.each_ref().map(|pool| connect(pool, 0));
    block_on(async {
        let index = Rolex::<Key8>::create_or_open(&whole, &Options::new(8)).await;
        exchanges(&index.expect("a pool").client(&whole)).await;
        let index = ChimeLearned::<Key8>::create_or_open(&hop, &Options::chime_learned(8)).await;
        exchanges(&index.expect("a pool").client(&hop)).await;
        let index = Published::<Key8>::create_or_open(&published, &Options::published(8)).await;
        exchanges(&index.expect("a pool").client(&published)).await;
    });
}
