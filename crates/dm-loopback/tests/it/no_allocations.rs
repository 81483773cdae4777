//! Tests that operations allocate nothing in the steady state.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use dm_loopback::{Loopback, block_on};
use dm_verbs::{Control, NodeId, Verbs};

std::thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts this thread's allocations, because other tests run on other threads.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn operations_allocate_nothing_in_the_steady_state() {
    for polls_max in [0, 3] {
        let world = Loopback::builder()
            .nodes(2)
            .delays(polls_max)
            .build()
            .expect("memory");
        let v = world.connect(0).expect("an id");
        block_on(async {
            let at = v.chunk(NodeId(1), 1 << 16).await.expect("room");
            for round in 0..2_000u64 {
                let before = ALLOCATIONS.with(Cell::get);
                let first = v.read(at, 64).await.expect("no faults");
                let second = v.read(at.add(512), 1024).await.expect("no faults");
                drop((first, second));
                v.word(at).await.expect("no faults");
                v.write(at.add(64), &[7; 100]).await.expect("no faults");
                v.write(at.add(64), &[8; 100]).detach();
                v.chain(at.node())
                    .cas(at, 0, 0)
                    .read(at, 300)
                    .await
                    .expect("no faults");
                v.chain(at.node())
                    .write(at.add(256), &[9; 64])
                    .write_word(at, 0)
                    .await
                    .expect("no faults");
                let many = v
                    .chain(at.node())
                    .many()
                    .read(at, 40)
                    .word(at)
                    .read(at, 80)
                    .await
                    .expect("no faults");
                drop((many.lease(2), many));
                let grown = ALLOCATIONS.with(Cell::get) - before;
                // The first rounds fill the pools.
                assert!(
                    round < 10 || grown == 0,
                    "{grown} allocations in round {round}, delays {polls_max}"
                );
            }
        });
    }
    assert!(ALLOCATIONS.with(Cell::get) > 0, "the allocator does not count");
}
