//! The entry of Dolphin for the benchmark harness.

use crate::{DEFAULT_LEAF_BYTES, Dolphin, Options};
use dm_bench::{
    BenchKey, Demand, Driver, IndexEntry, LeafOps, MixDemand, OpKind, Rdwc, Setting, VariantEntry, VerbKind,
};
use dm_index::{Key8, KeyN};

/// Updates share their leaf's lock only if an entry has fewer bytes than this.
const SHARED_ENTRY_BYTES: usize = 63;

/// Returns the index with all its variants, for a registry of `dm-bench`.
pub fn entry() -> IndexEntry {
    let listed = |name, help, on| {
        VariantEntry::new(name, help)
            .runs(driver::<Key8>(on))
            .runs(driver::<KeyN<16>>(on))
            .runs(driver::<KeyN<24>>(on))
            .runs(driver::<KeyN<32>>(on))
    };
    let waits = "an insert awaits its lock's CAS before the READ, as in the paper (Figs. 6 to 9)";
    IndexEntry::new("dolphin", "a radix tree over leaves of many keys (MSST 2024)")
        .common_knobs()
        .variant(listed(IndexEntry::DEFAULT, "every technique", true).series("dolphin +lock-and-read"))
        .variant(listed("paper-rtt", waits, false).series("dolphin"))
}

fn options(on: bool, at: &Setting) -> Options {
    let mut options = Options::new(at.value_bytes);
    options.cache_bytes = at.cache_bytes;
    options.rdwc = at.sharing_or(Rdwc::OFF);
    options.lock_and_read = at.lock_and_read_or(on);
    options.cpu = at.cpu();
    options
}

fn driver<K: BenchKey>(on: bool) -> Driver<Dolphin<K>> {
    Driver::new(move |at| Ok(options(on, at))).demand(move |tree: &Dolphin<K>, at, counters, ops| {
        demand(
            &options(on, at),
            tree.leaf_capacity(),
            at,
            &LeafOps::of(at, counters, ops),
        )
    })
}

/// Returns the demand of one operation of the mix without contention. An update of a small entry takes a share of its
/// leaf's lock by an atomic, in one chain with the READ, and releases the share by another atomic.
fn demand(options: &Options, capacity: usize, at: &Setting, mix: &LeafOps) -> MixDemand {
    let entry = at.key_bytes + at.value_bytes;
    let shares = entry < SHARED_ENTRY_BYTES;
    let writes = mix.inserts + mix.changes;
    let scan_leaves = mix.scan_keys / (capacity as f64 * at.fill.mean()) + 1.0;
    let lock = |d: Demand| if options.on_chip { d.on_chip() } else { d };
    let release = if shares { VerbKind::Faa } else { VerbKind::Write };
    let leaf = DEFAULT_LEAF_BYTES as f64;
    let verbs = vec![
        Demand::new(VerbKind::Read, leaf, mix.gets + writes + mix.scans * scan_leaves),
        lock(Demand::new(VerbKind::Cas, 8.0, writes)),
        Demand::new(VerbKind::Write, (entry + 1) as f64, writes),
        lock(Demand::new(release, 8.0, writes)),
    ];
    let trips = if options.lock_and_read { 2.0 } else { 3.0 };
    // A share is always taken in one chain with the READ, regardless of the options.
    let updates = at.share(OpKind::Update) + at.share(OpKind::ReadModifyWrite);
    let others = at.share(OpKind::Upsert) + at.share(OpKind::Remove);
    let updates = (mix.changes - others).clamp(0.0, updates);
    let along = if shares { updates * (trips - 2.0) } else { 0.0 };
    MixDemand {
        verbs: verbs.into_iter().filter(|d| d.per_op > 0.0).collect(),
        chains: mix.gets + writes * trips - along + mix.scans * scan_leaves,
        cpu_ns: at.cpu_ns() * (mix.gets + writes + mix.scans),
    }
}
