//! An index that is in no paper, assembled from dmkit's crates: radix separators over hopscotch leaves.
//! `docs/assemble.md` walks through it.
//!
//! ```text
//! cargo run -p dm-dolphin --example art_hopscotch
//! cargo test -p dm-dolphin --example art_hopscotch
//! ```

#![expect(clippy::print_stdout, reason = "an example's output is its purpose")]

#[cfg(test)]
mod checks;
mod tree;

use std::error::Error;

use dm_index::{Key8, RangeIndex, Scan};
use dm_loopback::{Loopback, block_on};
use dm_verbs::Env;

use tree::{ArtHopscotch, Shape};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Loopback::builder().nodes(2).host_bytes(64 << 20).build()?;
    let v = pool.connect(0)?;
    block_on(async {
        let index = ArtHopscotch::<Key8>::create_or_open(&v, &Shape::new(8)).await?;
        let client = index.client(&v);
        for n in 0..10_000_u64 {
            client.insert(&Key8(n * 7), &n.to_le_bytes()).await?;
        }
        let before = v.meter().counters();
        let mut value = Vec::new();
        assert!(client.get(&Key8(700), &mut value).await?);
        let cost = v.meter().counters() - before;
        println!("get: {} round trip, {} bytes", cost.round_trips, cost.bytes_read);
        let mut next = Scan::new();
        client.scan(&Key8(695), 3, &mut next).await?;
        println!("from 695 on: {:?}", next.keys());
        println!(
            "{:.1} bytes per key on memory nodes, {:.2} remembered",
            index.allocated_bytes() as f64 / 10_000.0,
            index.cache_bytes() as f64 / 10_000.0,
        );
        Ok(())
    })
}
