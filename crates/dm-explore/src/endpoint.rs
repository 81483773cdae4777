//! A client's implementation of the traits of `dm-verbs`.

use core::cell::{RefCell, RefMut};
use core::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

use dm_verbs::{
    Attempts, CallState, Caps, ClientId, Control, ControlError, ControlReply, ControlRequest, Env, LocalStep,
    Meter, Nanos, NodeId, Outcome, Place, Slot, Transport, VerbError, VerbErrorKind, Wqe,
};

use crate::knobs::{Elapsed, Retries};
use crate::lease::Lease;
use crate::machine::Machine;

/// The slot index of a chain that was opened while futures were being dropped. Such a chain is ignored.
const NOWHERE: u32 = u32::MAX;

/// A client of the modelled cluster. It implements [`Transport`], [`Env`] and [`Control`]. Client ids start at 1.
pub struct Endpoint {
    machine: Rc<RefCell<Machine>>,
    client: u8,
    compute_node: u16,
    meter: Meter,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("client", &self.client())
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    pub(crate) fn new(machine: Rc<RefCell<Machine>>, client: u8, compute_node: u16) -> Self {
        Self {
            machine,
            client,
            compute_node,
            meter: Meter::default(),
        }
    }

    #[inline]
    pub(crate) fn machine(&self) -> RefMut<'_, Machine> {
        self.machine.borrow_mut()
    }

    pub(crate) fn number(&self) -> u8 {
        self.client
    }
}

impl Env for Endpoint {
    fn client(&self) -> ClientId {
        Machine::id(self.client)
    }
    fn compute_node(&self) -> u16 {
        self.compute_node
    }
    /// Returns 0 unless the knobs have [`Elapsed::Clock`]. Without a clock, only the result of `elapsed` determines
    /// whether time has passed. During setup, the clock is at 0.
    fn now(&self) -> Nanos {
        let mut m = self.machine();
        if m.dead || m.immediate || m.knobs.elapsed != Elapsed::Clock {
            return Nanos(0);
        }
        m.note_sections();
        Nanos(m.look_at_clock(self.client))
    }
    fn elapsed(&self, since: Nanos, limit: Nanos) -> bool {
        if self.machine().knobs.elapsed == Elapsed::Clock {
            let late = self.now().0.saturating_sub(since.0) >= limit.0;
            let mut m = self.machine();
            if late && !m.dead && !m.immediate {
                m.note_late(self.client);
            }
            return late;
        }
        let mut m = self.machine();
        if m.dead || m.immediate || m.knobs.elapsed == Elapsed::Never {
            return false;
        }
        m.note_sections();
        m.answer(self.client)
    }
    fn rng(&self, stream: u32) -> u64 {
        self.machine().rng(self.client, stream)
    }
    fn meter(&self) -> &Meter {
        &self.meter
    }
    fn poll_pause(&self, state: &mut u64, _cx: &mut Context<'_>) -> Poll<()> {
        if self.machine().poll_pause(self.client, state) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
    fn poll_local(&self, _step: LocalStep, state: &mut u64, _cx: &mut Context<'_>) -> Poll<()> {
        if self.machine().poll_local(self.client, state) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Attempts for Endpoint {
    fn mark(&self) -> u64 {
        self.machine().mark(self.client)
    }
    fn rewind(&self, mark: u64) {
        self.machine().rewind(self.client, mark);
    }
    fn budget(&self, attempts: u32) -> u32 {
        match self.machine().knobs.retries {
            Retries::Rewound => u32::MAX,
            Retries::Bounded(n) => attempts.min(n),
        }
    }
}

impl Transport for Endpoint {
    type Lease = Lease;

    fn caps(&self, node: NodeId) -> Caps {
        self.machine().caps(node.0)
    }
    #[inline]
    fn open(&self, node: NodeId) -> Slot {
        let mut m = self.machine();
        if m.dead {
            return Slot {
                index: NOWHERE,
                generation: 0,
            };
        }
        let i = m.open(self.client, node.0);
        Slot {
            index: u32::from(i),
            generation: m.generation(),
        }
    }
    #[inline]
    fn push(&self, slot: &Slot, wqe: Wqe<'_>) {
        let mut m = self.machine();
        if !m.dead {
            m.push(self.client, slot.index as u16, wqe);
        }
    }
    #[inline]
    fn ring(&self, slot: &Slot) {
        let mut m = self.machine();
        if !m.dead {
            m.ring(self.client, slot.index as u16);
        }
    }
    #[inline]
    fn poll_chain(&self, slot: &Slot, _cx: &mut Context<'_>) -> Poll<Result<(), VerbError>> {
        self.machine()
            .poll_chain(self.client, slot.index as u16)
            .map_or(Poll::Pending, Poll::Ready)
    }
    #[inline]
    fn take(&self, slot: &Slot, i: u16) -> Outcome<Lease> {
        self.machine().take(self.client, slot.index as u16, i)
    }
    #[inline]
    fn close(&self, slot: Slot) {
        let mut m = self.machine();
        if !m.dead && slot.index != NOWHERE {
            m.close(self.client, slot.index as u16);
        }
    }
    fn take_deferred(&self) -> Option<VerbError> {
        self.machine().take_deferred(self.client)
    }
    /// Stores the bytes at once. This works only during [`Model::setup`](crate::Model::setup) and
    /// [`Model::shared_opened`](crate::Model::shared_opened); later it is refused as unsupported.
    fn load_image(&self, at: Place, bytes: &[u8]) -> Result<(), VerbError> {
        let mut m = self.machine();
        if !m.immediate {
            let kind = VerbErrorKind::Unsupported(dm_verbs::Capability::DirectLoad);
            return Err(VerbError::refused(kind, at));
        }
        let flat = m
            .mem
            .flat(at, bytes.len())
            .map_err(|kind| VerbError::refused(kind, at))?;
        m.mem.write(flat, bytes);
        Ok(())
    }
}

impl Control for Endpoint {
    fn memory_nodes(&self) -> u16 {
        self.machine().memory_nodes()
    }
    fn poll_control(
        &self,
        request: &ControlRequest,
        state: &mut CallState,
        _cx: &mut Context<'_>,
    ) -> Poll<Result<ControlReply, ControlError>> {
        self.machine()
            .poll_control(self.client, request, state)
            .map_or(Poll::Pending, Poll::Ready)
    }
}
