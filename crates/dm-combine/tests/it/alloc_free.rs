//! Tests that sharing allocates nothing in the steady state, for leaders, for followers, and for operations that run
//! alone.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use dm_combine::{Combined, Combiner, Rdwc};
use dm_index::{Applied, Key8, RangeIndex, Words};
use dm_loopback::{Loopback, run_all};
use dm_verbs::{Counters, Env, NodeId, RemotePtr};

std::thread_local! {
    /// The number of allocations of this thread.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches a plain thread-local.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending may have no counter any more.
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

const KEYS: u64 = 2;
const ROUNDS: u64 = 160;
/// After this many rounds, the buffers and the list of wakers have their final size.
const STEADY: u64 = ROUNDS * 3 / 4;

/// Runs eight coroutines on one thread. Completions are delayed, so that operations overlap.
#[test]
fn shared_operations_allocate_nothing() {
    let world = Loopback::builder().delays(2).build().expect("the world is built");
    let v: Vec<_> = (0..8)
        .map(|_| world.connect(0).expect("the client connects"))
        .collect();
    let base = RemotePtr::new(NodeId(0), 4096).expect("a small offset");
    let table = Combiner::new(&Rdwc { locks: 1, ..Rdwc::ON });
    let clients: Vec<_> = v
        .iter()
        .map(|v| Combined::new(v, Words::new(v, base, KEYS), Some(&table)))
        .collect();
    let work = |number: usize| {
        let client = &clients[number];
        async move {
            let (mut value, mut at_steady) = (Vec::with_capacity(8), (0, Counters::default()));
            for n in 0..ROUNDS {
                if n == STEADY {
                    at_steady = (COUNT.get(), client.verbs().meter().counters());
                }
                let key = Key8(n % KEYS);
                let bytes = (n as u32).to_le_bytes();
                let applied = client.upsert(&key, &bytes).await.expect("no verb fails");
                assert!(matches!(applied, Applied::Inserted | Applied::Replaced));
                assert_eq!(client.get(&key, &mut value).await, Ok(true));
                assert_eq!(client.update(&key, &bytes).await, Ok(Applied::Replaced));
            }
            let counted = client.verbs().meter().counters() - at_steady.1;
            (COUNT.get() - at_steady.0, counted)
        }
    };
    let done = run_all((0..clients.len()).map(work));
    // Only the coroutine that ends first is checked, because the end of a coroutine allocates.
    let least = done.iter().map(|(allocations, _)| *allocations).min();
    assert_eq!(least, Some(0));
    let sum = done.iter().fold(Counters::default(), |sum, (_, c)| sum + *c);
    assert!(
        sum.delegated > 20 && sum.combined > 20 && sum.went_alone > 5,
        "{sum:?}"
    );
}
