//! Leaves alone, in one process and without a network: the bytes that an operation moves, and the keys that a leaf
//! takes (SMART Tables 1 and 2; CHIME Figs. 3 d, 16 and 19).

use std::str::FromStr;

use dm_bench::RunError;
use dm_layout::{
    Bookend, Checksummed, FenceKeys, GeometryError, Hopscotch, KeyN, NodeFormat, NodeInit, SingleLeaf,
    Slotted, find,
};
use dm_workload::KeySpace;

use super::cases::Figures;
use super::metric::Metric;
use super::setup::Resolved;
use super::tables::{Associative, Farm, HopscotchLeaf, Race, Table, fill};

/// A kind of leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeafKind {
    /// A radix tree's leaf of one item.
    Single,
    /// Items under one checksum.
    Checksummed,
    /// Versions at both ends of the node and of each item, as in Sherman's paper.
    Bookend,
    /// A version in each line.
    Slotted,
    /// A hopscotch table.
    Hopscotch,
    /// A hash table of associative buckets.
    Associative,
    /// The hash table of RACE.
    Race,
    /// The hash table of FaRM.
    Farm,
}

const KINDS: [(&str, LeafKind, &str); 8] = [
    ("single", LeafKind::Single, "radix tree: leaf of one item"),
    ("checksummed", LeafKind::Checksummed, "B+ tree: checksummed leaf"),
    ("bookend", LeafKind::Bookend, "Sherman: versions at both ends"),
    ("slotted", LeafKind::Slotted, "Sherman: versions in lines"),
    ("hopscotch", LeafKind::Hopscotch, "hopscotch"),
    ("associative", LeafKind::Associative, "associative buckets"),
    ("race", LeafKind::Race, "RACE"),
    ("farm", LeafKind::Farm, "FaRM"),
];

impl FromStr for LeafKind {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let names = || KINDS.map(|(name, ..)| name).join(", ");
        let found = KINDS.iter().find(|(name, ..)| *name == s);
        found
            .map(|(_, kind, _)| *kind)
            .ok_or_else(|| format!("no leaf {s:?}; there are {}", names()))
    }
}

impl LeafKind {
    /// Returns the name for charts.
    pub(crate) fn title(self) -> &'static str {
        let found = KINDS.iter().find(|(_, kind, _)| *kind == self);
        found.map_or("", |(.., title)| title)
    }

    /// Makes an empty hash table of about `entries` entries, of which a lookup reads at least `read`. Returns `None` if
    /// the leaf is no hash table, and an error if such a table cannot be made.
    fn table(self, entries: usize, read: usize) -> Result<Option<Box<dyn Table>>, String> {
        let bucket = |choices: usize| match read > 0 && read.is_multiple_of(choices) {
            true => Ok(read / choices),
            false => Err(format!("{choices} buckets do not have {read} entries")),
        };
        Ok(Some(match self {
            Self::Hopscotch => Box::new(HopscotchLeaf::new(entries, read)?),
            Self::Associative => Box::new(Associative::new(entries, bucket(1)?)),
            Self::Farm => Box::new(Farm::new(entries, bucket(2)?)),
            Self::Race => Box::new(Race::new(entries, bucket(4)?)),
            _ => return Ok(None),
        }))
    }
}

/// The bytes of a leaf, the number of its items, and the bytes of the operations on one of them.
struct Bytes {
    leaf: usize,
    items: usize,
    read: f64,
    written: usize,
}

/// Returns the sizes in bytes of a leaf of `format`, of a lookup's READ, and of an update's WRITE. A lookup reads
/// `read` bytes, or the whole leaf if this is `None`. An update of an item writes the range that the format's edit
/// returns.
fn of_format<const N: usize, F: NodeFormat<KeyN<N>>>(format: &F, read: Option<f64>) -> Bytes {
    let (key, value) = (KeyN(KeySpace::scrambled(1).bytes(1)), vec![1; format.value_len()]);
    let mut image = vec![0; format.node_bytes()];
    let entries = [(key, value.as_slice().into())];
    format.build(&mut image, &NodeInit::live(0, FenceKeys::ALL), entries);
    let slot = find(format, &image, &key)
        .ok()
        .flatten()
        .expect("the node has the key");
    Bytes {
        leaf: format.node_bytes(),
        items: format.capacity(),
        read: read.unwrap_or(format.node_bytes() as f64),
        written: format.update(&mut image, slot, value.as_slice().into()).len(),
    }
}

/// Returns the sizes in bytes of a leaf with keys of `N` bytes. Returns `None` for hash tables that have no layout
/// here.
fn bytes<const N: usize>(
    kind: LeafKind,
    setup: &Resolved,
    entries: usize,
) -> Result<Option<Bytes>, GeometryError> {
    let value_len = setup.value_bytes;
    Ok(Some(match kind {
        LeafKind::Single => {
            let leaf = SingleLeaf::<KeyN<N>>::new(value_len)?;
            Bytes {
                leaf: leaf.block_bytes(),
                items: 1,
                read: leaf.read_bytes() as f64,
                written: leaf.value_range().len(),
            }
        }
        LeafKind::Checksummed => of_format(&Checksummed::<KeyN<N>>::with_span(entries, value_len)?, None),
        LeafKind::Bookend => of_format(&Bookend::<KeyN<N>>::with_span(entries, value_len)?, None),
        LeafKind::Slotted => of_format(&Slotted::<KeyN<N>>::with_span(entries, value_len)?, None),
        LeafKind::Hopscotch => {
            let format = Hopscotch::<KeyN<N>>::new(entries, neighbourhood(setup), value_len)?;
            let reads = (0..entries).map(|home| format.geometry().reach(home).bytes());
            of_format(&format, Some(reads.sum::<usize>() as f64 / entries as f64))
        }
        LeafKind::Associative | LeafKind::Race | LeafKind::Farm => return Ok(None),
    }))
}

