//! The entry of Dolphin for the benchmark harness.

use crate::{Dolphin, Options};
use dm_bench::{BenchKey, Driver, IndexEntry, Rdwc, Setting, VariantEntry};
use dm_index::{Key8, KeyN};

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
    Driver::new(move |at| Ok(options(on, at)))
}
