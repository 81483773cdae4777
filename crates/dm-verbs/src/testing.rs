//! Tests: a connection that changes some answers, and a check of a world.

use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::task::{Context, Poll};

use crate::{
    Attempts, CallState, Capability, Caps, ChipPtr, ClientId, Control, ControlError, ControlReply,
    ControlRequest, Effect, Env, LocalStep, MaskedCas, Meter, Nanos, NodeId, Outcome, Place, RemotePtr, Slot,
    Transport, VerbError, VerbErrorKind, Verbs, Wqe,
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
        state: &mut CallState,
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

/// Checks that memory node 0 of a world refuses requests that it cannot carry out, with the errors that [`Verbs`]
/// states, and serves the client afterwards.
///
/// # Panics
/// Panics if it does not.
pub async fn check_refusals<V: Verbs>(v: &V) {
    let node = NodeId(0);
    let caps = v.caps(node);
    let refused = |answer: Result<(), VerbError>, expected: VerbErrorKind, what: &str| {
        let error = answer.expect_err(what);
        assert_eq!((error.kind, error.overall()), (expected, Effect::None), "{what}");
    };
    let host = |offset| RemotePtr::new(node, offset).expect("a memory has fewer than 2^48 bytes");
    let chip = |offset| ChipPtr::new(node, offset).expect("a memory has fewer than 2^48 bytes");

    let beyond = VerbErrorKind::OutOfBounds {
        size: caps.host_bytes,
    };
    let (last, end) = (caps.host_bytes - 1, caps.host_bytes.next_multiple_of(8));
    check_beyond(v, [host(last).into(), host(end).into()], beyond).await;
    let beyond = match caps.chip_bytes {
        0 => VerbErrorKind::Unsupported(Capability::ChipMemory),
        size => VerbErrorKind::OutOfBounds { size },
    };
    let (last, end) = (
        caps.chip_bytes.saturating_sub(1),
        caps.chip_bytes.next_multiple_of(8),
    );
    check_beyond(v, [chip(last).into(), chip(end).into()], beyond).await;
    if caps.chip_bytes == 0 {
        refused(v.write(chip(0), &[]).await, beyond, "an empty WRITE");
    }

    let crooked = host(12);
    refused(
        v.word(crooked).await.map(drop),
        VerbErrorKind::Misaligned,
        "a word READ",
    );
    refused(
        v.cas(crooked, 0, 1).await.map(drop),
        VerbErrorKind::Misaligned,
        "a CAS",
    );
    refused(
        v.faa(crooked, 1).await.map(drop),
        VerbErrorKind::Misaligned,
        "an FAA",
    );
    let empty = VerbErrorKind::BadLength { len: 0 };
    refused(v.read(host(0), 0).await.map(drop), empty, "an empty READ");
    if !caps.masked_atomics {
        let masked = MaskedCas {
            compare: 0,
            compare_mask: 1,
            swap: 1,
            swap_mask: 1,
        };
        let answer = v.chain(node).masked_cas(host(0), masked).await;
        let lacking = VerbErrorKind::Unsupported(Capability::MaskedAtomics);
        refused(answer.map(drop), lacking, "a masked CAS");
    }
    let nowhere = RemotePtr::new(NodeId(u16::MAX), 0).expect("0 is small");
    refused(
        v.word(nowhere).await.map(drop),
        VerbErrorKind::NoSuchNode,
        "a READ of no node",
    );
    v.word(host(0)).await.expect("the connection still works");
}

/// Checks requests of two bytes at the first place, and requests of a word at the second one.
async fn check_beyond<V: Verbs>(v: &V, [bytes, word]: [Place; 2], expected: VerbErrorKind) {
    let refused = |answer: Result<(), VerbError>, what: &str| {
        let error = answer.expect_err(what);
        assert_eq!(
            (error.kind, error.overall()),
            (expected, Effect::None),
            "{what} at {}",
            error.at
        );
    };
    refused(v.read(bytes, 2).await.map(drop), "a READ");
    refused(v.write(bytes, &[1; 2]).await, "a WRITE");
    refused(v.word(word).await.map(drop), "a word READ");
    refused(v.cas(word, 0, 1).await.map(drop), "a CAS");
    refused(v.faa(word, 1).await.map(drop), "an FAA");
    let error = v.load(bytes, &[1; 2]).expect_err("a direct load");
    let unsupported = VerbErrorKind::Unsupported(Capability::DirectLoad);
    assert!(
        [expected, unsupported].contains(&error.kind),
        "a direct load: {error}"
    );
}
