//! Failing queue pairs: the errors that their clients see, and the effects that their requests may still have.
//!
//! The client sees an error at once, and pending requests of the queue pair may take effect later. This also covers a
//! request that was carried out just before its error was reported, because no client can distinguish the two cases.

use dm_verbs::{Effect, VerbError, VerbErrorKind};

use super::chain::{Chain, Request, refused};
use super::offer::NODES_MAX;
use super::{Machine, Then};
use crate::knobs::Late;

impl Machine {
    /// Returns the chains of client `c` to `node` that have not completed, in the order of their doorbells.
    fn in_flight(&self, c: u8, node: u16) -> Vec<u16> {
        let client = &self.clients[usize::from(c)];
        let live = client.live.iter().copied();
        live.filter(|&i| {
            let chain = &client.chains[usize::from(i)];
            chain.node == node && !chain.done
        })
        .collect()
    }

    /// Fails the queue pair of client `c` to `node`. The error of its first chain reports that `told` requests of this
    /// chain were carried out.
    pub(super) fn fail_pair(&mut self, c: u8, node: u8, told: u8) -> Then {
        let node = u16::from(node);
        self.faults.2 += 1;
        self.leave_behind(c, node);
        let mut told = usize::from(told);
        for i in self.in_flight(c, node) {
            self.cut(c, i, VerbErrorKind::ConnectionLost, core::mem::take(&mut told));
        }
        // If the client stays cut off, this counts as another failure, so it is offered only if the model allows more
        // failures.
        if self.faults.2 < self.knobs.failures {
            self.clients[usize::from(c)].down |= 1 << node;
        }
        self.complete(c, node)
    }

    /// Keeps client `c` cut off after its queue pair to `node` has failed. Its chains that are in flight there end in
    /// an error without effect, because none of their requests was sent.
    pub(super) fn refuse(&mut self, c: u8, node: u8) -> Then {
        let node = u16::from(node);
        self.faults.2 += 1;
        for i in self.in_flight(c, node) {
            let chain = &mut *self.clients[usize::from(c)].chains[usize::from(i)];
            if let Some(first) = chain.requests.first() {
                let at = self.mem.place(first.at);
                chain.error = Some(refused(VerbErrorKind::Unreachable, at, 0));
            }
            chain.requests.clear();
            chain.left = 0;
        }
        self.complete(c, node)
    }

    /// Crashes client `c`. Its later actions have no effect, and its pending results are dropped.
    pub(super) fn die(&mut self, c: u8) {
        for node in 0..NODES_MAX as u16 {
            self.leave_behind(c, node);
        }
        let client = &mut *self.clients[usize::from(c)];
        client.awaiting.clear();
        client.control = None;
        for i in core::mem::take(&mut client.live) {
            client.drop_chain(i);
        }
    }

    /// Ends chain `i` of client `c` with an error, which reports that the chain's first `told` requests were carried
    /// out.
    pub(super) fn cut(&mut self, c: u8, i: u16, kind: VerbErrorKind, told: usize) {
        let chain = &mut *self.clients[usize::from(c)].chains[usize::from(i)];
        for r in &mut chain.requests {
            (r.half, r.finished) = (false, true);
        }
        // If the chain had an error before its doorbell, this error stays unless requests before the error are still to
        // be carried out.
        if let Some(r) = chain.requests.get(told)
            && (chain.left > 0 || chain.error.is_none())
        {
            chain.error = Some(VerbError {
                kind,
                at: self.mem.place(r.at),
                index: told as u16,
                effect: Effect::Unknown,
                rest: Effect::Unknown,
            });
        }
        chain.left = 0;
    }

