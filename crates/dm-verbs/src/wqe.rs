//! What a world is handed: work queue entries, and what it answers.

use crate::{MaskedCas, Place};

/// One request of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Wqe<'a> {
    /// What to do.
    pub op: Op<'a>,
    /// Start only after every earlier READ and atomic of this queue pair has completed (`IBV_SEND_FENCE`).
    pub fence: bool,
}

/// A one-sided verb.
// A plain tag in front puts `at` in one place in every variant: [`Op::at`] is then a load.
#[repr(u8)]
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// READ `len` bytes into a lease.
    Read {
        /// From where; any alignment.
        at: Place,
        /// How many bytes, at least 1.
        len: u32,
    },
    /// READ of one aligned 8-byte word, without a lease.
    Word {
        /// From where; 8-byte aligned.
        at: Place,
    },
    /// WRITE; the payload is copied when it is pushed.
    Write {
        /// Where to; any alignment.
        at: Place,
        /// What.
        bytes: &'a [u8],
    },
    /// Compare-and-swap of an aligned little-endian word; answers the old value.
    Cas {
        /// Where; 8-byte aligned.
        at: Place,
        /// Expected.
        compare: u64,
        /// New.
        swap: u64,
    },
    /// Masked compare-and-swap; answers the old value.
    MaskedCas {
        /// Where; 8-byte aligned.
        at: Place,
        /// Values and masks.
        masked: MaskedCas,
    },
    /// Fetch-and-add (wrapping) on an aligned word; answers the old value.
    Faa {
        /// Where; 8-byte aligned.
        at: Place,
        /// Addend.
        add: u64,
    },
}

impl Op<'_> {
    /// Where it goes.
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
    /// Bytes of remote memory that it touches.
    #[inline]
    pub fn len(&self) -> usize {
        match *self {
            Op::Read { len, .. } => len as usize,
            Op::Write { bytes, .. } => bytes.len(),
            _ => 8,
        }
    }
    /// Whether it touches nothing (an empty WRITE).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether it answers with a value (everything but WRITE). Results are numbered over these only.
    #[inline]
    pub fn has_result(&self) -> bool {
        !matches!(self, Op::Write { .. })
    }
    /// Whether it is an atomic.
    #[inline]
    pub fn is_atomic(&self) -> bool {
        matches!(self, Op::Cas { .. } | Op::MaskedCas { .. } | Op::Faa { .. })
    }
}

impl<'a> From<Op<'a>> for Wqe<'a> {
    #[inline]
    fn from(op: Op<'a>) -> Self {
        Wqe { op, fence: false }
    }
}

/// A chain under construction or in flight, as the world numbers it. Not `Copy`: it has one owner, who closes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot {
    /// The world's own number.
    pub index: u32,
    /// Tells reuses of one number apart.
    pub generation: u32,
}

impl Slot {
    /// The same chain, for whoever closes it, or asks for it once.
    #[inline(always)]
    pub(crate) fn same(&self) -> Self {
        Slot { ..*self }
    }
}

/// The result of one request.
#[derive(Debug)]
pub enum Outcome<L> {
    /// A WRITE's: nothing.
    None,
    /// The old value of an atomic, or the word of a word READ.
    Old(u64),
    /// The bytes of a READ.
    Lease(L),
}

/// What posting a single request gave.
#[derive(Debug)]
pub enum Posted<L> {
    /// It completed at once, without error.
    Done(Outcome<L>),
    /// In flight, or failed: the slot tells.
    Flying(Slot),
}
