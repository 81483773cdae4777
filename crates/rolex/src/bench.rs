//! The entry of ROLEX for the benchmark harness.

use crate::{ChimeLearned, Options, Rolex};
use dm_bench::{BenchKey, Driver, IndexEntry, Rdwc, Setting, VariantEntry};
use dm_index::{Key8, KeyN};

const SPAN: &str = "span";
const ERROR: &str = "error";

/// Returns the index with all its variants, for a registry of `dm-bench`.
pub fn entry() -> IndexEntry {
    let default = VariantEntry::new(IndexEntry::DEFAULT, "leaves of 16 entries, which are read whole")
        .runs(driver::<Key8>())
        .runs(driver::<KeyN<16>>())
        .runs(driver::<KeyN<24>>())
        .runs(driver::<KeyN<32>>());
    let hopscotch = "hopscotch leaves, of which a get reads one neighbourhood (CHIME §5.4)";
    let hopscotch = VariantEntry::new("chime-learned", hopscotch)
        .runs(hop_driver::<Key8>())
        .runs(hop_driver::<KeyN<16>>())
        .runs(hop_driver::<KeyN<24>>())
        .runs(hop_driver::<KeyN<32>>());
    IndexEntry::new("rolex", "a learned index: models predict the leaf (FAST 2023)")
        .common_knobs()
        .knob(SPAN, "entries of a leaf")
        .knob(ERROR, "maximum error of a prediction, in leaves")
        .variant(default.series("rolex"))
        .variant(hopscotch.series("chime-learned"))
}

fn options(at: &Setting, mut options: Options) -> Options {
    options.cache_bytes = at.cache_bytes - options.hotspot_bytes;
    if let Some(span) = at.knobs.get(SPAN) {
        options.span = usize::try_from(span).unwrap_or(usize::MAX);
    }
    if let Some(error) = at.knobs.get(ERROR) {
        options.error = u32::try_from(error).unwrap_or(u32::MAX);
    }
    options.rdwc = at.sharing_or(Rdwc::OFF);
    options.lock_and_read = at.lock_and_read_or(options.lock_and_read);
    options.cpu = at.cpu();
    options
}

fn driver<K: BenchKey>() -> Driver<Rolex<K>> {
    Driver::new(|at| Ok(options(at, Options::new(at.value_bytes))))
}

fn hop_driver<K: BenchKey>() -> Driver<ChimeLearned<K>> {
    Driver::new(|at| {
        // As in CHIME, three tenths of the cache are the hotspot buffer.
        let hopscotch = Options {
            hotspot_bytes: at.cache_bytes / 10 * 3,
            ..Options::chime_learned(at.value_bytes)
        };
        Ok(options(at, hopscotch))
    })
}
