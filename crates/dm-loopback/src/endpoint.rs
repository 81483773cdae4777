//! One client: its queue pairs to all memory nodes, its meter, and its random numbers.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::task::{Context, Poll, ready};

use dm_sync::Arc;
use dm_sync::region::{self, LineOrder};
use dm_verbs::{
    Attempts, CallState, Caps, CasThenRead, ClientId, Control, ControlError, ControlReply, ControlRequest,
    Effect, Env, Membership, Meter, Nanos, NodeId, Op, Outcome, Place, RESERVED_BYTES, Region, RemotePtr,
    Slot, Transport, VerbError, VerbErrorKind, Wqe,
};

use crate::builder::Completion;
use crate::chains::{Chain, Chains, Phase, changes};
use crate::executor::turns;
use crate::format::node_used;
use crate::lease::Lease;
use crate::requests::Failed;
use crate::rng::Rng;
use crate::trouble::Trouble;
use crate::world::{Node, World};

/// A client of a [`crate::Loopback`], through which index code issues its verbs. It is cheap, so make one per
/// coroutine.
///
/// It is `Send` but not `Sync`: it belongs to one thread at a time. Dropping it frees its client id. Ids are given out
/// in a cycle, so that a free id rests for as long as possible. All that the client has written stays in memory.
pub struct Endpoint {
    world: Arc<World>,
    client: ClientId,
    epoch: u32,
    compute_node: u16,
    meter: Meter,
    chains: RefCell<Chains>,
    deferred: Cell<Option<VerbError>>,
    /// Draws delays and orders. The streams of [`Env::rng`] are separate.
    dice: Cell<Rng>,
    streams: RefCell<Vec<(u32, Rng)>>,
}

impl Endpoint {
    pub(crate) fn new(world: Arc<World>, compute_node: u16, client: ClientId, epoch: u32) -> Self {
        Self {
            dice: Cell::new(Rng::new(world.knobs.seed, client, None)),
            world,
            client,
            epoch,
            compute_node,
            meter: Meter::default(),
            chains: RefCell::default(),
            deferred: Cell::new(None),
            streams: RefCell::default(),
        }
    }

    #[inline]
    fn roll(&self) -> u64 {
        let mut dice = self.dice.get();
        let number = dice.next();
        self.dice.set(dice);
        number
    }

    #[inline]
    fn line_order(&self) -> LineOrder {
        match self.world.knobs.read_lines {
            dm_verbs::LineOrder::Increasing => LineOrder::Increasing,
            dm_verbs::LineOrder::Any => LineOrder::Seeded(self.roll()),
        }
    }

    /// Returns whether the request behind request `index` is served first. If the world allows it, this happens to a
    /// random half of the READs directly behind an atomic that are not fenced.
    fn read_overtakes(&self, chain: &Chain, index: usize) -> bool {
        let (Some(first), Some(next)) = (chain.requests.get(index), chain.requests.get(index + 1)) else {
            return false;
        };
        self.world.knobs.cas_then_read != CasThenRead::InOrder
            && chain.op(first).is_atomic()
            && !changes(&chain.op(next))
            && !next.fence
            && self.roll() & 1 == 0
    }

    /// Checks whether a chain may go to `node`, and returns the node's trouble.
    #[inline]
    fn admit(&self, node: NodeId) -> Result<Option<Trouble>, VerbErrorKind> {
        if self.world.alarmed() {
            self.admit_slowly(node)
        } else {
            Ok(None)
        }
    }

    #[cold]
    fn admit_slowly(&self, node: NodeId) -> Result<Option<Trouble>, VerbErrorKind> {
        if self.world.member(self.client).fenced() {
            return Err(VerbErrorKind::Fenced);
        }
        match self.world.trouble(node) {
            Some(Trouble::Unreachable) => Err(VerbErrorKind::Unreachable),
            trouble => Ok(trouble),
        }
    }

    /// Carries out a chain whose doorbell was rung.
    fn execute(&self, chain: &mut Chain) {
        let Some(memory) = self.world.node(chain.node) else {
            return chain.fail(0, VerbErrorKind::NoSuchNode, Effect::None, Effect::None);
        };
        if chain.changes {
            self.world.begin_change(self.client);
        }
        let mut unfenced = false;
        match self.admit(chain.node) {
            Ok(trouble) => self.execute_requests(memory, chain, trouble, &mut unfenced),
            Err(kind) => chain.fail(0, kind, Effect::None, Effect::None),
        }
        if chain.changes {
            self.world.end_change(self.client, unfenced);
        }
    }

