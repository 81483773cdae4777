//! Runs one client's operations on a loaded index. `cargo xtask bench client` uses it to count the client's
//! instructions.

use std::error::Error;
use std::fmt::Debug;

use dm_index::{Applied, Exchange, IndexError, Key8, RangeIndex, Scan};
use dm_indirect::Items;
use dm_loopback::{BuildError, Endpoint, Loopback, turns};
use dm_verbs::{Control, Env, Nanos, Verbs};
use dm_workload::{KeySpace, Workload};

/// The fill of loaded leaves. Inserts in random order lead to about the same fill.
const FILL: f64 = 0.7;
const DISTRIBUTION: &str = "zipf:0.99";
/// Inserted keys have this bit and loaded keys do not, so inserted keys are larger.
const NEW: u64 = 1 << 63;
/// Items are inserted one by one before the measurement, so there are fewer of them.
const ITEMS_MAX: usize = 10_000;
const ITEM_KEY_BYTES: usize = 32;
const ITEM_VALUE_BYTES: usize = 100;

/// The operations of one client on an index of 8-byte keys and 8-byte values, with every answer checked (only the first
/// entry of a scan).
///
/// Gets, updates and scans begin at loaded keys, which are drawn by Zipf's law (0.99). Gets of absent keys use the
/// numbers that follow such keys. Inserts use new keys only. These are scattered over a range without loaded keys, so
/// leaves fill and split as in a growing tree. Removes take the loaded keys in random order. Items have keys of 32
/// bytes and values of 100. Two runs with different `--ops` differ only by the operations and by the work of the
/// harness, which draws and checks them.
///
/// By default, a verb completes when the executor polls again, as on a network card. Then the run fails if the executor
/// did not poll exactly once for each round trip. Inserts, removes and updates of items may take more polls, because
/// they await housekeeping verbs. With `--complete at-first-poll`, a verb completes at once, and polls are not checked.
#[derive(Debug)]
pub struct OneClient {
    op: Op,
    ops: u64,
    scan: usize,
    pending: bool,
    /// The loaded keys, ascending.
    loaded: Vec<Key8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Get,
    /// A get of an absent key.
    Absent,
    /// A get with read delegation, by which a client may take the answer of another client's get of the same key.
    SharedGet,
    Update,
    Insert,
    Remove,
    Scan,
    ItemGet,
    ItemUpdate,
}

impl Op {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "get" => Self::Get,
            "absent" => Self::Absent,
            "shared-get" => Self::SharedGet,
            "update" => Self::Update,
            "insert" => Self::Insert,
            "remove" => Self::Remove,
            "scan" => Self::Scan,
            "item-get" => Self::ItemGet,
            "item-update" => Self::ItemUpdate,
            _ => return None,
        })
    }
}

/// The counts of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunCounts {
    /// Operations that completed.
    pub ops: u64,
    /// Polls of the executor after the one in which the first operation began.
    pub polls: u64,
}

impl OneClient {
    /// A period of reclamation that is longer than a run. A client whose instructions are counted runs about fifty
    /// times slower, so an ordinary period would add fifty times as many rounds to the count. Each operation's own work
    /// for reclamation is still counted.
    pub const NEVER_DUE: Nanos = Nanos(24 * 3600 * 1_000_000_000);

