//! The engine: events in virtual time, and the state that they act on.
//!
//! ```text
//!  ring ── CPU · doorbell · requester · link out ──▶ ARRIVE ── link in · responder · bucket · PCIe · link out ─┐
//!                                                      │  └─▶ EXECUTE, where it must wait · the second part    │
//!                                                      ▼                                                       │
//!  task polled ◀── DONE ◀── completion · link in       memory                                                  │
//!                                  ▲───────────────────────────────────────────────────────────────────────────┘
//! ```
//! Memory changes at ARRIVE and EXECUTE alone, in true arrival order; never at post. What the way through the memory
//! node costs, the answer pays. A transfer of several lines has two parts, some time apart.

mod arrive;
mod complete;
mod execute;
mod fault;
mod issue;
mod what;

use std::collections::{BTreeMap, VecDeque};
use std::task::{Poll, Waker};

use dm_verbs::{Caps, NodeId, RemotePtr, Space, VerbError, VerbErrorKind};

use crate::chain::{Chain, Entry, FOREIGN, Kind, NOBODY, State};
use crate::control::ControlPlane;
use crate::lease::LONGEST;
use crate::memory::Memory;
use crate::model::Ticks;
use crate::nic::Nic;
use crate::prefetch;
use crate::queue::{Event, Queue, QueueKind};
use crate::rng::Dice;
pub(crate) use what::What;
use what::{ARRIVE, ARRIVE_READ, DONE, KIND};

/// What the executor must do next. It fits a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Poll this task.
    Poll(u32),
    /// Wake the foreign waker in [`Engine::woken`].
    Wake,
    /// No event up to the limit is left.
    Idle,
}

/// One memory node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) memory: Memory,
    pub(crate) nic: u16,
    pub(crate) caps: Caps,
    /// Until when each atomic bucket is taken.
    host_buckets: Box<[u64]>,
    chip_buckets: Box<[u64]>,
    pub(crate) down: bool,
    /// How often it was cut off (by number modulo 256), and when last.
    cuts: u8,
    cut_at: u64,
}

/// One client, as the engine sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientState {
    /// When the CPU that it was last given ends: posting then goes on at once.
    slice_end: u64,
    thread: u32,
    nic: u16,
    pub(crate) fenced: bool,
    /// The clients that it is fenced with.
    pub(crate) group: Option<u16>,
    pub(crate) crashed: bool,
}

/// A reliable connection of one client to one memory node: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct QueuePair {
    /// When the requester had the last request.
    sent: u64,
    /// When the last request arrives.
    arrived: u64,
    /// From when on the next request may act on memory, by space of the requests so far: order within the pair.
    order: [u64; 2],
    /// When the last atomic acts, where a READ behind it need not wait; else 0.
    atomic_at: u64,
    /// The last completion.
    done: u64,
    /// READs and atomics whose answer is still to come, and when the last known one does.
    unanswered: u32,
    answered: u64,
    /// What is out of the ordinary about it: all of it is one look.
    odd: Odd,
}

/// What may be out of the ordinary about a queue pair: a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Odd(u8);

impl Odd {
    /// A request was lost, and its error has not been reported yet.
    const BROKEN: Odd = Odd(1);
    /// Its client is fenced.
    const FENCED: Odd = Odd(2);
    /// Chains wait behind a fenced request.
    const PARKED: Odd = Odd(4);
    /// Its client's processor is dead.
    const CRASHED: Odd = Odd(8);

    #[inline]
    const fn and(self, other: Odd) -> Odd {
        Odd(self.0 | other.0)
    }
    /// Whether any of `these` holds.
    #[inline]
    const fn any(self, these: Odd) -> bool {
        self.0 & these.0 != 0
    }
    #[inline]
    fn set(&mut self, these: Odd, to: bool) {
        if to {
            self.0 |= these.0;
        } else {
            self.0 &= !these.0;
        }
    }
}

const _: () = assert!(size_of::<QueuePair>() == 64);

/// The task that the executor is polling, and where the waker lies that it hands to it: while it is there, no other
/// waker can be, so a task's own is recognised without a look at it. By default, nobody's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Current {
    pub(crate) task: u32,
    pub(crate) waker: usize,
}

