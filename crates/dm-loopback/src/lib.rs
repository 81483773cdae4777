//! Loopback: the world of real threads over in-process memory nodes, for examples, tests and benchmarks of client CPU
//! time.
//!
//! A [`Loopback`] contains memory nodes. [`Loopback::connect`] returns an [`Endpoint`], which is one client's
//! [`Transport`](dm_verbs::Transport), [`Env`](dm_verbs::Env) and [`Control`](dm_verbs::Control). [`block_on`] runs one
//! coroutine on a thread, and [`run_all`] runs many. With [`Builder::file`] the pool lies in a file that a second
//! process opens.
//!
//! ```text
//!  Endpoint ── chain ──ring──▶ requests carried out on the caller's stack ──▶ Region (host) · Region (on-chip)
//!     ▲                                                                        64-byte lines, 8-byte words
//!     └── completion: at once, or after some polls ([`Builder::delays`],
//!                        [`Builder::suspend_every_wait`])
//! ```
//!
//! # Invariants
//! * **I1** When the doorbell of a chain has been rung, the chain has taken effect, in posting order (except as
//!   [`Builder::cas_then_read`] allows), whether or not the client polls it. (A chain that ends in an error may have
//!   taken effect in part, or not at all.)
//! * **I2** A line is never torn, unless the world was built with word atomicity. A word is never torn.
//! * **I3** After the answer to `Fence`, no verb of that client has an effect, in any process.
//! * **I4** Buffers and chains come from pools. So the operations of a client that stays on one thread allocate nothing
//!   in the steady state, except READs of more than 64 KiB.
//!
//! # Example
//! ```
//! use dm_loopback::{Loopback, block_on};
//! use dm_verbs::{Control, NodeId, Verbs};
//!
//! let world = Loopback::builder().nodes(2).build()?;
//! let client = world.connect(0)?;
//! block_on(async {
//!     let node = client.chunk(NodeId(1), 4096).await?;
//!     let lock = node.add(1024);
//!     // Writes the bytes, and then the word behind them, in one round trip.
//!     client.chain(node.node()).write(node, b"hello").write_word(lock, 7).await?;
//!     let (old, bytes) = client.chain(node.node()).cas(lock, 7, 8).read(node, 5).await?;
//!     assert_eq!((old, &*bytes), (7, &b"hello"[..]));
//!     Ok(())
//! })
//! # .map_err(|e: Box<dyn std::error::Error>| e)
//! # ?; Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Capabilities
//! By default, the world declares and provides whole lines in increasing order, CAS→READ in order, atomics serialised
//! with WRITEs, failed CASes that do not write, masked atomics, and on-chip memory. The [`Builder`] can withdraw each
//! of these capabilities, and then the world really behaves in the weaker way. Two orders always hold: the lines of a
//! WRITE take effect in increasing order, and WRITEs to host memory take effect before later WRITEs to on-chip memory.
//!
//! # Limits
//! * Only completions are delayed, never effects: a chain that was posted but not awaited has already taken effect. So
//!   only the explorer can find errors that late effects cause.
//! * If a process is stopped during a WRITE, other users of the line get `BusyWriter` after 5 seconds. A fence of the
//!   WRITE's client waits until the process continues or ends.
//! * The world itself never ends a lease. The clients that wait for the end of a lease measure the time.
#![forbid(unsafe_code)]

mod builder;
mod chains;
mod endpoint;
mod executor;
mod format;
mod lease;
mod loopback;
mod members;
mod requests;
mod rng;
mod trouble;
mod world;

pub use builder::{BuildError, Builder};
pub use endpoint::Endpoint;
pub use executor::{block_on, run_all, turns};
pub use lease::Lease;
pub use loopback::{ConnectError, Loopback};
pub use trouble::Trouble;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
