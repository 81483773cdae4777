//! Points of the shipped indexes that begin with copies of one loaded index. This program has only one test, because a
//! copy of the process would also inherit the files that other tests have open.

use std::fs::{self, File};
use std::io::BufReader;

use dm_bench::report::{Row, read_json_lines};
use dm_bench::{LATEST, Mix, Output, Place, Setting, perform};

/// A point of an index has the same row whether it loads an index of its own or begins with a copy: under skew, with a
/// small cache, and whatever ran before.
#[test]
fn every_index_has_the_same_row_with_a_copy() {
    let registry = dm_shipped::shipped();
    let mut points = Vec::new();
    for entry in registry.entries() {
        for (mix, clients) in [("c", 4), ("a", 8), ("c", 8), ("e", 4)] {
            let mix: Mix = mix.parse().unwrap();
            let setting = Setting {
                mix,
                compute_nodes: 2,
                memory_nodes: 1,
                clients,
                coroutines: 2,
                keys: 20_000,
                ops: 2_000,
                cache_bytes: 20_000,
                ..Setting::new("sim:cx6-roce".parse().unwrap())
            };
            points.push(registry.point(entry.name(), "default", setting).unwrap());
        }
    }
    let rows = |place| {
        let out = std::env::temp_dir().join(format!("dmkit-{place:?}-{}", std::process::id()));
        let output = Output {
            out: out.clone(),
            no_plot: true,
            place,
            ..Output::default()
        };
        assert!(perform("copies", &points, &output).unwrap());
        let file = File::open(out.join(LATEST).join("rows.jsonl")).unwrap();
        let mut rows = read_json_lines(BufReader::new(file)).unwrap();
        fs::remove_dir_all(&out).unwrap();
        rows.iter_mut().for_each(|row| row.date.clear());
        // Rows are written when their points end.
        rows.sort_by_key(Row::name);
        rows
    };
    let (copies, own) = (rows(Place::Processes), rows(Place::Threads));
    assert_eq!(copies.len(), points.len());
    for (copy, own) in copies.into_iter().zip(own) {
        assert_eq!(copy, own);
    }
}
