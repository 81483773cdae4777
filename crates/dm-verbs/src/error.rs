//! Errors of verbs: which request failed, why, and whether it changed memory.

use core::fmt;

use crate::{Capability, Place, Space};

/// Whether a failed request changed remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The request had no effect, and never will.
    None,
    /// The request may have had an effect (the acknowledgement was lost), or may have one later (it is still in the
    /// fabric). After the control plane has fenced the client, it has no further effect. The same holds after another
    /// request of the same client to the same memory node has taken effect, because a world that reconnects a client
    /// shuts the old queue pair first. A request to another memory node, or by another client, does not change this.
    Unknown,
    /// The request had its effect, and only the answer was lost.
    Done,
}

/// The error of a chain. The requests before number `index` had their effect, request `index` has the effect `effect`,
/// and the later requests have the effect `rest`.
///
/// When a queue pair fails, all chains that the client has in flight to this memory node fail. If a request is never
/// carried out, no later request of its queue pair is carried out either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerbError {
    /// The reason.
    pub kind: VerbErrorKind,
    /// The address of the request that failed.
    pub at: Place,
    /// The number of this request in the chain, from 0.
    pub index: u16,
    /// The effect of this request.
    pub effect: Effect,
    /// The effect of the requests after it.
    pub rest: Effect,
}

/// The reason why a verb failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VerbErrorKind {
    /// The memory node does not exist.
    NoSuchNode,
    /// The memory node does not answer.
    Unreachable,
    /// The connection was lost while the chain was in flight.
    ConnectionLost,
    /// The memory node's card refused the request, because of a wrong key or because the memory is no longer part of
    /// the pool. The connection is lost too.
    Refused,
    /// The access ends beyond the node's memory. If the node has no on-chip memory, a request to it is
    /// [`VerbErrorKind::Unsupported`] instead, whatever its address is.
    OutOfBounds {
        /// Size of this memory in bytes.
        size: u64,
    },
    /// The address of an atomic or a word READ is not a multiple of 8.
    Misaligned,
    /// A READ has no bytes, or a READ or a WRITE is longer than the world allows.
    BadLength {
        /// The requested length in bytes.
        len: u64,
    },
    /// The world lacks this capability, which the request needs.
    Unsupported(Capability),
    /// The control plane has fenced this client.
    Fenced,
    /// This client has too many chains or buffers in flight.
    QueueFull,
    /// A process died while it wrote to a line of a shared region, and has left the line locked.
    DeadWriter {
        /// The process id.
        process: u32,
    },
    /// A process keeps a line of a shared region locked. The process is alive but makes no progress; most likely it
    /// was stopped.
    BusyWriter {
        /// The process id.
        process: u32,
    },
}

impl VerbErrorKind {
    /// Returns the reason why a memory of `size` bytes in `space` has no room for an access: the node has no such
    /// memory, or the access ends beyond it.
    #[cold]
    pub const fn beyond(space: Space, size: u64) -> Self {
        match (space, size) {
            (Space::Chip, 0) => Self::Unsupported(Capability::ChipMemory),
            _ => Self::OutOfBounds { size },
        }
    }
}

impl VerbError {
    /// Makes the error of a request that was refused before any request of its chain was sent.
    pub const fn refused(kind: VerbErrorKind, at: Place) -> Self {
        Self {
            kind,
            at,
            index: 0,
            effect: Effect::None,
            rest: Effect::None,
        }
    }
    /// Converts this error for an operation that has posted an earlier chain. The operation as a whole may have had an
    /// effect, even if this chain had none.
    #[must_use]
    pub fn after_effect(mut self) -> Self {
        if self.overall() == Effect::None {
            self.rest = Effect::Unknown;
        }
        self
    }
    /// Returns the effect of the whole chain: `None` or `Done` if every request has this effect, otherwise `Unknown`.
    pub fn overall(&self) -> Effect {
        match (self.index, self.effect, self.rest) {
            (0, Effect::None, Effect::None) => Effect::None,
            (_, Effect::Done, Effect::Done) => Effect::Done,
            _ => Effect::Unknown,
        }
    }
}

impl fmt::Display for VerbErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchNode => f.write_str("no such memory node"),
            Self::Unreachable => f.write_str("memory node unreachable"),
            Self::ConnectionLost => f.write_str("connection lost in flight"),
            Self::Refused => f.write_str("refused by the memory node's card"),
            Self::OutOfBounds { size } => write!(f, "beyond the node's {size} bytes"),
            Self::Misaligned => f.write_str("address is not a multiple of 8"),
            Self::BadLength { len } => write!(f, "bad length {len}"),
            Self::Unsupported(c) => write!(f, "needs {c}, which this world lacks"),
            Self::Fenced => f.write_str("this client was fenced off"),
            Self::QueueFull => f.write_str("too many chains in flight"),
            Self::DeadWriter { process } => write!(f, "line left locked by dead process {process}"),
            Self::BusyWriter { process } => write!(f, "line kept locked by process {process}"),
        }
    }
}

impl fmt::Display for VerbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.effect {
            Effect::None => "without effect",
            Effect::Unknown => "effect unknown",
            Effect::Done => "but it took effect",
        };
        write!(f, "verb {} at {}: {} ({effect})", self.index, self.at, self.kind)
    }
}

impl core::error::Error for VerbError {}
