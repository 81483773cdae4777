//! The errors of making a world, a thread's connections, a client or a memory node, of reconnecting, and of meeting
//! other threads. Failures of verbs are [`dm_verbs::VerbError`]s.

use core::fmt;
use std::io;
use std::net::SocketAddr;

use dm_control::{ClientError, StartError};
use dm_verbs::{Capability, ClientId, NodeId};

/// The reason why a world, a thread's connections, a client or a memory node could not be created, or why a thread
/// could not reconnect or meet others.
#[derive(Debug)]
#[non_exhaustive]
pub enum IbError {
    /// The device could not be opened.
    Device {
        /// The name of the device, if one was given.
        name: Option<String>,
        /// The system's error.
        reason: io::Error,
    },
    /// The device has no atomics. dmkit needs them.
    NoAtomics {
        /// The name of the device.
        name: String,
    },
    /// The device could not provide memory or queues of this size.
    Memory {
        /// The number of bytes requested. It has no meaning if a queue could not be provided.
        bytes: u64,
        /// The system's error.
        reason: io::Error,
    },
    /// The memory node has no room behind its reserved page.
    TooSmall {
        /// The number of bytes requested.
        bytes: u64,
    },
    /// A memory node's control plane did not start.
    Start(StartError),
    /// A memory node could not be reached, refused the connection, did not answer, or does not speak the protocol.
    Node {
        /// The node's address.
        address: SocketAddr,
        /// The reason.
        reason: ClientError,
    },
    /// No queue pair to a memory node could be created or connected.
    QueuePair {
        /// The node's address.
        address: SocketAddr,
        /// The system's error.
        reason: io::Error,
    },
    /// The memory node was restarted after this thread had connected to it. Its memory is empty, and all addresses in
    /// it are invalid. Start again with a new [`crate::Thread`].
    Restarted {
        /// The node.
        node: NodeId,
    },
    /// A memory node does not accept a client of this thread. Usually, the client was fenced, or another client has its
    /// id now; a thread that still has such a client cannot reconnect. The node may also have no room for the client.
    Fenced {
        /// The client.
        client: ClientId,
    },
    /// A client of this thread was fenced, so the thread's queue pair was shut. Start again with a new
    /// [`crate::Thread`].
    ThreadFenced,
    /// The completion queue of this thread cannot be polled any more, so the thread cannot send requests to any memory
    /// node. Start again with a new [`crate::Thread`].
    CompletionQueue {
        /// The reason.
        reason: io::Error,
    },
    /// There is no such memory node.
    NoSuchNode {
        /// The node.
        node: NodeId,
    },
    /// Two of the addresses belong to the same memory node.
    SameNode {
        /// The addresses.
        addresses: [SocketAddr; 2],
    },
    /// A world needs 1 to 65535 memory nodes.
    BadNodeCount {
        /// The number of nodes that were given.
        nodes: usize,
    },
    /// This capability cannot be assumed: either the world provides it, or it is missing.
    CannotAssume {
        /// The capability.
        capability: Capability,
    },
    /// The first memory node has no client id left, or gives this connection or this host no further one.
    TooManyClients,
}

impl fmt::Display for IbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device {
                name: Some(name),
                reason,
            } => write!(f, "device {name}: {reason}"),
            Self::Device { name: None, reason } => write!(f, "no device: {reason}"),
            Self::NoAtomics { name } => write!(f, "device {name} has no atomics"),
            Self::Memory { bytes, reason } => write!(f, "can't register {bytes} bytes of memory: {reason}"),
            Self::TooSmall { bytes } => write!(
                f,
                "a memory node of {bytes} bytes has no room behind its reserved page"
            ),
            Self::Start(reason) => reason.fmt(f),
            Self::Node { address, reason } => write!(f, "memory node at {address}: {reason}"),
            Self::QueuePair { address, reason } => {
                write!(f, "no queue pair to the memory node at {address}: {reason}")
            }
            Self::Restarted { node } => {
                write!(
                    f,
                    "memory node {node} was restarted: the content of its memory is lost"
                )
            }
            Self::Fenced { client } => write!(f, "{client} was fenced, so its thread can't reconnect"),
            Self::ThreadFenced => {
                f.write_str("a client of this thread was fenced, so the thread can't continue")
            }
            Self::CompletionQueue { reason } => {
                write!(f, "the thread can't continue, start a new one: {reason}")
            }
            Self::NoSuchNode { node } => write!(f, "no memory node {node}"),
            Self::SameNode {
                addresses: [one, other],
            } => write!(f, "{one} and {other} are the same memory node"),
            Self::BadNodeCount { nodes } => write!(f, "{nodes} memory nodes: there must be 1 to 65535"),
            Self::CannotAssume { capability } => {
                write!(
                    f,
                    "{capability} can't be assumed: the device either has it or not"
                )
            }
            Self::TooManyClients => f.write_str("no client id is free"),
        }
    }
}

impl core::error::Error for IbError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Device { reason, .. }
            | Self::Memory { reason, .. }
            | Self::QueuePair { reason, .. }
            | Self::CompletionQueue { reason } => Some(reason),
            Self::Start(reason) => Some(reason),
            Self::Node { reason, .. } => Some(reason),
            _ => None,
        }
    }
}
