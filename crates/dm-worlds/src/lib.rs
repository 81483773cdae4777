//! A client's connections in any world, as one type.
//!
//! An index is compiled once for [`AnyEndpoint`] instead of once for each world. This costs a few instructions per
//! verb, while the cheapest verb takes hundreds.
#![forbid(unsafe_code)]

use core::ops::{Deref, DerefMut};
use core::task::{Context, Poll};

use dm_verbs::{
    Attempts, CallState, Caps, ClientId, Control, ControlError, ControlReply, ControlRequest, Env, LocalStep,
    Meter, Nanos, NodeId, Outcome, Place, Slot, Transport, VerbError, Wqe,
};

/// A client's connections, in any of these worlds.
#[derive(Debug)]
#[non_exhaustive]
// If real queue pairs are compiled in, the largest variant is not much larger than the next one.
#[cfg_attr(
    not(feature = "ib"),
    expect(
        clippy::large_enum_variant,
        reason = "there is one for each client, made before anything is measured"
    )
)]
pub enum AnyEndpoint {
    /// A client of the simulator.
    Sim(dm_sim::Endpoint),
    /// A client of in-process memory.
    Loopback(dm_loopback::Endpoint),
    /// A client with real queue pairs.
    #[cfg(feature = "ib")]
    Ib(dm_ib::Endpoint),
}

/// The bytes of a READ in any of these worlds.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyLease {
    /// Bytes from the simulator.
    Sim(<dm_sim::Endpoint as Transport>::Lease),
    /// Bytes from in-process memory.
    Loopback(<dm_loopback::Endpoint as Transport>::Lease),
    /// Bytes in a device's buffer.
    #[cfg(feature = "ib")]
    Ib(<dm_ib::Endpoint as Transport>::Lease),
}

/// Evaluates an expression for the world to which `$all` belongs. Both enums have the same variants.
macro_rules! in_its_world {
    ($of:ident, $all:expr, $one:ident => $result:expr) => {
        match $all {
            $of::Sim($one) => $result,
            $of::Loopback($one) => $result,
            #[cfg(feature = "ib")]
            $of::Ib($one) => $result,
        }
    };
}

impl Deref for AnyLease {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        in_its_world!(AnyLease, self, lease => lease)
    }
}

impl DerefMut for AnyLease {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        in_its_world!(AnyLease, self, lease => lease)
    }
}

#[inline]
fn wrapped<L>(outcome: Outcome<L>, wrap: impl FnOnce(L) -> AnyLease) -> Outcome<AnyLease> {
    match outcome {
        Outcome::None => Outcome::None,
        Outcome::Old(word) => Outcome::Old(word),
        Outcome::Lease(lease) => Outcome::Lease(wrap(lease)),
    }
}

impl Transport for AnyEndpoint {
    type Lease = AnyLease;

    #[inline]
    fn take(&self, slot: &Slot, i: u16) -> Outcome<AnyLease> {
        match self {
            Self::Sim(v) => wrapped(v.take(slot, i), AnyLease::Sim),
            Self::Loopback(v) => wrapped(v.take(slot, i), AnyLease::Loopback),
            #[cfg(feature = "ib")]
            Self::Ib(v) => wrapped(v.take(slot, i), AnyLease::Ib),
        }
    }
    #[inline]
    fn poll_single(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<Outcome<AnyLease>, VerbError>> {
        match self {
            Self::Sim(v) => v
                .poll_single(slot, cx)
                .map_ok(|outcome| wrapped(outcome, AnyLease::Sim)),
            Self::Loopback(v) => v
                .poll_single(slot, cx)
                .map_ok(|outcome| wrapped(outcome, AnyLease::Loopback)),
            #[cfg(feature = "ib")]
            Self::Ib(v) => v
                .poll_single(slot, cx)
                .map_ok(|outcome| wrapped(outcome, AnyLease::Ib)),
        }
    }
    #[inline]
    fn caps(&self, node: NodeId) -> Caps {
        in_its_world!(AnyEndpoint, self, v => v.caps(node))
    }
    #[inline]
    fn open(&self, node: NodeId) -> Slot {
        in_its_world!(AnyEndpoint, self, v => v.open(node))
    }
    #[inline]
    fn push(&self, slot: &Slot, wqe: Wqe<'_>) {
        in_its_world!(AnyEndpoint, self, v => v.push(slot, wqe))
    }
    #[inline]
    fn ring(&self, slot: &Slot) {
        in_its_world!(AnyEndpoint, self, v => v.ring(slot))
    }
    #[inline]
    fn poll_chain(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<(), VerbError>> {
        in_its_world!(AnyEndpoint, self, v => v.poll_chain(slot, cx))
    }
    #[inline]
    fn close(&self, slot: Slot) {
        in_its_world!(AnyEndpoint, self, v => v.close(slot))
    }
    #[inline]
    fn post_one(&self, wqe: Wqe<'_>) -> Slot {
        in_its_world!(AnyEndpoint, self, v => v.post_one(wqe))
    }
    #[inline]
    fn take_deferred(&self) -> Option<VerbError> {
        in_its_world!(AnyEndpoint, self, v => v.take_deferred())
    }
    #[inline]
    fn load_image(&self, at: Place, bytes: &[u8]) -> Result<(), VerbError> {
        in_its_world!(AnyEndpoint, self, v => v.load_image(at, bytes))
    }
}

// Only an explorer implements these methods, and no explorer is among these worlds.
impl Attempts for AnyEndpoint {}

impl Env for AnyEndpoint {
    #[inline]
    fn client(&self) -> ClientId {
        in_its_world!(AnyEndpoint, self, v => v.client())
    }
    #[inline]
    fn compute_node(&self) -> u16 {
        in_its_world!(AnyEndpoint, self, v => v.compute_node())
    }
    #[inline]
    fn now(&self) -> Nanos {
        in_its_world!(AnyEndpoint, self, v => v.now())
    }
    #[inline]
    fn elapsed(&self, since: Nanos, limit: Nanos) -> bool {
        in_its_world!(AnyEndpoint, self, v => v.elapsed(since, limit))
    }
    #[inline]
    fn rng(&self, stream: u32) -> u64 {
        in_its_world!(AnyEndpoint, self, v => v.rng(stream))
    }
    #[inline]
    fn meter(&self) -> &Meter {
        in_its_world!(AnyEndpoint, self, v => v.meter())
    }
    #[inline]
    fn poll_pause(&self, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        in_its_world!(AnyEndpoint, self, v => v.poll_pause(state, cx))
    }
    #[inline]
    fn poll_local(&self, step: LocalStep, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        in_its_world!(AnyEndpoint, self, v => v.poll_local(step, state, cx))
    }
    #[inline]
    fn poll_charge(&self, work: Nanos, until: &mut Option<Nanos>, cx: &mut Context<'_>) -> Poll<()> {
        in_its_world!(AnyEndpoint, self, v => v.poll_charge(work, until, cx))
    }
}

impl Control for AnyEndpoint {
    #[inline]
    fn memory_nodes(&self) -> u16 {
        in_its_world!(AnyEndpoint, self, v => v.memory_nodes())
    }
    #[inline]
    fn poll_control(
        &self,
        request: &ControlRequest,
        state: &mut CallState,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlReply, ControlError>> {
        in_its_world!(AnyEndpoint, self, v => v.poll_control(request, state, cx))
    }
}

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
