//! Runs WRITEs only: the rate at which an RNIC sends and receives them, by their size (Sherman Fig. 3).

use std::cell::Cell;
use std::rc::Rc;
use std::str::FromStr;

use dm_sim::{RunEnd, Sim};
use dm_verbs::{Env, NodeId, RemotePtr, Verbs};

use super::cases::Figures;
use super::metric::Metric;
use super::setup::Resolved;
use super::window::Window;
use dm_bench::RunError;

/// The direction in which an RNIC is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Many compute nodes write to one memory node.
    Inbound,
    /// One compute node writes to many memory nodes.
    Outbound,
}

impl FromStr for Direction {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "inbound" => Ok(Self::Inbound),
            "outbound" => Ok(Self::Outbound),
            _ => Err(format!("no direction {s:?}; there are inbound and outbound")),
        }
    }
}

/// Number of addresses of a node to which WRITEs go. Their distance is at least the length of a WRITE.
const PLACES: u64 = 16_000;

/// Runs the direction named `series`: each client posts a WRITE, awaits it, and posts the next.
///
/// # Errors
/// Returns [`RunError`] if there is no such direction, if the testbed cannot be built, or if a WRITE fails.
pub(crate) fn run(series: &str, setup: &Resolved, seed: u64) -> Result<Figures, RunError> {
    let bad = |e: &dyn std::fmt::Display| RunError::Bad(e.to_string());
    let direction: Direction = series.parse().map_err(|e: String| bad(&e))?;
    let (writers, targets) = match direction {
        Direction::Inbound => (setup.compute_nodes, 1),
        Direction::Outbound => (1, setup.memory_nodes),
    };
    let sim = Sim::builder(setup.model.clone())
        .compute_nodes(writers)
        .memory_nodes(targets)
        .seed(seed)
        .build()
        .map_err(|e| bad(&e))?;
    let window = Rc::new(Window::new(&sim, setup.window_ns));
    let (from, to) = (window.from, window.to);
    let stride = (setup.write_bytes as u64).next_multiple_of(64).max(64);
    let (done, failed) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(None)));
    for client in 0..setup.clients {
        let cn = (client % u32::from(writers)) as u16;
        // The experiment's number of clients is the number of all coroutines. They run on 22 threads of each compute
        // node.
        let thread = (client / u32::from(writers) % 22) as u16;
        let (window, bytes) = (window.clone(), vec![1_u8; setup.write_bytes]);
        let (done, failed) = (done.clone(), failed.clone());
        sim.spawn(cn, thread, async move |v| {
            while window.lets_begin(v.now()) {
                let r = v.rng(0);
                let node = NodeId((r % u64::from(targets)) as u16);
                let at = RemotePtr::new(node, 4096 + (r >> 16) % PLACES * stride).expect("within 48 bits");
                if let Err(e) = v.write(at, &bytes).await {
                    failed.set(Some(e));
                    return;
                }
                if v.now() >= from && v.now() < to {
                    done.set(done.get() + 1);
                }
            }
        });
    }
    if sim.run() != RunEnd::Finished {
        return Err(RunError::Bad("WRITEs did not end".to_owned()));
    }
    if let Some(e) = failed.get() {
        return Err(bad(&e));
    }
    let mops = done.get() as f64 * 1e3 / (to - from).0 as f64;
    let metrics = [
        (Metric::Mops, mops),
        (Metric::GbytesPerS, mops * setup.write_bytes as f64 / 1e3),
        (Metric::Operations, done.get() as f64),
    ];
    Ok(Figures {
        metrics: metrics.into_iter().collect(),
        ..Figures::default()
    }
    .with_busiest(&window))
}
