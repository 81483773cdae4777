//! In the steady state a get, an update or an upsert of a present key allocates nothing on the compute node.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::Tree;
use dm_loopback::{Loopback, block_on};
use dm_testkit::IndexUnderTest;
use smart::{Applied, Key8, Options, RangeIndex, Rdwc};

std::thread_local! {
    /// Allocations of this thread.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches a plain thread-local.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is going away has no counter any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises about `at` and `layout` are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KEYS: u64 = 2_000;

/// Key bytes 5 to 7 tell keys apart: small nodes below a large one.
fn key(n: u64) -> Key8 {
    Key8(n.wrapping_mul(0x9E37_79B1) & 0xff_ffff)
}

#[test]
fn operations_on_present_keys_allocate_nothing() {
    for (value_bytes, rdwc) in [(8, Rdwc::OFF), (8, Rdwc::ON), (200, Rdwc::ON)] {
        let world = Loopback::builder().build().expect("memory");
        let v = world.connect(0).expect("a client");
        block_on(async {
            let options = Options {
                rdwc,
                ..Options::new(value_bytes)
            };
            let tree = Tree::<Key8>::new(options).open(&v).await.expect("an empty pool");
            let client = tree.client(&v);
            let value = vec![3; value_bytes];
            for n in 0..KEYS {
                assert_eq!(client.insert(&key(n), &value).await, Ok(Applied::Inserted));
            }
            let mut read = Vec::new();
            // Twice: buffers, pools and the cache have grown to their size after the first time.
            for steady in [false, true] {
                let before = COUNT.get();
                for n in 0..KEYS {
                    let key = key(n);
                    assert_eq!(client.get(&key, &mut read).await, Ok(true));
                    assert_eq!(client.update(&key, &value).await, Ok(Applied::Replaced));
                    assert_eq!(client.upsert(&key, &value).await, Ok(Applied::Replaced));
                    assert_eq!(client.insert(&key, &value).await, Ok(Applied::Present));
                }
                let count = COUNT.get() - before;
                assert!(
                    !steady || count == 0,
                    "{value_bytes}-byte values: {count} allocations"
                );
            }
        });
    }
}
