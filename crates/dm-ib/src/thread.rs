//! One thread's connections: a queue pair and a control stream per memory node, and one completion queue.

use core::cell::RefCell;
use core::fmt;
use core::future::Future;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use dm_control::{Answer, Client, ClientError, Entrance, Identity, Request, Token};
use dm_sync::Arc;
use dm_verbs::{Caps, ClientId, NodeId, Space, VerbErrorKind};

use crate::chains::{Chain, Phase};
use crate::endpoint::Endpoint;
use crate::error::IbError;
use crate::executor;
use crate::ffi::{CHAIN_MAX, Cq, Fault, Pool, Port, Qp, QueueOptions};
use crate::wire::{NodePort, Window, client_port};
use crate::world::World;

/// Time limit for a memory node to answer a control request.
const CALL_TIMEOUT: Duration = dm_control::DEFAULT_PATIENCE;
/// Time limit for a queue pair that was shut to complete all posted requests with an error.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The connections of one thread, which the clients of the thread share. It is not `Send`; its clones share the
/// connections.
///
/// The coroutines of the clients run under [`Thread::run`], which polls the completion queue between them.
#[derive(Clone)]
pub struct Thread {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) world: Arc<World>,
    pub(crate) pool: Pool,
    pub(crate) state: RefCell<State>,
    /// The connected clients by id. A thread that reconnects attaches them again.
    pub(crate) clients: RefCell<BTreeMap<u16, (Identity, Token)>>,
    /// Wakers to call after the borrow of the state has ended.
    due: RefCell<Vec<Waker>>,
}

pub(crate) struct State {
    pub(crate) port: Port,
    pub(crate) chains: Vec<Chain>,
    pub(crate) links: Vec<Link>,
    /// Chains whose last completion has arrived, but which were not handled yet.
    landed: Vec<u32>,
    /// The reason why the completion queue cannot be polled any more. Nothing is in flight then.
    failed: Option<io::Error>,
}

/// The connection to one memory node.
pub(crate) struct Link {
    control: Client,
    /// The boot number: a random number that the node draws at each start.
    pub(crate) boot: u64,
    pub(crate) caps: Caps,
    host: Window,
    chip: Window,
    /// Maximum number of work requests in the queue pair: its size, or its share of the completion queue if that is
    /// smaller.
    depth: u32,
    /// Number of work requests in the queue pair.
    used: u32,
    /// Chains whose doorbell was rung and that wait for room, in order.
    waiting: VecDeque<u32>,
    /// Whether the queue pair has failed, so that no request can be sent.
    broken: bool,
}

impl Thread {
    pub(crate) fn new(world: &Arc<World>) -> Result<Self, IbError> {
        let depth = world.queue_depth;
        let limits = world.device.limits;
        let completions = depth.saturating_mul(world.nodes.len() as u32);
        let completions = completions.clamp(1, limits.completions_max.max(1));
        let memory = |reason| IbError::Memory { bytes: 0, reason };
        let cq = Arc::new(Cq::new(&world.device, completions).map_err(memory)?);
        let mut qps = Vec::new();
        let mut links: Vec<Link> = Vec::new();
        for &address in &world.nodes {
            let share = completions / world.nodes.len() as u32;
            let (qp, link) = Link::connect(world, &cq, address, share)?;
            // Two different addresses may belong to one node, which would then hold two parts of the pool.
            if let Some(same) = links.iter().position(|other| other.boot == link.boot) {
                return Err(IbError::SameNode {
                    addresses: [world.nodes[same], address],
                });
            }
            qps.push(qp);
            links.push(link);
        }
        Ok(Self {
            inner: Rc::new(Inner {
                world: Arc::clone(world),
                pool: Pool::new(&world.device),
                state: RefCell::new(State {
                    port: Port::new(cq, qps),
                    chains: Vec::new(),
                    links,
                    landed: Vec::new(),
                    failed: None,
                }),
                clients: RefCell::default(),
                due: RefCell::default(),
            }),
        })
    }

    /// Connects a new client of compute node `compute_node`. Its id belongs to no other connected client of the memory
    /// nodes.
    ///
    /// # Errors
    /// Returns [`IbError`] if no id is left, if a memory node does not answer or does not accept the client, if a
    /// client of this thread was fenced, or if the completion queue has failed.
    pub fn connect(&self, compute_node: u16) -> Result<Endpoint, IbError> {
        self.inner.state.borrow().check_queue()?;
        Endpoint::new(&self.inner, compute_node)
    }

