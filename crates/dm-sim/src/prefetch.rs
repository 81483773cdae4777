//! The only unsafe code of this crate: a hint to the CPU's cache.

/// Hints that the line in which `place` begins will be read soon.
#[inline]
pub(crate) fn line<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no architectural effect and never faults; SSE is part of x86_64's baseline.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
