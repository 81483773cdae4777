//! From the doorbell to the wire.

use dm_verbs::{VerbError, VerbErrorKind};

use super::{Engine, What};
use crate::chain::{Kind, Request, State};
use crate::model::Ticks;

/// Charged CPU ends on a whole nanosecond: up to this many picoseconds later a coroutine is still running.
const RESUME: u64 = 1000;

/// Bytes on the wire of a request.
#[inline]
pub(super) fn request_bytes(t: &Ticks, r: &Request) -> u64 {
    match r.kind {
        Kind::Write => u64::from(r.len) + t.packets(u64::from(r.len)) * t.header_write,
        Kind::Read | Kind::Word => t.header_request,
        // Operands travel in the extended header.
        Kind::Cas | Kind::Faa => t.header_request + 16,
        Kind::MaskedCas => t.header_request + 32,
    }
}

impl Engine {
    /// The doorbell of `chain`.
    #[inline]
    pub(crate) fn ring(&mut self, chain: u32) {
        let c = &mut self.chains[chain as usize];
        debug_assert_eq!(c.state, State::Building, "a chain is rung once");
        let client = &mut self.clients[usize::from(c.client)];
        if client.crashed {
            // A dead client's processor rings nothing; the chain is forgotten when it is closed.
            return;
        }
        let cpu = self.t.post + self.t.post_next * u64::from(c.count).saturating_sub(1);
        let free = &mut self.thread_free[client.thread];
        let backlog = (*free).max(self.now);
        *free = backlog + cpu;
        // A coroutine that has the CPU keeps it for posting; one that was woken waits for its turn.
        let running = self.now < client.slice_end + RESUME;
        let posted = if running {
            client.slice_end.max(self.now)
        } else {
            backlog
        } + cpu;
        client.slice_end = posted;
        c.state = State::Flying;
        c.bell = posted + self.t.doorbell;
        c.unanswered = c.count;
        c.unexecuted = c.count;
        if c.failed || c.count == 0 || client.fenced {
            self.refuse(chain, posted);
        } else if self.pairs[c.qp as usize].parked {
            let qp = c.qp;
            self.parked.entry(qp).or_default().push_back((chain, 0));
        } else {
            self.issue(chain, 0);
        }
    }

    /// Nothing is sent: the work queue's own error completion.
    #[cold]
    fn refuse(&mut self, chain: u32, posted: u64) {
        let c = &self.chains[chain as usize];
        if self.clients[usize::from(c.client)].fenced {
            let at = c
                .requests()
                .next()
                .map_or(dm_verbs::RemotePtr::NULL.into(), |r| r.at);
            self.fail(chain, VerbError::refused(VerbErrorKind::Fenced, at));
        }
        let c = &mut self.chains[chain as usize];
        c.clear();
        c.unanswered = 0;
        c.unexecuted = 0;
        self.schedule(posted + self.t.completion, What::Done { chain });
    }

    /// Sends the requests of `chain` from number `from` on, as far as fences allow; whether all are sent.
    #[inline]
    pub(super) fn issue(&mut self, chain: u32, from: u16) -> bool {
        let t = &self.t;
        let c = &self.chains[chain as usize];
        let pair = &mut self.pairs[c.qp as usize];
        let nic = &mut self.nics[usize::from(c.client_nic)];
        for i in from..c.count {
            let r = c.request(i);
            if r.fence && pair.unanswered > 0 {
                pair.parked = true;
                self.parked.entry(c.qp).or_default().push_front((chain, i));
                return false;
            }
            let mut ready = if i == 0 { c.bell } else { c.bell + t.fetch };
            if r.kind == Kind::Write && r.len > t.inline {
                let time = t.pcie_time(u64::from(r.len));
                ready = nic.from_host.booked(self.now, ready + t.fetch, time) - time;
            }
            if r.fence {
                ready = ready.max(pair.answered);
            }
            ready = ready.max(pair.sent);
            pair.sent = nic.requester.booked(self.now, ready, t.requester);
            let bytes = request_bytes(t, r);
            let sent = nic.link_out.booked(self.now, pair.sent, bytes * t.link_byte);
            nic.tally.messages_out += 1;
            nic.tally.bytes_out += bytes;
            let jitter = self.rng.below(t.jitter);
            pair.arrived = pair.arrived.max(sent + t.wire + jitter);
            if r.kind.answers() {
                pair.unanswered += 1;
            }
            self.queue
                .push(pair.arrived, What::Arrive { chain, request: i }.pack());
        }
        true
    }

    /// A READ or atomic of queue pair `qp` will never be answered, which its client learns at `at`.
    pub(super) fn unanswered(&mut self, qp: u32, at: u64) {
        let pair = &mut self.pairs[qp as usize];
        pair.unanswered -= 1;
        pair.answered = pair.answered.max(at);
        if pair.parked && pair.unanswered == 0 {
            self.unpark(qp);
        }
    }

    /// The last READ or atomic in flight was answered: what waited behind a fence goes on.
    #[cold]
    pub(super) fn unpark(&mut self, qp: u32) {
        self.pairs[qp as usize].parked = false;
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
