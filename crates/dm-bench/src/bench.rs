//! Measurements without a command line.

use dm_workload::{Mix, WorkloadError};

use crate::report::Row;
use crate::{BenchIndex, Driver, Fabric, Origin, Point, RunError, Setting};

/// A measurement of one index: every workload with every number of clients.
///
/// ```
/// use dm_bench::{Bench, Driver, Fabric};
/// # use dm_bench::BenchIndex;
/// # fn measure<MyIndex: BenchIndex<Options = usize>>() -> Result<(), Box<dyn std::error::Error>> {
/// let rows = Bench::new("sim:cx5-ib".parse()?)
///     .workload("c")?
///     .clients([16, 64, 256])
///     .run("mine", || Driver::<MyIndex>::new(|at| Ok(at.value_bytes)))?;
/// for row in rows {
///     println!("{} clients: {:.1} Mops, at most {:?}", row.clients, row.mops, row.bound_mops);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is measured until `run` is called"]
pub struct Bench {
    setting: Setting,
    mixes: Vec<Mix>,
    clients: Vec<u32>,
}

impl Bench {
    /// Makes a measurement with the parameters of [`Setting::new`].
    pub fn new(fabric: Fabric) -> Self {
        Self {
            setting: Setting::new(fabric),
            mixes: Vec::new(),
            clients: Vec::new(),
        }
    }

    /// Adds a workload: `a` to `f`, `load`, or shares such as `get:50,upsert:50`. If none is added, the workload is the
    /// setting's mix, by default `c`.
    ///
    /// # Errors
    /// Returns [`WorkloadError`] if there is no such workload.
    pub fn workload(mut self, mix: &str) -> Result<Self, WorkloadError> {
        self.mixes.push(mix.parse()?);
        Ok(self)
    }

    /// Measures with these numbers of client threads, over all compute nodes.
    pub fn clients(mut self, clients: impl IntoIterator<Item = u32>) -> Self {
        self.clients.extend(clients);
        self
    }

    /// Changes other parameters. [`Bench::run`] overrides two of them: each workload has its usual distribution, and
    /// the size of a key is that of the index's keys.
    pub fn with(mut self, change: impl FnOnce(&mut Setting)) -> Self {
        change(&mut self.setting);
        self
    }

    /// Measures an index. Returns a row for each pair of a workload and a number of clients, and calls `driver` once
    /// for each row.
    ///
    /// # Errors
    /// Returns the [`RunError`] of the first point that has no result, and [`RunError::Bad`] if a number of a row is
    /// not finite.
    pub fn run<I: BenchIndex>(
        self,
        name: &str,
        driver: impl Fn() -> Driver<I>,
    ) -> Result<Vec<Row>, RunError> {
        let Self {
            setting,
            mut mixes,
            mut clients,
        } = self;
        if mixes.is_empty() {
            mixes.push(setting.mix);
        }
        if clients.is_empty() {
            clients.push(setting.clients);
        }
        let (mut rows, origin) = (Vec::new(), Origin::here(None));
        for mix in mixes {
            for &clients in &clients {
                let setting = Setting {
                    mix,
                    distribution: mix.usual_distribution(),
                    clients,
                    key_bytes: <I::Key as dm_index::KeyBytes>::LEN,
                    ..setting.clone()
                };
                let point = Point::of(name, driver(), setting);
                let row = Row::planned(&point, &origin).finished(&point.run()?);
                rows.push(row.map_err(|column| RunError::Bad(format!("{column} is not a finite number")))?);
            }
        }
        Ok(rows)
    }
}
