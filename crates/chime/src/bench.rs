//! The entry of CHIME for the benchmark harness, with the steps of its paper.

use crate::{Chime, ChimeParts, Options, Variant};
use dm_bench::{BenchKey, Driver, IndexEntry, Indirect, Rdwc, Setting, VariantEntry};
use dm_index::{Key8, KeyN};

const SPAN: &str = "span";
const NEIGHBOURHOOD: &str = "neighbourhood";
const HOTSPOT_PERCENT: &str = "hotspot-percent";

/// Returns the index with all its variants, for a registry of `dm-bench`.
pub fn entry() -> IndexEntry {
    let entry = IndexEntry::new("chime", "a B-link tree over hopscotch leaves (SOSP 2024)")
        .common_knobs()
        .knob(SPAN, "entries of a leaf")
        .knob(NEIGHBOURHOOD, "entries of a neighbourhood")
        .knob(HOTSPOT_PERCENT, "share of the cache that the hotspot buffer has");
    let all = Variant::ALL.iter().fold(entry, |entry, &variant| {
        let listed = listed(variant.name(), variant.about(), variant, None);
        entry.variant(match variant {
            Variant::Default => listed.series("chime default"),
            Variant::Speculative => listed.series("chime"),
            _ => listed,
        })
    });
    let more = "CHIME as in its paper, and locks taken in one chain with the READ";
    let indirect =
        "CHIME-Indirect: CHIME as in its paper, with values outside of the leaves (Figs. 13, 18 d)";
    all.variant(listed(LOCK_AND_READ_STEP, more, Variant::Speculative, Some(true)))
        .variant(
            VariantEntry::new("+indirect", indirect)
                .runs(indirect_driver::<Key8>())
                .runs(indirect_driver::<KeyN<16>>())
                .runs(indirect_driver::<KeyN<24>>())
                .runs(indirect_driver::<KeyN<32>>()),
        )
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

fn options(variant: Variant, on: Option<bool>, at: &Setting, mut options: Options) -> Options {
    // The paper's cache of 100 MB includes the hotspot buffer of 30 MB.
    let percent = at.knobs.get(HOTSPOT_PERCENT).unwrap_or(30).min(100);
    options.hotspot_bytes = at.cache_bytes * percent / 100;
    options = variant.apply(options);
    options.cache_bytes = at.cache_bytes - options.hotspot_bytes;
    let knob = |name| {
        at.knobs
            .get(name)
            .map(|it| usize::try_from(it).unwrap_or(usize::MAX))
    };
    options.span = knob(SPAN).unwrap_or(options.span);
    options.neighbourhood = knob(NEIGHBOURHOOD).unwrap_or(options.neighbourhood);
    options.rdwc = at.sharing_or(Rdwc::ON);
    options.lock_and_read = at.lock_and_read_or(on.unwrap_or(options.lock_and_read));
    options.cpu = at.cpu();
    options
}

fn driver<K: BenchKey>(variant: Variant, on: Option<bool>) -> Driver<Chime<K>> {
    Driver::new(move |at| Ok(options(variant, on, at, Options::new(at.value_bytes))))
}

fn indirect_driver<K: BenchKey>() -> Driver<Indirect<ChimeParts<K>>> {
    Indirect::driver(|at| {
        let items = options(Variant::Speculative, None, at, Options::items());
        (
            Options {
                rdwc: Rdwc::OFF,
                ..items
            },
            items.rdwc,
        )
    })
}
