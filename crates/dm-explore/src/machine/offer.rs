//! Which steps are possible: the order rules of one queue pair.

use dm_verbs::{CasThenRead, LineOrder};

use super::Machine;
use super::chain::{Kind, Request};
use super::client::Status;
use crate::step::{Step, StepKind};

/// Unfinished requests ahead in one queue pair.
#[derive(Clone, Copy, Default)]
struct Ahead {
    write_host: bool,
    write_chip: bool,
    read: bool,
    atomic: bool,
}

/// Memory nodes that one client may have chains to.
const NODES_MAX: usize = 8;

impl Machine {
    /// All possible steps, in an order that only the state decides.
    pub(crate) fn offer(&self, into: &mut Vec<Step>) {
        into.clear();
        for c in 0..self.setup_client() {
            let client = &self.clients[usize::from(c)];
            let mut add = |kind| into.push(Step { client: c, kind });
            match client.status {
                Status::NotStarted if self.is_in_reserve(c) => {}
                Status::NotStarted => add(StepKind::Start),
                Status::Running => {
                    if client.at_local {
                        add(StepKind::Local);
                    }
                    if client.control.is_some() && client.reply.is_none() {
                        add(StepKind::Control);
                    }
                    if client.can_wake() {
                        add(StepKind::Wake);
                    }
                }
                Status::Done | Status::Cancelled | Status::Crashed => {}
            }
            self.offer_units(c, &mut add);
            if client.status == Status::Running {
                if self.faults.1 < self.knobs.cancels {
                    add(StepKind::Cancel);
                }
                if self.faults.0 < self.knobs.crashes {
                    add(StepKind::Crash);
                }
                if self.faults.2 < self.knobs.failures {
                    let unfinished = |i: &u16| self.chains[usize::from(*i)].left > 0;
                    let places = client.live.iter().enumerate().filter(|(_, i)| unfinished(i));
                    places.for_each(|(place, _)| add(StepKind::Fail { chain: place as u8 }));
                }
            }
            if client.status == Status::Crashed && !client.live.is_empty() {
                add(StepKind::Lose);
            }
        }
    }

    fn offer_units(&self, c: u8, add: &mut impl FnMut(StepKind)) {
        let live = &self.clients[usize::from(c)].live;
        let mut ahead = [Ahead::default(); NODES_MAX];
        for (place, &i) in live.iter().enumerate() {
            let chain = &self.chains[usize::from(i)];
            if chain.left == 0 {
                continue;
            }
            let ahead = &mut ahead[usize::from(chain.node)];
            for (number, r) in chain.requests.iter().enumerate() {
                if r.finished {
                    continue;
                }
                if self.may_start(r, ahead) && !self.read_is_under_way(r, live, place, number) {
                    let order = if r.kind == Kind::Write {
                        self.knobs.write_lines
                    } else {
                        self.knobs.read_lines
                    };
                    for unit in (0..r.units).filter(|u| r.done >> u & 1 == 0) {
                        add(StepKind::Unit {
                            chain: place as u8,
                            request: number as u8,
                            unit,
                        });
                        if order == LineOrder::Increasing {
                            break;
                        }
                    }
                }
                match (r.kind, r.chip) {
                    (Kind::Write, false) => ahead.write_host = true,
                    (Kind::Write, true) => ahead.write_chip = true,
                    (kind, _) if kind.is_read() => ahead.read = true,
                    _ => ahead.atomic = true,
                }
            }
        }
    }

    fn may_start(&self, r: &Request, ahead: &Ahead) -> bool {
        let knobs = &self.knobs;
        let (same, other) = if r.chip {
            (ahead.write_chip, ahead.write_host)
        } else {
            (ahead.write_host, ahead.write_chip)
        };
        if same || other && knobs.host_before_chip || r.fence && (ahead.read || ahead.atomic) {
            return false;
        }
        match r.kind {
            Kind::Write => knobs.write_overtakes || !(ahead.read || ahead.atomic),
            Kind::Read | Kind::Word => {
                (!ahead.read || knobs.read_lines == LineOrder::Any)
                    && (!ahead.atomic || knobs.cas_then_read != CasThenRead::InOrder)
            }
            // The second step of a racy atomic is its own; the first waits for other atomics on the word.
            _ => !(ahead.read || ahead.atomic) && (r.half || !self.held.contains(&r.at)),
        }
    }

    /// Where only a whole READ may come first: one that has begun is finished before the atomic ahead of it.
    fn read_is_under_way(&self, r: &Request, live: &[u16], place: usize, number: usize) -> bool {
        if !r.kind.is_atomic() || self.knobs.cas_then_read != CasThenRead::WholeReadFirst {
            return false;
        }
        let node = self.chains[usize::from(live[place])].node;
        live[place..].iter().enumerate().any(|(k, &i)| {
            let chain = &self.chains[usize::from(i)];
            let from = if k == 0 { number + 1 } else { 0 };
            chain.node == node
                && chain.requests[from..]
                    .iter()
                    .any(|later| later.kind.is_read() && later.done != 0 && !later.finished)
        })
    }
}
