//! The control plane of a memory node. It runs on the node's single weak core, over TCP and without RDMA.
//!
//! A [`Server`] hands out memory and client ids, keeps memberships, groups and leases, and fences clients. It needs a
//! device that implements [`Fabric`]. The device opens and shuts queue pairs for clients. Each side describes its queue
//! pair by bytes that only the devices understand ([`Port`]). A [`Client`] is the other side.
//!
//! ```text
//!  client                                    node
//!    │  Hello     version, nonce               │
//!    │ ──────────────────────────────────────▶ │   nothing is opened or disclosed yet
//!    │ ◀────────────────────────────────────── │
//!    │  Challenge nonce, is there a secret     │
//!    │  Proof     HMAC over both nonces, port  │
//!    │ ──────────────────────────────────────▶ │   if it is wrong: Refuse, a log line, disconnect
//!    │ ◀────────────────────────────────────── │
//!    │  Welcome   HMAC, boot, port             │
//!    │  Enter     new, or client and token     │
//!    │ ──────────────────────────────────────▶ │   ids
//!    │ ◀── Answer ──────────────────────────── │
//!    │  Call      caller, request              │
//!    │ ──────────────────────────────────────▶ │   chunks, leases, groups, fences
//!    │ ◀── Answer ──────────────────────────── │
//! ```
//!
//! # Invariants
//! * **C1** A message has at most 260 bytes including its length. Decoding accepts any bytes without a panic
//!   ([`Message::decode`]).
//! * **C2** Except on loopback, a secret is required. It is never sent, proofs are compared in constant time, and both
//!   sides prove that they know the secret. Every later message is accepted once, in its order, and only if the other
//!   side has sent it ([`Session`]).
//! * **C3** A greeting ends within [`Limits::greeting`], a message within [`Limits::message`] of its first byte. The
//!   connections of a host and the clients of a connection are limited, and a new connection may displace a stranger.
//!   So a peer that stalls, sends garbage or disconnects midway does not harm the others.
//! * **C4** A connection can only send requests on behalf of its own clients, and none after one of them was fenced. A
//!   client moves to another connection only with its token.
//! * **C5** When a fence is answered with [`Answer::Done`], the queue pairs of the fenced clients are shut, and these
//!   clients stay fenced when they reconnect.
//! * **C6** After an error a client's connection sends no more requests, because it could mistake a late reply for the
//!   reply to the next request.
//!
//! # Example
//! ```
//! use dm_control::{Answer, Builder, Client, Entrance, Fabric, Port, Ports, Request};
//!
//! /// A device without memory.
//! struct Nothing;
//! impl Ports for Nothing {
//!     type Port = ();
//!     fn shut(&self, _: &()) -> std::io::Result<()> {
//!         Ok(())
//!     }
//! }
//! impl Fabric for Nothing {
//!     fn open(&self, _: &Port) -> std::io::Result<((), Port)> {
//!         Ok(((), Port::default()))
//!     }
//! }
//!
//! let node = Builder::new(1 << 20).start(Nothing)?;
//! let (mut client, _) =
//!     Client::connect(node.address(), None, &Port::default(), dm_control::DEFAULT_PATIENCE)?;
//! assert!(matches!(client.enter(Entrance::Claim)?, Answer::Claimed { client: 1, epoch: 1, .. }));
//! assert_eq!(client.call(1, Request::Chunk { bytes: 100 })?, Answer::Chunk { offset: 4096 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//! * Messages are authenticated, not encrypted. RDMA itself has neither protection, so an attacker who can change
//!   packets between the machines of a cluster can change its memory.
//! * Every client that has the secret can read and write all memory. The limits on such clients protect only against
//!   mistakes.
//! * One thread serves all connections. A slow device, whose queue pair takes long to open, delays the others.
#![forbid(unsafe_code)]

mod backoff;
mod client;
mod dialogue;
mod doorman;
mod frame;
mod greeting;
mod hall;
mod http;
mod ledger;
mod limits;
mod lines;
mod meetings;
mod metrics;
mod peer;
mod secret;
mod server;
mod wire;

pub use client::{Client, ClientError, DEFAULT_PATIENCE, Welcomed};
pub use dialogue::{Desk, Dialogue, End, Fabric};
pub use greeting::{Greeting, Session, Side, Welcoming};
pub use ledger::{CLIENTS_END, Ports};
pub use limits::{DEFAULT_LEASE, Limits};
pub use secret::{SECRET_MAX, SECRET_MIN, Secret, SecretError};
pub use server::{Builder, Server, StartError};
pub use wire::{
    Address, Answer, BODY_MAX, Entrance, Identity, Message, Nonce, PORT_MAX, Port, Refusal, Request, Tag,
    Token, VERSION, WireError,
};

/// Bytes at the start of a node's memory that no chunk overlaps. The size of a chunk is a multiple of this number.
pub const CHUNK_UNIT: u64 = 4096;

/// Sleeps in a place where no other thread needs to wake this one.
#[expect(
    clippy::disallowed_methods,
    reason = "the control plane runs on the machine's clock"
)]
pub(crate) fn pause(time: core::time::Duration) {
    // This is std's sleep, because no model for loom uses it.
    std::thread::sleep(time);
}

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
