//! Errors of opening an index.

use core::fmt;

use dm_alloc::AllocError;
use dm_index::IndexError;
use dm_layout::GeometryError;
use dm_lock::{LockError, Locks};
use dm_verbs::{Capability, NodeId, Refused, VerbError, Verbs};

/// An error of opening or creating an index.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// An error of the pool: it does not exist, holds another kind of index, is damaged or too small, or cannot be
    /// reached.
    Pool(AllocError),
    /// There is no layout for these sizes of keys, values and nodes.
    Geometry(GeometryError),
    /// The world lacks a capability that the chosen techniques need.
    Refused(Refused),
    /// A lock failed for another reason than a missing capability.
    Locks(LockError),
    /// An operation on the index failed.
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

impl core::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(match self {
            Self::Pool(e) => e,
            Self::Geometry(e) => e,
            Self::Refused(e) => e,
            Self::Locks(e) => e,
            Self::Index(e) => e,
        })
    }
}

/// Checks that the first `memory_nodes` memory nodes have all required capabilities. Required are those that one of
/// `locks` needs and for which it has no fallback, and [`Capability::LineAtomicity`], which nodes with line versions
/// need.
///
/// # Errors
/// Returns [`OpenError::Refused`], which names the missing capability, if a memory node lacks one.
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
        caps.require("a line-versioned node", &[Capability::LineAtomicity])?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::error::Error;
    use dm_index::LockFault;
    use dm_verbs::{Place, RemotePtr, VerbErrorKind};

    /// Returns the error and its causes, the outermost first.
    fn chain(error: &(dyn Error + 'static)) -> Vec<String> {
        core::iter::successors(Some(error), |&error| error.source())
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn an_error_leads_to_its_first_cause() {
        let at = RemotePtr::NULL.into();
        let verb = VerbError::refused(VerbErrorKind::Fenced, at);
        let error = OpenError::Index(IndexError::Verb(verb));
        let causes = chain(&error);
        assert_eq!(causes.len(), 3, "{causes:?}");
        assert_eq!(causes[2], verb.to_string());
    }

    #[test]
    fn an_index_says_what_is_wrong_with_a_lock() {
        let place: Place = RemotePtr::NULL.into();
        let lost = LockError::Lost {
            place,
            held: 1,
            found: 2,
        };
        let error = IndexError::from(lost);
        let fault = LockFault::Lost { held: 1, found: 2 };
        assert!(matches!(error, IndexError::Lock { why, .. } if why == fault));
        assert_eq!(chain(&error)[1..], [fault.to_string()]);
    }
}
