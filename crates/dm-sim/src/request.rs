//! Requests as the engine stores them.

use dm_verbs::{ChipPtr, MaskedCas, Op, Outcome, Place, RemotePtr, Space, Wqe};

use crate::bound::VerbKind;
use crate::lease::Lease;

/// The verb of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Word,
    Write,
    Cas,
    MaskedCas,
    Faa,
}

impl Kind {
    #[inline]
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Kind::Cas | Kind::MaskedCas | Kind::Faa)
    }
    #[inline]
    pub(crate) fn answers(self) -> bool {
        self != Kind::Write
    }
    /// Returns the kind that the cost model distinguishes.
    #[inline]
    pub(crate) const fn costs(self) -> VerbKind {
        match self {
            Kind::Read | Kind::Word => VerbKind::Read,
            Kind::Write => VerbKind::Write,
            Kind::Cas => VerbKind::Cas,
            Kind::MaskedCas => VerbKind::MaskedCas,
            Kind::Faa => VerbKind::Faa,
        }
    }
    #[inline]
    pub(crate) fn mutates(self) -> bool {
        !matches!(self, Kind::Read | Kind::Word)
    }
}

/// A work queue entry, with the same fields for all kinds of verbs. The function that posts the verb builds the entry,
/// because it knows the kind of verb at compile time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) at: Place,
    pub(crate) len: usize,
    pub(crate) kind: Kind,
    pub(crate) fence: bool,
    words: [u64; 4],
    bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    #[inline(always)]
    pub(crate) fn read(at: Place, len: u32, fence: bool) -> Self {
        Wqe {
            op: Op::Read { at, len },
            fence,
        }
        .into()
    }
    #[inline(always)]
    pub(crate) fn write(at: Place, bytes: &'a [u8], fence: bool) -> Self {
        Wqe {
            op: Op::Write { at, bytes },
            fence,
        }
        .into()
    }
}

impl<'a> From<Wqe<'a>> for Entry<'a> {
    #[inline(always)]
    fn from(wqe: Wqe<'a>) -> Self {
        let (at, fence) = (wqe.op.at(), wqe.fence);
        let word = |kind, words| Entry {
            at,
            len: 8,
            kind,
            fence,
            words,
            bytes: &[],
        };
        match wqe.op {
            Op::Read { len, .. } => Entry {
                len: len as usize,
                ..word(Kind::Read, [0; 4])
            },
            Op::Word { .. } => word(Kind::Word, [0; 4]),
            Op::Write { bytes, .. } => Entry {
                len: bytes.len(),
                bytes,
                ..word(Kind::Write, [0; 4])
            },
            Op::Cas { compare, swap, .. } => word(Kind::Cas, [compare, swap, 0, 0]),
            Op::MaskedCas { masked: m, .. } => {
                word(Kind::MaskedCas, [m.compare, m.swap, m.compare_mask, m.swap_mask])
            }
            Op::Faa { add, .. } => word(Kind::Faa, [add, 0, 0, 0]),
        }
    }
}

/// Payload bytes that fit a request's first three words.
const SMALL: usize = 24;

/// One request. The fields that the events of a lone READ of one line access come last, so that in a chain's first
/// request they lie in the second cache line of the chain.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Request {
    /// An atomic stores its operands here, and later the old value in the first word. Between the two parts of an
    /// atomic, the second word is the value to write back, and the third word tells whether to write it. A WRITE of up
    /// to 24 bytes stores its payload. A transfer in two parts stores in the fourth word the length of its first part
    /// in bytes, or one bit for each line or word (modulo 64).
    pub(crate) words: [u64; 4],
    /// The result of a READ after it has acted on memory, or the payload of a longer WRITE.
    pub(crate) buffer: Lease,
    raw: u64,
    pub(crate) len: u32,
    pub(crate) kind: Kind,
    pub(crate) fence: bool,
    /// The number of steps in which the request acts on memory: 1, or 2 for a transfer or an atomic that is divided.
    pub(crate) parts: u8,
    space: Space,
}

impl Request {
    pub(crate) fn vacant() -> Self {
        Request {
            words: [0; 4],
            buffer: Lease::NONE,
            raw: 0,
            len: 0,
            kind: Kind::Word,
            fence: false,
            parts: 1,
            space: Space::Host,
        }
    }

