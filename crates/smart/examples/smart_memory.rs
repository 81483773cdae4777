//! Measures the bytes per key after inserts, in the prefix cache and on the memory nodes, and the bytes of a leaf.
//! `cargo xtask memory --index smart` runs this program.
//!
//! ```text
//! cargo run --release -p dm-smart --example smart_memory -- [--keys 10000000]
//! ```
//!
//! The program fails if a budget is exceeded, or if the tree's own count of its local bytes differs too much from the
//! allocator's count.
#![expect(clippy::print_stdout, reason = "the program prints counts")]

use std::error::Error;
use std::process::ExitCode;

use dm_loopback::{Loopback, block_on};
use dm_testkit::{CountingAllocator, Counts};
use dm_workload::KeySpace;
use smart::{Applied, Key8, Options, RangeIndex, Smart};

/// Limits of the bytes per key of the prefix cache, for consecutive keys and for 10 million keys drawn from 64 bits.
const CACHE_DENSE: f64 = 8.4;
const CACHE_RANDOM: f64 = 13.5;
/// Limit of the bytes per key of leaves and nodes in use, for 2 million keys drawn from 64 bits.
const NODES: f64 = 230.0;
const NODES_KEYS: u64 = 2_000_000;
/// Bytes of a leaf with a key and a value of 8 bytes each.
const LEAF: usize = 64;
/// The allowed difference in bytes between the tree's own count and the allocator's count. The own count includes the
/// handles, which are on the stack here. The allocator's count includes the reference counts of shared data.
const TOLERANCE: i64 = 4096;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Sizes after the inserts.
struct Measured {
    cache: u64,
    nodes: u64,
    others: u64,
    /// The tree's own count of its local bytes minus the bytes that were freed when the tree was dropped.
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
            ..Options::new(8)
        };
        let tree = Smart::<Key8>::create_or_open(&v, &options).await?;
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
            nodes: tree.allocated_bytes().max(0).cast_unsigned(),
            others: tree.local_bytes(),
            difference: 0,
        };
        let before = Counts::of_thread().live_bytes;
        drop(tree);
        m.difference = (m.cache + m.others) as i64 - (before - Counts::of_thread().live_bytes);
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
        (Some(dial), _) => return Err(format!("{dial} is unknown, or needs a value").into()),
    };
    let leaf = dm_layout::SingleLeaf::<Key8>::new(8)?;
    let mut sound = kept("a leaf of 8 + 8 bytes", leaf.block_bytes() as f64, LEAF as f64);
    let runs = [
        (keys, KeySpace::dense(), "dense", Some(CACHE_DENSE), None),
        (keys, KeySpace::scrambled(1), "random", Some(CACHE_RANDOM), None),
        (
            NODES_KEYS.min(keys),
            KeySpace::scrambled(1),
            "random",
            None,
            Some(NODES),
        ),
    ];
    for (keys, order, name, cache, nodes) in runs {
        let m = measure(keys, order)?;
        let per_key = |bytes: u64| bytes as f64 / keys as f64;
        if let Some(budget) = cache {
            sound &= kept(
                &format!("prefix cache per key, {keys} {name} keys"),
                per_key(m.cache),
                budget,
            );
        }
        if let Some(budget) = nodes {
            sound &= kept(
                &format!("memory nodes per key, {keys} {name} keys"),
                per_key(m.nodes),
                budget,
            );
        }
        println!("  local locks, combining, allocator, handle: {} B", m.others);
        println!(
            "  the account, beyond what the allocator got back: {} B (at most {TOLERANCE})",
            m.difference
        );
        sound &= m.difference.abs() <= TOLERANCE;
    }
    Ok(sound)
}

#[expect(clippy::print_stderr, reason = "the program prints its error")]
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
