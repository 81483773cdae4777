//! Tests of nodes of every format, with a map as the inner structure: their bytes and verbs, and the results of
//! concurrent clients.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;
mod failed_merge;
mod follow;
mod given_up;
mod late_opening;
mod memory;
mod mending;
mod merges;
mod next_life;
mod races;
mod reads;
mod states;
mod words;
