//! The entry of SMART for the benchmark harness.

use crate::{Compression, NodeTypes, Options, PrefixIndex, Smart};
use dm_bench::{BenchKey, Driver, IndexEntry, OpKind, Rdwc, Setting, VariantEntry};
#[cfg(feature = "study")]
use dm_combine::RdwcFlaws;
use dm_index::{Key8, KeyN};

const NODE_TYPES: &str = "node-types";

/// Maximum number of replaced leaves of each key for which the harness provides memory. A run with more updates per key
/// must reuse the memory of replaced leaves. If this memory does not become free in time, because a client or the cache
/// delays its reclamation, the run ends with an error.
const REPLACED_MAX: u64 = 64;

/// A variant: the techniques that are on.
#[derive(Clone, Copy)]
struct Techniques {
    lock_free: bool,
    in_place: bool,
    rear_lock: bool,
    /// Whether a leaf's unlock is in the chain of its WRITE. The paper's rear lock brings this (§5.3.1): before that
    /// step, the release takes a round trip of its own.
    combine: bool,
    rdwc: Rdwc,
    lock_and_read: bool,
    types: NodeTypes,
    compression: Compression,
    cache_index: PrefixIndex,
}

impl Techniques {
    /// The paper's baseline: inner nodes under locks, and out-of-place updates.
    const ART: Self = Self {
        lock_free: false,
        in_place: false,
        rear_lock: false,
        combine: false,
        rdwc: Rdwc::OFF,
        lock_and_read: false,
        types: NodeTypes::SHIPPED,
        compression: Compression::PESSIMISTIC,
        cache_index: PrefixIndex::Radix,
    };
    /// ART with the node sizes of its paper.
    const ADAPTIVE_NODES: Self = Self {
        types: NodeTypes::ART,
        ..Self::ART
    };
    const PATH_COMPRESSION: Self = Self {
        types: NodeTypes::ONE,
        ..Self::ART
    };
    const OPTIMISTIC: Self = Self {
        compression: Compression::OPTIMISTIC,
        ..Self::ADAPTIVE_NODES
    };
    const HYBRID: Self = Self {
        compression: Compression::HYBRID,
        ..Self::ADAPTIVE_NODES
    };
    /// A radix tree without path compression, whose nodes have one size.
    const RADIX: Self = Self {
        compression: Compression::NONE,
        ..Self::PATH_COMPRESSION
    };
    const LOCK_FREE: Self = Self {
        lock_free: true,
        ..Self::ART
    };
    const RCU: Self = Self {
        rdwc: Rdwc::ON,
        ..Self::LOCK_FREE
    };
    const IN_PLACE: Self = Self {
        in_place: true,
        ..Self::LOCK_FREE
    };
    const REAR_LOCK: Self = Self {
        rear_lock: true,
        combine: true,
        ..Self::IN_PLACE
    };
    const READ_DELEGATION: Self = Self {
        rdwc: Rdwc {
            delegate: true,
            ..Rdwc::OFF
        },
        ..Self::REAR_LOCK
    };
    const PAPER: Self = Self {
        rdwc: Rdwc::ON,
        ..Self::REAR_LOCK
    };
    /// SMART with read delegation as published, which may answer with an outdated value (T-R3).
    #[cfg(feature = "study")]
    const PUBLISHED_DELEGATION: Self = Self {
        rdwc: Rdwc {
            flaws: RdwcFlaws {
                joins_earlier_read: true,
                ..RdwcFlaws::NONE
            },
            ..Rdwc::ON
        },
        ..Self::PAPER
    };
    /// SMART with ART's node sizes, and with a cache that is indexed by hashes.
    const HASH_CACHE: Self = Self {
        types: NodeTypes::ART,
        cache_index: PrefixIndex::Hash,
        ..Self::PAPER
    };
    /// The same with the paper's node sizes.
    const HOMOGENEOUS: Self = Self {
        types: NodeTypes::FINE,
        ..Self::HASH_CACHE
    };
    const ALL: Self = Self {
        lock_and_read: true,
        ..Self::PAPER
    };

    fn types(self, at: &Setting) -> Result<NodeTypes, String> {
        let Some(count) = at.knobs.get(NODE_TYPES) else {
            return Ok(self.types);
        };
        let types = usize::try_from(count).ok().map(NodeTypes::geometric);
        let types = types.and_then(Result::ok);
        types.ok_or_else(|| format!("{NODE_TYPES} is {count}: a tree has 1 to 10 node types"))
    }

    fn options(self, at: &Setting) -> Result<Options, String> {
        let mut options = Options::new(at.value_bytes);
        options.types = self.types(at)?;
        options.compression = self.compression;
        options.locked_nodes = !self.lock_free;
        options.in_place = self.in_place;
        options.rear_locks = self.rear_lock;
        options.cache_bytes = at.cache_bytes;
        options.cache_index = self.cache_index;
        options.rdwc = at.sharing_or(self.rdwc);
        options.combine = self.combine;
        options.lock_and_read = at.lock_and_read_or(self.lock_and_read);
        options.cpu = at.cpu();
        Ok(options)
    }
}

