//! What may go wrong with a lock.

use core::fmt;

use dm_index::IndexError;
use dm_verbs::{ClientId, Exhausted, NodeId, Place, Refused, RemotePtr, VerbError, Why};

use crate::LockWord;

/// Why a lock was not taken, or not given back in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LockError {
    /// A verb failed. While locking: the lock is not held. While writing back: the data has the effect that the
    /// error says; the lock was undone as far as the connection allows, and otherwise names this client as owner.
    Verb(VerbError),
    /// The lock stayed held by others (or kept changing) for the whole budget: names the place, and the word last
    /// seen in [`Why::LockHeld`].
    Held(Exhausted),
    /// This client holds the lock already: two nodes share it. Take them as a set.
    AlreadyHeld {
        /// Where the lock lies.
        place: Place,
    },
    /// Clients that share the lock did not give it back within the whole budget: one of them has died, most likely. It is
    /// not held.
    Shared {
        /// Where the lock lies.
        place: Place,
        /// How many share it.
        sharers: u64,
        /// Attempts made.
        attempts: u32,
    },
    /// The lock was not this client's any more when it came to release it (it was taken over, or the word was
    /// overwritten). What was written back may collide with the new holder's writes.
    Lost {
        /// Where the lock lies.
        place: Place,
        /// The word that was expected.
        held: u64,
        /// The word that was found.
        found: u64,
    },
    /// The world lacks what the options need.
    Refused(Refused),
    /// No lock table is known for that memory node.
    NoLockTable {
        /// Which.
        node: NodeId,
    },
    /// A client id that doesn't fit into a lock word.
    ClientTooLarge {
        /// Which.
        client: ClientId,
    },
}

impl LockError {
    /// This, after data was written back: never one that claims no effect.
    pub(crate) fn after_effect(self) -> Self {
        match self {
            Self::Verb(e) => Self::Verb(e.after_effect()),
            other => other,
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verb(e) => e.fmt(f),
            Self::Held(Exhausted {
                at,
                why: Why::LockHeld { word },
                attempts,
            }) => {
                write!(
                    f,
                    "lock at {at} still {} after {attempts} attempts",
                    LockWord::unpack(*word)
                )
            }
            Self::Held(e) => write!(f, "lock: {e}"),
            Self::Shared {
                place,
                sharers,
                attempts,
            } => write!(
                f,
                "lock at {place} is still shared by {sharers} after {attempts} attempts"
            ),
            Self::AlreadyHeld { place } => write!(f, "lock at {place} is held by this client already"),
            Self::Lost { place, held, found } => write!(
                f,
                "lock at {place} was lost: expected {}, found {}",
                LockWord::unpack(*held),
                LockWord::unpack(*found)
            ),
            Self::Refused(e) => e.fmt(f),
            Self::NoLockTable { node } => write!(f, "no lock table on {node}"),
            Self::ClientTooLarge { client } => {
                write!(
                    f,
                    "{client}: lock words name clients below {}",
                    crate::CLIENTS_MAX
                )
            }
        }
    }
}

impl core::error::Error for LockError {}

impl From<VerbError> for LockError {
    fn from(e: VerbError) -> Self {
        Self::Verb(e)
    }
}
impl From<Exhausted> for LockError {
    fn from(e: Exhausted) -> Self {
        Self::Held(e)
    }
}
impl From<Refused> for LockError {
    fn from(e: Refused) -> Self {
        Self::Refused(e)
    }
}

impl From<LockError> for IndexError {
    /// As an index's error.
    fn from(e: LockError) -> Self {
        match e {
            LockError::Verb(e) => IndexError::Verb(e),
            LockError::Refused(e) => IndexError::Refused(e),
            LockError::Held(Exhausted {
                at,
                why: Why::LockHeld { word },
                attempts,
            }) => IndexError::LockTimeout {
                lock: at,
                owner: LockWord::unpack(word).owner,
                attempts,
            },
            LockError::Held(e) => IndexError::Exhausted(e),
            LockError::Lost { place, .. } => IndexError::Lock {
                lock: place,
                why: "it was taken over or overwritten while this client held it",
            },
            LockError::Shared { place, .. } => IndexError::Lock {
                lock: place,
                why: "clients that share it don't give it back: one has died, most likely",
            },
            LockError::AlreadyHeld { place } => IndexError::Lock {
                lock: place,
                why: "this client holds it already",
            },
            LockError::NoLockTable { node } => IndexError::Lock {
                lock: RemotePtr::new(node, 0).unwrap_or(RemotePtr::NULL).into(),
                why: "its memory node has no lock table",
            },
            _ => IndexError::BadInput {
                why: "this client's number does not fit into a lock word",
            },
        }
    }
}
