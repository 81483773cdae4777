//! The engine: events in virtual time, and the state that they act on.
//!
//! ```text
//!  ring ── CPU · doorbell · requester · link out ──▶ ARRIVE ── link in · responder · bucket · PCIe · link out ─┐
//!                                                      │  └─▶ EXECUTE, if it must wait · the second part       │
//!                                                      ▼                                                       │
//!  task polled ◀── DONE ◀── completion · link in       memory                                                  │
//!                                  ▲───────────────────────────────────────────────────────────────────────────┘
//! ```
//! Memory changes only at ARRIVE and EXECUTE, in the real order of arrival, and never when a request is
//! posted. The delays inside the memory node are added to the response. A transfer of several lines has two
//! parts, which happen at different times. Most READs are nevertheless copied once, on arrival; see `windows`.

mod arrive;
mod complete;
mod execute;
mod fault;
mod issue;
mod lone;
mod pair;
mod slots;
mod what;
mod windows;

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use dm_verbs::{AtomicVsWrite, Caps, Space, VerbError};

use crate::chain::{Chain, NOBODY};
use crate::control::ControlPlane;
use crate::memory::Memory;
use crate::model::Ticks;
use crate::nic::Nic;
use crate::prefetch;
use crate::queue::{Event, Queue, QueueKind};
use crate::rng::Dice;
use lone::Lone;
use pair::{ClientState, Odd, QueuePair};
pub(crate) use what::What;
use what::{ARRIVE, ARRIVE_READ, DONE, KIND};
use windows::Window;

/// The next action of the executor. The enum fits into a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Poll this task.
    Poll(u32),
    /// Call the foreign waker in [`Engine::woken`].
    Wake,
    /// The executor need not act: no event up to the limit is left, or (inside the engine) the event that was handled
    /// concerns no task.
    Idle,
}

/// One memory node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) memory: Memory,
    windows: Vec<Window>,
    pub(crate) nic: u16,
    pub(crate) caps: Caps,
    /// For each atomic bucket of host memory, and below of on-chip memory, the time until which it is occupied.
    /// Requests enter the pipeline's queue when they arrive, so this time may be later than `now`.
    host_buckets: Box<[u64]>,
    chip_buckets: Box<[u64]>,
    /// For each space and bucket, the time at which the bucket's last atomic writes back. Empty if atomics take a
    /// single step.
    write_backs: [Box<[u64]>; 2],
    pub(crate) down: bool,
    /// The number of times that the node was cut off (modulo 256), and the time of the last one.
    cuts: u8,
    cut_at: u64,
}

/// The task that the executor polls, and the address of the waker that the executor passes to it. No other waker has
/// this address while this one exists, so the address identifies the task's own waker. The default means that no task
/// is polled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Current {
    pub(crate) task: u32,
    pub(crate) waker: usize,
}

/// The parameters of a new engine.
pub(crate) struct Setup {
    pub(crate) ticks: Ticks,
    pub(crate) caps: Caps,
    pub(crate) nics: usize,
    pub(crate) nodes: Vec<Node>,
    pub(crate) seed: u64,
    pub(crate) queue: QueueKind,
}

/// The engine of the simulation; see the documentation of this module.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) now: u64,
    pub(crate) t: Ticks,
    pub(crate) caps: Caps,
    /// Whether requests act on memory when they arrive.
    on_arrival: bool,
    /// A READ in two parts is copied as a whole on arrival if less than this time passes between the parts.
    copies_within: u64,
    lone: Lone,
    /// Whether a memory node was ever cut off.
    any_cut: bool,
    pub(crate) queue: Queue,
    pub(crate) nics: Vec<Nic>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<ClientState>,
    /// The first unreported error of each client.
    deferred: Vec<(u16, VerbError)>,
    pub(crate) control: ControlPlane,
    /// The waker of a chain or timer that is due.
    pub(crate) woken: Option<Waker>,
    pub(crate) digest: u64,
    pub(crate) verbs_done: u64,
    threads: BTreeMap<(u16, u16), u16>,
    pairs: Vec<QueuePair>,
    chains: Vec<Chain>,
    /// The first free chain. Each free chain stores the number of the next one.
    free_chains: u32,
    rng: Dice,
    /// Errors that no poll has returned yet, each with its chain.
    errors: Vec<(u32, VerbError)>,
    foreign: BTreeMap<u32, Waker>,
    timers: Vec<Option<Waker>>,
    free_timers: Vec<u32>,
    parked: BTreeMap<u32, VecDeque<(u32, u16)>>,
}

impl Node {
    pub(crate) fn new(memory: Memory, nic: usize, caps: Caps, buckets: usize) -> Self {
        let racy = caps.atomic_vs_write == AtomicVsWrite::Racy;
        let write_backs = || vec![0; if racy { buckets } else { 0 }].into_boxed_slice();
        Self {
            memory,
            windows: Vec::new(),
            nic: nic as u16,
            caps,
            host_buckets: vec![0; buckets].into_boxed_slice(),
            chip_buckets: vec![0; buckets].into_boxed_slice(),
            write_backs: [write_backs(), write_backs()],
            down: false,
            cuts: 0,
            cut_at: 0,
        }
    }

