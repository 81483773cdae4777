//! Superblock and two-stage allocation over memory nodes
