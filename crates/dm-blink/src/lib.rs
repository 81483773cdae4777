//! B-link inner levels: fences, siblings, root growth, split propagation