    /// Reads the command line: `[--op get] [--ops 100000] [--keys 1000000] [--scan 100] [--complete later]`. The values
    /// shown are the defaults.
    ///
    /// # Errors
    /// Returns an error if an option is unknown, has no value, or has an invalid value.
    pub fn from_args(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let (mut op, mut ops, mut keys, mut scan) = (Op::Get, 100_000, 1_000_000, 100);
        let mut pending = true;
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--op" => op = Op::named(&value).ok_or_else(|| format!("no such operation: {value}"))?,
                "--ops" => ops = value.parse()?,
                "--keys" => keys = value.parse()?,
                "--scan" => scan = value.parse()?,
                "--complete" => {
                    pending = match value.as_str() {
                        "at-first-poll" => false,
                        "later" => true,
                        _ => {
                            return Err(
                                format!("--complete must be at-first-poll or later, not {value}").into()
                            );
                        }
                    }
                }
                _ => return Err(format!("unknown argument: {flag}").into()),
            }
        }
        let space = KeySpace::scrambled(1);
        let mut loaded: Vec<_> = (0..keys).map(|i| Key8(space.number(i) & !NEW)).collect();
        loaded.sort_unstable();
        loaded.dedup();
        if matches!(op, Op::ItemGet | Op::ItemUpdate) {
            loaded.truncate(ITEMS_MAX);
        }
        Ok(Self {
            op,
            ops,
            scan,
            pending,
            loaded,
        })
    }

    /// Makes the world; the command line selects when verbs complete.
    ///
    /// # Errors
    /// Returns the builder's errors.
    pub fn world(&self) -> Result<Loopback, BuildError> {
        // With this clock no READ counts as too slow, whatever else the machine does.
        let builder = Loopback::builder().counted_clock(Nanos(100));
        match self.pending {
            true => builder.suspend_every_wait().build(),
            false => builder.build(),
        }
    }

    /// Returns whether the index must hold items.
    pub fn items(&self) -> bool {
        matches!(self.op, Op::ItemGet | Op::ItemUpdate)
    }

    /// Returns whether read delegation must be on.
    pub fn shares_reads(&self) -> bool {
        self.op == Op::SharedGet
    }

    /// Fills an empty index with the keys that are present before the operations.
    ///
    /// # Errors
    /// Returns the index's errors.
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

    /// Runs the operations on a loaded index.
    ///
    /// # Errors
    /// Returns the index's errors, and an error for a wrong answer or a wrong number of polls.
    pub async fn run(
        &self,
        v: &Endpoint,
        client: &impl RangeIndex<Key = Key8>,
    ) -> Result<RunCounts, Box<dyn Error>> {
        let (mut value, mut found) = (Vec::new(), Scan::new());
        let targets = self.targets()?;
        // The first operation of a client enrols it, and awaits housekeeping verbs for this.
        client.get(&Key8(0), &mut value).await?;
        let lap = Lap::begin(v);
        for (nth, key) in (1..).zip(&targets) {
            let as_expected = match self.op {
                Op::Absent => !client.get(key, &mut value).await?,
                Op::Update => client.update(key, &value_of(*key, nth)).await? == Applied::Replaced,
                Op::Insert => client.insert(key, &value_of(*key, 0)).await? == Applied::Inserted,
                Op::Remove => client.remove(key).await? == Applied::Removed,
                Op::Scan => {
                    client.scan(key, self.scan, &mut found).await?;
                    found
                        .get(0)
                        .is_some_and(|(first, value)| first == *key && *value == value_of(*key, 0))
                }
                _ => client.get(key, &mut value).await? && *value == value_of(*key, 0),
            };
            check(as_expected, nth, key)?;
        }
        self.ran(targets.len(), lap)
    }

    /// Inserts items, awaits `warm`, and runs the operations on the items.
    ///
    /// # Errors
    /// Returns the same errors as [`OneClient::run`].
    pub async fn run_items<V: Verbs + Control, I: Exchange<Key = Key8>>(
        &self,
        v: &Endpoint,
        items: &Items<'_, V, I>,
        warm: impl Future<Output = Result<u64, IndexError>>,
    ) -> Result<RunCounts, Box<dyn Error>> {
        for key in &self.loaded {
            items.insert(&item_key(*key), &item_value(*key, 0)).await?;
        }
        warm.await?;
        let mut value = Vec::new();
        let targets = self.targets()?;
        let lap = Lap::begin(v);
        for (nth, key) in (1..).zip(&targets) {
            let name = item_key(*key);
            let as_expected = match self.op {
                Op::ItemUpdate => items.update(&name, &item_value(*key, nth)).await? == Applied::Replaced,
                _ => items.get(&name, &mut value).await? && *value == item_value(*key, 0),
            };
            check(as_expected, nth, key)?;
        }
        self.ran(targets.len(), lap)
    }

    /// Returns the keys of the operations, in order.
    fn targets(&self) -> Result<Vec<Key8>, Box<dyn Error>> {
        match self.op {
            Op::Insert => {
                let new = KeySpace::scrambled(2);
                Ok((0..self.ops).map(|i| Key8(new.number(i) | NEW)).collect())
            }
            Op::Remove => {
                let mut keys = self.loaded.clone();
                // Loaded keys are random numbers, so an order by their low bytes is random.
                keys.sort_unstable_by_key(|key| key.0.swap_bytes());
                if (keys.len() as u64) < self.ops {
                    return Err(format!("{} removes of {} keys", self.ops, keys.len()).into());
                }
                keys.truncate(self.ops as usize);
                Ok(keys)
            }
            _ => {
                let plan = Workload::new("c".parse()?, self.loaded.len() as u64, self.ops)
                    .distribution(DISTRIBUTION.parse()?)
                    .plan()?;
                let keys = plan.client(0).map(|op| self.loaded[op.key as usize]);
                Ok(match self.op {
                    Op::Absent => keys.map(|key| self.beside(key)).collect(),
                    _ => keys.collect(),
                })
            }
        }
    }

    /// Returns the smallest key above `key` that is not loaded.
    fn beside(&self, key: Key8) -> Key8 {
        let mut absent = Key8(key.0 + 1);
        while self.loaded.binary_search(&absent).is_ok() {
            absent.0 += 1;
        }
        absent
    }

    fn ran(&self, ops: usize, lap: Lap<'_>) -> Result<RunCounts, Box<dyn Error>> {
        let (polls, round_trips) = lap.end();
        // Allocations and merges await housekeeping verbs, which are not counted as round trips.
        let more = match self.op {
            Op::Insert | Op::Remove | Op::ItemUpdate => round_trips,
            _ => 0,
        };
        let expected = round_trips..=round_trips + more;
        if self.pending && !expected.contains(&polls) {
            return Err(format!(
                "the executor polled {polls} times for {round_trips} round trips; {expected:?} were expected"
            )
            .into());
        }
        let ops = ops as u64;
        Ok(RunCounts { ops, polls })
    }
}

