//! Threads and the hint of a spinning loop: std's, or loom's under `--cfg dm_loom`.

#[cfg(dm_loom)]
pub use loom::{
    hint::spin_loop,
    thread::{JoinHandle, Thread, current, park, spawn, yield_now},
};
#[cfg(not(dm_loom))]
pub use std::{
    hint::spin_loop,
    thread::{JoinHandle, Thread, current, park, scope, spawn, yield_now},
};
