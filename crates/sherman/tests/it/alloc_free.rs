//! Tests that in the steady state gets, and updates, upserts and inserts of present keys, allocate nothing on the
//! compute node, and that scans allocate little.

use crate::common::Tree;
use dm_index::{Applied, RangeIndex, Scan};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{Counts, IndexUnderTest, TestKey, connect};
use sherman::{Key8, NodeSize, Options, Rdwc, Variant};

const KEYS: u64 = 2_000;
/// Number of scans, and the maximum number of allocations of each. A scan allocates because the list of its leaves
/// grows by doubling, up to 32 leaves.
const SCANS: u64 = 100;
const PER_SCAN: u64 = 6;

#[test]
fn operations_on_present_keys_allocate_nothing() {
    for (variant, value_bytes, rdwc) in [
        (Variant::Default, 8, Rdwc::OFF),
        (Variant::PaperRtt, 8, Rdwc::OFF),
        (Variant::Default, 200, Rdwc::OFF),
        (Variant::Default, 8, Rdwc::ON),
    ] {
        let world = Loopback::builder().build().expect("memory");
        let v = connect(&world, 0);
        block_on(async {
            let options = variant.apply(Options {
                node: NodeSize::Bytes(1024),
                rdwc,
                ..Options::new(value_bytes)
            });
            let tree = Tree::<Key8>::new(options).open(&v).await.expect("an empty pool");
            let client = tree.client(&v);
            let value = vec![3; value_bytes];
            for n in 0..KEYS {
                assert_eq!(client.insert(&Key8::nth(n), &value).await, Ok(Applied::Inserted));
            }
            let mut read = Vec::new();
            let mut scan = Scan::new();
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
                    "{variant}, {value_bytes}-byte values: {count} allocations"
                );
                let before = Counts::of_thread().allocations;
                for n in 0..SCANS {
                    assert_eq!(client.scan(&Key8::nth(n), 300, &mut scan).await, Ok(()));
                }
                let count = Counts::of_thread().allocations - before;
                assert!(
                    !steady || count <= SCANS * PER_SCAN,
                    "{variant}: {count} allocations by scans"
                );
            }
        });
    }
}
