//! Models: their clients, memory and properties, and how to run them.

use core::cell::RefCell;
use core::fmt;
use core::future::Future;
use core::hash::Hash;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::rc::Rc;

use dm_history::{History, Limits, Operation, Spec, Verdict as Explained};
use dm_verbs::Place;

use crate::client::{Client, Recorded};
use crate::endpoint::Endpoint;
use crate::knobs::Knobs;
use crate::machine::Machine;
use crate::machine::client::Status;
use crate::memory::Memory;
use crate::runner::{ClientFuture, Program, Source, Stop};
use crate::search::{self, BadReplay, Search};
use crate::spec::NoSpec;
use crate::trace::Trace;
use crate::verdict::{Counterexample, Failure, Verdict};

/// Default bytes of host memory per memory node.
pub const DEFAULT_HOST_BYTES: u64 = 16 << 10;
/// Default bytes of on-chip memory per memory node.
pub const DEFAULT_CHIP_BYTES: u64 = 256;
/// The maximum number of clients of a model.
pub const CLIENTS_MAX: usize = 32;

// These are `Send + Sync`, because each thread of a search makes its own futures and shared state from the
// same model.
type Setup = Box<dyn Fn(Endpoint) -> ClientFuture + Send + Sync>;
type Begin<S, P> = Box<dyn Fn(Client<S, P>) -> ClientFuture + Send + Sync>;
type Open<S> = Box<dyn Fn(Endpoint, u16) -> core::pin::Pin<Box<dyn Future<Output = S>>> + Send + Sync>;
type Hash64<S> = Box<dyn Fn(&S) -> u64 + Send + Sync>;
type Check = Box<dyn Fn(&End<'_>) -> Result<(), String> + Send + Sync>;

enum Shared<S> {
    Made(Box<dyn Fn(u16) -> S + Send + Sync>),
    Opened(Open<S>),
}

/// The properties of a model, and the names of its memory.
#[derive(Default)]
pub(crate) struct Rules {
    pub(crate) at_end: Vec<(&'static str, Check)>,
    pub(crate) always: Vec<(&'static str, Check)>,
    pub(crate) crash_may_block: bool,
    pub(crate) bypass: Vec<(&'static str, u32)>,
    pub(crate) lock_free: bool,
    pub(crate) names: Vec<(Place, u32, String)>,
    pub(crate) clients: Vec<String>,
    pub(crate) model: String,
    pub(crate) promises: Vec<String>,
}

impl Rules {
    pub(crate) fn broken(&self, checks: &[(&'static str, Check)], end: &End<'_>) -> Option<Failure> {
        checks
            .iter()
            .find_map(|&(name, ref check)| check(end).err().map(|why| Failure::Invariant { name, why }))
    }
}

/// A state, as it is passed to an invariant.
pub struct End<'a> {
    machine: &'a Machine,
}

impl fmt::Debug for End<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").finish_non_exhaustive()
    }
}

impl<'a> End<'a> {
    pub(crate) fn new(machine: &'a Machine) -> Self {
        Self { machine }
    }

    /// Returns the little-endian word at `at`.
    ///
    /// # Panics
    /// Panics if the model has no memory there.
    pub fn word(&self, at: impl Into<Place>) -> u64 {
        let at = at.into();
        let flat = self
            .machine
            .mem
            .flat(at, 8)
            .unwrap_or_else(|e| panic!("an invariant reads {at}: {e}"));
        self.machine.mem.word(flat)
    }

    /// Returns the `len` bytes at `at`.
    ///
    /// # Panics
    /// Panics if the model has no memory there.
    pub fn bytes(&self, at: impl Into<Place>, len: u32) -> &[u8] {
        let at = at.into();
        let flat = self.machine.mem.flat(at, len as usize);
        let flat = flat.unwrap_or_else(|e| panic!("an invariant reads {at}: {e}"));
        self.machine.mem.read(flat, flat + len)
    }

    /// Returns the values that client number `client` (from 0, in the order of addition) recorded with
    /// [`Client::output`].
    pub fn outputs(&self, client: usize) -> &[u64] {
        self.machine.clients.get(client).map_or(&[], |c| &c.outputs)
    }

    /// Returns the value that [`Client::ghost`] last gave to the ghost variable `name`, or 0 if no client has set it.
    /// For a section, this is the number of clients inside.
    pub fn ghost(&self, name: &str) -> u64 {
        self.machine.ghost(name)
    }

    /// Returns whether the client ran to its end.
    pub fn finished(&self, client: usize) -> bool {
        self.machine
            .clients
            .get(client)
            .is_some_and(|c| c.status == Status::Done)
    }

    /// Returns whether every client ran to its end: each has started, and none crashed or was cancelled.
    pub fn all_finished(&self) -> bool {
        // The last entry of `clients` is the client that runs the setup.
        let clients = usize::from(self.machine.setup_client());
        let mut clients = self.machine.clients.iter().take(clients);
        clients.all(|c| c.status == Status::Done)
    }

    /// Returns whether the client crashed.
    pub fn crashed(&self, client: usize) -> bool {
        self.machine
            .clients
            .get(client)
            .is_some_and(|c| c.status == Status::Crashed)
    }

    /// Returns whether the client was cancelled.
    pub fn cancelled(&self, client: usize) -> bool {
        self.machine
            .clients
            .get(client)
            .is_some_and(|c| c.status == Status::Cancelled)
    }
}

struct ClientSpec<S, P: Spec> {
    compute_node: u16,
    /// The number of crashes after which the client may start.
    survives: u8,
    /// Whether the client is exempt from faults.
    spared: bool,
    begin: Begin<S, P>,
}

/// A model: memory nodes, clients, shared state `S` for each compute node, and the specification `P` of the
/// operations.
///
/// Call [`Model::shared`] and [`Model::spec`] before you add clients, and `shared` before [`Model::fingerprint`].
pub struct Model<S = (), P: Spec = NoSpec> {
    memory_nodes: u16,
    host_bytes: u64,
    chip_bytes: u64,
    chunk_align: u64,
    setup: Option<Setup>,
    shared: Shared<S>,
    fingerprint: Option<Hash64<S>>,
    spec: P,
    clients: Vec<ClientSpec<S, P>>,
    rules: Rules,
    knobs: Knobs,
    blind: bool,
    /// The limits of each linearizability check.
    limits: Limits,
}

impl<S, P: Spec> fmt::Debug for Model<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.rules.model)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Creates a model with one memory node, no clients, and [`Knobs::weak`].
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            memory_nodes: 1,
            host_bytes: DEFAULT_HOST_BYTES,
            chip_bytes: DEFAULT_CHIP_BYTES,
            chunk_align: 4096,
            setup: None,
            shared: Shared::Made(Box::new(|_| ())),
            fingerprint: None,
            spec: NoSpec,
            clients: Vec::new(),
            rules: Rules {
                model: name.into(),
                ..Rules::default()
            },
            knobs: Knobs::weak(),
            blind: false,
            limits: Limits::default(),
        }
    }
}

