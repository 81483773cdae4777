//! The entry of Marlin for the benchmark harness.

use crate::{Marlin, Options};
use dm_bench::{BenchKey, Driver, IndexEntry, Rdwc, Setting, VariantEntry};
use dm_index::{Key8, KeyN};

/// Returns the index with all its variants, for a registry of `dm-bench`.
pub fn entry() -> IndexEntry {
    let listed = |name, help, combine| {
        VariantEntry::new(name, help)
            .runs(driver::<Key8>(combine))
            .runs(driver::<KeyN<16>>(combine))
            .runs(driver::<KeyN<24>>(combine))
            .runs(driver::<KeyN<32>>(combine))
    };
    let waits = "a write awaits its last WRITE or CAS before it releases the leaf, as in the published code";
    IndexEntry::new(
        "marlin",
        "a B-link tree whose updates share their leaf (ICPP 2023)",
    )
    .common_knobs()
    .variant(listed(IndexEntry::DEFAULT, "every technique", true).series("marlin"))
    .variant(listed("published", waits, false).series("marlin-published"))
}

fn options(combine: bool, at: &Setting) -> Options {
    let mut options = Options::new(at.value_bytes);
    options.cache_bytes = at.cache_bytes;
    options.rdwc = at.sharing_or(Rdwc::OFF);
    options.combine = combine;
    options.lock_and_read = at.lock_and_read_or(options.lock_and_read);
    options.cpu = at.cpu();
    options
}

fn driver<K: BenchKey>(combine: bool) -> Driver<Marlin<K>> {
    Driver::new(move |at| Ok(options(combine, at)))
}
