//! The path of a request from the doorbell to the wire.

use dm_verbs::{Place, Space, VerbError, VerbErrorKind};

use super::slots::check;
use super::{ClientState, Engine, Odd, QueuePair, What};
use crate::model::Ticks;
use crate::nic::Nic;
use crate::request::{Entry, Kind};
use crate::rng::Dice;
use crate::status::State;

/// The end of charged CPU time is rounded up to a whole nanosecond, so a coroutine counts as running for this number of
/// picoseconds longer.
const RESUME: u64 = 1000;

/// The conditions under which a queue pair cannot send at once.
pub(super) const UNABLE: Odd = Odd::FENCED.and(Odd::PARKED).and(Odd::CRASHED);

/// Returns the bytes on the wire of a request with `len` bytes of payload.
#[inline(always)]
pub(super) fn request_bytes(t: &Ticks, kind: Kind, len: u64) -> u64 {
    match kind {
        Kind::Write => len + t.packets(len) * t.header_write,
        _ => t.header_request + kind.costs().operand_bytes(),
    }
}

/// Charges the CPU time for posting, and returns the time at which the posting is done. A coroutine that has the CPU
/// continues at once; a coroutine that was woken waits until the CPU is free.
#[inline(always)]
pub(super) fn take_cpu(clients: &mut [ClientState], client: u16, now: u64, cpu: u64) -> u64 {
    let thread = clients[usize::from(client)].thread;
    let shared = &mut clients[usize::from(thread)];
    let backlog = shared.thread_free.max(now);
    shared.thread_free = backlog + cpu;
    shared.thread_busy += cpu;
    let client = &mut clients[usize::from(client)];
    let running = now < client.slice_end + RESUME;
    client.slice_end = if running {
        client.slice_end.max(now)
    } else {
        backlog
    } + cpu;
    client.slice_end
}

/// Sends a request that the card can send from `ready` on, and returns its arrival time.
#[inline(always)]
pub(super) fn send(
    t: &Ticks,
    rng: &mut Dice,
    nic: &mut Nic,
    pair: &mut QueuePair,
    (kind, len, fence): (Kind, u32, bool),
    now: u64,
    mut ready: u64,
) -> u64 {
    let length = u64::from(len);
    if kind == Kind::Write && len > t.inline {
        let time = t.pcie_time(length);
        ready = nic.from_host.booked(now, ready + t.fetch, time) - time;
        nic.tally.from_host += time;
    }
    if fence {
        ready = ready.max(pair.answered);
    }
    let bytes = request_bytes(t, kind, length);
    pair.unanswered += u32::from(kind.answers());
    transmit(t, rng, nic, pair, (bytes, bytes * t.link_byte), now, ready)
}

/// Sends a request of `bytes` bytes through requester and link; `wire` is its time on the wire. Returns its arrival
/// time.
#[inline(always)]
pub(super) fn transmit(
    t: &Ticks,
    rng: &mut Dice,
    nic: &mut Nic,
    pair: &mut QueuePair,
    (bytes, wire): (u64, u64),
    now: u64,
    ready: u64,
) -> u64 {
    pair.sent = nic.requester.booked(now, ready.max(pair.sent), t.requester);
    let sent = nic.link_out.booked(now, pair.sent, wire);
    nic.tally.messages_out += 1;
    nic.tally.bytes_out += bytes;
    pair.arrived = pair.arrived.max(sent + t.wire + rng.below(t.jitter));
    pair.arrived
}

impl Engine {
    /// Posts a chain that consists of one WRITE.
    #[inline(never)]
    pub(crate) fn post_write(&mut self, client: u16, at: Place, bytes: &[u8], fence: bool) -> (u32, u32) {
        self.post_one(client, &Entry::write(at, bytes, fence))
    }

    /// Posts a chain that consists of one atomic or one word READ.
    #[inline(never)]
    pub(crate) fn post_words(&mut self, client: u16, entry: &Entry<'_>) -> (u32, u32) {
        self.post_one(client, entry)
    }

    /// Opens, fills and rings a chain of one request. One function does all three steps, so that each look-up is done
    /// only once.
    #[inline(always)]
    pub(super) fn post_one(&mut self, client: u16, entry: &Entry<'_>) -> (u32, u32) {
        let node = entry.at.node();
        let qp = self.pair(client, node);
        let (Some(chain), Some(to), Some(pair)) = (
            self.vacant(client),
            self.nodes.get(usize::from(node.0)),
            self.pairs.get_mut(qp),
        ) else {
            return self.post_slowly(client, entry);
        };
        let odd = pair.odd.any(UNABLE) || entry.fence;
        if odd || check(&to.caps, entry).is_some() {
            return self.post_slowly(client, entry);
        }
        if entry.at.space() == Space::Host {
            to.memory.prefetch(entry.at.offset() as usize, entry.len);
        }
        let client_nic = self.clients[usize::from(client)].nic;
        let c = &mut self.chains[chain as usize];
        c.leave_free(&mut self.free_chains);
        c.status.take_off();
        c.first.set(entry);
        c.count = 1;
        c.unanswered = 1;
        c.qp = qp as u32;
        c.client = client;
        c.client_nic = client_nic;
        c.node = node.0;
        c.node_nic = to.nic;
        let t = &self.t;
        let nic = &mut self.nics[usize::from(client_nic)];
        let ready = take_cpu(&mut self.clients, client, self.now, t.post) + t.doorbell;
        let what = (entry.kind, entry.len as u32, false);
        let at = send(t, &mut self.rng, nic, pair, what, self.now, ready);
        self.queue.push(at, What::Arrive { chain, request: 0 }.pack());
        (chain, c.status.generation())
    }