    /// Returns the time at which the last atomic of this bucket writes back. Returns `None` if atomics take a single
    /// step.
    #[inline]
    fn write_back(&mut self, space: Space, bucket: usize) -> Option<&mut u64> {
        self.write_backs[space as usize].get_mut(bucket)
    }
}

impl Engine {
    pub(crate) fn new(setup: Setup) -> Self {
        let control = ControlPlane::new(setup.nodes.iter().map(|n| n.caps.host_bytes));
        Self {
            now: 0,
            on_arrival: arrive::acts_on_arrival(&setup.ticks, &setup.caps),
            copies_within: windows::copies_within(&setup.ticks, &setup.caps),
            lone: Lone::new(&setup.ticks, &setup.caps),
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

    /// Adds a client on `thread` of compute node `cn`, whose card is `nic`.
    pub(crate) fn add_client(&mut self, cn: u16, thread: u16, nic: usize) -> u16 {
        let client = u16::try_from(self.clients.len()).expect("at most 65535 clients");
        // Client ids start at 1.
        assert!(client < u16::MAX, "at most 65535 clients");
        let thread = *self.threads.entry((cn, thread)).or_insert(client);
        self.clients.push(ClientState {
            slice_end: 0,
            thread,
            thread_free: 0,
            thread_busy: 0,
            nic: nic as u16,
            fenced: false,
            group: None,
            crashed: false,
            home: self.chains.len() as u32,
        });
        self.chains.push(Chain::home(client, nic as u16));
        self.pairs
            .resize(self.pairs.len() + self.nodes.len(), QueuePair::default());
        client
    }

    #[inline]
    pub(crate) fn schedule(&mut self, at: u64, what: What) {
        self.queue.push(at, what.pack());
    }

    /// Returns the time of a new task's first poll. It is a random time within the next microsecond, so that tasks do
    /// not run in lockstep.
    pub(crate) fn start_time(&mut self) -> u64 {
        self.now + self.rng.below(1_000_000)
    }

    /// Runs events up to the time `limit`, or until the executor must act.
    // Inlined into its only caller, the executor's loop, which calls this once for every poll.
    #[inline(always)]
    pub(crate) fn advance(&mut self, limit: u64) -> Turn {
        while let Some(event) = self.next(limit) {
            debug_assert!(event.at >= self.now, "time never goes back");
            self.now = event.at;
            // The most frequent kinds are compared one by one, because this is faster than a jump that the CPU
            // predicts badly.
            let (kind, chain) = (event.what >> KIND, event.what as u32);
            let turn = if kind == ARRIVE_READ {
                self.arrive_lone_read(chain);
                continue;
            } else if kind == DONE {
                if let Some(task) = self.lands(chain) {
                    return Turn::Poll(task);
                }
                self.done(chain)
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

    /// Returns the next event, and prefetches the chain of the event after it.
    #[inline(always)]
    fn next(&mut self, limit: u64) -> Option<Event> {
        let chains = &self.chains;
        self.queue.pop(limit, |what| {
            // If the event has no chain, this prefetches unrelated memory, which does no harm.
            if let Some(c) = chains.get(what as u32 as usize) {
                prefetch::line(&c.first.buffer);
            }
        })
    }

    #[inline(never)]
    fn other(&mut self, what: u64) -> Turn {
        match What::unpack(what) {
            What::Arrive { chain, request } => self.arrive(chain, request),
            What::ArriveRead { chain } => self.arrive_lone_read(chain),
            What::ArriveLong { chain } => self.arrive_long_read(chain),
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

    // ---- time, for the endpoint -----------------------------------------------------------------------------

    /// Schedules a poll at time `at`: of `task` if it is given, otherwise by calling `waker`.
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

    /// Reserves `work` on the client's hardware thread, after the work that other clients have reserved
    /// there. Returns the time at which the work is done.
    #[inline]
    pub(crate) fn reserve_cpu(&mut self, client: u16, work: u64) -> u64 {
        let thread = self.clients[usize::from(client)].thread;
        let free = &mut self.clients[usize::from(thread)].thread_free;
        *free = (*free).max(self.now) + work;
        let free = *free;
        self.clients[usize::from(thread)].thread_busy += work;
        self.clients[usize::from(client)].slice_end = free;
        free
    }

    /// Returns each hardware thread that has clients, by compute node and number, and the nanoseconds for which it
    /// worked.
    pub(crate) fn busy_threads(&self) -> Vec<((u16, u16), u64)> {
        let busy = |client: u16| self.clients[usize::from(client)].thread_busy / 1000;
        self.threads
            .iter()
            .map(|(thread, client)| (*thread, busy(*client)))
            .collect()
    }
}

impl Current {
    /// Returns this task, if `waker` is its own waker.
    #[inline(always)]
    pub(crate) fn asking(self, waker: &Waker) -> Option<u32> {
        (core::ptr::from_ref(waker) as usize == self.waker).then_some(self.task)
    }
}
