//! Traces: the requests that clients posted, their effects and their results, in one format for every world.
//!
//! The explorer writes its counterexamples in this format; [`Traced`] records a client of any other world, the
//! simulator included. With the feature `serde` a [`Recording`] becomes JSON; `docs/trace.md` describes it field by
//! field.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};
use core::cell::{Cell, RefCell};
use core::fmt;
use core::task::{Context, Poll};

use crate::{
    Attempts, CallState, Caps, ClientId, Control, ControlError, ControlReply, ControlRequest, Env, LocalStep,
    Meter, Nanos, NodeId, Op, Outcome, Place, Slot, Transport, VerbError, Verbs, Wqe,
};

/// The version of the format. It is the first field of every recording.
pub const SCHEMA: &str = "dmkit-trace-1";

/// A run of several clients.
///
/// ```
/// use dm_verbs::trace::{Recording, SCHEMA};
///
/// let nothing = Recording::new("simulator", "ns", vec!["client 1".to_owned()]);
/// assert_eq!((nothing.schema.as_str(), nothing.events.len()), (SCHEMA, 0));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Recording {
    /// The version of the format: [`SCHEMA`].
    pub schema: String,
    /// The world that the recording is from.
    pub world: String,
    /// The unit of [`Event::at`]: `step` in the explorer, `ns` elsewhere.
    pub unit: String,
    /// Names of the clients, from client 1 on.
    pub clients: Vec<String>,
    /// The events, in the order in which they happened.
    pub events: Vec<Event>,
}

impl Recording {
    /// Makes a recording without events.
    pub fn new(world: impl Into<String>, unit: impl Into<String>, clients: Vec<String>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            world: world.into(),
            unit: unit.into(),
            clients,
            events: Vec::new(),
        }
    }

    /// Adds the events of several clients, and sorts all events by time. The events of one client keep their order.
    pub fn merge(&mut self, events: impl IntoIterator<Item = Event>) {
        self.events.extend(events);
        self.events.sort_by_key(|e| e.at);
    }
}

/// An event of one client.
///
/// ```
/// use dm_verbs::trace::{Event, What};
///
/// let event = Event { at: 5, client: 1, what: What::Enters { section: "lock".to_owned() }, text: "enters lock".to_owned() };
/// assert_eq!(event.to_string(), "enters lock");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Event {
    /// The time, in the recording's unit.
    pub at: u64,
    /// The client's [`ClientId`] as a number.
    pub client: u16,
    /// The kind of event, for programs.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub what: What,
    /// A description of the event for people.
    pub text: String,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The kind of an event. Chains are numbered per client from 1, in posting order; the requests of a chain from 0.
///
/// ```
/// use dm_verbs::trace::What;
///
/// let what = What::Completes { chain: 1, values: vec![vec![0]], error: None };
/// assert!(what != What::Other);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "event", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum What {
    /// The client rings the doorbell of a chain.
    Posts {
        /// The chain's number.
        chain: u32,
        /// Its requests, in order.
        requests: Vec<Request>,
    },
    /// A request, or a part of it, acts on memory. Only the explorer records this.
    Effect {
        /// The chain's number.
        chain: u32,
        /// The request's number.
        request: u16,
        /// The number of the part (from 1) and the number of parts.
        part: (u8, u8),
        /// The 8-byte words in memory before the effect.
        held: Vec<u64>,
        /// The words in memory after the effect, if the verb changes memory.
        written: Vec<u64>,
    },
    /// A chain completes, and its client can now observe the completion.
    Completes {
        /// The chain's number.
        chain: u32,
        /// For each request, the words that it returned. A WRITE has none. [`Traced`] has none for a result that its
        /// client did not take.
        values: Vec<Vec<u64>>,
        /// The error, if it failed.
        error: Option<String>,
    },
    /// The client begins an operation of the model or workload.
    Begins {
        /// The operation's name.
        operation: String,
    },
    /// The operation returns.
    Returns {
        /// The operation's name.
        operation: String,
        /// Its result.
        value: String,
    },
    /// The client enters a section that the model checks.
    Enters {
        /// The section's name.
        section: String,
    },
    /// The client leaves a section.
    Leaves {
        /// The section's name.
        section: String,
    },
    /// Any other event, which `text` describes: the client starts, waits, continues, is cancelled, dies, or
    /// loses a chain.
    Other,
}

/// A request as it was posted.
///
/// ```
/// use dm_verbs::trace::Request;
/// use dm_verbs::{NodeId, Op, RemotePtr};
///
/// let at = RemotePtr::new(NodeId(0), 64).unwrap().into();
/// let cas = Request::new(&Op::Cas { at, compare: 0, swap: 7 }, false, None);
/// assert_eq!((cas.verb.as_str(), cas.bytes, cas.operands.as_slice()), ("CAS", 8, &[0, 7][..]));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Request {
    /// `READ`, `WRITE`, `CAS`, `masked CAS` or `FAA`.
    pub verb: String,
    /// Memory node and offset; `chip` stands before the offset for on-chip memory.
    pub place: String,
    /// The name that the model gives this address.
    pub name: Option<String>,
    /// The number of bytes.
    pub bytes: u32,
    /// Whether the request starts only after earlier READs and atomics have completed.
    pub fenced: bool,
    /// Compared and swapped word of a CAS (followed by their masks if it is masked); the addend of an FAA.
    pub operands: Vec<u64>,
}

