//! A client of the simulation, which implements the traits of `dm-verbs` on the engine.

use core::cell::{Cell, RefCell};
use core::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

use dm_verbs::{
    Attempts, CallState, Caps, ClientId, Control, ControlError, ControlReply, ControlRequest, Env, LocalStep,
    Meter, Nanos, NodeId, Op, Outcome, Place, Slot, Space, Transport, VerbError, VerbErrorKind, Wqe,
};

use crate::engine::{Current, Engine};
use crate::lease::Lease;
use crate::request::Entry;
use crate::rng::Rng;

/// The state that endpoints and the executor share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: RefCell<Engine>,
    /// The task that is being polled.
    pub(crate) current: Cell<Current>,
    pub(crate) seed: u64,
}

/// A simulated client coroutine with its queue pairs, its hardware thread and its meter.
///
/// It implements [`Transport`], [`Env`] and [`Control`]. Client ids start at 1. It is not `Send`, because the
/// simulation runs on one thread.
pub struct Endpoint {
    shared: Rc<Shared>,
    /// The engine's number of this client, from 0.
    client: u16,
    compute_node: u16,
    thread: u16,
    meter: Rc<Meter>,
    /// The random stream that was used last. The other streams are in the list below.
    stream: Cell<(u32, Rng)>,
    streams: RefCell<Vec<(u32, Rng)>>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("client", &self.client())
            .field("compute_node", &self.compute_node)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    pub(crate) fn new(
        shared: Rc<Shared>,
        client: u16,
        compute_node: u16,
        thread: u16,
        meter: Rc<Meter>,
    ) -> Self {
        Self {
            client,
            compute_node,
            thread,
            meter,
            stream: Cell::new((0, Rng::stream(shared.seed, client, 0))),
            streams: RefCell::default(),
            shared,
        }
    }

    /// Returns the client's hardware thread. Clients with the same thread number on one compute node share the thread.
    pub fn thread(&self) -> u16 {
        self.thread
    }

    /// Returns the current task, if `cx` contains this task's own waker.
    #[inline]
    fn asking(&self, cx: &Context<'_>) -> Option<u32> {
        self.shared.current.get().asking(cx.waker())
    }

    /// Waits for the duration `time`, which the first poll computes. `state` stores the end of the wait; it is 0 before
    /// the first poll.
    #[inline]
    fn wait(&self, time: impl Fn(&Engine) -> u64, state: &mut u64, cx: &Context<'_>) -> Poll<()> {
        let mut e = self.engine();
        if *state == 0 {
            *state = e.now + time(&e);
        }
        if e.now >= *state {
            return Poll::Ready(());
        }
        e.wake_at(*state, self.asking(cx), cx.waker());
        Poll::Pending
    }

    /// Stores `last`, and loads another stream.
    #[cold]
    fn other_stream(&self, stream: u32, last: (u32, Rng)) -> Rng {
        let mut streams = self.streams.borrow_mut();
        let found = streams.iter().position(|(s, _)| *s == stream);
        let rng = match found {
            Some(i) => streams.swap_remove(i).1,
            None => Rng::stream(self.shared.seed, self.client, stream),
        };
        streams.push(last);
        rng
    }

    #[inline]
    fn engine(&self) -> core::cell::RefMut<'_, Engine> {
        self.shared.engine.borrow_mut()
    }
}

impl Env for Endpoint {
    fn client(&self) -> ClientId {
        ClientId(self.client + 1)
    }
    fn compute_node(&self) -> u16 {
        self.compute_node
    }
    #[inline]
    fn now(&self) -> Nanos {
        Nanos(self.shared.engine.borrow().now / 1000)
    }
    #[inline]
    fn rng(&self, stream: u32) -> u64 {
        let (at, mut rng) = self.stream.get();
        if at != stream {
            rng = self.other_stream(stream, (at, rng));
        }
        let next = rng.next();
        self.stream.set((stream, rng));
        next
    }
    #[inline]
    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn poll_pause(&self, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        self.wait(|e| e.t.pause, state, cx)
    }
    /// Waits for the time of a hand-off between threads ([`LocalStep::HandOff`]). Entering a section costs nothing.
    fn poll_local(&self, step: LocalStep, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        match step {
            LocalStep::Section => Poll::Ready(()),
            LocalStep::HandOff => self.wait(|e| e.t.hand_off, state, cx),
        }
    }
    fn poll_charge(&self, work: Nanos, until: &mut Option<Nanos>, cx: &mut Context<'_>) -> Poll<()> {
        let mut e = self.engine();
        // This rounds up, so that charged work never ends too early.
        let reserve = || Nanos(e.reserve_cpu(self.client, work.0 * 1000).div_ceil(1000));
        let at = until.get_or_insert_with(reserve).0 * 1000;
        if e.now >= at {
            return Poll::Ready(());
        }
        e.wake_at(at, self.asking(cx), cx.waker());
        Poll::Pending
    }
}

