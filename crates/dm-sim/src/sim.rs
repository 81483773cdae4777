//! The simulation: its parts, its clients' tasks, and the loop that polls them.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use std::rc::Rc;
use std::sync::Arc as StdArc; // std's, whatever dm-sync's is: wakers are made of it
use std::task::{Context, Poll, Wake, Waker};

use dm_sync::atomic::{AtomicBool, Ordering};
use dm_sync::{Arc, Mutex};
use dm_verbs::{Caps, Counters, Meter, Nanos, NodeId, Space};

use crate::endpoint::{Endpoint, Shared};
use crate::engine::{Current, Engine, Node, Setup, Turn, What};
use crate::memory::Memory;
use crate::model::{CostModel, Ticks};
use crate::nic::NicCounters;
use crate::queue::QueueKind;

/// Host memory of a memory node, unless said otherwise: bytes.
pub const DEFAULT_MEMORY_BYTES: u64 = 64 << 20;

/// A simulation that could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// There must be at least one compute and one memory node.
    NoNodes,
    /// More cards than can be told apart (65535).
    TooManyNodes,
    /// Memory of this many bytes could not be mapped.
    Memory {
        /// How much.
        bytes: u64,
        /// The operating system's reason.
        reason: std::io::Error,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("a testbed needs a compute node and a memory node"),
            Self::TooManyNodes => f.write_str("a testbed has at most 65535 cards"),
            Self::Memory { bytes, reason } => {
                write!(f, "can't map {bytes} bytes for a memory node: {reason}")
            }
        }
    }
}

impl core::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::NoNodes | Self::TooManyNodes => None,
            Self::Memory { reason, .. } => Some(reason),
        }
    }
}

/// Describes a simulation. Defaults: one compute and one memory node on cards of their own, 64 MiB of host memory,
/// seed 0, small pages, the timing wheel.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct SimBuilder {
    model: CostModel,
    compute_nodes: u16,
    memory_nodes: u16,
    colocated: bool,
    seed: u64,
    memory_bytes: u64,
    huge_pages: bool,
    queue: QueueKind,
}

impl SimBuilder {
    /// Machines that run clients.
    pub fn compute_nodes(mut self, n: u16) -> Self {
        self.compute_nodes = n;
        self
    }
    /// Machines that lend memory.
    pub fn memory_nodes(mut self, n: u16) -> Self {
        self.memory_nodes = n;
        self
    }
    /// Whether compute node i and memory node i are one machine with one card.
    pub fn colocated(mut self, yes: bool) -> Self {
        self.colocated = yes;
        self
    }
    /// The seed: with the code and the model it decides everything.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
    /// Host memory per memory node. Pages come into being when first touched.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }
    /// Backs host memory with huge pages where the system has them: faster random access, slower first touch (touch it
    /// before timing).
    pub fn huge_pages(mut self, yes: bool) -> Self {
        self.huge_pages = yes;
        self
    }
    /// Which event queue to run on; results do not depend on it.
    pub fn queue(mut self, kind: QueueKind) -> Self {
        self.queue = kind;
        self
    }

