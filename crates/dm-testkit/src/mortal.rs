//! Clients that can be killed, in any world.

use core::cell::RefCell;
use core::fmt;
use core::future::{Future, poll_fn};
use core::ops::Range;
use core::pin::pin;
use core::task::{Context, Poll, Waker, ready};

use dm_verbs::{
    Attempts, CallState, Caps, ClientId, Control, ControlError, ControlReply, ControlRequest, Env, LINE,
    LocalStep, Meter, Nanos, NodeId, Op, Outcome, Place, Slot, Transport, VerbError, Wqe,
};

use crate::doom::{Doom, Sent};

/// A client that dies when its [`Doom`] says so. It implements the traits of `dm-verbs` on top of another world's
/// client.
///
/// It passes a chain to the other world only when the doorbell is rung, so that a death can cut the chain between any
/// two requests. Use [`Mortal::unless_dead`] to end the client's future.
///
/// The other world is not informed of the death: to it, a dead client is merely silent. The requests that the client
/// has posted still take effect, unless they are lost ([`Death::loses_posted`](crate::Death::loses_posted)) or the
/// client's member is fenced first.
pub struct Mortal<'m, V: Transport> {
    inner: &'m V,
    doom: &'m Doom,
    flights: RefCell<Flights>,
    /// The chains of a suspended client, in order. They are posted when the suspension ends.
    held: RefCell<Vec<Held>>,
}

/// The chains of a client, by slot. Slots and their buffers are reused.
#[derive(Default)]
struct Flights {
    all: Vec<Flight>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Flight {
    node: NodeId,
    requests: Vec<Stored>,
    payload: Vec<u8>,
    generation: u32,
    /// The slot of the other world's chain, once the doorbell was rung. `None` if the chain was not passed on as a
    /// whole.
    inner: Option<(u32, u32)>,
    /// Whether this chain is in [`Mortal::held`].
    held: bool,
}

/// A chain that is posted when the suspension ends.
enum Held {
    /// The slot and its generation. The client may still wait for this chain.
    Open(u32, u32),
    /// The client has closed this chain, so it is posted and nobody waits for it.
    Closed(Flight),
}

/// A request. The payload of a WRITE is in the chain's buffer.
#[derive(Clone)]
struct Stored {
    op: Op<'static>,
    fence: bool,
    payload: Range<usize>,
}

impl Flight {
    fn push(&mut self, wqe: Wqe<'_>) {
        let from = self.payload.len();
        let (op, payload) = wqe.op.split();
        self.payload.extend_from_slice(payload);
        self.requests.push(Stored {
            op,
            fence: wqe.fence,
            payload: from..self.payload.len(),
        });
    }

    fn wqe(&self, stored: &Stored) -> Wqe<'_> {
        let payload = self.payload.get(stored.payload.clone()).unwrap_or_default();
        Wqe {
            op: stored.op.with_payload(payload),
            fence: stored.fence,
        }
    }

    /// Returns the first `requests` requests, and up to `lines` lines of the next one if it is a WRITE.
    fn first(&self, requests: usize, lines: u64) -> impl Iterator<Item = Wqe<'_>> {
        let cut = self.requests.get(requests).filter(|_| lines > 0);
        let cut = cut.and_then(|stored| match self.wqe(stored) {
            Wqe {
                op: Op::Write { at, bytes },
                fence,
            } => Some(Wqe {
                op: Op::Write {
                    at,
                    bytes: first_lines(at, bytes, lines),
                },
                fence,
            }),
            _ => None,
        });
        self.requests
            .iter()
            .take(requests)
            .map(|r| self.wqe(r))
            .chain(cut)
    }
}

/// Returns the part of a WRITE to `at` that lies in the first `lines` of the lines that it touches.
fn first_lines(at: Place, bytes: &[u8], lines: u64) -> &[u8] {
    let (line, within) = (LINE as u64, at.offset() % LINE as u64);
    let end = lines.saturating_mul(line) - within;
    &bytes[..bytes.len().min(usize::try_from(end).unwrap_or(usize::MAX))]
}

impl Flights {
    fn open(&mut self, node: NodeId) -> Slot {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Flight::default());
            (self.all.len() - 1) as u32
        });
        let flight = &mut self.all[index as usize];
        flight.node = node;
        Slot {
            index,
            generation: flight.generation,
        }
    }

    /// Returns the chain of `slot`. Panics if the client has closed it.
    fn get(&mut self, slot: &Slot) -> &mut Flight {
        let flight = self.all.get_mut(slot.index as usize);
        let flight = flight.filter(|flight| flight.generation == slot.generation);
        flight.expect("a slot belongs to its client until it is closed")
    }

    /// Removes and returns the chain of `slot`.
    fn close(&mut self, slot: &Slot) -> Flight {
        let flight = core::mem::take(self.get(slot));
        // The generation changes, so that an old slot with this index is not mistaken for the next one.
        self.all[slot.index as usize].generation = flight.generation.wrapping_add(1);
        self.free.push(slot.index);
        flight
    }
}

