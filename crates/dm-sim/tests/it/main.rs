//! Verbs of the simulator, its dials, and its figures against those of the papers.

mod allocations;
mod awaited_writes;
mod bounds;
mod common;
mod dials;
mod read_amplification;
mod sherman_locks;
mod sherman_uniform;
mod torn_reads;
mod traced;
mod world;
