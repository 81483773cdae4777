//! Bytes that threads and processes share, as the clients of an RNIC share a memory node's memory.
//!
//! ```text
//! line   0 ┌────────┬────────┬─ … ─┬────────┐      lock  0  sequence:42 │ holder's process id:22
//!          │ word 0 │ word 1 │     │ word 7 │
//! line   1 ├────────┼────────┼─ … ─┼────────┤      lock  1
//! ```
//!
//! * **I1** In [`AtomicUnit::Line`], a read copies each 64-byte line in a state between two writes.
//! * **I2** A write changes only its own bytes, at any alignment.
//! * **I3** [`Region::cas`], [`Region::masked_cas`] and [`Region::faa`] are atomic with each other and with all
//!   reads and writes of their word (in [`AtomicUnit::Line`], of their line).
//! * **I4** A thread that reads a write's bytes also reads everything that the writer wrote before.
//! * **I5** No access waits for ever for the holder of a line: if the holder died, the access returns
//!   [`RegionError::HolderDead`]; if the line stays locked, it returns [`RegionError::Busy`].
//!
//! Different lines of one access are not atomic together, and may be served in any order ([`LineOrder`]). If
//! two threads each write their own bytes and then read the other's, both may read the old bytes. A [`fence`]
//! between the write and the read prevents this.
//!
//! There are no data races as the language defines them, because all bytes are in atomic words. Regions use
//! std even under loom.

mod error;
mod line;
mod mapping;
mod order;
#[cfg(all(test, not(any(dm_loom, dm_shuttle))))]
mod tests;

use core::fmt;
use core::sync::atomic::{
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence as atomic_fence,
};
use std::fs::File;

pub use error::RegionError;
pub use order::LineOrder;

use line::{HOLDER_BITS, Line, LineLock, Stuck};
use mapping::Mapping;

/// Size in bytes of a line, the unit that one access copies at once.
pub const LINE_BYTES: usize = 64;
/// Size in bytes of a word, the unit that an atomic changes.
pub const WORD_BYTES: usize = 8;
/// Words in a line.
pub const WORDS_PER_LINE: usize = LINE_BYTES / WORD_BYTES;
/// A region in a file begins and ends at multiples of this many bytes.
pub const FILE_ALIGN: u64 = 4096;

/// The largest unit that a read never sees torn (`dm_verbs::Caps::atomic_unit`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtomicUnit {
    /// A 64-byte aligned line, as observed on x86 hosts.
    #[default]
    Line,
    /// An aligned 8-byte word, which is all that the specification promises. No line locks are used.
    Word,
}

/// Orders this thread's writes before its later reads, with respect to all threads that call this too.
///
/// Without it two threads that each write one line and then read the other's may both miss the other's write.
#[inline]
pub fn fence() {
    // SeqCst: only a sequentially consistent fence orders a store before a later load.
    atomic_fence(SeqCst);
}

/// A sequence of bytes, which are accessed as atomic 64-bit words in 64-byte lines. They are zero at first, unless the
/// region is in a file with other content.
///
/// Word values are numbers: byte `k` of a word is its bits `8k..8k+8`. A region's length is rounded up to whole lines.
/// A region is `Send + Sync`, and every access takes `&self`. An access of no bytes succeeds anywhere up to the end.
///
/// ```
/// use dm_sync::region::{AtomicUnit, Region, RegionError};
/// let region = Region::anonymous(1 << 20, AtomicUnit::Line)?;
/// region.write(62, &[1, 2, 3, 4])?; // across two lines
/// let mut bytes = [0; 2];
/// region.read(64, &mut bytes)?;
/// assert_eq!(bytes, [3, 4]);
/// assert_eq!(region.masked_cas(64, 0x0003, 0x00FF, 0x0009, 0x00FF)?, 0x0403);
/// assert_eq!(region.read_word(64)?, 0x0409);
/// assert!(matches!(region.cas(3, 0, 1), Err(RegionError::Unaligned { offset: 3 })));
/// # Ok::<(), RegionError>(())
/// ```
pub struct Region {
    mapping: Mapping,
    size: u64,
    unit: AtomicUnit,
    holder: u32,
}

