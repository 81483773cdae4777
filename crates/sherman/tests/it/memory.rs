//! Tests the bytes per key after inserts in random order, with few keys; `cargo xtask memory` has the full size.

#[path = "../../examples/sherman_memory/measure.rs"]
mod measure;

use measure::{TOLERANCE, measure};

/// Number of keys. The limits below are higher than those of the full size, because a small tree has more overhead for
/// each key. The cache allocates in steps, and inner nodes that were made at about the same time are about equally
/// full.
const KEYS: u64 = 200_000;
const NODES: f64 = 33.0;
const CACHE: f64 = 0.5;

#[test]
fn a_tree_of_random_inserts_keeps_its_budget() {
    let m = measure(KEYS, |_| {}).expect("inserts into an empty tree");
    let (nodes, cache) = (m.per_key(m.nodes), m.per_key(m.cache.total()));
    println!(
        "{nodes:.3} B of nodes and {cache:.4} B of cache per key; cached {:?}",
        m.cached
    );
    assert!(nodes <= NODES, "{nodes:.3} B of nodes per key");
    assert!(cache <= CACHE, "{cache:.4} B of index cache per key");
    assert!(
        m.chunks >= m.nodes && m.chunks < m.nodes + (8 << 20),
        "one chunk is begun"
    );
    assert!(m.difference().abs() <= TOLERANCE, "{} B apart", m.difference());
}
