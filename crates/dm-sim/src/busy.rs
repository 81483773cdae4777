//! The time for which each resource of a simulated testbed was busy.

use core::cmp::Reverse;
use core::fmt;
use std::collections::BTreeMap;

use crate::bound::{Resource, Side};
use crate::engine::Engine;
use crate::nic::NicCounters;
use crate::sim::Sim;

/// A resource of one node, and a time for which it was busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy {
    /// The kind of resource.
    pub resource: Resource,
    /// The node that has it.
    pub side: Side,
    /// The number of the node among the compute nodes or the memory nodes. A shared card has the number of both its
    /// nodes.
    pub node: u16,
    /// The number of the thread, if the resource is a hardware thread; otherwise 0.
    pub thread: u16,
    /// Nanoseconds.
    pub ns: u64,
    /// The part of these nanoseconds in which a responder waited for an earlier atomic in the same bucket
    /// ([`buckets`](crate::CostModel::buckets)); 0 for all other resources.
    pub stalled_ns: u64,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = match self.side {
            Side::Compute => "compute node",
            Side::Memory => "memory node",
            Side::Shared => "machine",
        };
        let name = match self.resource {
            Resource::Requester => "requester",
            Resource::Responder => "responder",
            Resource::Atomics => "atomics on the same bytes",
            Resource::LinkOut(_) => "link out",
            Resource::LinkIn(_) => "link in",
            Resource::FromHost(_) => "PCIe from host",
            Resource::ToHost(_) => "PCIe to host",
            Resource::ClientThreads => {
                return write!(f, "thread {} of {node} {}", self.thread, self.node);
            }
        };
        write!(f, "{name} of {node} {}", self.node)
    }
}

/// The time for which each resource of a testbed was busy from the beginning of the simulation to one moment. See
/// [`Sim::busy`].
#[derive(Clone, Debug)]
pub struct BusyTimes {
    cards: Vec<(Side, u16, NicCounters)>,
    /// By compute node and number of the thread.
    threads: BTreeMap<(u16, u16), u64>,
}

impl BusyTimes {
    fn of(engine: &Engine, first_memory_nic: usize) -> Self {
        let owner = |card: usize| match card.checked_sub(first_memory_nic) {
            Some(node) if first_memory_nic > 0 => (Side::Memory, node),
            Some(node) => (Side::Shared, node),
            None => (Side::Compute, card),
        };
        let counters = engine.nics.iter().map(|nic| nic.counters(&engine.t));
        let cards = (0..).map(owner).zip(counters);
        Self {
            cards: cards
                .map(|((side, node), counters)| (side, node as u16, counters))
                .collect(),
            threads: engine.busy_threads().into_iter().collect(),
        }
    }

    /// Returns how long each resource was busy between `earlier` and this moment of the same simulation, the busiest
    /// first.
    ///
    /// A responder also counts as busy while an atomic waits for an earlier one in the same bucket, because it serves
    /// no other request then. If it waited longer than it worked, its resource is [`Resource::Atomics`].
    pub fn since(&self, earlier: &Self) -> Vec<Busy> {
        let mut all = Vec::new();
        for ((side, node, now), (.., then)) in self.cards.iter().zip(&earlier.cards) {
            all.extend(parts(*side, now, then).map(|(resource, ns, stalled_ns)| Busy {
                resource,
                side: *side,
                node: *node,
                thread: 0,
                ns,
                stalled_ns,
            }));
        }
        all.extend(self.threads.iter().map(|(&(node, thread), &ns)| Busy {
            resource: Resource::ClientThreads,
            side: Side::Compute,
            node,
            thread,
            ns: ns - earlier.threads.get(&(node, thread)).unwrap_or(&0),
            stalled_ns: 0,
        }));
        all.sort_by_key(|busy| Reverse(busy.ns));
        all
    }
}

impl Sim {
    /// Returns how long each resource was busy so far: the pipelines, links and PCIe of every card, and every hardware
    /// thread that has clients. The resource that limits a run is the busiest one [since](BusyTimes::since) its
    /// beginning. Its time includes the effects of skew, of retries and of everything else that clients did.
    pub fn busy(&self) -> BusyTimes {
        self.busy_reader()()
    }

    /// Returns a function that does the same as [`Sim::busy`], and that a client may call during the run.
    pub fn busy_reader(&self) -> impl Fn() -> BusyTimes + use<> {
        let (shared, first_memory_nic) = self.parts();
        let shared = shared.clone();
        move || BusyTimes::of(&shared.engine.borrow(), first_memory_nic)
    }
}

/// Returns the resources of a card, each with its busy time and the part of this time in which it was stalled.
fn parts(side: Side, now: &NicCounters, then: &NicCounters) -> impl Iterator<Item = (Resource, u64, u64)> {
    let stalled = now.stall_ns - then.stall_ns;
    let worked = now.responder_busy_ns - then.responder_busy_ns;
    let responder = match stalled > worked {
        true => Resource::Atomics,
        false => Resource::Responder,
    };
    let busy = |part: fn(&NicCounters) -> u64| part(now) - part(then);
    [
        (Resource::Requester, busy(|c| c.requester_busy_ns), 0),
        (responder, worked + stalled, stalled),
        (Resource::LinkOut(side), busy(|c| c.link_out_busy_ns), 0),
        (Resource::LinkIn(side), busy(|c| c.link_in_busy_ns), 0),
        (Resource::FromHost(side), busy(|c| c.from_host_busy_ns), 0),
        (Resource::ToHost(side), busy(|c| c.to_host_busy_ns), 0),
    ]
    .into_iter()
}
