//! Index caches of a compute node: level-1 cache, pinned top levels, exact byte accounting
