//! The switch between the libraries that this crate uses: std, loom (`--cfg dm_loom`) or shuttle (`--cfg
//! dm_shuttle`).

#[cfg(all(dm_loom, dm_shuttle))]
compile_error!("a build is for loom or for shuttle, not for both");

#[cfg(dm_loom)]
pub(crate) use loom::{hint, sync, thread};
#[cfg(all(dm_shuttle, not(dm_loom)))]
pub(crate) use shuttle::{hint, sync, thread};
#[cfg(not(any(dm_loom, dm_shuttle)))]
pub(crate) use std::{hint, sync, thread};
