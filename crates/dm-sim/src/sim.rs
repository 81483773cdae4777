//! The simulation: its parts, its clients' tasks, and the loop that polls them.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll};

use dm_verbs::{Counters, Meter, Nanos, NodeId, Space};

use crate::builder::SimBuilder;
use crate::endpoint::{Endpoint, Shared};
use crate::engine::{Current, Engine, Turn, What};
use crate::model::CostModel;
use crate::nic::NicCounters;
use crate::stalls::{Stalls, Verdict};
use crate::tasks::{Job, Tasks};

/// The id of a spawned task.
///
/// ```
/// use dm_sim::{CostModel, Sim, TaskId};
/// use dm_verbs::{Env, Nanos};
///
/// let sim = Sim::builder(CostModel::cx5_ib()).build()?;
/// let endless: TaskId = sim.spawn(0, 0, |v| async move {
///     loop {
///         v.charge(Nanos::from_micros(1)).await;
///     }
/// });
/// sim.run_for(Nanos::from_micros(10));
/// assert!(sim.crash(endless), "the task had not ended");
/// assert!(!sim.cancel(endless));
/// assert_eq!(sim.live_tasks(), 0);
/// # Ok::<(), dm_sim::BuildError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskId {
    index: u32,
    generation: u32,
    client: Option<u16>,
}

/// The reason why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// Every task has ended and nothing is in flight.
    Finished,
    /// There are no more events, but tasks still wait for each other, or for a waker outside the simulation.
    Stuck {
        /// The number of waiting tasks.
        tasks: usize,
    },
    /// The given time is over, and there are more events.
    TimeUp,
}

/// A simulated testbed. It runs on one thread in virtual time, and its seed determines the whole run.
///
/// It is not `Send`. To run several simulations in parallel, use one per thread.
/// ```compile_fail
/// fn send<T: Send>() {}
/// send::<dm_sim::Sim>();
/// ```
pub struct Sim {
    tasks: Tasks,
    /// The suspended tasks, if the simulation suspends clients.
    stalls: Option<RefCell<Stalls>>,
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
    /// Returns a builder of a simulation with the cost model `model`.
    pub fn builder(model: CostModel) -> SimBuilder {
        SimBuilder::new(model)
    }

    pub(crate) fn new(
        model: CostModel,
        compute_nodes: u16,
        first_memory_nic: usize,
        engine: Engine,
        seed: u64,
        stalls: Option<Stalls>,
    ) -> Self {
        Self {
            tasks: Tasks::new(),
            stalls: stalls.map(RefCell::new),
            meters: RefCell::default(),
            compute_nodes,
            first_memory_nic,
            model,
            shared: Rc::new(Shared {
                engine: RefCell::new(engine),
                current: Cell::default(),
                seed,
            }),
        }
    }

    // ---- clients --------------------------------------------------------------------------------------------

    /// Makes a new client on hardware thread `thread` of compute node `compute_node`. Clients of one thread
    /// share its CPU.
    ///
    /// # Panics
    /// Panics if there is no such compute node, or if there are already 65535 clients.
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

    /// Makes a client and starts the task `client` on it. The first poll happens within the next virtual microsecond.
    ///
    /// # Panics
    /// Panics under the same conditions as [`Sim::endpoint`] and [`Sim::spawn_task`].
    pub fn spawn<F, Fut>(&self, compute_node: u16, thread: u16, client: F) -> TaskId
    where
        F: FnOnce(Endpoint) -> Fut,
        Fut: Future<Output = ()> + 'static,
    {
        let endpoint = self.endpoint(compute_node, thread);
        let id = dm_verbs::Env::client(&endpoint).0 - 1;
        self.start(Box::pin(client(endpoint)), Some(id))
    }

    /// Starts a task that uses endpoints of [`Sim::endpoint`].
    ///
    /// # Panics
    /// Panics if there are already 2^18 tasks that have not ended.
    pub fn spawn_task(&self, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.start(Box::pin(future), None)
    }

    fn start(&self, future: Job, client: Option<u16>) -> TaskId {
        let (index, generation) = self.tasks.start(future);
        if let Some(stalls) = &self.stalls {
            stalls.borrow_mut().forget(index);
        }
        let mut engine = self.shared.engine.borrow_mut();
        let at = engine.start_time();
        engine.schedule(at, What::Wake { task: index });
        TaskId {
            index,
            generation,
            client,
        }
    }

    /// Drops a task at the await where it waits. Its destructors run, and the requests that it has posted proceed.
    /// Returns false if the task had already ended, or if it is being polled: a task cannot cancel itself.
    pub fn cancel(&self, id: TaskId) -> bool {
        let job = self.tasks.take(id.index, id.generation);
        let found = job.is_some();
        if let Some(job) = job {
            self.tasks.end(id.index, job);
        }
        self.collect();
        found
    }

    /// Crashes the client of a task that [`Sim::spawn`] has started, and drops the task. From now on the client posts
    /// nothing, so no guard can undo its requests. Requests that it has already posted proceed. If the task had already
    /// ended or is being polled, the client crashes too, but this returns false. If [`Sim::spawn_task`] has started the
    /// task, this does nothing and returns false.
    pub fn crash(&self, id: TaskId) -> bool {
        let Some(client) = id.client else { return false };
        self.shared.engine.borrow_mut().crash(client);
        self.cancel(id)
    }

    /// Returns the number of tasks that have not ended.
    pub fn live_tasks(&self) -> usize {
        self.tasks.live()
    }

