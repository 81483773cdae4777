//! Runs of locks alone: clients take and release locks of one memory node, without a tree (Sherman Figs. 2 and 16).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::str::FromStr;

use dm_lock::{GlobalLockTable, Local, LockError, LockId, LockOptions, LockPlace, Locks, ReleaseBy};
use dm_sim::{Endpoint, RunEnd, Sim};
use dm_verbs::{Env, NodeId, Place, RemotePtr};
use dm_workload::{OpStream, Workload};
use hdrhistogram::Histogram;

use super::cases::Figures;
use super::metric::Metric;
use super::setup::Resolved;
use super::window::Window;
use dm_bench::RunError;

/// A kind of locking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockWay {
    /// CAS on host memory, released by fetch-and-add, as in FG.
    HostFaa,
    /// CAS on host memory, released by WRITE.
    Host,
    /// CAS on on-chip memory, released by WRITE.
    OnChip,
    /// Local locks in front of the remote ones, without a queue.
    Hierarchical,
    /// Local locks in front of the remote ones, with a queue for each lock.
    WaitQueue,
    /// The locks of `WaitQueue`, with handover: a remote lock passes to the next client in the queue, up to four times
    /// in a row.
    Handover,
}

const WAYS: [(&str, LockWay); 6] = [
    ("host-faa", LockWay::HostFaa),
    ("host", LockWay::Host),
    ("+on-chip", LockWay::OnChip),
    ("+hierarchical", LockWay::Hierarchical),
    ("+wait-queue", LockWay::WaitQueue),
    ("+handover", LockWay::Handover),
];

impl FromStr for LockWay {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let names = || WAYS.map(|(name, _)| name).join(", ");
        let found = WAYS.iter().find(|(name, _)| *name == s);
        found
            .map(|(_, way)| *way)
            .ok_or_else(|| format!("no way of locking {s:?}; there are {}", names()))
    }
}

impl LockWay {
    /// Returns the name in the words of Sherman's paper.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::HostFaa => "CAS, released by FAA",
            Self::Host => "CAS, released by WRITE",
            Self::OnChip => "+ on-chip locks",
            Self::Hierarchical => "+ local locks",
            Self::WaitQueue => "+ wait queues",
            Self::Handover => "+ handover",
        }
    }

    fn options(self) -> LockOptions {
        LockOptions {
            local: match self {
                Self::HostFaa | Self::Host | Self::OnChip => Local::Off,
                Self::Hierarchical => Local::Spin,
                Self::WaitQueue => Local::Queue { handover_max: 0 },
                Self::Handover => Local::Queue {
                    handover_max: dm_lock::DEFAULT_HANDOVER_MAX,
                },
            },
            place: match self {
                Self::HostFaa | Self::Host => LockPlace::Host,
                _ => LockPlace::Chip,
            },
            release: match self {
                Self::HostFaa => ReleaseBy::Faa,
                _ => ReleaseBy::Auto,
            },
            ..LockOptions::default()
        }
    }

    fn table(self, locks: u32) -> GlobalLockTable {
        match self.options().place {
            LockPlace::Chip => GlobalLockTable::on_chip(1, locks),
            LockPlace::Host => {
                let start = RemotePtr::new(NodeId(0), 4096).expect("within 48 bits");
                GlobalLockTable::new([Place::from(start)], locks)
            }
        }
    }
}

/// Returns one address for each lock of the table, in a scattered order.
fn addresses(table: &GlobalLockTable) -> Vec<RemotePtr> {
    let mut found = vec![false; table.words_per_node() as usize];
    let mut addresses = Vec::with_capacity(found.len());
    let mut offset = 1 << 20;
    while addresses.len() < found.len() {
        let at = RemotePtr::new(NodeId(0), offset).expect("within 48 bits");
        offset += 1024;
        let Some(LockId { index, .. }) = table.lock_of(at) else {
            continue;
        };
        if !std::mem::replace(&mut found[index as usize], true) {
            addresses.push(at);
        }
    }
    addresses
}

/// The counts of the clients within the measured time.
struct Seen {
    window: Window,
    latency: RefCell<Histogram<u64>>,
    failed: Cell<Option<LockError>>,
}

