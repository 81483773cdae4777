//! The possible steps of a state, by the rules of order of a queue pair.

use core::cell::RefCell;

use dm_verbs::{CasThenRead, LineOrder};

use super::Machine;
use super::chain::{Kind, Request};
use super::client::{ClientState, Status};
use super::moves::Input;
use crate::knobs::Late;
use crate::step::{Step, StepKind};

/// The kinds of unfinished requests that precede a request in its queue pair.
#[derive(Clone, Copy, Default)]
struct Ahead {
    write_host: bool,
    write_chip: bool,
    read: bool,
    atomic: bool,
}

/// The maximum number of memory nodes.
pub(super) const NODES_MAX: usize = 8;

/// A unit that may be served now.
struct Served {
    /// `place` is the position of the unit's chain, `request` the index of its request in the chain, and `unit` its
    /// index in the request.
    place: u8,
    request: u8,
    unit: u8,
    /// Whether the unit cannot be lost any more.
    must: bool,
    /// The word that no racy atomic may be holding, or [`ANY`].
    free: u32,
}

/// Stands for the word of a step that does not wait for any word.
const ANY: u32 = u32::MAX;

/// A step that a client offers, unless a racy atomic holds the word that the step needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) step: Step,
    /// The word that no racy atomic may be holding, or [`ANY`].
    free: u32,
    /// The input of the step, which is computed when the step is first taken. The inner `None` means that the outcome
    /// may depend on more than an input (see `moves`).
    pub(super) input: Option<Option<Input>>,
}

/// The faults of a run on which the steps of a client depend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Faults {
    /// The number of crashes, for which a client in reserve waits.
    crashes: u8,
    may_crash: bool,
    may_cancel: bool,
    may_fail: bool,
}

/// The steps that a client's state offers after the given faults.
#[derive(Debug, Default)]
pub(crate) struct Offers(RefCell<Option<(Faults, Vec<Offer>)>>);

impl Machine {
    /// Lists all possible steps, in an order that depends only on the state.
    pub(crate) fn offer(&self, into: &mut Vec<Step>) {
        into.clear();
        let faults = self.faults_for_offers();
        for c in 0..self.setup_client() {
            self.with_offers(c, faults, |offers| {
                let free = |o: &&Offer| o.free == ANY || !self.held.contains(&o.free);
                into.extend(offers.iter().filter(free).map(|o| o.step));
            });
        }
    }

    /// Passes the steps that client `c` offers to `f`. Most steps change only one client, so the steps of the clients
    /// that do not change are cached.
    fn with_offers<R>(&self, c: u8, faults: Faults, f: impl FnOnce(&mut [Offer]) -> R) -> R {
        let mut known = self.clients[usize::from(c)].derived().0.borrow_mut();
        match &mut *known {
            Some((of, offers)) if *of == faults => f(offers),
            other => f(&mut other.insert((faults, self.offers_of(c))).1),
        }
    }

    /// Returns the input of `step`, if its outcome can be known.
    pub(super) fn input_of(&self, step: Step) -> Option<Input> {
        self.with_offers(step.client, self.faults_for_offers(), |offers| {
            let offer = offers.iter_mut().find(|o| o.step == step)?;
            *offer.input.get_or_insert_with(|| self.input(step))
        })
    }

    fn faults_for_offers(&self) -> Faults {
        let (crashes, cancels, failures) = self.faults;
        Faults {
            crashes,
            may_crash: crashes < self.knobs.crashes,
            may_cancel: cancels < self.knobs.cancels,
            may_fail: failures < self.knobs.failures,
        }
    }

    /// Returns the steps that client `c` offers, without regard to the words that racy atomics hold.
    fn offers_of(&self, c: u8) -> Vec<Offer> {
        let client = &self.clients[usize::from(c)];
        let mut offers = Vec::with_capacity(4);
        let mut put = |kind, free| {
            let step = Step { client: c, kind };
            offers.push(Offer {
                step,
                free,
                input: None,
            });
        };
        let mut add = |kind| put(kind, ANY);
        match client.status {
            Status::NotStarted if self.is_in_reserve(c) => {}
            Status::NotStarted => add(StepKind::Start),
            Status::Running => {
                if client.at_local {
                    add(StepKind::Local);
                }
                if client.control.is_some() {
                    add(StepKind::Control);
                }
                if client.can_wake() {
                    add(StepKind::Wake);
                }
            }
            Status::Done | Status::Cancelled | Status::Crashed => {}
        }
        // Some requests of a failed queue pair must take effect before a later queue pair is used.
        let due = self.due(client);
        self.offer_units(client, &client.live, due, &mut |served| {
            let (chain, request, unit) = (served.place, served.request, served.unit);
            put(StepKind::Unit { chain, request, unit }, served.free);
        });
        self.offer_units(client, &client.late, due, &mut |served| {
            let kind = StepKind::Late {
                chain: served.place,
                request: served.request,
                unit: served.unit,
                must: served.must,
            };
            put(kind, served.free);
        });
        if self.spared.get(usize::from(c)).is_some_and(|spared| *spared) {
            return offers;
        }
        let mut add = |kind| put(kind, ANY);
        if client.status == Status::Running {
            if self.faults.1 < self.knobs.cancels {
                add(StepKind::Cancel);
            }
            if self.faults.0 < self.knobs.crashes {
                add(StepKind::Crash);
            }
        }
        // The last requests of a client may be lost even after the client has ended.
        let lives = matches!(client.status, Status::Running | Status::Done | Status::Cancelled);
        if lives && self.faults.2 < self.knobs.failures {
            self.offer_failures(c, &mut add);
        }
        offers
    }

