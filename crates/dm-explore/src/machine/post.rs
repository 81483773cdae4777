//! Posting, waiting and pausing: the calls that a client makes to the machine while it is polled.

use dm_verbs::{Op, Outcome, Space, VerbError, VerbErrorKind, Wqe};

use super::Machine;
use super::chain::{Chain, error_hash, needs_word, refused};
use super::client::{Mark, Status};
use super::tape::Call;
use crate::fp::Fp;
use crate::knobs::Retries;
use crate::lease::Lease;
use crate::verdict::Failure;

impl Machine {
    pub(crate) fn open(&mut self, c: u8, node: u16) -> u16 {
        self.note(Call::Open(dm_verbs::NodeId(node)));
        let i = self.clients[usize::from(c)].keep(Chain {
            node,
            content: Fp::seed(u64::from(node)),
            ..Chain::default()
        });
        self.clients[usize::from(c)].open.push(i);
        self.opened_chains = self.opened_chains.wrapping_add(1);
        if self.is_present(c) {
            self.buffers.begin(c, i);
        }
        i
    }

    /// Returns a number that differs between all chains of an execution.
    pub(crate) fn generation(&self) -> u32 {
        self.opened_chains
    }

    pub(crate) fn push(&mut self, c: u8, i: u16, wqe: Wqe<'_>) {
        self.note_push(c, i, wqe);
        let at = wqe.op.at();
        let verdict = self.judge(&wqe.op);
        let chain = &mut *self.clients[usize::from(c)].chains[usize::from(i)];
        if chain.error.is_some() {
            return;
        }
        match verdict {
            Ok(flat) => {
                chain.push(wqe.op, wqe.fence, flat, self.unit);
                if self.is_present(c) {
                    let len = matches!(wqe.op, Op::Read { .. }).then_some(wqe.op.len() as u32);
                    self.buffers.push(c, i, len);
                }
            }
            Err(kind) => chain.error = Some(refused(kind, at, chain.requests.len())),
        }
    }

    fn judge(&self, op: &Op<'_>) -> Result<u32, VerbErrorKind> {
        let at = op.at();
        let flat = self.mem.flat(at, op.len())?;
        if matches!(op, Op::Read { len: 0, .. }) {
            return Err(VerbErrorKind::BadLength { len: 0 });
        }
        if needs_word(op) && !at.offset().is_multiple_of(8) {
            return Err(VerbErrorKind::Misaligned);
        }
        let caps = self.caps(at.node().0);
        if matches!(op, Op::MaskedCas { .. }) && !caps.masked_atomics {
            return Err(VerbErrorKind::Unsupported(dm_verbs::Capability::MaskedAtomics));
        }
        Ok(flat)
    }

    pub(crate) fn caps(&self, node: u16) -> dm_verbs::Caps {
        match (self.mem.size(node, Space::Host), self.mem.size(node, Space::Chip)) {
            (Some(host), Some(chip)) => self.knobs.caps(host, chip),
            _ => dm_verbs::Caps::default(),
        }
    }

    pub(crate) fn ring(&mut self, c: u8, i: u16) {
        self.note_sections();
        self.note_chain(c, i, Call::Ring);
        if self.log.is_some() {
            self.log_post(c, i);
        }
        let client = &mut *self.clients[usize::from(c)];
        let chain = &mut *client.chains[usize::from(i)];
        chain.rung = true;
        chain.operations = client.operations;
        if client.fenced {
            let at = chain.error.map_or(dm_verbs::RemotePtr::NULL.into(), |e| e.at);
            chain.requests.clear();
            chain.left = 0;
            chain.error = Some(refused(VerbErrorKind::Fenced, at, 0));
        }
        client.live.push(i);
        assert!(
            client.live.len() < 256,
            "more than 255 chains of one client in flight"
        );
        let (content, node, empty) = (chain.content.a, chain.node, chain.left == 0);
        if self.immediate {
            self.run_now(c);
            return;
        }
        self.act(c, content);
        if empty {
            // No client waits for the chain yet, so none is polled.
            let _ = self.complete(c, node);
        }
    }

