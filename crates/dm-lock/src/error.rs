//! Errors of locks.

use core::fmt;

use dm_index::{IndexError, LockFault};
use dm_verbs::{ClientId, Exhausted, NodeId, Place, Refused, RemotePtr, VerbError, Why};

use crate::LockWord;

/// An error of taking or releasing a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LockError {
    /// A verb failed. If it failed while locking, the lock is not held, unless the connection is lost and the CAS took
    /// effect. If it failed during a write-back, the error says whether the data was written. The lock was then
    /// released if the connection still works; otherwise it may stay held.
    Verb(VerbError),
    /// Other clients held the lock or had the local turn, or the word kept changing, until the budget was used up.
    /// Sharing also ends in this error after the client has met 16 holders, or while sharing is forbidden
    /// ([`Locks::is_shut`](crate::Locks::is_shut)). The error names the place, and [`Why::LockHeld`] has the word that
    /// was seen last.
    Held(Exhausted),
    /// This client holds the lock already, for this node or for another node that has the same lock. Take the locks of
    /// several nodes with [`Locks::lock_set`](crate::Locks::lock_set).
    AlreadyHeld {
        /// The place of the lock word.
        place: Place,
    },
    /// The budget was used up before all sharers of the lock had released it; most likely one of them has died. If
    /// [`Guard::insist`](crate::Guard::insist) returns this error, the guard holds the lock until it is dropped. In all
    /// other cases, this client does not hold the lock.
    Shared {
        /// The place of the lock word.
        place: Place,
        /// The number of sharers.
        sharers: u64,
        /// The number of attempts.
        attempts: u32,
    },
    /// This client no longer held or shared the lock when it released it: another client took the lock over, or the
    /// word was overwritten. The data that was written back may conflict with writes of the new holder.
    Lost {
        /// The place of the lock word.
        place: Place,
        /// The word that was expected. For a share, this is a word with one sharer.
        held: u64,
        /// The word that was found.
        found: u64,
    },
    /// The world lacks a capability that the options need.
    Refused(Refused),
    /// The memory node has no lock table.
    NoLockTable {
        /// The memory node.
        node: NodeId,
    },
    /// Nodes contain their own lock words, but no node can begin at this address: it is not 64-byte aligned, or the
    /// lock word would end beyond the 2^48 bytes that addresses can name. The address probably comes from damaged
    /// data.
    NoLockWord {
        /// The address.
        at: RemotePtr,
    },
    /// A chain or a READ goes to a memory node on which the guard has no lock. A lock guards only memory of its own
    /// memory node. Nothing was posted.
    NotGuarded {
        /// The memory node of the chain or of the READ.
        node: NodeId,
    },
    /// The client's id does not fit into a lock word.
    ClientTooLarge {
        /// The client.
        client: ClientId,
    },
}

impl LockError {
    /// Converts this error for an operation that has already written data: the result never says that there
    /// was no effect.
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
                    "lock at {at} is still {} after {attempts} attempts",
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
                "lock at {place} is still shared by {sharers} clients after {attempts} attempts"
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
            Self::NoLockWord { at } => write!(
                f,
                "no node with a lock word can begin at {at}: it must be 64-byte aligned, and its lock word must end \
                 within 2^48 bytes"
            ),
            Self::NotGuarded { node } => write!(
                f,
                "data on {node} is not guarded: none of the guard's locks is on this memory node"
            ),
            Self::ClientTooLarge { client } => {
                write!(
                    f,
                    "{client} does not fit into a lock word: ids must be below {}",
                    crate::CLIENTS_MAX
                )
            }
        }
    }
}

impl core::error::Error for LockError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Verb(e) => Some(e),
            Self::Held(e) => Some(e),
            Self::Refused(e) => Some(e),
            _ => None,
        }
    }
}

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
    /// Converts a lock's error to the error of an index.
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
            LockError::Lost { place, held, found } => IndexError::Lock {
                lock: place,
                why: LockFault::Lost { held, found },
            },
            LockError::Shared {
                place,
                sharers,
                attempts,
            } => IndexError::Lock {
                lock: place,
                why: LockFault::Shared { sharers, attempts },
            },
            LockError::AlreadyHeld { place } => IndexError::Lock {
                lock: place,
                why: LockFault::AlreadyHeld,
            },
            LockError::NoLockTable { node } => IndexError::Lock {
                lock: RemotePtr::new(node, 0).unwrap_or(RemotePtr::NULL).into(),
                why: LockFault::NoTable,
            },
            LockError::NoLockWord { at } => IndexError::Pool {
                at,
                why: "no node with a lock word can begin at this address",
            },
            LockError::NotGuarded { .. } => IndexError::BadInput {
                why: "a chain or a READ goes to a memory node on which the guard has no lock",
            },
            LockError::ClientTooLarge { .. } => IndexError::BadInput {
                why: "this client's id does not fit into a lock word",
            },
        }
    }
}