fn slot_of((index, generation): (u32, u32)) -> Slot {
    Slot { index, generation }
}

impl<'m, V: Transport> Mortal<'m, V> {
    /// Wraps the client `inner`, which dies when `doom` says so. All clients of one compute node share one `doom`.
    pub fn new(inner: &'m V, doom: &'m Doom) -> Self {
        doom.enter(inner.client());
        Self {
            inner,
            doom,
            flights: RefCell::default(),
            held: RefCell::default(),
        }
    }

    /// Runs `work` until it ends or the client dies. If the client dies, this drops `work` and returns `None`, even if
    /// `work` ends at the same moment. While the client is suspended, this does not poll `work`.
    pub async fn unless_dead<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut sleep = None;
        poll_fn(|cx| {
            loop {
                if self.doom.is_dead() {
                    return Poll::Ready(None);
                }
                self.doom.wake_at_death(cx.waker());
                if let Some(left) = self.doom.sleeps(self.inner.now()) {
                    let nap = sleep.get_or_insert_with(|| Box::pin(self.nap(left)));
                    ready!(nap.as_mut().poll(cx));
                    sleep = None;
                    continue;
                }
                self.go_on();
                let ended = work.as_mut().poll(cx);
                // A death or a suspension may have begun during this poll. Then the loop runs again and handles the new
                // state. But if `work` has ended and the client is only suspended, the result counts, because `work`
                // cannot be polled again.
                let asleep = ended.is_pending() && self.doom.sleeps(self.inner.now()).is_some();
                if !self.doom.is_dead() && !asleep {
                    return ended.map(Some);
                }
            }
        })
        .await
    }

    /// Waits for `time`. In the simulator, `charge` takes this time. On loopback `charge` takes no time, and the caller
    /// repeats the pause until the time is over.
    async fn nap(&self, time: Nanos) {
        self.inner.charge(time).await;
        self.inner.pause().await;
    }

    /// Posts the held chains, unless the client is dead or still suspended.
    fn go_on(&self) {
        let mut held = self.held.borrow_mut();
        if held.is_empty() || self.doom.is_dead() || self.doom.sleeps(self.inner.now()).is_some() {
            return;
        }
        let mut flights = self.flights.borrow_mut();
        for chain in held.drain(..) {
            match chain {
                Held::Open(index, generation) => {
                    let flight = flights.get(&Slot { index, generation });
                    let posted = self.post(flight.node, flight.first(flight.requests.len(), 0));
                    flight.inner = Some((posted.index, posted.generation));
                    flight.held = false;
                }
                Held::Closed(flight) => {
                    self.inner
                        .close(self.post(flight.node, flight.first(flight.requests.len(), 0)));
                }
            }
        }
    }

    /// Returns whether the client is dead or suspended.
    fn stands_still(&self) -> bool {
        self.doom.is_dead() || self.doom.sleeps(self.inner.now()).is_some()
    }

    /// Posts `requests` as one chain of the other world.
    fn post<'w>(&self, node: NodeId, requests: impl Iterator<Item = Wqe<'w>>) -> Slot {
        let slot = self.inner.open(node);
        requests.for_each(|wqe| self.inner.push(&slot, wqe));
        self.inner.ring(&slot);
        slot
    }
}

impl<V: Control + Transport> Mortal<'_, V> {
    /// Cancels the requests of `clients` that have not arrived yet, as if the card had not sent them. For this, it
    /// sends a fence for each client, and does not await the answers.
    fn lose(&self, clients: Vec<ClientId>) {
        for client in clients {
            let fence = ControlRequest::Fence { client };
            let _answer = self.inner.poll_control(
                &fence,
                &mut CallState::default(),
                &mut Context::from_waker(Waker::noop()),
            );
        }
    }
}

impl<V: Transport> fmt::Debug for Mortal<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mortal")
            .field("client", &self.inner.client())
            .field("doom", self.doom)
            .finish_non_exhaustive()
    }
}