    /// Builds it.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(self) -> Result<Sim, BuildError> {
        if self.compute_nodes == 0 || self.memory_nodes == 0 {
            return Err(BuildError::NoNodes);
        }
        if !self.colocated && self.compute_nodes.checked_add(self.memory_nodes).is_none() {
            return Err(BuildError::TooManyNodes);
        }
        let ticks = Ticks::new(&self.model);
        let caps = Caps {
            host_bytes: self.memory_bytes,
            inline_bytes: ticks.inline,
            ..self.model.caps
        };
        let first = if self.colocated {
            0
        } else {
            usize::from(self.compute_nodes)
        };
        let nodes = (0..usize::from(self.memory_nodes))
            .map(|i| {
                Memory::new(
                    self.memory_bytes as usize,
                    caps.chip_bytes as usize,
                    self.huge_pages,
                )
                .map(|memory| Node::new(memory, first + i, caps, ticks.bucket_mask as usize + 1))
                .map_err(|reason| BuildError::Memory {
                    bytes: self.memory_bytes,
                    reason,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let nics = usize::from(self.compute_nodes).max(first + nodes.len());
        let engine = Engine::new(Setup {
            ticks,
            caps,
            nics,
            nodes,
            seed: self.seed,
            queue: self.queue,
        });
        Ok(Sim {
            tasks: RefCell::default(),
            inbox: Arc::new(Inbox {
                full: AtomicBool::new(false),
                tasks: Mutex::new(Vec::new()),
            }),
            meters: RefCell::default(),
            compute_nodes: self.compute_nodes,
            first_memory_nic: first,
            shared: Rc::new(Shared {
                engine: RefCell::new(engine),
                current: Cell::default(),
                seed: self.seed,
            }),
            model: self.model,
        })
    }
}

/// Tasks that were woken from outside of the engine: by other tasks, or by anyone who holds their waker.
#[derive(Debug)]
struct Inbox {
    full: AtomicBool,
    tasks: Mutex<Vec<u32>>,
}

/// A task's own waker, made once per task. `Wake` demands std's `Arc` for it.
struct TaskWaker {
    task: u32,
    inbox: Arc<Inbox>,
}

impl Wake for TaskWaker {
    fn wake(self: StdArc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &StdArc<Self>) {
        self.inbox.tasks.with(|tasks| tasks.push(self.task));
        // Release: pairs with Acquire in `Sim::collect`, which then finds the push in the list.
        self.inbox.full.store(true, Ordering::Release);
    }
}

/// A task. It leaves its slot while it runs. By value: one line less to wait for at every poll than if it were boxed.
struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
}

#[derive(Default)]
struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
    live: usize,
}

#[derive(Default)]
struct Slot {
    task: Option<Task>,
    generation: u32,
}

/// A spawned task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskId {
    index: u32,
    generation: u32,
    client: Option<u16>,
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// Every task has ended and nothing is in flight.
    Finished,
    /// Nothing is left to happen, but this many tasks still wait: for each other, or for something outside.
    Stuck {
        /// How many.
        tasks: usize,
    },
    /// The time given is over; there is more to come.
    TimeUp,
}

/// A simulated testbed. One thread, virtual time, one seed = one run.
///
/// It is not `Send`: run sweeps as one simulation per thread.
/// ```compile_fail
/// fn send<T: Send>() {}
/// send::<dm_sim::Sim>();
/// ```
pub struct Sim {
    tasks: RefCell<Tasks>,
    inbox: Arc<Inbox>,
    meters: RefCell<Vec<Rc<Meter>>>,
    compute_nodes: u16,
    first_memory_nic: usize,
    model: CostModel,
    shared: Rc<Shared>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("model", &self.model.name)
            .field("now", &self.now())
            .field("live_tasks", &self.live_tasks())
            .finish_non_exhaustive()
    }
}

impl Sim {
    /// Starts describing a simulation on `model`.
    pub fn builder(model: CostModel) -> SimBuilder {
        SimBuilder {
            model,
            compute_nodes: 1,
            memory_nodes: 1,
            colocated: false,
            seed: 0,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            huge_pages: false,
            queue: QueueKind::Wheel,
        }
    }

    // ---- clients --------------------------------------------------------------------------------------------

    /// A new client on hardware thread `thread` of compute node `compute_node`. Clients of one thread share its CPU.
    ///
    /// # Panics
    /// When there is no such compute node, or from 65535 clients on.
    pub fn endpoint(&self, compute_node: u16, thread: u16) -> Endpoint {
        assert!(
            compute_node < self.compute_nodes,
            "compute nodes are numbered below {}",
            self.compute_nodes
        );
        let client =
            self.shared
                .engine
                .borrow_mut()
                .add_client(compute_node, thread, usize::from(compute_node));
        let meter = Rc::new(Meter::default());
        self.meters.borrow_mut().push(Rc::clone(&meter));
        Endpoint::new(Rc::clone(&self.shared), client, compute_node, thread, meter)
    }

    /// Makes a client and starts `client` on it. Its first poll comes within the next virtual microsecond.
    ///
    /// # Panics
    /// As [`Sim::endpoint`].
    pub fn spawn<F, Fut>(&self, compute_node: u16, thread: u16, client: F) -> TaskId
    where
        F: FnOnce(Endpoint) -> Fut,
        Fut: Future<Output = ()> + 'static,
    {
        let endpoint = self.endpoint(compute_node, thread);
        let id = dm_verbs::Env::client(&endpoint).0 - 1;
        self.start(Box::pin(client(endpoint)), Some(id))
    }

