//! Known moves: the outcomes of steps that a client has taken before in the same state.
//!
//! The clients of a model have far fewer states than the model itself, because every state of one client occurs
//! together with many states of the others. The outcome of a step for its own client depends on the client's state, on
//! the remote memory that the step reads, and, if the client accesses it, on the shared state of its compute node. So
//! the outcome is recorded the first time. Later, the recorded state replaces the client's state, and only the effects
//! on everything else are carried out again. Steps whose outcome depends on more than that are not recorded.

use super::Machine;
use super::chain::Kind;
use super::client::Client;
use crate::fp::{Fp, FpMap};
use crate::step::{Answers, Footprint, Step, StepKind};

/// An effect of a step on something other than its client, remote memory and the shared state of a compute node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// The client began the operation with this number.
    Begin(u32, Fp),
    /// The operation with this number counts as invoked from this step on.
    Invoke(u32),
    /// The operation with this number returned this result.
    End(u32, Fp),
    Ghost(&'static str, u64),
    /// The client entered a section that admits this many clients.
    Enter(&'static str, u32),
    Leave(&'static str),
    /// The client called the wakers of these other clients.
    Wake(u64),
}

/// The part of a step's input that depends only on the client's own state: a hash of that state and the step, and the
/// range of memory that the step reads. The step's outcome for its client also depends on the bytes in this range, and
/// possibly on the shared state of the compute node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    state: Fp,
    reads: (u32, u32),
}

/// The record of a step that is being taken.
#[derive(Debug)]
pub(super) struct Recording {
    effects: Vec<Effect>,
    /// A hash of the shared state of the client's compute node before the step.
    node: Fp,
    /// Whether the client accessed that state.
    looked: bool,
    /// Whether the step notified clients that wait for changes of that state.
    told: bool,
    /// Whether the outcome depends on more than the step's input.
    spoiled: bool,
}

/// The outcome of a step.
#[derive(Debug)]
pub(crate) struct Move {
    client: Client,
    footprint: Footprint,
    effects: Box<[Effect]>,
    /// A hash of the shared state of the client's compute node after the step, and whether the step notifies clients
    /// that wait for changes of it. `None` if the client did not access that state.
    node: Option<(Fp, bool)>,
}

/// All known moves.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// The moves by their inputs. `None` means that the client accessed the shared state of its compute node; a second
    /// look-up then includes that state.
    places: FpMap<Option<usize>>,
    moves: Vec<Move>,
    /// The states to which moves lead. Moves that lead to equal states share one copy.
    clients: FpMap<Client>,
}

/// The number of client states for which there is always room. There is room for one more for every `STATES_PER_CLIENT`
/// states that the thread has found. A client state takes 1 to 2 KB. So the client states take at most 33 to 67 MB in
/// each thread, and 16 to 32 bytes more for each state that it has found.
const CLIENTS: u64 = 32_768;
const STATES_PER_CLIENT: u64 = 64;
/// The maximum number of moves per client state, on average over all client states for which there is room. A move
/// takes 100 to 300 bytes.
const MOVES_PER_CLIENT: u64 = 8;

impl Moves {
    /// Returns the move for this input, if it is known. `node` returns the hash of the shared state of the client's
    /// compute node.
    #[inline]
    pub(crate) fn get(&self, input: Fp, node: impl FnOnce() -> Fp) -> Option<&Move> {
        let place = match *self.places.get(&input)? {
            Some(place) => place,
            None => (*self.places.get(&with_node(input, node()))?)?,
        };
        self.moves.get(place)
    }

    /// Returns whether there is room for another move in a search that has found this many states.
    pub(crate) fn has_room(&self, states: u64) -> bool {
        let clients = CLIENTS + states / STATES_PER_CLIENT;
        (self.clients.len() as u64) < clients && (self.moves.len() as u64) < MOVES_PER_CLIENT * clients
    }

    /// Returns the number of inputs by which moves are looked up.
    pub(crate) fn inputs(&self) -> usize {
        self.places.len()
    }

    /// Stores the move that `machine` has recorded, unless the outcome depends on more than `input` and the shared
    /// state of the compute node, or the step found a failure.
    pub(crate) fn keep(&mut self, input: Fp, machine: &mut Machine, c: u8) {
        let Some(recording) = machine.recording.take() else {
            return;
        };
        if recording.spoiled || machine.failure.is_some() {
            return;
        }
        let c = usize::from(c);
        let client = &machine.clients[c];
        let mut name = machine.client_hash(c);
        name.fold(client.progress());
        let client = self.clients.entry(name).or_insert_with(|| client.clone());
        let node = machine.nodes[usize::from(client.node)].chain;
        self.moves.push(Move {
            client: client.clone(),
            footprint: machine.footprint,
            effects: recording.effects.into(),
            node: recording.looked.then_some((node, recording.told)),
        });
        let place = Some(self.moves.len() - 1);
        if recording.looked {
            self.places.insert(input, None);
            self.places.insert(with_node(input, recording.node), place);
        } else {
            self.places.insert(input, place);
        }
    }
}

