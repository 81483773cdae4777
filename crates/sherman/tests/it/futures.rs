//! Tests that the futures of operations stay small, because they are copied and are stored in allocations of their
//! size.

use crate::common::Tree;
use dm_index::{RangeIndex, Scan};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{IndexUnderTest, connect};
use sherman::{Key8, Options};

#[test]
fn futures_of_operations_stay_small() {
    let world = Loopback::builder().build().expect("memory");
    let v = connect(&world, 0);
    block_on(async {
        let tree = Tree::<Key8>::new(Options::new(8))
            .open(&v)
            .await
            .expect("an empty pool");
        let client = tree.client(&v);
        let (key, value) = (Key8(1), [0; 8]);
        let (mut read, mut scan) = (Vec::new(), Scan::new());
        for (operation, bytes, most) in [
            ("get", size_of_val(&client.get(&key, &mut read)), 1_600),
            ("update", size_of_val(&client.update(&key, &value)), 2_176),
            ("insert", size_of_val(&client.insert(&key, &value)), 1_984),
            ("remove", size_of_val(&client.remove(&key)), 1_984),
            ("scan", size_of_val(&client.scan(&key, 100, &mut scan)), 1_952),
        ] {
            assert!(
                bytes <= most,
                "the future of {operation} has {bytes} bytes, more than {most}"
            );
        }
    });
}
