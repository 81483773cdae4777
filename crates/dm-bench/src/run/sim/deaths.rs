//! Compute nodes that die while others work.

use std::collections::VecDeque;

use dm_sim::{Sim, TaskId};
use dm_verbs::Nanos;

use super::Crew;
use crate::BenchIndex;
use crate::faults::Deaths;
use crate::run::{RunError, bad};

/// How often it is looked whether the others have expelled a dead member.
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
    pub(super) fn suffer<I: BenchIndex>(mut self, sim: &Sim, crew: &Crew<'_, I>) -> Result<Deaths, RunError> {
        let (faults, began) = (crew.setting.faults, crew.tally.borrow().warm_until);
        let mut deaths = Deaths::default();
        // The members that are dead and not expelled yet, by the time of their death.
        let mut missed: VecDeque<Nanos> = VecDeque::new();
        let mut expelled = sim.meter().expelled;
        for at in faults.deaths(crew.stop - began) {
            let at = Nanos(began + at);
            watch(sim, at, &mut missed, &mut expelled, &mut deaths);
            let dead = self.nodes.pop_front();
            let dead = dead.ok_or_else(|| bad("no compute node is left that could die"))?;
            for &(_, task) in &dead.clients {
                sim.crash(task);
            }
            missed.push_back(at);
            deaths.killed += 1;
            if Some(at.0 - began) == faults.kill_at {
                continue;
            }
            let mut heir = AtWork {
                node: self.next,
                clients: Vec::new(),
            };
            let first = crew.setting.endpoints();
            let each = u32::try_from(dead.clients.len()).map_err(bad)?;
            let first = first + u32::from(heir.node - crew.setting.compute_nodes) * each;
            for (client, &(thread, _)) in (first..).zip(&dead.clients) {
                let task = crew.start(sim, client, heir.node, thread);
                heir.clients.push((thread, task));
            }
            self.nodes.push_back(heir);
            self.next += 1;
        }
        watch(sim, Nanos(crew.stop), &mut missed, &mut expelled, &mut deaths);
        // A client may wait for a lock that nobody frees.
        for (_, task) in self.nodes.iter().flat_map(|at| &at.clients) {
            sim.cancel(*task);
        }
        sim.run();
        Ok(deaths)
    }
}

/// Runs the simulation until `end`, and records when members were expelled.
fn watch(sim: &Sim, end: Nanos, missed: &mut VecDeque<Nanos>, expelled: &mut u64, deaths: &mut Deaths) {
    while !missed.is_empty() && sim.now() < end {
        sim.run_until((sim.now() + WATCH).min(end));
        let now = sim.meter().expelled;
        for _ in *expelled..now {
            // The one that died first has been silent for the longest time.
            if let Some(died) = missed.pop_front() {
                deaths.recoveries.push((sim.now() - died).0);
            }
        }
        *expelled = now;
    }
    sim.run_until(end);
}
