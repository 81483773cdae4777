//! A hint to the processor's cache.

/// Asks the processor to load the cache line of `at` into its cache, and does not wait for it. This is useful if other
/// work is done before `at` is read. It does nothing on processors other than x86-64, and under Miri.
///
/// ```
/// let table = vec![0u64; 1 << 20];
/// dm_sync::prefetch(&table[1 << 19]);
/// let sum: u64 = (0..100).sum();
/// assert_eq!(table[1 << 19] + sum, 4950);
/// ```
#[inline]
pub fn prefetch<T>(at: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has this instruction, and it has no architectural effect.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(at).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