    /// Carries out all requests in order, while the setup runs or shared state is opened.
    fn run_now(&mut self, c: u8) {
        loop {
            let client = &self.clients[usize::from(c)];
            let mut live = client.live.iter();
            let Some(place) = live.position(|&i| client.chains[usize::from(i)].left > 0) else {
                break;
            };
            let requests = &client.chains[usize::from(client.live[place])].requests;
            let request = requests.iter().position(|r| !r.finished).unwrap_or(0);
            let unit = requests[request].done.trailing_ones() as u8;
            let _ = self.serve_live(c, place as u8, request as u8, unit);
        }
        let client = &mut *self.clients[usize::from(c)];
        for &i in &client.live {
            client.chains[usize::from(i)].done = true;
        }
    }

    /// Returns the outcome of chain `i` if the chain is done; its results then count as observed. Otherwise returns
    /// `None`, and records that the client waits for the chain.
    pub(crate) fn poll_chain(&mut self, c: u8, i: u16) -> Option<Result<(), VerbError>> {
        self.note_sections();
        self.note_chain(c, i, Call::Await);
        let client = &mut *self.clients[usize::from(c)];
        let chain = &client.chains[usize::from(i)];
        if !chain.done {
            if !chain.awaited {
                client.chains[usize::from(i)].awaited = true;
                client.awaiting.push(i);
            }
            return None;
        }
        let answer = chain.error.map_or(Ok(()), Err);
        if !chain.observed {
            let chain = &mut *client.chains[usize::from(i)];
            chain.observed = true;
            client.seen.fold(5);
            chain.fold_results(&mut client.seen);
            client.reads.append(&mut chain.seen);
            client.live.retain(|&x| x != i);
        }
        Some(answer)
    }

    pub(crate) fn take(&mut self, c: u8, i: u16, result: u16) -> Outcome<Lease> {
        let chain = &self.clients[usize::from(c)].chains[usize::from(i)];
        match chain.result(result) {
            None => Outcome::None,
            Some(number) => {
                let lease = self.buffers.take(c, i, number);
                lease.map_or(Outcome::Old(chain.requests[number].old), Outcome::Lease)
            }
        }
    }

    pub(crate) fn close(&mut self, c: u8, i: u16) {
        self.note_sections();
        self.note_chain(c, i, Call::Close);
        let client = &mut *self.clients[usize::from(c)];
        client.open.retain(|&x| x != i);
        let chain = &client.chains[usize::from(i)];
        if !chain.rung || chain.observed {
            client.drop_chain(i);
            return;
        }
        let chain = &mut *client.chains[usize::from(i)];
        chain.closed = true;
        chain.awaited = false;
        self.sweep(c);
    }

    pub(crate) fn take_deferred(&mut self, c: u8) -> Option<VerbError> {
        self.note(Call::Deferred);
        let client = &mut self.clients[usize::from(c)];
        let e = client.deferred.take();
        if let Some(e) = &e {
            client.seen.fold2(error_hash(e));
        }
        e
    }

    /// Fences client `c`. From now on, none of its requests takes effect.
    pub(super) fn fence(&mut self, c: u8) {
        let unfinished: Vec<u16> = self.clients[usize::from(c)].live.clone();
        for i in unfinished {
            let chain = &self.clients[usize::from(c)].chains[usize::from(i)];
            if chain.done {
                continue;
            }
            for r in chain.requests.iter().filter(|r| r.half) {
                self.held.retain(|&w| w != r.at);
            }
            self.cut(c, i, VerbErrorKind::Fenced, 0);
            self.clients[usize::from(c)].chains[usize::from(i)].done = true;
            self.log_completion(c, i);
        }
        self.drop_late(c, |_| true);
        let client = &mut self.clients[usize::from(c)];
        client.fenced = true;
        // The client may notice the fence at any later time.
        client.woken |= client.status == Status::Running;
        self.sweep(c);
    }

    // ---- local steps, pauses, marks ---------------------------------------------------------------------------

    pub(crate) fn poll_local(&mut self, c: u8, state: &mut u64) -> bool {
        self.note_sections();
        if self.immediate {
            return true;
        }
        self.note(Call::Local(*state != 0));
        if *state == 0 {
            *state = 1;
            self.act(c, 1);
        }
        let client = &mut self.clients[usize::from(c)];
        if core::mem::take(&mut client.granted_local) {
            return true;
        }
        client.at_local = true;
        false
    }

