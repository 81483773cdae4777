//! One client's operations over in-process memory, for counting its own instructions: `cargo xtask bench client`.
//!
//! ```text
//! cargo run --release -p smart --example client -- --op get --ops 1000000 [--keys 1000000] [--scan 100]
//! ```
//!
//! A bulk-loaded tree of 8-byte keys and 8-byte values, its inner nodes cached; gets, updates and scans begin at keys
//! that Zipf's law (0.99) draws from the loaded ones. Inserts bring new keys only, scattered over a range that held
//! none, so that its leaves fill and split as in a tree that grows, below as many levels as the loaded keys make.
//! Every answer is checked. What is drawn, checked and counted here is the harness's; two runs of different `--ops`
//! differ by the operations alone.

use std::error::Error;

use dm_index::{Key8, RangeIndex, Scan};
use dm_loopback::{Loopback, block_on};
use dm_workload::{KeySpace, Workload};
use smart::{Applied, Options, Smart};

/// How full leaves are loaded: about what random inserts leave behind.
const FILL: f64 = 0.7;
const DISTRIBUTION: &str = "zipf:0.99";
/// Inserted keys lie above all others: those are loaded without their top bit.
const NEW: u64 = 1 << 63;

/// What to do.
struct Dials {
    op: Op,
    ops: u64,
    keys: u64,
    scan: usize,
}

#[derive(Clone, Copy)]
enum Op {
    Get,
    Update,
    Insert,
    Scan,
}

impl Dials {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut dials = Self {
            op: Op::Get,
            ops: 100_000,
            keys: 1_000_000,
            scan: 100,
        };
        while let Some(dial) = words.next() {
            let value = words.next().ok_or_else(|| format!("{dial} needs a value"))?;
            match dial.as_str() {
                "--op" => {
                    dials.op = match value.as_str() {
                        "get" => Op::Get,
                        "update" => Op::Update,
                        "insert" => Op::Insert,
                        "scan" => Op::Scan,
                        _ => return Err(format!("--op is get, update, insert or scan, not {value}").into()),
                    }
                }
                "--ops" => dials.ops = value.parse()?,
                "--keys" => dials.keys = value.parse()?,
                "--scan" => dials.scan = value.parse()?,
                _ => return Err(format!("no such dial: {dial}").into()),
            }
        }
        Ok(dials)
    }
}

/// The value of a key after its `generation`-th update.
fn value_of(key: Key8, generation: u64) -> [u8; 8] {
    (key.0 ^ generation.rotate_left(56)).to_le_bytes()
}

/// The keys that operations go to, in order.
fn targets(dials: &Dials, loaded: &[Key8]) -> Result<Vec<Key8>, Box<dyn Error>> {
    if let Op::Insert = dials.op {
        let new = KeySpace::scrambled(2);
        return Ok((0..dials.ops).map(|i| Key8(new.number(i) | NEW)).collect());
    }
    let plan = Workload::new("c".parse()?, dials.keys, dials.ops)
        .distribution(DISTRIBUTION.parse()?)
        .plan()?;
    Ok(plan.client(0).map(|op| loaded[op.key as usize]).collect())
}

/// One operation at `key`; `nth` tells updates apart.
async fn one(
    client: &impl RangeIndex<Key = Key8>,
    dials: &Dials,
    (nth, key): (u64, Key8),
    value: &mut Vec<u8>,
    found: &mut Scan<Key8>,
) -> Result<(), Box<dyn Error>> {
    let as_expected = match dials.op {
        Op::Get => client.get(&key, value).await? && **value == value_of(key, 0),
        Op::Update => client.update(&key, &value_of(key, nth)).await? == Applied::Replaced,
        Op::Insert => client.insert(&key, &value_of(key, 0)).await? == Applied::Inserted,
        Op::Scan => {
            client.scan(&key, dials.scan, found).await?;
            found
                .get(0)
                .is_some_and(|(first, value)| first == key && *value == value_of(key, 0))
        }
    };
    match as_expected {
        true => Ok(()),
        false => Err(format!("operation {nth}, at {key:?}, answered what it must not").into()),
    }
}

async fn run(dials: &Dials, world: &Loopback) -> Result<u64, Box<dyn Error>> {
    let keys = KeySpace::scrambled(1);
    let mut loaded: Vec<_> = (0..dials.keys).map(|i| Key8(keys.number(i) & !NEW)).collect();
    loaded.sort_unstable();
    loaded.dedup();
    let targets = targets(dials, &loaded)?;

    let v = world.connect(0)?;
    let tree = Smart::<Key8>::create_or_open(&v, &Options::new(8)).await?;
    let client = tree.client(&v);
    let mut next = loaded.iter();
    let load = |value: &mut Vec<u8>| {
        let key = *next.next()?;
        value.extend_from_slice(&value_of(key, 0));
        Some(key)
    };
    client.bulk_load(FILL, load).await?;
    tree.warm(&v).await?;

    let (mut value, mut found) = (Vec::new(), Scan::new());
    let mut completed = 0;
    for at in (1..).zip(targets) {
        one(&client, dials, at, &mut value, &mut found).await?;
        completed += 1;
    }
    Ok(completed)
}

#[expect(clippy::print_stdout, reason = "the count is what it is run for")]
fn main() -> Result<(), Box<dyn Error>> {
    let dials = Dials::parse(std::env::args().skip(1))?;
    let world = Loopback::builder().build()?;
    println!("ops {}", block_on(run(&dials, &world))?);
    Ok(())
}
