//! Runs the script of every index on every correct variant, in every world.

use crate::common::Tree;
use dm_layout::{Checksummed, Slotted};
use dm_testkit::{Family, TestKey};
use sherman::{DEFAULT_NODE, LeafKind, NodeSize, Options, Rdwc, Variant};

/// Trees of a variant with leaves under line versions.
struct LineVersions(Variant, NodeSize);
/// Trees of a variant with leaves under a checksum.
struct Checksums(Variant, NodeSize);

/// Trees whose clients share gets, updates and upserts. There are so few local locks that an operation often finds an
/// operation on another key at its lock.
struct Shared(u32);

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

impl Family for Shared {
    type Index<K: TestKey> = Tree<K, Slotted<K>>;
    fn index<K: TestKey>(&self, value_bytes: usize) -> Self::Index<K> {
        let rdwc = Rdwc {
            locks: self.0,
            ..Rdwc::ON
        };
        Tree::new(Options {
            rdwc,
            ..options(Variant::Default, DEFAULT_NODE, value_bytes)
        })
    }
}

dm_testkit::conformance! {
    default => LineVersions(Variant::Default, DEFAULT_NODE);
    small_nodes => LineVersions(Variant::Default, NodeSize::Span(6));
    paper_rtt => LineVersions(Variant::PaperRtt, DEFAULT_NODE);
    two_level => LineVersions(Variant::TwoLevel, DEFAULT_NODE);
    fg => Checksums(Variant::Fg, DEFAULT_NODE);
    fg_plus => Checksums(Variant::FgPlus, DEFAULT_NODE);
    combine => Checksums(Variant::Combine, DEFAULT_NODE);
    on_chip => Checksums(Variant::OnChip, DEFAULT_NODE);
    hierarchical => Checksums(Variant::Hierarchical, DEFAULT_NODE);
    rdwc => Shared(8);
    small_checksummed_nodes => Checksums(Variant::Hierarchical, NodeSize::Span(6));
}
