//! Buffers for READs. A handle is one pointer wide and returns its buffer to the pool when it is dropped.

use core::cell::RefCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use std::rc::Rc;

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    home: Option<Rc<Pool>>,
}

/// A pool of free buffers. It allocates only if more buffers are in use than ever before, or if a buffer must grow.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    #[expect(
        clippy::vec_box,
        reason = "a lease is the box: unboxing here would allocate per READ"
    )]
    free: RefCell<Vec<Box<Buffer>>>,
}

impl Pool {
    #[inline]
    pub(crate) fn take(self: &Rc<Self>, len: usize) -> Lease {
        let mut buffer = self.free.borrow_mut().pop().unwrap_or_default();
        // Every byte is overwritten before a client sees it.
        buffer.bytes.resize(len, 0);
        buffer.home = Some(Rc::clone(self));
        Lease(Some(buffer))
    }
}

/// The bytes that a READ returned. The lease owns the bytes, and they can be edited in place. Dropping the lease
/// returns the buffer to its pool.
pub struct Lease(Option<Box<Buffer>>);

impl Deref for Lease {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |b| &b.bytes)
    }
}
impl DerefMut for Lease {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut().map_or(&mut [], |b| &mut b.bytes)
    }
}
impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.len())
    }
}
impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if let Some(mut buffer) = self.0.take()
            && let Some(home) = buffer.home.take()
        {
            home.free.borrow_mut().push(buffer);
        }
    }
}

const _: () = assert!(size_of::<Lease>() == size_of::<usize>());
