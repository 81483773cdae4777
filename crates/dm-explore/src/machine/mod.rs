//! The modelled cluster: memory, queues, and the progress of clients. It contains no futures and makes no
//! choices.

mod buffers;
pub(crate) mod chain;
pub(crate) mod client;
mod control;
mod fail;
mod hash;
mod monitor;
pub(crate) mod moves;
mod offer;
mod post;
pub(crate) mod saved;
pub(crate) mod shared;
pub(crate) mod tape;
mod unit;

use dm_sync::local_sections;
use dm_verbs::{AtomicUnit, ClientId};

use crate::fp::{Fp, FpMap};
use crate::knobs::Knobs;
use crate::lease::Lease;
use crate::memory::Memory;
use crate::step::{Answers, Footprint, Step, StepKind};
use crate::trace::Log;
use crate::verdict::Failure;
use buffers::Buffers;
use chain::Chain;
use client::{Client, ClientState, Status, Times};
pub(crate) use control::DETECTOR;
use moves::Effect;
use shared::Shared;

/// The work that the runner must do to finish a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    Nothing,
    Start(u8),
    Poll(u8),
    Drop(u8),
}

impl Then {
    /// Returns the client that must be started, polled or dropped.
    pub(crate) fn client(self) -> Option<u8> {
        match self {
            Self::Nothing => None,
            Self::Start(c) | Self::Poll(c) | Self::Drop(c) => Some(c),
        }
    }
}