    /// Carries out the requests of a chain. Sets `unfenced` if memory may have been changed after the last fence
    /// instruction.
    fn execute_requests(
        &self,
        memory: &Node,
        chain: &mut Chain,
        trouble: Option<Trouble>,
        unfenced: &mut bool,
    ) {
        let count = chain
            .requests
            .len()
            .min(trouble.map_or(usize::MAX, Trouble::carried_out));
        let mut index = 0;
        while index < count {
            let overtaken = index + 1 < count && self.read_overtakes(chain, index);
            let pair = if overtaken {
                [index + 1, index]
            } else {
                [index, index]
            };
            for index in &pair[usize::from(!overtaken)..] {
                if let Err((kind, effect)) = self.execute_one(memory, chain, *index, unfenced) {
                    return chain.fail(*index, kind, effect, Effect::None);
                }
            }
            index += 1 + usize::from(overtaken);
        }
        if trouble.is_some() {
            chain.fail(0, VerbErrorKind::ConnectionLost, Effect::Unknown, Effect::Unknown);
        }
    }

    #[inline]
    fn execute_one(
        &self,
        memory: &Node,
        chain: &mut Chain,
        index: usize,
        unfenced: &mut bool,
    ) -> Result<(), Failed> {
        let stored = chain.requests[index];
        let op = chain.op(&stored);
        if changes(&op) {
            *unfenced = true;
        } else if core::mem::take(unfenced) {
            // The earlier WRITEs of this queue pair must be visible to all clients before this READ is served.
            region::fence();
        }
        let outcome = self.world.carry_out(memory, &op, self.line_order())?;
        chain.set_result(stored.result, outcome);
        Ok(())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.world.release(self.client, self.epoch);
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("client", &self.client)
            .field("epoch", &self.epoch)
            .field("compute_node", &self.compute_node)
            .finish_non_exhaustive()
    }
}

impl Env for Endpoint {
    #[inline]
    fn client(&self) -> ClientId {
        self.client
    }

    fn compute_node(&self) -> u16 {
        self.compute_node
    }

    /// Returns the time since this process built or opened the world, or the time of a counted clock
    /// ([`crate::Builder::counted_clock`]).
    fn now(&self) -> Nanos {
        self.world.now()
    }

    fn rng(&self, stream: u32) -> u64 {
        let streams = &mut *self.streams.borrow_mut();
        let index = streams
            .iter()
            .position(|(id, _)| *id == stream)
            .unwrap_or_else(|| {
                streams.push((stream, Rng::new(self.world.knobs.seed, self.client, Some(stream))));
                streams.len() - 1
            });
        streams[index].1.next()
    }