impl<V: Transport + Control> Transport for Mortal<'_, V> {
    type Lease = V::Lease;

    fn caps(&self, node: NodeId) -> Caps {
        self.inner.caps(node)
    }
    fn open(&self, node: NodeId) -> Slot {
        self.flights.borrow_mut().open(node)
    }
    fn push(&self, slot: &Slot, wqe: Wqe<'_>) {
        self.flights.borrow_mut().get(slot).push(wqe);
    }
    fn ring(&self, slot: &Slot) {
        self.go_on();
        let mut flights = self.flights.borrow_mut();
        let flight = flights.get(slot);
        let requests = flight.requests.len();
        match self.doom.sends(self.inner.client(), self.inner.now(), requests) {
            Sent::Nothing => {}
            Sent::Later => {
                flight.held = true;
                self.held
                    .borrow_mut()
                    .push(Held::Open(slot.index, slot.generation));
            }
            Sent::All => {
                let posted = self.post(flight.node, flight.first(requests, 0));
                flight.inner = Some((posted.index, posted.generation));
            }
            Sent::Last {
                requests,
                lines,
                lost,
            } => {
                let mut rest = flight.first(requests, lines).peekable();
                if rest.peek().is_some() {
                    self.inner.close(self.post(flight.node, rest));
                }
                self.lose(lost);
            }
        }
    }
    fn poll_chain(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<(), VerbError>> {
        self.go_on();
        let inner = self.flights.borrow_mut().get(slot).inner;
        match inner {
            Some(inner) if !self.stands_still() => self.inner.poll_chain(&slot_of(inner), cx),
            _ => Poll::Pending,
        }
    }
    fn take(&self, slot: &Slot, i: u16) -> Outcome<V::Lease> {
        let inner = self.flights.borrow_mut().get(slot).inner;
        inner.map_or(Outcome::None, |inner| self.inner.take(&slot_of(inner), i))
    }
    fn close(&self, slot: Slot) {
        let flight = self.flights.borrow_mut().close(&slot);
        if let Some(inner) = flight.inner {
            self.inner.close(slot_of(inner));
        }
        if flight.held {
            let is = |held: &&mut Held| matches!(held, Held::Open(i, g) if (*i, *g) == (slot.index, slot.generation));
            if let Some(held) = self.held.borrow_mut().iter_mut().find(is) {
                *held = Held::Closed(flight);
            }
        }
    }
    fn take_deferred(&self) -> Option<VerbError> {
        self.inner.take_deferred()
    }
    fn load_image(&self, at: Place, bytes: &[u8]) -> Result<(), VerbError> {
        match self.doom.sends(self.inner.client(), self.inner.now(), 1) {
            // While the client is suspended, the image is loaded at once, because this call cannot wait, and nobody
            // else uses that memory yet.
            Sent::All | Sent::Later => self.inner.load_image(at, bytes),
            // The client is dead, so the answer does not matter.
            Sent::Nothing | Sent::Last { .. } => Ok(()),
        }
    }
}

impl<V: Transport> Env for Mortal<'_, V> {
    fn client(&self) -> ClientId {
        self.inner.client()
    }
    fn compute_node(&self) -> u16 {
        self.inner.compute_node()
    }
    fn now(&self) -> Nanos {
        self.inner.now()
    }
    // The clock also advances while the client is suspended, so that its lease may end.
    fn elapsed(&self, since: Nanos, limit: Nanos) -> bool {
        self.inner.elapsed(since, limit)
    }
    fn rng(&self, stream: u32) -> u64 {
        self.inner.rng(stream)
    }
    fn meter(&self) -> &Meter {
        self.inner.meter()
    }
    // A dead or suspended client registers no waker here, because `unless_dead` polls the client again.
    fn poll_pause(&self, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        match self.stands_still() {
            true => Poll::Pending,
            false => self.inner.poll_pause(state, cx),
        }
    }
    fn poll_local(&self, step: LocalStep, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        match self.stands_still() {
            true => Poll::Pending,
            false => self.inner.poll_local(step, state, cx),
        }
    }
    fn poll_charge(&self, work: Nanos, until: &mut Option<Nanos>, cx: &mut Context<'_>) -> Poll<()> {
        match self.stands_still() {
            true => Poll::Pending,
            false => self.inner.poll_charge(work, until, cx),
        }
    }
}

impl<V: Transport> Attempts for Mortal<'_, V> {
    fn mark(&self) -> u64 {
        self.inner.mark()
    }
    fn rewind(&self, mark: u64) {
        self.inner.rewind(mark);
    }
    fn budget(&self, attempts: u32) -> u32 {
        self.inner.budget(attempts)
    }
}

impl<V: Transport + Control> Control for Mortal<'_, V> {
    fn memory_nodes(&self) -> u16 {
        self.inner.memory_nodes()
    }
    fn poll_control(
        &self,
        request: &ControlRequest,
        state: &mut CallState,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlReply, ControlError>> {
        if matches!(request, ControlRequest::FenceMember { .. }) && self.doom.is_powerless() {
            return Poll::Ready(Ok(ControlReply::Done));
        }
        // The first poll sends the request, so only this poll counts as a request.
        let sent = match state.step {
            0 => self.doom.sends(self.inner.client(), self.inner.now(), 1),
            _ if self.stands_still() => Sent::Nothing,
            _ => Sent::All,
        };
        match sent {
            Sent::All => self.inner.poll_control(request, state, cx),
            Sent::Nothing | Sent::Later => Poll::Pending,
            Sent::Last { lost, .. } => {
                self.lose(lost);
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests;
