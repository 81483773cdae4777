//! Decides which requests fail, when their client gets the error, and which effect the error reports.

use dm_verbs::{Effect, VerbError, VerbErrorKind};

use super::{Engine, Odd, What};

impl Engine {
    /// Records the first error of `chain`.
    #[cold]
    pub(super) fn fail(&mut self, chain: u32, error: VerbError) {
        let c = &mut self.chains[chain as usize];
        if !c.status.failed() {
            c.status.set_failed();
            self.errors.push((chain, error));
        }
    }

    #[cold]
    pub(super) fn take_error(&mut self, chain: u32) -> VerbError {
        let i = self
            .errors
            .iter()
            .position(|(c, _)| *c == chain)
            .expect("a failed chain has an entry in `errors`");
        self.errors.swap_remove(i).1
    }

    /// If no poll has reported the error of `chain`, stores it for the client's next operation. Of several unreported
    /// errors, only the first one is kept.
    #[inline]
    pub(super) fn defer_error(&mut self, chain: u32) {
        let c = &mut self.chains[chain as usize];
        if c.status.take_failed() {
            let client = c.client;
            let error = self.take_error(chain);
            if self.deferred.iter().all(|(of, _)| *of != client) {
                self.deferred.push((client, error));
            }
        }
    }

    /// Takes the first unreported error of `client`.
    #[inline]
    pub(crate) fn take_deferred(&mut self, client: u16) -> Option<VerbError> {
        if self.deferred.is_empty() {
            return None;
        }
        let i = self.deferred.iter().position(|(of, _)| *of == client)?;
        Some(self.deferred.swap_remove(i).1)
    }

    /// Handles request `i` of `chain`, which has no effect: the node is cut off, the connection is broken, or, if
    /// `fenced` is set, the node refuses the client's requests.
    #[cold]
    pub(super) fn lost_request(&mut self, chain: u32, i: u16, fenced: bool) {
        let kind = if fenced {
            VerbErrorKind::Fenced
        } else {
            VerbErrorKind::Unreachable
        };
        self.lost(chain, i, kind);
        let (c, heard) = (&self.chains[chain as usize], self.now + self.patience(kind));
        if c.request(i).kind.answers() {
            self.unanswered(c.qp, heard);
        }
    }

    /// Returns how long a client waits before it gets an error.
    fn patience(&self, kind: VerbErrorKind) -> u64 {
        if kind == VerbErrorKind::Fenced {
            self.t.wire + self.t.completion
        } else {
            self.t.timeout
        }
    }

    /// Fails a chain if its node was cut off after the requests had arrived and before the last response left. The
    /// requests have acted, but the client gets no response. Returns whether the chain fails.
    #[cold]
    pub(super) fn cut_meanwhile(&mut self, chain: u32) -> bool {
        let c = &mut self.chains[chain as usize];
        let node = &self.nodes[usize::from(c.node)];
        c.cuts = node.cuts;
        if c.status.failed() || c.count == 0 || node.cut_at + self.t.wire + self.t.completion > self.now {
            return false;
        }
        let qp = c.qp;
        c.unanswered += 1;
        self.lost(chain, 0, VerbErrorKind::Unreachable);
        self.pairs[qp as usize].answered = self.now + self.t.timeout;
        true
    }

    fn lost(&mut self, chain: u32, i: u16, kind: VerbErrorKind) {
        let fenced = kind == VerbErrorKind::Fenced;
        // A node refuses the requests of a fenced client, so they have no effect. If a node does not answer, the
        // client cannot know the effect.
        let effect = |mutates: bool| {
            if mutates && !fenced {
                Effect::Unknown
            } else {
                Effect::None
            }
        };
        let c = &self.chains[chain as usize];
        let (qp, r) = (c.qp, c.request(i));
        let error = VerbError {
            kind,
            at: r.at(),
            index: i,
            effect: effect(r.kind.mutates()),
            rest: effect(c.requests().skip(usize::from(i) + 1).any(|r| r.kind.mutates())),
        };
        self.fail(chain, error);
        let heard = self.now + self.patience(kind);
        let pair = &mut self.pairs[qp as usize];
        if !fenced {
            pair.odd.set(Odd::BROKEN, true);
        }
        pair.done = pair.done.max(heard);
        let c = &mut self.chains[chain as usize];
        c.done_at = c.done_at.max(pair.done);
        c.unanswered -= 1;
        if c.unanswered == 0 {
            let at = c.done_at;
            self.schedule(at, What::Done { chain });
        }
    }

    /// Crashes `client`: from now on, it posts nothing.
    pub(crate) fn crash(&mut self, client: u16) {
        let (client, nodes) = (usize::from(client), self.nodes.len());
        self.clients[client].crashed = true;
        for pair in &mut self.pairs[client * nodes..(client + 1) * nodes] {
            pair.odd.set(Odd::CRASHED, true);
        }
    }

    /// Fences `client`: requests that arrive from now on have no effect. Returns the time at which the last
    /// request that has arrived takes effect.
    pub(crate) fn fence(&mut self, client: usize) -> u64 {
        let nodes = self.nodes.len();
        self.clients[client].fenced = true;
        let pairs = &mut self.pairs[client * nodes..(client + 1) * nodes];
        pairs
            .iter_mut()
            .map(|p| {
                p.odd.set(Odd::FENCED, true);
                p.order[0].max(p.order[1]).max(p.atomic_at)
            })
            .max()
            .unwrap_or(0)
    }
}