/// Returns the number of entries that a lookup in a hash table reads.
fn neighbourhood(setup: &Resolved) -> usize {
    setup.knob("neighbourhood", 8)
}

/// Runs the kind of leaf named `series`: counts its bytes, and fills as many tables as the setup has operations.
///
/// # Errors
/// Returns [`RunError`] if there is no such leaf, if the setup has no number of entries, if the leaf cannot have the
/// sizes of the setup, or if a table loses a key.
pub(crate) fn run(series: &str, setup: &Resolved, seed: u64) -> Result<Figures, RunError> {
    let kind: LeafKind = series.parse().map_err(RunError::Bad)?;
    let entries = setup
        .entries
        .ok_or_else(|| RunError::Bad("entries is missing".to_owned()))?;
    let bytes = match setup.key_bytes {
        8 => bytes::<8>(kind, setup, entries),
        16 => bytes::<16>(kind, setup, entries),
        24 => bytes::<24>(kind, setup, entries),
        32 => bytes::<32>(kind, setup, entries),
        other => {
            return Err(RunError::Bad(format!(
                "keys of {other} bytes; there are 8, 16, 24 and 32"
            )));
        }
    };
    let mut figures = Figures::default();
    if let Some(bytes) = bytes.map_err(|e| RunError::Bad(e.to_string()))? {
        let item = (setup.key_bytes + setup.value_bytes) as f64;
        figures.metrics.extend([
            (Metric::ReadAmplification, bytes.read / item),
            (Metric::WriteAmplification, bytes.written as f64 / item),
            (Metric::UpdateBytes, bytes.written as f64),
            (Metric::Metadata, bytes.leaf as f64 / bytes.items as f64 - item),
        ]);
    }
    figures.metrics.extend(filled(kind, setup, entries, seed)?);
    Ok(figures)
}

/// Returns the means over the filled tables, if the leaf is a hash table.
fn filled(
    kind: LeafKind,
    setup: &Resolved,
    entries: usize,
    seed: u64,
) -> Result<Vec<(Metric, f64)>, RunError> {
    let (mut load_factor, mut read) = (0.0, 0.0);
    for nth in 0..setup.operations {
        let Some(mut table) = kind.table(entries, neighbourhood(setup)).map_err(RunError::Bad)? else {
            return Ok(Vec::new());
        };
        // No two tables get the same keys.
        let keys = (nth << 32..).map(|index| KeySpace::scrambled(seed).number(index));
        let filled = fill(&mut *table, keys).map_err(|key| RunError::Bad(format!("key {key} is lost")))?;
        load_factor += filled.load_factor;
        read += filled.entries_read;
    }
    let tables = setup.operations.max(1) as f64;
    Ok(vec![
        (Metric::LoadFactor, 100.0 * load_factor / tables),
        (Metric::EntriesRead, read / tables),
        (Metric::Operations, tables),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::setup::Setup;
    use super::*;

    fn setup(key_bytes: usize, value_bytes: usize, entries: usize) -> Resolved {
        let setup = Setup {
            key_bytes: Some(key_bytes),
            value_bytes: Some(value_bytes),
            entries: Some(entries),
            operations: Some(20),
            ..Setup::without_network()
        };
        setup.resolve(None).unwrap()
    }

    fn figure(series: &str, setup: &Resolved, metric: Metric) -> f64 {
        run(series, setup, 1).unwrap().metrics[&metric]
    }

    /// The sizes are those of the layouts: the size of a node, and the size of the range that an update returns.
    #[test]
    fn bytes_of_leaves_are_those_of_their_layouts() {
        let s = setup(32, 64, 32);
        let bytes = |series, metric| (figure(series, &s, metric) * 96.0).round();
        // An update of a checksummed node WRITEs all of it; with versions at its ends, an item is written alone.
        let node = bytes("checksummed", Metric::ReadAmplification);
        assert!(node > 32.0 * 96.0 && bytes("checksummed", Metric::WriteAmplification) == node);
        assert_eq!(bytes("bookend", Metric::WriteAmplification), 98.0);
        assert_eq!(bytes("single", Metric::ReadAmplification), 120.0);
        assert_eq!(bytes("single", Metric::WriteAmplification), 72.0);
        assert_eq!(figure("single", &s, Metric::Metadata), 32.0);
    }

    #[test]
    fn only_hash_tables_have_load_factors() {
        let s = setup(8, 8, 64);
        let slotted = run("slotted", &s, 1).unwrap();
        assert!(!slotted.metrics.contains_key(&Metric::LoadFactor));
        let race = run("race", &s, 1).unwrap();
        assert!(!race.metrics.contains_key(&Metric::Metadata));
        assert!(figure("hopscotch", &s, Metric::LoadFactor) > figure("associative", &s, Metric::LoadFactor));
        assert_ne!(run("race", &s, 2).unwrap(), race, "another seed, other keys");
    }

    #[test]
    fn impossible_leaves_are_refused() {
        let near = |entries| {
            let mut setup = setup(8, 8, 64);
            setup.knobs.insert("neighbourhood".to_owned(), entries);
            setup
        };
        for (series, s, why) in [
            ("race", near(6), "4 buckets do not have 6 entries"),
            ("hopscotch", near(20), "20"),
            ("slotted", setup(40, 8, 64), "keys of 40 bytes"),
            ("cuckoo", setup(8, 8, 64), "there are single, checksummed"),
        ] {
            let refused = run(series, &s, 1).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