    /// Starts a task that brings its own endpoints, made by [`Sim::endpoint`].
    pub fn spawn_task(&self, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.start(Box::pin(future), None)
    }

    fn start(&self, future: Pin<Box<dyn Future<Output = ()>>>, client: Option<u16>) -> TaskId {
        let mut tasks = self.tasks.borrow_mut();
        let index = tasks.free.pop().unwrap_or_else(|| {
            tasks.slots.push(Slot::default());
            (tasks.slots.len() - 1) as u32
        });
        let waker = Waker::from(StdArc::new(TaskWaker {
            task: index,
            inbox: Arc::clone(&self.inbox),
        }));
        tasks.live += 1;
        let slot = &mut tasks.slots[index as usize];
        slot.task = Some(Task { future, waker });
        let generation = slot.generation;
        let mut engine = self.shared.engine.borrow_mut();
        let at = engine.start_time();
        engine.schedule(at, What::Wake { task: index });
        TaskId {
            index,
            generation,
            client,
        }
    }

    /// Drops a task wherever it waits; its guards run their `Drop`, and what it has rung runs on. False when it had
    /// ended already.
    pub fn cancel(&self, id: TaskId) -> bool {
        let task = {
            let mut tasks = self.tasks.borrow_mut();
            match tasks.slots.get_mut(id.index as usize) {
                Some(slot) if slot.generation == id.generation => slot.task.take(),
                _ => None,
            }
        };
        let found = task.is_some();
        if let Some(task) = task {
            self.end(id.index, task);
        }
        self.collect();
        found
    }

    /// Kills a spawned task's client: from now on it rings nothing (so no guard undoes anything), while what it has
    /// rung runs on. False when it had ended already, or brought its own endpoints.
    pub fn crash(&self, id: TaskId) -> bool {
        let Some(client) = id.client else { return false };
        self.shared.engine.borrow_mut().crash(client);
        self.cancel(id)
    }

    fn end(&self, index: u32, task: Task) {
        drop(task);
        let mut tasks = self.tasks.borrow_mut();
        tasks.live -= 1;
        tasks.free.push(index);
        let slot = &mut tasks.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
    }

    /// Tasks that have not ended.
    pub fn live_tasks(&self) -> usize {
        self.tasks.borrow().live
    }

    // ---- running --------------------------------------------------------------------------------------------

    /// Runs until nothing is left to happen. Clients that poll or spin for ever need a deadline of their own.
    pub fn run(&self) -> RunEnd {
        self.run_events(u64::MAX)
    }

    /// Runs up to and including virtual time `t`.
    pub fn run_until(&self, t: Nanos) -> RunEnd {
        let limit = t.0.saturating_mul(1000);
        let end = self.run_events(limit);
        let mut engine = self.shared.engine.borrow_mut();
        engine.now = engine.now.max(limit);
        end
    }

    /// Runs for `time` from now on.
    pub fn run_for(&self, time: Nanos) -> RunEnd {
        self.run_until(self.now() + time)
    }

    fn run_events(&self, limit: u64) -> RunEnd {
        self.collect();
        loop {
            let turn = self.shared.engine.borrow_mut().advance(limit);
            match turn {
                Turn::Poll(task) => self.poll(task),
                Turn::Wake => self.wake_foreign(),
                Turn::Idle => break,
            }
            self.collect();
        }
        // While it runs, a task that is polled last says so; behind it, or within a run inside a task, nobody does: who
        // asks then gives a waker that is kept.
        self.shared.current.set(Current::default());
        let tasks = self.live_tasks();
        if !self.shared.engine.borrow().queue.is_empty() {
            RunEnd::TimeUp
        } else if tasks > 0 {
            RunEnd::Stuck { tasks }
        } else {
            RunEnd::Finished
        }
    }

    #[cold]
    fn wake_foreign(&self) {
        let woken = self.shared.engine.borrow_mut().woken.take();
        if let Some(waker) = woken {
            waker.wake();
        }
    }

