//! Tests that in the steady state operations that change no node allocate nothing on the compute node: gets, updates,
//! upserts and inserts of present keys, and gets, updates and removes of absent keys.

use crate::common::Tree;
use dm_loopback::{Loopback, block_on};
use dm_testkit::{CountingAllocator, Counts, IndexUnderTest, connect};
use smart::{Applied, Key8, Options, RangeIndex, Rdwc};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const KEYS: u64 = 2_000;

/// Returns a key. Keys differ in bytes 5 to 7, so that there are small nodes below a large node.
fn key(n: u64) -> Key8 {
    Key8(n.wrapping_mul(0x9E37_79B1) & 0xff_ffff)
}

#[test]
fn operations_that_change_no_node_allocate_nothing() {
    for (value_bytes, rdwc) in [(8, Rdwc::OFF), (8, Rdwc::ON), (200, Rdwc::ON)] {
        let world = Loopback::builder().build().expect("memory");
        let v = connect(&world, 0);
        block_on(async {
            let options = Options {
                rdwc,
                ..Options::new(value_bytes)
            };
            let tree = Tree::<Key8>::new(options).open(&v).await.expect("an empty pool");
            let client = tree.client(&v);
            let value = vec![3; value_bytes];
            for n in 0..KEYS {
                assert_eq!(client.insert(&key(n), &value).await, Ok(Applied::Inserted));
            }
            let mut read = Vec::new();
            // There are two passes, because buffers, pools and the cache have their final size only after the first
            // one.
            for steady in [false, true] {
                let before = Counts::of_thread().allocations;
                for n in 0..KEYS {
                    let key = key(n);
                    assert_eq!(client.get(&key, &mut read).await, Ok(true));
                    assert_eq!(client.update(&key, &value).await, Ok(Applied::Replaced));
                    assert_eq!(client.upsert(&key, &value).await, Ok(Applied::Replaced));
                    assert_eq!(client.insert(&key, &value).await, Ok(Applied::Present));
                    let absent = self::key(KEYS + n);
                    assert_eq!(client.get(&absent, &mut read).await, Ok(false));
                    assert_eq!(client.update(&absent, &value).await, Ok(Applied::Absent));
                    assert_eq!(client.remove(&absent).await, Ok(Applied::Absent));
                }
                let count = Counts::of_thread().allocations - before;
                assert!(
                    !steady || count == 0,
                    "{value_bytes}-byte values: {count} allocations"
                );
            }
        });
    }
}
