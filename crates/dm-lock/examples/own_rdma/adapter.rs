//! The adapter: it turns a connection of the program into a client for dmkit's code.
//!
//! It waits for each chain in the call that posts it, because the program's calls are synchronous. An asynchronous
//! adapter would post in `ring` and read its completion queue in `poll_chain`; nothing else would differ.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::task::{Context, Poll};
use std::time::Instant;

use dm_verbs::VerbErrorKind::{Refused, Unsupported};
use dm_verbs::{
    Attempts, Capability, Caps, ClientId, Env, Meter, Nanos, NodeId, Op, Outcome, Place, Transport,
};
use dm_verbs::{Slot, VerbError, Wqe};

use super::rdma::{Connection, Request};

/// A client: the connection of one thread, with the client's chains.
pub(crate) struct Client {
    rdma: Connection,
    id: ClientId,
    machine: u16,
    born: Instant,
    meter: Meter,
    drawn: Cell<u64>,
    opened: Cell<u32>,
    chains: RefCell<HashMap<u32, Chain>>,
    deferred: Cell<Option<VerbError>>,
}

/// A chain, from its first request until it is closed.
#[derive(Default)]
struct Chain {
    requests: Vec<Request>,
    places: Vec<Place>,
    /// For each request that has a result: whether the result is a word.
    words: Vec<bool>,
    answers: Vec<Vec<u8>>,
    error: Option<VerbError>,
}

impl Client {
    /// Creates a client. `id` must be unique among all clients of all machines, because lock words contain
    /// it.
    pub(crate) fn new(rdma: Connection, id: ClientId, machine: u16) -> Self {
        Self {
            rdma,
            id,
            machine,
            born: Instant::now(),
            meter: Meter::default(),
            drawn: Cell::new(u64::from(id.0)),
            opened: Cell::new(0),
            chains: RefCell::default(),
            deferred: Cell::new(None),
        }
    }

    fn on<T>(&self, slot: &Slot, work: impl FnOnce(&mut Chain) -> T) -> T {
        work(self.chains.borrow_mut().entry(slot.index).or_default())
    }
}

impl Env for Client {
    fn client(&self) -> ClientId {
        self.id
    }
    fn compute_node(&self) -> u16 {
        self.machine
    }
    fn now(&self) -> Nanos {
        Nanos(self.born.elapsed().as_nanos() as u64)
    }
    fn rng(&self, stream: u32) -> u64 {
        let drawn = self.drawn.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.drawn.set(drawn);
        (drawn ^ u64::from(stream)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    }
    fn meter(&self) -> &Meter {
        &self.meter
    }
    fn poll_pause(&self, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        cx.waker().wake_by_ref();
        match std::mem::replace(state, 1) {
            0 => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

impl Attempts for Client {}

impl Transport for Client {
    type Lease = Vec<u8>;

    /// Returns the default capabilities, which promise the least. The locks then use fallbacks.
    fn caps(&self, _node: NodeId) -> Caps {
        Caps::default()
    }

    fn open(&self, _node: NodeId) -> Slot {
        let (index, generation) = (self.opened.get(), 0);
        self.opened.set(index.wrapping_add(1));
        Slot { index, generation }
    }

    fn push(&self, slot: &Slot, Wqe { op, .. }: Wqe<'_>) {
        let (at, refused) = (op.at(), Unsupported(Capability::MaskedAtomics));
        self.on(slot, |chain| {
            chain.requests.push(match op {
                Op::Read { len, .. } => Request::Read(at.offset(), len as usize),
                Op::Word { .. } => Request::Read(at.offset(), 8),
                Op::Write { bytes, .. } => Request::Write(at.offset(), bytes.to_vec()),
                Op::Cas { compare, swap, .. } => Request::CompareSwap(at.offset(), compare, swap),
                Op::Faa { add, .. } => Request::FetchAdd(at.offset(), add),
                Op::MaskedCas { .. } => return chain.error = Some(VerbError::refused(refused, at)),
            });
            chain.places.push(at);
            if op.has_result() {
                chain.words.push(!matches!(op, Op::Read { .. }));
            }
        });
    }

    fn ring(&self, slot: &Slot) {
        self.on(slot, |chain| {
            let (None, Some(first)) = (chain.error, chain.places.first()) else {
                return;
            };
            match self.rdma.execute(first.node().0, &chain.requests) {
                Ok(answers) => chain.answers = answers,
                Err(failed) => {
                    let error = VerbError::refused(Refused, chain.places[failed]);
                    let index = failed as u16;
                    chain.error = Some(VerbError { index, ..error });
                }
            }
        });
    }

    fn poll_chain(&self, slot: &Slot, _cx: &mut Context<'_>) -> Poll<Result<(), VerbError>> {
        Poll::Ready(self.on(slot, |chain| chain.error.take().map_or(Ok(()), Err)))
    }

    fn take(&self, slot: &Slot, i: u16) -> Outcome<Vec<u8>> {
        self.on(slot, |chain| match chain.answers.get_mut(usize::from(i)) {
            None => Outcome::None,
            Some(answer) => match answer.first_chunk() {
                Some(word) if chain.words[usize::from(i)] => Outcome::Old(u64::from_le_bytes(*word)),
                _ => Outcome::Lease(std::mem::take(answer)),
            },
        })
    }

    /// Closes a chain. If its error was never returned, the client's next operation returns it.
    fn close(&self, slot: Slot) {
        let chain = self.chains.borrow_mut().remove(&slot.index);
        let untold = chain.and_then(|chain| chain.error);
        self.deferred.set(self.deferred.get().or(untold));
    }

    fn take_deferred(&self) -> Option<VerbError> {
        self.deferred.take()
    }

    fn load_image(&self, at: Place, _bytes: &[u8]) -> Result<(), VerbError> {
        Err(VerbError::refused(Unsupported(Capability::DirectLoad), at))
    }
}