    #[cold]
    #[inline(never)]
    pub(super) fn post_slowly(&mut self, client: u16, entry: &Entry<'_>) -> (u32, u32) {
        let (chain, generation) = self.open(client, entry.at.node());
        self.push(chain, entry);
        self.ring(chain);
        (chain, generation)
    }

    /// Rings the doorbell of `chain`.
    #[inline]
    pub(crate) fn ring(&mut self, chain: u32) {
        let c = &mut self.chains[chain as usize];
        debug_assert_eq!(c.status.state(), State::Building, "a chain is rung once");
        let client = self.clients[usize::from(c.client)];
        if client.crashed {
            // A crashed client rings no doorbell. The chain is discarded when it is closed.
            return;
        }
        let cpu = self.t.post + self.t.post_next * u64::from(c.count).saturating_sub(1);
        let posted = take_cpu(&mut self.clients, c.client, self.now, cpu);
        c.status.set_state(State::Flying);
        c.bell = posted + self.t.doorbell;
        c.unanswered = c.count;
        if c.status.failed() || c.count == 0 || client.fenced {
            self.refuse(chain, posted);
        } else if self.pairs[c.qp as usize].odd.any(Odd::PARKED) {
            let qp = c.qp;
            self.parked.entry(qp).or_default().push_back((chain, 0));
        } else {
            self.issue(chain, 0);
        }
    }

    /// Completes the chain without sending any request: without results if it is empty, with an error if it has failed
    /// already or if its client is fenced.
    #[cold]
    fn refuse(&mut self, chain: u32, posted: u64) {
        let c = &self.chains[chain as usize];
        if self.clients[usize::from(c.client)].fenced {
            let at = c
                .requests()
                .next()
                .map_or(dm_verbs::RemotePtr::NULL.into(), crate::request::Request::at);
            self.fail(chain, VerbError::refused(VerbErrorKind::Fenced, at));
        }
        let c = &mut self.chains[chain as usize];
        c.clear();
        c.unanswered = 0;
        self.schedule(posted + self.t.completion, What::Done { chain });
    }

    /// Sends the requests of `chain` from number `from` on, up to a fence that must wait. Returns whether all
    /// were sent.
    #[inline]
    pub(super) fn issue(&mut self, chain: u32, from: u16) -> bool {
        let t = &self.t;
        let c = &self.chains[chain as usize];
        let pair = &mut self.pairs[c.qp as usize];
        let nic = &mut self.nics[usize::from(c.client_nic)];
        for i in from..c.count {
            let r = c.request(i);
            if r.fence && pair.unanswered > 0 {
                pair.odd.set(Odd::PARKED, true);
                self.parked.entry(c.qp).or_default().push_front((chain, i));
                return false;
            }
            if r.space() == Space::Host {
                self.nodes[usize::from(c.node)]
                    .memory
                    .prefetch(r.offset(), r.len as usize);
            }
            let ready = if i == 0 { c.bell } else { c.bell + t.fetch };
            let what = (r.kind, r.len, r.fence);
            let at = send(t, &mut self.rng, nic, pair, what, self.now, ready);
            self.queue.push(at, What::Arrive { chain, request: i }.pack());
        }
        true
    }

    /// Records that a READ or atomic of queue pair `qp` never completes. Its client gets the error at time `at`.
    pub(super) fn unanswered(&mut self, qp: u32, at: u64) {
        let pair = &mut self.pairs[qp as usize];
        pair.unanswered -= 1;
        pair.answered = pair.answered.max(at);
        if pair.odd.any(Odd::PARKED) && pair.unanswered == 0 {
            self.unpark(qp);
        }
    }

    /// Sends the requests behind a fence. The completion times of all READs and atomics before the fence are known now,
    /// and `send` delays the fenced request until the last of them.
    #[cold]
    pub(super) fn unpark(&mut self, qp: u32) {
        self.pairs[qp as usize].odd.set(Odd::PARKED, false);
        while let Some((chain, from)) = self
            .parked
            .get_mut(&qp)
            .and_then(std::collections::VecDeque::pop_front)
        {
            if !self.issue(chain, from) {
                return;
            }
        }
    }
}
