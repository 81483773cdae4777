//! Tests that in the steady state gets, and inserts, updates and upserts of present keys, allocate nothing on the
//! compute node.

use chime::{Applied, Key8, Options, RangeIndex, Rdwc};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{CountingAllocator, Counts, IndexUnderTest, TestKey, connect};

use crate::common::Tree;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const KEYS: u64 = 2_000;

#[test]
fn operations_on_present_keys_allocate_nothing() {
    for (value_bytes, hotspot_bytes, rdwc) in [(8, 0, Rdwc::OFF), (200, 0, Rdwc::OFF), (8, 1 << 16, Rdwc::ON)]
    {
        let world = Loopback::builder().build().expect("memory");
        let v = connect(&world, 0);
        block_on(async {
            let options = Options {
                hotspot_bytes,
                rdwc,
                ..Options::new(value_bytes)
            };
            let tree = Tree::<Key8>::new(options).open(&v).await.expect("an empty pool");
            let client = tree.client(&v);
            let value = vec![3; value_bytes];
            for n in 0..KEYS {
                assert_eq!(client.insert(&Key8::nth(n), &value).await, Ok(Applied::Inserted));
            }
            let mut read = Vec::new();
            // There are two passes, because buffers, pools and the cache have their final size only after the first
            // one.
            for steady in [false, true] {
                let before = Counts::of_thread().allocations;
                for n in 0..KEYS {
                    let key = Key8::nth(n);
                    assert_eq!(client.get(&key, &mut read).await, Ok(true));
                    assert_eq!(client.update(&key, &value).await, Ok(Applied::Replaced));
                    assert_eq!(client.upsert(&key, &value).await, Ok(Applied::Replaced));
                    assert_eq!(client.insert(&key, &value).await, Ok(Applied::Present));
                    assert_eq!(client.get(&Key8::nth(n + KEYS), &mut read).await, Ok(false));
                }
                let count = Counts::of_thread().allocations - before;
                assert!(
                    !steady || count == 0,
                    "{value_bytes}-byte values, {hotspot_bytes} bytes of hotspots: {count} allocations"
                );
            }
        });
    }
}
