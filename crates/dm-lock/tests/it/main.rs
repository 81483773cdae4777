//! Locks over loopback: their costs, the failures that they survive, and what each flaw breaks.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![cfg(not(dm_loom))]

mod budgets;
mod common;
mod effects;
mod flaws;
/// The example that runs the locks over an RDMA layer of its own.
#[path = "../../examples/own_rdma/main.rs"]
mod own_rdma;
mod recovery;
mod share;
mod sim;
mod storm;
mod trouble;
mod turns;
mod unknown;
