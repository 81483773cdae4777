//! The leaf layouts of the paper, and of the systems with which the paper compares Sherman.

use dm_layout::{Bookend, Checksummed, GeometryError, KeyBytes, NodeFormat, Slotted};

use crate::NodeSize;

/// A leaf layout that a tree can have. The supertrait [`NodeFormat`] seals this trait.
///
/// ```
/// use sherman::{Key8, Options, Sherman};
///
/// // The descriptor of a pool depends on the leaves' layout, so pools of different layouts are not confused.
/// let (two_level, checksummed) = (
///     Sherman::<Key8>::descriptor(&Options::new(8)),
///     Sherman::<Key8, dm_layout::Checksummed<Key8>>::descriptor(&Options::new(8)),
/// );
/// assert_ne!(two_level.bytes, checksummed.bytes);
/// ```
pub trait LeafFormat<K: KeyBytes>: NodeFormat<K> {
    /// A number that distinguishes pools of different layouts.
    const TAG: u8;
    /// Makes the layout for nodes of this size and values of `value_bytes` bytes.
    ///
    /// # Errors
    /// Returns [`GeometryError`] if no node has these sizes.
    fn of(node: NodeSize, value_bytes: usize) -> Result<Self, GeometryError>;
}

macro_rules! leaf_format {
    ($node:ident, $tag:literal) => {
        impl<K: KeyBytes> LeafFormat<K> for $node<K> {
            const TAG: u8 = $tag;
            fn of(node: NodeSize, value_bytes: usize) -> Result<Self, GeometryError> {
                match node {
                    NodeSize::Bytes(bytes) => Self::with_node_bytes(bytes, value_bytes),
                    NodeSize::Span(span) => Self::with_span(span, value_bytes),
                }
            }
        }
    };
}
leaf_format!(Slotted, 1);
leaf_format!(Checksummed, 2);
leaf_format!(Bookend, 3);
