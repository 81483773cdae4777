//! The interface of a world: work queue entries and their outcomes.

use crate::{MaskedCas, Place};

/// One request of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Wqe<'a> {
    /// The verb.
    pub op: Op<'a>,
    /// Whether this request waits until every earlier READ and atomic of this queue pair has completed
    /// (`IBV_SEND_FENCE`).
    pub fence: bool,
}

/// A one-sided verb.
// The explicit representation puts `at` at the same offset in every variant, so [`Op::at`] is a single load.
#[repr(u8)]
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// READ of `len` bytes into a lease.
    Read {
        /// The address to read from, with any alignment.
        at: Place,
        /// The number of bytes, at least 1.
        len: u32,
    },
    /// READ of one aligned 8-byte word, without a lease.
    Word {
        /// The address to read from, aligned to 8 bytes.
        at: Place,
    },
    /// WRITE. The world copies the payload when the request is pushed.
    Write {
        /// The address to write to, with any alignment.
        at: Place,
        /// The payload.
        bytes: &'a [u8],
    },
    /// Compare-and-swap of an aligned little-endian word; returns the old value.
    Cas {
        /// The word's address, aligned to 8 bytes.
        at: Place,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Masked compare-and-swap; returns the old value.
    MaskedCas {
        /// The word's address, aligned to 8 bytes.
        at: Place,
        /// Values and masks.
        masked: MaskedCas,
    },
    /// Fetch-and-add (wrapping) on an aligned word; returns the old value.
    Faa {
        /// The word's address, aligned to 8 bytes.
        at: Place,
        /// The addend.
        add: u64,
    },
}

impl Op<'_> {
    /// Returns the request's place.
    #[inline]
    pub fn at(&self) -> Place {
        match *self {
            Op::Read { at, .. }
            | Op::Word { at }
            | Op::Write { at, .. }
            | Op::Cas { at, .. }
            | Op::MaskedCas { at, .. }
            | Op::Faa { at, .. } => at,
        }
    }
    /// Returns how many bytes of remote memory the request reads or writes.
    #[inline]
    pub fn len(&self) -> usize {
        match *self {
            Op::Read { len, .. } => len as usize,
            Op::Write { bytes, .. } => bytes.len(),
            _ => 8,
        }
    }
    /// Returns whether the verb accesses no memory, as an empty WRITE does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns whether the verb returns a value (every verb except WRITE does). Only requests that return a
    /// value have a result number.
    #[inline]
    pub fn has_result(&self) -> bool {
        !matches!(self, Op::Write { .. })
    }
    /// Returns whether the verb is an atomic.
    #[inline]
    pub fn is_atomic(&self) -> bool {
        matches!(self, Op::Cas { .. } | Op::MaskedCas { .. } | Op::Faa { .. })
    }
}

impl<'a> Op<'a> {
    /// Returns the verb without its payload, and the payload; only a WRITE has one. A world stores the two apart.
    ///
    /// ```
    /// use dm_verbs::{NodeId, Op, RemotePtr};
    ///
    /// let at = RemotePtr::new(NodeId(0), 64).unwrap().into();
    /// let (verb, payload) = Op::Write { at, bytes: b"four" }.split();
    /// assert_eq!((verb.len(), payload), (0, &b"four"[..]));
    /// assert_eq!(verb.with_payload(payload).len(), 4);
    /// ```
    #[inline]
    pub fn split(self) -> (Op<'static>, &'a [u8]) {
        match self {
            Op::Read { at, len } => (Op::Read { at, len }, &[]),
            Op::Word { at } => (Op::Word { at }, &[]),
            Op::Write { at, bytes } => (Op::Write { at, bytes: &[] }, bytes),
            Op::Cas { at, compare, swap } => (Op::Cas { at, compare, swap }, &[]),
            Op::MaskedCas { at, masked } => (Op::MaskedCas { at, masked }, &[]),
            Op::Faa { at, add } => (Op::Faa { at, add }, &[]),
        }
    }
    /// Returns the verb with this payload if it is a WRITE, and unchanged otherwise.
    #[inline]
    #[must_use]
    pub fn with_payload(self, bytes: &'a [u8]) -> Self {
        match self {
            Op::Write { at, .. } => Op::Write { at, bytes },
            other => other,
        }
    }
}

impl<'a> From<Op<'a>> for Wqe<'a> {
    #[inline]
    fn from(op: Op<'a>) -> Self {
        Wqe { op, fence: false }
    }
}

/// A world's handle of a chain that is under construction or in flight. It is not `Copy`, because it has one owner,
/// which closes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot {
    /// A number that the world chooses.
    pub index: u32,
    /// Distinguishes successive uses of the same number.
    pub generation: u32,
}

impl Slot {
    /// Returns a second handle of this chain. The chain must still be closed only once.
    #[inline(always)]
    pub(crate) fn same(&self) -> Self {
        Slot { ..*self }
    }
}

/// The result of one request.
#[derive(Debug)]
pub enum Outcome<L> {
    /// A WRITE returns nothing.
    None,
    /// The old value of an atomic, or the word of a word READ.
    Old(u64),
    /// The bytes of a READ.
    Lease(L),
}
