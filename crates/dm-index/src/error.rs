//! Errors of index operations. Each names the place and the reason; a lost race is none.

use core::fmt;

use dm_layout::Corrupt;
use dm_verbs::{ControlError, Effect, Exhausted, Place, Refused, RemotePtr, VerbError};

/// Why an index operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum IndexError {
    /// A verb failed.
    Verb(VerbError),
    /// The control plane failed or refused.
    Control(ControlError),
    /// A retry loop used up its budget.
    Exhausted(Exhausted),
    /// A lock is held and its holder makes no progress.
    LockTimeout {
        /// The lock word.
        lock: Place,
        /// The client that it names.
        owner: u16,
        /// Attempts made.
        attempts: u32,
    },
    /// A lock could not be taken or was lost.
    Lock {
        /// The lock word.
        lock: Place,
        /// What happened.
        why: &'static str,
    },
    /// A node's bytes contradict themselves.
    Corrupt {
        /// The node.
        node: RemotePtr,
        /// Where in it, and how.
        what: Corrupt,
    },
    /// An address led to a node of another level than its parent says.
    WrongLevel {
        /// The node.
        node: RemotePtr,
        /// Its level.
        found: u8,
        /// What was expected.
        expected: u8,
    },
    /// No memory node has room.
    OutOfMemory {
        /// Bytes asked for.
        wanted: u64,
        /// How many memory nodes were asked.
        nodes: u16,
    },
    /// The pool's superblock does not fit what was asked for.
    Pool {
        /// Where.
        at: RemotePtr,
        /// How.
        why: &'static str,
    },
    /// The world does not promise what the index needs.
    Refused(Refused),
    /// A value of the wrong length.
    ValueLength {
        /// Its bytes.
        found: usize,
        /// The index's value length.
        expected: usize,
    },
    /// A bulk load found entries in the index.
    NotEmpty {
        /// The root.
        root: RemotePtr,
    },
    /// The operation took effect and split a node, but the levels above could not be told. The new node is reached
    /// over its left neighbour.
    Unlinked {
        /// The new node.
        right: RemotePtr,
        /// Why not.
        why: &'static str,
    },
    /// An argument makes no sense.
    BadInput {
        /// Which and why.
        why: &'static str,
    },
}

impl IndexError {
    /// Whether the operation that answered this may have had an effect.
    pub fn effect(&self) -> Effect {
        match self {
            Self::Verb(e) => e.overall(),
            Self::Unlinked { .. } => Effect::Done,
            Self::Refused(_) | Self::ValueLength { .. } | Self::NotEmpty { .. } | Self::BadInput { .. } => {
                Effect::None
            }
            // An operation stops at these before it writes, or after its own write was undone or never posted; a
            // split's follow-up may still be missing in the parent, which changes no answer.
            Self::Control(_) | Self::Exhausted(_) | Self::LockTimeout { .. } | Self::OutOfMemory { .. } => {
                Effect::Unknown
            }
            Self::Lock { .. } | Self::Corrupt { .. } | Self::WrongLevel { .. } | Self::Pool { .. } => {
                Effect::Unknown
            }
        }
    }
}

impl IndexError {
    /// This, as an operation answers it that had taken effect before: never one that claims no effect. `right` is the
    /// node that its split made.
    #[must_use]
    pub fn after_effect(self, right: RemotePtr) -> Self {
        match self {
            Self::Verb(e) => Self::Verb(e.after_effect()),
            Self::Refused(_) => Self::Unlinked {
                right,
                why: "the world does not promise what the parent's lock needs",
            },
            Self::BadInput { why } => Self::Unlinked { right, why },
            other => other,
        }
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verb(e) => e.fmt(f),
            Self::Control(e) => e.fmt(f),
            Self::Exhausted(e) => e.fmt(f),
            Self::LockTimeout {
                lock,
                owner,
                attempts,
            } => {
                write!(
                    f,
                    "lock at {lock} still held by client {owner} after {attempts} attempts"
                )
            }
            Self::Lock { lock, why } => write!(f, "lock at {lock}: {why}"),
            Self::Corrupt { node, what } => write!(f, "node {node}: {what}"),
            Self::WrongLevel {
                node,
                found,
                expected,
            } => {
                write!(f, "node {node} is of level {found}, not {expected}")
            }
            Self::OutOfMemory { wanted, nodes } => {
                write!(f, "out of memory: {wanted} bytes on none of {nodes} memory nodes")
            }
            Self::Pool { at, why } => write!(f, "pool at {at}: {why}"),
            Self::Refused(e) => e.fmt(f),
            Self::ValueLength { found, expected } => {
                write!(
                    f,
                    "a value of {found} bytes in an index of {expected}-byte values"
                )
            }
            Self::NotEmpty { root } => write!(f, "bulk load into an index that has entries (root {root})"),
            Self::Unlinked { right, why } => {
                write!(f, "done, but split node {right} is not linked above: {why}")
            }
            Self::BadInput { why } => f.write_str(why),
        }
    }
}

impl core::error::Error for IndexError {}

impl From<VerbError> for IndexError {
    fn from(e: VerbError) -> Self {
        Self::Verb(e)
    }
}
impl From<ControlError> for IndexError {
    fn from(e: ControlError) -> Self {
        Self::Control(e)
    }
}
impl From<Exhausted> for IndexError {
    fn from(e: Exhausted) -> Self {
        Self::Exhausted(e)
    }
}
impl From<Refused> for IndexError {
    fn from(e: Refused) -> Self {
        Self::Refused(e)
    }
}
