//! Tests that compare node formats with models, and their bytes with recorded bytes.

mod any_order;
mod golden;
mod hopscotch;
mod model;
mod packed;
mod radix;
mod splits;
