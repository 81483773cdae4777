//! Counts of a thread's allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

std::thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { allocations: 0, live_bytes: 0 }) };
}

/// The allocations of one thread so far, if the program uses [`CountingAllocator`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Allocations; resizing one counts as an allocation.
    pub allocations: u64,
    /// Bytes that the thread has requested, minus those that it has freed. The number is negative if the thread has
    /// freed enough memory of other threads.
    pub live_bytes: i64,
}

impl Counts {
    /// Returns the calling thread's counts.
    pub fn of_thread() -> Self {
        COUNTS.get()
    }
}

/// The system's allocator with counts per thread; make it a test program's `#[global_allocator]`.
#[derive(Debug)]
pub struct CountingAllocator;

fn count(allocations: u64, bytes: i64) {
    // While a thread ends, its counter may no longer exist. No test would read it, so the error is ignored.
    let _ = COUNTS.try_with(|counts| {
        let Counts {
            allocations: before,
            live_bytes,
        } = counts.get();
        counts.set(Counts {
            allocations: before + allocations,
            live_bytes: live_bytes + bytes,
        });
    });
}

// SAFETY: `alloc` and `dealloc` pass their arguments on to the system's allocator unchanged. Counting only accesses a
// plain thread-local.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller's promises about `at` and `layout` are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}
