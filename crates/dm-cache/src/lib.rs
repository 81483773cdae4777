//! Index caches of a compute node: level-1 cache, pinned top levels, exact byte accounting
#![forbid(unsafe_code)]

mod cache;
mod directory;
mod image;
mod slab;
mod state;
mod types;

pub use cache::IndexCache;
pub use types::{Admitted, CacheFlaws, CacheKey, CachedNode, Hit, NodeImage, Origin};