impl Attempts for Endpoint {}

impl Transport for Endpoint {
    type Lease = Lease;

    fn caps(&self, node: NodeId) -> Caps {
        self.shared
            .engine
            .borrow()
            .nodes
            .get(usize::from(node.0))
            .map_or_else(Caps::default, |n| n.caps)
    }

    #[inline]
    fn open(&self, node: NodeId) -> Slot {
        let (index, generation) = self.engine().open(self.client, node);
        Slot { index, generation }
    }
    // This function is inlined into every caller for the same reason as `post_one`.
    #[inline(always)]
    fn push(&self, slot: &Slot, wqe: Wqe<'_>) {
        let mut e = self.engine();
        match wqe.op {
            Op::Write { at, bytes } => e.push_write(slot.index, at, bytes, wqe.fence),
            _ => e.push(slot.index, &wqe.into()),
        }
    }
    #[inline]
    fn ring(&self, slot: &Slot) {
        self.engine().ring(slot.index);
    }
    // This function is inlined into every caller. Each caller passes a known kind of request, so only one of the
    // branches below remains.
    #[inline(always)]
    fn post_one(&self, wqe: Wqe<'_>) -> Slot {
        let mut e = self.engine();
        let (client, entry) = (self.client, Entry::from(wqe));
        let (index, generation) = match wqe.op {
            Op::Read { at, len } if at.space() == Space::Host && !wqe.fence => {
                e.post_read(client, at.raw(), len)
            }
            Op::Read { at, len } => e.post_any_read(client, at, len, wqe.fence),
            Op::Write { bytes, .. } => e.post_write(client, entry.at, bytes, entry.fence),
            _ => e.post_words(client, &entry),
        };
        Slot { index, generation }
    }
    // This function is inlined into every caller, so that polling a ticket only checks the chain's state.
    #[inline(always)]
    fn poll_chain(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<(), VerbError>> {
        let mut e = self.engine();
        match e.poll_chain(slot.index, slot.generation, || self.asking(cx)) {
            Some(true) => Poll::Ready(Ok(())),
            Some(false) => Poll::Pending,
            None => e.poll_slowly(slot.index, cx.waker()),
        }
    }
    #[inline(always)]
    fn poll_single(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<Outcome<Lease>, VerbError>> {
        let mut e = self.engine();
        match e.poll_single(slot.index, slot.generation, || self.asking(cx)) {
            Some(Some(outcome)) => Poll::Ready(Ok(outcome)),
            Some(None) => Poll::Pending,
            None => {
                let result = core::task::ready!(e.poll_slowly(slot.index, cx.waker()));
                let outcome = result.map(|()| e.take(slot.index, 0));
                e.close(slot.index, slot.generation);
                Poll::Ready(outcome)
            }
        }
    }
    #[inline]
    fn take(&self, slot: &Slot, i: u16) -> Outcome<Lease> {
        self.engine().take(slot.index, i)
    }
    #[inline]
    fn close(&self, slot: Slot) {
        self.engine().close(slot.index, slot.generation);
    }
    fn take_deferred(&self) -> Option<VerbError> {
        self.engine().take_deferred(self.client)
    }
    fn load_image(&self, at: Place, bytes: &[u8]) -> Result<(), VerbError> {
        let mut e = self.engine();
        let Some(node) = e.nodes.get_mut(usize::from(at.node().0)) else {
            return Err(VerbError::refused(VerbErrorKind::NoSuchNode, at));
        };
        let size = match at.space() {
            Space::Host => node.caps.host_bytes,
            Space::Chip => node.caps.chip_bytes,
        };
        let from = at.offset() as usize;
        let fits = size > 0
            && from
                .checked_add(bytes.len())
                .is_some_and(|end| end as u64 <= size);
        match node
            .memory
            .bytes_mut(at.space())
            .get_mut(from..from + bytes.len())
        {
            Some(place) if fits => {
                place.copy_from_slice(bytes);
                e.memory_changed(usize::from(at.node().0));
                Ok(())
            }
            _ => Err(VerbError::refused(VerbErrorKind::beyond(at.space(), size), at)),
        }
    }
}

impl Control for Endpoint {
    fn memory_nodes(&self) -> u16 {
        self.shared.engine.borrow().nodes.len() as u16
    }
    fn poll_control(
        &self,
        request: &ControlRequest,
        state: &mut CallState,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlReply, ControlError>> {
        self.engine()
            .poll_control(self.client, request, state, (self.asking(cx), cx.waker()))
    }
}
