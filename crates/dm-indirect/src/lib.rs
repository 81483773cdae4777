//! Items of variable length behind any range index: its values are words that name blocks.
//!
//! An index of fixed keys and 8-byte values becomes one of byte strings. What it compares is a [`Prefix`] of the key; what
//! it holds is a [`Reference`] to a block of exactly the lines that the item needs. Keys of one prefix share a block (a
//! [`Bundle`]). Blocks are written once: an update writes a new one, exchanges the word, and retires the old one, which is
//! used again when no reader can have its word any more.
//!
//! ```text
//!  index:  prefix ──► word ──► block: | header | item | item ... |      item: lengths, key, value
//! ```
//!
//! Sources: indirect values of CHIME (SOSP'24 §4.5) and Marlin, RCU leaves of SMART (OSDI'23 §4.1). Unlike there, lengths
//! are true ones, keys may vary too, and no block is lost by an update.
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

pub use bundle::{Bundle, block_of};
pub use items::{ItemFlaws, Items, Prefix, leading_bytes};
pub use out_of_line::OutOfLine;
pub use range::Item;
pub use reference::{BLOCK_BYTES_MAX, REFERENCE_BYTES, REFERENCE_NODES_MAX, Reference};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