impl Request {
    /// Describes `op`. `name` is the name that the model gives its address.
    pub fn new(op: &Op<'_>, fenced: bool, name: Option<String>) -> Self {
        let (verb, operands) = match *op {
            Op::Read { .. } | Op::Word { .. } => ("READ", Vec::new()),
            Op::Write { .. } => ("WRITE", Vec::new()),
            Op::Cas { compare, swap, .. } => ("CAS", vec![compare, swap]),
            Op::MaskedCas { masked: m, .. } => {
                ("masked CAS", vec![m.compare, m.swap, m.compare_mask, m.swap_mask])
            }
            Op::Faa { add, .. } => ("FAA", vec![add]),
        };
        Self {
            verb: verb.to_owned(),
            place: op.at().to_string(),
            name,
            bytes: op.len() as u32,
            fenced,
            operands,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fenced = if self.fenced { "fenced " } else { "" };
        let place = self.name.as_ref().unwrap_or(&self.place);
        write!(f, "{fenced}{} {place}", self.verb)?;
        match self.operands[..] {
            [compare, swap, ..] => write!(f, " {}→{}", number(compare), number(swap)),
            [add] => write!(f, " +{}", number(add)),
            [] if self.bytes == 8 && self.verb == "READ" => Ok(()),
            [] => write!(f, " ({} B)", self.bytes),
        }
    }
}

/// Formats numbers below 10,000 in decimal, and others in hexadecimal.
pub fn number(x: u64) -> String {
    if x < 10_000 {
        x.to_string()
    } else {
        format!("{x:#x}")
    }
}

/// Describes a chain's requests in words.
pub fn posting(requests: &[Request]) -> String {
    let told: Vec<String> = requests.iter().map(Request::to_string).collect();
    format!("posts {}", told.join(" ▸ "))
}

/// Returns the little-endian words of `bytes`. The last word may come from fewer than 8 bytes.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

/// Wraps a client of any world, and records the requests that it posts and their results. It implements [`Verbs`].
///
/// Recording changes neither costs nor counters of the world. To record a program, run it on this type instead of on
/// its endpoint; [`Traced::take_events`] returns the events for a [`Recording`].
///
/// ```
/// use dm_verbs::trace::{Recording, Traced};
/// use dm_verbs::{RemotePtr, Verbs};
///
/// /// Runs an add on a recorded client.
/// async fn recorded<V: Verbs>(v: V, at: RemotePtr) -> Recording {
///     let client = dm_verbs::Env::client(&v).0;
///     let v = Traced::new(v);
///     let _old = v.faa(at, 1).await;
///     let mut run = Recording::new("loopback", "ns", vec![format!("client {client}")]);
///     run.merge(v.take_events());
///     run
/// }
/// ```
#[derive(Debug)]
pub struct Traced<V> {
    inner: V,
    events: RefCell<Vec<Event>>,
    flights: RefCell<Vec<Flight>>,
    posted: Cell<u32>,
}

/// A chain that is being built, in flight, or completed and not closed yet.
#[derive(Debug)]
struct Flight {
    slot: (u32, u32),
    chain: u32,
    requests: Vec<Request>,
    /// The index of the event of its completion in the list of events.
    completed: Option<usize>,
}

impl<V: Verbs> Traced<V> {
    /// Wraps `inner` and starts to record.
    pub fn new(inner: V) -> Self {
        Self {
            inner,
            events: RefCell::default(),
            flights: RefCell::default(),
            posted: Cell::new(0),
        }
    }

    /// Returns the events so far and removes them.
    pub fn take_events(&self) -> Vec<Event> {
        for flight in self.flights.borrow_mut().iter_mut() {
            flight.completed = None;
        }
        self.events.take()
    }

    /// Records that the client begins an operation.
    pub fn begins(&self, operation: impl Into<String>) {
        let operation = operation.into();
        let text = format!("begins {operation}");
        self.note(What::Begins { operation }, text);
    }

    /// Records that the operation returns `value`.
    pub fn returns(&self, operation: impl Into<String>, value: impl Into<String>) {
        let (operation, value) = (operation.into(), value.into());
        let text = format!("returns {operation} -> {value}");
        self.note(What::Returns { operation, value }, text);
    }

    fn note(&self, what: What, text: String) -> usize {
        let mut events = self.events.borrow_mut();
        events.push(Event {
            at: self.inner.now().0,
            client: self.inner.client().0,
            what,
            text,
        });
        events.len() - 1
    }

    fn with<R>(&self, slot: &Slot, f: impl FnOnce(&mut Flight) -> R) -> Option<R> {
        let mut flights = self.flights.borrow_mut();
        let of = |x: &&mut Flight| x.slot == (slot.index, slot.generation);
        flights.iter_mut().find(of).map(f)
    }
}

impl<V: Verbs> Transport for Traced<V> {
    type Lease = V::Lease;

