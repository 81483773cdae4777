//! CHIME for the harness, with the steps of its paper.

use crate::{Chime, HopGeometry, Options, Reach, Variant};
use dm_bench::{
    BenchKey, Counters, Demand, Driver, IndexEntry, LeafOps, MixDemand, Rdwc, Setting, VariantEntry, VerbKind,
};
use dm_index::{Key8, KeyN};

/// Returns the index with all its variants, for a registry of `dm-bench`.
pub fn entry() -> IndexEntry {
    let entry = IndexEntry::new("chime", "a B-link tree over hopscotch leaves (SOSP 2024)").common_knobs();
    let all = Variant::ALL.iter().fold(entry, |entry, &variant| {
        let listed = listed(variant.name(), variant.about(), variant, None);
        entry.variant(match variant {
            Variant::Default => listed.series("chime default"),
            Variant::Speculative => listed.series("chime"),
            _ => listed,
        })
    });
    let more = "CHIME as in its paper, and locks taken in one chain with the READ";
    all.variant(listed(LOCK_AND_READ_STEP, more, Variant::Speculative, Some(true)))
}

/// The step that dmkit adds to the paper's steps.
const LOCK_AND_READ_STEP: &str = "+lock-and-read";

fn listed(name: &str, help: &str, variant: Variant, on: Option<bool>) -> VariantEntry {
    VariantEntry::new(name, help)
        .runs(driver::<Key8>(variant, on))
        .runs(driver::<KeyN<16>>(variant, on))
        .runs(driver::<KeyN<24>>(variant, on))
        .runs(driver::<KeyN<32>>(variant, on))
}

fn options(variant: Variant, on: Option<bool>, at: &Setting) -> Options {
    let mut options = Options::new(at.value_bytes);
    // The paper's cache of 100 MB includes the hotspot buffer of 30 MB.
    options.hotspot_bytes = at.cache_bytes / 10 * 3;
    options = variant.apply(options);
    options.cache_bytes = at.cache_bytes - options.hotspot_bytes;
    options.rdwc = at.sharing_or(Rdwc::ON);
    options.lock_and_read = at.lock_and_read_or(on.unwrap_or(options.lock_and_read));
    options.cpu = at.cpu();
    options
}

fn driver<K: BenchKey>(variant: Variant, on: Option<bool>) -> Driver<Chime<K>> {
    Driver::new(move |at| Ok(options(variant, on, at))).demand(move |tree: &Chime<K>, at, counters, ops| {
        demand(&options(variant, on, at), tree.geometry(), at, counters, ops)
    })
}

/// Returns the demand of one operation of the mix, without contention, on a tree over hopscotch leaves. An operation
/// reads a neighbourhood, or an entry at a known place. If the neighbourhood wraps, it takes two READs. If entries are
/// larger than a line, a writer reads the whole leaf instead. An operation that another client's operation answers costs
/// nothing. Hops and splits read and write more, and a split takes the lock of the parent. The cost of these is taken
/// from `counters`, which are over `ops` operations.
fn demand(options: &Options, leaf: &HopGeometry, at: &Setting, counters: &Counters, ops: u64) -> MixDemand {
    let counted = |n: u64| n as f64 / ops.max(1) as f64;
    let mix = LeafOps::of(at, counters, ops);
    let splits = counted(counters.splits);
    let alone = counted(counters.speculations);
    let alone_right = counted(counters.speculations - counters.wrong_speculations);
    let writes = mix.inserts + mix.changes;
    let scan_leaves = mix.scan_keys / (leaf.span() as f64 * at.fill.mean()) + 1.0;
    let homes = leaf.span() as f64;
    let reaches: Vec<_> = (0..leaf.span()).map(|home| leaf.reach(home)).collect();
    let wrapped = reaches.iter().filter(|reach| reach.second.is_some()).count() as f64 / homes;
    let near = reaches.iter().map(Reach::bytes).sum::<usize>() as f64 / homes;
    let lock = |d: Demand| if options.on_chip { d.on_chip() } else { d };
    let near_writes = if leaf.is_in_line() { writes } else { 0.0 };
    let whole = mix.scans * scan_leaves + writes - near_writes;
    let gets_near = (mix.gets - alone_right).max(0.0);
    let (straight, bent) = (
        (gets_near + near_writes) * (1.0 - wrapped),
        (gets_near + near_writes) * wrapped,
    );
    let entry = (at.key_bytes + at.value_bytes + 1) as f64;
    let node = leaf.node_bytes() as f64;
    let known = (gets_near + near_writes) * near + alone * entry + whole * node;
    let edits = mix.changes * at.value_bytes as f64 + mix.inserts * entry + (writes + splits) * 8.0;
    // Only inserts cause hops and splits. Their requests have this size on average, and this number.
    let moved = |(bytes, verbs): (u64, u64), (known_bytes, known): (f64, f64)| match mix.inserts > 0.0 {
        true => {
            let bytes = (counted(bytes) - known_bytes).max(0.0);
            let verbs = (counted(verbs) - known).max(bytes / node);
            (bytes / verbs.max(f64::MIN_POSITIVE), verbs)
        }
        false => (0.0, 0.0),
    };
    let known_reads = straight + 2.0 * bent + alone + whole;
    let (read_bytes, moved_reads) = moved((counters.bytes_read, counters.reads), (known, known_reads));
    let known_writes = mix.changes + mix.inserts + writes + splits;
    let (write_bytes, moved_writes) = moved((counters.bytes_written, counters.writes), (edits, known_writes));
    let verbs = vec![
        Demand::new(VerbKind::Read, entry, alone),
        Demand::new(VerbKind::Read, near, straight).unaligned(),
        Demand::new(VerbKind::Read, near / 2.0, bent * 2.0).unaligned(),
        Demand::new(VerbKind::Read, node, whole),
        Demand::new(VerbKind::Read, read_bytes, moved_reads).unaligned(),
        Demand::new(VerbKind::Write, write_bytes, moved_writes).unaligned(),
        lock(Demand::new(VerbKind::Cas, 8.0, writes + splits)),
        Demand::new(VerbKind::Write, at.value_bytes as f64, mix.changes),
        Demand::new(VerbKind::Write, entry, mix.inserts),
        lock(Demand::new(VerbKind::Write, 8.0, writes + splits)),
    ];
    let trips = if options.lock_and_read { 2.0 } else { 3.0 };
    MixDemand {
        verbs: verbs.into_iter().filter(|d| d.per_op > 0.0).collect(),
        chains: mix.gets + writes * trips + mix.scans * scan_leaves,
        cpu_ns: at.cpu_ns() * (mix.gets + writes + mix.scans),
    }
}
