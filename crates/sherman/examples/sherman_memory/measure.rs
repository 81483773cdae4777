//! Measures the memory of a tree after inserts in random order. The memory is counted twice: by the tree itself, and by
//! the global allocator, which must be `dm_testkit::CountingAllocator`.

use std::error::Error;

use dm_cache::CacheBytes;
use dm_index::{Key8, RangeIndex};
use dm_loopback::{Loopback, block_on};
use dm_testkit::{Counts, connect};
use dm_workload::KeySpace;
use sherman::{Applied, Options, Sherman};

/// The allowed difference in bytes between the tree's own count and the allocator's count. The own count includes the
/// handles, which are on the stack here. The allocator's count includes the reference counts of shared data.
pub(crate) const TOLERANCE: i64 = 4096;

/// Sizes after the inserts.
pub(crate) struct Measured {
    pub(crate) keys: u64,
    /// Bytes of the leaves and inner nodes in use.
    pub(crate) nodes: u64,
    /// Bytes of the chunks that were requested from memory nodes.
    pub(crate) chunks: u64,
    pub(crate) cache: CacheBytes,
    /// The number of cached nodes of each level, from level 1 on.
    pub(crate) cached: Vec<usize>,
    /// Bytes of all other memory that the compute node uses for the tree, by its own count.
    pub(crate) others: u64,
    /// The bytes that were freed when the tree was dropped.
    pub(crate) freed: i64,
}

impl Measured {
    pub(crate) fn per_key(&self, bytes: u64) -> f64 {
        bytes as f64 / self.keys as f64
    }

    /// Returns the compute node's own count minus the bytes that were freed.
    pub(crate) fn difference(&self) -> i64 {
        (self.cache.total() + self.others) as i64 - self.freed
    }
}

/// Inserts `keys` keys of 8 bytes with values of 8 bytes into an empty tree, in random order, and measures its memory.
/// Calls `progress(i)` after the insert of key number `i`, for each multiple `i` of 2^20.
pub(crate) fn measure(keys: u64, mut progress: impl FnMut(u64)) -> Result<Measured, Box<dyn Error>> {
    // The world has twice the memory of the limit, and room for partly used chunks.
    let world = Loopback::builder()
        .nodes(1)
        .host_bytes(keys * 64 + (64 << 20))
        .build()?;
    let v = connect(&world, 0);
    block_on(async {
        let options = Options {
            // With this budget, nothing is evicted.
            cache_bytes: u64::MAX,
            ..Options::new(8)
        };
        let tree = Sherman::<Key8>::create_or_open(&v, &options).await?;
        let client = tree.client(&v);
        // This is a bijection, so all keys differ, and they are spread over the whole range of 64 bits.
        let order = KeySpace::scrambled(1);
        for i in 0..keys {
            let key = order.number(i);
            if client.insert(&Key8(key), &key.to_le_bytes()).await? != Applied::Inserted {
                return Err(format!("key {key:#x} was there before").into());
            }
            if i.is_multiple_of(1 << 20) {
                progress(i);
            }
        }
        drop(client);
        let stats = tree.alloc_stats();
        let cached = (1..).map(|level| tree.cache().len_at(level));
        let mut measured = Measured {
            keys,
            nodes: stats.in_use_bytes.max(0) as u64,
            chunks: stats.fetched_bytes,
            cache: tree.cache().bytes_by_part(),
            cached: cached.take_while(|nodes| *nodes > 0).collect(),
            others: tree.local_bytes(),
            freed: Counts::of_thread().live_bytes,
        };
        drop(tree);
        measured.freed -= Counts::of_thread().live_bytes;
        Ok(measured)
    })
}
