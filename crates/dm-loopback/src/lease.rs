//! Buffers of READs. They are taken from a pool of the thread, and return to a pool when they are dropped.

use core::cell::RefCell;
use core::fmt;
use core::ops::{Deref, DerefMut};

/// The bytes of a READ, which can be edited in place. The lease owns the bytes, and is one pointer wide.
///
/// The buffer returns to the pool of the thread that drops it. So if all operations of a client run on one thread, they
/// allocate nothing in the steady state, except READs of more than 64 KiB, whose buffers are not pooled.
pub struct Lease(Option<Box<Buffer>>);

struct Buffer {
    len: usize,
    bytes: Box<[u8]>,
}

/// Capacities of pooled buffers: 64 B, 128 B, … 64 KiB.
const SMALLEST: usize = 64;
const CLASSES: usize = 11;
/// A thread keeps at most this many free bytes of each capacity.
const KEPT_BYTES: usize = 4 << 20;

type Free = [Vec<Box<Buffer>>; CLASSES];

std::thread_local! {
    static FREE: RefCell<Free> = const { RefCell::new([const { Vec::new() }; CLASSES]) };
}

/// Returns the pool for buffers of at least `len` bytes, or `CLASSES` or more if there is none.
#[inline]
fn class_of(len: usize) -> usize {
    let capacity = len.max(SMALLEST).next_power_of_two();
    (capacity.trailing_zeros() - SMALLEST.trailing_zeros()) as usize
}

impl Lease {
    /// Returns a buffer of `len` bytes. Its content is unspecified: zeroes, or what an earlier lease has left there.
    #[inline]
    pub(crate) fn take(len: usize) -> Self {
        let class = class_of(len);
        let pooled = FREE
            .try_with(|free| free.borrow_mut().get_mut(class).and_then(Vec::pop))
            .ok()
            .flatten();
        let mut buffer = pooled.unwrap_or_else(|| Self::allocate(class, len));
        buffer.len = len;
        Self(Some(buffer))
    }

    #[cold]
    fn allocate(class: usize, len: usize) -> Box<Buffer> {
        let capacity = if class < CLASSES { SMALLEST << class } else { len };
        Box::new(Buffer {
            len,
            bytes: vec![0; capacity].into_boxed_slice(),
        })
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        let Some(buffer) = self.0.take() else { return };
        let class = class_of(buffer.bytes.len());
        // A thread that is ending has no pool any more, so the buffer is freed.
        let _ = FREE.try_with(|free| {
            if let Some(pool) = free.borrow_mut().get_mut(class)
                && pool.len() < KEPT_BYTES >> class >> SMALLEST.trailing_zeros()
            {
                pool.push(buffer);
            }
        });
    }
}

impl Deref for Lease {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // A lease has a buffer until it is dropped, so this never returns the empty slice.
        self.0.as_ref().map_or(&[], |buffer| &buffer.bytes[..buffer.len])
    }
}

impl DerefMut for Lease {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0
            .as_mut()
            .map_or(&mut [], |buffer| &mut buffer.bytes[..buffer.len])
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_one_pointer_wide_and_has_the_requested_length() {
        assert_eq!(size_of::<Lease>(), size_of::<usize>());
        for len in [1, 63, 64, 65, 1024, 65_536, 65_537, 1 << 20] {
            assert_eq!(Lease::take(len).len(), len);
        }
    }

    #[test]
    fn a_dropped_buffer_is_used_again() {
        let mut lease = Lease::take(100);
        lease[99] = 7;
        let place = lease.as_ptr();
        drop(lease);
        let again = Lease::take(128);
        assert_eq!(again.as_ptr(), place, "same capacity, same buffer");
        assert_ne!(Lease::take(128).as_ptr(), place, "the buffer is in use");
        drop(std::thread::spawn(move || drop(again)).join());
    }
}
