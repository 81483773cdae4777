//! Creates Sherman's tree in the memory of this process, and uses it as an ordered map.
//! Run: `cargo run -p dmkit-examples --bin first_index`.
#![expect(clippy::print_stdout, reason = "an example prints")]

use dm_index::{Applied, Key8, RangeIndex, Scan};
use dm_loopback::{Loopback, block_on};
use dm_verbs::Env;
use sherman::{Options, Sherman};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two memory nodes of 64 MiB, and one client of compute node 0. `dm_sim` and `dm_ib` give other worlds.
    let world = Loopback::builder().nodes(2).host_bytes(64 << 20).build()?;
    let v = world.connect(0)?;
    block_on(async {
        // The threads of a compute node share `tree`: its cache, local locks and allocator. Values have 8 bytes.
        let tree = Sherman::<Key8>::create_or_open(&v, &Options::new(8)).await?;
        let client = tree.client(&v);
        for n in 0..1000u64 {
            assert_eq!(
                client.insert(&Key8(n * 3), &n.to_le_bytes()).await?,
                Applied::Inserted
            );
        }

        let (before, mut value) = (v.meter().counters(), Vec::new());
        assert!(client.get(&Key8(30), &mut value).await?);
        let cost = v.meter().counters() - before;
        println!(
            "key 30 has the value {}; {} round trip, {} bytes read",
            value[0], cost.round_trips, cost.bytes_read
        );

        let mut found = Scan::new();
        client.scan(&Key8(100), 3, &mut found).await?;
        println!("the first keys from 100: {:?}", found.keys());
        assert_eq!(found.keys(), [Key8(102), Key8(105), Key8(108)]);
        Ok(())
    })
}