    #[inline]
    fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Lets the other coroutines of the thread run, and (through the executor) other threads.
    fn poll_pause(&self, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        if core::mem::replace(state, 1) == 1 {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Attempts for Endpoint {}

impl Transport for Endpoint {
    type Lease = Lease;

    #[inline]
    fn caps(&self, node: NodeId) -> Caps {
        self.world.node(node).map_or_else(Caps::default, |node| node.caps)
    }

    fn open(&self, node: NodeId) -> Slot {
        let mut chains = self.chains.borrow_mut();
        let full = chains.used() >= self.world.knobs.chains_max as usize;
        let (slot, chain) = chains.open(node);
        if full {
            let place = RemotePtr::new(node, 0).unwrap_or_default().into();
            chain.error = Some(VerbError::refused(VerbErrorKind::QueueFull, place));
        }
        slot
    }

    fn push(&self, slot: &Slot, wqe: Wqe<'_>) {
        let mut chains = self.chains.borrow_mut();
        let chain = chains.get(slot);
        let checked = match self.world.node(chain.node) {
            Some(memory) => self.world.check(memory, &wqe.op),
            None => Err(VerbErrorKind::NoSuchNode),
        };
        if let Err(kind) = checked {
            chain.refuse(kind, &wqe.op);
        }
        chain.push(wqe);
    }

    fn ring(&self, slot: &Slot) {
        let polls = match self.world.knobs.completion {
            Completion::AtFirstPoll => 0,
            Completion::Delayed(max) => (self.roll() % (u64::from(max) + 1)) as u32,
            Completion::NextTurn => turns(),
        };
        let mut chains = self.chains.borrow_mut();
        let chain = chains.get(slot);
        chain.phase = Phase::Flying(polls);
        if chain.error.is_none() {
            self.execute(chain);
        }
    }

    fn poll_chain(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<(), VerbError>> {
        let mut chains = self.chains.borrow_mut();
        let chain = chains.get(slot);
        // An error that says that the chain had no effect is reported at once, even if completions are delayed.
        let refused = chain
            .error
            .is_some_and(|e| e.effect == Effect::None && e.rest == Effect::None && e.index == 0);
        let left = match (chain.phase, self.world.knobs.completion) {
            _ if refused => None,
            (Phase::Flying(turn), Completion::NextTurn) => (turn == turns()).then_some(turn),
            (Phase::Flying(polls), _) => polls.checked_sub(1),
            _ => None,
        };
        if let Some(left) = left {
            chain.phase = Phase::Flying(left);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        chain.phase = Phase::Completed;
        Poll::Ready(chain.error.map_or(Ok(()), Err))
    }

    fn take(&self, slot: &Slot, i: u16) -> Outcome<Lease> {
        self.chains.borrow_mut().get(slot).take_result(i)
    }

    fn close(&self, slot: Slot) {
        let untold = self.chains.borrow_mut().close(slot);
        if untold.is_some() && self.deferred.get().is_none() {
            self.deferred.set(untold);
        }
    }

    fn take_deferred(&self) -> Option<VerbError> {
        self.deferred.take()
    }

    fn load_image(&self, at: Place, bytes: &[u8]) -> Result<(), VerbError> {
        let refused = |kind| VerbError::refused(kind, at);
        let memory = self
            .world
            .node(at.node())
            .ok_or(refused(VerbErrorKind::NoSuchNode))?;
        let op = Op::Write { at, bytes };
        self.world.check(memory, &op).map_err(refused)?;
        self.admit(at.node()).map_err(refused)?;
        let loaded = self.world.carry_out(memory, &op, LineOrder::Increasing);
        loaded.map_err(|(kind, effect)| VerbError {
            effect,
            ..refused(kind)
        })?;
        region::fence();
        Ok(())
    }
}

impl Control for Endpoint {
    fn memory_nodes(&self) -> u16 {
        self.world.nodes.len() as u16 // at most 1024
    }

    /// Answers at once, except that a fence waits until the fenced clients have no chain in progress that changes
    /// memory.
    fn poll_control(
        &self,
        request: &ControlRequest,
        state: &mut CallState,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlReply, ControlError>> {
        if self.world.member(self.client).fenced() {
            return Poll::Ready(Err(ControlError::Fenced));
        }
        if let ControlRequest::Fence { client } = *request {
            if core::mem::replace(&mut state.step, 1) == 0 && !self.world.fence_off(client) {
                return Poll::Ready(Err(ControlError::NoSuchClient { client }));
            }
            ready!(self.poll_quiet(client, cx));
            return Poll::Ready(Ok(ControlReply::Done));
        }
        if let ControlRequest::FenceMember { member } = *request {
            if core::mem::replace(&mut state.step, 1) == 0 {
                self.world.group(member).for_each(|client| {
                    // If the client has left meanwhile, it posts no more requests and need not be fenced.
                    let _there = self.world.fence_off(client);
                });
            }
            for client in self.world.group(member) {
                ready!(self.poll_quiet(client, cx));
            }
            return Poll::Ready(Ok(ControlReply::Done));
        }
        Poll::Ready(self.answer(request))
    }
}

impl Endpoint {
    fn poll_quiet(&self, client: ClientId, cx: &mut Context<'_>) -> Poll<()> {
        if self.world.quiet(client) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn answer(&self, request: &ControlRequest) -> Result<ControlReply, ControlError> {
        match *request {
            ControlRequest::Chunk { node, bytes } => self.chunk_of(node, bytes).map(ControlReply::Chunk),
            ControlRequest::Describe { node } => {
                let bytes = self.reachable(node)?.host.size();
                Ok(ControlReply::Region(Region {
                    bytes,
                    used: self.world.word(node_used(node.0)),
                }))
            }
            ControlRequest::Join => {
                self.world.set_joined(self.client, true);
                let lease = self.world.knobs.lease;
                Ok(ControlReply::Joined(Membership {
                    epoch: self.epoch,
                    lease,
                }))
            }
            ControlRequest::Leave => {
                self.world.set_joined(self.client, false);
                Ok(ControlReply::Done)
            }
            ControlRequest::Enlist { member } => {
                self.world.enlist(self.client, member);
                Ok(ControlReply::Done)
            }
            // `Fence` and `FenceMember` are handled in `poll_control`, because they wait. Requests of a newer protocol
            // are unknown here.
            _ => Err(ControlError::NoSuchNode {
                node: NodeId(u16::MAX),
            }),
        }
    }

    fn reachable(&self, node: NodeId) -> Result<&Node, ControlError> {
        let memory = self.world.node(node).ok_or(ControlError::NoSuchNode { node })?;
        match self.world.trouble(node) {
            None => Ok(memory),
            Some(_) => Err(ControlError::Unreachable { node }),
        }
    }

    /// Allocates a chunk, which is always zero, because memory is handed out once and never taken back.
    fn chunk_of(&self, node: NodeId, bytes: u64) -> Result<RemotePtr, ControlError> {
        let size = self.reachable(node)?.host.size();
        let wanted = bytes
            .max(1)
            .checked_next_multiple_of(RESERVED_BYTES)
            .unwrap_or(u64::MAX);
        let grown = |used: u64| used.checked_add(wanted).filter(|end| *end <= size);
        let used = self
            .world
            .control
            .update(node_used(node.0), grown)
            .unwrap_or(size);
        let full = ControlError::OutOfMemory {
            node,
            wanted: bytes,
            left: size.saturating_sub(used),
        };
        grown(used).and_then(|_| RemotePtr::new(node, used)).ok_or(full)
    }
}
