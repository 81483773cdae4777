//! Superblocks, chunks and blocks, and the reuse of memory, over loopback and the simulator.

mod blocks;
mod census;
mod exchange;
mod forgotten;
mod joining;
mod membership;
mod recovery;
mod rounds;
mod silent;
mod superblock;
mod sweep;
mod unfenceable;
