//! The registry of the shipped indexes for the harness of `dm-bench`: Sherman, SMART, CHIME, Dolphin, Marlin and ROLEX
//! with the variants of their papers.
//!
//! The shipped indexes use only interfaces that every index can use. Each crate of an index lists its variants, and the
//! options of each variant for a setting.
//!
//! ```
//! let registry = dm_shipped::shipped();
//! let names: Vec<&str> = registry.entries().iter().map(|entry| entry.name()).collect();
//! assert_eq!(names, ["sherman", "smart", "chime", "dolphin", "marlin", "rolex"]);
//! assert!(registry.series("fg+").is_ok());
//! ```
#![forbid(unsafe_code)]

use dm_bench::Registry;

/// Returns the registry of the shipped indexes: Sherman, SMART, CHIME, Dolphin, Marlin and ROLEX, each with its
/// variants.
pub fn shipped() -> Registry {
    let all = Registry::new()
        .with(sherman::bench::entry())
        .with(smart::bench::entry())
        .with(chime::bench::entry())
        .with(dolphin::bench::entry())
        .with(marlin::bench::entry())
        .with(rolex::bench::entry());
    TITLES.iter().fold(all, |all, (index, variant, words)| {
        all.titled(index, variant, words)
    })
}

/// The names of the variants on pages of results, in the papers' words.
const TITLES: [(&str, &str, &str); 46] = [
    ("sherman", "default", "Sherman"),
    ("sherman", "paper-rtt", "Sherman, lock awaited"),
    ("sherman", "published", "Sherman with its published flaws"),
    ("sherman", "fg", "FG"),
    ("sherman", "fg+", "FG+"),
    ("sherman", "+combine", "+ command combination"),
    ("sherman", "+on-chip", "+ on-chip locks"),
    ("sherman", "+hierarchical", "+ hierarchical locks"),
    ("sherman", "+two-level", "Sherman as published"),
    ("sherman", "as-in-smart", "Sherman as in SMART's paper"),
    ("sherman", "as-in-chime", "Sherman as in CHIME's paper"),
    ("sherman", "as-in-dolphin", "Sherman as in Dolphin's paper"),
    ("smart", "default", "SMART"),
    ("smart", "paper-rtt", "SMART as published"),
    ("smart", "-rdwc", "SMART without RDWC"),
    ("smart", "art", "ART"),
    ("smart", "+lock-free", "+ lock-free inner nodes"),
    ("smart", "+in-place", "+ in-place leaves"),
    ("smart", "+read-delegation", "+ read delegation"),
    (
        "smart",
        "published-delegation",
        "SMART, read delegation as published",
    ),
    ("smart", "rcu", "SMART-RCU"),
    ("smart", "radix", "radix tree"),
    ("smart", "+path-compression", "+ path compression"),
    ("smart", "+adaptive-nodes", "+ adaptive nodes"),
    ("smart", "optimistic", "optimistic path compression"),
    ("smart", "hybrid", "hybrid path compression"),
    ("smart", "hash-cache", "SMART, cache indexed by hashes"),
    ("smart", "+homogeneous-nodes", "+ homogeneous adaptive nodes"),
    ("chime", "default", "CHIME"),
    ("chime", "+hopscotch-leaf", "+ hopscotch leaves"),
    ("chime", "+vacancy", "+ vacancy bitmap"),
    ("chime", "+replication", "+ metadata replication"),
    ("chime", "+speculative", "CHIME as published"),
    ("chime", "+lock-and-read", "CHIME, lock and READ chained"),
    ("chime", "+indirect", "CHIME-Indirect"),
    ("dolphin", "default", "Dolphin"),
    ("dolphin", "paper-rtt", "Dolphin as published"),
    ("marlin", "default", "Marlin"),
    ("marlin", "published", "Marlin as published"),
    ("marlin", "as-in-chime", "Marlin as in CHIME's paper"),
    ("rolex", "default", "ROLEX"),
    ("rolex", "published", "ROLEX as published"),
    ("rolex", "as-in-chime", "ROLEX as in CHIME's paper"),
    ("rolex", "+indirect", "ROLEX-Indirect"),
    ("rolex", "chime-learned", "CHIME-Learned"),
    (
        "rolex",
        "chime-learned-as-in-chime",
        "CHIME-Learned as in CHIME's paper",
    ),
];

#[cfg(test)]
mod tests {
    /// A page would draw two variants of one name as one curve.
    #[test]
    fn every_variant_has_a_name_of_its_own() {
        let registry = super::shipped();
        let mut names = Vec::new();
        for entry in registry.entries() {
            for variant in entry.variants() {
                let name = registry.titles().of(entry.name(), variant.name());
                let name = name.unwrap_or_else(|| panic!("{} {}", entry.name(), variant.name()));
                assert!(!names.contains(&name), "{name}");
                names.push(name);
            }
        }
    }
}

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
