//! The effect of one request on a memory node.

use dm_sync::region::{LineOrder, Region, RegionError};
use dm_verbs::{AtomicVsWrite, Capability, Effect, Op, Outcome, VerbErrorKind};

use crate::lease::Lease;
use crate::world::{Node, World};

/// The length of the longest READ in bytes (an RDMA message has at most 2^31).
const READ_BYTES_MAX: u64 = 1 << 30;

/// One in this number of racy atomics yields its processor between its read and its write-back.
const WIDE_EVERY: u32 = 16;

/// The reason for the failure of a request, and the request's effect.
pub(crate) type Failed = (VerbErrorKind, Effect);

impl World {
    /// Refuses requests that must never be sent.
    #[inline]
    pub(crate) fn check(&self, node: &Node, op: &Op<'_>) -> Result<(), VerbErrorKind> {
        let aligned = match *op {
            Op::Read { len, .. } => {
                if len == 0 || u64::from(len) > READ_BYTES_MAX {
                    return Err(VerbErrorKind::BadLength { len: u64::from(len) });
                }
                true
            }
            Op::Write { .. } => true,
            Op::Word { at } | Op::Cas { at, .. } | Op::MaskedCas { at, .. } | Op::Faa { at, .. } => {
                at.offset().is_multiple_of(8)
            }
        };
        if !aligned {
            return Err(VerbErrorKind::Misaligned);
        }
        if matches!(op, Op::MaskedCas { .. }) && !self.knobs.masked_atomics {
            return Err(VerbErrorKind::Unsupported(Capability::MaskedAtomics));
        }
        if node.space(op.at()).size() == 0 {
            return Err(VerbErrorKind::Unsupported(Capability::ChipMemory));
        }
        Ok(())
    }

    /// Carries out `op`. The lines of a READ are served in `order`.
    pub(crate) fn carry_out(
        &self,
        node: &Node,
        op: &Op<'_>,
        order: LineOrder,
    ) -> Result<Outcome<Lease>, Failed> {
        let at = op.at();
        let (region, offset) = (node.space(at), at.offset());
        let old = match *op {
            Op::Read { len, .. } => return read(region, offset, len as usize, order),
            Op::Write { bytes, .. } => {
                return match region.write(offset, bytes) {
                    Ok(()) => Ok(Outcome::None),
                    Err(e) => Err(failed(e, Effect::Unknown)),
                };
            }
            Op::Word { .. } => region.read_word(offset),
            Op::Cas { compare, swap, .. } => {
                self.atomic(region, offset, |old| (old == compare).then_some(swap))
            }
            Op::MaskedCas { masked, .. } => self.atomic(region, offset, |old| {
                masked.matches(old).then(|| masked.apply(old))
            }),
            Op::Faa { add, .. } => self.atomic(region, offset, |old| Some(old.wrapping_add(add))),
        };
        old.map(Outcome::Old).map_err(|e| failed(e, Effect::None))
    }

    #[inline]
    fn atomic(
        &self,
        region: &Region,
        offset: u64,
        change: impl Fn(u64) -> Option<u64>,
    ) -> Result<u64, RegionError> {
        match self.knobs.atomic_vs_write {
            AtomicVsWrite::Serialised => region.update(offset, change),
            AtomicVsWrite::Racy => self.atomics.with(|count| {
                let old = region.read_word(offset)?;
                // A yield here makes it likely that a WRITE is lost, so that tests observe it. Not every atomic
                // yields, because on a busy machine a yield costs a time slice, during which all other clients wait
                // for the mutex.
                *count = count.wrapping_add(1);
                if count.is_multiple_of(WIDE_EVERY) {
                    dm_sync::thread::yield_now();
                }
                region.write_word(offset, change(old).unwrap_or(old))?;
                Ok(old)
            }),
        }
    }
}

#[inline]
fn read(region: &Region, offset: u64, len: usize, order: LineOrder) -> Result<Outcome<Lease>, Failed> {
    let size = region.size();
    // Check this before the buffer is taken, so that a corrupt length does not allocate a gigabyte.
    if len as u64 > size || offset > size - len as u64 {
        return Err((VerbErrorKind::OutOfBounds { size }, Effect::None));
    }
    let mut lease = Lease::take(len);
    match region.read_ordered(offset, &mut lease, order) {
        Ok(()) => Ok(Outcome::Lease(lease)),
        Err(e) => Err(failed(e, Effect::None)),
    }
}

/// Converts the error of a region. `stuck` is the effect of a request that stopped at a locked line.
#[cold]
pub(crate) fn failed(error: RegionError, stuck: Effect) -> Failed {
    match error {
        RegionError::OutOfBounds { size, .. } => (VerbErrorKind::OutOfBounds { size }, Effect::None),
        RegionError::Unaligned { .. } => (VerbErrorKind::Misaligned, Effect::None),
        RegionError::HolderDead { pid, .. } => (VerbErrorKind::DeadWriter { process: pid }, stuck),
        RegionError::Busy { pid, .. } => (VerbErrorKind::BusyWriter { process: pid }, stuck),
        // All other errors are errors of making a region, which cannot happen here.
        _ => (VerbErrorKind::Unreachable, stuck),
    }
}
