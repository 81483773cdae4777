//! The endpoint's operations on chains: open, fill, poll, take, close.

use std::task::{Poll, Waker};

use dm_verbs::{Capability, Caps, NodeId, Outcome, Place, RemotePtr, Space, VerbError, VerbErrorKind};

use super::Engine;
use crate::chain::{Chain, FOREIGN, NOBODY};
use crate::lease::{LONGEST, Lease};
use crate::request::{Entry, Kind};
use crate::status::State;

impl Engine {
    /// Opens a chain from `client` to `node`. If the node does not exist, the chain fails with `NoSuchNode`.
    #[inline]
    pub(crate) fn open(&mut self, client: u16, node: NodeId) -> (u32, u32) {
        let index = self.vacant(client).unwrap_or_else(|| {
            self.chains.push(Chain::new());
            (self.chains.len() - 1) as u32
        });
        let known = usize::from(node.0) < self.nodes.len();
        let node_known = if known { node } else { NodeId(0) };
        let qp = self.pair(client, node_known);
        let chain = &mut self.chains[index as usize];
        chain.leave_free(&mut self.free_chains);
        chain.status.set_state(State::Building);
        chain.count = 0;
        chain.qp = qp as u32;
        chain.client = client;
        chain.client_nic = self.clients[usize::from(client)].nic;
        chain.node = node_known.0;
        chain.node_nic = self.nodes[usize::from(node_known.0)].nic;
        let generation = chain.status.generation();
        if !known {
            let place = RemotePtr::new(node, 0).unwrap_or_default().into();
            self.fail(index, VerbError::refused(VerbErrorKind::NoSuchNode, place));
        }
        (index, generation)
    }

    /// Returns the queue pair of `client` to `node`. The node must exist.
    #[inline]
    pub(super) fn pair(&self, client: u16, node: NodeId) -> usize {
        usize::from(client) * self.nodes.len() + usize::from(node.0)
    }

    /// Returns a free chain for `client`: its own chain, or the first one of the list. Returns `None` if there is
    /// none.
    #[inline]
    pub(super) fn vacant(&self, client: u16) -> Option<u32> {
        let home = self.clients[usize::from(client)].home;
        let index = if self.chains[home as usize].status.is_free() {
            home
        } else {
            self.free_chains
        };
        (index != NOBODY).then_some(index)
    }

    /// Appends a WRITE, or fails the chain if the WRITE is not allowed. Does nothing if the chain has failed already.
    #[inline(never)]
    pub(crate) fn push_write(&mut self, chain: u32, at: Place, bytes: &[u8], fence: bool) {
        self.push_entry(chain, &Entry::write(at, bytes, fence));
    }

    /// Appends a request, or fails the chain if the request is not allowed. Does nothing if the chain has failed
    /// already.
    #[inline(never)]
    pub(crate) fn push(&mut self, chain: u32, entry: &Entry<'_>) {
        self.push_entry(chain, entry);
    }

    #[inline(always)]
    fn push_entry(&mut self, chain: u32, entry: &Entry<'_>) {
        let c = &mut self.chains[chain as usize];
        if c.status.failed() {
            return;
        }
        match check(&self.nodes[usize::from(c.node)].caps, entry) {
            None => c.push(entry),
            Some(kind) => self.fail(chain, VerbError::refused(kind, entry.at)),
        }
    }

    /// Returns whether `chain` has completed without error. If it is still in flight, the task `asking` is polled when
    /// it completes. Returns `None` if the chain has completed with an error, or if it is in flight and polled from
    /// outside a task.
    #[inline(always)]
    pub(crate) fn poll_chain(
        &mut self,
        chain: u32,
        generation: u32,
        asking: impl Fn() -> Option<u32>,
    ) -> Option<bool> {
        let c = &mut self.chains[chain as usize];
        if c.status.is_done(generation) {
            return Some(true);
        }
        self.wait_for(chain, generation, asking)
    }

    /// Polls a chain of which only the first result is needed, and closes the chain if it has completed. Returns
    /// `Some(None)` if the chain is still in flight. Returns `None` if it has completed with an error, or if it is in
    /// flight and polled from outside a task: then only [`Self::poll_slowly`] can tell its state.
    #[inline(always)]
    pub(crate) fn poll_single(
        &mut self,
        chain: u32,
        generation: u32,
        asking: impl Fn() -> Option<u32>,
    ) -> Option<Option<Outcome<Lease>>> {
        let c = &mut self.chains[chain as usize];
        if c.status.is_done(generation) && c.count == 1 {
            let outcome = c.first.outcome();
            c.free(&mut self.free_chains, chain);
            return Some(Some(outcome));
        }
        if self.wait_for(chain, generation, asking)? {
            return Some(Some(self.take_and_close(chain, generation)));
        }
        Some(None)
    }

