//! Tests of the verbs that operations post. Counts of verbs are the same on every machine.

use dm_index::{Applied, Key8, RangeIndex};
use dm_loopback::block_on;
use dm_testkit::{connect, counted};
use dm_verbs::Env;
use my_index::{Index, Options};

use crate::costs::{GET_BYTES, INSERT_BYTES, INSERT_TRIPS, INSERT_WRITES, UPDATE_BYTES};

#[test]
fn operations_keep_to_their_budgets() {
    let pool = counted().nodes(2).build().expect("memory");
    let v = connect(&pool, 0);
    block_on(async {
        let index = Index::<Key8>::create_or_open(&v, &Options::new(8)).await;
        let index = index.expect("an empty pool");
        let client = index.client(&v);
        let mut next = (0..5_000).map(|n| Key8(n * 2));
        let loaded = client.bulk_load(0.7, |out| {
            out.extend_from_slice(&[7; 8]);
            next.next()
        });
        assert_eq!(loaded.await, Ok(5_000));
        index.warm(&v).await.expect("leaves");
        let mut before = v.meter().counters();
        let mut lap = || {
            let now = v.meter().counters();
            now - core::mem::replace(&mut before, now)
        };
        let (mut value, mut plain) = (Vec::new(), 0);
        for key in (0..100).map(|n| n * 100) {
            assert_eq!(client.get(&Key8(key), &mut value).await, Ok(true));
            let cost = lap();
            assert!(cost.round_trips == 1, "get: {cost:?}");
            assert!(cost.bytes_read <= GET_BYTES, "get: {cost:?}");

            let updated = client.update(&Key8(key), &[3; 8]).await;
            assert_eq!(updated, Ok(Applied::Replaced));
            let cost = lap();
            assert!(cost.round_trips == 2, "update: {cost:?}");
            assert!(cost.bytes_read <= UPDATE_BYTES, "update: {cost:?}");
            assert!(cost.bytes_written <= 24, "update: {cost:?}");

            let inserted = client.insert(&Key8(key + 1), &[4; 8]).await;
            assert_eq!(inserted, Ok(Applied::Inserted));
            let cost = lap();
            if cost.splits > 0 {
                continue;
            }
            assert!(cost.round_trips <= INSERT_TRIPS, "insert: {cost:?}");
            assert!(cost.bytes_read <= INSERT_BYTES, "insert: {cost:?}");
            assert!(cost.bytes_written <= INSERT_WRITES, "insert: {cost:?}");
            plain += u32::from(cost.round_trips == 2 && cost.bytes_written <= 64);
        }
        assert!(plain >= 80, "{plain} of 100 inserts wrote an entry only");
    });
}

#[test]
fn an_outdated_compute_node_needs_few_extra_round_trips() {
    let pool = counted().nodes(2).build().expect("memory");
    let (v, w) = (connect(&pool, 0), connect(&pool, 1));
    block_on(async {
        let (here, there) = (Options::new(8), Options::new(8));
        let here = Index::<Key8>::create_or_open(&v, &here)
            .await
            .expect("a pool");
        let there = Index::<Key8>::create_or_open(&w, &there)
            .await
            .expect("a pool");
        let (near, far) = (here.client(&v), there.client(&w));
        let mut value = Vec::new();
        near.insert(&Key8(0), &[1; 8]).await.expect("no faults");
        far.get(&Key8(0), &mut value).await.expect("no faults");
        // One compute node splits leaves. The other one is not told about it.
        for key in 1..1_000 {
            near.insert(&Key8(key), &[1; 8]).await.expect("no faults");
        }
        for key in [999, 500, 250] {
            let mut trips = Vec::new();
            for _ in 0..4 {
                let before = w.meter().counters();
                assert_eq!(far.get(&Key8(key), &mut value).await, Ok(true));
                trips.push((w.meter().counters() - before).round_trips);
            }
            assert_eq!(trips[3], 1, "{trips:?}");
        }
    });
}