    /// Offers failures of the client's queue pairs to the memory nodes to which it has chains in flight.
    fn offer_failures(&self, c: u8, add: &mut impl FnMut(StepKind)) {
        let client = &self.clients[usize::from(c)];
        let mut nodes = 0u8;
        for &i in &client.live {
            let chain = &client.chains[usize::from(i)];
            if chain.done || nodes >> chain.node & 1 != 0 {
                continue;
            }
            nodes |= 1 << chain.node;
            let node = chain.node as u8;
            add(StepKind::Fail { node, told: 0 });
            // If the finished requests at the beginning of the chain include an atomic, the error may report that they
            // were carried out.
            let first = chain.requests.iter().take_while(|r| r.finished);
            let told = first.clone().count() as u8;
            if first.clone().any(|r| r.kind.is_atomic()) && usize::from(told) < chain.requests.len() {
                add(StepKind::Fail { node, told });
            }
            if client.down >> node & 1 != 0 {
                add(StepKind::Refuse { node });
            }
        }
    }

    /// Returns, for each memory node, the number of the first failed queue pair with a request that is certain to take
    /// effect, or `u8::MAX` if there is none. With [`Late::UntilFenced`], a later queue pair need not wait for such
    /// requests, so all numbers are `u8::MAX`.
    fn due(&self, client: &ClientState) -> [u8; NODES_MAX] {
        let mut due = [u8::MAX; NODES_MAX];
        if self.knobs.late == Late::UntilNext {
            for &i in &client.late {
                let chain = &client.chains[usize::from(i)];
                let first = &mut due[usize::from(chain.node)];
                if *first > chain.pair && chain.requests.iter().any(Request::must_land) {
                    *first = chain.pair;
                }
            }
        }
        due
    }

    fn offer_units(
        &self,
        client: &ClientState,
        chains: &[u16],
        due: [u8; NODES_MAX],
        add: &mut impl FnMut(Served),
    ) {
        let mut queues = [(Ahead::default(), 0); NODES_MAX];
        for (place, &i) in chains.iter().enumerate() {
            let chain = &client.chains[usize::from(i)];
            let (due, pair) = (due[usize::from(chain.node)], chain.pair);
            // Pair 0 is the current queue pair, which comes after all failed ones.
            if chain.left == 0 || due < pair || pair == 0 && due != u8::MAX {
                continue;
            }
            let (ahead, pair) = &mut queues[usize::from(chain.node)];
            if *pair != chain.pair {
                (*ahead, *pair) = (Ahead::default(), chain.pair);
            }
            for (number, r) in chain.requests.iter().enumerate() {
                if r.finished {
                    continue;
                }
                if self.may_start(r, ahead) && !self.read_is_under_way(r, client, chains, place, number) {
                    let order = if r.kind == Kind::Write {
                        self.knobs.write_lines
                    } else {
                        self.knobs.read_lines
                    };
                    // In its second step a racy atomic holds the word itself. In its first step it waits for other
                    // atomics on the word.
                    let waits = r.kind.is_atomic() && !r.half;
                    for unit in (0..r.units).filter(|u| r.done >> u & 1 == 0) {
                        add(Served {
                            place: place as u8,
                            request: number as u8,
                            unit,
                            must: r.must_land(),
                            free: if waits { r.at } else { ANY },
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
            _ => !(ahead.read || ahead.atomic),
        }
    }

    /// Returns whether an atomic must wait for a later READ that has begun, because only a whole READ may overtake it.
    fn read_is_under_way(
        &self,
        r: &Request,
        client: &ClientState,
        live: &[u16],
        place: usize,
        number: usize,
    ) -> bool {
        if !r.kind.is_atomic() || self.knobs.cas_then_read != CasThenRead::WholeReadFirst {
            return false;
        }
        let node = client.chains[usize::from(live[place])].node;
        live[place..].iter().enumerate().any(|(k, &i)| {
            let chain = &client.chains[usize::from(i)];
            let from = if k == 0 { number + 1 } else { 0 };
            chain.node == node
                && chain.requests[from..]
                    .iter()
                    .any(|later| later.kind.is_read() && later.done != 0 && !later.finished)
        })
    }
}
