//! A connection for tests that changes some answers.

use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::task::{Context, Poll};

use crate::{
    Attempts, Caps, ClientId, Control, ControlError, ControlReply, ControlRequest, Env, LocalStep, Meter,
    Nanos, NodeId, Outcome, Place, Slot, Transport, VerbError, Verbs, Wqe,
};

/// Wraps a connection and changes the answers that its fields select. It records the requests to the control plane.
pub struct Altered<E> {
    /// The wrapped connection.
    pub inner: E,
    /// Changes the error of a failed chain that is awaited.
    pub fails: fn(VerbError) -> VerbError,
    /// Returns the error of a direct load, or `None` if the wrapped connection must carry it out.
    pub refuses_load: fn(Place) -> Option<VerbError>,
    /// Returns the error of a request to the control plane, or `None` if the wrapped connection must answer it.
    pub refuses: fn(&ControlRequest) -> Option<ControlError>,
    /// The number of memory nodes to report, if not the real one.
    pub nodes: Option<u16>,
    /// The requests to the control plane that were answered so far.
    pub asked: RefCell<Vec<ControlRequest>>,
}

impl<E> Altered<E> {
    /// Wraps `inner`, and changes no answers.
    pub fn new(inner: E) -> Self {
        Self {
            inner,
            fails: |error| error,
            refuses_load: |_| None,
            refuses: |_| None,
            nodes: None,
            asked: RefCell::default(),
        }
    }
}

impl<E> fmt::Debug for Altered<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Altered")
            .field("nodes", &self.nodes)
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}

impl<E: Control> Control for Altered<E> {
    fn memory_nodes(&self) -> u16 {
        self.nodes.unwrap_or(self.inner.memory_nodes())
    }
    fn poll_control(
        &self,
        request: &ControlRequest,
        state: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlReply, ControlError>> {
        if let Some(error) = (self.refuses)(request) {
            self.asked.borrow_mut().push(*request);
            return Poll::Ready(Err(error));
        }
        let answer = self.inner.poll_control(request, state, cx);
        if answer.is_ready() {
            self.asked.borrow_mut().push(*request);
        }
        answer
    }
}

impl<E: Env> Env for Altered<E> {
    fn client(&self) -> ClientId {
        self.inner.client()
    }
    fn compute_node(&self) -> u16 {
        self.inner.compute_node()
    }
    fn now(&self) -> Nanos {
        self.inner.now()
    }
    fn rng(&self, stream: u32) -> u64 {
        self.inner.rng(stream)
    }
    fn meter(&self) -> &Meter {
        self.inner.meter()
    }
    fn poll_pause(&self, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        self.inner.poll_pause(state, cx)
    }
    fn poll_local(&self, step: LocalStep, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        self.inner.poll_local(step, state, cx)
    }
    fn poll_charge(&self, work: Nanos, until: &mut Option<Nanos>, cx: &mut Context<'_>) -> Poll<()> {
        self.inner.poll_charge(work, until, cx)
    }
}

impl<E: Env> Attempts for Altered<E> {}

impl<E: Verbs> Transport for Altered<E> {
    type Lease = E::Lease;
    fn caps(&self, node: NodeId) -> Caps {
        self.inner.caps(node)
    }
    fn open(&self, node: NodeId) -> Slot {
        self.inner.open(node)
    }
    fn push(&self, slot: &Slot, wqe: Wqe<'_>) {
        self.inner.push(slot, wqe);
    }
    fn ring(&self, slot: &Slot) {
        self.inner.ring(slot);
    }
    fn poll_chain(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<(), VerbError>> {
        self.inner.poll_chain(slot, cx).map_err(self.fails)
    }
    fn take(&self, slot: &Slot, i: u16) -> Outcome<Self::Lease> {
        self.inner.take(slot, i)
    }
    fn close(&self, slot: Slot) {
        self.inner.close(slot);
    }
    fn take_deferred(&self) -> Option<VerbError> {
        self.inner.take_deferred()
    }
    fn load_image(&self, at: Place, bytes: &[u8]) -> Result<(), VerbError> {
        match (self.refuses_load)(at) {
            Some(error) => Err(error),
            None => self.inner.load_image(at, bytes),
        }
    }
}
