//! Runs READs only, or locked WRITEs, to measure what READs of metadata cost (CHIME Fig. 4), and how many clients of
//! one compute node access the same bytes at the same time (SMART Figs. 5 c and 5 d).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::str::FromStr;

use dm_bench::RunError;
use dm_sim::{Endpoint, RunEnd, Sim};
use dm_verbs::{Env, Nanos, NodeId, RemotePtr, VerbError, Verbs};
use dm_workload::Workload;

use super::cases::Figures;
use super::metric::Metric;
use super::setup::Resolved;
use super::window::Window;

/// The verbs of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// A READ of some entries of a leaf.
    Entries,
    /// A READ of the leaf's vacancy bitmap of 8 bytes, and then the READ of the entries.
    AfterBitmap,
    /// The READ of the entries, together with a READ of the leaf's sibling pointer and fence keys.
    WithMetadata,
    /// A READ of a whole block.
    Block,
    /// A WRITE of a whole block, between a CAS that locks and a CAS that unlocks. A client whose CAS fails repeats it.
    LockedBlock,
}

const ACCESSES: [(&str, Access, &str); 5] = [
    ("entries", Access::Entries, "entries"),
    ("after-bitmap", Access::AfterBitmap, "bitmap, then entries"),
    ("with-metadata", Access::WithMetadata, "metadata and entries"),
    ("read", Access::Block, "READ"),
    ("locked-write", Access::LockedBlock, "locked WRITE"),
];

impl FromStr for Access {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let names = || ACCESSES.map(|(name, ..)| name).join(", ");
        let found = ACCESSES.iter().find(|(name, ..)| *name == s);
        found
            .map(|(_, access, _)| *access)
            .ok_or_else(|| format!("no access {s:?}; there are {}", names()))
    }
}

/// Bytes of an entry besides its key and value: a hopscotch bitmap, and versions.
const ENTRY_METADATA: usize = 4;
/// Bytes of a vacancy bitmap, a sibling pointer or a lock.
const WORD: usize = 8;

/// The bytes of a block, and the parts that an access reads or writes.
#[derive(Clone, Copy)]
struct Layout {
    metadata: usize,
    data: usize,
    stride: u64,
}

impl Access {
    /// Returns the name for charts.
    pub(crate) fn title(self) -> &'static str {
        let found = ACCESSES.iter().find(|(_, access, _)| *access == self);
        found.map_or("", |(.., title)| title)
    }

    fn layout(self, setup: &Resolved) -> Layout {
        let entries = setup.knob("entries-read", 8) * (setup.key_bytes + setup.value_bytes + ENTRY_METADATA);
        let (metadata, data) = match self {
            Self::Entries => (0, entries),
            Self::AfterBitmap => (WORD, entries),
            Self::WithMetadata => (WORD + 2 * setup.key_bytes, entries),
            Self::Block => (0, setup.write_bytes),
            Self::LockedBlock => (WORD, setup.write_bytes),
        };
        Layout {
            metadata,
            data,
            stride: (metadata + data).next_multiple_of(WORD) as u64,
        }
    }

    /// Accesses the block at `at`.
    async fn perform(self, v: &Endpoint, at: RemotePtr, layout: &Layout) -> Result<(), VerbError> {
        let data = at.add(layout.metadata as u64);
        let (before, len) = (layout.metadata as u32, layout.data as u32);
        match self {
            Self::Entries | Self::Block => drop(v.read(data, len).await?),
            Self::AfterBitmap => {
                drop(v.read(at, before).await?);
                drop(v.read(data, len).await?);
            }
            Self::WithMetadata => drop(v.chain(at.node()).read(at, before).read(data, len).await?),
            Self::LockedBlock => {
                while v.cas(at, 0, 1).await? != 0 {}
                v.write(data, &vec![1; layout.data]).await?;
                v.cas(at, 1, 0).await?;
            }
        }
        Ok(())
    }
}

/// An access. Accesses are ordered by their beginnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Done {
    began: Nanos,
    ended: Nanos,
    block: u64,
}

/// Returns how many accesses of the same block begin during an access, on average. As in the evaluation of SMART, an
/// access that begins during a counted one is not itself counted.
fn redundant(log: &[Done]) -> f64 {
    let (mut windows, mut same, mut at) = (0_u64, 0_u64, 0);
    while let Some(first) = log.get(at) {
        let during = log[at + 1..].iter().take_while(|next| next.began < first.ended);
        let blocks: Vec<u64> = during.map(|next| next.block).collect();
        same += blocks.iter().filter(|block| **block == first.block).count() as u64;
        windows += 1;
        at += 1 + blocks.len();
    }
    same as f64 / windows.max(1) as f64
}

