//! Every correct variant passes the same script in every world.

mod common;

use common::{Checksums, LineVersions};
use sherman::{DEFAULT_NODE, NodeSize, Variant};

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
    small_checksummed_nodes => Checksums(Variant::Hierarchical, NodeSize::Span(6));
}