impl<S, P> Model<S, P>
where
    S: 'static,
    P: Spec + Sync + 'static,
    P::Op: Clone + Hash,
    P::Ret: Clone + Hash,
{
    /// Sets the number of memory nodes. They are numbered from 0.
    ///
    /// # Panics
    /// Panics unless `n` is from 1 to 8.
    #[must_use]
    pub fn memory_nodes(mut self, n: u16) -> Self {
        assert!((1..=8).contains(&n), "a model has 1 to 8 memory nodes");
        self.memory_nodes = n;
        self
    }

    /// Sets the bytes of host and of on-chip memory per memory node. Memory that does not change does not slow the
    /// search.
    #[must_use]
    pub fn memory(mut self, host_bytes: u64, chip_bytes: u64) -> Self {
        (self.host_bytes, self.chip_bytes) = (host_bytes, chip_bytes);
        self
    }

    /// Sets the alignment of the control plane's chunks. The default is 4096 bytes, as `dm_verbs` promises. With a
    /// smaller alignment, a model needs less memory.
    #[must_use]
    pub fn chunk_align(mut self, bytes: u64) -> Self {
        self.chunk_align = bytes;
        self
    }

    /// Prepares memory. `f` runs once for a replay, and once in each thread of a search, alone and before everything
    /// else in this thread. Its verbs complete at once. Each execution begins with the memory that `f` leaves.
    #[must_use]
    pub fn setup<F: Future<Output = ()> + 'static>(
        mut self,
        f: impl Fn(Endpoint) -> F + Send + Sync + 'static,
    ) -> Self {
        self.setup = Some(Box::new(move |v| Box::pin(f(v))));
        self
    }

    /// Sets the state that the clients of a compute node share. `make` builds it for each execution in which clients of
    /// the node are polled, when the first of them starts.
    ///
    /// # Panics
    /// Panics if the model already has clients or a [`Model::fingerprint`].
    #[must_use]
    pub fn shared<T: 'static>(self, make: impl Fn(u16) -> T + Send + Sync + 'static) -> Model<T, P> {
        self.with_shared(Shared::Made(Box::new(make)))
    }

    /// Sets shared state that needs verbs to be opened. `open` runs once for each compute node that has clients, before
    /// any client starts, on the memory that [`Model::setup`] left. The verbs of `open` complete at once.
    ///
    /// # Panics
    /// Panics if the model already has clients or a [`Model::fingerprint`].
    #[must_use]
    pub fn shared_opened<T: 'static, F: Future<Output = T> + 'static>(
        self,
        open: impl Fn(Endpoint, u16) -> F + Send + Sync + 'static,
    ) -> Model<T, P> {
        self.with_shared(Shared::Opened(Box::new(move |v, node| Box::pin(open(v, node)))))
    }

    fn with_shared<T>(self, shared: Shared<T>) -> Model<T, P> {
        assert!(self.clients.is_empty(), "call `shared` before adding clients");
        // The hash takes the old type of shared state. A model that dropped it would still list the assumption that the
        // hash is complete, and its search would distinguish states that the hash is meant to merge.
        assert!(
            self.fingerprint.is_none(),
            "call `shared` before `fingerprint`, which hashes the shared state"
        );
        Model {
            memory_nodes: self.memory_nodes,
            host_bytes: self.host_bytes,
            chip_bytes: self.chip_bytes,
            chunk_align: self.chunk_align,
            setup: self.setup,
            shared,
            fingerprint: None,
            spec: self.spec,
            clients: Vec::new(),
            rules: self.rules,
            knobs: self.knobs,
            blind: self.blind,
            limits: self.limits,
        }
    }

    /// Sets a hash of the shared state of a compute node. The hash must be complete, as `dm_sync::Fingerprint`
    /// requires. Without a hash, the order of all sections is part of a state, which is always sound. With a hash,
    /// states with equal hashes are merged, and soundness depends on the hash.
    #[must_use]
    pub fn fingerprint(mut self, f: impl Fn(&S) -> u64 + Send + Sync + 'static) -> Self {
        self.rules
            .promises
            .push("the fingerprint of shared state leaves nothing out".to_owned());
        self.fingerprint = Some(Box::new(f));
        self
    }

    /// Sets the specification against which recorded operations ([`Client::op`]) must be linearizable.
    ///
    /// # Panics
    /// Panics if the model already has clients.
    #[must_use]
    pub fn spec<Q: Spec>(self, spec: Q) -> Model<S, Q> {
        assert!(
            self.clients.is_empty(),
            "call `spec` before adding clients to the model"
        );
        Model {
            memory_nodes: self.memory_nodes,
            host_bytes: self.host_bytes,
            chip_bytes: self.chip_bytes,
            chunk_align: self.chunk_align,
            setup: self.setup,
            shared: self.shared,
            fingerprint: self.fingerprint,
            spec,
            clients: Vec::new(),
            rules: self.rules,
            knobs: self.knobs,
            blind: self.blind,
            limits: self.limits,
        }
    }

    /// Adds a client on a compute node. The future that `begin` returns is the client's program. Ids are 1, 2, … in the
    /// order of addition. A counterexample shows the id behind the name, unless the name contains it.
    ///
    /// # Panics
    /// Panics if the model already has [`CLIENTS_MAX`] clients, or if `compute_node` is not below 64.
    #[must_use]
    pub fn client<F: Future<Output = ()> + 'static>(
        mut self,
        name: impl Into<String>,
        compute_node: u16,
        begin: impl Fn(Client<S, P>) -> F + Send + Sync + 'static,
    ) -> Self {
        assert!(
            self.clients.len() < CLIENTS_MAX,
            "a model has at most {CLIENTS_MAX} clients"
        );
        assert!(compute_node < 64, "compute nodes are numbered below 64");
        let id = self.clients.len() + 1;
        self.rules.clients.push(label(name.into(), id));
        self.clients.push(ClientSpec {
            compute_node,
            survives: 0,
            spared: false,
            begin: Box::new(move |c| Box::pin(begin(c))),
        });
        self
    }

    /// Adds a client that starts only after another client has crashed.
    ///
    /// # Panics
    /// Panics under the same conditions as [`Model::client`].
    #[must_use]
    pub fn survivor<F: Future<Output = ()> + 'static>(
        mut self,
        name: impl Into<String>,
        compute_node: u16,
        begin: impl Fn(Client<S, P>) -> F + Send + Sync + 'static,
    ) -> Self {
        self = self.client(name, compute_node, begin);
        if let Some(last) = self.clients.last_mut() {
            last.survives = 1;
        }
        self
    }

    /// Lets the client that was added last start only after this number of crashes ([`Knobs::crashes`]).
    #[must_use]
    pub fn after_deaths(mut self, deaths: u8) -> Self {
        if let Some(last) = self.clients.last_mut() {
            last.survives = deaths;
        }
        self
    }

    /// Exempts the client that was added last from all faults ([`Knobs::crashes`], [`Knobs::cancels`],
    /// [`Knobs::failures`]). The verdict lists this as an assumption.
    ///
    /// ```
    /// use dm_explore::{Client, Knobs, Model, NoSpec, Search};
    /// use dm_verbs::{NodeId, RemotePtr, Verbs};
    ///
    /// let word = RemotePtr::new(NodeId(0), 64).unwrap();
    /// let write = move |c: Client<(), NoSpec>| async move { c.verbs().write(word, &[1; 8]).await.unwrap() };
    /// let model = Model::new("nobody dies").client("A", 0, write);
    /// let dies = |model: &Model<(), NoSpec>| {
    ///     let verdict = model.run_with(&Knobs::weak().crashes(1), Search::exhaustive());
    ///     verdict.counterexample().is_some()
    /// };
    /// let written = move |end: &dm_explore::End<'_>| match end.word(word) {
    ///     0 => Err("nothing is written".to_owned()),
    ///     _ => Ok(()),
    /// };
    /// let model = model.invariant("written", written);
    /// assert!(dies(&model));
    /// assert!(!dies(&model.spared()));
    /// ```
    #[must_use]
    pub fn spared(mut self) -> Self {
        if let (Some(last), Some(name)) = (self.clients.last_mut(), self.rules.clients.last()) {
            last.spared = true;
            self.rules.promises.push(format!("{name} has no fault"));
        }
        self
    }

    /// Sets a name for `bytes` bytes at `at` in counterexamples.
    #[must_use]
    pub fn place(mut self, at: impl Into<Place>, bytes: u32, name: impl Into<String>) -> Self {
        self.rules.names.push((at.into(), bytes, name.into()));
        self
    }

    /// Adds a condition that must hold at the end of each run, when no step is possible any more except faults and late
    /// requests that may be lost.
    #[must_use]
    pub fn invariant(
        mut self,
        name: &'static str,
        f: impl Fn(&End<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.rules.at_end.push((name, Box::new(f)));
        self
    }

    /// Adds a condition that must hold after every step. It is not checked before the first step.
    #[must_use]
    pub fn always(
        mut self,
        name: &'static str,
        f: impl Fn(&End<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.rules.always.push((name, Box::new(f)));
        self
    }

    /// Allows clients to wait for ever after a client has crashed or a queue pair has failed. The search then reports
    /// neither [`Failure::Stuck`] nor [`Failure::Livelock`].
    #[must_use]
    pub fn crash_may_block(mut self) -> Self {
        self.rules.crash_may_block = true;
        self.rules.promises.push(
            "nothing is claimed of clients that wait for ever after a crash or a failed queue pair"
                .to_owned(),
        );
        self
    }

    /// Requires that other clients enter `section` ([`Client::enter`]) at most `k` times while a client waits for it
    /// ([`Client::waits`]). One more entry is [`Failure::Bypass`]. The other clients of the model must enter more than
    /// `k` times in all. Otherwise the model passes, whatever the lock does.
    ///
    /// ```
    /// use dm_explore::{Client, Failure, Model, NoSpec, Search};
    /// use dm_verbs::{NodeId, RemotePtr, Verbs, Why};
    ///
    /// let lock = RemotePtr::new(NodeId(0), 64).unwrap();
    /// // Clients that try a word until it is free have no order.
    /// let client = move |times: u32| move |c: Client<(), NoSpec>| async move {
    ///     for _ in 0..times {
    ///         c.waits("critical");
    ///         let mut retry = c.verbs().retry(1000);
    ///         while c.verbs().cas(lock, 0, 1).await.unwrap() != 0 {
    ///             retry.again(lock, Why::Raced).await.unwrap();
    ///         }
    ///         c.enter("critical");
    ///         c.leave("critical");
    ///         c.verbs().cas(lock, 1, 0).await.unwrap();
    ///     }
    /// };
    /// let model = |k| Model::new("tried").bypass("critical", k).client("A", 0, client(1)).client("B", 1, client(3));
    /// let found = model(2).run(Search::exhaustive()).expect_counterexample();
    /// assert!(matches!(found.failure, Failure::Bypass { client: 0, by: 1, .. }));
    /// // B enters only three times.
    /// assert!(model(3).run(Search::exhaustive()).is_pass());
    /// ```
    #[must_use]
    pub fn bypass(mut self, section: &'static str, k: u32) -> Self {
        self.rules.bypass.push((section, k));
        self
    }

    /// Requires lock freedom: in every endless run without further faults, operations complete again and again. So a
    /// client that stops at any step does not prevent the progress of the other clients.
    ///
    /// A model has finitely many operations, so none of its runs may be endless. Two kinds of runs are endless, and
    /// each of them is [`Failure::NotLockFree`]:
    /// * A cycle of steps (with its [`crate::Lasso`]). No operation completes in the cycle, because completed
    ///   operations are part of the state.
    /// * A client that waits. Either it pauses although nothing that its attempt read has changed, so that its next
    ///   attempt would be the same as the last one; or it waits for a waker of its compute node. Waiting for time to
    ///   pass counts as waiting.
    ///
    /// Use this with searches that have a cache.
    ///
    /// ```
    /// use dm_explore::{Client, Failure, Model, NoSpec, Search};
    /// use dm_verbs::{NodeId, RemotePtr, Verbs, Why};
    ///
    /// let count = RemotePtr::new(NodeId(0), 64).unwrap();
    /// let add = move |c: Client<(), NoSpec>| async move {
    ///     let mut retry = c.verbs().retry(1000);
    ///     loop {
    ///         let old = c.verbs().word(count).await.unwrap();
    ///         if c.verbs().cas(count, old, old + 1).await.unwrap() == old {
    ///             return;
    ///         }
    ///         retry.again(count, Why::Raced).await.unwrap();
    ///     }
    /// };
    /// let model = Model::new("a loop with CAS").client("A", 0, add).client("B", 1, add);
    /// assert!(model.lock_free().run(Search::exhaustive()).is_pass());
    ///
    /// let flag = RemotePtr::new(NodeId(0), 128).unwrap();
    /// let wait = move |c: Client<(), NoSpec>| async move {
    ///     let mut retry = c.verbs().retry(1000);
    ///     while c.verbs().word(flag).await.unwrap() == 0 {
    ///         retry.again(flag, Why::Raced).await.unwrap();
    ///     }
    /// };
    /// let set = move |c: Client<(), NoSpec>| async move { c.verbs().write(flag, &[1; 8]).await.unwrap() };
    /// let model = Model::new("waits").client("A", 0, wait).client("B", 1, set);
    /// let found = model.lock_free().run(Search::exhaustive()).expect_counterexample();
    /// assert_eq!(found.failure, Failure::NotLockFree { clients: vec![0] });
    /// ```
    #[must_use]
    pub fn lock_free(mut self) -> Self {
        self.rules.lock_free = true;
        self
    }

    /// Adds an assumption, which every report of the model lists.
    #[must_use]
    pub fn assuming(mut self, assumption: impl Into<String>) -> Self {
        self.rules.promises.push(assumption.into());
        self
    }

    /// Sets the freedoms of the RNIC and the faults to explore.
    #[must_use]
    pub fn knobs(mut self, knobs: Knobs) -> Self {
        self.knobs = knobs;
        self
    }

    /// Explores the model.
    ///
    /// # Panics
    /// Panics if the model itself is wrong: for example, if its setup fails or waits for ever, or if an invariant
    /// panics.
    pub fn run(&self, search: Search) -> Verdict {
        self.run_with(&self.knobs, search)
    }

    /// Explores the model with other knobs, for example with each combination of a matrix.
    ///
    /// # Panics
    /// Panics under the same conditions as [`Model::run`].
    pub fn run_with(&self, knobs: &Knobs, search: Search) -> Verdict {
        search::run(&Ready { model: self, knobs }, &self.rules, &search)
    }

    /// Runs `trace` again and describes the run in words.
    ///
    /// # Errors
    /// Returns [`BadReplay`] if the trace belongs to another model or other knobs, if its run does not fail, or if a
    /// history of the run is too large to be checked.
    ///
    /// # Panics
    /// Panics under the same conditions as [`Model::run`].
    pub fn replay(&self, trace: &Trace) -> Result<Counterexample, BadReplay> {
        self.replay_with(&self.knobs, trace)
    }

    /// Runs a `trace` of [`Model::run_with`] again.
    ///
    /// # Errors
    /// Returns [`BadReplay`] under the same conditions as [`Model::replay`].
    ///
    /// # Panics
    /// Panics under the same conditions as [`Model::run`].
    pub fn replay_with(&self, knobs: &Knobs, trace: &Trace) -> Result<Counterexample, BadReplay> {
        search::replay(&Ready { model: self, knobs }, &self.rules, trace)
    }

    fn build(&self, knobs: &Knobs) -> (Rc<RefCell<Machine>>, Typed<'_, S, P>) {
        let mem = Memory::new(self.memory_nodes, self.host_bytes, self.chip_bytes);
        let nodes: Vec<u16> = self.clients.iter().map(|c| c.compute_node).collect();
        let mut machine = Machine::new(knobs.clone(), mem, &nodes, self.memory_nodes);
        machine.chunk_align = self.chunk_align;
        machine.own_fingerprints = self.fingerprint.is_some();
        machine.blind = self.blind;
        machine.bypass.clone_from(&self.rules.bypass);
        machine.lock_free = self.rules.lock_free;
        machine.survivors = self.clients.iter().map(|c| c.survives).collect();
        machine.spared = self.clients.iter().map(|c| c.spared).collect();
        let machine = Rc::new(RefCell::new(machine));
        if let Some(setup) = &self.setup {
            at_once(&machine, 0, &**setup);
            machine.borrow_mut().keep();
        }
        let shared = (0..nodes.iter().max().map_or(0, |n| n + 1))
            .map(|_| None)
            .collect();
        let recorded = Rc::default();
        (
            machine,
            Typed {
                model: self,
                shared: RefCell::new(shared),
                recorded,
            },
        )
    }
}

/// A model, and the knobs with which it is explored.
struct Ready<'m, S, P: Spec> {
    model: &'m Model<S, P>,
    knobs: &'m Knobs,
}

