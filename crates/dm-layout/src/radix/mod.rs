//! Bytes of adaptive radix nodes (SMART, TOS 2024 §4.1): a head of two words, and then slots of 8 bytes that all have
//! the same form.
//!
//! ```text
//!  byte 0  │ depth │ type, length │ partial 0 … partial 5 │     header: one word, changed by CAS
//!  byte 8  │ incarnation 4 │ magic 2 │ 0 0 │                  identity: never changes in a node
//!  byte 16 │ slot 0 │ slot 1 │ …                              each one word, changed by CAS alone
//!
//!  slot     63  partial  56   55     54    53 type / lines 48 47  node  40 39   offset / 64    0
//!          ┌──────────────┬───────┬──────┬───────────────────┬───────────┬──────────────────────┐
//!  child   │ key byte     │frozen │ leaf │ 1 to 63           │ 8 bits    │ 40 bits              │
//!  none    │ 0 / kept     │frozen │  0   │ 0                 │ 1 empty, 2 removed │ incarnation │
//!          └──────────────┴───────┴──────┴───────────────────┴───────────┴──────────────────────┘
//! ```
//!
//! The layout differs from the paper in these points. Positions in a key are absolute, and a node's *branch* (the index
//! of the key byte that selects a slot) never changes. So a header split needs no second CAS on the child's header. The
//! incarnation replaces the reverse pointer of a node, and the link depth replaces that of a leaf (see
//! [`SingleLeaf`](crate::SingleLeaf)). An empty slot is not zero, because it contains the incarnation and the frozen
//! bit. So a CAS on an empty slot fails if the memory has been reused or the node is frozen. A node of 256 slots has
//! one slot for each key byte.

mod header;
mod node;
mod slot;
mod types;

pub use header::{PARTIAL_MAX, RadixHeader};
pub use node::{Find, RADIX_HEAD_BYTES, RADIX_INCARNATION_AT, RadixNode, build_radix_node};
pub use slot::{LEAF_LINES_MAX, Slot, SlotWord};
pub use types::{DIRECT, NodeTypes};