    // ---- running --------------------------------------------------------------------------------------------

    /// Runs until there are no more events. Clients that poll or spin for ever need a deadline of their own.
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
        // No task of this run is being polled any more. A future that is polled outside a run then finds no current
        // task, and the engine stores its waker.
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
        if self.stalls.is_some() && self.is_put_aside(index) {
            return;
        }
        // The task is removed from its slot while it runs, so that it cannot be polled recursively.
        let Some(slot) = self.tasks.slot(index) else {
            return;
        };
        let Some(mut job) = slot.take() else { return };
        self.shared.current.set(Current {
            task: index,
            waker: core::ptr::from_ref(&slot.waker) as usize,
        });
        match job.as_mut().poll(&mut Context::from_waker(&slot.waker)) {
            Poll::Pending => slot.put(job),
            Poll::Ready(()) => self.tasks.end(index, job),
        }
    }

    /// Decides whether the task is suspended, perhaps from now on. It is then polled when the suspension ends.
    #[cold]
    fn is_put_aside(&self, index: u32) -> bool {
        let Some(stalls) = &self.stalls else { return false };
        let mut engine = self.shared.engine.borrow_mut();
        match stalls.borrow_mut().judge(index, engine.now) {
            Verdict::Runs => false,
            Verdict::Waits => true,
            Verdict::Until(at) => {
                engine.schedule(at, What::Wake { task: index });
                true
            }
        }
    }

    /// Converts wakes from outside the engine into events at the current time.
    #[inline]
    fn collect(&self) {
        if self.tasks.inbox.is_full() {
            self.empty_inbox();
        }
    }

    #[inline(never)]
    fn empty_inbox(&self) {
        let mut engine = self.shared.engine.borrow_mut();
        let now = engine.now;
        self.tasks
            .inbox
            .drain(|task| engine.schedule(now, What::Wake { task }));
    }

    // ---- faults ---------------------------------------------------------------------------------------------

    /// Cuts `node` off the network at virtual time `at`, or now if `at` is in the past.
    ///
    /// Requests that arrive later are lost, and so are responses that have not left the node yet. Their clients get the
    /// error `Unreachable` after [`CostModel::timeout_ns`].
    pub fn cut_off(&self, node: NodeId, at: Nanos) {
        self.fault(
            at,
            What::Cut {
                node: u32::from(node.0),
            },
        );
    }

    /// Connects `node` again at virtual time `at`. A broken connection is established again after its error has been
    /// reported.
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

    // ---- observing ------------------------------------------------------------------------------------------

    /// Returns the virtual time.
    pub fn now(&self) -> Nanos {
        Nanos(self.shared.engine.borrow().now / 1000)
    }

    /// Returns the cost model of the simulation.
    pub fn model(&self) -> &CostModel {
        &self.model
    }

    /// Returns a hash of all completions so far, each with its time and address, in order. It depends only on the
    /// code, the model and the seed.
    pub fn digest(&self) -> u64 {
        self.shared.engine.borrow().digest
    }

    /// Returns the number of completed verbs.
    pub fn verbs(&self) -> u64 {
        self.shared.engine.borrow().verbs_done
    }

    /// Returns the number of events that were scheduled so far, including those that are still pending.
    pub fn events(&self) -> u64 {
        self.shared.engine.borrow().queue.pushed()
    }

    /// Returns the sum of all clients' meters.
    pub fn meter(&self) -> Counters {
        self.meters
            .borrow()
            .iter()
            .fold(Counters::default(), |sum, m| sum + m.counters())
    }

    /// Returns the counters of compute node `n`'s card.
    ///
    /// # Panics
    /// Panics if there is no such compute node.
    pub fn compute_nic(&self, n: u16) -> NicCounters {
        assert!(
            n < self.compute_nodes,
            "compute nodes are numbered below {}",
            self.compute_nodes
        );
        let engine = self.shared.engine.borrow();
        engine.nics[usize::from(n)].counters(&engine.t)
    }

    /// Returns the counters of the card of memory node `node`. A colocated compute node shares this card.
    ///
    /// # Panics
    /// Panics if there is no such memory node.
    pub fn memory_nic(&self, node: NodeId) -> NicCounters {
        let engine = self.shared.engine.borrow();
        // The list of cards does not show this: a colocated compute node without a memory node has a card too.
        assert!(
            usize::from(node.0) < engine.nodes.len(),
            "memory nodes are numbered below {}",
            engine.nodes.len()
        );
        engine.nics[self.first_memory_nic + usize::from(node.0)].counters(&engine.t)
    }

    /// Returns the state that the endpoints share, and the number of the first card of a memory node.
    pub(crate) fn parts(&self) -> (&Rc<Shared>, usize) {
        (&self.shared, self.first_memory_nic)
    }

    /// Gives access to a memory node's memory, to read or write it directly, outside the cost model. Returns
    /// `None` if there is no such node.
    pub fn with_memory<R>(&self, node: NodeId, space: Space, f: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let mut engine = self.shared.engine.borrow_mut();
        let n = engine.nodes.get_mut(usize::from(node.0))?;
        let result = f(n.memory.bytes_mut(space));
        engine.memory_changed(usize::from(node.0));
        Some(result)
    }

    /// Turns the fast path for lone READs off, so that all READs take the general path.
    #[cfg(test)]
    pub(crate) fn forget_lone_reads(&self) {
        self.shared.engine.borrow_mut().forget_lone_reads();
    }
}
