//! Errors of verbs: what failed, where, and whether it had an effect.

use core::fmt;

use crate::{Capability, Place};

/// Whether a failed request changed remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It certainly had no effect and never will.
    None,
    /// It may have had an effect (a lost acknowledgement), and may have one later (a request that is still in
    /// the fabric). This ends when the control plane has fenced the client, or when another request of the
    /// same client to the same memory node has taken effect: a world that reconnects a client shuts its old
    /// queue pair first. A request to another memory node, or by another client, proves nothing.
    Unknown,
    /// It certainly had its effect; only the answer was lost.
    Done,
}

/// A chain failed. The requests before number `index` had their effect, request `index` has the effect
/// `effect`, and the later requests have the effect `rest`.
///
/// When a queue pair fails, all chains that the client has in flight to that memory node fail together. If a
/// request is never carried out, then no later request of its queue pair is carried out either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerbError {
    /// The reason.
    pub kind: VerbErrorKind,
    /// The address of the request that failed.
    pub at: Place,
    /// Its number in the chain, from 0.
    pub index: u16,
    /// Its effect.
    pub effect: Effect,
    /// The effect of the requests behind it.
    pub rest: Effect,
}

/// The reason why a verb failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VerbErrorKind {
    /// No such memory node.
    NoSuchNode,
    /// The memory node does not answer.
    Unreachable,
    /// The connection was lost while the chain was in flight.
    ConnectionLost,
    /// The memory node's card refused the request (a wrong key, or memory that is no longer part of the
    /// pool). The connection is lost as well.
    Refused,
    /// The access ends beyond the node's memory.
    OutOfBounds {
        /// Size of this memory in bytes.
        size: u64,
    },
    /// The address of an atomic or a word READ is not a multiple of 8.
    Misaligned,
    /// The READ has no bytes, or is longer than the world allows.
    BadLength {
        /// The requested length in bytes.
        len: u64,
    },
    /// The world lacks what the request needs.
    Unsupported(Capability),
    /// The control plane has fenced this client.
    Fenced,
    /// This client has too many chains or buffers in flight.
    QueueFull,
    /// A line of a shared region is locked by a process that died while it wrote to the line.
    DeadWriter {
        /// The process id.
        process: u32,
    },
    /// A line of a shared region stays locked by a process that lives but makes no progress (most likely it
    /// was stopped).
    BusyWriter {
        /// The process id.
        process: u32,
    },
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
    /// Returns this error as the error of an operation that has already posted an earlier chain. The
    /// operation as a whole may have had an effect, even if this chain had none.
    #[must_use]
    pub fn after_effect(mut self) -> Self {
        if self.overall() == Effect::None {
            self.rest = Effect::Unknown;
        }
        self
    }
    /// Returns the effect of the chain as a whole: `None` or `Done` if every request of it has this effect,
    /// else `Unknown`.
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
            Self::Misaligned => f.write_str("address is no multiple of 8"),
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
