//! The only unsafe code of this crate: a hint to the CPU's cache.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{_MM_HINT_T0 as NEAR, _MM_HINT_T1 as SECOND, _mm_prefetch};
#[cfg(not(target_arch = "x86_64"))]
const NEAR: i32 = 0;
#[cfg(not(target_arch = "x86_64"))]
const SECOND: i32 = 0;

/// Hints that the line in which `place` begins will be read soon.
#[inline]
pub(crate) fn line<T>(place: &T) {
    hint::<T, NEAR>(place);
}

/// Hints that all lines of `bytes` will be read soon. Does nothing for fewer than two bytes. Only the first line goes
/// to the first-level cache, which is too small for the transfers of all clients. The others go to the second-level
/// cache. The CPU fetches them from there while it copies the first line.
#[inline]
pub(crate) fn lines(bytes: &[u8]) {
    let [first, .., last] = bytes else { return };
    line(first);
    for next in bytes.as_chunks::<64>().0.iter().skip(1) {
        hint::<_, SECOND>(next);
    }
    // The loop misses the last line if the bytes do not begin or do not end at a line boundary.
    hint::<_, SECOND>(last);
}

#[inline(always)]
fn hint<T, const CACHE: i32>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no architectural effect and never faults; SSE is part of x86_64's baseline.
    unsafe {
        _mm_prefetch::<CACHE>(core::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
