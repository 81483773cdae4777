//! An endpoint with a control plane that the test defines.

use core::task::{Context, Poll};
use std::cell::RefCell;

use dm_verbs::{
    Attempts, Caps, ClientId, Control, ControlError, ControlReply, ControlRequest, Env, LocalStep, Meter,
    Nanos, NodeId, Outcome, Place, Slot, Transport, VerbError, Verbs, Wqe,
};

/// An endpoint that records requests to the control plane and refuses some of them.
pub(crate) struct Troubled<E> {
    pub(crate) inner: E,
    /// Returns the error of a request; `None` if the endpoint must answer.
    pub(crate) refuses: fn(&ControlRequest) -> Option<ControlError>,
    /// Number of listed memory nodes, if it is not the real one.
    pub(crate) nodes: Option<u16>,
    pub(crate) asked: RefCell<Vec<ControlRequest>>,
}

impl<E: Control> Troubled<E> {
    pub(crate) fn new(inner: E) -> Self {
        Self {
            inner,
            refuses: |_| None,
            nodes: None,
            asked: RefCell::default(),
        }
    }
}

impl<E: Control> Control for Troubled<E> {
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

impl<E: Env> Env for Troubled<E> {
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

impl<E: Env> Attempts for Troubled<E> {}

impl<E: Verbs> Transport for Troubled<E> {
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
        self.inner.poll_chain(slot, cx)
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
        self.inner.load_image(at, bytes)
    }
}
