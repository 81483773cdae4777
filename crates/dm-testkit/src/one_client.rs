//! One client's operations over a loaded index, for counting its own instructions: `cargo xtask bench client`.

use std::error::Error;

use dm_index::{Applied, Key8, RangeIndex, Scan};
use dm_workload::{KeySpace, Workload};

/// The fill of loaded leaves, about what random inserts leave behind.
const FILL: f64 = 0.7;
const DISTRIBUTION: &str = "zipf:0.99";
/// Inserted keys are above all others, because those are loaded without their top bit.
const NEW: u64 = 1 << 63;

/// The operations of one client on an index of 8-byte keys and 8-byte values, with every answer checked.
///
/// Gets, updates and scans begin at loaded keys, which are drawn by Zipf's law (0.99). Inserts use new keys
/// only. They are scattered over a range without keys, so its leaves fill and split as in a growing tree,
/// below as many levels as the loaded keys make. Drawing, checking and counting are the harness's work; two
/// runs with different `--ops` differ only by the operations.
#[derive(Debug)]
pub struct OneClient {
    op: Op,
    ops: u64,
    scan: usize,
    /// The loaded keys, ascending.
    loaded: Vec<Key8>,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Get,
    Update,
    Insert,
    Scan,
}

impl OneClient {
    /// Reads the command line: `--op get|update|insert|scan --ops 1000000 [--keys 1000000] [--scan 100]`.
    ///
    /// # Errors
    /// Returns an error for an unknown option, or one with no value or a bad one.
    pub fn from_args(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let (mut op, mut ops, mut keys, mut scan) = (Op::Get, 100_000, 1_000_000, 100);
        while let Some(dial) = words.next() {
            let value = words.next().ok_or_else(|| format!("{dial} needs a value"))?;
            match dial.as_str() {
                "--op" => {
                    op = match value.as_str() {
                        "get" => Op::Get,
                        "update" => Op::Update,
                        "insert" => Op::Insert,
                        "scan" => Op::Scan,
                        _ => return Err(format!("--op is get, update, insert or scan, not {value}").into()),
                    }
                }
                "--ops" => ops = value.parse()?,
                "--keys" => keys = value.parse()?,
                "--scan" => scan = value.parse()?,
                _ => return Err(format!("no such dial: {dial}").into()),
            }
        }
        let space = KeySpace::scrambled(1);
        let mut loaded: Vec<_> = (0..keys).map(|i| Key8(space.number(i) & !NEW)).collect();
        loaded.sort_unstable();
        loaded.dedup();
        Ok(Self {
            op,
            ops,
            scan,
            loaded,
        })
    }

    /// Fills an empty index with the keys of the operations.
    ///
    /// # Errors
    /// The same as the index's.
    pub async fn load(&self, client: &impl RangeIndex<Key = Key8>) -> Result<(), Box<dyn Error>> {
        let mut next = self.loaded.iter();
        let load = |value: &mut Vec<u8>| {
            let key = *next.next()?;
            value.extend_from_slice(&value_of(key, 0));
            Some(key)
        };
        client.bulk_load(FILL, load).await?;
        Ok(())
    }

    /// Runs the operations; returns their number.
    ///
    /// # Errors
    /// The index's errors, and any wrong answer.
    pub async fn run(&self, client: &impl RangeIndex<Key = Key8>) -> Result<u64, Box<dyn Error>> {
        let (mut value, mut found) = (Vec::new(), Scan::new());
        let mut completed = 0;
        for at in (1..).zip(self.targets()?) {
            self.one(client, at, &mut value, &mut found).await?;
            completed += 1;
        }
        Ok(completed)
    }

    /// Returns the keys of the operations, in order.
    fn targets(&self) -> Result<Vec<Key8>, Box<dyn Error>> {
        if let Op::Insert = self.op {
            let new = KeySpace::scrambled(2);
            return Ok((0..self.ops).map(|i| Key8(new.number(i) | NEW)).collect());
        }
        let plan = Workload::new("c".parse()?, self.loaded.len() as u64, self.ops)
            .distribution(DISTRIBUTION.parse()?)
            .plan()?;
        Ok(plan.client(0).map(|op| self.loaded[op.key as usize]).collect())
    }

    /// Runs one operation at `key`; `nth` distinguishes updates.
    async fn one(
        &self,
        client: &impl RangeIndex<Key = Key8>,
        (nth, key): (u64, Key8),
        value: &mut Vec<u8>,
        found: &mut Scan<Key8>,
    ) -> Result<(), Box<dyn Error>> {
        let as_expected = match self.op {
            Op::Get => client.get(&key, value).await? && **value == value_of(key, 0),
            Op::Update => client.update(&key, &value_of(key, nth)).await? == Applied::Replaced,
            Op::Insert => client.insert(&key, &value_of(key, 0)).await? == Applied::Inserted,
            Op::Scan => {
                client.scan(&key, self.scan, found).await?;
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
}

/// Returns the value of a key after its `generation`-th update.
fn value_of(key: Key8, generation: u64) -> [u8; 8] {
    (key.0 ^ generation.rotate_left(56)).to_le_bytes()
}
