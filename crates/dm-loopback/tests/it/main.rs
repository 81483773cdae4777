//! Tests of loopback: its verbs, threads, processes and memory.

mod no_allocations;
mod pool_file;
mod threads;
mod verbs;
