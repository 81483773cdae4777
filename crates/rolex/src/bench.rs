//! The entry of ROLEX for the benchmark harness.

use crate::{ChimeLearned, Options, Published, PublishedParts, Rolex};
use dm_bench::{BenchKey, Driver, IndexEntry, Indirect, Rdwc, Setting, VariantEntry};
use dm_index::{Key8, KeyN};

const SPAN: &str = "span";
const ERROR: &str = "error";

/// A choice of techniques.
#[derive(Clone, Copy)]
enum Way {
    /// All techniques of this crate.
    Shipped,
    /// The verbs of the published code.
    Published,
    /// As CHIME's paper measures ROLEX: a lock is in host memory and is taken before the leaf is read, and the clients
    /// of a compute node have no local queues, and share operations.
    AsInChime,
}

/// Returns the index with all its variants, for a registry of `dm-bench`.
pub fn entry() -> IndexEntry {
    let published = |name, help, way| {
        VariantEntry::new(name, help)
            .runs(published_driver::<Key8>(way))
            .runs(published_driver::<KeyN<16>>(way))
            .runs(published_driver::<KeyN<24>>(way))
            .runs(published_driver::<KeyN<32>>(way))
    };
    let hopscotch = |name, help, way| {
        VariantEntry::new(name, help)
            .runs(hop_driver::<Key8>(way))
            .runs(hop_driver::<KeyN<16>>(way))
            .runs(hop_driver::<KeyN<24>>(way))
            .runs(hop_driver::<KeyN<32>>(way))
    };
    IndexEntry::new("rolex", "a learned index: models predict the leaf (FAST 2023)")
        .common_knobs()
        .knob(SPAN, "entries of a leaf")
        .knob(ERROR, "maximum error of a prediction, in leaves, or in entries as published")
        .variant(
            VariantEntry::new(IndexEntry::DEFAULT, "leaves of 16 entries, which are read whole")
                .runs(driver::<Key8>())
                .runs(driver::<KeyN<16>>())
                .runs(driver::<KeyN<24>>())
                .runs(driver::<KeyN<32>>()),
        )
        .variant(published(
            "published",
            "the verbs of the published code: a run of leaves is read, and leaves are written whole",
            Way::Published,
        ))
        .variant(published(
            "as-in-chime",
            "as CHIME's paper measures it: as published, with shared operations",
            Way::AsInChime,
        ))
        .variant(
            VariantEntry::new(
                "+indirect",
                "ROLEX-Indirect: as CHIME's paper measures it, with values outside of the leaves (CHIME Figs. 13, 18 d)",
            )
            .runs(indirect_driver::<Key8>())
            .runs(indirect_driver::<KeyN<16>>())
            .runs(indirect_driver::<KeyN<24>>())
            .runs(indirect_driver::<KeyN<32>>()),
        )
        .variant(
            hopscotch(
                "chime-learned",
                "hopscotch leaves, of which a get reads one neighbourhood (CHIME §5.3)",
                Way::Shipped,
            )
            .series("chime-learned"),
        )
        .variant(
            hopscotch(
                "chime-learned-as-in-chime",
                "the same, as CHIME's paper measures it",
                Way::AsInChime,
            )
            .series("chime-learned as-in-chime"),
        )
}

fn options(way: Way, at: &Setting, mut options: Options) -> Options {
    options.cache_bytes = at.cache_bytes - options.hotspot_bytes;
    if let Some(span) = at.knobs.get(SPAN) {
        options.span = usize::try_from(span).unwrap_or(usize::MAX);
    }
    if let Some(error) = at.knobs.get(ERROR) {
        options.error = u32::try_from(error).unwrap_or(u32::MAX);
    }
    let (sharing, lock_and_read) = match way {
        Way::Shipped | Way::Published => (Rdwc::OFF, options.lock_and_read),
        Way::AsInChime => (Rdwc::ON, false),
    };
    options.rdwc = at.sharing_or(sharing);
    options.lock_and_read = at.lock_and_read_or(lock_and_read);
    if matches!(way, Way::AsInChime) {
        // Locks are in host memory, and the clients of a compute node have no local queues.
        options.on_chip = false;
        options.hierarchical = false;
        options.handover_max = 0;
    }
    options.cpu = at.cpu();
    options
}

fn driver<K: BenchKey>() -> Driver<Rolex<K>> {
    Driver::new(|at| Ok(options(Way::Shipped, at, Options::new(at.value_bytes))))
}

fn published_driver<K: BenchKey>(way: Way) -> Driver<Published<K>> {
    Driver::new(move |at| Ok(options(way, at, Options::published(at.value_bytes))))
}

fn indirect_driver<K: BenchKey>() -> Driver<Indirect<PublishedParts<K>>> {
    Indirect::driver(|at| {
        let items = options(Way::AsInChime, at, Options::published_items());
        (
            Options {
                rdwc: Rdwc::OFF,
                ..items
            },
            items.rdwc,
        )
    })
}

fn hop_driver<K: BenchKey>(way: Way) -> Driver<ChimeLearned<K>> {
    Driver::new(move |at| {
        // As in CHIME, three tenths of the cache are the hotspot buffer.
        let hopscotch = Options {
            hotspot_bytes: at.cache_bytes / 10 * 3,
            ..Options::chime_learned(at.value_bytes)
        };
        Ok(options(way, at, hopscotch))
    })
}