impl Region {
    /// Makes a region of `bytes` bytes of this process's memory. A page takes no memory before its first use.
    ///
    /// # Errors
    /// Returns [`RegionError::Map`] if the system refuses the mapping or the region is too large, and
    /// [`RegionError::PidTooBig`] if this process's id does not fit into a line lock.
    pub fn anonymous(bytes: u64, unit: AtomicUnit) -> Result<Self, RegionError> {
        let lines = bytes.div_ceil(LINE_BYTES as u64);
        Self::over(Mapping::anonymous(lines)?, lines, unit)
    }

    /// Makes a region of `bytes` bytes of `file`, from byte `at` on, which is shared with every process that
    /// maps the same part.
    ///
    /// The region takes [`Region::file_bytes`] bytes of the file, including its line locks. All processes
    /// must give the same `bytes` and `unit`. The zeroes of a new file are a valid region. If the file is
    /// shortened while it is mapped, an access to a part that is gone ends the process by a signal.
    ///
    /// # Errors
    /// Returns [`RegionError::FileUnaligned`] if `at` is not a multiple of [`FILE_ALIGN`],
    /// [`RegionError::FileTooShort`] if the file ends before the region's end, [`RegionError::Map`] if the
    /// system refuses the mapping or the region is too large, and [`RegionError::PidTooBig`] if this process's id
    /// does not fit into a line lock.
    pub fn in_file(file: &File, at: u64, bytes: u64, unit: AtomicUnit) -> Result<Self, RegionError> {
        let lines = bytes.div_ceil(LINE_BYTES as u64);
        Self::over(Mapping::in_file(file, at, lines)?, lines, unit)
    }

    /// Returns the number of bytes that a region of `bytes` bytes takes in a file, including its locks. It is a
    /// multiple of [`FILE_ALIGN`]. Returns `None` if this number does not fit into 64 bits.
    pub fn file_bytes(bytes: u64) -> Option<u64> {
        mapping::total_bytes(bytes.div_ceil(LINE_BYTES as u64))
    }

    fn over(mapping: Mapping, lines: u64, unit: AtomicUnit) -> Result<Self, RegionError> {
        let holder = std::process::id();
        if holder >> HOLDER_BITS != 0 || holder == 0 {
            return Err(RegionError::PidTooBig { pid: holder });
        }
        Ok(Self {
            mapping,
            size: lines * LINE_BYTES as u64,
            unit,
            holder,
        })
    }

    /// Returns the size of the region in bytes, a multiple of 64.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the largest unit that a read never sees torn.
    pub fn unit(&self) -> AtomicUnit {
        self.unit
    }

