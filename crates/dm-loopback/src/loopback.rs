//! The handle of a world, which threads share.

use core::fmt;
use std::path::Path;

use dm_sync::Arc;
use dm_sync::region::LineOrder;
use dm_verbs::{Caps, ClientId, NodeId, Place, VerbError, VerbErrorKind};

use crate::builder::{BuildError, Builder};
use crate::endpoint::Endpoint;
use crate::format::{header, node_trouble};
use crate::trouble::Trouble;
use crate::world::World;

/// A world of in-process memory nodes. Clones are handles of the same world, and can be used by all threads.
#[derive(Clone)]
pub struct Loopback {
    pub(crate) world: Arc<World>,
}

impl Loopback {
    /// Returns the builder of a world.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Opens the pool in a file that another world made with [`Builder::file`]: the same memory nodes, chunks and
    /// members. Use [`Builder::open`] for settings other than the defaults.
    ///
    /// # Errors
    /// Returns [`BuildError`] if the file cannot be opened, or is not such a pool.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BuildError> {
        Builder::new().open(path)
    }

    /// Connects a new client of compute node `compute_node`, with an id that no other client of the pool uses.
    ///
    /// # Errors
    /// Returns [`ConnectError::TooManyClients`] if all 4095 ids are in use. An id whose process is dead counts as free.
    pub fn connect(&self, compute_node: u16) -> Result<Endpoint, ConnectError> {
        let (client, epoch) = self.world.claim_any().ok_or(ConnectError::TooManyClients)?;
        Ok(Endpoint::new(
            Arc::clone(&self.world),
            compute_node,
            client,
            epoch,
        ))
    }

    /// Connects a new client of compute node `compute_node` with the id `client`.
    ///
    /// # Errors
    /// Returns [`ConnectError::IdInUse`] if the id is 0 or above 4095, or if another client of the pool has it, even a
    /// client of a dead process.
    pub fn connect_as(&self, compute_node: u16, client: ClientId) -> Result<Endpoint, ConnectError> {
        let epoch = self
            .world
            .claim(client, false)
            .ok_or(ConnectError::IdInUse { client })?;
        Ok(Endpoint::new(
            Arc::clone(&self.world),
            compute_node,
            client,
            epoch,
        ))
    }

    /// Returns the number of memory nodes.
    pub fn memory_nodes(&self) -> u16 {
        self.world.nodes.len() as u16 // at most 1024
    }

    /// Returns the capabilities of the connection to `node`. An unknown node has none.
    pub fn caps(&self, node: NodeId) -> Caps {
        self.world.node(node).map_or_else(Caps::default, |node| node.caps)
    }

    /// Cuts `node` off: from now on it has `trouble`, for all clients in all processes. Chains in progress are not
    /// affected. Requests to the control plane for a chunk or the size of the node fail, whatever the trouble is. If
    /// the node does not exist, this does nothing.
    pub fn cut(&self, node: NodeId, trouble: Trouble) {
        self.set_trouble(node, Some(trouble));
    }

    /// Ends the trouble of `node`. Its memory is unchanged.
    pub fn restore(&self, node: NodeId) {
        self.set_trouble(node, None);
    }

    fn set_trouble(&self, node: NodeId, trouble: Option<Trouble>) {
        if self.world.node(node).is_some() {
            self.world
                .set_word(node_trouble(node.0), Trouble::to_word(trouble));
            self.world.set_word(header::ALARM, 1);
        }
    }

    /// Copies the bytes at `at` to `out`, without metering and even if the node is cut off. This is for tests and
    /// tools.
    ///
    /// # Errors
    /// Returns [`VerbErrorKind::NoSuchNode`] if the node does not exist, [`VerbErrorKind::OutOfBounds`] if the bytes
    /// end beyond its memory, and [`VerbErrorKind::DeadWriter`] or [`VerbErrorKind::BusyWriter`] if a process that is
    /// dead or stopped has left a line locked.
    pub fn inspect(&self, at: impl Into<Place>, out: &mut [u8]) -> Result<(), VerbError> {
        let at = at.into();
        let refused = |kind| VerbError::refused(kind, at);
        let node = self
            .world
            .node(at.node())
            .ok_or(refused(VerbErrorKind::NoSuchNode))?;
        let read = node
            .space(at)
            .read_ordered(at.offset(), out, LineOrder::Increasing);
        read.map_err(|e| refused(crate::requests::failed(e, dm_verbs::Effect::None).0))
    }
}

impl fmt::Debug for Loopback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loopback")
            .field("nodes", &self.memory_nodes())
            .field("caps", &self.caps(NodeId(0)))
            .finish_non_exhaustive()
    }
}

/// The reason why a client could not connect.
///
/// ```
/// use dm_loopback::{ConnectError, Loopback};
/// use dm_verbs::ClientId;
///
/// let world = Loopback::builder().nodes(1).build()?;
/// let _seven = world.connect_as(0, ClientId(7))?;
/// assert_eq!(world.connect_as(0, ClientId(7)).err(), Some(ConnectError::IdInUse { client: ClientId(7) }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// No client id is free.
    TooManyClients,
    /// The id belongs to another client, or is 0 or above 4095, which no client may have.
    IdInUse {
        /// The requested id.
        client: ClientId,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyClients => f.write_str("no client id is free"),
            Self::IdInUse { client } => write!(f, "{client} is in use, or is not a valid client id"),
        }
    }
}

impl core::error::Error for ConnectError {}