/// Runs the kind of locking named `series`.
///
/// # Errors
/// Returns [`RunError`] if there is no such kind of locking, if the setup has no locks, if the testbed or the workload
/// cannot be built, or if a lock fails or is never released.
pub(crate) fn run(series: &str, setup: &Resolved, seed: u64) -> Result<Figures, RunError> {
    let bad = |e: &dyn std::fmt::Display| RunError::Bad(e.to_string());
    let way: LockWay = series.parse().map_err(|e: String| bad(&e))?;
    if setup.locks == 0 {
        return Err(bad(&"the experiment has no locks: set `locks` to 1 or more"));
    }
    let sim = Sim::builder(setup.model.clone())
        .compute_nodes(setup.compute_nodes)
        .memory_nodes(1)
        .colocated(setup.colocated)
        .seed(seed)
        .build()
        .map_err(|e| bad(&e))?;
    let table = way.table(setup.locks);
    let addresses: Rc<[RemotePtr]> = addresses(&table).into();
    let clients = setup.clients * setup.coroutines;
    let reads = "c".parse().map_err(|e| bad(&e))?;
    // The key numbers of the stream select the lock. The stream has more operations than the measured time allows.
    let plan = Workload::new(reads, u64::from(setup.locks), u64::MAX / 2)
        .distribution(setup.distribution)
        .clients(clients)
        .seed(seed)
        .plan()
        .map_err(|e| bad(&e))?;
    let seen = Rc::new(Seen {
        window: Window::new(&sim, setup.window_ns),
        latency: RefCell::new(Histogram::new(3).map_err(|e| bad(&e))?),
        failed: Cell::new(None),
    });
    let locks: Vec<Rc<Locks>> = (0..setup.compute_nodes)
        .map(|_| Rc::new(Locks::new(way.options(), table.clone())))
        .collect();
    for client in 0..clients {
        let thread = client / setup.coroutines;
        let cn = (thread % u32::from(setup.compute_nodes)) as u16;
        let local = u16::try_from(thread / u32::from(setup.compute_nodes)).map_err(|e| bad(&e))?;
        let (locks, addresses, seen) = (locks[usize::from(cn)].clone(), addresses.clone(), seen.clone());
        let stream = plan.client(client);
        sim.spawn(cn, local, move |v| client_loop(v, stream, locks, addresses, seen));
    }
    if sim.run() != RunEnd::Finished {
        return Err(RunError::Bad("a lock was never released".to_owned()));
    }
    if let Some(e) = seen.failed.get() {
        return Err(bad(&e));
    }
    Ok(figures(&sim, &seen))
}

async fn client_loop(v: Endpoint, stream: OpStream, locks: Rc<Locks>, at: Rc<[RemotePtr]>, seen: Rc<Seen>) {
    for op in stream {
        let began = v.now();
        if !seen.window.lets_begin(began) {
            return;
        }
        // A key of the stream is below the number of loaded keys, which is the number of locks.
        let address = at[op.key as usize];
        let result = match locks.lock(&v, address).await {
            Ok(guard) => guard.release().await,
            Err(e) => Err(e),
        };
        if let Err(e) = result {
            seen.failed.set(Some(e));
            return;
        }
        let ended = v.now();
        if ended >= seen.window.from && ended < seen.window.to {
            let took = (ended - began).0;
            seen.latency
                .borrow_mut()
                .record(took)
                .expect("an auto-resizing histogram takes any value");
        }
    }
}

fn figures(sim: &Sim, seen: &Seen) -> Figures {
    let (latency, meter) = (seen.latency.borrow(), sim.meter());
    let micros = |q| latency.value_at_quantile(q) as f64 / 1e3;
    // The meter counts attempts from the start, but `Seen` counts locks only within the measured time. So the meter's
    // numbers are divided by the number of locks that were taken from the start.
    let taken = (meter.cas + meter.masked_cas - meter.lock_retries + meter.handovers).max(1) as f64;
    let metrics = [
        (
            Metric::Mops,
            latency.len() as f64 * 1e3 / (seen.window.to - seen.window.from).0 as f64,
        ),
        (Metric::P50, micros(0.5)),
        (Metric::P90, micros(0.9)),
        (Metric::P99, micros(0.99)),
        (Metric::LockRetries, meter.lock_retries as f64 / taken),
        (Metric::Handovers, 100.0 * meter.handovers as f64 / taken),
        (Metric::Operations, latency.len() as f64),
    ];
    Figures {
        metrics: metrics.into_iter().collect(),
        ..Figures::default()
    }
    .with_busiest(&seen.window)
}

#[cfg(test)]
mod tests {
    use super::super::setup::Setup;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_lock_has_one_address() {
        let table = LockWay::Host.table(64);
        let at = addresses(&table);
        let locks: HashSet<_> = at.iter().map(|at| table.lock_of(*at).unwrap().index).collect();
        assert_eq!((at.len(), locks.len()), (64, 64));
    }

    #[test]
    fn a_setup_without_locks_is_refused() {
        let setup = Setup {
            window_ms: Some(1.0),
            ..Setup::without_network()
        };
        let refused = run("host", &setup.resolve(None).unwrap(), 1);
        assert!(
            matches!(&refused, Err(RunError::Bad(why)) if why.contains("`locks`")),
            "{refused:?}"
        );
    }

    #[test]
    fn ways_have_names() {
        for (name, way) in WAYS {
            assert_eq!(name.parse(), Ok(way));
        }
        assert!("+spin".parse::<LockWay>().unwrap_err().contains("+wait-queue"));
    }
}
