//! The control plane: what a memory node's one weak core does — chunks, membership, fencing.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::{ClientId, Nanos, NodeId, RemotePtr};

/// Bytes at the start of every memory node's host memory that no chunk overlaps: the superblock's page.
pub const RESERVED_BYTES: u64 = 4096;

/// What may be asked of the control plane.
///
/// ```
/// use dm_verbs::{Control, ControlError, ControlReply, ControlRequest, Membership, Nanos};
///
/// /// Joins the cluster, or renews the lease, and tells how long it lasts.
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
    /// `bytes` of fresh, zeroed host memory of `node`, 4096-byte aligned.
    Chunk {
        /// On which node.
        node: NodeId,
        /// How much.
        bytes: u64,
    },
    /// How much of `node` is handed out.
    Describe {
        /// Which node.
        node: NodeId,
    },
    /// This client joins, or renews its lease.
    Join,
    /// This client leaves: its lease ends now.
    Leave,
    /// No verb of `client` takes effect after the answer.
    Fence {
        /// Whom.
        client: ClientId,
    },
    /// This client belongs to a group from now on, as the clients of one compute node do; to this one only.
    Enlist {
        /// The group's number.
        member: u16,
    },
    /// No verb of any client that belongs to a group takes effect after the answer. Who joins it later is not concerned.
    FenceMember {
        /// The group's number.
        member: u16,
    },
}

/// A client's membership.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Membership {
    /// Grows whenever the same client id is given out anew.
    pub epoch: u32,
    /// How long the lease lasts without renewal; compared with the waiter's own elapsed time, never across clocks.
    pub lease: Nanos,
}

/// Memory of one node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Region {
    /// Bytes of host memory.
    pub bytes: u64,
    /// Bytes handed out as chunks, the reserved page included.
    pub used: u64,
}

/// The control plane's answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ControlReply {
    /// To `Chunk`.
    Chunk(RemotePtr),
    /// To `Describe`.
    Region(Region),
    /// To `Join`.
    Joined(Membership),
    /// To `Leave`, `Fence`, `Enlist` and `FenceMember`.
    Done,
}

/// The control plane refused or could not be reached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no memory node at all, or not this one.
    NoSuchNode {
        /// Which.
        node: NodeId,
    },
    /// The memory node has no room for the chunk.
    OutOfMemory {
        /// Which node.
        node: NodeId,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes left.
        left: u64,
    },
    /// The memory node does not answer.
    Unreachable {
        /// Which.
        node: NodeId,
    },
    /// This client was fenced off.
    Fenced,
    /// No such client.
    NoSuchClient {
        /// Which.
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
                    "{node} is full: a chunk of {wanted} bytes was asked for, {left} are left"
                )
            }
            Self::Unreachable { node } => write!(f, "control plane of {node} unreachable"),
            Self::Fenced => f.write_str("this client was fenced off"),
            Self::NoSuchClient { client } => write!(f, "no {client}"),
        }
    }
}

impl core::error::Error for ControlError {}

/// The control plane as a client sees it. Slow next to verbs (an RPC to a weak core) and rare.
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
    /// How many memory nodes there are; they are numbered from 0.
    fn memory_nodes(&self) -> u16;

    /// World's part of [`Control::call`]. `state` is 0 at the first poll, which sends the request.
    fn poll_control(
        &self,
        request: &ControlRequest,
        state: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ControlReply, ControlError>>;

    /// Sends `request` when first polled. Dropped while in flight, the request may still be carried out (a chunk is
    /// lost then until its pool is created anew).
    fn call(&self, request: ControlRequest) -> ControlCall<'_, Self>
    where
        Self: Sized,
    {
        ControlCall {
            control: self,
            request,
            state: 0,
        }
    }

    /// A chunk of `bytes` on `node`.
    ///
    /// # Errors
    /// [`ControlError`], naming the node.
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
    state: u64,
}

impl<C: Control> Future for ControlCall<'_, C> {
    type Output = Result<ControlReply, ControlError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.control.poll_control(&this.request, &mut this.state, cx)
    }
}