    /// Copies the bytes at `offset` to `out`, lines in increasing order.
    ///
    /// # Errors
    /// Returns [`RegionError::OutOfBounds`] if the bytes are not all in the region, [`RegionError::HolderDead`]
    /// if a process died while it wrote one of the lines, and [`RegionError::Busy`] if a line stays locked.
    /// After the last two errors, parts of `out` are unspecified.
    #[inline]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), RegionError> {
        let begin = self.check(offset, out.len())?;
        let mut at = begin;
        let mut rest = out;
        while !rest.is_empty() {
            let (now, later) = rest.split_at_mut(piece(at, rest.len()));
            self.read_piece(at, now)?;
            at += now.len();
            rest = later;
        }
        Ok(())
    }

    /// Does the same as [`Region::read`], with the atomic units (lines, or words in word mode) served in `order`.
    ///
    /// # Errors
    /// Returns the same errors as [`Region::read`].
    pub fn read_ordered(&self, offset: u64, out: &mut [u8], order: LineOrder) -> Result<(), RegionError> {
        if order == LineOrder::Increasing {
            return self.read(offset, out);
        }
        let unit = match self.unit {
            AtomicUnit::Line => LINE_BYTES,
            AtomicUnit::Word => WORD_BYTES,
        };
        let begin = self.check(offset, out.len())?;
        let end = begin + out.len();
        let first = begin / unit;
        let count = if out.is_empty() {
            0
        } else {
            end.div_ceil(unit) - first
        };
        order.try_for_each(count, |index| {
            let at = ((first + index) * unit).max(begin);
            let until = ((first + index + 1) * unit).min(end);
            self.read_piece(at, &mut out[at - begin..until - begin])
        })
    }

    /// Reads the word at `offset`, a multiple of eight.
    ///
    /// # Errors
    /// Returns the errors of [`Region::read`], and [`RegionError::Unaligned`] if the word is in the region but
    /// `offset` is not a multiple of eight.
    #[inline]
    pub fn read_word(&self, offset: u64) -> Result<u64, RegionError> {
        let (line, lock, word) = self.word(offset)?;
        let word = &line.0[word];
        if self.unit == AtomicUnit::Word {
            // Acquire: I4, pairs with the Release of word writes.
            return Ok(word.load(Acquire));
        }
        loop {
            let stamp = lock.begin().map_err(|s| stuck(s, offset))?;
            let value = word.load(Relaxed); // ordered by the fences of `begin` and `unchanged`
            if lock.unchanged(stamp) {
                return Ok(value);
            }
        }
    }

    /// Writes `bytes` at `offset`, lines in increasing order. Neighbouring bytes keep their values.
    ///
    /// # Errors
    /// Returns the errors of [`Region::read`]. [`RegionError::OutOfBounds`] means that nothing was written. The
    /// other two errors mean that the lines before the reported one were written.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
        let mut at = self.check(offset, bytes.len())?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece(at, rest.len()));
            self.write_piece(at, now)?;
            at += now.len();
            rest = later;
        }
        Ok(())
    }

    /// Writes the whole word at `offset`, a multiple of eight.
    ///
    /// # Errors
    /// Returns the errors of [`Region::read_word`]. The operation then had no effect.
    #[inline]
    pub fn write_word(&self, offset: u64, value: u64) -> Result<(), RegionError> {
        let (line, lock, word) = self.word(offset)?;
        let word = &line.0[word];
        if self.unit == AtomicUnit::Word {
            // Release: I4, pairs with the Acquire of word reads.
            word.store(value, Release);
            return Ok(());
        }
        let stamp = lock.lock(self.holder).map_err(|s| stuck(s, offset))?;
        word.store(value, Relaxed); // published by the Release of `unlock`
        lock.unlock(stamp);
        Ok(())
    }

    /// Stores `new` in the word at `offset` if it holds `old`, and returns its old value.
    ///
    /// # Errors
    /// Returns the errors of [`Region::read_word`]. The operation then had no effect.
    #[inline]
    pub fn cas(&self, offset: u64, old: u64, new: u64) -> Result<u64, RegionError> {
        self.update(offset, |found| (found == old).then_some(new))
    }

    /// If the word at `offset` equals `compare` in the bits of `compare_mask`, replaces its bits of
    /// `swap_mask` by those of `swap`. Returns the word's old value.
    ///
    /// # Errors
    /// Returns the same errors as [`Region::cas`].
    #[inline]
    pub fn masked_cas(
        &self,
        offset: u64,
        compare: u64,
        compare_mask: u64,
        swap: u64,
        swap_mask: u64,
    ) -> Result<u64, RegionError> {
        self.update(offset, |found| {
            ((found ^ compare) & compare_mask == 0).then_some(found & !swap_mask | swap & swap_mask)
        })
    }

    /// Adds `add` (wrapping) to the word at `offset`, and returns its old value.
    ///
    /// # Errors
    /// Returns the same errors as [`Region::cas`].
    #[inline]
    pub fn faa(&self, offset: u64, add: u64) -> Result<u64, RegionError> {
        self.update(offset, |found| Some(found.wrapping_add(add)))
    }

    /// Calls `change` with the word at `offset` and stores the result, if there is one, in one atomic step.
    /// Returns the word's old value. `change` may be called several times.
    ///
    /// # Errors
    /// Returns the same errors as [`Region::cas`].
    #[inline]
    pub fn update(&self, offset: u64, change: impl Fn(u64) -> Option<u64>) -> Result<u64, RegionError> {
        let (line, lock, word) = self.word(offset)?;
        let word = &line.0[word];
        if self.unit == AtomicUnit::Word {
            // AcqRel and Acquire: I4 both ways, pairs with word reads and writes.
            return Ok(match word.fetch_update(AcqRel, Acquire, change) {
                Ok(found) | Err(found) => found,
            });
        }
        loop {
            let stamp = lock.begin().map_err(|s| stuck(s, offset))?;
            let found = word.load(Relaxed); // ordered by `begin`; counts only if nobody wrote since
            match change(found) {
                None if lock.unchanged(stamp) => return Ok(found),
                Some(new) if lock.try_lock(stamp, self.holder) => {
                    word.store(new, Relaxed); // published by the Release of `unlock`
                    lock.unlock(stamp);
                    return Ok(found);
                }
                _ => {}
            }
        }
    }

    /// Returns the offset as an index if the access lies inside the region.
    #[inline]
    fn check(&self, offset: u64, len: usize) -> Result<usize, RegionError> {
        let len = len as u64;
        if len <= self.size && offset <= self.size - len {
            return Ok(offset as usize); // at most the mapped length, a usize
        }
        Err(RegionError::OutOfBounds {
            offset,
            len,
            size: self.size,
        })
    }

    #[inline]
    fn word(&self, offset: u64) -> Result<(&Line, &LineLock, usize), RegionError> {
        let at = self.check(offset, WORD_BYTES)?;
        if at % WORD_BYTES != 0 {
            return Err(RegionError::Unaligned { offset });
        }
        let (line, lock) = self.line(at);
        Ok((line, lock, at % LINE_BYTES / WORD_BYTES))
    }

    #[inline]
    fn line(&self, at: usize) -> (&Line, &LineLock) {
        (
            &self.mapping.lines()[at / LINE_BYTES],
            &self.mapping.locks()[at / LINE_BYTES],
        )
    }

    /// Copies a part of one line to `out`. The part must not extend beyond the line.
    #[inline]
    fn read_piece(&self, at: usize, out: &mut [u8]) -> Result<(), RegionError> {
        let (line, lock) = self.line(at);
        let first = at % LINE_BYTES;
        if self.unit == AtomicUnit::Word {
            // Acquire: I4, pairs with the Release of word writes.
            line.copy_words_out(first, out, |word| word.load(Acquire));
            return Ok(());
        }
        loop {
            let stamp = lock.begin().map_err(|s| stuck(s, at as u64))?;
            line.copy_out(first, out);
            if lock.unchanged(stamp) {
                return Ok(());
            }
        }
    }

    /// Writes `bytes` to a part of one line. The part must not extend beyond the line.
    #[inline]
    fn write_piece(&self, at: usize, bytes: &[u8]) -> Result<(), RegionError> {
        let (line, lock) = self.line(at);
        let first = at % LINE_BYTES;
        if self.unit == AtomicUnit::Word {
            line.copy_in_words(first, bytes);
            return Ok(());
        }
        let stamp = lock.lock(self.holder).map_err(|s| stuck(s, at as u64))?;
        line.copy_in_locked(first, bytes);
        lock.unlock(stamp);
        Ok(())
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("size", &self.size)
            .field("unit", &self.unit)
            .finish_non_exhaustive()
    }
}

/// Returns how many bytes of an access of `len` bytes at `at` lie in its first line.
#[inline]
fn piece(at: usize, len: usize) -> usize {
    len.min(LINE_BYTES - at % LINE_BYTES)
}

#[cold]
fn stuck(stuck: Stuck, at: u64) -> RegionError {
    let offset = at - at % LINE_BYTES as u64;
    match stuck {
        Stuck::Dead(pid) => RegionError::HolderDead { offset, pid },
        Stuck::Busy(pid) => RegionError::Busy { offset, pid },
    }
}
