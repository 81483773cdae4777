//! Tests of the simulator's verbs and dials, and of its figures against published ones.

mod allocations;
mod awaited_writes;
mod bounds;
mod common;
mod dials;
mod read_amplification;
mod runs;
mod sherman_locks;
mod sherman_uniform;
mod torn_reads;
mod traced;
mod world;