/// What goes into a new engine.
pub(crate) struct Setup {
    pub(crate) ticks: Ticks,
    pub(crate) caps: Caps,
    pub(crate) nics: usize,
    pub(crate) nodes: Vec<Node>,
    pub(crate) seed: u64,
    pub(crate) queue: QueueKind,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) now: u64,
    pub(crate) t: Ticks,
    pub(crate) caps: Caps,
    /// Requests act on memory when they arrive.
    on_arrival: bool,
    /// What lies in one line moves at one instant, when it arrives, and in order of arrival.
    line_on_arrival: bool,
    /// A memory node was cut off at some time.
    any_cut: bool,
    pub(crate) queue: Queue,
    pub(crate) nics: Vec<Nic>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<ClientState>,
    /// The first error of each client that nobody polled for.
    deferred: Vec<(u16, VerbError)>,
    pub(crate) control: ControlPlane,
    /// Of a chain or a timer whose time has come.
    pub(crate) woken: Option<Waker>,
    pub(crate) digest: u64,
    pub(crate) verbs_done: u64,
    threads: BTreeMap<(u16, u16), usize>,
    thread_free: Vec<u64>,
    pairs: Vec<QueuePair>,
    chains: Vec<Chain>,
    /// The first free chain: each names the next.
    free_chains: u32,
    rng: Dice,
    /// Errors of chains that nobody has polled yet.
    errors: Vec<(u32, VerbError)>,
    foreign: BTreeMap<u32, Waker>,
    timers: Vec<Option<Waker>>,
    free_timers: Vec<u32>,
    parked: BTreeMap<u32, VecDeque<(u32, u16)>>,
}

impl Node {
    pub(crate) fn new(memory: Memory, nic: usize, caps: Caps, buckets: usize) -> Self {
        Self {
            memory,
            nic: nic as u16,
            caps,
            host_buckets: vec![0; buckets].into_boxed_slice(),
            chip_buckets: vec![0; buckets].into_boxed_slice(),
            down: false,
            cuts: 0,
            cut_at: 0,
        }
    }
}

impl Engine {
    pub(crate) fn new(setup: Setup) -> Self {
        let control = ControlPlane::new(setup.nodes.iter().map(|n| n.caps.host_bytes));
        Self {
            now: 0,
            on_arrival: arrive::acts_on_arrival(&setup.ticks, &setup.caps),
            line_on_arrival: arrive::lines_act_on_arrival(&setup.ticks, &setup.caps),
            any_cut: false,
            t: setup.ticks,
            caps: setup.caps,
            queue: Queue::new(setup.queue),
            nics: (0..setup.nics).map(|_| Nic::default()).collect(),
            nodes: setup.nodes,
            clients: Vec::new(),
            deferred: Vec::new(),
            control,
            woken: None,
            digest: 0x9E37_79B9_7F4A_7C15,
            verbs_done: 0,
            threads: BTreeMap::new(),
            thread_free: Vec::new(),
            pairs: Vec::new(),
            chains: Vec::new(),
            free_chains: NOBODY,
            rng: Dice::new(setup.seed),
            errors: Vec::new(),
            foreign: BTreeMap::new(),
            timers: Vec::new(),
            free_timers: Vec::new(),
            parked: BTreeMap::new(),
        }
    }

    /// A new client on `thread` of compute node `cn`, whose card is `nic`.
    pub(crate) fn add_client(&mut self, cn: u16, thread: u16, nic: usize) -> u16 {
        let client = u16::try_from(self.clients.len()).expect("at most 65535 clients");
        let fresh = self.thread_free.len();
        let thread = *self.threads.entry((cn, thread)).or_insert(fresh);
        if thread == fresh {
            self.thread_free.push(0);
        }
        self.clients.push(ClientState {
            slice_end: 0,
            thread: thread as u32,
            nic: nic as u16,
            fenced: false,
            group: None,
            crashed: false,
        });
        self.pairs
            .resize(self.pairs.len() + self.nodes.len(), QueuePair::default());
        client
    }

    #[inline]
    pub(crate) fn schedule(&mut self, at: u64, what: What) {
        self.queue.push(at, what.pack());
    }

    /// When a new task is polled first: within the next microsecond, so that tasks do not run in lockstep.
    pub(crate) fn start_time(&mut self) -> u64 {
        self.now + self.rng.below(1_000_000)
    }

    /// Runs events up to `limit` until something outside the engine is to be done.
    // Always: the executor's loop is its one caller, and comes here for every poll.
    #[inline(always)]
    pub(crate) fn advance(&mut self, limit: u64) -> Turn {
        while let Some(event) = self.next(limit) {
            debug_assert!(event.at >= self.now, "time never goes back");
            self.now = event.at;
            // Compares for the most frequent, rather than a jump that is hard to foresee.
            let (kind, chain) = (event.what >> KIND, event.what as u32);
            let turn = if kind == DONE {
                self.done(chain)
            } else if kind == ARRIVE_READ {
                self.arrive_lone_read(chain);
                continue;
            } else if kind == ARRIVE {
                self.arrive(chain, (event.what >> 32) as u16);
                continue;
            } else {
                self.other(event.what)
            };
            if turn != Turn::Idle {
                return turn;
            }
        }
        Turn::Idle
    }

