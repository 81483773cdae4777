//! Compute nodes that die while others work.

use std::collections::VecDeque;

use dm_sim::{Sim, TaskId};
use dm_verbs::Nanos;

use super::Common;
use crate::BenchIndex;
use crate::faults::{Deaths, Kill};
use crate::run::{RunError, bad};

/// The interval at which the harness checks whether a dead member has been expelled.
const WATCH: Nanos = Nanos::from_micros(20);

/// A compute node at work: its number, and each of its clients with its thread.
struct AtWork {
    node: u16,
    clients: Vec<(u16, TaskId)>,
}

/// The compute nodes at work, the one that has worked for the longest time first.
pub(super) struct Working {
    nodes: VecDeque<AtWork>,
    /// The number of the next compute node that takes the place of a dead one.
    next: u16,
}

impl Working {
    pub(super) fn new(compute_nodes: u16) -> Self {
        let idle = |node| AtWork {
            node,
            clients: Vec::new(),
        };
        Self {
            nodes: (0..compute_nodes).map(idle).collect(),
            next: compute_nodes,
        }
    }

    /// Adds a client.
    pub(super) fn add(&mut self, node: u16, thread: u16, task: TaskId) {
        if let Some(at) = self.nodes.iter_mut().find(|at| at.node == node) {
            at.clients.push((thread, task));
        }
    }

    /// Runs the simulation to the end of its time, and kills compute nodes meanwhile.
    pub(super) fn run<I: BenchIndex>(
        mut self,
        sim: &Sim,
        common: &Common<'_, I>,
    ) -> Result<Deaths, RunError> {
        let (faults, began) = (common.setting.faults, common.tally.borrow().warm_until);
        let mut deaths = Deaths::default();
        // The number of the next client. Each client writes other values, and inserts other keys.
        let mut client = common.setting.endpoints();
        // The members that are dead and not expelled yet, by the time of their death.
        let mut waiting: VecDeque<Nanos> = VecDeque::new();
        let mut expelled = sim.meter().expelled;
        for at in faults.deaths(common.stop - began) {
            let at = Nanos(began + at);
            watch(sim, at, &mut waiting, &mut expelled, &mut deaths);
            let dead = self.nodes.pop_front();
            let dead = dead.ok_or_else(|| bad("no compute node is left that could die"))?;
            for &(_, task) in &dead.clients {
                sim.crash(task);
            }
            waiting.push_back(at);
            deaths.killed += 1;
            if let Some(Kill::At(_)) = faults.kill {
                continue;
            }
            let mut successor = AtWork {
                node: self.next,
                clients: Vec::new(),
            };
            for &(thread, _) in &dead.clients {
                let task = common.start(sim, client, successor.node, thread);
                client += 1;
                successor.clients.push((thread, task));
            }
            self.nodes.push_back(successor);
            self.next += 1;
        }
        watch(sim, Nanos(common.stop), &mut waiting, &mut expelled, &mut deaths);
        // A client may wait for a lock that nobody frees.
        for (_, task) in self.nodes.iter().flat_map(|at| &at.clients) {
            sim.cancel(*task);
        }
        sim.run();
        Ok(deaths)
    }
}

/// Runs the simulation until `end`, and records when members were expelled.
fn watch(sim: &Sim, end: Nanos, waiting: &mut VecDeque<Nanos>, expelled: &mut u64, deaths: &mut Deaths) {
    while !waiting.is_empty() && sim.now() < end {
        sim.run_until((sim.now() + WATCH).min(end));
        let now = sim.meter().expelled;
        for _ in *expelled..now {
            // The one that died first has been silent for the longest time.
            if let Some(died) = waiting.pop_front() {
                deaths.recoveries.push((sim.now() - died).0);
            }
        }
        *expelled = now;
    }
    sim.run_until(end);
}
