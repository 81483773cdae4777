//! The entry of Marlin for the benchmark harness.

use crate::{Marlin, Options};
use dm_bench::{BenchKey, Driver, IndexEntry, Rdwc, Setting, VariantEntry};
use dm_index::{Key8, KeyN};
use dm_indirect::block_of;

/// A choice of techniques.
#[derive(Clone, Copy)]
enum Way {
    /// All techniques of this crate.
    Shipped,
    /// The round trips of the published code.
    Published,
    /// As in CHIME's paper, whose baselines have their locks in host memory, take a lock before the READ, have no local
    /// queues, and share operations.
    AsInChime,
}

/// Returns the index with all its variants, for a registry of `dm-bench`.
pub fn entry() -> IndexEntry {
    let listed = |name, help, way| {
        VariantEntry::new(name, help)
            .runs(driver::<Key8>(way))
            .runs(driver::<KeyN<16>>(way))
            .runs(driver::<KeyN<24>>(way))
            .runs(driver::<KeyN<32>>(way))
    };
    let waits = "a write awaits its last WRITE or CAS before it releases the leaf, as in the published code";
    let in_chime = "as in CHIME's paper: locks in host memory, taken before the READ, and shared operations (CHIME Figs. 13, 18 d)";
    IndexEntry::new(
        "marlin",
        "a B-link tree whose updates share their leaf (ICPP 2023)",
    )
    .common_knobs()
    .variant(listed(IndexEntry::DEFAULT, "every technique", Way::Shipped).series("marlin"))
    .variant(listed("published", waits, Way::Published).series("marlin-published"))
    .variant(listed("as-in-chime", in_chime, Way::AsInChime))
}

fn options(way: Way, at: &Setting) -> Options {
    let mut options = Options::new(at.value_bytes);
    options.cache_bytes = at.cache_bytes;
    let mut sharing = Rdwc::OFF;
    match way {
        Way::Shipped => {}
        Way::Published => options.combine = false,
        Way::AsInChime => {
            options.on_chip = false;
            options.hierarchical = false;
            options.handover_max = 0;
            options.lock_and_read = false;
            sharing = Rdwc::ON;
        }
    }
    options.rdwc = at.sharing_or(sharing);
    options.lock_and_read = at.lock_and_read_or(options.lock_and_read);
    options.cpu = at.cpu();
    options
}

fn driver<K: BenchKey>(way: Way) -> Driver<Marlin<K>> {
    Driver::new(move |at| Ok(options(way, at))).block_bytes(|at| {
        let (key, value) = (vec![0; at.key_bytes], vec![0; at.value_bytes]);
        block_of([(&key[..], &value[..])]).len() as u64
    })
}
