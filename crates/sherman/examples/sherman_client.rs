//! One client's operations over in-process memory, for counting its own instructions: `cargo xtask bench client`.
//!
//! ```text
//! cargo run --release -p sherman --example sherman_client -- --op get --ops 1000000 [--keys 1000000] [--scan 100]
//! ```
//!
//! The script is [`OneClient`]; the inner nodes are cached.
//!
//! Rounds of reclamation depend on the clock, a thousand per second. While instructions are counted, the
//! clock runs about fifty times too fast for the client, and fifty times as many rounds would be counted; so
//! no round is due here. The work of each operation for reclamation (its seat, the check of the clock) is
//! counted.

use std::error::Error;

use dm_loopback::{Loopback, block_on};
use dm_testkit::OneClient;
use dm_verbs::Nanos;
use sherman::{Key8, Options, Sherman};

/// A period longer than a run.
const NEVER_DUE: Nanos = Nanos(24 * 3600 * 1_000_000_000);

async fn run(script: &OneClient, world: &Loopback) -> Result<u64, Box<dyn Error>> {
    let v = world.connect(0)?;
    let mut options = Options::new(8);
    options.reclaim.period = NEVER_DUE;
    let tree = Sherman::<Key8>::create_or_open(&v, &options).await?;
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
