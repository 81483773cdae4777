//! One client's operations over in-process memory, for counting its own instructions: `cargo xtask bench client --package chime`.
//!
//! ```text
//! cargo run --release -p chime --example chime_client -- --op get --ops 1000000 [--keys 1000000] [--scan 100]
//! ```
//!
//! The script is [`OneClient`]. The inner nodes are cached, and no round of reclamation is due, because the
//! clock runs too fast while instructions are counted.

use std::error::Error;

use chime::{Chime, Key8, Options};
use dm_loopback::{Loopback, block_on};
use dm_testkit::OneClient;
use dm_verbs::Nanos;

async fn run(script: &OneClient, world: &Loopback) -> Result<u64, Box<dyn Error>> {
    let v = world.connect(0)?;
    let mut options = Options::new(8);
    // A period longer than a run.
    options.reclaim.period = Nanos(24 * 3600 * 1_000_000_000);
    let tree = Chime::<Key8>::create_or_open(&v, &options).await?;
    let client = tree.client(&v);
    script.load(&client).await?;
    tree.warm(&v).await?;
    script.run(&client).await
}

#[expect(clippy::print_stdout, reason = "the count is what it is run for")]
fn main() -> Result<(), Box<dyn Error>> {
    let script = OneClient::from_args(std::env::args().skip(1))?;
    let world = Loopback::builder().build()?;
    println!("ops {}", block_on(run(&script, &world))?);
    Ok(())
}
