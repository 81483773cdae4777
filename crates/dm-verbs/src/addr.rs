//! Addresses of remote memory. Pointers to host memory and to on-chip memory have different types, so that they cannot
//! be confused.

use core::fmt;

/// Size in bytes of a cache line, the unit in which most memory nodes write memory.
pub const LINE: usize = 64;

const OFFSET_BITS: u32 = 48;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// A memory node, numbered from 0 in the order of the control plane's list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mn{}", self.0)
    }
}

macro_rules! pointer {
    ($(#[$doc:meta])* $name:ident, $space:expr, $tag:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u64);

        impl $name {
            /// The null pointer: node 0, offset 0. In host memory, this is in a reserved page (see
            /// [`crate::RESERVED_BYTES`]).
            pub const NULL: Self = Self(0);

            /// Returns the pointer `offset` bytes into `node`'s memory, or `None` if `offset` is 2^48 or
            /// more.
            #[inline]
            pub const fn new(node: NodeId, offset: u64) -> Option<Self> {
                if offset > OFFSET_MASK { None } else { Some(Self((node.0 as u64) << OFFSET_BITS | offset)) }
            }
            /// Decodes the 64-bit form: a 16-bit node id above a 48-bit offset (Sherman §4.2.1). Every word
            /// is valid.
            #[inline]
            pub const fn from_raw(raw: u64) -> Self {
                Self(raw)
            }
            /// Returns the 64-bit form.
            #[inline]
            pub const fn raw(self) -> u64 {
                self.0
            }
            /// Returns the memory node.
            #[inline]
            pub const fn node(self) -> NodeId {
                NodeId((self.0 >> OFFSET_BITS) as u16)
            }
            /// Returns the offset in bytes from the start of this memory.
            #[inline]
            pub const fn offset(self) -> u64 {
                self.0 & OFFSET_MASK
            }
            /// Returns the pointer `bytes` further on the same node. The offset wraps at 2^48. A request beyond the
            /// node's memory fails.
            #[inline]
            #[must_use]
            pub const fn add(self, bytes: u64) -> Self {
                Self(self.0 & !OFFSET_MASK | (self.0.wrapping_add(bytes)) & OFFSET_MASK)
            }
            /// Returns whether this is [`Self::NULL`].
            #[inline]
            pub const fn is_null(self) -> bool {
                self.0 == 0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}", $tag, "{:#x}"), self.node(), self.offset())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
        impl From<$name> for Place {
            #[inline]
            fn from(p: $name) -> Place {
                Place { raw: p.0, space: $space }
            }
        }
    };
}

pointer!(
    /// A place in a memory node's host memory: 16-bit node id, 48-bit byte offset.
    RemotePtr, Space::Host, "+"
);
pointer!(
    /// A place in a memory node's on-chip ("device") memory: 16-bit node id, 48-bit byte offset.
    ChipPtr, Space::Chip, "@chip+"
);

/// One of the two memories of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Space {
    /// Host DRAM behind PCIe.
    Host,
    /// The card's own memory. It is small, and atomics on it need no PCIe transaction.
    Chip,
}

/// The target of a verb: either kind of pointer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    raw: u64,
    space: Space,
}

impl Place {
    /// Returns the memory node.
    #[inline]
    pub const fn node(self) -> NodeId {
        NodeId((self.raw >> OFFSET_BITS) as u16)
    }
    /// Returns the offset in bytes from the start of this memory.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.raw & OFFSET_MASK
    }
    /// Returns the memory of this place: host or on-chip.
    #[inline]
    pub const fn space(self) -> Space {
        self.space
    }
    /// Returns the 64-bit form of the pointer, without its space.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.raw
    }
    /// Returns the place `bytes` further in the same memory.
    #[inline]
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        Self {
            raw: self.raw & !OFFSET_MASK | self.raw.wrapping_add(bytes) & OFFSET_MASK,
            space: self.space,
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.space {
            Space::Host => RemotePtr(self.raw).fmt(f),
            Space::Chip => ChipPtr(self.raw).fmt(f),
        }
    }
}
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn packs_sixteen_and_forty_eight_bits() {
        let p = RemotePtr::new(NodeId(0xABCD), OFFSET_MASK).unwrap();
        assert_eq!((p.node(), p.offset()), (NodeId(0xABCD), OFFSET_MASK));
        assert_eq!(RemotePtr::from_raw(p.raw()), p);
        assert_eq!(RemotePtr::new(NodeId(1), OFFSET_MASK + 1), None);
        assert_eq!(
            p.add(1).node(),
            NodeId(0xABCD),
            "an overflow never changes the node"
        );
        assert_eq!(
            format!(
                "{} {}",
                RemotePtr::new(NodeId(3), 64).unwrap(),
                ChipPtr::new(NodeId(3), 8).unwrap()
            ),
            "mn3+0x40 mn3@chip+0x8"
        );
    }
}