/// Returns the index with all its variants, for a registry of `dm-bench`.
pub fn entry() -> IndexEntry {
    let listed = |name, help, on| {
        VariantEntry::new(name, help)
            .runs(driver::<Key8>(on))
            .runs(driver::<KeyN<16>>(on))
            .runs(driver::<KeyN<24>>(on))
            .runs(driver::<KeyN<32>>(on))
    };
    let art =
        "ART: inner nodes under locks in tables (HOCL, ROWEX), out-of-place leaves, no RDWC (Figs. 14 to 18)";
    let lock_free = "ART with lock-free inner nodes (Fig. 18)";
    let in_place = "in addition, leaves that are updated in place under HOCL locks, which are released after the WRITE (Fig. 18; HOCL in Fig. 19)";
    let rear = "in addition, each leaf's lock at its rear, released in the WRITE's chain: SMART without RDWC (Figs. 13, 14, 18; E-HOCL in Fig. 19)";
    let delegation = "in addition, read delegation (Fig. 18)";
    let rcu = "SMART-RCU: lock-free inner nodes, out-of-place leaves, RDWC (CHIME Figs. 13, 18 d)";
    let waits = "in addition, write combining: SMART as in its paper, a leaf's lock awaited before the READ (Figs. 11 to 19)";
    let all = "every technique, and a leaf's lock taken in one chain with the READ";
    let radix = "a radix tree: ART without path compression, with nodes of 256 slots alone (Fig. 3 a)";
    let compressed = "in addition, path compression (Fig. 3 a)";
    let adaptive =
        "in addition, nodes of 4, 16, 48 and 256 slots: ART (Fig. 3 a; the pessimistic kind in Fig. 3 b)";
    let optimistic = "+adaptive-nodes with optimistic path compression (Fig. 3 b)";
    let hash_cache =
        "SMART with ART's node sizes, and with a cache that is indexed by hashes of prefixes (Fig. 20)";
    let homogeneous =
        "the same with seven node sizes; with node-types 7, paper-rtt is the next step (Fig. 20)";
    let hybrid = "+adaptive-nodes with hybrid path compression (Fig. 3 b)";
    let entry = IndexEntry::new("smart", "an adaptive radix tree (OSDI 2023)")
        .common_knobs()
        .knob(
            NODE_TYPES,
            "number of node sizes, from 4 to 256 slots in a geometric sequence",
        )
        .variant(listed(IndexEntry::DEFAULT, all, Techniques::ALL).series("smart +lock-and-read"))
        .variant(listed("paper-rtt", waits, Techniques::PAPER).series("smart"))
        .variant(listed("-rdwc", rear, Techniques::REAR_LOCK))
        .variant(listed("art", art, Techniques::ART).series("art"))
        .variant(listed("+lock-free", lock_free, Techniques::LOCK_FREE).series("art +lock-free"))
        .variant(listed("+in-place", in_place, Techniques::IN_PLACE).series("art +in-place"))
        .variant(
            listed("+read-delegation", delegation, Techniques::READ_DELEGATION)
                .series("art +read-delegation"),
        )
        .variant(listed("rcu", rcu, Techniques::RCU).series("smart-rcu"))
        .variant(listed("radix", radix, Techniques::RADIX).series("radix"))
        .variant(
            listed("+path-compression", compressed, Techniques::PATH_COMPRESSION)
                .series("radix +path-compression"),
        )
        .variant(
            listed("+adaptive-nodes", adaptive, Techniques::ADAPTIVE_NODES).series("radix +adaptive-nodes"),
        )
        .variant(listed("optimistic", optimistic, Techniques::OPTIMISTIC).series("art optimistic"))
        .variant(listed("hybrid", hybrid, Techniques::HYBRID).series("art hybrid"))
        .variant(listed("hash-cache", hash_cache, Techniques::HASH_CACHE).series("smart hash-cache"))
        .variant(
            listed("+homogeneous-nodes", homogeneous, Techniques::HOMOGENEOUS)
                .series("smart +homogeneous-nodes"),
        );
    #[cfg(feature = "study")]
    let entry = {
        let joins = "SMART with read delegation as published: a get also joins a READ that is under way, so it may answer with an outdated value (T-R3; Figs. 18, 22)";
        let variant = listed("published-delegation", joins, Techniques::PUBLISHED_DELEGATION);
        entry.variant(variant.series("smart published-delegation"))
    };
    entry
}

fn driver<K: BenchKey>(on: Techniques) -> Driver<Smart<K>> {
    Driver::new(move |at| on.options(at)).entry_bytes(move |at| {
        // A leaf has whole lines. The estimate includes nodes of all sizes that were replaced by larger ones.
        let leaf = ((at.key_bytes + at.value_bytes + 8) as u64).next_multiple_of(64);
        // A run may end before the memory of replaced leaves is used again.
        let replaced = match on.in_place {
            true => 0,
            false => updates(at).div_ceil(at.keys.max(1)).min(REPLACED_MAX),
        };
        // If all nodes have 256 slots, this reserves memory for one node per two keys, which is more than the keys of
        // the harness need. Without path compression, each byte that keys share needs a node in addition.
        let types = on.types(at).unwrap_or(on.types);
        let node = match types.largest() {
            1 => types.block_bytes(1) as u64 / 2,
            _ => 0,
        };
        let chained = match on.compression == Compression::NONE {
            true => at.key_bytes as u64,
            false => 1,
        };
        leaf * (4 + replaced) + node * chained
    })
}

/// Returns the number of operations of a run that may replace a value, on average.
fn updates(at: &Setting) -> u64 {
    let kinds = [OpKind::Update, OpKind::Upsert, OpKind::ReadModifyWrite];
    let mix = at.trace.as_ref().map_or(at.mix, |trace| trace.mix());
    let share: f64 = kinds.iter().map(|&kind| mix.share(kind)).sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count"
    )]
    let updates = (at.ops as f64 * share).ceil() as u64;
    updates
}
