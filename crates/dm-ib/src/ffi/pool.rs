//! Buffers of a thread: pieces of a few registered slabs, in classes by size.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use dm_sync::Arc;

use super::Device;
use super::memory::{Access, Registered};

/// Sizes of pieces: 64 B, 128 B, … 1 MiB.
const SMALLEST: usize = 64;
const CLASSES: usize = 15;
/// The size of the largest piece in bytes.
pub(crate) const PIECE_BYTES_MAX: usize = SMALLEST << (CLASSES - 1);
/// Minimum size of a slab in bytes.
const SLAB: usize = 2 << 20;

/// The bytes of a READ, which can be edited in place. The lease owns the bytes, and is one pointer wide. Dropping it
/// returns the buffer to the thread from which it came.
pub struct Lease(Option<Box<Piece>>);

/// A piece of a slab. It has one owner at a time; while a request is in flight, this is the card.
struct Piece {
    at: NonNull<u8>,
    len: usize,
    class: usize,
    key: u32,
    /// `None` while the piece is in its pool.
    pool: Option<Rc<Inner>>,
}

struct Inner {
    // The fields are dropped in this order: the free pieces before the slabs that they point into.
    #[expect(
        clippy::vec_box,
        reason = "a lease owns such a box, so the box moves in and out unchanged"
    )]
    free: RefCell<[Vec<Box<Piece>>; CLASSES]>,
    slabs: RefCell<Slabs>,
    device: Arc<Device>,
}

#[derive(Default)]
struct Slabs {
    all: Vec<Registered>,
    /// Number of bytes of the last slab that are in use.
    used: usize,
}

/// The buffers of one thread.
#[derive(Clone)]
pub(crate) struct Pool(Rc<Inner>);

impl Pool {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self(Rc::new(Inner {
            free: RefCell::new([const { Vec::new() }; CLASSES]),
            slabs: RefCell::default(),
            device: Arc::clone(device),
        }))
    }

    /// Returns a buffer of `len` bytes. Its content is unspecified: zeroes, or bytes of an earlier use.
    pub(crate) fn take(&self, len: usize) -> io::Result<Lease> {
        let capacity = len.max(SMALLEST).next_power_of_two();
        let class = (capacity.trailing_zeros() - SMALLEST.trailing_zeros()) as usize;
        if class >= CLASSES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let pooled = self.0.free.borrow_mut()[class].pop();
        let mut piece = match pooled {
            Some(piece) => piece,
            None => self.0.carve(class)?,
        };
        piece.len = len;
        piece.pool = Some(Rc::clone(&self.0));
        Ok(Lease(Some(piece)))
    }
}

impl Inner {
    #[cold]
    fn carve(&self, class: usize) -> io::Result<Box<Piece>> {
        let bytes = SMALLEST << class;
        let slabs = &mut *self.slabs.borrow_mut();
        let room = slabs.all.last().map_or(0, Registered::bytes) - slabs.used;
        if room < bytes {
            let slab = Registered::new(&self.device, SLAB.max(bytes), Access::Own)?;
            slabs.all.push(slab);
            slabs.used = 0;
        }
        let slab = slabs.all.last().ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: `bytes` bytes from `used` on lie within the slab: either it had room, or it is new and large enough.
        let at = unsafe { slab.at().add(slabs.used) };
        slabs.used += bytes;
        Ok(Box::new(Piece {
            at,
            len: 0,
            class,
            key: slab.local_key(),
            pool: None,
        }))
    }
}

impl Lease {
    fn piece(&self) -> &Piece {
        self.0
            .as_ref()
            .expect("a lease has its piece until it is dropped")
    }

    pub(super) fn address(&self) -> u64 {
        self.piece().at.as_ptr() as u64
    }

    pub(super) fn key(&self) -> u32 {
        self.piece().key
    }
}

impl Deref for Lease {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        let piece = self.piece();
        // SAFETY: the piece is `len` bytes of a slab that still exists. The bytes are initialised, because the mapping
        // was zeroed. Only this lease owns them: while a card may write the bytes, the table of chains in flight holds
        // the lease, and no other code can access it (F1).
        unsafe { core::slice::from_raw_parts(piece.at.as_ptr(), piece.len) }
    }
}

impl DerefMut for Lease {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let piece = self.piece();
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(piece.at.as_ptr(), piece.len) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut piece) = self.0.take() else { return };
        if let Some(pool) = piece.pool.take() {
            let class = piece.class;
            pool.free.borrow_mut()[class].push(piece);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.len())
    }
}
