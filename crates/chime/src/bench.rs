//! CHIME for the harness, with the steps of its paper.

use crate::{Chime, Options, Variant};
use dm_bench::{BenchKey, Driver, IndexEntry, Rdwc, Setting, VariantEntry};
use dm_index::{Key8, KeyN};

const SPAN: &str = "span";

/// Returns the index with all its variants, for a registry of `dm-bench`.
pub fn entry() -> IndexEntry {
    let entry = IndexEntry::new("chime", "a B-link tree over hopscotch leaves (SOSP 2024)")
        .common_knobs()
        .knob(SPAN, "entries of a leaf");
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
    if let Some(span) = at.knobs.get(SPAN) {
        options.span = usize::try_from(span).unwrap_or(usize::MAX);
    }
    options.rdwc = at.sharing_or(Rdwc::ON);
    options.lock_and_read = at.lock_and_read_or(on.unwrap_or(options.lock_and_read));
    options.cpu = at.cpu();
    options
}

fn driver<K: BenchKey>(variant: Variant, on: Option<bool>) -> Driver<Chime<K>> {
    Driver::new(move |at| Ok(options(variant, on, at)))
}
