//! Tapes: the calls to the machine that a client made in one poll. They can be repeated without the client.
//!
//! A client's behaviour is a function of its observations. So at a point that it has reached before
//! (`Machine::standing`), a client behaves as it did before. A search begins a new execution for each path, so without
//! tapes it would spend most of its time on polling futures through known behaviour.

use dm_verbs::{CallState, ControlRequest, NodeId, Op, Wqe};

use super::Machine;
use super::client::Status;
use crate::fp::Fp;
use crate::step::{Answers, Step, StepKind};
use crate::verdict::Failure;

/// One call to the machine. A chain is identified by its position among the client's open chains, because its number
/// depends on the path.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// The client was in sections on shared state.
    Sections,
    Open(NodeId),
    /// A request is added to a chain. The payload of a WRITE lies in the tape.
    Push(u16, Request),
    Ring(u16),
    Await(u16),
    Close(u16),
    Deferred,
    Control(ControlRequest, bool),
    Local(bool),
    Pause(bool),
    Mark,
    Rewind(u64),
    Rng(u32),
    Answer,
    Clock,
    Late,
    PassTime(u64),
    Begin(Fp),
    End(Fp),
    Pending,
    Enter(&'static str, u32),
    Leave(&'static str),
    Wait(&'static str),
    Ghost(&'static str, u64),
    Output(u64),
    Forget,
    Fail(Box<Failure>),
}

/// A request and, for a WRITE, the range of the tape's bytes that holds its payload.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    op: Op<'static>,
    fence: bool,
    data: (u32, u32),
}

/// The record of one poll (or drop) of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape {
    pub(crate) calls: Vec<Call>,
    data: Vec<u8>,
    /// Whether the client's behaviour depended on the shared state of its compute node.
    pub(crate) looked: bool,
    pub(crate) end: Option<Status>,
    pub(crate) panic: Option<String>,
    /// The clients whose wakers the client called, as bits.
    pub(crate) woken: u64,
    /// The fingerprint of the compute node's shared state afterwards, if the model has one and the client accessed that
    /// state.
    pub(crate) told: Option<u64>,
}

impl Tape {
    fn keep(&mut self, wqe: Wqe<'_>) -> Request {
        let from = self.data.len() as u32;
        let (op, payload) = wqe.op.split();
        self.data.extend_from_slice(payload);
        Request {
            op,
            fence: wqe.fence,
            data: (from, self.data.len() as u32),
        }
    }

    fn wqe<'t>(&'t self, request: &Request) -> Wqe<'t> {
        let (from, to) = request.data;
        Wqe {
            op: request.op.with_payload(&self.data[from as usize..to as usize]),
            fence: request.fence,
        }
    }
}

impl Machine {
    #[inline]
    pub(super) fn note(&mut self, call: Call) {
        if let Some(tape) = &mut self.tape {
            tape.calls.push(call);
        }
    }

    /// Records a call that concerns chain `i`, if a tape is being recorded.
    #[inline]
    pub(super) fn note_chain(&mut self, c: u8, i: u16, call: impl FnOnce(u16) -> Call) {
        if let Some(tape) = &mut self.tape {
            let open = &self.clients[usize::from(c)].open;
            let name = open.iter().position(|&x| x == i).unwrap_or(usize::from(u16::MAX));
            tape.calls.push(call(name as u16));
        }
    }

    #[inline]
    pub(super) fn note_push(&mut self, c: u8, i: u16, wqe: Wqe<'_>) {
        if let Some(mut tape) = self.tape.take() {
            let request = tape.keep(wqe);
            self.tape = Some(tape);
            self.note_chain(c, i, |name| Call::Push(name, request));
        }
    }

    /// Returns the point that the client of `step` has reached before the poll. The client's next behaviour depends
    /// only on this point and, if the client accesses it, on the shared state of its compute node.
    pub(crate) fn standing(&self, step: Step, answers: Answers) -> Fp {
        let client = &self.clients[usize::from(step.client)];
        let mut f = self.client_hash(usize::from(step.client));
        let kind = match step.kind {
            StepKind::Start => 1,
            StepKind::Local => 2,
            StepKind::Control => 3,
            StepKind::Wake => 4,
            StepKind::Unit { .. } => 5,
            StepKind::Cancel => 6,
            StepKind::Crash | StepKind::Late { .. } => 7,
            StepKind::Fail { .. } | StepKind::Refuse { .. } => 8,
        };
        let granted = u64::from(client.granted_local) | u64::from(client.granted_pause) << 1;
        f.fold(kind | granted << 4);
        // The number of answers does not matter, because a missing answer counts as "no".
        f.fold(answers.bits);
        f.fold(self.clock);
        if let Some(reply) = &client.reply {
            f.fold2(Fp::of(reply));
        }
        f
    }

    /// Returns the point of a client that accesses the shared state of its compute node.
    pub(crate) fn standing_with_node(&self, mut standing: Fp, client: u8) -> Fp {
        let node = self.clients[usize::from(client)].node;
        standing.fold2(self.nodes[usize::from(node)].chain);
        standing
    }

    /// Repeats the calls of `tape` for client `c`, which has been entered.
    pub(crate) fn perform(&mut self, c: u8, tape: &Tape) {
        for call in &tape.calls {
            self.perform_call(c, call, tape);
        }
    }

    fn perform_call(&mut self, c: u8, call: &Call, tape: &Tape) {
        let named = |m: &Self, name: u16| m.clients[usize::from(c)].open[usize::from(name)];
        match *call {
            Call::Sections => self.saw_sections(c),
            Call::Open(node) => drop(self.open(c, node.0)),
            Call::Push(name, ref request) => {
                let i = named(self, name);
                self.push(c, i, tape.wqe(request));
            }
            Call::Ring(name) => {
                let i = named(self, name);
                self.ring(c, i);
            }
            Call::Await(name) => {
                let i = named(self, name);
                let _ = self.poll_chain(c, i);
            }
            Call::Close(name) => {
                let i = named(self, name);
                self.close(c, i);
            }
            Call::Deferred => drop(self.take_deferred(c)),
            Call::Control(ref request, again) => {
                let mut state = CallState {
                    step: u64::from(again),
                    answer: None,
                };
                let _ = self.poll_control(c, request, &mut state);
            }
            Call::Local(again) => drop(self.poll_local(c, &mut u64::from(again))),
            Call::Pause(again) => drop(self.poll_pause(c, &mut u64::from(again))),
            Call::Mark => drop(self.mark(c)),
            Call::Rewind(mark) => self.rewind(c, mark),
            Call::Rng(stream) => drop(self.rng(c, stream)),
            Call::Answer => drop(self.answer(c)),
            Call::Clock => drop(self.look_at_clock(c)),
            Call::Late => self.note_late(c),
            Call::PassTime(nanos) => self.pass_time(c, nanos),
            Call::Begin(op) => self.begin_operation(c, op),
            Call::End(ret) => self.end_operation(c, ret),
            Call::Pending => self.leave_pending(c),
            Call::Enter(name, limit) => self.monitor_enter(c, name, limit),
            Call::Leave(name) => self.monitor_leave(c, name),
            Call::Wait(name) => self.wait_for(c, name),
            Call::Ghost(name, value) => self.write_ghost(c, name, value),
            Call::Output(value) => self.output(c, value),
            Call::Forget => self.forget(c),
            Call::Fail(ref failure) => drop(self.failure.get_or_insert_with(|| (**failure).clone())),
        }
    }
}
