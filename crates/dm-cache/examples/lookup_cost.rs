//! Measures the cost of a lookup with random keys in a cache of 30 000 level-1 nodes with 42 children each.
//!
//! Of these commands, `valgrind` counts instructions, which are the same in every run, and `time` measures the time:
//! ```text
//! cargo build --release -p dm-cache --example lookup_cost
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*look_up_many*' \
//!     target/release/examples/lookup_cost 10000        # "Collected", divided by 10 000
//! time target/release/examples/lookup_cost 20000000    # nanoseconds, building included (run with 0 for that part)
//! time target/release/examples/lookup_cost 20000000 2  # two threads concurrently, with this number each
//! time target/release/examples/lookup_cost 20000000 1 32  # with keys of 32 bytes
//! ```

use dm_cache::{CacheKey, IndexCache, NodeImage};
use dm_sync::{Arc, thread};
use dm_verbs::{NodeId, RemotePtr};

const NODES: u64 = 30_000;
const CHILDREN: u64 = 42;

/// A key type that can be made from a number, in the order of the numbers.
trait From64 {
    fn from64(number: u64) -> Self;
}

impl From64 for u64 {
    fn from64(number: u64) -> Self {
        number
    }
}

impl From64 for [u8; 32] {
    fn from64(number: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[24..].copy_from_slice(&number.to_be_bytes());
        bytes
    }
}

/// Returns the first key of child `j` of node `i`. The keys are spread evenly over the range of 64 bits.
fn key_number(i: u64, j: u64) -> u64 {
    (i * CHILDREN + j) * (u64::MAX / (NODES * CHILDREN))
}

fn admit<K: CacheKey + From64>(cache: &IndexCache<K>, i: u64) {
    let key = |i, j| K::from64(key_number(i, j));
    cache.admit(NodeImage {
        at: RemotePtr::new(NodeId(0), i << 10).expect("a small offset"),
        level: 1,
        low: key(i, 0),
        high: (i + 1 < NODES).then(|| key(i + 1, 0)),
        incarnation: 0,
        entries: (0..CHILDREN).map(move |j| {
            let at = (i * CHILDREN + j).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 38;
            let node = NodeId((at & 7) as u16);
            (
                K::from64(key_number(i, j)),
                RemotePtr::new(node, at << 10).expect("26 + 10 bits"),
            )
        }),
    });
}

#[inline(never)]
fn look_up_many<K: CacheKey + From64>(cache: &IndexCache<K>, lookups: u64, mut random: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..lookups {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let hit = cache.lookup(&K::from64(random)).expect("every key is covered");
        sum ^= hit.child.raw() ^ u64::from(hit.low > K::from64(random));
    }
    sum
}

fn measure<K: CacheKey + From64>(lookups: u64, threads: u64) {
    let cache = Arc::new(IndexCache::<K>::new(u64::MAX));
    // The loop visits every number below the power of two once, in scattered order.
    let wide = NODES.next_power_of_two();
    for i in (0..wide)
        .map(|i| i.wrapping_mul(0x9E37_79B9) % wide)
        .filter(|i| *i < NODES)
    {
        admit(&cache, i);
    }
    assert_eq!(cache.len() as u64, NODES);
    let others: Vec<_> = (1..threads)
        .map(|seed| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || look_up_many(&cache, lookups, seed))
        })
        .collect();
    std::hint::black_box(look_up_many(&cache, lookups, 0));
    for other in others {
        std::hint::black_box(other.join().expect("no panic"));
    }
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|word| word.parse::<u64>().expect("a number"));
    let (lookups, threads) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(1));
    match arguments.next() {
        None | Some(8) => measure::<u64>(lookups, threads),
        Some(32) => measure::<[u8; 32]>(lookups, threads),
        Some(other) => panic!("keys are of 8 or 32 bytes, not {other}"),
    }
}
