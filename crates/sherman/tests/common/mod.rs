//! Sherman as the test kit opens it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::marker::PhantomData;

use dm_layout::{Checksummed, Slotted};
use dm_testkit::{Failure, Family, IndexUnderTest, TestKey};
use dm_verbs::{Control, Verbs};
use sherman::{LeafFormat, LeafKind, NodeSize, Options, RangeIndex, Sherman, Variant};

/// A tree with these options.
pub struct Tree<K, F = Slotted<K>> {
    pub options: Options,
    _types: PhantomData<fn() -> (K, F)>,
}

impl<K, F> Tree<K, F> {
    pub const fn new(options: Options) -> Self {
        Self {
            options,
            _types: PhantomData,
        }
    }
}

impl<K: TestKey, F: LeafFormat<K>> IndexUnderTest for Tree<K, F> {
    type Key = K;
    type Handle = Sherman<K, F>;
    fn value_bytes(&self) -> usize {
        self.options.value_bytes
    }
    async fn open<V: Verbs + Control>(&self, v: &V) -> Result<Sherman<K, F>, Failure> {
        Ok(Sherman::create_or_open(v, &self.options).await?)
    }
    fn client<'h, V: Verbs + Control>(tree: &'h Sherman<K, F>, v: &'h V) -> impl RangeIndex<Key = K> {
        tree.client(v)
    }
}

/// Trees of a variant with leaves under line versions.
pub struct LineVersions(pub Variant, pub NodeSize);
/// Trees of a variant with leaves under a checksum.
pub struct Checksums(pub Variant, pub NodeSize);

fn options(variant: Variant, node: NodeSize, value_bytes: usize) -> Options {
    variant.apply(Options {
        node,
        ..Options::new(value_bytes)
    })
}

impl Family for LineVersions {
    type Index<K: TestKey> = Tree<K, Slotted<K>>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        assert_eq!(self.0.leaf(), LeafKind::TwoLevel, "{} has other leaves", self.0);
        Tree::new(options(self.0, self.1, value_bytes))
    }
}

impl Family for Checksums {
    type Index<K: TestKey> = Tree<K, Checksummed<K>>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        assert_eq!(
            self.0.leaf(),
            LeafKind::Checksummed,
            "{} has other leaves",
            self.0
        );
        Tree::new(options(self.0, self.1, value_bytes))
    }
}