    #[inline]
    fn poll(&self, index: u32) {
        // The task is out of its slot while it runs, so that it can't be polled within itself.
        let Some(mut task) = self.tasks.borrow_mut().slots[index as usize].task.take() else {
            return;
        };
        let Task { future, waker } = &mut task;
        self.shared.current.set(Current {
            task: index,
            waker: core::ptr::from_ref(&*waker) as usize,
        });
        match future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Pending => {
                let place = &mut self.tasks.borrow_mut().slots[index as usize].task;
                // Forgotten, not dropped: it was taken out above, and nobody else puts one in.
                core::mem::forget(place.replace(task));
            }
            Poll::Ready(()) => self.end(index, task),
        }
    }

    /// Turns wakes from outside of the engine into events of this instant.
    #[inline]
    fn collect(&self) {
        // Acquire: pairs with Release in `wake_by_ref`. A wake of another thread that is missed now is found after
        // the next event.
        if self.inbox.full.load(Ordering::Acquire) {
            self.empty_inbox();
        }
    }

    #[inline(never)]
    fn empty_inbox(&self) {
        self.inbox.full.store(false, Ordering::Relaxed); // Relaxed: the list's own mutex orders what follows.
        let mut engine = self.shared.engine.borrow_mut();
        let now = engine.now;
        self.inbox.tasks.with(|tasks| {
            for task in tasks.drain(..) {
                engine.schedule(now, What::Wake { task });
            }
        });
    }

    // ---- faults ---------------------------------------------------------------------------------------------

    /// Cuts `node` off the network at virtual time `at` (now, if that is past).
    ///
    /// Requests that arrive later are lost, and so are the answers of those that act later; clients get
    /// `Unreachable` after [`CostModel::timeout_ns`].
    pub fn cut_off(&self, node: NodeId, at: Nanos) {
        self.fault(
            at,
            What::Cut {
                node: u32::from(node.0),
            },
        );
    }

    /// Connects `node` again at virtual time `at`. Connections are set up anew when their error has been reported.
    pub fn restore(&self, node: NodeId, at: Nanos) {
        self.fault(
            at,
            What::Restore {
                node: u32::from(node.0),
            },
        );
    }

    fn fault(&self, at: Nanos, what: What) {
        let mut engine = self.shared.engine.borrow_mut();
        let at = engine.now.max(at.0.saturating_mul(1000));
        engine.schedule(at, what);
    }

    // ---- looking --------------------------------------------------------------------------------------------

    /// The virtual time.
    pub fn now(&self) -> Nanos {
        Nanos(self.shared.engine.borrow().now / 1000)
    }

    /// The model that it runs on.
    pub fn model(&self) -> &CostModel {
        &self.model
    }

    /// A hash of every (completion time, address) so far, in order: equal for equal code, model and seed.
    pub fn digest(&self) -> u64 {
        self.shared.engine.borrow().digest
    }

    /// Verbs completed.
    pub fn verbs(&self) -> u64 {
        self.shared.engine.borrow().verbs_done
    }

    /// Events of the engine so far.
    pub fn events(&self) -> u64 {
        self.shared.engine.borrow().queue.pushed()
    }

    /// What all clients' meters counted together.
    pub fn meter(&self) -> Counters {
        self.meters
            .borrow()
            .iter()
            .fold(Counters::default(), |sum, m| sum + m.counters())
    }

    /// The counters of compute node `n`'s card.
    ///
    /// # Panics
    /// When there is no such compute node.
    pub fn compute_nic(&self, n: u16) -> NicCounters {
        assert!(
            n < self.compute_nodes,
            "compute nodes are numbered below {}",
            self.compute_nodes
        );
        let engine = self.shared.engine.borrow();
        engine.nics[usize::from(n)].counters(&engine.t)
    }

    /// The counters of `node`'s card (the same card as compute node's where they are colocated).
    ///
    /// # Panics
    /// When there is no such memory node.
    pub fn memory_nic(&self, node: NodeId) -> NicCounters {
        let engine = self.shared.engine.borrow();
        engine.nics[self.first_memory_nic + usize::from(node.0)].counters(&engine.t)
    }

    /// Hands out a memory node's memory, to be looked at or written directly, outside of the cost model. `None`
    /// when there is no such node.
    pub fn with_memory<R>(&self, node: NodeId, space: Space, f: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let mut engine = self.shared.engine.borrow_mut();
        engine
            .nodes
            .get_mut(usize::from(node.0))
            .map(|n| f(n.memory.bytes_mut(space)))
    }
}