    pub(crate) fn poll_pause(&mut self, c: u8, state: &mut u64) -> bool {
        self.note_sections();
        if self.immediate {
            return core::mem::replace(state, 1) != 0;
        }
        self.note(Call::Pause(*state != 0));
        let client = &mut self.clients[usize::from(c)];
        if *state == 0 {
            *state = 1;
            self.begin_pause(c);
            return false;
        }
        if core::mem::take(&mut client.granted_pause) {
            client.rewound = false;
            client.ready = false;
            let (looks, changed) = (client.looks, client.changed);
            match client.pause_mark.take().and_then(|m| client.marks.get_mut(m)) {
                Some(mark) => (mark.looks, mark.changed) = (looks, changed),
                None => (client.looks_before, client.changed_before) = (looks, changed),
            }
            client.watch.clear();
            return true;
        }
        client.paused = true;
        false
    }

    fn begin_pause(&mut self, c: u8) {
        // Whether the pause may end at once depends on everything that the attempt has read, so the outcome of this
        // step must not be recorded.
        self.spoil();
        let client = &mut *self.clients[usize::from(c)];
        if !client.rewound {
            client.watch.clear();
            client.watch.append(&mut client.reads);
            client.timed = client.asked > client.asked_before;
            client.asked_before = client.asked;
            client.pause_mark = None;
            client.pause_base = client.changed_before;
            client.watch_local = client.looks > client.looks_before;
        }
        client.granted_pause = false;
        // Without fingerprints, any access may have changed the shared state, so the next attempt may differ.
        let moved = client.watch_local && !self.own_fingerprints && !self.blind;
        let stale = client.watch_local && client.looked != self.nodes[usize::from(client.node)].chain;
        let stale = stale || moved || client.changed != client.pause_base;
        if client.watch_local {
            self.footprint.nodes |= 1 << (client.node % 64);
        }
        self.footprint.compares = true;
        let watch = core::mem::take(&mut self.clients[usize::from(c)].watch);
        // If attempts are counted, a pause may end at any time, because the budget of a loop must be able to run out.
        let changed = self.has_changed(&watch);
        if self.lock_free && !changed && !stale {
            self.fail(Failure::NotLockFree { clients: vec![c] });
        }
        let changed = changed || matches!(self.knobs.retries, Retries::Bounded(_));
        let client = &mut self.clients[usize::from(c)];
        client.watch = watch;
        client.ready = changed || stale;
        client.paused = true;
        if let Some(log) = &mut self.log {
            log.remark(c, "pauses".to_owned());
        }
        if !client.rewound {
            self.act(c, 2);
        }
    }

    pub(crate) fn mark(&mut self, c: u8) -> u64 {
        self.note_sections();
        self.note(Call::Mark);
        let client = &mut *self.clients[usize::from(c)];
        let (seen, acts, rng, asked) = (client.seen, client.acts, client.rng, client.asked);
        client.marks.push(Mark {
            seen,
            acts,
            rng,
            reads: client.reads.len(),
            asked,
            looks: client.looks,
            changed: client.changed,
        });
        (client.marks.len() - 1) as u64
    }

    pub(crate) fn rewind(&mut self, c: u8, mark: u64) {
        self.note_sections();
        self.note(Call::Rewind(mark));
        if self.knobs.retries != Retries::Rewound || self.immediate {
            return;
        }
        let client = &mut *self.clients[usize::from(c)];
        let Some(&m) = client.marks.get(mark as usize) else {
            return;
        };
        // The inner loops of a failed attempt ended with the attempt.
        client.marks.truncate(mark as usize + 1);
        client.marks_before = client.marks_before.min(client.marks.len());
        client.seen = m.seen;
        client.acts = m.acts;
        client.rng = m.rng;
        client.timed = client.asked > m.asked;
        client.asked = m.asked;
        client.pause_mark = Some(mark as usize);
        client.pause_base = m.changed;
        client.watch_local = client.looks > m.looks;
        client.watch.clear();
        client
            .watch
            .extend(client.reads.drain(m.reads.min(client.reads.len())..));
        client.rewound = true;
    }

    pub(crate) fn rng(&mut self, c: u8, stream: u32) -> u64 {
        self.note(Call::Rng(stream));
        let client = &mut self.clients[usize::from(c)];
        client.rng += 1;
        client.seen.fold(8);
        Fp::at(u64::from(stream) | u64::from(c) << 32, u64::from(client.rng)).a
    }
}