/// The counts of a client when the operations began.
struct Lap<'v> {
    v: &'v Endpoint,
    turns: u32,
    round_trips: u64,
}

impl<'v> Lap<'v> {
    fn begin(v: &'v Endpoint) -> Self {
        Self {
            v,
            turns: turns(),
            round_trips: v.meter().counters().round_trips,
        }
    }

    /// Returns the executor's polls and the client's round trips since [`Lap::begin`].
    fn end(self) -> (u64, u64) {
        let polls = turns().wrapping_sub(self.turns);
        let round_trips = self.v.meter().counters().round_trips - self.round_trips;
        (u64::from(polls), round_trips)
    }
}

fn check(as_expected: bool, nth: u64, key: &impl Debug) -> Result<(), Box<dyn Error>> {
    match as_expected {
        true => Ok(()),
        false => Err(format!("operation {nth}, at {key:?}, answered what it must not").into()),
    }
}

/// Returns the value that update number `generation` of the run writes to `key`. Number 0 stands for the first value of
/// a key.
fn value_of(key: Key8, generation: u64) -> [u8; 8] {
    (key.0 ^ generation.rotate_left(56)).to_le_bytes()
}

fn item_key(key: Key8) -> [u8; ITEM_KEY_BYTES] {
    let mut name = [0x5a; ITEM_KEY_BYTES];
    name[..8].copy_from_slice(&key.0.to_be_bytes());
    name
}

fn item_value(key: Key8, generation: u64) -> [u8; ITEM_VALUE_BYTES] {
    let mut value = [0xa5; ITEM_VALUE_BYTES];
    value[..8].copy_from_slice(&value_of(key, generation));
    value
}

/// Defines the program that `cargo xtask bench client` measures, for one index: `one_client!(sherman, Sherman)`.
#[macro_export]
macro_rules! one_client {
    ($index:ident, $tree:ident) => {
        async fn run(
            script: &$crate::OneClient,
            v: &dm_loopback::Endpoint,
        ) -> Result<$crate::RunCounts, Box<dyn std::error::Error>> {
            let mut options = match script.items() {
                true => $index::Options::items(),
                false => $index::Options::new(8),
            };
            options.reclaim.period = $crate::OneClient::NEVER_DUE;
            if script.shares_reads() {
                options.rdwc = $index::Rdwc::ON;
            }
            let tree = $index::$tree::<$index::Key8>::create_or_open(v, &options).await?;
            if script.items() {
                let items = tree.items(v, $index::leading_bytes)?;
                return script.run_items(v, &items, tree.warm(v)).await;
            }
            let client = tree.client(v);
            script.load(&client).await?;
            tree.warm(v).await?;
            script.run(v, &client).await
        }

        #[expect(clippy::print_stdout, reason = "the counts are what it is run for")]
        fn main() -> Result<(), Box<dyn std::error::Error>> {
            let script = $crate::OneClient::from_args(std::env::args().skip(1))?;
            let world = script.world()?;
            let v = world.connect(0)?;
            let ran = dm_loopback::block_on(run(&script, &v))?;
            println!("ops {}\npolls {}", ran.ops, ran.polls);
            Ok(())
        }
    };
}
