//! The tests for every index of dmkit, in any world: a reference model, scripts that check every answer, and
//! `conformance!`.
//!
//! An index is described once ([`IndexUnderTest`], [`Family`]). A [`World`] is loopback or the simulator, built
//! directly or from one of [`WorldKind::ALL`]. A [`Job`] is the work of a client in a world. The items of this table
//! use these types:
//!
//! | item | what it checks |
//! |---|---|
//! | [`Op`], [`Model`], [`apply`] | does a single client get the answers of a `BTreeMap`? (shared by proptest and fuzzing) |
//! | [`run_bytes`] | does a single client get these answers for a script that a fuzzer has written, too? |
//! | [`Stress`], [`stress`] | do many clients on many compute nodes get only correct answers? |
//! | [`Kills`], [`stress_with_kills`] | do they also get only correct answers while compute nodes die and are replaced? |
//! | [`Testbed`] | are the answers correct while a memory node is cut off? |
//! | [`fill_up`], [`cut_off`], [`cut_off_midway`] | is every acknowledged write present after memory was exhausted, or a memory node was cut off? |
//! | [`Doom`], [`Mortal`] | what does an index contain after a compute node has died between any two requests? |
//! | [`damage`] | does every operation end when bits in remote memory have changed? |
//! | [`CountingAllocator`] | how much memory does a thread allocate? |
//! | [`OneClient`] | what does an operation cost its client? (`cargo xtask bench client`) |
//! | [`conform`], [`conform_one`], [`conformance!`] | are all answers of an index correct, in every world? |
//! | [`perform`] | what does an index answer to an operation of a history? (for models of several clients) |
//!
//! ```text
//!   key numbers   0   1   2   3   4   5   6   7   8  …      3 clients
//!   owner         hot 1   2   0   1   2   0   1   hot …     only the owner writes, so one answer is right
//!                 └── all clients write; every call is recorded and checked for linearizability
//! ```
//!
//! # For your own index
//! Implement [`RangeIndex`](dm_index::RangeIndex) for the index's client and [`IndexUnderTest`] for its options, and
//! count splits in the meter ([`Event::Split`](dm_verbs::Event::Split)). Then [`conform_one`] runs the conformance
//! script with the index's one size of keys and values. If the index is generic over keys, implement [`Family`] too,
//! and [`conform`] runs the script with more sizes. A model in the explorer carries out its operations by [`perform`].
//! The README has an example.
//!
//! These items are meant for users, and change only with a line in the changelog: [`IndexUnderTest`], [`Family`],
//! [`Failure`], [`TestKey`]; [`conform`], [`conform_one`], [`conformance!`]; [`WorldKind`], [`World`], [`Seat`],
//! [`seats`], [`Job`], [`connect`], [`AnyEndpoint`]; [`Stress`], [`Mix`], [`stress`], [`Report`]; [`Op`], [`Model`],
//! [`Mismatch`], [`apply`], [`check_all`]; [`perform`], [`answer`]. All other items may change at any time, as dmkit's
//! own tests need.
//!
//! # Invariants
//! * **I1** Every answer is checked. Answers about a client's own keys must be exact, and answers about hot keys must
//!   be linearizable. Any other value must be complete, and the key's owner or the bulk load must have written it.
//! * **I2** A run that was cut short, got stuck or had an error does not pass.
//! * **I3** The text of a failed run has the seed, and names the clients with wrong answers.
//!
//! # Unsafe
//! [`CountingAllocator`] implements the unsafe trait of allocators. It passes every call on to the system's allocator.
//!
//! # Example
//! This example uses only the model; the README describes and tests an index.
//! ```
//! use dm_index::{Applied, Key8};
//! use dm_testkit::{Model, Op, TestKey};
//!
//! let mut model = Model::new(16);
//! let op = Op::Upsert(Key8::nth(3), 99);
//! assert_eq!(model.write(&op), Some(Applied::Inserted));
//! assert_eq!(model.write(&op), Some(Applied::Replaced));
//! ```
#![deny(unsafe_code)]

mod any_index;
mod conformance;
#[expect(unsafe_code, reason = "an allocator is an unsafe trait's")]
mod counting;
mod cut;
mod damage;
mod doom;
mod drops;
mod full;
mod index;
mod items;
mod key;
mod kill_runs;
mod kills;
mod kv;
mod model;
mod mortal;
mod one_client;
mod op;
mod report;
mod rng;
mod scans;
mod script;
mod stress;
mod stress_client;
mod testbed;
mod world;

pub use conformance::{WEAK_WORLDS, conform, conform_one};
pub use counting::{CountingAllocator, Counts};
pub use cut::{Cut, cut_off, cut_off_midway};
pub use damage::{DAMAGE_KEYS, Damage, damage, damage_worlds, load_for_damage};
pub use doom::{Death, Doom};
pub use drops::{Drops, drop_operations};
pub use full::{Filled, failures, fill_up, says};
pub use index::{Failure, Family, IndexUnderTest};
pub use items::{HoldsItems, OutOfLines, by_fours, exchanges};
pub use key::TestKey;
pub use kill_runs::{KillRun, full_kills_on_loopback, full_kills_simulated, short_kills, simulated_kills};
pub use kills::{Checker, Kills, Moment, NoChecker, SweepChecker, stress_with_kills};
pub use kv::{answer, perform};
pub use model::{Mismatch, Model, apply, check_all};
pub use mortal::Mortal;
pub use one_client::{OneClient, RunCounts};
pub use op::{OP_BYTES, Op, value_of};
pub use report::{Calls, Killed, Report};
pub use rng::Rng;
pub use scans::{ScanCost, cost_of_scans};
pub use script::run_bytes;
pub use stress::{Mix, Stress, stress};
pub use testbed::{Cards, Testbed};
pub use world::{Job, Seat, TestWorld, TestWorlds, World, WorldKind, by_thread, connect, counted, seats};

pub use dm_worlds::AnyEndpoint;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
