//! Buffers that the transport owns: one pointer wide, back in their pool when dropped.

use core::cell::Cell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use std::rc::Rc;

/// log2 of the smallest buffer.
const SMALLEST: u32 = 6;
/// Size classes: 64 B to 16 MiB.
const CLASSES: usize = 19;
/// The longest READ, bytes.
pub(crate) const LONGEST: usize = 1 << (SMALLEST as usize + CLASSES - 1);
/// Free lists, a power of two: a class needs no check.
const LISTS: usize = CLASSES.next_power_of_two();

#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8]>,
    len: u32,
    class: u32,
    /// Where it goes when it is free; nowhere while it is there.
    home: Option<Rc<Pool>>,
    /// The next free one.
    next: Option<Box<Buffer>>,
}

/// Free buffers by size class. Allocates only while the number of buffers in use still grows.
#[derive(Default)]
pub(crate) struct Pool {
    free: [Cell<Option<Box<Buffer>>>; LISTS],
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

#[inline]
fn class(len: usize) -> usize {
    if len <= 1 << SMALLEST {
        return 0;
    }
    (len - 1).ilog2() as usize + 1 - SMALLEST as usize
}

impl Pool {
    /// A buffer of `len <= LONGEST` bytes; its content is left over from earlier use.
    #[inline]
    pub(crate) fn take(self: &Rc<Self>, len: usize) -> Lease {
        let class = class(len);
        let list = &self.free[class % LISTS];
        match list.take() {
            Some(mut b) => {
                list.set(b.next.take());
                b.len = len as u32;
                b.home = Some(Rc::clone(self));
                Lease(Some(b))
            }
            None => self.make(len, class),
        }
    }

    #[cold]
    fn make(self: &Rc<Self>, len: usize, class: usize) -> Lease {
        Lease(Some(Box::new(Buffer {
            bytes: vec![0; 1 << (class as u32 + SMALLEST)].into_boxed_slice(),
            len: len as u32,
            class: class as u32,
            home: Some(Rc::clone(self)),
            next: None,
        })))
    }
}

/// Bytes of a READ. Owned, editable in place, one pointer wide; dropping it gives the buffer back to its
/// simulation.
pub struct Lease(Option<Box<Buffer>>);

impl Lease {
    /// No buffer: no bytes.
    pub(crate) const NONE: Self = Self(None);

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

impl Deref for Lease {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |b| &b.bytes[..b.len as usize])
    }
}
impl DerefMut for Lease {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0
            .as_mut()
            .map_or(&mut [], |b| &mut b.bytes[..b.len as usize])
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
        if let Some(buffer) = self.0.take() {
            give_back(buffer);
        }
    }
}

fn give_back(mut buffer: Box<Buffer>) {
    if let Some(home) = buffer.home.take() {
        let list = &home.free[buffer.class as usize % LISTS];
        buffer.next = list.take();
        list.set(Some(buffer));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // One by one: a list that drops itself does so recursively.
        for list in &self.free {
            let mut first = list.take();
            while let Some(mut buffer) = first {
                first = buffer.next.take();
            }
        }
    }
}

const _: () = assert!(size_of::<Lease>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lease_is_the_next_one() {
        let pool = Rc::new(Pool::default());
        let mut a = pool.take(100);
        a[99] = 7;
        let place = a.as_ptr();
        drop(a);
        let b = pool.take(128);
        assert_eq!((b.as_ptr(), b.len(), b[99]), (place, 128, 7));
        assert_ne!(pool.take(65).as_ptr(), place, "in use");
        assert_eq!(pool.take(LONGEST).len(), LONGEST);
    }

    #[test]
    fn a_class_holds_what_it_is_asked_for() {
        for (len, wanted) in [
            (1, 0),
            (64, 0),
            (65, 1),
            (128, 1),
            (129, 2),
            (1024, 4),
            (LONGEST, CLASSES - 1),
        ] {
            assert_eq!(class(len), wanted, "{len} bytes");
        }
    }

    #[test]
    fn a_lease_outlives_its_pool() {
        let pool = Rc::new(Pool::default());
        let (lease, other) = (pool.take(8), pool.take(8));
        drop(other);
        let alive = Rc::downgrade(&pool);
        drop(pool);
        assert_eq!(lease.len(), 8);
        drop(lease);
        assert_eq!(alive.strong_count(), 0, "no free buffer keeps its pool");
    }
}