    #[inline(always)]
    fn wait_for(&mut self, chain: u32, generation: u32, asking: impl Fn() -> Option<u32>) -> Option<bool> {
        let c = &mut self.chains[chain as usize];
        if c.status.is_flying(generation)
            && let Some(task) = asking()
        {
            c.owner = task;
            return Some(false);
        }
        self.poll_oddly(chain, generation, asking())
    }

    #[inline(never)]
    fn poll_oddly(&mut self, chain: u32, generation: u32, owner: Option<u32>) -> Option<bool> {
        let c = &mut self.chains[chain as usize];
        assert_eq!(c.status.generation(), generation, "a closed chain was polled");
        match (c.status.state(), owner) {
            (State::Done, _) if !c.status.failed() => Some(true),
            (State::Flying | State::Building, Some(task)) => {
                c.owner = task;
                Some(false)
            }
            _ => None,
        }
    }

    /// Returns the result of `chain` if it has completed: its error, or `Ok` if there was none. If the chain is still
    /// in flight, `waker` is called when it completes.
    #[cold]
    pub(crate) fn poll_slowly(&mut self, chain: u32, waker: &Waker) -> Poll<Result<(), VerbError>> {
        let c = &mut self.chains[chain as usize];
        if c.status.state() == State::Done {
            return Poll::Ready(if c.status.take_failed() {
                Err(self.take_error(chain))
            } else {
                Ok(())
            });
        }
        c.owner = FOREIGN;
        self.foreign.insert(chain, waker.clone());
        Poll::Pending
    }

    #[inline(never)]
    fn take_and_close(&mut self, chain: u32, generation: u32) -> Outcome<Lease> {
        let outcome = self.take(chain, 0);
        self.close(chain, generation);
        outcome
    }

    /// Returns the `i`-th result of a completed chain.
    #[inline]
    pub(crate) fn take(&mut self, chain: u32, i: u16) -> Outcome<Lease> {
        let c = &mut self.chains[chain as usize];
        let mut wanted = i;
        for n in 0..c.count {
            let r = c.request_mut(n);
            if !r.kind.answers() {
                continue;
            }
            if wanted == 0 {
                return r.outcome();
            }
            wanted -= 1;
        }
        Outcome::None
    }

    /// Takes a chain back from its owner, in any state.
    #[inline]
    pub(crate) fn close(&mut self, chain: u32, generation: u32) {
        let c = &mut self.chains[chain as usize];
        if c.status.is_done(generation) {
            c.clear();
            c.free(&mut self.free_chains, chain);
            return;
        }
        assert_eq!(c.status.generation(), generation, "a chain is closed once");
        c.status.set_closed();
        match c.status.state() {
            State::Flying => c.owner = NOBODY,
            State::Done => self.defer_error(chain),
            // The doorbell was never rung, so errors of the chain are not reported.
            State::Building | State::Free => {
                if c.status.take_failed() {
                    let _ = self.take_error(chain);
                }
                self.chains[chain as usize].status.set_state(State::Done);
            }
        }
        self.recycle(chain);
    }

    /// Frees a chain if it is closed, it has completed, and all its requests have acted on memory.
    #[inline]
    pub(super) fn recycle(&mut self, chain: u32) {
        let c = &mut self.chains[chain as usize];
        if c.status.is_over() {
            c.clear();
            c.free(&mut self.free_chains, chain);
        }
    }
}

/// Returns the reason why a request is not allowed, or `None` if it is allowed.
#[inline(always)]
pub(super) fn check(caps: &Caps, entry: &Entry<'_>) -> Option<VerbErrorKind> {
    let size = match entry.at.space() {
        Space::Host => caps.host_bytes,
        Space::Chip => caps.chip_bytes,
    };
    let len = entry.len as u64;
    if len > LONGEST as u64 || (len == 0 && entry.kind.answers()) {
        Some(VerbErrorKind::BadLength { len })
    } else if entry.at.offset() + len > size || size == 0 {
        Some(VerbErrorKind::beyond(entry.at.space(), size))
    } else if !matches!(entry.kind, Kind::Read | Kind::Write) && !entry.at.offset().is_multiple_of(8) {
        Some(VerbErrorKind::Misaligned)
    } else if entry.kind == Kind::MaskedCas && !caps.masked_atomics {
        Some(VerbErrorKind::Unsupported(Capability::MaskedAtomics))
    } else {
        None
    }
}
