//! Measures the bytes per key after inserts, in the index cache and on the memory nodes.
//!
//! ```text
//! cargo run --release -p dm-chime --example chime_memory -- [--keys 10000000]
//! ```
//!
//! The program fails if the inserts in random order exceed a limit of the bytes per key, if the hotspot buffer is too
//! large, or if the tree's own count of bytes differs from the allocator's count by more than 4 KiB.
#![expect(clippy::print_stdout, reason = "the counts are what it is run for")]

use std::error::Error;
use std::process::ExitCode;

use chime::{Applied, Chime, Hotspots, Key8, Options, RangeIndex};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{CountingAllocator, Counts};
use dm_workload::KeySpace;

/// Limit of the bytes per key of the index cache.
const CACHE: f64 = 0.5;
/// Limit of the bytes per key of leaves and inner nodes in use.
const NODES: f64 = 38.0;
/// Bytes of the hotspot buffer.
const HOTSPOTS: u64 = 1 << 20;
/// The allowed difference in bytes between the tree's own count and the allocator's count. The own count includes the
/// handles, which are on the stack here. The allocator's count includes the reference counts of shared data.
const TOLERANCE: i64 = 4096;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Sizes after the inserts.
struct Measured {
    cache: u64,
    hotspots: u64,
    nodes: u64,
    others: u64,
    /// The tree's own count of bytes minus the bytes that were freed when the tree was dropped.
    difference: i64,
}

/// Inserts the first `keys` keys of `order` into an empty tree, and measures its memory.
fn measure(keys: u64, order: KeySpace) -> Result<Measured, Box<dyn Error>> {
    let world = Loopback::builder()
        .nodes(1)
        .host_bytes(keys * 256 + (64 << 20))
        .build()?;
    let v = world.connect(0)?;
    block_on(async {
        let options = Options {
            // With this budget, nothing is evicted.
            cache_bytes: u64::MAX,
            hotspot_bytes: HOTSPOTS,
            ..Options::new(8)
        };
        let tree = Chime::<Key8>::create_or_open(&v, &options).await?;
        let client = tree.client(&v);
        for i in 0..keys {
            let key = order.number(i);
            if client.insert(&Key8(key), &key.to_le_bytes()).await? != Applied::Inserted {
                return Err(format!("key {key:#x} was there before").into());
            }
        }
        drop(client);
        let mut m = Measured {
            cache: tree.cache_bytes(),
            hotspots: tree.hotspots().map_or(0, Hotspots::bytes),
            nodes: tree.allocated_bytes().cast_unsigned(),
            others: tree.local_bytes(),
            difference: 0,
        };
        let before = Counts::of_thread().live_bytes;
        drop(tree);
        m.difference = (m.cache + m.hotspots + m.others) as i64 - (before - Counts::of_thread().live_bytes);
        Ok(m)
    })
}

/// Prints a figure and its limit. Returns whether the figure is within the limit.
fn kept(what: &str, found: f64, budget: f64) -> bool {
    let kept = found <= budget;
    let verdict = if kept { "kept" } else { "EXCEEDED" };
    println!("{what:<60}{found:>9.3} of {budget:>7.3} B, {verdict}");
    kept
}

fn run() -> Result<bool, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let keys = match (words.next().as_deref(), words.next()) {
        (None, _) => 10_000_000,
        (Some("--keys"), Some(keys)) => keys.parse::<u64>()?.max(1),
        (Some(flag), _) => {
            return Err(format!("{flag} is not a known argument, or its value is missing").into());
        }
    };
    let mut sound = true;
    for (order, name) in [(KeySpace::dense(), "dense"), (KeySpace::scrambled(1), "random")] {
        let m = measure(keys, order)?;
        let per_key = |bytes: u64| bytes as f64 / keys as f64;
        let random = name == "random";
        sound &= kept(
            &format!("index cache per key, {keys} {name} keys"),
            per_key(m.cache),
            CACHE,
        ) || !random;
        sound &= kept(
            &format!("memory nodes per key, {keys} {name} keys"),
            per_key(m.nodes),
            NODES,
        ) || !random;
        println!("  hotspot buffer: {} B of {HOTSPOTS}", m.hotspots);
        sound &= m.hotspots <= HOTSPOTS;
        println!("  local locks, combining, allocator, handle: {} B", m.others);
        println!(
            "  the account, beyond what the allocator got back: {} B (at most {TOLERANCE})",
            m.difference
        );
        sound &= m.difference.abs() <= TOLERANCE;
    }
    Ok(sound)
}

#[expect(clippy::print_stderr, reason = "an error is the last thing it says")]
fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
