//! What fails, when the client learns of it, and what it may believe about the effect.

use dm_verbs::{Effect, VerbError, VerbErrorKind};

use super::{Engine, Odd, What};

impl Engine {
    /// Notes the first error of `chain`.
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
            .expect("a failed chain has its error");
        self.errors.swap_remove(i).1
    }

    /// An error that nobody polled for fails the client's next operation.
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

    /// The first error of `client` that nobody polled for, once.
    #[inline]
    pub(crate) fn take_deferred(&mut self, client: u16) -> Option<VerbError> {
        if self.deferred.is_empty() {
            return None;
        }
        let i = self.deferred.iter().position(|(of, _)| *of == client)?;
        Some(self.deferred.swap_remove(i).1)
    }

    /// Request `i` of `chain` reached nobody: the node is cut off, the connection broken, or the client fenced.
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

    /// How long a client waits before it learns of an error.
    fn patience(&self, kind: VerbErrorKind) -> u64 {
        if kind == VerbErrorKind::Fenced {
            self.t.wire + self.t.completion
        } else {
            self.t.timeout
        }
    }

    /// Since requests of `chain`, which seems to have completed, arrived, the node was cut off. Whether that was
    /// before the last answer had left: then they have acted, but nobody hears of it.
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
        // A fenced request is refused by the node; of a silent node the client can't tell what it did.
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

    /// From now on `client` rings nothing.
    pub(crate) fn crash(&mut self, client: u16) {
        let (client, nodes) = (usize::from(client), self.nodes.len());
        self.clients[client].crashed = true;
        for pair in &mut self.pairs[client * nodes..(client + 1) * nodes] {
            pair.odd.set(Odd::CRASHED, true);
        }
    }

    /// From now on no request of `client` that arrives takes effect. Tells when the last that has arrived does.
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
