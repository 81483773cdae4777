//! One client's operations over in-process memory, for counting its own instructions: `cargo xtask bench client --package smart`.
//!
//! ```text
//! cargo run --release -p smart --example smart_client -- --op get --ops 1000000 [--keys 1000000] [--scan 100]
//! ```
//!
//! The script is [`OneClient`]; the radix nodes are cached.

use std::error::Error;

use dm_loopback::{Loopback, block_on};
use dm_testkit::OneClient;
use dm_verbs::Nanos;
use smart::{Key8, Options, Smart};

/// A period longer than a run. While instructions are counted, the clock runs about fifty times too fast for
/// the client, and would charge fifty times as many rounds of reclamation. The work of each operation for
/// reclamation is counted.
const NEVER_DUE: Nanos = Nanos(24 * 3600 * 1_000_000_000);

async fn run(script: &OneClient, world: &Loopback) -> Result<u64, Box<dyn Error>> {
    let v = world.connect(0)?;
    let mut options = Options::new(8);
    options.reclaim.period = NEVER_DUE;
    let tree = Smart::<Key8>::create_or_open(&v, &options).await?;
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