impl<S, P> Source for Ready<'_, S, P>
where
    S: 'static,
    P: Spec + Sync + 'static,
    P::Op: Clone + Hash,
    P::Ret: Clone + Hash,
{
    fn make(&self) -> (Rc<RefCell<Machine>>, Box<dyn Program + '_>) {
        let (machine, program) = self.model.build(self.knobs);
        (machine, Box::new(program))
    }
}

/// Returns a client's name with its id, because histories name clients by id. A name that contains the id stays
/// unchanged.
fn label(name: String, id: usize) -> String {
    let mut numbers = name.split(|c: char| !c.is_ascii_digit());
    if numbers.any(|n| n == id.to_string()) {
        return name;
    }
    format!("{name} ({id})")
}

/// Runs a future alone, with verbs that complete at once.
fn at_once<T, F: Future<Output = T>>(
    machine: &Rc<RefCell<Machine>>,
    node: u16,
    f: impl FnOnce(Endpoint) -> F,
) -> T {
    const POLLS: usize = 100_000;
    machine.borrow_mut().immediate = true;
    let client = machine.borrow().setup_client();
    let mut future = pin!(f(Endpoint::new(Rc::clone(machine), client, node)));
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..POLLS {
        if let Poll::Ready(out) = future.as_mut().poll(&mut cx) {
            machine.borrow_mut().immediate = false;
            return out;
        }
    }
    panic!("the setup of the model waits for ever");
}

