//! The average cost of short scans.

use dm_index::{Fill, Key8, RangeIndex, Scan};
use dm_verbs::Verbs;

use crate::Rng;

/// Number of keys that are loaded.
const KEYS: u64 = 100_000;
/// Number of scans.
const SCANS: u64 = 2_000;
/// The longest scan. The lengths are spread evenly, as in YCSB E.
const LONGEST: u64 = 100;

/// The average cost of a scan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScanCost {
    /// Bytes read.
    pub bytes: f64,
    /// READs.
    pub reads: f64,
    /// Round trips.
    pub round_trips: f64,
}

/// Loads keys that are spread over all numbers into an empty index with 8-byte values, and fills its leaves to `fill`.
/// Then scans 1 to 100 entries from random keys on, without any other client. `warm` must bring the inner nodes into
/// the cache. Panics if the load fails or if a scan is wrong.
pub async fn cost_of_scans<V: Verbs, C: RangeIndex<Key = Key8>>(
    v: &V,
    client: &C,
    fill: impl Into<Fill>,
    warm: impl AsyncFnOnce(),
) -> ScanCost {
    let mut rng = Rng::new(1, 0);
    let mut keys: Vec<u64> = (0..KEYS).map(|_| rng.word()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut next = keys.iter();
    let loaded = client.bulk_load(fill, |out| {
        out.extend_from_slice(&[1; 8]);
        next.next().map(|key| Key8(*key))
    });
    assert_eq!(loaded.await, Ok(keys.len() as u64));
    warm().await;
    let before = v.meter().counters();
    let mut scan = Scan::new();
    for n in 0..SCANS {
        let from = rng.below(keys.len() as u64) as usize;
        let length = 1 + (n % LONGEST) as usize;
        assert_eq!(client.scan(&Key8(keys[from]), length, &mut scan).await, Ok(()));
        let expected = keys[from..].iter().take(length).map(|key| Key8(*key));
        assert!(scan.keys().iter().copied().eq(expected), "{length} from {from}");
    }
    let all = v.meter().counters() - before;
    let [bytes, reads, round_trips] =
        [all.bytes_read, all.reads, all.round_trips].map(|count| count as f64 / SCANS as f64);
    ScanCost {
        bytes,
        reads,
        round_trips,
    }
}
