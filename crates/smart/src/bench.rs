//! The entry of SMART for the benchmark harness.

use crate::{Options, Smart};
use dm_bench::{BenchKey, Driver, IndexEntry, Rdwc, Setting, VariantEntry};
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
}
