//! Verbs, threads, processes and memory of loopback.

mod no_allocations;
mod pool_file;
mod threads;
mod verbs;
