//! Loopback world: in-process memory nodes and real threads behind the verbs seam
