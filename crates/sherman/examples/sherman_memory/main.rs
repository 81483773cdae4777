//! Measures the bytes per key after inserts in random order, on the memory nodes and in the index cache. `cargo xtask
//! memory` runs this program.
//!
//! ```text
//! cargo run --release -p dm-sherman --example sherman_memory -- [--keys 10000000]
//! ```
//!
//! The program fails if a budget is exceeded, or if the compute node's own count of bytes differs too much from the
//! allocator's count.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the program prints counts"
)]

mod measure;

use std::error::Error;
use std::process::ExitCode;

use dm_testkit::CountingAllocator;
use measure::{Measured, TOLERANCE, measure};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Limit of the bytes per key of nodes in use.
const NODES: f64 = 32.0;
/// Limit of the bytes per key of the index cache with all levels.
const CACHE: f64 = 0.45;

fn keys(mut words: impl Iterator<Item = String>) -> Result<u64, Box<dyn Error>> {
    let mut keys = 10_000_000;
    while let Some(dial) = words.next() {
        let value = words.next().ok_or_else(|| format!("{dial} needs a value"))?;
        match dial.as_str() {
            "--keys" => keys = value.parse()?,
            _ => return Err(format!("unknown argument: {dial}").into()),
        }
    }
    if keys == 0 {
        return Err("--keys must be greater than 0".into());
    }
    Ok(keys)
}

fn print(m: &Measured) {
    println!(
        "{} keys of 8 bytes with values of 8, inserted in random order",
        m.keys
    );
    let line = |what: &str, bytes: u64| println!("  {what:<42}{bytes:>14} B {:>9.4} B/key", m.per_key(bytes));
    println!("memory nodes");
    line("nodes in use", m.nodes);
    line("chunks, including their unused parts", m.chunks);
    println!("index cache");
    line("keys and children", m.cache.entries);
    line("slots for images", m.cache.slots);
    line("directories", m.cache.directories);
    line("its handle", m.cache.handle);
    line("together", m.cache.total());
    println!("  cached nodes by level, from 1 on: {:?}", m.cached);
    println!("compute node");
    line("local locks, allocator, handle", m.others);
    println!(
        "  what its account says beyond what the allocator got back: {} B (at most {TOLERANCE})",
        m.difference()
    );
}

fn run() -> Result<bool, Box<dyn Error>> {
    let m = measure(keys(std::env::args().skip(1))?, |done| eprintln!("{done} keys"))?;
    print(&m);
    let checks = [
        ("nodes in use", m.per_key(m.nodes), NODES),
        ("index cache", m.per_key(m.cache.total()), CACHE),
    ];
    let mut sound = m.difference().abs() <= TOLERANCE;
    if !sound {
        println!("FAILED: account and allocator differ");
    }
    for (what, found, budget) in checks {
        let kept = found <= budget;
        sound &= kept;
        let verdict = if kept { "kept" } else { "EXCEEDED" };
        println!("{what}: {found:.4} of {budget} B per key, {verdict}");
    }
    Ok(sound)
}

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
