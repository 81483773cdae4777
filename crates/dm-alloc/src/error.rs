//! The errors of superblocks and of allocation.

use core::fmt;

use dm_index::IndexError;
use dm_verbs::{Capability, ControlError, Exhausted, NodeId, RemotePtr, VerbError, VerbErrorKind};

use crate::page::State;

/// The reason why a pool could not be created or opened, or why memory could not be allocated.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AllocError {
    /// A verb failed.
    Verb(VerbError),
    /// A request to the control plane failed.
    Control(ControlError),
    /// The control plane lists no memory node, or the allocator has none.
    NoMemoryNodes,
    /// There are more memory nodes than a superblock can list, or than the index's addresses can distinguish.
    TooManyNodes {
        /// Number of memory nodes.
        listed: u16,
        /// Largest possible number.
        most: u16,
    },
    /// There is no pool here that can be opened: the state word is empty, shows that the creation is not finished, or
    /// was not written by dmkit.
    NotFormatted {
        /// Address of the state word.
        at: RemotePtr,
        /// Its value.
        word: u64,
    },
    /// The superblock was written by another version of the format.
    OtherFormat {
        /// Version found.
        found: u32,
        /// Version that this code reads and writes.
        ours: u32,
    },
    /// The pool holds another kind of index.
    OtherKind {
        /// Kind found.
        found: u32,
        /// Kind wanted.
        wanted: u32,
    },
    /// The pool holds the same kind of index with another geometry.
    OtherDescriptor {
        /// Descriptor found.
        found: Box<[u8; 64]>,
        /// Descriptor wanted.
        wanted: Box<[u8; 64]>,
    },
    /// The superblock, a record of a chunk, a magazine or a list of a census has impossible content.
    Corrupt {
        /// Start of the damaged part.
        at: RemotePtr,
        /// The fault.
        what: &'static str,
    },
    /// The pool was created over more memory nodes than the control plane lists.
    NodesMissing {
        /// Nodes of the pool.
        created_with: u16,
        /// Nodes listed now.
        listed: u16,
    },
    /// A memory node's on-chip memory is too small for the lock table.
    ChipTooSmall {
        /// The memory node.
        node: NodeId,
        /// Bytes that the table takes.
        wanted: u64,
        /// Bytes of on-chip memory.
        has: u64,
    },
    /// A new pool was to have lock tables without words ([`LockPlan::per_node`](crate::LockPlan::per_node) of 0).
    NoLocks,
    /// A client began to create the pool and did not finish. It may have died.
    CreationStuck {
        /// Address of the state word.
        at: RemotePtr,
        /// The client that was last seen in the state word.
        creator: u16,
        /// Number of READs of the state word.
        attempts: u32,
    },
    /// A retry loop has used up its attempts, or the time for which it waits for another client. This is also the error
    /// if a client cannot enlist again because its requests from an earlier membership may still land.
    Contended(Exhausted),
    /// A block of 0 bytes, or larger than a chunk.
    BadSize {
        /// Bytes requested.
        wanted: u32,
        /// Largest block.
        most: u64,
    },
    /// All slots are taken by compute nodes that announce themselves.
    NoSlot {
        /// Number of slots.
        slots: u16,
    },
    /// Every memory node is full.
    Exhausted {
        /// Bytes requested.
        wanted: u32,
        /// Number of memory nodes that were tried.
        nodes_tried: u16,
    },
}

impl AllocError {
    /// Returns whether this compute node was fenced.
    pub(crate) fn is_fenced(&self) -> bool {
        match self {
            Self::Verb(e) => e.kind == VerbErrorKind::Fenced,
            Self::Control(e) => *e == ControlError::Fenced,
            _ => false,
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verb(e) => e.fmt(f),
            Self::Control(e) => write!(f, "control plane: {e}"),
            Self::NoMemoryNodes => f.write_str("the control plane lists no memory node"),
            Self::TooManyNodes { listed, most } => {
                write!(
                    f,
                    "{listed} memory nodes, but a superblock describes at most {most}"
                )
            }
            Self::NotFormatted { at, word: 0 } => {
                write!(f, "no pool was created here (empty state word at {at})")
            }
            Self::NotFormatted { at, word } => match State::unpack(*word) {
                State::Creating { creator } => write!(
                    f,
                    "client {creator} has begun to create the pool and has not finished (state word at {at}): open it \
                     again later; if this does not help, the client has died"
                ),
                _ => write!(f, "not a pool of dmkit: the state word at {at} is {word:#018x}"),
            },
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
            Self::Corrupt { at, what } => write!(f, "corrupt pool data at {at}: {what}"),
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
            Self::NoLocks => f.write_str(
                "a pool needs at least one lock per memory node, and 0 are requested: set the number of locks per \
                 memory node to 1 or more",
            ),
            Self::CreationStuck {
                at,
                creator,
                attempts,
            } => write!(
                f,
                "client {creator} began to create the pool and did not finish (state word at {at}, read \
                 {attempts} times)"
            ),
            Self::Contended(e) => e.fmt(f),
            Self::BadSize { wanted, most } => {
                write!(
                    f,
                    "a block of {wanted} bytes: blocks have 1 to {most} bytes (one chunk)"
                )
            }
            Self::NoSlot { slots } => write!(
                f,
                "all {slots} slots for members are taken by compute nodes that announce themselves"
            ),
            Self::Exhausted { wanted, nodes_tried } => {
                write!(
                    f,
                    "out of memory: no room for {wanted} bytes on any of {nodes_tried} memory nodes"
                )
            }
        }
    }
}

/// A kind number. It is shown as text if its four bytes are printable ASCII characters other than the space.
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

impl core::error::Error for AllocError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Verb(e) => Some(e),
            Self::Control(e) => Some(e),
            Self::Contended(e) => Some(e),
            _ => None,
        }
    }
}

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
    /// Returns the capability that the pool needs and this world lacks, if this is the error.
    pub fn missing(&self) -> Option<Capability> {
        matches!(self, Self::ChipTooSmall { .. }).then_some(Capability::ChipMemory)
    }
}

/// Converts to the error of an operation.
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
            AllocError::Corrupt { at, what } => Self::Pool { at, why: what },
            // All other errors are those of opening a pool.
            _ => Self::Pool {
                at: RemotePtr::NULL,
                why: "the pool does not fit this index",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use dm_verbs::{NodeId, Why};

    use super::*;

    #[test]
    fn an_operation_reports_the_place_of_damage() {
        let at = RemotePtr::new(NodeId(1), 0x1240).unwrap();
        let what = "a chunk longer than its node";
        let error = AllocError::Corrupt { at, what };
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(IndexError::from(error), IndexError::Pool { at, why: what });
    }

    /// The message of a failed request or of a lost race says nothing about the creation of a pool, because both can
    /// happen at any time.
    #[test]
    fn causes_are_reported_as_they_are() {
        let at = RemotePtr::new(NodeId(1), 0x1240).unwrap().into();
        let lost = VerbError::refused(VerbErrorKind::Unreachable, at);
        assert_eq!(AllocError::Verb(lost).to_string(), lost.to_string());
        let raced = Exhausted {
            at,
            why: Why::Raced,
            attempts: 9,
        };
        assert_eq!(AllocError::Contended(raced).to_string(), raced.to_string());
    }
}
