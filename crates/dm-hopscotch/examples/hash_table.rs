//! A one-sided hash table. Threads of two compute nodes fill an empty table, which grows meanwhile.
//!
//! ```text
//! cargo run --release -p dm-hopscotch --example hash_table -- [--keys 200000] [--threads 4]
//! ```

use std::error::Error;
use std::thread;

use dm_hopscotch::{HashTable, TableOptions};
use dm_index::{Applied, Key8, RangeIndex};
use dm_loopback::{Loopback, block_on};
use dm_verbs::Verbs;

/// Returns the number that follows `name` in the program's arguments, or `default`.
fn number(name: &str, default: u64) -> Result<u64, Box<dyn Error>> {
    let mut args = std::env::args().skip_while(|arg| arg != name).skip(1);
    Ok(args.next().map_or(Ok(default), |text| text.parse())?)
}

/// Inserts every `step`-th key from `first` on, and reads them all back.
async fn fill<V: Verbs + dm_verbs::Control>(
    table: &HashTable<Key8>,
    v: &V,
    (first, step, keys): (u64, u64, u64),
) -> Result<(), dm_index::IndexError> {
    let client = table.client(v);
    for n in (first..keys).step_by(step as usize) {
        let applied = client.insert(&Key8(n), &n.to_le_bytes()).await?;
        assert_eq!(applied, Applied::Inserted);
    }
    let mut value = Vec::with_capacity(8);
    for n in (first..keys).step_by(step as usize) {
        assert!(client.get(&Key8(n), &mut value).await? && value == n.to_le_bytes());
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it has")]
fn main() -> Result<(), Box<dyn Error>> {
    let (keys, threads) = (number("--keys", 200_000)?, number("--threads", 4)?.max(1));
    // The pool consists of two memory nodes in this process. It holds no tree and no other index.
    let world = Loopback::builder().nodes(2).host_bytes(1 << 30).build()?;
    let v = world.connect(0)?;
    let options = TableOptions::new(8);
    // Each compute node has one handle, which its threads share.
    let nodes = [
        block_on(HashTable::<Key8>::create_or_open(&v, &options))?,
        block_on(HashTable::<Key8>::create_or_open(&v, &options))?,
    ];
    thread::scope(|scope| {
        for (first, table) in (0..threads).zip(nodes.iter().cycle()) {
            let world = &world;
            scope.spawn(move || {
                let v = world.connect((first % 2) as u16).expect("a client");
                block_on(fill(table, &v, (first, threads, keys))).expect("room and no faults");
            });
        }
    });
    let [table, _] = &nodes;
    block_on(table.warm(&v))?;
    let mut found = 0_u64;
    block_on(table.client(&v).for_each(|_, _| found += 1))?;
    let (depth, bytes) = (table.directory().depth().unwrap_or(0), table.local_bytes());
    println!("{found} entries; a directory of 2^{depth} slots; {bytes} bytes in a compute node");
    assert_eq!(found, keys);
    Ok(())
}
