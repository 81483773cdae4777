//! Runs CHIME over real queue pairs.

use std::marker::PhantomData;

use chime::{Chime, Key8, Options, RangeIndex};
use dm_testkit::{Failure, Family, IndexUnderTest, TestKey};
use dm_verbs::{Control, Verbs};

use crate::world::{LINES, ORDERS, passes, stressed};

/// CHIME trees that take memory in small chunks.
struct Tree<K>(Options, PhantomData<fn() -> K>);

fn tree<K>(options: Options) -> Tree<K> {
    let options = Options {
        chunk_bytes: 1 << 18,
        ..options
    };
    Tree(options, PhantomData)
}

impl<K: TestKey> IndexUnderTest for Tree<K> {
    type Key = K;
    type Handle = Chime<K>;
    fn value_bytes(&self) -> usize {
        self.0.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<Self::Handle, Failure> {
        Ok(Chime::create_or_open(v, &self.0).await?)
    }
    fn client<'h, V: Verbs + Control>(handle: &'h Self::Handle, v: &'h V) -> impl RangeIndex<Key = K> {
        handle.client(v)
    }
}

struct Trees;

impl Family for Trees {
    type Index<K: TestKey> = Tree<K>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Tree<K> {
        tree(Options::new(value_bytes))
    }
}

#[test]
fn conforms() {
    passes(&Trees);
}

/// Returns a tree with small leaves, so that entries hop and leaves split. Values have two words, so that they can
/// tear.
fn small() -> Tree<Key8> {
    tree(Options {
        span: 16,
        neighbourhood: 4,
        inner_span: 8,
        ..Options::new(16)
    })
}

#[test]
fn stressed_with_line_atomicity_alone() {
    stressed(small(), LINES, 31, 30);
}

#[test]
fn stressed_with_every_order() {
    stressed(small(), ORDERS, 32, 30);
}