fn with_node(mut input: Fp, node: Fp) -> Fp {
    input.fold2(node);
    input
}

impl Machine {
    /// Returns the input of `step`, or `None` if the outcome may depend on more.
    pub(super) fn input(&self, step: Step) -> Option<Input> {
        let c = usize::from(step.client);
        let client = &self.clients[c];
        // Words that other clients hold decide whether the pending requests of a failed queue pair can be served. The
        // states of all clients decide whether one of them is overtaken.
        if !client.late.is_empty() || client.down != 0 || !self.bypass.is_empty() {
            return None;
        }
        // A waiting client's hash omits the bytes that the client has read, because memory determines them. So the hash
        // alone does not determine the outcome.
        if client.paused && !client.ready {
            return None;
        }
        let (kind, reads) = match step.kind {
            StepKind::Start => (1, (0, 0)),
            StepKind::Local => (2, (0, 0)),
            StepKind::Wake => (3, (0, 0)),
            StepKind::Unit { chain, request, unit } => {
                let i = client.live[usize::from(chain)];
                let r = &client.chains[usize::from(i)].requests[usize::from(request)];
                let reads = if r.kind == Kind::Write || r.half {
                    (0, 0)
                } else {
                    r.unit(unit, self.unit)
                };
                let place = u64::from(chain) << 8 | u64::from(request) << 16 | u64::from(unit) << 24;
                (4 | place, reads)
            }
            _ => return None,
        };
        let mut state = self.client_hash(c);
        state.fold(kind | client.progress() << 32);
        Some(Input { state, reads })
    }

    /// Returns a hash of everything on which the outcome of `step` for its client depends, except the shared state of
    /// its compute node. Returns `None` if the outcome may depend on more.
    pub(crate) fn input_hash(&self, step: Step) -> Option<Fp> {
        let Input { mut state, reads } = self.input_of(step)?;
        if reads.0 < reads.1 {
            state.fold2(self.mem.content(reads.0, reads.1));
        }
        Some(state)
    }

    /// Returns the shared state of the compute node of client `c`, as a hash.
    pub(crate) fn shared_with(&self, c: u8) -> Fp {
        self.nodes[usize::from(self.clients[usize::from(c)].node)].chain
    }

    /// Starts to record the outcome of the next step, which is a step of client `c`.
    pub(crate) fn record(&mut self, c: u8) {
        self.recording = Some(Recording {
            effects: Vec::new(),
            node: self.shared_with(c),
            looked: false,
            told: false,
            spoiled: false,
        });
    }

    /// Records that the outcome of the step depends on more than its input.
    #[inline]
    pub(super) fn spoil(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.spoiled = true;
        }
    }

    /// Records that the client of the step accessed the shared state of its compute node.
    pub(super) fn note_look(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.looked = true;
        }
    }

    /// Records that the step notified the clients that wait for changes of their compute node's shared state, and
    /// whether it woke one of them.
    pub(super) fn note_told(&mut self, woke: bool) {
        if let Some(recording) = &mut self.recording {
            recording.told = true;
            recording.spoiled |= woke;
        }
    }

    /// Records an effect of client `c` and carries it out.
    pub(super) fn affect(&mut self, c: u8, effect: Effect) {
        if let Some(recording) = &mut self.recording {
            recording.effects.push(effect);
        }
        self.carry_effect(c, effect);
    }

    fn carry_effect(&mut self, c: u8, effect: Effect) {
        match effect {
            Effect::Begin(number, operation) => self.operation_begins(c, number, operation),
            Effect::Invoke(number) => self.operation_is_invoked(c, number),
            Effect::End(number, result) => self.operation_ends(c, number, result),
            Effect::Ghost(name, value) => *self.ghost_mut(name) = value,
            Effect::Enter(name, limit) => self.section_is_entered(c, name, limit),
            Effect::Leave(name) => self.section_is_left(name),
            Effect::Wake(clients) => self.wake(clients),
        }
    }

    /// Takes `step`, whose outcome is `known`.
    pub(crate) fn repeat(&mut self, step: Step, known: &Move) {
        let c = step.client;
        self.step_count += 1;
        (self.answers, self.asked) = (Answers::default(), Answers::default());
        self.footprint = known.footprint;
        if let StepKind::Unit { chain, request, unit } = step.kind {
            self.change_memory(c, chain, request, unit);
        }
        self.clients[usize::from(c)].clone_from(&known.client);
        for &effect in &known.effects {
            self.carry_effect(c, effect);
        }
        if let Some((chain, told)) = known.node {
            let node = known.client.node;
            if self.nodes[usize::from(node)].chain != chain {
                self.nodes[usize::from(node)].chain = chain;
            }
            if told {
                self.local_changed(node, c);
            }
        }
    }
}
