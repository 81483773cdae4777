//! The memory of a region's lines and locks: anonymous memory, a shared file, or (under Miri) the heap.

use core::ptr::NonNull;
use std::fs::File;

use memmap2::{MmapOptions, MmapRaw};

use super::line::{Line, LineLock};
use super::{FILE_ALIGN, LINE_BYTES, RegionError};

const LOCK_BYTES: u64 = size_of::<LineLock>() as u64;

/// The memory of a region: its lines, and one lock per line, from the page after the lines on.
pub(super) struct Mapping {
    lines: NonNull<Line>,
    locks: NonNull<LineLock>,
    count: usize,
    // Keeps the memory alive to which the pointers point.
    _owner: Owner,
}

enum Owner {
    Map { _map: MmapRaw },
    Heap { words: NonNull<[Page]> },
    Nothing,
}

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; FILE_ALIGN as usize]);

// SAFETY: the pointers lead to memory that the mapping owns until it is dropped, and all of it is accessed as
// atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access only accesses atomics.
unsafe impl Sync for Mapping {}

/// Returns the number of bytes of lines and locks together. The lines are rounded up to whole pages, and so are the
/// locks. Returns `None` if the number does not fit into 64 bits.
pub(super) fn total_bytes(lines: u64) -> Option<u64> {
    let data = lines
        .checked_mul(LINE_BYTES as u64)?
        .checked_next_multiple_of(FILE_ALIGN)?;
    let locks = lines
        .checked_mul(LOCK_BYTES)?
        .checked_next_multiple_of(FILE_ALIGN)?;
    data.checked_add(locks)
}

impl Mapping {
    pub(super) fn anonymous(lines: u64) -> Result<Self, RegionError> {
        if lines == 0 {
            return Ok(Self::empty());
        }
        let bytes = total_bytes(lines).ok_or(too_big(lines))?;
        let len = usize::try_from(bytes).map_err(|_| too_big(lines))?;
        if cfg!(miri) {
            return Ok(Self::heap(lines, len));
        }
        let map = MmapOptions::new().len(len).no_reserve_swap().map_anon();
        Ok(Self::over(
            MmapRaw::from(map.map_err(|e| refused(bytes, &e))?),
            lines,
        ))
    }

    pub(super) fn in_file(file: &File, at: u64, lines: u64) -> Result<Self, RegionError> {
        if at % FILE_ALIGN != 0 {
            return Err(RegionError::FileUnaligned { at });
        }
        if lines == 0 {
            return Ok(Self::empty());
        }
        let bytes = total_bytes(lines).ok_or(too_big(lines))?;
        let found = file.metadata().map_err(|e| refused(bytes, &e))?.len();
        let needed = at.checked_add(bytes).ok_or(too_big(lines))?;
        if found < needed {
            return Err(RegionError::FileTooShort { needed, found });
        }
        let len = usize::try_from(bytes).map_err(|_| too_big(lines))?;
        let map = MmapOptions::new().offset(at).len(len).map_raw(file);
        Ok(Self::over(map.map_err(|e| refused(bytes, &e))?, lines))
    }

    pub(super) fn lines(&self) -> &[Line] {
        // SAFETY: `count` lines lie at the pointer, zeroed or written as atomics, for as long as `self`
        // lives; every bit pattern is a valid `Line`, and there are no plain references into them.
        unsafe { core::slice::from_raw_parts(self.lines.as_ptr(), self.count) }
    }

    pub(super) fn locks(&self) -> &[LineLock] {
        // SAFETY: as for the lines.
        unsafe { core::slice::from_raw_parts(self.locks.as_ptr(), self.count) }
    }

    fn empty() -> Self {
        Self {
            lines: NonNull::dangling(),
            locks: NonNull::dangling(),
            count: 0,
            _owner: Owner::Nothing,
        }
    }

    fn over(map: MmapRaw, lines: u64) -> Self {
        let base = NonNull::new(map.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Self::at(base, lines, Owner::Map { _map: map })
    }

    fn heap(lines: u64, len: usize) -> Self {
        let pages = vec![Page([0; FILE_ALIGN as usize]); len.div_ceil(FILE_ALIGN as usize)];
        let words = NonNull::from(Box::leak(pages.into_boxed_slice()));
        Self::at(words.cast(), lines, Owner::Heap { words })
    }

    /// Makes a mapping at `base`, which must be page-aligned and followed by `total_bytes(lines)` bytes that
    /// `owner` owns.
    fn at(base: NonNull<u8>, lines: u64, owner: Owner) -> Self {
        // The casts lose nothing: the length in bytes fits into a `usize`, so the count and the locks' offset
        // do too.
        let count = lines as usize;
        let locks_at = (count * LINE_BYTES).next_multiple_of(FILE_ALIGN as usize);
        // SAFETY: the locks begin inside the owner's bytes.
        let locks = unsafe { base.add(locks_at) };
        Self {
            lines: base.cast(),
            locks: locks.cast(),
            count,
            _owner: owner,
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Self::Heap { words } = *self {
            // SAFETY: the pointer came from `Box::leak`, and the mapping that used it is dropped together
            // with this owner.
            drop(unsafe { Box::from_raw(words.as_ptr()) });
        }
    }
}

fn too_big(lines: u64) -> RegionError {
    RegionError::Map {
        bytes: lines.saturating_mul(LINE_BYTES as u64),
        errno: libc::ENOMEM,
    }
}

fn refused(bytes: u64, error: &std::io::Error) -> RegionError {
    RegionError::Map {
        bytes,
        errno: error.raw_os_error().unwrap_or(libc::EINVAL),
    }
}