    /// Moves the unfinished requests of the chains of client `c` to `node`, if they were sent, to late chains. From now
    /// on they may take effect independently of the chains. READs are left out, because they have no effect.
    fn leave_behind(&mut self, c: u8, node: u16) {
        let chains = self.in_flight(c, node);
        let mut overtaken = false;
        let client = &mut *self.clients[usize::from(c)];
        for &i in chains.iter().rev() {
            for r in client.chains[usize::from(i)].requests.iter_mut().rev() {
                // The card has received all requests that were sent before one that it has carried out.
                r.overtaken = overtaken && !r.finished;
                overtaken |= r.done != 0 || r.half;
            }
        }
        let (mut answer_is_due, mut stopped) = (false, false);
        let last = client.late.last();
        let pair = last.map_or(0, |&i| client.chains[usize::from(i)].pair) + 1;
        for i in chains {
            let chain = &client.chains[usize::from(i)];
            let mut content = chain.content;
            let mut left: Vec<Request> = Vec::new();
            for (number, r) in chain.requests.iter().enumerate().filter(|(_, r)| !r.finished) {
                // A fenced request waits for earlier answers, which do not arrive any more.
                stopped |= r.fence && answer_is_due;
                answer_is_due |= !matches!(r.kind, super::chain::Kind::Write);
                if !stopped && !r.kind.is_read() {
                    content.fold(number as u64);
                    left.push(*r);
                }
            }
            if left.is_empty() {
                continue;
            }
            let late = Chain {
                node,
                pair,
                left: left.len() as u16,
                requests: left,
                data: chain.data.clone(),
                content,
                rung: true,
                closed: true,
                operations: chain.operations,
                ..Chain::default()
            };
            let place = client.keep(late);
            client.late.push(place);
            if let Some(log) = &mut self.log {
                log.moved(c, i, place);
            }
        }
        // A racy atomic that has taken only its first step blocks its word, until its second step is carried out late
        // or a fence ends the atomic.
    }

    /// Serves a unit of late chain number `place` of the client. The client does not notice this.
    pub(super) fn serve_late(&mut self, c: u8, place: u8, request: u8, unit: u8) -> Then {
        let client = &self.clients[usize::from(c)];
        let i = client.late[usize::from(place)];
        let chain = &client.chains[usize::from(i)];
        let (node, pair) = (chain.node, chain.pair);
        if self.serve(c, i, (true, place, request), unit) {
            let client = &mut *self.clients[usize::from(c)];
            client.late.remove(usize::from(place));
            client.drop_chain(i);
        }
        // All requests that were sent before this request have arrived as well.
        let ahead = usize::from(place) + 1;
        let client = &mut *self.clients[usize::from(c)];
        for k in 0..ahead.min(client.late.len()) {
            let other = client.late[k];
            let chain = &mut *client.chains[usize::from(other)];
            if (chain.node, chain.pair) == (node, pair) {
                let end = if other == i {
                    usize::from(request)
                } else if k < usize::from(place) {
                    chain.requests.len()
                } else {
                    0
                };
                for r in chain.requests[..end].iter_mut().filter(|r| !r.finished) {
                    r.overtaken = true;
                }
            }
        }
        let before = client.late.len();
        self.shut(c, node, pair);
        if self.clients[usize::from(c)].late.len() < before {
            // Steps identify late chains by their positions, which have changed. So this step must not commute with
            // other late steps of the client: one that sleeps would then name the wrong chain.
            self.footprint.inner = None;
        }
        Then::Nothing
    }

    /// Records that a request of client `c` takes effect on `node` through its current queue pair.
    #[inline]
    pub(super) fn connected(&mut self, c: u8, node: u16) {
        let client = &self.clients[usize::from(c)];
        if client.down != 0 {
            self.clients[usize::from(c)].down &= !(1 << node);
        }
        if !self.clients[usize::from(c)].late.is_empty() {
            self.shut(c, node, u8::MAX);
        }
    }

    /// Shuts the queue pairs of client `c` to `node` whose number is less than `pair`, if the knobs promise it.
    fn shut(&mut self, c: u8, node: u16, pair: u8) {
        if self.knobs.late == Late::UntilNext {
            self.drop_late(c, |chain| chain.node == node && chain.pair < pair);
        }
    }

    /// Removes the unfinished requests of those late chains of client `c` for which `dead` returns true. These requests
    /// never take effect.
    pub(super) fn drop_late(&mut self, c: u8, dead: impl Fn(&Chain) -> bool) {
        let client = &mut *self.clients[usize::from(c)];
        let mut late = core::mem::take(&mut client.late);
        late.retain(|&i| {
            let chain = &client.chains[usize::from(i)];
            let gone = dead(chain);
            if gone {
                for r in chain.requests.iter().filter(|r| r.half) {
                    self.held.retain(|&w| w != r.at);
                }
                client.drop_chain(i);
            }
            !gone
        });
        client.late = late;
    }
}
