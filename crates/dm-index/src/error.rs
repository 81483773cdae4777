//! Errors of index operations. Each names the place and the reason. A lost race is not an error.

use core::fmt;

use dm_layout::Corrupt;
use dm_verbs::{ControlError, Effect, Exhausted, Place, Refused, RemotePtr, VerbError};

/// The reason why an index operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum IndexError {
    /// A verb failed.
    Verb(VerbError),
    /// The control plane failed or refused.
    Control(ControlError),
    /// A retry loop used up its budget.
    Exhausted(Exhausted),
    /// A lock remained held throughout all attempts.
    LockTimeout {
        /// The lock word.
        lock: Place,
        /// The client that owns the lock, according to the lock word.
        owner: u16,
        /// Number of attempts.
        attempts: u32,
    },
    /// A lock could not be taken, or was lost.
    Lock {
        /// The lock word.
        lock: Place,
        /// The cause.
        why: LockFault,
    },
    /// A node's bytes contradict each other.
    Corrupt {
        /// The node.
        node: RemotePtr,
        /// The damaged part, and what is wrong with it.
        what: Corrupt,
    },
    /// An address led to a node of another level than the parent records.
    WrongLevel {
        /// The node.
        node: RemotePtr,
        /// The level of the node.
        found: u8,
        /// The level that the parent records.
        expected: u8,
    },
    /// No memory node has room.
    OutOfMemory {
        /// Bytes requested.
        wanted: u64,
        /// Number of memory nodes that were tried.
        nodes: u16,
    },
    /// The pool's superblock does not match the index to open, data of the pool is damaged, or an address does not fit
    /// into a parent's entry.
    Pool {
        /// The address.
        at: RemotePtr,
        /// The mismatch or damage.
        why: &'static str,
    },
    /// The world lacks a capability that the index needs.
    Refused(Refused),
    /// A value has the wrong length.
    ValueLength {
        /// Bytes of the value.
        found: usize,
        /// The index's value length.
        expected: usize,
    },
    /// A bulk load found entries, or an empty leaf, in the index.
    NotEmpty {
        /// The root, or the first leaf.
        root: RemotePtr,
    },
    /// The operation took effect, but the levels above could not be updated. After a split, operations reach the new
    /// node through its left neighbour.
    Unlinked {
        /// The new node after a split. After a remove, the node that was to be merged or unlinked.
        right: RemotePtr,
        /// The reason why the levels above could not be updated.
        why: &'static str,
    },
    /// An argument is invalid.
    BadInput {
        /// The argument, and what is wrong with it.
        why: &'static str,
    },
}

/// The reason why a lock could not be taken, or was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LockFault {
    /// Another client took the lock over, or its word was overwritten, while this client held it.
    Lost {
        /// The word that was expected.
        held: u64,
        /// The word that was found.
        found: u64,
    },
    /// The sharers of the lock did not release it.
    Shared {
        /// Number of sharers.
        sharers: u64,
        /// Number of attempts.
        attempts: u32,
    },
    /// This client holds the lock already.
    AlreadyHeld,
    /// The memory node has no lock table.
    NoTable,
}

impl fmt::Display for LockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { held, found } => write!(
                f,
                "it was taken over or overwritten while this client held it (word {found:#018x} instead of {held:#018x})"
            ),
            Self::Shared { sharers, attempts } => write!(
                f,
                "its {sharers} sharers did not release it in {attempts} attempts: one of them has probably died"
            ),
            Self::AlreadyHeld => f.write_str("this client holds it already"),
            Self::NoTable => f.write_str("its memory node has no lock table"),
        }
    }
}

impl core::error::Error for LockFault {}

impl IndexError {
    /// Returns whether the operation that failed may have had an effect.
    pub fn effect(&self) -> Effect {
        match self {
            Self::Verb(e) => e.overall(),
            Self::Unlinked { .. } => Effect::Done,
            Self::Refused(_) | Self::ValueLength { .. } | Self::NotEmpty { .. } | Self::BadInput { .. } => {
                Effect::None
            }
            // An operation may return these errors before its write. It may also return them after its write has taken
            // effect, if it cannot update the levels above (`after_effect`).
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
    /// Converts the error of an operation that had already taken effect, so that [`IndexError::effect`] does not return
    /// [`Effect::None`]. `right` is the node that [`IndexError::Unlinked`] names.
    #[must_use]
    pub fn after_effect(self, right: RemotePtr) -> Self {
        match self {
            Self::Verb(e) => Self::Verb(e.after_effect()),
            Self::Refused(_) => Self::Unlinked {
                right,
                why: "the world does not promise what the parent's lock needs",
            },
            Self::ValueLength { .. } => Self::Unlinked {
                right,
                why: "they store values of another length",
            },
            Self::NotEmpty { .. } => Self::Unlinked {
                right,
                why: "they have entries, although a bulk load needs an empty index",
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
                write!(
                    f,
                    "node {node} has level {found}, but its parent records {expected}"
                )
            }
            Self::OutOfMemory { wanted, nodes } => {
                write!(
                    f,
                    "out of memory: none of {nodes} memory nodes has {wanted} bytes left"
                )
            }
            Self::Pool { at, why } => write!(f, "pool at {at}: {why}"),
            Self::Refused(e) => e.fmt(f),
            Self::ValueLength { found, expected } => {
                write!(
                    f,
                    "the value has {found} bytes, but the index stores values of {expected} bytes"
                )
            }
            Self::NotEmpty { root } => write!(f, "bulk load into an index that has entries (root {root})"),
            Self::Unlinked { right, why } => {
                write!(
                    f,
                    "the operation took effect, but the levels above node {right} could not be updated: {why}"
                )
            }
            Self::BadInput { why } => f.write_str(why),
        }
    }
}

impl core::error::Error for IndexError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Verb(e) => Some(e),
            Self::Control(e) => Some(e),
            Self::Exhausted(e) => Some(e),
            Self::Lock { why, .. } => Some(why),
            Self::Corrupt { what, .. } => Some(what),
            Self::Refused(e) => Some(e),
            _ => None,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use dm_verbs::{Capability, NodeId, VerbErrorKind};

    /// The error of a split names a new node, and the error of a remove names an old one.
    #[test]
    fn a_node_that_is_not_linked_need_not_be_new() {
        let right = RemotePtr::new(NodeId(1), 0x1240).expect("a small offset");
        let why = "the parent is full";
        let error = IndexError::Unlinked { right, why };
        assert_eq!(error.effect(), Effect::Done);
        let text = error.to_string();
        assert!(text.contains(&right.to_string()) && text.contains(why), "{text}");
        assert!(!text.contains("new"), "{text}");
    }

    /// An inner structure may return any error for the update of the levels above.
    #[test]
    fn no_error_after_an_effect_says_that_there_was_none() {
        let right = RemotePtr::new(NodeId(1), 0x1240).expect("a small offset");
        let before = [
            IndexError::Verb(VerbError::refused(VerbErrorKind::QueueFull, right.into())),
            IndexError::Refused(Refused {
                protocol: "a lock",
                missing: Capability::ChipMemory,
            }),
            IndexError::ValueLength {
                found: 3,
                expected: 8,
            },
            IndexError::NotEmpty { root: right },
            IndexError::BadInput { why: "too long" },
        ];
        for error in before {
            assert_eq!(error.effect(), Effect::None);
            let after = error.after_effect(right);
            assert_ne!(after.effect(), Effect::None, "{error} became {after}");
        }
    }
}
