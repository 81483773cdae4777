//! The errors of making a world, a thread's connections, a client or a memory node, of reconnecting, and of meeting
//! other threads. Failures of verbs are [`dm_verbs::VerbError`]s.

use core::fmt;
use std::io;
use std::net::SocketAddr;

use dm_control::{Answer, ClientError, StartError};
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
    /// A memory node does not accept a client of this thread, because the client was fenced, or because the node has
    /// shut the connection of this thread after a fence of another client. A thread that still has a fenced client
    /// cannot reconnect.
    Fenced {
        /// The client.
        client: ClientId,
    },
    /// A memory node does not accept a client of this thread, because another client has its id there. A thread that
    /// still has this client cannot reconnect.
    IdTaken {
        /// The node's address.
        address: SocketAddr,
        /// The client.
        client: ClientId,
    },
    /// A memory node does not accept a client of this thread, because it has never given the client's id.
    NoSuchClient {
        /// The node's address.
        address: SocketAddr,
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
    /// A memory node has no room for a client: no id is free, this connection or this host has as many clients as the
    /// node allows, or the node remembers too many other givers of ids.
    TooManyClients {
        /// The node's address.
        address: SocketAddr,
    },
    /// A memory node could not accept a client, because its device refused a request, or because it has no random
    /// bytes. A later attempt may succeed.
    NodeFailed {
        /// The node's address.
        address: SocketAddr,
    },
}

impl IbError {
    /// Returns the error of a client that the node at `address` does not attach and answers with `answer`.
    pub(crate) fn not_attached(answer: Answer, address: SocketAddr, client: ClientId) -> Self {
        match answer {
            Answer::Fenced => Self::Fenced { client },
            Answer::NotYours => Self::IdTaken { address, client },
            Answer::NoSuchClient => Self::NoSuchClient { address, client },
            other => Self::not_entered(other, address),
        }
    }

    /// Returns the error of a client that the node at `address` does not let in, whichever way it enters.
    pub(crate) fn not_entered(answer: Answer, address: SocketAddr) -> Self {
        match answer {
            Answer::NoIdLeft => Self::TooManyClients { address },
            Answer::Failed => Self::NodeFailed { address },
            _ => Self::Node {
                address,
                reason: ClientError::OutOfTurn,
            },
        }
    }
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
            Self::Fenced { client } => {
                write!(
                    f,
                    "{client} or another client of its thread was fenced, so the thread can't continue"
                )
            }
            Self::IdTaken { address, client } => {
                write!(
                    f,
                    "another client is {client} at the memory node at {address}, so its thread can't continue"
                )
            }
            Self::NoSuchClient { address, client } => {
                write!(f, "memory node at {address}: it never gave the id of {client}")
            }
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
            Self::TooManyClients { address } => {
                write!(
                    f,
                    "memory node at {address}: no client id is free, or too many clients are connected"
                )
            }
            Self::NodeFailed { address } => {
                write!(
                    f,
                    "memory node at {address}: it failed to accept the client, try again"
                )
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_client_learns_the_reason() {
        let address = SocketAddr::from(([10, 0, 0, 1], 7));
        let client = ClientId(3);
        let error = |answer| IbError::not_attached(answer, address, client);
        assert!(matches!(
            error(Answer::Fenced),
            IbError::Fenced { client: ClientId(3) }
        ));
        assert!(matches!(
            error(Answer::NotYours),
            IbError::IdTaken {
                client: ClientId(3),
                ..
            }
        ));
        assert!(matches!(
            error(Answer::NoSuchClient),
            IbError::NoSuchClient {
                client: ClientId(3),
                ..
            }
        ));
        assert!(matches!(error(Answer::NoIdLeft), IbError::TooManyClients { .. }));
        assert!(matches!(error(Answer::Failed), IbError::NodeFailed { .. }));
        let odd = error(Answer::Met { arrived: 1 });
        assert!(
            matches!(
                odd,
                IbError::Node {
                    reason: ClientError::OutOfTurn,
                    ..
                }
            ),
            "{odd}"
        );
        for answer in [
            Answer::NotYours,
            Answer::NoSuchClient,
            Answer::NoIdLeft,
            Answer::Failed,
        ] {
            let text = error(answer).to_string();
            assert!(text.contains("10.0.0.1:7") && !text.contains("fenced"), "{text}");
        }
    }
}