    /// The next event. What the following ones are about is called for beforehand: the chains of a while, the queue
    /// pair of the very next.
    #[inline(always)]
    fn next(&mut self, limit: u64) -> Option<Event> {
        let chains = &self.chains;
        // Of other kinds of events it is a hint at something else, and does no harm.
        let chain = |what: u64| chains.get(what as u32 as usize);
        let event = self.queue.pop(limit, |what| {
            if let Some(c) = chain(what) {
                prefetch::line(&c.first.buffer);
            }
        })?;
        if let Some(c) = self.queue.peek().and_then(chain)
            && let Some(pair) = self.pairs.get(c.qp as usize)
        {
            prefetch::line(pair);
        }
        Some(event)
    }

    #[inline(never)]
    fn other(&mut self, what: u64) -> Turn {
        match What::unpack(what) {
            What::Arrive { chain, request } => self.arrive(chain, request),
            What::ArriveRead { chain } => self.arrive_lone_read(chain),
            What::Done { chain } => return self.done(chain),
            What::Execute { chain, request } => self.execute(chain, request),
            What::ExecuteRest { chain, request } => self.execute_rest(chain, request),
            What::Wake { task } => return Turn::Poll(task),
            What::Timer { timer } => {
                self.woken = self.timers.get_mut(timer as usize).and_then(Option::take);
                self.free_timers.push(timer);
                return Turn::Wake;
            }
            What::Cut { node } => self.set_down(node, true),
            What::Restore { node } => self.set_down(node, false),
        }
        Turn::Idle
    }

    fn set_down(&mut self, node: u32, down: bool) {
        if let Some(n) = self.nodes.get_mut(node as usize) {
            n.down = down;
            if down {
                self.any_cut = true;
                n.cuts = n.cuts.wrapping_add(1);
                n.cut_at = self.now;
            }
        }
    }

    // ---- chains, for the endpoint ---------------------------------------------------------------------------

    /// A chain from `client` to `node`; it fails with `NoSuchNode` where there is none.
    #[inline]
    pub(crate) fn open(&mut self, client: u16, node: NodeId) -> (u32, u32) {
        let index = self.free_chains;
        let index = match self.chains.get_mut(index as usize) {
            Some(c) => {
                self.free_chains = c.leave_free();
                index
            }
            None => {
                self.chains.push(Chain::new());
                (self.chains.len() - 1) as u32
            }
        };
        let known = usize::from(node.0) < self.nodes.len();
        let node_known = if known { node } else { NodeId(0) };
        let qp = self.pair(client, node_known);
        let chain = &mut self.chains[index as usize];
        debug_assert!(chain.state == State::Free && chain.count == 0);
        chain.state = State::Building;
        chain.qp = qp as u32;
        chain.client = client;
        chain.client_nic = self.clients[usize::from(client)].nic;
        chain.node = node_known.0;
        chain.node_nic = self.nodes[usize::from(node_known.0)].nic;
        let generation = chain.generation;
        if !known {
            let place = RemotePtr::new(node, 0).unwrap_or_default().into();
            self.fail(index, VerbError::refused(VerbErrorKind::NoSuchNode, place));
        }
        (index, generation)
    }

    /// The queue pair of `client` to `node`, which exists.
    #[inline]
    fn pair(&self, client: u16, node: NodeId) -> usize {
        usize::from(client) * self.nodes.len() + usize::from(node.0)
    }

    /// Appends a request, or fails the chain when it is not allowed.
    #[inline]
    pub(crate) fn push(&mut self, chain: u32, entry: &Entry<'_>) {
        let c = &mut self.chains[chain as usize];
        if c.failed {
            return;
        }
        match check(&self.nodes[usize::from(c.node)].caps, entry) {
            None => c.push(entry),
            Some(kind) => self.fail(chain, VerbError::refused(kind, entry.at)),
        }
    }

    /// Whether `chain` has completed without error; if it is still in flight, `owner` is polled when it has. `None`
    /// where there is more to it.
    #[inline(always)]
    pub(crate) fn poll_chain(&mut self, chain: u32, generation: u32, owner: Option<u32>) -> Option<bool> {
        let c = &mut self.chains[chain as usize];
        assert_eq!(c.generation, generation, "a closed chain is not polled");
        match (c.state, owner) {
            (State::Done, _) if !c.failed => Some(true),
            (State::Flying | State::Building, Some(task)) => {
                c.owner = task;
                Some(false)
            }
            _ => None,
        }
    }

    /// The error of `chain` if it has completed; if not, who asks is polled when it has.
    #[cold]
    pub(crate) fn poll_slowly(&mut self, chain: u32, waker: &Waker) -> Poll<Result<(), VerbError>> {
        let c = &mut self.chains[chain as usize];
        if c.state == State::Done {
            let failed = core::mem::take(&mut c.failed);
            return Poll::Ready(if failed {
                Err(self.take_error(chain))
            } else {
                Ok(())
            });
        }
        c.owner = FOREIGN;
        self.foreign.insert(chain, waker.clone());
        Poll::Pending
    }

