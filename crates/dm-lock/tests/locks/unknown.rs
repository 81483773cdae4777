//! A share whose last request has an unknown effect.

use std::task::{Context, Poll};

use dm_lock::{LockError, LockOptions};
use dm_loopback::{Endpoint, Trouble, block_on};
use dm_verbs::{
    Attempts, Caps, ClientId, Effect, Env, LocalStep, Meter, Nanos, NodeId, Outcome, Place, Slot, Transport,
    VerbError, Wqe,
};

use crate::common::*;

/// A connection whose failed chains end with the request that failed: nothing is behind it.
struct LastOfChain(Endpoint);

impl Env for LastOfChain {
    fn client(&self) -> ClientId {
        self.0.client()
    }
    fn compute_node(&self) -> u16 {
        self.0.compute_node()
    }
    fn now(&self) -> Nanos {
        self.0.now()
    }
    fn rng(&self, stream: u32) -> u64 {
        self.0.rng(stream)
    }
    fn meter(&self) -> &Meter {
        self.0.meter()
    }
    fn poll_pause(&self, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_pause(state, cx)
    }
    fn poll_local(&self, step: LocalStep, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_local(step, state, cx)
    }
    fn poll_charge(&self, work: Nanos, until: &mut Option<Nanos>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_charge(work, until, cx)
    }
}

impl Attempts for LastOfChain {}

impl Transport for LastOfChain {
    type Lease = <Endpoint as Transport>::Lease;
    fn caps(&self, node: NodeId) -> Caps {
        self.0.caps(node)
    }
    fn open(&self, node: NodeId) -> Slot {
        self.0.open(node)
    }
    fn push(&self, slot: &Slot, wqe: Wqe<'_>) {
        self.0.push(slot, wqe);
    }
    fn ring(&self, slot: &Slot) {
        self.0.ring(slot);
    }
    fn poll_chain(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<(), VerbError>> {
        let ended = |e: VerbError| VerbError {
            rest: Effect::None,
            ..e
        };
        self.0.poll_chain(slot, cx).map_err(ended)
    }
    fn take(&self, slot: &Slot, i: u16) -> Outcome<Self::Lease> {
        self.0.take(slot, i)
    }
    fn close(&self, slot: Slot) {
        self.0.close(slot);
    }
    fn take_deferred(&self) -> Option<VerbError> {
        self.0.take_deferred()
    }
    fn load_image(&self, at: Place, bytes: &[u8]) -> Result<(), VerbError> {
        self.0.load_image(at, bytes)
    }
}

/// Whether the share was given back is unknown, though it is certain what became of the requests behind: there are none.
#[test]
fn a_share_whose_end_is_unknown_is_not_given_back_again() {
    let options = LockOptions {
        shared: true,
        ..LockOptions::default()
    };
    let bench = bench(builder(), 1, options);
    let (v, at) = (LastOfChain(bench.client(0)), node(0, 1));
    let (share, _) = block_on(bench.locks[0].share_and_read(&v, at, at, 64)).unwrap();
    bench.world.cut(NodeId(0), Trouble::AnswersLost);
    let left = block_on(share.leave());
    assert!(
        matches!(left, Err(LockError::Verb(e)) if e.effect == Effect::Unknown && e.rest == Effect::None),
        "{left:?}"
    );
    bench.world.restore(NodeId(0));
    assert_eq!(bench.word(at).payload >> 16, 0);
}
