//! One thread's connections: a queue pair and a control stream per memory node, one completion queue.

use core::cell::RefCell;
use core::fmt;
use core::future::Future;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use dm_sync::Arc;
use dm_verbs::{Caps, Space, VerbErrorKind};

use crate::chains::{Chain, Phase};
use crate::endpoint::Endpoint;
use crate::error::IbError;
use crate::executor;
use crate::ffi::{CHAIN_MAX, Cq, Fault, Patience, Pool, Port, Qp, QueueOptions};
use crate::wire::{Answer, Message, Request, Window};
use crate::world::World;

/// How long a memory node may take to answer a control request.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// The connections of one thread, which its clients share. Not `Send`; clones are the same connections.
///
/// Coroutines that use them run under [`Thread::run`], which polls the completion queue between them.
#[derive(Clone)]
pub struct Thread {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) world: Arc<World>,
    pub(crate) pool: Pool,
    pub(crate) state: RefCell<State>,
    /// Woken after the state is released.
    due: RefCell<Vec<Waker>>,
}

pub(crate) struct State {
    pub(crate) port: Port,
    pub(crate) chains: Vec<Chain>,
    pub(crate) links: Vec<Link>,
    /// Chains whose last completion came, to be looked at.
    landed: Vec<u32>,
}

/// The connection to one memory node.
pub(crate) struct Link {
    stream: TcpStream,
    pub(crate) caps: Caps,
    host: Window,
    chip: Window,
    /// Work requests that the queue pair holds, and how many are in it.
    depth: u32,
    used: u32,
    /// Rung chains that wait for room, in order.
    waiting: VecDeque<u32>,
    /// The queue pair has failed: nothing goes through it any more.
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
        let mut links = Vec::new();
        for &address in &world.nodes {
            let options = QueueOptions {
                depth,
                inline: world.inline,
                serves: false,
            };
            let qp = Qp::new(&cq, options).map_err(memory)?;
            let link = Link::connect(world, &qp, address, completions / world.nodes.len() as u32)
                .map_err(|reason| IbError::Network { address, reason })?;
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
                }),
                due: RefCell::default(),
            }),
        })
    }

    /// A new client on compute node `compute_node`, with an id that no living client of the memory nodes has.
    ///
    /// # Errors
    /// [`IbError`]: no id left, a memory node that does not answer.
    pub fn connect(&self, compute_node: u16) -> Result<Endpoint, IbError> {
        Endpoint::new(&self.inner, compute_node)
    }

    /// Runs all `futures` to their ends as coroutines of this thread; gives their outputs in order. What they have
    /// posted and not awaited has landed too when it returns.
    ///
    /// Futures of several types go in as `Pin<Box<dyn Future<Output = T> + '_>>`.
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
    /// Takes completions, posts what waited for room, wakes who waited. Whether anything had happened.
    pub(crate) fn advance(&self) -> bool {
        self.with(State::advance)
    }

    /// Runs `section` on the state, and wakes those who are due when it is released.
    pub(crate) fn with<R>(&self, section: impl FnOnce(&mut State, &mut Vec<Waker>) -> R) -> R {
        let mut due = self.due.take();
        let result = section(&mut self.state.borrow_mut(), &mut due);
        for waker in due.drain(..) {
            waker.wake();
        }
        self.due.replace(due);
        result
    }

    /// Whether anything is in flight.
    fn busy(&self) -> bool {
        let state = self.state.borrow();
        state
            .links
            .iter()
            .any(|link| link.used > 0 || !link.waiting.is_empty())
    }

    /// Asks memory node `node`, and waits for the answer.
    pub(crate) fn call(&self, node: usize, caller: u16, request: Request) -> io::Result<Answer> {
        let mut state = self.state.borrow_mut();
        let link = state.links.get_mut(node).ok_or(io::ErrorKind::NotFound)?;
        link.call(caller, request)
    }
}

impl State {
    fn advance(&mut self, due: &mut Vec<Waker>) -> bool {
        let Self {
            port,
            chains,
            links,
            landed,
        } = self;
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
        let found = found.unwrap_or_else(|_| {
            // The queue itself is gone: nobody will hear of what is in flight, and nothing more goes out.
            links.iter_mut().for_each(|link| link.broken = true);
            0
        });
        if found == 0 {
            return false;
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

    /// Sends a chain that was built, or ends it with the error that it already has.
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

    /// Posts what waits for room in the queue pair to `node`, in order.
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
                // A beginning of it may be under way; the pair is of no use without the rest.
                link.broken = true;
                chain.fail(0, Fault::Unknown);
                let _ = self.port.qp(node).map(Qp::shut);
                self.complete(index, due);
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

    /// The number can be used again.
    pub(crate) fn release(&mut self, index: u32) {
        self.chains[index as usize].end();
        self.port.close(index);
    }
}

impl Link {
    /// Greets the memory node at `address`, and connects `qp` to its queue pair.
    fn connect(world: &World, qp: &Qp, address: SocketAddr, depth: u32) -> io::Result<Self> {
        let mut stream = TcpStream::connect_timeout(&address, CALL_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(CALL_TIMEOUT))?;
        stream.set_write_timeout(Some(CALL_TIMEOUT))?;
        Message::Hello(qp.local(0)).send(&mut stream)?;
        let Some(Message::Welcome { peer, host, chip }) = Message::receive(&mut stream)? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        qp.connect(0, &peer, Patience::default())?;
        Ok(Self {
            stream,
            caps: world.caps(host.bytes, chip.bytes, qp.inline_bytes()),
            host,
            chip,
            depth: world.queue_depth.min(depth),
            used: 0,
            waiting: VecDeque::new(),
            broken: false,
        })
    }

    fn call(&mut self, caller: u16, request: Request) -> io::Result<Answer> {
        Message::Call { caller, request }.send(&mut self.stream)?;
        match Message::receive(&mut self.stream)? {
            Some(Message::Answer(answer)) => Ok(answer),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The window for places in `space`.
    pub(crate) fn window(&self, space: Space) -> &Window {
        match space {
            Space::Host => &self.host,
            Space::Chip => &self.chip,
        }
    }
}
