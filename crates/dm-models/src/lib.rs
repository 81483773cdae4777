//! All models of dmkit by name: litmus tests of the RNIC's contract, and models of locks, shared operations, items,
//! nodes, B-link trees, reclamation, radix trees, hopscotch leaves, separators, learned inner levels, crashes and
//! recovery.
//!
//! An [`Entry`] contains a model, its source, and the cases in which the model runs. A case is a shape of the model, a
//! setting of every knob, and the expected verdict. An entry also contains a twin with the published protocol, if this
//! differs from dmkit's, and broken twins (mutants), which must fail. The tests, `dmkit explore` and `cargo xtask
//! models` run these entries.
//!
//! ```
//! use dm_explore::Search;
//! use dm_models::{Variant, find};
//!
//! // Sherman's Figure 6 hands a lock over before the data is written back.
//! let entry = find("T-S3").unwrap();
//! let ran = entry.run(Variant::Published, 0, Search::exhaustive());
//! ran.judge().unwrap();
//! println!("{}", ran.verdict);
//! ```
//!
//! # Invariants
//! * **I1** Models run the shipped crates. Exceptions are the litmus tests, a few models of general ideas such as hangs
//!   and lock freedom, and the models of published protocols that dmkit does not ship. The code of these models is
//!   written by hand.
//! * **I2** Every entry has a case or a twin that fails, so that no model passes only because it checks nothing.
//! * **I3** A truncated search or a sample is always a failure, whichever verdict was expected.
//!
//! # Limits
//! A case holds within its bounds and with its knobs. The documentation of `dm-explore` lists the assumptions
//! of a pass.
#![forbid(unsafe_code)]

mod combine;
mod crash;
mod entry;
mod hopscotch;
mod items;
mod learned;
mod litmus;
mod locks;
mod matrix;
mod nodes;
mod page;
mod radix;
mod reclaim;
mod recovery;
mod run;
mod separators;
mod tree;

pub use entry::{Case, Entry, Expect, Explorable, How, Kind, Setting, Size, Twin, Variant};
pub use matrix::{Knob, covered, matrix};
pub use page::{knobs, outcome, page, stories, timeless};
pub use run::Ran;

/// Returns all entries, in the order of the page.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    [
        litmus::ENTRIES,
        locks::ENTRIES,
        combine::ENTRIES,
        items::ENTRIES,
        nodes::ENTRIES,
        tree::ENTRIES,
        reclaim::ENTRIES,
        radix::ENTRIES,
        hopscotch::ENTRIES,
        separators::ENTRIES,
        learned::ENTRIES,
        crash::ENTRIES,
        recovery::ENTRIES,
    ]
    .into_iter()
    .flatten()
}

/// Returns the entry with this name, ignoring case.
pub fn find(name: &str) -> Option<&'static Entry> {
    all().find(|e| e.name.eq_ignore_ascii_case(name))
}

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