    /// Returns whether memory node `node` cannot be reached before the next [`Thread::reconnect`]. Returns `false` if
    /// there is no such node.
    pub fn is_cut_off(&self, node: NodeId) -> bool {
        let state = self.inner.state.borrow();
        let link = state.links.get(usize::from(node.0));
        link.is_some_and(|link| link.broken)
    }

    /// Connects to `node` again after its connection was lost, with a new queue pair and the same clients. Do not call
    /// this within [`Thread::run`].
    ///
    /// # Errors
    /// Returns [`IbError::Node`] or [`IbError::QueuePair`] while the node cannot be reached, and
    /// [`IbError::NoSuchNode`] if no memory node has this number. Returns [`IbError::Restarted`] if the node's memory
    /// is lost. Returns [`IbError::Fenced`] if a client of this thread was fenced meanwhile, and [`IbError::IdTaken`]
    /// or [`IbError::NoSuchClient`] if the node does not know the client as the holder of its id; the thread cannot
    /// reconnect as long as it has this client. Returns [`IbError::TooManyClients`] or [`IbError::NodeFailed`] if the
    /// node cannot accept a client at present. Returns [`IbError::CompletionQueue`] if the completion queue has failed;
    /// this thread can never reconnect then. After an error the node stays cut off.
    pub fn reconnect(&self, node: NodeId) -> Result<(), IbError> {
        self.inner.reconnect(node)
    }