    /// Fills the request from `entry`.
    #[inline(always)]
    pub(crate) fn set(&mut self, entry: &Entry<'_>) {
        self.raw = entry.at.raw();
        self.space = entry.at.space();
        self.len = entry.len as u32;
        self.kind = entry.kind;
        self.fence = entry.fence;
        self.parts = 1;
        match entry.kind {
            Kind::Read | Kind::Word => {}
            Kind::Write => self.carry(entry.bytes),
            Kind::Cas | Kind::MaskedCas | Kind::Faa => self.words = entry.words,
        }
    }

    /// Fills the request as a READ of host memory at `raw`.
    #[inline(always)]
    pub(crate) fn set_read(&mut self, raw: u64, len: u32) {
        self.raw = raw;
        self.space = Space::Host;
        self.len = len;
        self.kind = Kind::Read;
        self.fence = false;
        self.parts = 1;
    }

    /// Copies a WRITE's payload.
    #[inline]
    fn carry(&mut self, bytes: &[u8]) {
        if bytes.len() > SMALL {
            let mut b = Lease::take(bytes.len());
            b.copy_from_slice(bytes);
            self.buffer = b;
        } else if let Ok(word) = bytes.try_into() {
            self.words[0] = u64::from_le_bytes(word);
        } else {
            let mut small = [0; SMALL];
            small[..bytes.len()].copy_from_slice(bytes);
            for (word, part) in self.words.iter_mut().zip(small.as_chunks().0) {
                *word = u64::from_le_bytes(*part);
            }
        }
    }

    #[inline]
    pub(crate) fn at(&self) -> Place {
        match self.space {
            Space::Host => RemotePtr::from_raw(self.raw).into(),
            Space::Chip => ChipPtr::from_raw(self.raw).into(),
        }
    }

    #[inline]
    pub(crate) fn space(&self) -> Space {
        self.space
    }

    #[inline]
    pub(crate) fn offset(&self) -> usize {
        RemotePtr::from_raw(self.raw).offset() as usize
    }

    /// Returns the number of units of 2^`shift` bytes that the request touches.
    #[inline(always)]
    pub(crate) fn units(&self, shift: u32) -> u64 {
        let from = self.offset() as u64;
        let last = from + u64::from(self.len.max(1)) - 1;
        (last >> shift) - (from >> shift) + 1
    }

    /// Returns the new value of an atomic of this `kind` that finds `old`, or `None` if the atomic fails.
    #[inline]
    pub(crate) fn apply(&self, kind: Kind, old: u64) -> Option<u64> {
        let [a, b, c, d] = self.words;
        match kind {
            Kind::Cas => (old == a).then_some(b),
            Kind::MaskedCas => {
                let m = MaskedCas {
                    compare: a,
                    swap: b,
                    compare_mask: c,
                    swap_mask: d,
                };
                m.matches(old).then(|| m.apply(old))
            }
            Kind::Faa => Some(old.wrapping_add(a)),
            Kind::Read | Kind::Word | Kind::Write => None,
        }
    }

    /// Takes the result of the request.
    #[inline]
    pub(crate) fn outcome(&mut self) -> Outcome<Lease> {
        if self.kind == Kind::Read {
            Outcome::Lease(core::mem::replace(&mut self.buffer, Lease::NONE))
        } else if self.kind == Kind::Write {
            Outcome::None
        } else {
            Outcome::Old(self.words[0])
        }
    }

    /// Moves `range` of the request's bytes. `memory` is the memory of the request's node and space. A WRITE is copied
    /// to `memory`, a READ from it.
    #[inline]
    pub(crate) fn transfer(&mut self, kind: Kind, memory: &mut [u8], range: core::ops::Range<usize>) {
        let base = self.offset();
        let remote = base + range.start..base + range.end;
        if kind == Kind::Read {
            self.buffer[range].copy_from_slice(&memory[remote]);
        } else if !self.buffer.is_none() {
            memory[remote].copy_from_slice(&self.buffer[range]);
        } else {
            let mut bytes = [0; SMALL];
            for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.words) {
                chunk.copy_from_slice(&word.to_le_bytes());
            }
            memory[remote].copy_from_slice(&bytes[range]);
        }
    }
}