    fn caps(&self, node: NodeId) -> Caps {
        self.inner.caps(node)
    }
    fn open(&self, node: NodeId) -> Slot {
        let slot = self.inner.open(node);
        self.flights.borrow_mut().push(Flight {
            slot: (slot.index, slot.generation),
            chain: 0,
            requests: Vec::new(),
            completed: None,
        });
        slot
    }
    fn push(&self, slot: &Slot, wqe: Wqe<'_>) {
        self.with(slot, |flight| {
            flight.requests.push(Request::new(&wqe.op, wqe.fence, None));
        });
        self.inner.push(slot, wqe);
    }
    fn ring(&self, slot: &Slot) {
        self.posted.set(self.posted.get() + 1);
        let chain = self.posted.get();
        let requests = self.with(slot, |flight| {
            flight.chain = chain;
            flight.requests.clone()
        });
        let requests = requests.unwrap_or_default();
        let text = posting(&requests);
        self.note(What::Posts { chain, requests }, text);
        self.inner.ring(slot);
    }
    fn poll_chain(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<(), VerbError>> {
        let result = core::task::ready!(self.inner.poll_chain(slot, cx));
        let told = self.with(slot, |flight| {
            let (chain, requests) = (flight.chain, &flight.requests);
            (chain, posting(requests), requests.len(), flight.completed)
        });
        if let Some((chain, what, requests, None)) = told {
            let error = result.as_ref().err().map(ToString::to_string);
            let what = what.trim_start_matches("posts ");
            let text = match &error {
                None => format!("completes {what}"),
                Some(error) => format!("fails {what}: {error}"),
            };
            let values = vec![Vec::new(); requests];
            let at = self.note(What::Completes { chain, values, error }, text);
            self.with(slot, |flight| flight.completed = Some(at));
        }
        Poll::Ready(result)
    }
    fn take(&self, slot: &Slot, i: u16) -> Outcome<V::Lease> {
        let outcome = self.inner.take(slot, i);
        let returned = match &outcome {
            Outcome::None => return outcome,
            Outcome::Old(word) => vec![*word],
            Outcome::Lease(bytes) => words(bytes),
        };
        // Only requests that return a value have a result.
        let at = self.with(slot, |flight| {
            let returning = |(_, request): &(usize, &Request)| request.verb != "WRITE";
            let requests = flight.requests.iter().enumerate();
            let (request, _) = requests.filter(returning).nth(usize::from(i))?;
            Some((flight.completed?, request))
        });
        let mut events = self.events.borrow_mut();
        let event = at
            .flatten()
            .and_then(|(at, request)| Some((events.get_mut(at)?, request)));
        if let Some((event, request)) = event {
            if let [word] = returned[..] {
                event.text.push_str(&format!(" = {}", number(word)));
            }
            if let What::Completes { values, .. } = &mut event.what {
                values[request] = returned;
            }
        }
        outcome
    }
    fn close(&self, slot: Slot) {
        self.flights
            .borrow_mut()
            .retain(|f| f.slot != (slot.index, slot.generation));
        self.inner.close(slot);
    }
    fn take_deferred(&self) -> Option<VerbError> {
        self.inner.take_deferred()
    }
    fn load_image(&self, at: Place, bytes: &[u8]) -> Result<(), VerbError> {
        self.inner.load_image(at, bytes)
    }
}

impl<V: Env> Env for Traced<V> {
    fn client(&self) -> ClientId {
        self.inner.client()
    }
    fn compute_node(&self) -> u16 {
        self.inner.compute_node()
    }
    fn now(&self) -> Nanos {
        self.inner.now()
    }
    fn elapsed(&self, since: Nanos, limit: Nanos) -> bool {
        self.inner.elapsed(since, limit)
    }
    fn rng(&self, stream: u32) -> u64 {
        self.inner.rng(stream)
    }
    fn meter(&self) -> &Meter {
        self.inner.meter()
    }
    fn poll_pause(&self, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        self.inner.poll_pause(state, cx)
    }
    fn poll_local(&self, step: LocalStep, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        self.inner.poll_local(step, state, cx)
    }
    fn poll_charge(&self, work: Nanos, until: &mut Option<Nanos>, cx: &mut Context<'_>) -> Poll<()> {
        self.inner.poll_charge(work, until, cx)
    }
}

impl<V: Env> Attempts for Traced<V> {
    fn mark(&self) -> u64 {
        self.inner.mark()
    }
    fn rewind(&self, mark: u64) {
        self.inner.rewind(mark);
    }
    fn budget(&self, attempts: u32) -> u32 {
        self.inner.budget(attempts)
    }
}

impl<V: Control> Control for Traced<V> {
    fn memory_nodes(&self) -> u16 {
        self.inner.memory_nodes()
    }
    fn poll_control(
        &self,
        request: &ControlRequest,
        state: &mut CallState,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlReply, ControlError>> {
        self.inner.poll_control(request, state, cx)
    }
}
