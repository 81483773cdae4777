//! Items of variable length behind any range index, whose values are words that point to blocks.
//!
//! This crate turns an index of fixed keys and 8-byte values into an index of byte strings. The index compares a
//! [`Prefix`] of the key. It stores a [`Reference`], which contains the address and the length of a block. Keys with
//! the same prefix share a block (a [`Bundle`]). A block is written once: an update writes a new block, exchanges the
//! word, and retires the old block. The old block is reused when no reader can still have its word.
//!
//! ```text
//!  index:  prefix ──► word ──► block: | header | item | item ... |      item: lengths, key, value
//! ```
//!
//! Sources: the indirect values of CHIME (SOSP'24 §4.5) and Marlin, and the RCU leaves of SMART (OSDI'23 §4.1). Unlike
//! in these papers, blocks have the real lengths of the items, keys may vary in length too, and an update leaks no
//! block.
//!
//! # Invariants
//! See `docs/protocol/indirect.md`, N1 to N6.
#![forbid(unsafe_code)]

mod bundle;
mod draft;
mod items;
mod out_of_line;
mod range;
mod reference;
#[cfg_attr(
    not(feature = "study"),
    expect(unreachable_pub, reason = "public only with the feature `study`")
)]
mod study;

pub use bundle::{Bundle, block_of};
pub use items::{Items, Prefix, leading_bytes};
pub use out_of_line::OutOfLine;
pub use range::Item;
pub use reference::{BLOCK_BYTES_MAX, KIND, REFERENCE_BYTES, REFERENCE_NODES_MAX, Reference, referred};
#[cfg(feature = "study")]
pub use study::ItemFlaws;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
