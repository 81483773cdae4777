//! The explorer: a world behind the seam of `dm-verbs` in which the shipped async code runs unchanged, and every
//! interleaving of its micro-steps is gone through.
//!
//! A *step* is one unit (a 64-byte line, or an 8-byte word) of one verb, one section on state that a compute node's
//! clients share (`Env::local`), one wake-up, one request to the control plane, or the start of a client. What the
//! RNIC is free to do (see [`dm_verbs::Caps`]) is a knob each, as are crashes, cancellations and queue pairs that fail,
//! at any step. A run that fails is told in words and drawn, and replays from a short string.
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
//! `docs/model-your-lock.md` walks through a model of a lock.
//!
//! # Method
//! Clients are boxed futures. A completion polls its client at once and an operation counts as invoked at its first
//! micro-step: the strongest real-time demands. [`Search::exhaustive`] goes depth-first with a cache of visited states
//! and sleep sets that are stored with the states (Godefroid). What a step touched is recorded, not declared.
//! All cores work on one search ([`Search::threads`]): each thread has clients of its own, which the model's closures
//! make, and the states met are shared.
//!
//! Futures can't be cloned, so that going back to a branch means to replay the choices up to it. A client is a function
//! of its observations: what it once did where it stood is kept as the calls that it made, and done again without it.
//! Clients are polled only where they have not stood before (and always in searches without a cache, which check that
//! they are deterministic); the rest of a state can be kept and gone back to.
//!
//! A state is remote memory, posted work, and of each client a hash of all that it observed: a client is a function of
//! its observations. State that a compute node shares is part of it as the order in which sections ran on it (all such
//! state goes through `dm-sync`, which counts them), or, where the model offers a complete [`Model::fingerprint`], as
//! its content. `Retry` rewinds a failed attempt, so that loops are finite. `pause` means: until something that was
//! read has changed; where everybody waits so, the run is [`Failure::Stuck`].
//!
//! A search with a cache also shows that **from every reachable state some continuation without further faults ends**:
//! every client has run to its end, but for those that crashed or were cancelled. Where none does, clients go round for
//! ever in a closed set of states, each perhaps busy with atomics of its own: [`Failure::Livelock`], with the shortest
//! run to a state without a way out and a cycle behind it ([`Lasso`]). After a crash or a failed chain that is allowed
//! where the model says [`Model::crash_may_block`]. States are marked backwards from the ends during the search; where
//! marks are missing at its end, it is done again without sleep sets and the whole graph is searched.
//!
//! *Ghost variables* ([`Client::ghost`]) are written by a model's clients in the step at which they run, and read by
//! invariants alone ([`End::ghost`]): protocols see a [`dm_verbs::Verbs`], which does not show them. They are part of the
//! state.
//!
//! # Invariants
//! * **I1** [`Verdict::Pass`] of an exhaustive search means that every reachable state within the model's bounds and
//!   knobs was reached; a search that was cut short is [`Verdict::Truncated`], which is no pass.
//! * **I2** Equal states offer equal steps in equal order: a [`Trace`] replays on any machine.
//! * **I3** Sleep sets leave out steps, never states.
//! * **I4** The number of threads, and how fast each of them is, changes neither the verdict of a search that reaches no
//!   limit, nor its counterexample, nor how many states and ends there are.
//! * **I5** No exhaustive search passes a model in which some run can't go on to an end: without a cache, it does not
//!   end and is cut short.
//!
//! # Limits
//! What a pass assumes is printed with it ([`Report::assumptions`]): "exhaustive within …", never "proved". It says
//! nothing about more clients, operations or memory than the model has; that an end can be reached from everywhere does not mean
//! that every schedule reaches it: a client that others overtake for ever goes unseen, unless the model bounds that; memory is
//! sequentially consistent per unit; no request is carried out twice, and none is lost or late but behind a crash or a
//! queue pair that fails. Clients must be deterministic: no
//! clock, no randomness but `Env::rng`, no iteration over hash maps, nothing shared outside `dm-sync` and the harness.
//! Searches without a cache check that ([`Failure::NotDeterministic`]); a cached one can't. Orders of atomics and plain
//! accesses *inside* a compute node are loom's matter. A retry loop whose attempts enter sections on shared state never
//! waits unless the model has a [`Model::fingerprint`]: without one the search of it does not end. A loop that changes a variable
//! in a failed attempt (`again_wiser`) still waits for a change of what it read: one that counts its attempts is explored
//! fully under [`Retries::Bounded`] only. A chain has at most 256 requests, a request 128 units, a state
//! 128 steps, a model 32 clients.
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
