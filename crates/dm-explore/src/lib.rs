//! A model checker for one-sided RDMA protocols. It implements the traits of `dm-verbs`, and runs the shipped async
//! code unchanged in every interleaving of its steps.
//!
//! A *step* is one unit (a 64-byte line, or an 8-byte word) of one verb (an atomic may take two steps), one section on
//! state that the clients of a compute node share (`Env::local`), one wake-up, one request to the control plane, or the
//! start of a client. Each freedom of the RNIC (see [`dm_verbs::Caps`]) is a knob. Crashes, cancellations and failing
//! queue pairs are knobs too, and each of these faults is a step. A client may crash or be cancelled at any time
//! between its start and its end, and a queue pair may fail whenever it has a chain in flight. A failing run is printed
//! in words, can be drawn as a chart, and can be replayed from a short string.
//!
//! ```text
//!          client 1      client 2        count
//!    1        ●             ┊             │       starts
//!             ○             ┊             │       posts READ count
//!    2        ●◀──────────────────────────│       READ count = 0
//!             ◉             ┊             │       completes: READ count ⇒ 0
//!             ○             ┊             │       posts WRITE count (8 B)
//!    3        ┃             ●             │       starts
//!             ┃             ○             │       posts READ count
//!    4        ┃             ●◀────────────│       READ count = 0
//!             ┃             ◉             │       completes: READ count ⇒ 0
//!             ┃             ○             │       posts WRITE count (8 B)
//!    5        ●──────────────────────────▶│       WRITE count 0 → 1
//!             ◉             ┃             │       completes: WRITE count (8 B)
//!    6        │             ●────────────▶│       WRITE count = 1 (unchanged)
//!             │             ◉             │       completes: WRITE count (8 B)
//!   ==> not linearizable
//! ```
//!
//! # Example
//! Two clients add to a counter without a lock:
//! ```
//! use dm_explore::{Client, Counter, CounterOp, Model, Search};
//! use dm_verbs::{NodeId, RemotePtr, Verbs};
//!
//! let count = RemotePtr::new(NodeId(0), 64).unwrap();
//! let add = move |c: Client<(), Counter>| async move {
//!     let v = c.verbs();
//!     c.op(CounterOp::Add(1), async {
//!         let old = v.word(count).await.unwrap();
//!         v.write(count, &(old + 1).to_le_bytes()).await.unwrap();
//!         old
//!     })
//!     .await;
//! };
//! let model = Model::new("lost update").spec(Counter(0)).place(count, 8, "count");
//! let model = model.client("client 1", 0, add).client("client 2", 1, add);
//!
//! let found = model.run(Search::exhaustive()).expect_counterexample();
//! assert_eq!(found.steps.len(), 6); // the shortest
//! assert_eq!(model.replay(&found.trace).unwrap().failure, found.failure);
//! ```
//! `docs/model-your-lock.md` explains a model of a lock step by step.
//!
//! # Method
//! Clients are boxed futures. When a chain completes, the client that waits for it is polled at once. An operation
//! counts as invoked at its first unit, section, wake-up or request to the control plane, and at the latest when it
//! returns. These are the strictest real-time requirements. [`Search::exhaustive`] searches depth-first, with a cache
//! of visited states and with sleep sets that are stored with the states (Godefroid). The machine records which state a
//! step touched; models need not declare it. All cores work on one search ([`Search::threads`]): each thread has its
//! own clients, which the model's closures make, and the threads share the visited states.
//!
//! A future can't be cloned, so the search returns to a branch by replaying the choices that lead to it. A client's
//! behaviour is a function of its observations. So for each point that a client has reached, the explorer stores the
//! calls that the client made there, and later repeats these calls without polling the client. Clients are polled only
//! when one of them reaches a new point. Before that, the futures of its compute node replay the execution up to that
//! point if necessary. A search without a cache always polls clients, and so checks that they are deterministic. The
//! rest of a state can be saved and restored.
//!
//! Most steps are not even computed. A client's state occurs together with many states of the other clients, and a
//! step's outcome for its own client depends only on that client's state, on the memory that the step reads, and on the
//! shared state of the compute node. So the explorer also stores outcomes of steps. When a step's outcome is known, the
//! explorer replaces the client's state and carries out the effects on memory and on the other clients. Each thread
//! stores up to 32,768 client states (about 50 MB), and one more for every 64 states that it has found. Saved states
//! share the clients that did not change. Before a counterexample is reported, it is run once more with every client
//! polled ([`Failure::NotReproduced`]).
//!
//! A state consists of remote memory, allocated chunks, posted requests, recorded operations, the clock, the number of
//! faults, and for each client a hash of everything that it has observed. The shared state of compute nodes is also
//! part of a state. If the model has a complete [`Model::fingerprint`], the content of the shared state counts, and
//! otherwise the order in which sections ran on it. All shared state uses `dm-sync`, which counts the sections. `Retry`
//! rewinds a failed attempt, so that most loops are finite. A client that pauses waits until something that it has read
//! changes, or until time passes if it has asked for the time. If a client has not ended, and no step is possible
//! except faults and late requests that may be lost, the run is [`Failure::Stuck`].
//!
//! A search with a cache also shows that **from every reachable state some continuation without further faults ends**:
//! every client runs to its end, except those that crashed, were cancelled, or wait for a crash to start. If no
//! continuation of a state ends, clients run for ever within a closed set of states, although each of them may still
//! execute atomics. This is [`Failure::Livelock`]. It contains the shortest run to a state from which no end can be
//! reached, and a cycle behind that state ([`Lasso`]). A model that calls [`Model::crash_may_block`] allows stuck runs
//! and livelocks after a crash or the failure of a queue pair. During the search, states are marked backwards from the
//! ends. If marks are missing at the end of the search, the model is searched again without sleep sets, and the whole
//! graph is examined.
//!
//! A model's clients write *ghost variables* ([`Client::ghost`]) in the step in which they run. Only invariants read
//! them ([`End::ghost`]); protocols see a [`dm_verbs::Verbs`], which does not show them. Ghost variables are part of
//! the state.
//!
//! # Invariants
//! * **I1** [`Verdict::Pass`] of an exhaustive search means that the search reached every state that is reachable
//!   within the model's bounds and knobs. A search that was cut short is [`Verdict::Truncated`], which is not a pass.
//! * **I2** Equal states offer equal steps in equal order, so a [`Trace`] replays on any machine.
//! * **I3** Sleep sets omit steps, never states.
//! * **I4** The number of threads and their speeds change neither the verdict of a search that reaches no limit, nor
//!   its counterexample, nor the number of states and ends.
//! * **I5** No exhaustive search passes a model in which some run cannot be continued to an end, unless
//!   [`Model::crash_may_block`] allows it. A search without a cache finds a failure of such a model or reaches a limit.
//!
//! # Limits
//! The report lists what a pass assumes ([`Report::assumptions`]). A pass means "exhaustive within these bounds",
//! never "proved":
//! * A pass does not cover more clients, operations or memory than the model has.
//! * An end can be reached from every state, but not every schedule reaches an end. If other clients overtake a client
//!   for ever, the search does not detect this, unless the model bounds overtaking.
//! * Memory is sequentially consistent per unit. No request is carried out twice. A request is late only after a crash
//!   or a failed queue pair, and lost only after one of these or after a fence of its client.
//! * Clients must be deterministic: no clock, no randomness except `Env::rng`, no iteration over hash maps, and nothing
//!   shared outside `dm-sync` and the harness. Clients of different compute nodes share only remote memory. Searches
//!   without a cache check this ([`Failure::NotDeterministic`]); a search with a cache can't, but it runs a
//!   counterexample again before it reports it ([`Failure::NotReproduced`]).
//! * The orderings of atomics and plain accesses *inside* a compute node are not explored; loom checks them.
//! * If the attempts of a retry loop enter sections on shared state, the loop never waits, and the search ends only at
//!   a limit, unless the model has a [`Model::fingerprint`].
//! * A loop that changes a variable in a failed attempt (`again_wiser`) still waits for a change of something that it
//!   has read. A loop that counts its attempts is explored completely only with [`Retries::Bounded`].
//! * A chain has at most 256 requests, a request 128 units, a state 128 steps, and a model 32 clients and 8 memory
//!   nodes. A client has at most 255 chains in flight.
#![forbid(unsafe_code)]

mod chart;
mod client;
mod endpoint;
mod fp;
mod knobs;
mod lease;
mod machine;
mod memory;
mod model;
mod runner;
mod search;
mod spec;
mod step;
mod trace;
mod verdict;

pub use client::Client;
pub use endpoint::Endpoint;
pub use knobs::{Elapsed, Knobs, Late, Retries};
pub use lease::Lease;
pub use model::{CLIENTS_MAX, DEFAULT_CHIP_BYTES, DEFAULT_HOST_BYTES, End, Model};
pub use search::{BadReplay, Search};
pub use spec::{Counter, CounterOp, NoSpec, Register, RegisterOp};
pub use trace::{Access, BadTrace, Touch, Trace, TraceStep};
pub use verdict::{Counterexample, Coverage, Cut, Failure, Lasso, Report, Verdict};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;

#[doc = include_str!("../../../docs/model-your-lock.md")]
#[cfg(doctest)]
struct GuideDoctests;