    /// Runs all `futures` to their ends as coroutines of this thread, and returns their outputs in order. When it
    /// returns, requests that were posted but not awaited have completed too.
    ///
    /// To run futures of several types, pass them as `Pin<Box<dyn Future<Output = T> + '_>>`.
    pub fn run<F: Future>(&self, futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
        let outputs = executor::run_all(futures, || self.inner.advance());
        while self.inner.busy() {
            if !self.inner.advance() {
                dm_sync::thread::yield_now();
            }
        }
        outputs
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("nodes", &self.inner.world.nodes)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Takes completions. If there are any, posts chains that waited for room, wakes waiting tasks, and returns `true`.
    pub(crate) fn advance(&self) -> bool {
        self.with(State::advance)
    }

    /// Runs `section` on the state, and then wakes the tasks that `section` has selected. The borrow of the state ends
    /// before the tasks are woken.
    pub(crate) fn with<R>(&self, section: impl FnOnce(&mut State, &mut Vec<Waker>) -> R) -> R {
        let mut due = self.due.take();
        let result = section(&mut self.state.borrow_mut(), &mut due);
        for waker in due.drain(..) {
            waker.wake();
        }
        self.due.replace(due);
        result
    }

    /// Returns whether any request is in flight or waits for room.
    fn busy(&self) -> bool {
        let state = self.state.borrow();
        state
            .links
            .iter()
            .any(|link| link.used > 0 || !link.waiting.is_empty())
    }

    /// Sends a request to memory node `node`, and waits for the answer.
    pub(crate) fn call(&self, node: usize, caller: u16, request: Request) -> Result<Answer, ClientError> {
        let mut state = self.state.borrow_mut();
        match state.links.get_mut(node) {
            Some(link) => link.control.call(caller, request),
            None => Err(ClientError::Broken),
        }
    }

    /// Claims an id on memory node `node` or attaches a client there, and waits for the answer.
    pub(crate) fn enter(&self, node: usize, entry: Entrance) -> Result<Answer, ClientError> {
        let mut state = self.state.borrow_mut();
        match state.links.get_mut(node) {
            Some(link) => link.control.enter(entry),
            None => Err(ClientError::Broken),
        }
    }

    /// Returns the boot number of memory node 0, which gives the client ids.
    pub(crate) fn giver(&self) -> u64 {
        self.state.borrow().links.first().map_or(0, |link| link.boot)
    }

    /// Waits at `place` on memory node 0 until `of` threads have arrived, but no longer than `most`. Returns whether
    /// all have arrived.
    pub(crate) fn meet(&self, caller: u16, place: u64, of: u16, most: Duration) -> Result<bool, ClientError> {
        let mut state = self.state.borrow_mut();
        match state.links.first_mut() {
            Some(link) => link.control.meet(caller, place, of, most),
            None => Err(ClientError::Broken),
        }
    }

    fn reconnect(&self, node: NodeId) -> Result<(), IbError> {
        let at = usize::from(node.0);
        let address = self.world.nodes.get(at).ok_or(IbError::NoSuchNode { node })?;
        self.flush(at);
        let (cq, share, boot) = {
            let state = self.state.borrow();
            state.check_queue()?;
            let link = state.links.get(at).ok_or(IbError::NoSuchNode { node })?;
            (Arc::clone(state.port.cq()), link.depth, link.boot)
        };
        let (qp, mut link) = Link::connect(&self.world, &cq, *address, share)?;
        if link.boot != boot {
            return Err(IbError::Restarted { node });
        }
        for (&client, &(identity, token)) in self.clients.borrow().iter() {
            let attach = Entrance::Attach { identity, token };
            let answer = link.control.enter(attach).map_err(|reason| IbError::Node {
                address: *address,
                reason,
            })?;
            if answer != Answer::Done {
                return Err(IbError::not_attached(answer, *address, ClientId(client)));
            }
        }
        {
            let state = &mut *self.state.borrow_mut();
            if let Some(old) = state.links.get_mut(at) {
                *old = link;
            }
            // This destroys the old queue pair, so no more completions of it arrive.
            state.port.replace(at, qp);
        }
        // Completions that the flush did not wait for may still be in the completion queue. They must leave it, because
        // the requests of the new queue pair need their places: a completion for which there is no place is lost.
        while self.advance() {}
        // The completion queue may have failed meanwhile. Then all links are broken, the new one too.
        self.state.borrow().check_queue()
    }

    /// Shuts the queue pair to a node, and waits until all requests posted to it have ended, for at most
    /// [`FLUSH_TIMEOUT`]. Then fails the requests that have not ended, because nobody would wait for their completions.
    fn flush(&self, at: usize) {
        self.with(|state, due| {
            if let Some(link) = state.links.get_mut(at) {
                link.broken = true;
            }
            let _ = state.port.qp(at).map(Qp::shut);
            state.post_waiting(at, due);
        });
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        let in_flight = || {
            self.state
                .borrow()
                .links
                .get(at)
                .is_some_and(|link| link.used > 0)
        };
        while in_flight() && Instant::now() < deadline {
            if !self.advance() {
                dm_sync::thread::yield_now();
            }
        }
        self.with(|state, due| state.abandon(at, due));
    }
}

impl State {
    fn advance(&mut self, due: &mut Vec<Waker>) -> bool {
        let Self {
            port,
            chains,
            links,
            landed,
            failed,
        } = self;
        if failed.is_some() {
            return false;
        }
        let found = port.poll(|news| {
            let Some(chain) = chains.get_mut(news.index as usize) else {
                return;
            };
            let link = &mut links[chain.node];
            if let Some((number, fault)) = news.fault {
                chain.fail(number, fault);
                link.broken = true;
            }
            if news.over {
                link.used -= chain.pushed.len() as u32;
                landed.push(news.index);
            }
        });
        match found {
            Ok(0) => return false,
            Ok(_) => {}
            Err(reason) => {
                *failed = Some(reason);
                self.fail_all(due);
                return true;
            }
        }
        let mut landed = core::mem::take(&mut self.landed);
        for index in landed.drain(..) {
            self.complete(index, due);
        }
        self.landed = landed;
        for node in 0..self.links.len() {
            self.post_waiting(node, due);
        }
        true
    }

