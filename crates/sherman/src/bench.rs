//! The entry of Sherman for the benchmark harness: the steps of its paper, the baselines FG and FG+, and the variants
//! that other papers measured.

use crate::{LeafFormat, LeafKind, NodeSize, Options, Sherman, Variant};
use dm_bench::{Driver, IndexEntry, Setting, VariantEntry};
use dm_index::{Key8, KeyN, NEAR_CHILD_NODES_MAX};
use dm_layout::{Bookend, Checksummed, Slotted};

const SPAN: &str = "span";

/// Returns the index with all its variants, for a registry of `dm-bench`.
pub fn entry() -> IndexEntry {
    let entry = IndexEntry::new("sherman", "a B-link tree (SIGMOD 2022)")
        .common_knobs()
        .knob(SPAN, "entries of a node, instead of nodes of 1,024 bytes");
    Variant::ALL
        .iter()
        .fold(entry, |entry, &variant| entry.variant(listed(variant)))
}

fn listed(variant: Variant) -> VariantEntry {
    let entry = VariantEntry::new(variant.name(), variant.about()).series(variant.name());
    let entry = match variant {
        // `dmkit doctor` tries this baseline in addition to the default. Its leaves do not need atomic lines, but the
        // inner nodes of every variant do.
        Variant::FgPlus => entry.probed(),
        _ => entry,
    };
    match variant.leaf() {
        LeafKind::TwoLevel => entry
            .runs(driver::<Key8, Slotted<Key8>>(variant))
            .runs(driver::<KeyN<16>, Slotted<KeyN<16>>>(variant))
            .runs(driver::<KeyN<24>, Slotted<KeyN<24>>>(variant))
            .runs(driver::<KeyN<32>, Slotted<KeyN<32>>>(variant)),
        LeafKind::Checksummed => entry
            .runs(driver::<Key8, Checksummed<Key8>>(variant))
            .runs(driver::<KeyN<32>, Checksummed<KeyN<32>>>(variant)),
        LeafKind::Bookend => entry
            .runs(driver::<Key8, Bookend<Key8>>(variant))
            .runs(driver::<KeyN<32>, Bookend<KeyN<32>>>(variant)),
    }
}

fn options(variant: Variant, at: &Setting) -> Options {
    let mut options = variant.apply(Options::new(at.value_bytes));
    options.cache_bytes = at.cache_bytes;
    if let Some(span) = at.knobs.get(SPAN) {
        options.node = NodeSize::Span(usize::try_from(span).unwrap_or(usize::MAX));
    }
    options.far_children = at.memory_nodes > NEAR_CHILD_NODES_MAX;
    options.rdwc = at.sharing_or(options.rdwc);
    options.lock_and_read = at.lock_and_read_or(options.lock_and_read);
    options.cpu = at.cpu();
    options
}

fn driver<K: dm_bench::BenchKey, F: LeafFormat<K> + Send + Sync + 'static>(
    variant: Variant,
) -> Driver<Sherman<K, F>> {
    Driver::new(move |at| Ok(options(variant, at)))
}
