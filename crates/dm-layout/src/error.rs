//! The errors for bytes that are not a sound node, and for geometries that are not possible.

use core::fmt;

/// The error for bytes that no writer of this layout can have written. They belong to another object, or memory is
/// damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Corrupt {
    /// Offset in the node at which the contradiction was found.
    pub offset: usize,
    /// The contradiction.
    pub reason: Reason,
}

/// The reason why bytes are [`Corrupt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The buffer is not as long as a node of this geometry, or another object has a wrong length.
    Length,
    /// The kind byte, or what another object has in its place, belongs to another format.
    Kind,
    /// The state byte is not a valid state, or has unknown flags.
    State,
    /// The low fence key is not less than the high fence key.
    Fences,
    /// The presence byte of an entry has an invalid value.
    Presence,
    /// A hopscotch entry is outside the neighbourhood of its key.
    Neighbourhood,
    /// A count is greater than the capacity, or contradicts other bytes.
    Count,
    /// A key is duplicate, outside the fence keys, or not in order.
    Order,
    /// The entries do not fit into a node.
    Room,
    /// A line's control byte selects no shape, or marks entries that its shape does not have.
    Line,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "not the length of a node",
            Self::Kind => "kind byte of another format",
            Self::State => "no such node state",
            Self::Fences => "low fence not below high fence",
            Self::Presence => "presence byte neither empty nor present",
            Self::Neighbourhood => "entry outside the neighbourhood of its key",
            Self::Count => "more entries than the node holds",
            Self::Order => "entries out of order or outside the fences",
            Self::Room => "entries that do not fit into a node",
            Self::Line => "a line with an invalid shape, or with entries that its shape does not have",
        })
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corrupt node at byte {}: {}", self.offset, self.reason)
    }
}

impl core::error::Error for Corrupt {}

/// The part of a node whose guard detected a mixture of two WRITEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TornPart {
    /// The whole node: its lines, bookends or checksum disagree.
    Node,
    /// One entry: its versions disagree, although the node is consistent.
    Entry,
}

/// The reason why a node's bytes were not accepted.
///
/// ```
/// use dm_layout::{CheckFailure, Corrupt, FenceKeys, Key8, NodeEdit, NodeInit, NodeRead, NodeShape, Reason, Slotted, TornPart};
///
/// let format = Slotted::<Key8>::with_node_bytes(1024, 8)?;
/// let mut node = vec![0; format.node_bytes()];
/// format.build(&mut node, &NodeInit::live(0, FenceKeys::ALL), []);
/// // Half a node is corrupt; if a line has another version, the caller should read the node again.
/// let half = format.accept(&node[..512]).unwrap_err();
/// assert!(matches!(half, CheckFailure::Corrupt(Corrupt { reason: Reason::Length, .. })));
/// node[5 * 64] ^= 1;
/// let torn = format.accept(&node).unwrap_err();
/// assert!(torn.is_torn() && matches!(torn, CheckFailure::Torn { part: TornPart::Node, .. }));
/// # Ok::<(), dm_layout::GeometryError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckFailure {
    /// A WRITE was in progress, or a client died during it. Read the node again, within the retry limit.
    Torn {
        /// Offset at which the guard did not match.
        offset: usize,
        /// The part whose guard did not match.
        part: TornPart,
    },
    /// The bytes are not a node. Reading again does not help.
    Corrupt(Corrupt),
}

impl CheckFailure {
    pub(crate) const fn node_torn(offset: usize) -> Self {
        Self::Torn {
            offset,
            part: TornPart::Node,
        }
    }

    pub(crate) const fn entry_torn(offset: usize) -> Self {
        Self::Torn {
            offset,
            part: TornPart::Entry,
        }
    }

    pub(crate) const fn corrupt(offset: usize, reason: Reason) -> Self {
        Self::Corrupt(Corrupt { offset, reason })
    }

    /// Returns whether reading again may succeed.
    #[must_use]
    pub const fn is_torn(&self) -> bool {
        matches!(self, Self::Torn { .. })
    }
}

impl From<Corrupt> for CheckFailure {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn {
                offset,
                part: TornPart::Node,
            } => write!(f, "torn node at byte {offset}"),
            Self::Torn {
                offset,
                part: TornPart::Entry,
            } => write!(f, "torn entry at byte {offset}"),
            Self::Corrupt(corrupt) => corrupt.fmt(f),
        }
    }
}

impl core::error::Error for CheckFailure {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Corrupt(corrupt) => Some(corrupt),
            _ => None,
        }
    }
}

/// The reason why a geometry is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GeometryError {
    /// A node cannot have this size in bytes. It must consist of whole 64-byte lines: at least two lines, and at most
    /// 65,536 bytes.
    NodeBytes(usize),
    /// A key cannot have this number of bytes. It must have at least one byte, and at most 44 bytes, so that the header
    /// of a node fits into one line.
    KeyBytes(usize),
    /// A value cannot have this number of bytes. No node has room for two entries with such values, or no
    /// [`SingleLeaf`](crate::SingleLeaf) for one.
    ValueBytes(usize),
    /// Fewer than two entries fit, so such a node cannot split.
    TooFewEntries {
        /// The number of entries that fit.
        capacity: usize,
    },
    /// The requested number of entries is less than two, or too large for a node of 65,536 bytes. A hopscotch node has
    /// at most 512 entries. In [`NodeTypes`](crate::NodeTypes), this is instead an invalid number of slots, or 0 for an
    /// invalid number of types.
    Span(usize),
    /// A version must have 2 to 8 bits: at most 4 in bookend nodes, and at most 6 in hopscotch nodes.
    VersionBits(u8),
    /// A hop count must have 1 to 8 bits.
    HopBits(u8),
    /// Marked values cannot have this number of bytes. They need at least one byte, and must fit into one line with
    /// their key.
    Marked(usize),
    /// Values cannot have this number of bytes. In a packed node, a value is in one line with its key, and both
    /// together have at most 62 bytes.
    Packed(usize),
    /// A neighbourhood must have 2 to 16 entries, and not more than its node has.
    Neighbourhood(usize),
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeBytes(bytes) => {
                write!(
                    f,
                    "a node of {bytes} bytes: want a multiple of 64 from 128 to 65536"
                )
            }
            Self::KeyBytes(bytes) => write!(
                f,
                "keys of {bytes} bytes: want 1 to 44, so that a node's header fits into a line"
            ),
            Self::ValueBytes(bytes) => {
                write!(
                    f,
                    "values of {bytes} bytes are too long for a node or a leaf of this kind"
                )
            }
            Self::TooFewEntries { capacity } => write!(f, "a node of {capacity} entries cannot split"),
            Self::Span(span) => write!(
                f,
                "no node of at most 65536 bytes holds {span} entries and can split"
            ),
            Self::VersionBits(bits) => write!(f, "a version of {bits} bits does not fit this geometry"),
            Self::HopBits(bits) => write!(f, "a hop count of {bits} bits: want 1 to 8"),
            Self::Marked(bytes) => write!(
                f,
                "marked values of {bytes} bytes do not fit into a line with their key"
            ),
            Self::Packed(bytes) => write!(
                f,
                "values of {bytes} bytes do not fit into a packed line with their key"
            ),
            Self::Neighbourhood(entries) => write!(f, "a neighbourhood of {entries} entries: want 2 to 16"),
        }
    }
}

impl core::error::Error for GeometryError {}