/// Runs the access named `series`: each client makes an access of a block of memory node 0, awaits it, and makes the
/// next. The setup's keys are the blocks.
///
/// # Errors
/// Returns [`RunError`] if there is no such access, if the testbed or the workload cannot be built, or if a verb fails.
pub(crate) fn run(series: &str, setup: &Resolved, seed: u64) -> Result<Figures, RunError> {
    let bad = |e: &dyn std::fmt::Display| RunError::Bad(e.to_string());
    let access: Access = series.parse().map_err(|e: String| bad(&e))?;
    let layout = access.layout(setup);
    let start = 4096;
    let sim = Sim::builder(setup.model.clone())
        .compute_nodes(setup.compute_nodes)
        .memory_nodes(1)
        .colocated(setup.colocated)
        .memory_bytes(start + setup.keys * layout.stride)
        .seed(seed)
        .build()
        .map_err(|e| bad(&e))?;
    let clients = setup.clients * setup.coroutines;
    let reads = "c".parse().map_err(|e| bad(&e))?;
    // The key numbers of the stream select the block. The stream has more operations than the measured time allows.
    let plan = Workload::new(reads, setup.keys, u64::MAX / 2)
        .distribution(setup.distribution)
        .clients(clients)
        .seed(seed)
        .plan()
        .map_err(|e| bad(&e))?;
    let window = Rc::new(Window::new(&sim, setup.window_ns));
    let (from, to) = (window.from, window.to);
    let (log, failed) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(None)));
    for client in 0..clients {
        let thread = client / setup.coroutines;
        let cn = (thread % u32::from(setup.compute_nodes)) as u16;
        let local = u16::try_from(thread / u32::from(setup.compute_nodes)).map_err(|e| bad(&e))?;
        let (mut stream, window) = (plan.client(client), window.clone());
        let (log, failed) = (log.clone(), failed.clone());
        sim.spawn(cn, local, async move |v| {
            while window.lets_begin(v.now()) {
                let Some(block) = stream.next().map(|op| op.key) else {
                    return;
                };
                let at = RemotePtr::new(NodeId(0), start + block * layout.stride).expect("within 48 bits");
                let began = v.now();
                if let Err(e) = access.perform(&v, at, &layout).await {
                    failed.set(Some(e));
                    return;
                }
                let ended = v.now();
                if began >= from && ended < to {
                    log.borrow_mut().push(Done { began, ended, block });
                }
            }
        });
    }
    if sim.run() != RunEnd::Finished {
        return Err(RunError::Bad("accesses did not end".to_owned()));
    }
    if let Some(e) = failed.get() {
        return Err(bad(&e));
    }
    let mut log = log.borrow_mut();
    log.sort_unstable();
    let metrics = [
        (Metric::Mops, log.len() as f64 * 1e3 / (to - from).0 as f64),
        (Metric::Redundant, redundant(&log)),
        (Metric::Operations, log.len() as f64),
    ];
    Ok(Figures {
        metrics: metrics.into_iter().collect(),
        ..Figures::default()
    }
    .with_busiest(&window))
}

#[cfg(test)]
mod tests {
    use super::super::setup::Setup;
    use super::*;

    fn setup(clients: u32, skew: f64) -> Resolved {
        let setup = Setup {
            compute_nodes: Some(1),
            clients: Some(clients),
            skew: Some(skew),
            keys: Some(1_000),
            write_bytes: Some(1024),
            window_ms: Some(0.4),
            ..Setup::without_network()
        };
        setup.resolve(None).unwrap()
    }

    fn figure(series: &str, setup: &Resolved, metric: Metric) -> f64 {
        run(series, setup, 1).unwrap().metrics[&metric]
    }

    #[test]
    fn accesses_that_begin_during_another_are_counted_once() {
        let done = |began, ended, block| Done {
            began: Nanos(began),
            ended: Nanos(ended),
            block,
        };
        // During the first counted access, three others begin, two of them to the same block. During the second one,
        // none begins.
        let log = [
            done(0, 10, 1),
            done(1, 30, 1),
            done(4, 8, 2),
            done(9, 12, 1),
            done(10, 14, 1),
        ];
        assert_eq!(redundant(&log), 1.0);
        assert_eq!(redundant(&log[..1]), 0.0);
        assert_eq!(redundant(&[]), 0.0);
    }

    /// A single client makes no redundant accesses. With skewed keys, more accesses are redundant than with uniform
    /// ones.
    #[test]
    fn clients_and_skew_make_accesses_redundant() {
        assert_eq!(figure("read", &setup(1, 0.99), Metric::Redundant), 0.0);
        let [uniform, skewed] = [0.0, 0.99].map(|skew| figure("read", &setup(32, skew), Metric::Redundant));
        // About 31 other READs begin during a READ. Each of them reads the same one of the 1,000 blocks with a
        // probability of 1/1000.
        assert!(
            (0.01..0.1).contains(&uniform) && skewed > 5.0 * uniform,
            "{uniform} {skewed}"
        );
        let written = figure("locked-write", &setup(32, 0.99), Metric::Redundant);
        assert!(
            written > skewed,
            "locks lengthen the time of a WRITE: {written} {skewed}"
        );
    }

    /// A second READ costs a round trip if it must wait for the first, and otherwise does not.
    #[test]
    fn metadata_costs_a_round_trip_or_a_message() {
        let s = setup(4, 0.0);
        let [one, after, with] =
            ["entries", "after-bitmap", "with-metadata"].map(|series| figure(series, &s, Metric::Mops));
        assert!((1.8..2.2).contains(&(one / after)), "{one} {after}");
        assert!((1.0..1.3).contains(&(one / with)), "{one} {with}");
    }

    #[test]
    fn unknown_accesses_are_refused() {
        let refused = "write".parse::<Access>().unwrap_err();
        assert!(refused.contains("locked-write"), "{refused}");
    }
}
