//! Nodes of every format under a plain map as the inner structure: their bytes and verbs, and the answers to
//! concurrent clients.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;
mod given_up;
mod memory;
mod merges;
mod races;
mod states;
