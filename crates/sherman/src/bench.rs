//! The entry of Sherman for the benchmark harness: the steps of its paper, the baselines FG and FG+, and the variants
//! that other papers measured.

use crate::{LeafFormat, LeafKind, NodeSize, Options, Sherman, Variant};
use dm_bench::{Demand, Driver, IndexEntry, LeafOps, MixDemand, Setting, VariantEntry, VerbKind};
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
        // Leaves with a checksum do not need atomic lines, so this variant may run on devices on which the default does
        // not.
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
    Driver::new(move |at| Ok(options(variant, at))).demand(move |tree: &Sherman<K, F>, at, counters, ops| {
        let options = options(variant, at);
        let node = tree.leaf_bytes() as f64;
        // An update writes the value, and an insert writes the entry. In some formats, both write the whole node.
        let written = match variant.leaf() {
            LeafKind::Checksummed => node,
            LeafKind::TwoLevel | LeafKind::Bookend => (at.key_bytes + at.value_bytes + 1) as f64,
        };
        demand(
            &options,
            node,
            tree.leaf_capacity(),
            written,
            at,
            &LeafOps::of(at, counters, ops),
        )
    })
}

/// Returns the demand of one operation of the mix without contention, computed from the round trips in the budget
/// tests.
fn demand(
    options: &Options,
    node: f64,
    capacity: usize,
    written: f64,
    at: &Setting,
    mix: &LeafOps,
) -> MixDemand {
    let writes = mix.inserts + mix.changes;
    let scan_leaves = mix.scan_keys / (capacity as f64 * at.fill.mean()) + 1.0;
    let lock = |d: Demand| if options.on_chip { d.on_chip() } else { d };
    let release = if options.release_by_faa {
        VerbKind::Faa
    } else {
        VerbKind::Write
    };
    let verbs = vec![
        Demand::new(VerbKind::Read, node, mix.gets + writes + mix.scans * scan_leaves),
        lock(Demand::new(VerbKind::Cas, 8.0, writes)),
        Demand::new(VerbKind::Write, written, writes),
        lock(Demand::new(release, 8.0, writes)),
    ];
    let trips = if options.lock_and_read { 1.0 } else { 2.0 } + if options.combine { 1.0 } else { 2.0 };
    MixDemand {
        verbs: verbs.into_iter().filter(|d| d.per_op > 0.0).collect(),
        chains: mix.gets + writes * trips + mix.scans * scan_leaves,
        cpu_ns: at.cpu_ns() * (mix.gets + writes + mix.scans),
    }
}
