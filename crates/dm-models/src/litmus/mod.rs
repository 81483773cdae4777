//! Litmus tests: a few requests each, which show one rule of the RNIC's contract.
//!
//! Each test claims that some outcome never occurs. If a setting of the knobs allows the outcome, the case must fail,
//! and its counterexample shows how the outcome arises.

mod buffer_reuse;
mod checksum;
mod chip_order;
mod cpu_atomics;
mod duplicate_cas;
mod footer_lock;
mod lane_write;
mod late_write;
mod line_versions;
mod lock_and_read;
mod lost_answer;
mod lost_write;
mod queue_pair_order;
mod version_reads;
mod version_wrap;
mod versions;
mod zombie_write;

use dm_explore::{Client, Knobs, NoSpec};
use dm_verbs::{NodeId, RemotePtr};

use crate::{Case, Entry, How};

/// The entries of this module, in the order of the page.
pub(crate) const ENTRIES: &[Entry] = &[
    versions::ENTRY,
    line_versions::ENTRY,
    checksum::ENTRY,
    version_reads::ENTRY,
    footer_lock::ENTRY,
    lost_write::ENTRY,
    lane_write::ENTRY,
    chip_order::ENTRY,
    version_wrap::ENTRY,
    queue_pair_order::ENTRY,
    zombie_write::ENTRY,
    duplicate_cas::ENTRY,
    cpu_atomics::ENTRY,
    buffer_reuse::ENTRY,
    lock_and_read::ENTRY,
    lost_answer::ENTRY,
    late_write::ENTRY,
];

/// A client without shared state or recorded operations.
type Bare = Client<(), NoSpec>;

/// The reason why a verb of these models must succeed.
const OK: &str = "no faults in this model";

/// Returns the address of word `word` in line `line` of a memory node.
fn word(node: u16, line: u64, word: u64) -> RemotePtr {
    RemotePtr::new(NodeId(node), 1024 + 64 * line + 8 * word).unwrap_or(RemotePtr::NULL)
}

/// Returns the word at byte `at`.
fn word_of(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Returns a case for each of these knobs. The case must fail if `allowed` returns true for its knobs, and hold
/// otherwise.
fn sides(shape: &'static str, how: How, knobs: Vec<Knobs>, allowed: impl Fn(&Knobs) -> bool) -> Vec<Case> {
    let case = |k: Knobs| {
        if allowed(&k) {
            Case::fails(how, shape, k)
        } else {
            Case::holds(shape, k)
        }
    };
    knobs.into_iter().map(case).collect()
}