/// A model as one thread explores it: the shared state of the current execution, and all operations and results that
/// were recorded so far.
struct Typed<'m, S, P: Spec> {
    model: &'m Model<S, P>,
    shared: RefCell<Vec<Option<Rc<S>>>>,
    recorded: Rc<RefCell<Recorded<P>>>,
}

impl<S, P> Program for Typed<'_, S, P>
where
    S: 'static,
    P: Spec + Sync + 'static,
    P::Op: Clone + Hash,
    P::Ret: Clone + Hash,
{
    fn reset(&self) {
        self.shared.borrow_mut().fill(None);
    }

    fn open_shared(&self, machine: &Rc<RefCell<Machine>>) {
        let Shared::Opened(open) = &self.model.shared else {
            return;
        };
        for client in &self.model.clients {
            let node = client.compute_node;
            let slot = usize::from(node);
            if self.shared.borrow()[slot].is_none() {
                let made = at_once(machine, node, |v| open(v, node));
                self.shared.borrow_mut()[slot] = Some(Rc::new(made));
            }
        }
    }

    fn start(&self, machine: &Rc<RefCell<Machine>>, client: u8) -> ClientFuture {
        let spec = &self.model.clients[usize::from(client)];
        let node = spec.compute_node;
        let mut shared = self.shared.borrow_mut();
        let slot = &mut shared[usize::from(node)];
        let shared = match (&slot, &self.model.shared) {
            (None, Shared::Made(make)) => slot.insert(Rc::new(make(node))),
            _ => slot.as_mut().expect("opened before anybody starts"),
        };
        (spec.begin)(Client {
            verbs: Endpoint::new(Rc::clone(machine), client, node),
            shared: Rc::clone(shared),
            recorded: Rc::clone(&self.recorded),
        })
    }

    fn fingerprint(&self, node: u16) -> Option<u64> {
        let f = self.model.fingerprint.as_ref()?;
        self.shared.borrow()[usize::from(node)].as_ref().map(|s| f(s))
    }

    fn check_history(&self, machine: &Machine) -> Result<(), Stop> {
        let recorded = self.recorded.borrow();
        let mut history = History::new();
        for (c, operations) in machine.operations.iter().enumerate() {
            for times in operations.iter() {
                let (Some(invoked), Some(op)) = (times.invoked, recorded.ops.get(&times.op)) else {
                    continue;
                };
                let ret = times.ret.and_then(|ret| recorded.rets.get(&ret));
                history.push(Operation {
                    client: u32::from(Machine::id(c as u8).0),
                    op: op.clone(),
                    invoked: u64::from(invoked),
                    returned: times
                        .returned
                        .zip(ret)
                        .map(|(at, ret)| (u64::from(at), ret.clone())),
                });
            }
        }
        match dm_history::check(&self.model.spec, &history, self.model.limits) {
            Explained::Linearizable(_) => Ok(()),
            Explained::Counterexample(found) => Err(Stop::Failed(Failure::NotLinearizable {
                why: found.to_string(),
            })),
            Explained::TooLarge(large) => Err(Stop::TooLarge {
                operations: large.operations,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
