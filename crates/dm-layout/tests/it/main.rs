//! Formats of nodes against models, and their bytes against records.

mod any_order;
mod golden;
mod hopscotch;
mod model;
mod packed;
mod radix;
mod splits;
