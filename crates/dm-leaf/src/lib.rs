//! Leaf nodes: unsorted two-level leaf, sorted checksummed leaf