/// A hash that stands for the shared state of a compute node: a hash of the order of the sections that ran on it, or
/// the fingerprint that the model computes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeState {
    pub(crate) chain: Fp,
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) knobs: Knobs,
    pub(crate) mem: Memory,
    /// Bytes per unit.
    unit: u32,
    buffers: Buffers,
    opened_chains: u32,
    /// The clients, and one more that runs the setup.
    pub(crate) clients: Vec<Client>,
    /// The recorded operations of each client. They are stored apart from the client's state, because their times
    /// depend on the path to the state.
    pub(crate) operations: Vec<Shared<Vec<Times>>>,
    pub(crate) nodes: Shared<Vec<NodeState>>,
    /// Whether the model provides a fingerprint of the shared state of compute nodes.
    pub(crate) own_fingerprints: bool,
    /// Whether the fingerprint omits the shared state of compute nodes. This is wrong, and is used to test the explorer
    /// itself.
    pub(crate) blind: bool,
    /// Words that racy atomics have read but not yet written back.
    held: Shared<Vec<u32>>,
    allocated: Shared<Vec<u64>>,
    kept_allocated: Shared<Vec<u64>>,
    pub(crate) chunk_align: u64,
    /// The numbers of crashes, cancellations and failures of queue pairs so far. A client that stays cut off counts as
    /// another failure.
    faults: (u8, u8, u8),
    /// Sections, and how often a client that waits for one may be overtaken.
    pub(crate) bypass: Vec<(&'static str, u32)>,
    /// Whether the model requires lock freedom, so that no client may wait for others.
    pub(crate) lock_free: bool,
    /// For each client, the number of crashes after which it starts.
    pub(crate) survivors: Vec<u8>,
    /// For each client, whether it is exempt from faults.
    pub(crate) spared: Vec<bool>,
    pub(crate) step_count: u32,
    /// The time of the clock in nanoseconds. Only the model advances it.
    clock: u64,
    answers: Answers,
    asked: Answers,
    pub(crate) footprint: Footprint,
    sections: u64,
    /// The client being polled; sections count for this client only.
    polled: Option<u8>,
    history: Fp,
    completed: Fp,
    /// Ghost variables in the order of their first write. A variable that is not in this list is 0.
    pub(crate) ghosts: Shared<Vec<(&'static str, u64)>>,
    pub(crate) failure: Option<Failure>,
    /// Whether the setup is running or shared state is being opened, so that every posted request is carried out at
    /// once.
    pub(crate) immediate: bool,
    /// Whether futures are being dropped between executions, so that their calls are ignored.
    pub(crate) dead: bool,
    /// For each point that a client has reached, a hash of its next action.
    pub(crate) determinism: Option<FpMap<Fp>>,
    pub(crate) log: Option<Log>,
    /// Records the outcome of the step that is being taken.
    recording: Option<moves::Recording>,
    /// Records the calls of the client that is being polled.
    pub(crate) tape: Option<tape::Tape>,
    /// The clients, as bits, whose futures are polled in the current execution. For the other clients, recorded calls
    /// take the place of the future, so the bytes that their READs return are not stored.
    pub(crate) polled_clients: u64,
    /// The effects of opening shared state: the words that now differ from the image, and the bytes allocated.
    opened: (Vec<(u32, u64)>, Shared<Vec<u64>>),
}

impl Machine {
    pub(crate) fn new(knobs: Knobs, mem: Memory, nodes: &[u16], memory_nodes: u16) -> Self {
        let unit = if knobs.unit == AtomicUnit::Line { 64 } else { 8 };
        let state = |&node: &u16| ClientState {
            node,
            ..ClientState::default()
        };
        let reserved = |n| {
            mem.size(n, dm_verbs::Space::Host)
                .unwrap_or(0)
                .min(dm_verbs::RESERVED_BYTES)
        };
        let allocated: Vec<u64> = (0..memory_nodes).map(reserved).collect();
        let allocated = Shared::from(allocated);
        Self {
            knobs,
            unit,
            buffers: Buffers::default(),
            opened_chains: 0,
            clients: nodes
                .iter()
                .map(state)
                .chain([ClientState::default()])
                .map(Shared::from)
                .collect(),
            operations: vec![Shared::default(); nodes.len() + 1],
            nodes: vec![NodeState::default(); nodes.iter().max().map_or(1, |&n| usize::from(n) + 1)].into(),
            own_fingerprints: false,
            blind: false,
            held: Shared::default(),
            opened: (Vec::new(), allocated.clone()),
            kept_allocated: allocated.clone(),
            allocated,
            mem,
            chunk_align: 4096,
            faults: (0, 0, 0),
            bypass: Vec::new(),
            lock_free: false,
            survivors: Vec::new(),
            spared: Vec::new(),
            step_count: 0,
            clock: 0,
            answers: Answers::default(),
            asked: Answers::default(),
            footprint: Footprint::default(),
            sections: 0,
            polled: None,
            history: Fp::default(),
            completed: Fp::default(),
            ghosts: Shared::default(),
            failure: None,
            immediate: false,
            dead: false,
            determinism: None,
            log: None,
            recording: None,
            tape: None,
            polled_clients: u64::MAX,
        }
    }

    /// Returns the number of the client that runs the setup.
    pub(crate) fn setup_client(&self) -> u8 {
        (self.clients.len() - 1) as u8
    }

    pub(crate) fn id(client: u8) -> ClientId {
        ClientId(u16::from(client) + 1)
    }

    /// Makes the memory after setup the start of every execution.
    pub(crate) fn keep(&mut self) {
        self.mem.keep();
        self.kept_allocated.clone_from(&self.allocated);
    }

    /// Stores the effects that opening shared state had on memory. They are part of the start of every
    /// execution.
    pub(crate) fn keep_opened(&mut self) {
        self.opened = (self.mem.changes(), self.allocated.clone());
    }

    /// Returns to the start of an execution, with shared state open.
    pub(crate) fn reset_opened(&mut self) {
        self.reset();
        for &(word, value) in &self.opened.0 {
            self.mem.write(word * 8, &value.to_le_bytes());
        }
        self.allocated.clone_from(&self.opened.1);
    }

    /// Returns to the start of an execution, before shared state is opened.
    pub(crate) fn reset(&mut self) {
        self.mem.reset();
        self.buffers.clear();
        for (i, client) in self.clients.iter_mut().enumerate() {
            *client = ClientState::new(i, client.node).into();
        }
        for operations in &mut self.operations {
            operations.clear();
        }
        self.nodes.fill(NodeState::default());
        self.held.clear();
        self.allocated.clone_from(&self.kept_allocated);
        self.faults = (0, 0, 0);
        self.step_count = 0;
        self.clock = 0;
        self.polled = None;
        self.history = Fp::default();
        self.completed = Fp::default();
        self.ghosts.clear();
        self.failure = None;
        self.recording = None;
        self.dead = false;
    }

    /// Applies one step to the machine. The runner does the rest of the step.
    pub(crate) fn apply(&mut self, step: Step, answers: Answers) -> Then {
        self.step_count += 1;
        (self.answers, self.asked) = (answers, Answers::default());
        let c = step.client;
        let bit = 1u64 << c;
        self.footprint = Footprint {
            client: c,
            ..Footprint::default()
        };
        if self.log.is_some() {
            self.log_step(step);
        }
        if let StepKind::Unit { chain, request, unit } = step.kind {
            return self.serve_live(c, chain, request, unit);
        }
        if let StepKind::Late {
            chain, request, unit, ..
        } = step.kind
        {
            return self.serve_late(c, chain, request, unit);
        }
        self.footprint.clients = bit;
        let client = &mut self.clients[usize::from(c)];
        match step.kind {
            StepKind::Unit { .. } | StepKind::Late { .. } => Then::Nothing,
            StepKind::Start => {
                client.status = Status::Running;
                Then::Start(c)
            }
            StepKind::Local => {
                client.granted_local = true;
                client.acts += 1;
                self.invoked(c);
                Then::Poll(c)
            }
            StepKind::Control => {
                self.footprint.global = true;
                // The request takes effect in this step, so the operation must count as invoked before another client
                // can observe the effect.
                self.invoked(c);
                self.carry_out(c);
                Then::Poll(c)
            }
            StepKind::Wake => {
                if client.woken {
                    client.seen.fold(1);
                }
                if client.paused && (client.ready || client.timed) {
                    client.granted_pause = true;
                    if !client.rewound {
                        client.seen.fold(2);
                    }
                }
                self.invoked(c);
                Then::Poll(c)
            }
            StepKind::Cancel => {
                // From now on the client's destructors act instead of its program, so the client is at another point.
                client.seen.fold(9);
                self.faults.1 += 1;
                self.footprint.fault = true;
                Then::Drop(c)
            }
            StepKind::Crash => {
                self.faults.0 += 1;
                self.footprint.fault = true;
                client.status = Status::Crashed;
                self.die(c);
                Then::Nothing
            }
            StepKind::Fail { node, told } => {
                self.footprint.fault = true;
                self.fail_pair(c, node, told)
            }
            StepKind::Refuse { node } => {
                self.footprint.fault = true;
                self.refuse(c, node)
            }
        }
    }

    /// Prepares a poll (or drop) of client `c`, in which the client registers again for everything that it
    /// waits for.
    pub(crate) fn enter(&mut self, c: u8) {
        self.polled = Some(c);
        self.sections = local_sections();
        self.footprint.clients |= 1 << c;
        let client = &mut *self.clients[usize::from(c)];
        client.woken = false;
        client.at_local = false;
        client.paused = false;
        client.marks_before = client.marks.len();
        for i in client.awaiting.drain(..) {
            client.chains[usize::from(i)].awaited = false;
        }
    }

    /// Ends the poll. `woken` are the clients whose wakers were called.
    pub(crate) fn leave(&mut self, c: u8, end: Option<Status>, woken: u64) {
        self.note_sections();
        self.polled = None;
        let client = &mut self.clients[usize::from(c)];
        client.granted_pause = false;
        client.granted_local = false;
        if let Some(status) = end {
            client.status = status;
            self.act(c, 7);
        }
        if woken != 0 {
            self.footprint.clients |= woken;
            let itself = woken & 1 << c;
            self.wake(itself);
            self.affect(c, Effect::Wake(woken & !itself));
        }
    }

    /// Notes that the wakers of these clients were called.
    fn wake(&mut self, mut clients: u64) {
        while clients != 0 {
            let d = clients.trailing_zeros() as usize;
            clients &= clients - 1;
            if self.clients[d].status == Status::Running {
                self.clients[d].woken = true;
            }
        }
    }

    /// Returns whether client `c` may begin only after more crashes.
    pub(crate) fn is_in_reserve(&self, c: u8) -> bool {
        let deaths = self.survivors.get(usize::from(c)).copied().unwrap_or(0);
        self.faults.0 < deaths && self.clients[usize::from(c)].status == Status::NotStarted
    }

    /// Returns whether a queue pair has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.faults.2 > 0
    }

    /// Frees the chains of client `c` that are done and closed. Their first error becomes the client's deferred error,
    /// unless it already has one.
    fn sweep(&mut self, c: u8) {
        let client = &mut *self.clients[usize::from(c)];
        let mut live = core::mem::take(&mut client.live);
        live.retain(|&i| {
            let chain = &client.chains[usize::from(i)];
            let gone = chain.done && chain.closed;
            if gone {
                if let Some(e) = chain.error {
                    client.deferred.get_or_insert(e);
                }
                client.drop_chain(i);
            }
            !gone
        });
        client.live = live;
    }

    /// Records whether the client has accessed shared state since the last call. The result of such an access depends
    /// on which clients changed the state before, and in which order.
    #[inline]
    pub(crate) fn note_sections(&mut self) {
        let Some(c) = self.polled else { return };
        let now = local_sections();
        if now == self.sections {
            return;
        }
        self.sections = now;
        if let Some(tape) = &mut self.tape {
            tape.looked = true;
            tape.calls.push(tape::Call::Sections);
        }
        self.saw_sections(c);
    }

    /// Records that client `c` has accessed shared state.
    fn saw_sections(&mut self, c: u8) {
        self.invoked(c);
        self.note_look();
        let client = &mut self.clients[usize::from(c)];
        let node = &mut self.nodes[usize::from(client.node)];
        self.footprint.nodes |= 1 << (client.node % 64);
        if self.blind {
            return;
        }
        client.looks += 1;
        if !self.own_fingerprints {
            node.chain.fold(u64::from(c));
            node.chain.fold2(client.seen);
            node.chain.fold(u64::from(client.acts));
        }
        client.seen.fold2(node.chain);
        client.looked = node.chain;
        if !self.own_fingerprints {
            let of = client.node;
            self.local_changed(of, c);
        }
    }

    /// Sets the fingerprint of the shared state of a compute node.
    pub(crate) fn set_node_fingerprint(&mut self, node: u16, by: u8, fingerprint: u64) {
        let now = Fp::at(u64::from(node), fingerprint);
        let before = core::mem::replace(&mut self.nodes[usize::from(node)].chain, now);
        let client = &mut *self.clients[usize::from(by)];
        client.looked = now;
        if before != now {
            client.changed.xor(before);
            client.changed.xor(now);
        }
        // A retry loop that began after the last access of this poll began after the change.
        let (looks, changed) = (client.looks, client.changed);
        for mark in client.marks.iter_mut().skip(client.marks_before) {
            if mark.looks == looks {
                mark.changed = changed;
            }
        }
        client.ready |= client.paused && client.changed != client.pause_base;
        if before != now {
            self.local_changed(node, by);
        }
    }

    fn local_changed(&mut self, node: u16, by: u8) {
        let mut woke = false;
        for (d, client) in self.clients.iter_mut().enumerate() {
            if d != usize::from(by)
                && client.paused
                && client.watch_local
                && client.node == node
                && !client.ready
            {
                client.ready = true;
                self.footprint.clients |= 1 << d;
                woke = true;
            }
        }
        self.note_told(woke);
    }

    /// Records an action of client `c` that others may see. `what` is a hash of the action, or a number for its kind.
    pub(crate) fn act(&mut self, c: u8, what: u64) {
        let client = &mut self.clients[usize::from(c)];
        client.acts += 1;
        let Some(known) = &mut self.determinism else {
            return;
        };
        let mut place = client.seen;
        place.fold(u64::from(client.acts) | u64::from(c) << 32);
        let what = Fp::seed(what);
        if *known.entry(place).or_insert(what) != what && self.failure.is_none() {
            self.failure = Some(Failure::NotDeterministic { client: c });
        }
    }

    /// Returns the chosen result of a call of `Env::elapsed` by client `c`: `false` if none was chosen. Records the
    /// call.
    pub(crate) fn answer(&mut self, c: u8) -> bool {
        self.spoil();
        self.note(tape::Call::Answer);
        assert!(
            self.asked.count < Answers::MAX,
            "more than {} questions of time in one step",
            Answers::MAX
        );
        let yes = self.answers.get(self.asked.count).unwrap_or(false);
        self.asked.push(yes);
        let client = &mut self.clients[usize::from(c)];
        client.seen.fold(if yes { 4 } else { 3 });
        // The next call may have another result, so such a call allows a pause to end (see `timed`).
        client.asked += 1;
        if let Some(log) = &mut self.log {
            let is = if yes { "is" } else { "is not yet" };
            log.remark(c, format!("finds that its time {is} over"));
        }
        yes
    }

    /// Reads the clock for client `c`.
    pub(crate) fn look_at_clock(&mut self, c: u8) -> u64 {
        self.spoil();
        self.note(tape::Call::Clock);
        self.footprint.global = true;
        let client = &mut self.clients[usize::from(c)];
        client.seen.fold(self.clock);
        self.clock
    }

    /// Records that client `c` found that its time was over. Its next attempt may find a different result even if
    /// nothing else changes.
    pub(crate) fn note_late(&mut self, c: u8) {
        self.note(tape::Call::Late);
        self.clients[usize::from(c)].asked += 1;
    }

    /// Lets time pass at the request of client `c`.
    pub(crate) fn pass_time(&mut self, c: u8, nanos: u64) {
        self.spoil();
        self.note_sections();
        self.note(tape::Call::PassTime(nanos));
        self.act(c, nanos ^ 0xC);
        self.footprint.global = true;
        self.clock += nanos;
    }

    /// Returns the results of the calls of `Env::elapsed` in the last step.
    pub(crate) fn asked(&self) -> Answers {
        self.asked
    }
}

impl Machine {
    pub(crate) fn chain(&self, c: u8, i: u16) -> &Chain {
        &self.clients[usize::from(c)].chains[usize::from(i)]
    }

    /// Returns the clients, as bits, that run on the compute node of client `c`.
    pub(crate) fn neighbours(&self, c: u8) -> u64 {
        let node = self.clients[usize::from(c)].node;
        let clients = self.clients.iter().enumerate();
        let clients = clients.filter(|(_, client)| client.node == node);
        clients.fold(0, |all, (d, _)| all | 1 << d)
    }

    /// Returns whether client `c` will use the results of its READs.
    pub(crate) fn is_present(&self, c: u8) -> bool {
        self.polled_clients >> c & 1 == 1
    }

    /// Returns the buffer of a READ of chain `i` of client `c`.
    pub(crate) fn buffer(&self, c: u8, i: u16, request: usize) -> Option<&Lease> {
        self.buffers.get(c, i, request)
    }

    pub(crate) fn unit_bytes(&self) -> u32 {
        self.unit
    }
}
