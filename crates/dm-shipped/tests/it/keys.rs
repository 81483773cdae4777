//! Runs every index with keys of every size.

use dm_bench::report::Row;
use dm_bench::{Fabric, Origin, Setting};

#[test]
fn every_index_has_a_row_with_keys_of_every_size() {
    let registry = dm_shipped::shipped();
    let defaults = registry.entries().iter().map(|entry| (entry.name(), "default"));
    let indirect = [("chime", "+indirect"), ("rolex", "+indirect")];
    for (index, variant) in defaults.chain(indirect) {
        for key_bytes in [8, 16, 24, 32] {
            let setting = Setting {
                compute_nodes: 2,
                memory_nodes: 2,
                clients: 4,
                keys: 2_000,
                ranks: 2_000,
                ops: 2_000,
                key_bytes,
                value_bytes: 24,
                mix: "get:40,upsert:20,insert:20,scan:20".parse().expect("a mix"),
                ..Setting::new("sim:cx6-roce".parse::<Fabric>().expect("a preset"))
            };
            let point = registry.point(index, variant, setting).expect("all sizes");
            let measured = point.run().expect("no faults");
            let row = Row::planned(&point, &Origin::here(None)).finished(&measured);
            let row = row.expect("figures");
            assert_eq!(
                (row.key_bytes, row.ops, row.wrong_values),
                (key_bytes as u64, 2_000, 0),
                "{}",
                row.name()
            );
            assert!(row.bytes_read > key_bytes as f64, "{}", row.name());
        }
    }
}
