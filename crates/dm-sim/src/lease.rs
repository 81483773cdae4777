//! Buffers of READs and of WRITEs of more than 24 bytes. A lease is one pointer wide. When it is dropped, its buffer
//! goes to the pool of the thread that drops it.

use core::cell::Cell;
use core::fmt;
use core::mem::{ManuallyDrop, forget};
use core::ops::{Deref, DerefMut};

/// log2 of the size of the smallest buffer in bytes.
const SMALLEST: u32 = 6;
/// Number of size classes, from 64 B to 16 MiB.
const CLASSES: usize = 19;
/// The length of the longest READ or WRITE in bytes.
pub(crate) const LONGEST: usize = 1 << (SMALLEST as usize + CLASSES - 1);
/// The number of free lists, a power of two, so that a class needs no bounds check.
const LISTS: usize = CLASSES.next_power_of_two();
/// Size in bytes of the smallest buffer: a cache line. Its bytes are stored in the buffer struct itself, and
/// copied as one piece.
pub(crate) const LINE: usize = 1 << SMALLEST;

#[repr(C, align(64))]
struct Buffer {
    small: [u8; LINE],
    /// The bytes of a buffer of any class except the smallest.
    large: Box<[u8]>,
    /// The next free buffer.
    next: Option<Box<Buffer>>,
    len: u32,
    class: u32,
}

std::thread_local! {
    /// The thread's pool. All simulations of the thread share it, so a lease need not store its simulation.
    static POOL: Pool = const { Pool { free: [const { Cell::new(None) }; LISTS] } };
}

/// Free buffers by size class. The pool allocates only while the number of buffers in use still grows.
struct Pool {
    free: [Cell<Option<Box<Buffer>>>; LISTS],
}

#[inline]
fn class(len: usize) -> usize {
    if len <= LINE {
        return 0;
    }
    (len - 1).ilog2() as usize + 1 - SMALLEST as usize
}

impl Pool {
    #[inline]
    fn pop(&self, class: usize) -> Option<Box<Buffer>> {
        let list = &self.free[class % LISTS];
        let mut b = list.take()?;
        // The old content is forgotten and not dropped. It is empty, because it has just been taken out.
        forget(list.replace(b.next.take()));
        Some(b)
    }

    #[inline]
    fn push(&self, mut b: Box<Buffer>) {
        let list = &self.free[b.class as usize % LISTS];
        // Both old values are forgotten and not dropped. They are empty: a buffer in use has no next buffer, and the
        // content of the list was taken out.
        forget(core::mem::replace(&mut b.next, list.take()));
        forget(list.replace(Some(b)));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The buffers are dropped one by one, because dropping the list would be recursive.
        for list in &self.free {
            let mut first = list.take();
            while let Some(mut buffer) = first {
                first = buffer.next.take();
            }
        }
    }
}

/// The bytes of a READ. A lease owns them, and they can be edited in place. A lease is one pointer wide. Dropping it
/// returns the buffer to the current thread's pool.
///
// The field is a `ManuallyDrop`, because it is always empty after `Lease::drop`.
pub struct Lease(ManuallyDrop<Option<Box<Buffer>>>);

impl Lease {
    /// A lease without a buffer; it has no bytes.
    pub(crate) const NONE: Self = Self(ManuallyDrop::new(None));

    #[inline]
    fn of(buffer: Box<Buffer>) -> Self {
        Self(ManuallyDrop::new(Some(buffer)))
    }

    /// Returns a buffer of `len <= LONGEST` bytes. Its content is unspecified: zeroes, or bytes from earlier use.
    #[inline]
    pub(crate) fn take(len: usize) -> Self {
        let class = class(len);
        match POOL.try_with(|pool| pool.pop(class)) {
            Ok(Some(mut b)) => {
                b.len = len as u32;
                Self::of(b)
            }
            _ => Self::make(len, class),
        }
    }

    #[cold]
    fn make(len: usize, class: usize) -> Self {
        let large = if class == 0 { 0 } else { LINE << class };
        Self::of(Box::new(Buffer {
            small: [0; LINE],
            large: vec![0; large].into_boxed_slice(),
            next: None,
            len: len as u32,
            class: class as u32,
        }))
    }

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns a buffer with the first `len <= LINE` bytes of `line`. The rest of `line` is copied too, but
    /// never visible.
    #[inline]
    pub(crate) fn of_line(len: usize, line: &[u8; LINE]) -> Self {
        let mut lease = Self::take(len);
        if let Some(b) = lease.0.as_mut() {
            b.small = *line;
        }
        lease
    }
}

impl Deref for Lease {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |b| {
            let bytes = if b.class == 0 { &b.small[..] } else { &b.large };
            &bytes[..b.len as usize]
        })
    }
}
impl DerefMut for Lease {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut().map_or(&mut [], |b| {
            let bytes = if b.class == 0 {
                &mut b.small[..]
            } else {
                &mut b.large
            };
            &mut bytes[..b.len as usize]
        })
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
            // A thread that is ending has no pool any more, so the buffer is freed.
            let _ = POOL.try_with(|pool| pool.push(buffer));
        }
    }
}

const _: () = assert!(size_of::<Lease>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_lease_reuses_a_dropped_buffer() {
        let mut a = Lease::take(100);
        a[99] = 7;
        let place = a.as_ptr();
        drop(a);
        let b = Lease::take(128);
        assert_eq!((b.as_ptr(), b.len(), b[99]), (place, 128, 7));
        assert_ne!(Lease::take(65).as_ptr(), place, "in use");
        assert_eq!(Lease::take(LONGEST).len(), LONGEST);
    }

    #[test]
    fn a_line_is_cut_to_its_length() {
        let line = core::array::from_fn(|i| i as u8);
        assert_eq!(*Lease::of_line(3, &line), [0, 1, 2]);
        assert_eq!(*Lease::of_line(LINE, &line), line);
    }

    #[test]
    fn each_class_is_large_enough_for_its_lengths() {
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
    fn a_lease_may_be_dropped_on_another_thread_or_after_its_thread() {
        let lease = std::thread::spawn(|| {
            drop(Lease::take(8));
            Lease::take(8)
        })
        .join()
        .expect("the thread does not panic");
        assert_eq!(lease.len(), 8);
        drop(lease);
        let _ = std::thread::spawn(|| core::mem::drop(Lease::take(8))).join();
    }
}
