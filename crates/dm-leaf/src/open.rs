//! Why an index could not be opened.

use core::fmt;

use dm_alloc::AllocError;
use dm_index::IndexError;
use dm_layout::GeometryError;
use dm_lock::{LockError, Locks};
use dm_verbs::{Capability, NodeId, Refused, VerbError, Verbs};

/// Why an index could not be opened or created.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The pool: none there, another's, damaged, too small, unreachable.
    Pool(AllocError),
    /// Key, value and node sizes make no node, or no leaf.
    Geometry(GeometryError),
    /// The world does not promise what the chosen techniques need.
    Refused(Refused),
    /// The locks can't be what was asked for.
    Locks(LockError),
    /// An operation failed.
    Index(IndexError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(e) => e.fmt(f),
            Self::Geometry(e) => e.fmt(f),
            Self::Refused(e) => e.fmt(f),
            Self::Locks(e) => e.fmt(f),
            Self::Index(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for OpenError {}

/// Refuses a world by name in which one of `memory_nodes` lacks what one of `locks` can't do without, or what nodes with a
/// version in each line can't.
///
/// # Errors
/// [`OpenError::Refused`].
pub fn check_world<'l, V: Verbs>(
    v: &V,
    memory_nodes: u16,
    locks: impl IntoIterator<Item = &'l Locks> + Clone,
) -> Result<(), OpenError> {
    for node in (0..memory_nodes).map(NodeId) {
        let caps = v.caps(node);
        locks
            .clone()
            .into_iter()
            .try_for_each(|locks| locks.check(&caps))?;
        caps.require("line-versioned nodes", &[Capability::LineAtomicity])?;
    }
    Ok(())
}

impl From<AllocError> for OpenError {
    fn from(e: AllocError) -> Self {
        Self::Pool(e)
    }
}
impl From<GeometryError> for OpenError {
    fn from(e: GeometryError) -> Self {
        Self::Geometry(e)
    }
}
impl From<Refused> for OpenError {
    fn from(e: Refused) -> Self {
        Self::Refused(e)
    }
}
impl From<LockError> for OpenError {
    fn from(e: LockError) -> Self {
        match e {
            LockError::Refused(e) => Self::Refused(e),
            other => Self::Locks(other),
        }
    }
}
impl From<IndexError> for OpenError {
    fn from(e: IndexError) -> Self {
        Self::Index(e)
    }
}
impl From<VerbError> for OpenError {
    fn from(e: VerbError) -> Self {
        Self::Index(e.into())
    }
}
