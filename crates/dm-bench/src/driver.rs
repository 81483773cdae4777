//! Drivers: an index together with its options for each setting, and with an estimate of its memory.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

use dm_index::{KeyBytes, RangeIndex};
use dm_sim::{CostModel, Sim};
use dm_verbs::{Caps, Env};
use indicatif::ProgressBar;

use crate::run::{Ready, RunError, bad, load, measure, ready};
use crate::{AnyEndpoint, BenchIndex, BenchKey, Checked, Measured, Point, Setting};

type MakeOptions<I> = dyn Fn(&Setting) -> Result<<I as BenchIndex>::Options, String> + Send + Sync;

/// An index together with its options for each setting, and with an estimate of its memory.
pub struct Driver<I: BenchIndex> {
    options: Box<MakeOptions<I>>,
    pub(crate) entry_bytes: Box<dyn Fn(&Setting) -> u64 + Send + Sync>,
    block_bytes: Box<dyn Fn(&Setting) -> u64 + Send + Sync>,
}

impl<I: BenchIndex> fmt::Debug for Driver<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = <I::Key as KeyBytes>::LEN;
        f.debug_struct("Driver")
            .field("key_bytes", &keys)
            .finish_non_exhaustive()
    }
}

impl<I: BenchIndex> Driver<I> {
    /// Makes a driver of an index whose options for a setting are `options`. An error is a message for the user.
    ///
    /// Simulated points that differ only in their clients and in the mix of their operations can share one loaded
    /// index. So the setting that `options` gets does not have those of the point: it has 0 clients, for example, and
    /// the mix of YCSB C.
    pub fn new(options: impl Fn(&Setting) -> Result<I::Options, String> + Send + Sync + 'static) -> Self {
        Self {
            options: Box::new(options),
            entry_bytes: Box::new(|at| (at.key_bytes + at.value_bytes + 8) as u64 * 4),
            block_bytes: Box::new(|_| 0),
        }
    }

    /// Sets a function that returns the maximum number of bytes that an entry needs on memory nodes. The default is
    /// four times the sum of the key, the value and 8 bytes.
    #[must_use]
    pub fn entry_bytes(mut self, bytes: impl Fn(&Setting) -> u64 + Send + Sync + 'static) -> Self {
        self.entry_bytes = Box::new(bytes);
        self
    }

    /// Sets a function that returns the size of the block that each item has outside of the leaves. By default, items
    /// have no blocks, and the size is 0.
    #[must_use]
    pub fn block_bytes(mut self, bytes: impl Fn(&Setting) -> u64 + Send + Sync + 'static) -> Self {
        self.block_bytes = Box::new(bytes);
        self
    }

    pub(crate) fn options(&self, setting: &Setting) -> Result<I::Options, RunError> {
        (self.options)(&setting.of_load()).map_err(RunError::Bad)
    }

    /// Returns the size of a memory node in bytes: its part of a generous estimate of the index's memory, and four
    /// chunks for each compute node and for one more, because compute nodes do not fill all of their chunks.
    pub(crate) fn memory_bytes(&self, at: &Setting) -> u64 {
        let entries = at.entry_bytes((self.entry_bytes)(at)) / u64::from(at.memory_nodes.max(1));
        let chunks = (u64::from(at.compute_nodes) + 1) * 4 * dm_alloc::DEFAULT_CHUNK_BYTES;
        let bytes = entries.saturating_add(chunks);
        bytes.checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX)
    }
}

/// The object-safe form of [`Driver`], so that drivers of different indexes have one type.
pub(crate) trait Drive: fmt::Debug + Send + Sync {
    fn key_bytes(&self) -> usize;
    /// Returns the size of a memory node in bytes.
    fn memory_bytes(&self, setting: &Setting) -> u64;
    /// Returns the size of the block that each item has outside of the leaves, or 0.
    fn block_bytes(&self, setting: &Setting) -> u64;
    fn measure(&self, point: &Point, progress: &ProgressBar) -> Result<Measured, RunError>;
    /// Loads the index on a simulated testbed.
    fn ready(&self, setting: &Setting) -> Result<Box<dyn Ready>, RunError>;
    fn trips(&self, setting: &Setting, caps: Caps) -> Result<Trips, RunError>;
    /// Opens the index, or loads a new one, and checks it.
    fn check<'a>(
        &'a self,
        v: &'a AnyEndpoint,
        setting: &'a Setting,
        loads: bool,
        sweeps: bool,
    ) -> Pin<Box<dyn Future<Output = Result<Checked, RunError>> + 'a>>;
    /// Creates or opens the index, and drops the handle again.
    #[cfg(feature = "ib")]
    fn touch<'a>(
        &'a self,
        v: &'a AnyEndpoint,
        setting: &'a Setting,
        create: bool,
    ) -> Pin<Box<dyn Future<Output = Result<(), RunError>> + 'a>>;
}

