//! Nodes of every format below a plain map as inner structure: answers, bytes, verbs, and what concurrent clients do.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;
mod memory;
mod merges;
mod model;
mod races;
mod singles;
mod states;