    /// Returns an error if the completion queue has failed, so that no request can be answered any more.
    fn check_queue(&self) -> Result<(), IbError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(IbError::CompletionQueue {
                reason: io::Error::new(reason.kind(), reason.to_string()),
            }),
        }
    }

    /// Fails all chains that were rung, and refuses all later ones. No completion can be taken any more, so the queue
    /// pairs are shut: otherwise the requests in flight could still take effect at any time.
    fn fail_all(&mut self, due: &mut Vec<Waker>) {
        for node in 0..self.links.len() {
            self.links[node].broken = true;
            // If the device refuses, the effect of the requests is unknown, as it is otherwise.
            let _ = self.port.qp(node).map(Qp::shut);
            self.abandon(node, due);
            self.post_waiting(node, due);
        }
    }

    /// Fails all chains in flight to `node`, because their completions will not be taken.
    fn abandon(&mut self, node: usize, due: &mut Vec<Waker>) {
        for index in 0..self.chains.len() {
            let chain = &mut self.chains[index];
            if chain.phase == Phase::Flying && chain.node == node {
                chain.fail(0, Fault::Unknown);
                let index = index as u32; // fewer than 2^24
                self.port.abandon(index);
                self.complete(index, due);
            }
        }
        if let Some(link) = self.links.get_mut(node) {
            link.used = 0;
        }
    }

    /// Sends a chain when its queue pair has room. Ends the chain at once if it has an error already, has no requests,
    /// or has more requests than [`CHAIN_MAX`] or than the queue pair may hold.
    pub(crate) fn ring(&mut self, index: u32, due: &mut Vec<Waker>) {
        let chain = &mut self.chains[index as usize];
        let (node, count) = (chain.node, chain.pushed.len());
        if let (Some(link), Some(first)) = (self.links.get(node), chain.pushed.first())
            && (count > link.depth as usize || count > CHAIN_MAX)
        {
            let at = first.at;
            chain.refuse(VerbErrorKind::QueueFull, at);
        }
        if chain.error.is_some() || count == 0 {
            return self.complete(index, due);
        }
        chain.phase = Phase::Queued;
        self.links[node].waiting.push_back(index);
        self.post_waiting(node, due);
    }

    /// Posts the chains that wait for room in the queue pair to `node`, in order, until one has no room. If the queue
    /// pair has failed, ends all of them with an error instead.
    fn post_waiting(&mut self, node: usize, due: &mut Vec<Waker>) {
        while let Some(&index) = self.links[node].waiting.front() {
            let link = &mut self.links[node];
            let chain = &mut self.chains[index as usize];
            let count = chain.pushed.len() as u32; // at most the depth
            if !link.broken && link.used + count > link.depth {
                return;
            }
            link.waiting.pop_front();
            if link.broken {
                chain.cut_off();
                self.complete(index, due);
            } else if self.port.post(index, node).is_ok() {
                link.used += count;
                chain.phase = Phase::Flying;
            } else {
                // Some requests of the chain may be in flight without the rest, so the queue pair cannot be used any
                // more.
                link.broken = true;
                chain.fail(0, Fault::Unknown);
                let shut = self.port.qp(node).map(Qp::shut);
                self.complete(index, due);
                if !matches!(shut, Some(Ok(()))) {
                    // The device does not answer, so the requests in flight may never complete.
                    self.abandon(node, due);
                }
            }
        }
    }

    fn complete(&mut self, index: u32, due: &mut Vec<Waker>) {
        let chain = &mut self.chains[index as usize];
        chain.phase = Phase::Completed;
        due.extend(chain.waker.take());
        if chain.orphan {
            self.release(index);
        }
    }

    /// Frees the number of a chain for another chain.
    pub(crate) fn release(&mut self, index: u32) {
        self.chains[index as usize].end();
        self.port.close(index);
    }
}

impl Link {
    /// Opens a control connection to the memory node at `address`, and connects a new queue pair to the node.
    fn connect(world: &World, cq: &Arc<Cq>, address: SocketAddr, depth: u32) -> Result<(Qp, Self), IbError> {
        let broken = |reason| IbError::QueuePair { address, reason };
        let options = QueueOptions {
            depth: world.queue_depth,
            inline: world.inline,
            serves: false,
        };
        let qp = Qp::new(cq, options).map_err(broken)?;
        let own = client_port(&qp.local(0));
        let met = Client::connect(address, world.secret.as_ref(), &own, CALL_TIMEOUT);
        let (control, welcomed) = met.map_err(|reason| IbError::Node { address, reason })?;
        let node = NodePort::read(&welcomed.port).ok_or(IbError::Node {
            address,
            reason: ClientError::OutOfTurn,
        })?;
        qp.connect(0, &node.peer, world.patience).map_err(broken)?;
        let caps = world.caps(node.host.bytes, node.chip.bytes, qp.inline_bytes());
        let link = Self {
            control,
            boot: welcomed.boot,
            caps,
            host: node.host,
            chip: node.chip,
            depth: world.queue_depth.min(depth),
            used: 0,
            waiting: VecDeque::new(),
            broken: false,
        };
        Ok((qp, link))
    }

    /// Returns the window for addresses in `space`.
    pub(crate) fn window(&self, space: Space) -> &Window {
        match space {
            Space::Host => &self.host,
            Space::Chip => &self.chip,
        }
    }
}

#[cfg(test)]
mod tests;