/// Mean round trips of a get, an update and an insert, with warm caches and without contention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trips {
    /// The mean round trips of a get.
    pub get: f64,
    /// The mean round trips of an update.
    pub update: f64,
    /// The mean round trips of an insert.
    pub insert: f64,
}

impl<I: BenchIndex> Drive for Driver<I> {
    fn key_bytes(&self) -> usize {
        <I::Key as KeyBytes>::LEN
    }

    fn memory_bytes(&self, setting: &Setting) -> u64 {
        Self::memory_bytes(self, setting)
    }

    fn block_bytes(&self, setting: &Setting) -> u64 {
        (self.block_bytes)(setting)
    }

    fn measure(&self, point: &Point, progress: &ProgressBar) -> Result<Measured, RunError> {
        measure(self, point, progress)
    }

    fn ready(&self, setting: &Setting) -> Result<Box<dyn Ready>, RunError> {
        ready(self, setting)
    }

    fn trips(&self, setting: &Setting, caps: Caps) -> Result<Trips, RunError> {
        let bytes = self.memory_bytes(setting);
        let mut model = CostModel::cx6_roce();
        model.caps = Caps {
            host_bytes: bytes,
            ..caps
        };
        let sim = Sim::builder(model)
            .compute_nodes(1)
            .memory_nodes(1)
            .memory_bytes(bytes)
            .build()
            .map_err(bad)?;
        let options = self.options(setting)?;
        let result: Rc<RefCell<Option<Result<Trips, RunError>>>> = Rc::default();
        let (told, setting) = (Rc::clone(&result), setting.clone());
        sim.spawn(0, 0, async move |v| {
            let trips = trips::<I>(&AnyEndpoint::Sim(v), &options, &setting).await;
            told.replace(Some(trips));
        });
        sim.run();
        result.take().unwrap_or_else(|| Err(bad("it did not end")))
    }

    fn check<'a>(
        &'a self,
        v: &'a AnyEndpoint,
        setting: &'a Setting,
        loads: bool,
        sweeps: bool,
    ) -> Pin<Box<dyn Future<Output = Result<Checked, RunError>> + 'a>> {
        Box::pin(async move {
            let options = self.options(setting)?;
            let index: I = match loads {
                true => load(v, &options, setting).await?,
                false => I::open(v, &options).await?,
            };
            let checked = index.check(v, sweeps).await?;
            checked.ok_or_else(|| bad("this index has no check"))
        })
    }

    #[cfg(feature = "ib")]
    fn touch<'a>(
        &'a self,
        v: &'a AnyEndpoint,
        setting: &'a Setting,
        create: bool,
    ) -> Pin<Box<dyn Future<Output = Result<(), RunError>> + 'a>> {
        Box::pin(async move {
            let options = self.options(setting)?;
            match create {
                true => I::create(v, &options).await?,
                false => I::open(v, &options).await?,
            };
            Ok(())
        })
    }
}

/// Number of operations of each kind. It is so small that leaves rarely split.
const OPS: u64 = 40;

async fn trips<I: BenchIndex>(
    v: &AnyEndpoint,
    options: &I::Options,
    at: &Setting,
) -> Result<Trips, RunError> {
    let handle: I = load(v, options, at).await?;
    handle.warm(v).await?;
    let (index, space) = (handle.client(v), at.key_space());
    let value = vec![7; at.value_bytes];
    let mut read = Vec::new();
    let mut trips = [0.0; 3];
    for (kind, sum) in trips.iter_mut().enumerate() {
        for i in 0..OPS {
            let before = v.meter().counters();
            // New keys have larger numbers than the loaded keys.
            let number = if kind == 2 {
                at.keys + i
            } else {
                i * (at.keys / OPS)
            };
            let key = I::Key::nth(&space, number);
            match kind {
                0 => index.get(&key, &mut read).await.map(drop)?,
                1 => index.update(&key, &value).await.map(drop)?,
                _ => index.insert(&key, &value).await.map(drop)?,
            }
            let cost = v.meter().counters() - before;
            *sum += cost.round_trips as f64 / OPS as f64;
        }
    }
    let [get, update, insert] = trips;
    Ok(Trips { get, update, insert })
}
