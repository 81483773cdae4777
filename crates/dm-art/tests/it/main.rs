//! Tests of trees over leaves of one entry, without a façade: results, bytes and verbs, with one client and with
//! several.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bad_input;
mod common;
mod costs;
mod given_up;
mod model;
mod races;
mod reclaim;
mod separators;
mod shapes;
mod singles;
mod survey;