    /// The first answer of a chain that completed without error, which is closed.
    #[inline(always)]
    pub(crate) fn take_last(&mut self, chain: u32, generation: u32) -> dm_verbs::Outcome<crate::Lease> {
        let c = &mut self.chains[chain as usize];
        assert_eq!(c.generation, generation, "a chain is closed once");
        if c.count != 1 || c.unexecuted != 0 {
            return self.take_and_close(chain, generation);
        }
        let outcome = c.first.outcome();
        c.free(core::mem::replace(&mut self.free_chains, chain));
        outcome
    }

    #[inline(never)]
    fn take_and_close(&mut self, chain: u32, generation: u32) -> dm_verbs::Outcome<crate::Lease> {
        let outcome = self.take(chain, 0);
        self.close(chain, generation);
        outcome
    }

    /// The `i`-th answer of a completed chain.
    #[inline]
    pub(crate) fn take(&mut self, chain: u32, i: u16) -> dm_verbs::Outcome<crate::Lease> {
        let c = &mut self.chains[chain as usize];
        let mut wanted = i;
        for n in 0..c.count {
            let r = c.request_mut(n);
            if !r.kind.answers() {
                continue;
            }
            if wanted == 0 {
                return r.outcome();
            }
            wanted -= 1;
        }
        dm_verbs::Outcome::None
    }

    /// The owner gives the chain back, in whatever state.
    #[inline]
    pub(crate) fn close(&mut self, chain: u32, generation: u32) {
        let c = &mut self.chains[chain as usize];
        assert_eq!(c.generation, generation, "a chain is closed once");
        c.closed = true;
        match c.state {
            State::Flying => c.owner = NOBODY,
            State::Done => self.defer_error(chain),
            // Never rung: whatever is wrong with it did not happen.
            State::Building | State::Free => {
                if core::mem::take(&mut c.failed) {
                    let _ = self.take_error(chain);
                }
                self.chains[chain as usize].state = State::Done;
            }
        }
        self.recycle(chain);
    }

    /// Frees a chain that is closed, completed, and has acted on memory.
    #[inline]
    fn recycle(&mut self, chain: u32) {
        let c = &mut self.chains[chain as usize];
        if c.closed && c.state == State::Done && c.unexecuted == 0 {
            c.clear();
            c.free(core::mem::replace(&mut self.free_chains, chain));
        }
    }

    // ---- time, for the endpoint -----------------------------------------------------------------------------

    /// Polls at `at` the task that is asking, or whoever owns its `waker`.
    #[inline]
    pub(crate) fn wake_at(&mut self, at: u64, task: Option<u32>, waker: &Waker) {
        match task {
            Some(task) => self.schedule(at, What::Wake { task }),
            None => {
                let timer = self.free_timers.pop().unwrap_or_else(|| {
                    self.timers.push(None);
                    (self.timers.len() - 1) as u32
                });
                self.timers[timer as usize] = Some(waker.clone());
                self.schedule(at, What::Timer { timer });
            }
        }
    }

    /// Takes `work` of the client's hardware thread, behind what its other clients have taken; answers when it is
    /// done.
    #[inline]
    pub(crate) fn reserve_cpu(&mut self, client: u16, work: u64) -> u64 {
        let client = &mut self.clients[usize::from(client)];
        let free = &mut self.thread_free[client.thread as usize];
        *free = (*free).max(self.now) + work;
        client.slice_end = *free;
        *free
    }
}

/// Why a request is not allowed, if it is not.
#[inline(always)]
fn check(caps: &Caps, entry: &Entry<'_>) -> Option<VerbErrorKind> {
    let size = match entry.at.space() {
        Space::Host => caps.host_bytes,
        Space::Chip => caps.chip_bytes,
    };
    let len = entry.len as u64;
    if len > LONGEST as u64 || (len == 0 && entry.kind.answers()) {
        Some(VerbErrorKind::BadLength { len })
    } else if entry.at.offset() + len > size {
        Some(VerbErrorKind::OutOfBounds { size })
    } else if !matches!(entry.kind, Kind::Read | Kind::Write) && !entry.at.offset().is_multiple_of(8) {
        Some(VerbErrorKind::Misaligned)
    } else if entry.kind == Kind::MaskedCas && !caps.masked_atomics {
        Some(VerbErrorKind::Unsupported(dm_verbs::Capability::MaskedAtomics))
    } else {
        None
    }
}

impl Current {
    /// The task, if `waker` is its own.
    #[inline(always)]
    pub(crate) fn asking(self, waker: &Waker) -> Option<u32> {
        (core::ptr::from_ref(waker) as usize == self.waker).then_some(self.task)
    }
}
