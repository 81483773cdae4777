//! The entry of SMART for the benchmark harness.

use crate::{Options, Smart};
use dm_bench::{
    BenchKey, Counters, Demand, Driver, IndexEntry, LeafOps, MixDemand, Rdwc, Setting, VariantEntry, VerbKind,
};
use dm_index::{Key8, KeyN};

/// Returns the index with all its variants, for a registry of `dm-bench`.
pub fn entry() -> IndexEntry {
    let listed = |name, help, on, shared| {
        VariantEntry::new(name, help)
            .runs(driver::<Key8>(on, shared))
            .runs(driver::<KeyN<16>>(on, shared))
            .runs(driver::<KeyN<24>>(on, shared))
            .runs(driver::<KeyN<32>>(on, shared))
    };
    let all = "every technique, and a leaf's lock taken in one chain with the READ";
    let waits = "as in the paper: a leaf's lock is awaited before the READ (Figs. 11 to 15)";
    let alone = "the same without read delegation and write combining (Figs. 13, 14)";
    IndexEntry::new("smart", "an adaptive radix tree (OSDI 2023)")
        .common_knobs()
        .variant(listed(IndexEntry::DEFAULT, all, true, Rdwc::ON).series("smart +lock-and-read"))
        .variant(listed("paper-rtt", waits, false, Rdwc::ON).series("smart"))
        .variant(listed("-rdwc", alone, false, Rdwc::OFF))
}

fn options(on: bool, shared: Rdwc, at: &Setting) -> Options {
    let mut options = Options::new(at.value_bytes);
    options.cache_bytes = at.cache_bytes;
    options.rdwc = at.sharing_or(shared);
    options.lock_and_read = at.lock_and_read_or(on);
    options.cpu = at.cpu();
    options
}

fn driver<K: BenchKey>(on: bool, shared: Rdwc) -> Driver<Smart<K>> {
    Driver::new(move |at| Ok(options(on, shared, at)))
        // A leaf has whole lines. The estimate includes nodes of all sizes that were replaced by larger ones.
        .entry_bytes(|at| ((at.key_bytes + at.value_bytes + 8) as u64).next_multiple_of(64) * 4)
        .demand(move |_: &Smart<K>, at, counters, ops| demand(&options(on, shared, at), at, counters, ops))
}

/// Returns the demand of one operation of the mix, without contention, on a radix tree whose inner nodes are cached. A
/// get reads a leaf, an update takes a lock and writes twice, and an insert writes a leaf and changes a slot. An
/// operation that is delegated to another client, or combined with its write, costs nothing. Work that depends on the
/// tree's state (splits of leaves or headers, renewals, nodes that are not cached) is taken from `counters`, which
/// cover `ops` operations. The cost of races (slots that others filled first, renewals done twice) is left out.
fn demand(options: &Options, at: &Setting, counters: &Counters, ops: u64) -> MixDemand {
    let counted = |n: u64| n as f64 / ops.max(1) as f64;
    let mix = LeafOps::of(at, counters, ops);
    let (splits, misses) = (counted(counters.splits), counted(counters.cache_misses));
    let (renewals, frozen) = (counted(counters.renewals), counted(counters.renewed_words));
    let each = |all: f64, of: f64| if of > 0.0 { all / of } else { 0.0 };
    let leaf = (at.key_bytes + at.value_bytes) as f64 + 24.0;
    let block = (leaf + 8.0) / 64.0;
    let leaves = mix.gets + mix.changes + splits + mix.scans * mix.scan_keys;
    let node = each(
        counted(counters.bytes_read) - leaf * leaves,
        counted(counters.reads) - leaves,
    );
    let verbs = vec![
        Demand::new(
            VerbKind::Read,
            leaf,
            mix.gets + mix.changes + mix.scans * mix.scan_keys,
        ),
        Demand::new(VerbKind::Cas, 8.0, mix.changes + mix.inserts),
        Demand::new(VerbKind::Write, at.value_bytes as f64 + 8.0, mix.changes),
        Demand::new(VerbKind::Write, 8.0, mix.changes),
        Demand::new(VerbKind::Write, block.ceil() * 64.0, mix.inserts),
        // A split reads the leaf that occupies the slot, and writes a new node. It also changes the leaf's link depth,
        // unless that is large enough.
        Demand::new(VerbKind::Read, leaf, splits),
        Demand::new(VerbKind::Write, 64.0, splits),
        Demand::new(VerbKind::Faa, 8.0, counted(counters.faa)),
        // A cache miss reads a node of the average size of the nodes that were read.
        Demand::new(VerbKind::Read, node.max(64.0), misses),
        // A renewal reads the node, freezes each of its words, writes a copy, and changes the slot above.
        Demand::new(
            VerbKind::Read,
            each(16.0 * renewals + 8.0 * frozen, renewals),
            renewals,
        ),
        Demand::new(VerbKind::Cas, 8.0, frozen + renewals),
        Demand::new(
            VerbKind::Write,
            each(counted(counters.renewed_bytes), renewals),
            renewals,
        ),
    ];
    let trips = if options.lock_and_read { 2.0 } else { 3.0 };
    let worked = mix.gets + mix.changes + mix.inserts + mix.scans;
    MixDemand {
        verbs: verbs.into_iter().filter(|d| d.per_op > 0.0).collect(),
        chains: mix.gets + mix.changes * trips + mix.inserts + mix.scans + splits + misses + renewals * 3.0,
        cpu_ns: at.cpu_ns() * worked,
    }
}
