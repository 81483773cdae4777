//! One client's chains: under construction, in flight, or completed.

use dm_verbs::{Effect, NodeId, Op, Outcome, Slot, VerbError, VerbErrorKind, Wqe};

use crate::lease::Lease;

/// A request of a chain; the payload of a WRITE is in the chain's buffer.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    op: Op<'static>,
    pub(crate) fence: bool,
    payload: (usize, usize),
    /// The number of the request's result, if it returns a value.
    pub(crate) result: Option<usize>,
}

/// The state of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Free,
    Building,
    /// The doorbell was rung, and the chain has taken effect or has failed. The number is the number of further polls
    /// after which the completion is reported. With `Completion::NextTurn`, it is instead the number of the executor's
    /// turn in which the doorbell was rung.
    Flying(u32),
    Completed,
}

pub(crate) struct Chain {
    pub(crate) node: NodeId,
    pub(crate) phase: Phase,
    generation: u32,
    pub(crate) requests: Vec<Stored>,
    payload: Vec<u8>,
    results: Vec<Outcome<Lease>>,
    pub(crate) error: Option<VerbError>,
    /// Whether any request changes memory.
    pub(crate) changes: bool,
}

impl Chain {
    fn new(index: usize) -> Self {
        Self {
            node: NodeId(0),
            phase: Phase::Free,
            // The generation grows at each close, so that the use of a closed slot is detected.
            generation: index as u32,
            requests: Vec::new(),
            payload: Vec::new(),
            results: Vec::new(),
            error: None,
            changes: false,
        }
    }

    /// Stores the request and a copy of its payload.
    pub(crate) fn push(&mut self, wqe: Wqe<'_>) {
        let begin = self.payload.len();
        let (op, payload) = wqe.op.split();
        self.payload.extend_from_slice(payload);
        let result = op.has_result().then_some(self.results.len());
        if result.is_some() {
            self.results.push(Outcome::None);
        }
        self.changes |= changes(&op);
        self.requests.push(Stored {
            op,
            fence: wqe.fence,
            payload: (begin, self.payload.len()),
            result,
        });
    }

    /// Returns the stored request with its payload.
    pub(crate) fn op(&self, stored: &Stored) -> Op<'_> {
        stored
            .op
            .with_payload(&self.payload[stored.payload.0..stored.payload.1])
    }

    /// Refuses the whole chain before it is sent, unless it was refused before.
    pub(crate) fn refuse(&mut self, kind: VerbErrorKind, op: &Op<'_>) {
        self.error.get_or_insert(VerbError::refused(kind, op.at()));
    }

    /// Records that request `index` failed with `effect`, and that the later requests have the effect `rest`.
    pub(crate) fn fail(&mut self, index: usize, kind: VerbErrorKind, effect: Effect, rest: Effect) {
        let Some(at) = self.requests.get(index).map(|stored| stored.op.at()) else {
            return;
        };
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        self.error.get_or_insert(VerbError {
            kind,
            at,
            index,
            effect,
            rest,
        });
    }

    pub(crate) fn set_result(&mut self, result: Option<usize>, outcome: Outcome<Lease>) {
        if let Some(place) = result.and_then(|i| self.results.get_mut(i)) {
            *place = outcome;
        }
    }

    pub(crate) fn take_result(&mut self, i: u16) -> Outcome<Lease> {
        match self.results.get_mut(usize::from(i)) {
            Some(place) => core::mem::replace(place, Outcome::None),
            None => Outcome::None,
        }
    }
}

/// Returns whether `op` changes memory.
#[inline]
pub(crate) fn changes(op: &Op<'_>) -> bool {
    !matches!(op, Op::Read { .. } | Op::Word { .. })
}

/// All chains of a client by number. Numbers and their buffers are reused.
#[derive(Default)]
pub(crate) struct Chains {
    all: Vec<Chain>,
    /// The numbers that are free, in descending order.
    free: Vec<u32>,
}

impl Chains {
    /// Opens a chain, and returns its slot and the chain.
    pub(crate) fn open(&mut self, node: NodeId) -> (Slot, &mut Chain) {
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None => {
                self.all.push(Chain::new(self.all.len()));
                self.all.len() - 1
            }
        };
        let chain = &mut self.all[index];
        chain.node = node;
        chain.phase = Phase::Building;
        // The cast loses nothing, because 2^32 chains do not fit in memory.
        (
            Slot {
                index: index as u32,
                generation: chain.generation,
            },
            chain,
        )
    }

    /// Returns the number of chains that are not closed.
    pub(crate) fn used(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Returns the chain of `slot`. Panics if this client does not have the slot, because that is a bug of the program
    /// and not a network fault.
    #[inline]
    pub(crate) fn get(&mut self, slot: &Slot) -> &mut Chain {
        let chain = self.all.get_mut(slot.index as usize);
        let chain = chain.filter(|c| c.generation == slot.generation && c.phase != Phase::Free);
        chain.expect("a slot belongs to the client that opened it, until it is closed")
    }

    /// Closes the chain of `slot`. If the chain was posted and has failed, and no poll has reported the error, returns
    /// the error.
    pub(crate) fn close(&mut self, slot: Slot) -> Option<VerbError> {
        let chain = self.get(&slot);
        let untold = if matches!(chain.phase, Phase::Flying(_)) {
            chain.error
        } else {
            None
        };
        chain.phase = Phase::Free;
        chain.generation = chain.generation.wrapping_add(1);
        chain.requests.clear();
        chain.payload.clear();
        chain.results.clear();
        chain.error = None;
        chain.changes = false;
        // The lowest number is used first. So a client that has few chains at a time always uses the same buffers.
        let place = self.free.partition_point(|index| *index > slot.index);
        self.free.insert(place, slot.index);
        untold
    }
}
