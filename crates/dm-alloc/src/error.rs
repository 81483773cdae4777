//! What may go wrong with a superblock or an allocation.

use core::fmt;

use dm_index::IndexError;
use dm_verbs::{Capability, ControlError, Exhausted, NodeId, RemotePtr, VerbError};

/// Why a pool could not be created or opened, or memory not be had.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AllocError {
    /// A verb failed.
    Verb(VerbError),
    /// The control plane refused.
    Control(ControlError),
    /// The control plane lists no memory node.
    NoMemoryNodes,
    /// More memory nodes than a superblock has room for, or an address in a node of the index.
    TooManyNodes {
        /// How many there are.
        listed: u16,
        /// How many there may be.
        most: u16,
    },
    /// Nobody has created a pool here: the state word is empty, or not dmkit's.
    NotFormatted {
        /// Where the state word lies.
        at: RemotePtr,
        /// What it holds.
        word: u64,
    },
    /// The superblock was written by another version of the format.
    OtherFormat {
        /// Version found.
        found: u32,
        /// Version that this code reads and writes.
        ours: u32,
    },
    /// Another kind of index lives here.
    OtherKind {
        /// Kind found.
        found: u32,
        /// Kind wanted.
        wanted: u32,
    },
    /// The same kind of index, but with another geometry.
    OtherDescriptor {
        /// Descriptor found.
        found: Box<[u8; 64]>,
        /// Descriptor wanted.
        wanted: Box<[u8; 64]>,
    },
    /// The superblock's bytes do not fit its checksum, or make no sense.
    Corrupt {
        /// Where the damaged part starts.
        at: RemotePtr,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The pool was created over more memory nodes than the control plane lists.
    NodesMissing {
        /// Nodes of the pool.
        created_with: u16,
        /// Nodes listed now.
        listed: u16,
    },
    /// A node's on-chip memory can't hold the lock table.
    ChipTooSmall {
        /// Which node.
        node: NodeId,
        /// Bytes that the table takes.
        wanted: u64,
        /// Bytes that there are.
        has: u64,
    },
    /// Somebody is creating the pool and does not finish (or died over it).
    CreationStuck {
        /// Where the state word lies.
        at: RemotePtr,
        /// The client that its last seen value names.
        creator: u16,
        /// How often it was looked at.
        attempts: u32,
    },
    /// The state word kept changing under every attempt to create.
    Contended(Exhausted),
    /// A block larger than a chunk, or of no bytes.
    BadSize {
        /// Bytes asked for.
        wanted: u32,
        /// Largest block.
        most: u64,
    },
    /// Every slot is taken by a compute node that announces itself.
    NoSlot {
        /// How many there are.
        slots: u16,
    },
    /// Every memory node is full.
    Exhausted {
        /// Bytes asked for.
        wanted: u32,
        /// How many nodes were tried.
        nodes_tried: u16,
    },
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verb(e) => write!(f, "superblock: {e}"),
            Self::Control(e) => write!(f, "control plane: {e}"),
            Self::NoMemoryNodes => f.write_str("there is no memory node"),
            Self::TooManyNodes { listed, most } => {
                write!(
                    f,
                    "{listed} memory nodes, but a superblock describes at most {most}"
                )
            }
            Self::NotFormatted { at, word: 0 } => {
                write!(f, "no pool was created here (empty state word at {at})")
            }
            Self::NotFormatted { at, word } => {
                write!(f, "no pool of dmkit: state word at {at} is {word:#018x}")
            }
            Self::OtherFormat { found, ours } => {
                write!(
                    f,
                    "the pool has format version {found}, this code knows version {ours}"
                )
            }
            Self::OtherKind { found, wanted } => {
                write!(
                    f,
                    "the pool holds an index of kind {}, not {}",
                    Kind(*found),
                    Kind(*wanted)
                )
            }
            Self::OtherDescriptor { found, wanted } => {
                let first = found
                    .iter()
                    .zip(wanted.iter())
                    .position(|(a, b)| a != b)
                    .unwrap_or(0);
                write!(
                    f,
                    "the pool's index has another geometry: descriptors differ from byte {first} on, found {:#04x}, \
                     wanted {:#04x}",
                    found[first], wanted[first]
                )
            }
            Self::Corrupt { at, what } => write!(f, "corrupt superblock at {at}: {what}"),
            Self::NodesMissing { created_with, listed } => {
                write!(
                    f,
                    "the pool spans {created_with} memory nodes, but only {listed} are listed"
                )
            }
            Self::ChipTooSmall { node, wanted, has } => {
                write!(
                    f,
                    "the lock table takes {wanted} bytes of {node}'s on-chip memory, which has {has}"
                )
            }
            Self::CreationStuck {
                at,
                creator,
                attempts,
            } => write!(
                f,
                "client {creator} began to create the pool and did not finish (state word at {at}, looked at \
                 {attempts} times)"
            ),
            Self::Contended(e) => write!(f, "creating the pool: {e}"),
            Self::BadSize { wanted, most } => {
                write!(
                    f,
                    "a block of {wanted} bytes: blocks have 1 to {most} bytes (one chunk)"
                )
            }
            Self::NoSlot { slots } => write!(f, "all {slots} slots for members are taken"),
            Self::Exhausted { wanted, nodes_tried } => {
                write!(
                    f,
                    "out of memory: no room for {wanted} bytes on any of {nodes_tried} memory nodes"
                )
            }
        }
    }
}

/// A kind number, with its letters where it is made of four.
struct Kind(u32);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = self.0.to_le_bytes();
        match core::str::from_utf8(&letters) {
            Ok(text) if letters.iter().all(u8::is_ascii_graphic) => write!(f, "{text:?}"),
            _ => write!(f, "{:#x}", self.0),
        }
    }
}

impl core::error::Error for AllocError {}

impl From<VerbError> for AllocError {
    fn from(e: VerbError) -> Self {
        Self::Verb(e)
    }
}

impl From<ControlError> for AllocError {
    fn from(e: ControlError) -> Self {
        Self::Control(e)
    }
}

impl AllocError {
    /// What a pool lacks of the world, where it is that.
    pub fn missing(&self) -> Option<Capability> {
        matches!(self, Self::ChipTooSmall { .. }).then_some(Capability::ChipMemory)
    }
}

/// As an operation's error.
impl From<AllocError> for IndexError {
    fn from(e: AllocError) -> Self {
        match e {
            AllocError::Verb(e) => Self::Verb(e),
            AllocError::Control(e) => Self::Control(e),
            AllocError::Contended(e) => Self::Exhausted(e),
            AllocError::Exhausted { wanted, nodes_tried } => Self::OutOfMemory {
                wanted: u64::from(wanted),
                nodes: nodes_tried,
            },
            AllocError::NoSlot { .. } => Self::Pool {
                at: RemotePtr::NULL,
                why: "all slots for members are taken by compute nodes that announce themselves",
            },
            AllocError::NoMemoryNodes => Self::OutOfMemory { wanted: 0, nodes: 0 },
            AllocError::BadSize { .. } => Self::BadInput {
                why: "a node is larger than a chunk",
            },
            // The rest are a superblock's, which allocation does not touch.
            _ => Self::Pool {
                at: RemotePtr::NULL,
                why: "the pool does not fit this index",
            },
        }
    }
}
