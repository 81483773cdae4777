//! Chains of requests, as they are stored in the queues.

use dm_verbs::{MaskedCas, Op, Place, Space, VerbError};

use crate::fp::Fp;

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
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Word)
    }
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::Cas | Self::MaskedCas | Self::Faa)
    }
}

/// A posted request and its progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) fence: bool,
    pub(crate) chip: bool,
    /// Flat address and length, in bytes.
    pub(crate) at: u32,
    pub(crate) len: u32,
    /// The operands of a CAS or masked CAS; a fetch-and-add keeps its addend in `swap`.
    pub(crate) operands: MaskedCas,
    /// The offset of a WRITE's payload in the chain's data.
    pub(crate) data: u32,
    /// The word that was read. A racy atomic reads it in its first step.
    pub(crate) old: u64,
    /// The word that a racy atomic is about to write back.
    pub(crate) new: u64,
    pub(crate) half: bool,
    pub(crate) units: u8,
    /// The units that were served, one bit for each.
    pub(crate) done: u128,
    pub(crate) finished: bool,
    /// Whether this request of a failed queue pair cannot be lost any more, because a later request was carried out.
    pub(crate) overtaken: bool,
    /// A hash of the bytes read so far, in any order.
    pub(crate) seen: Fp,
}

impl Request {
    /// Returns whether the pending request of a failed queue pair can no longer be lost.
    pub(crate) fn must_land(&self) -> bool {
        !self.finished && (self.half || self.overtaken)
    }
    pub(crate) fn left(&self) -> u32 {
        u32::from(self.units) - self.done.count_ones()
    }
    /// Returns the byte range of unit `i`, for units of `size` bytes.
    #[inline]
    pub(crate) fn unit(&self, i: u8, size: u32) -> (u32, u32) {
        let first = self.at / size + u32::from(i);
        (
            (first * size).max(self.at),
            ((first + 1) * size).min(self.at + self.len),
        )
    }
}

/// A range of memory that a client read, and a hash of its content at that time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) content: u64,
}

/// A chain that is being built, is in flight, or is done but not yet returned; or the unfinished requests of a chain
/// that are late.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) node: u16,
    /// For a late chain: the number of the queue pair to which it was posted. Queue pairs are numbered in the
    /// order in which they failed.
    pub(crate) pair: u8,
    pub(crate) requests: Vec<Request>,
    pub(crate) data: Vec<u8>,
    /// The number of unfinished requests.
    pub(crate) left: u16,
    pub(crate) rung: bool,
    pub(crate) done: bool,
    /// Whether the client has closed the chain, so that it will not use the results.
    pub(crate) closed: bool,
    pub(crate) observed: bool,
    pub(crate) awaited: bool,
    /// The error with which the chain ends. If a request was refused, the requests before it take effect first.
    pub(crate) error: Option<VerbError>,
    /// A hash of all requests.
    pub(crate) content: Fp,
    /// The number of the client's operations that had begun when the doorbell was rung.
    pub(crate) operations: u32,
    pub(crate) seen: Vec<Seen>,
}

impl Chain {
    /// Appends a request at flat address `flat`; a unit has `unit` bytes.
    pub(crate) fn push(&mut self, op: Op<'_>, fence: bool, flat: u32, unit: u32) {
        let at = op.at();
        let len = op.len() as u32;
        let (kind, operands) = operands(&op);
        let data = self.data.len() as u32;
        if let Op::Write { bytes, .. } = op {
            self.data.extend_from_slice(bytes);
            self.content.fold2(Fp::bytes(bytes));
        }
        assert!(self.requests.len() < 256, "more than 256 requests in one chain");
        let units = if len == 0 {
            0
        } else {
            (flat + len - 1) / unit - flat / unit + 1
        };
        assert!(
            units <= 128,
            "a request of {units} units is too long for the explorer (at most 128)"
        );
        for x in [
            kind as u64 | u64::from(fence) << 8 | u64::from(len) << 32,
            u64::from(flat),
            operands.compare,
            operands.compare_mask,
            operands.swap,
            operands.swap_mask,
        ] {
            self.content.fold(x);
        }
        self.left += u16::from(units > 0);
        self.requests.push(Request {
            kind,
            fence,
            chip: at.space() == Space::Chip,
            at: flat,
            len,
            operands,
            data,
            old: 0,
            new: 0,
            half: false,
            units: units as u8,
            done: 0,
            finished: units == 0,
            overtaken: false,
            seen: Fp::default(),
        });
    }

    /// Returns the index of the request that produces result number `i`.
    pub(crate) fn result(&self, i: u16) -> Option<usize> {
        let results = self.requests.iter().enumerate();
        let mut results = results.filter(|(_, r)| r.kind != Kind::Write);
        results.nth(usize::from(i)).map(|(number, _)| number)
    }

    /// Folds the results of the chain into the hash of the client that observes them.
    pub(crate) fn fold_results(&self, into: &mut Fp) {
        if let Some(e) = &self.error {
            into.fold2(error_hash(e));
        }
        for r in &self.requests {
            match r.kind {
                Kind::Write => {}
                Kind::Read => into.fold2(r.seen),
                _ => into.fold(r.old),
            }
        }
    }
}

fn operands(op: &Op<'_>) -> (Kind, MaskedCas) {
    let plain = |compare, swap| MaskedCas {
        compare,
        compare_mask: u64::MAX,
        swap,
        swap_mask: u64::MAX,
    };
    match *op {
        Op::Read { .. } => (Kind::Read, plain(0, 0)),
        Op::Word { .. } => (Kind::Word, plain(0, 0)),
        Op::Write { .. } => (Kind::Write, plain(0, 0)),
        Op::Cas { compare, swap, .. } => (Kind::Cas, plain(compare, swap)),
        Op::MaskedCas { masked, .. } => (Kind::MaskedCas, masked),
        Op::Faa { add, .. } => (Kind::Faa, plain(0, add)),
    }
}

/// Returns a hash of everything that an error contains.
pub(crate) fn error_hash(e: &VerbError) -> Fp {
    // Errors are rare, so their text is hashed instead of their fields.
    Fp::bytes(format!("{e:?}").as_bytes())
}

/// Returns whether a request needs an aligned word.
pub(crate) fn needs_word(op: &Op<'_>) -> bool {
    op.is_atomic() || matches!(op, Op::Word { .. })
}

/// Returns the error with which request `index` is refused. The requests before it take effect.
pub(crate) fn refused(kind: dm_verbs::VerbErrorKind, at: Place, index: usize) -> VerbError {
    VerbError {
        index: index as u16,
        ..VerbError::refused(kind, at)
    }
}
