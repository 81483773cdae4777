//! Locks over loopback: what they cost, what they survive, and what each flaw breaks.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![cfg(not(dm_loom))]

mod budgets;
mod common;
mod flaws;
/// The example, over an RDMA layer of somebody else's.
#[path = "../../examples/own_rdma/main.rs"]
mod own_rdma;
mod share;
mod sim;
mod storm;
mod trouble;
