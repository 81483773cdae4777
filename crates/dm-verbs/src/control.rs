//! The control plane, an RPC service of each memory node: chunks, membership, fencing.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::{ClientId, Nanos, NodeId, RemotePtr};

/// Bytes at the start of every memory node's host memory that no chunk overlaps: the superblock's page.
pub const RESERVED_BYTES: u64 = 4096;

/// A request to the control plane.
///
/// ```
/// use dm_verbs::{Control, ControlError, ControlReply, ControlRequest, Membership, Nanos};
///
/// /// Joins the cluster, or renews the lease, and returns how long the lease lasts.
/// async fn join<C: Control>(control: &C) -> Result<Nanos, ControlError> {
///     match control.call(ControlRequest::Join).await? {
///         ControlReply::Joined(Membership { lease, .. }) => Ok(lease),
///         other => unreachable!("the answer to another request: {other:?}"),
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ControlRequest {
    /// Asks for `bytes` of new, zeroed host memory of `node`, aligned to 4096 bytes.
    Chunk {
        /// The memory node.
        node: NodeId,
        /// The size in bytes.
        bytes: u64,
    },
    /// Asks how much host memory of `node` has been handed out.
    Describe {
        /// The memory node.
        node: NodeId,
    },
    /// Makes this client a member, or renews its lease.
    Join,
    /// Ends this client's membership and lease.
    Leave,
    /// Fences `client`: after the answer, none of its verbs takes effect.
    Fence {
        /// The client to fence.
        client: ClientId,
    },
    /// Puts this client into a group, and removes it from its earlier group. The clients of one compute node form a
    /// group.
    Enlist {
        /// The group's number.
        member: u16,
    },
    /// Fences the current clients of a group: after the answer, none of their verbs takes effect. Clients that enter
    /// the group later are not affected.
    FenceMember {
        /// The group's number.
        member: u16,
    },
}

/// The membership of a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Membership {
    /// The number of clients that have had this id, including this one.
    pub epoch: u32,
    /// The time for which the lease lasts without renewal. A client that waits for the end of the lease compares it
    /// with the time that has passed on its own clock; the clocks of different machines are never compared.
    pub lease: Nanos,
}

/// The host memory of one node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Region {
    /// Bytes of host memory.
    pub bytes: u64,
    /// Bytes handed out as chunks, the reserved page included.
    pub used: u64,
}

/// An answer of the control plane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ControlReply {
    /// The answer to `Chunk`.
    Chunk(RemotePtr),
    /// The answer to `Describe`.
    Region(Region),
    /// The answer to `Join`.
    Joined(Membership),
    /// The answer to `Leave`, `Fence`, `Enlist` and `FenceMember`.
    Done,
}

/// The reason why the control plane refused a request, or could not be reached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// The memory node does not exist, or the cluster has no memory node.
    NoSuchNode {
        /// The requested node.
        node: NodeId,
    },
    /// The memory node has no room for the chunk.
    OutOfMemory {
        /// The memory node.
        node: NodeId,
        /// Bytes requested.
        wanted: u64,
        /// Bytes left.
        left: u64,
    },
    /// The memory node does not answer.
    Unreachable {
        /// The memory node.
        node: NodeId,
    },
    /// This client has been fenced.
    Fenced,
    /// There is no such client.
    NoSuchClient {
        /// The requested client.
        client: ClientId,
    },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchNode { node } => write!(f, "no memory node {node}"),
            Self::OutOfMemory { node, wanted, left } => {
                write!(
                    f,
                    "{node} is full: a chunk of {wanted} bytes was requested, {left} are left"
                )
            }
            Self::Unreachable { node } => write!(f, "control plane of {node} unreachable"),
            Self::Fenced => f.write_str("this client was fenced off"),
            Self::NoSuchClient { client } => write!(f, "no {client}"),
        }
    }
}

impl core::error::Error for ControlError {}

/// A world's record of one request. The future of the request owns it, so a request that is dropped leaves no record in
/// the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallState {
    /// 0 until the request is sent, and then a number that the world chooses.
    pub step: u64,
    /// The answer, if the world knows it already but must not return it yet.
    pub answer: Option<Result<ControlReply, ControlError>>,
}

/// The control plane as a client sees it. A call is an RPC to the slow CPU of a memory node, so a call takes much
/// longer than a verb, and calls are rare.
///
/// ```
/// use dm_verbs::{Control, NodeId, RemotePtr};
///
/// /// A chunk of the first memory node that has room.
/// async fn chunk<C: Control>(control: &C, bytes: u64) -> Option<RemotePtr> {
///     for node in (0..control.memory_nodes()).map(NodeId) {
///         if let Ok(at) = control.chunk(node, bytes).await {
///             return Some(at);
///         }
///     }
///     None
/// }
/// ```
pub trait Control {
    /// Returns the number of memory nodes, which are numbered from 0.
    fn memory_nodes(&self) -> u16;

    /// Implements [`Control::call`] for a world. `state` is new at the first poll, which sends the request.
    fn poll_control(
        &self,
        request: &ControlRequest,
        state: &mut CallState,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlReply, ControlError>>;

    /// Returns a future that sends `request` at its first poll. If the future is dropped while the request is in
    /// flight, the request may still be carried out. A chunk is then lost until the memory node restarts.
    fn call(&self, request: ControlRequest) -> ControlCall<'_, Self>
    where
        Self: Sized,
    {
        ControlCall {
            control: self,
            request,
            state: CallState::default(),
        }
    }

    /// Allocates a chunk of `bytes` on `node`.
    ///
    /// # Errors
    /// Returns [`ControlError`] if the node does not exist, cannot be reached or has not enough memory, or if this
    /// client was fenced.
    fn chunk(&self, node: NodeId, bytes: u64) -> impl Future<Output = Result<RemotePtr, ControlError>>
    where
        Self: Sized,
    {
        async move {
            match self.call(ControlRequest::Chunk { node, bytes }).await? {
                ControlReply::Chunk(p) => Ok(p),
                other => unreachable!("the control plane answered a chunk request with {other:?}"),
            }
        }
    }
}

/// A request to the control plane. See [`Control::call`].
#[derive(Debug)]
#[must_use = "a control request is sent only when awaited"]
pub struct ControlCall<'c, C> {
    control: &'c C,
    request: ControlRequest,
    state: CallState,
}

impl<C: Control> Future for ControlCall<'_, C> {
    type Output = Result<ControlReply, ControlError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.control.poll_control(&this.request, &mut this.state, cx)
    }
}
