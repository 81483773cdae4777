//! The part of an allocator for one memory node: unused ranges, free lists, and the client that is fetching a
//! chunk.

use core::task::Waker;

use dm_verbs::{ClientId, RemotePtr};

use crate::block::{Block, Class};
use crate::depot::{BATCH, KEEP, MAGAZINE};
use crate::superblock::PAGE;

/// Maximum number of unused ranges. If there are more, the smallest is dropped.
const RANGES_MAX: usize = 8;

/// A range that was never handed out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Range {
    start: RemotePtr,
    bytes: u64,
}

/// The freed blocks of one class.
#[derive(Debug)]
struct FreeList {
    class: Class,
    free: Vec<Block>,
}

/// A block that was given back while a WRITE to it was in flight. This WRITE lands before any later WRITE of the same
/// client to the block. It has also landed when a later READ of this client from the same memory node completes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Orphan {
    client: ClientId,
    class: Class,
    block: Block,
}

/// The result of [`NodePool::take`].
pub(crate) enum Found {
    Block(Block),
    /// The caller must fetch a chunk of this many bytes.
    Fetch(u64),
    /// Another client of this compute node is fetching a chunk.
    Fetching,
    Full,
}

#[derive(Debug, Default)]
pub(crate) struct NodePool {
    ranges: Vec<Range>,
    classes: Vec<FreeList>,
    orphans: Vec<Orphan>,
    /// Whether a client is fetching a chunk. The clients that wait for it are in `waiting`.
    fetching: bool,
    waiting: Vec<Waker>,
    /// Bytes that the memory node had left when it last refused a chunk. Chunks are never returned, so this
    /// only shrinks.
    left: Option<u64>,
    /// Bytes of all fetched chunks.
    fetched: u64,
    /// Bytes of blocks handed out, minus those that were freed. It may be negative, because a freed block may
    /// have come from another compute node.
    in_use: i64,
    /// Bytes of dropped ranges.
    wasted: u64,
}

impl NodePool {
    /// Returns the bytes that the tables of this value have allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        let lists: usize = self
            .classes
            .iter()
            .map(|c| c.free.capacity() * size_of::<Block>())
            .sum();
        self.ranges.capacity() * size_of::<Range>()
            + self.classes.capacity() * size_of::<FreeList>()
            + self.orphans.capacity() * size_of::<Orphan>()
            + self.waiting.capacity() * size_of::<Waker>()
            + lists
    }

    /// Takes a block of `class` for `client` without communication, if there is one.
    #[inline]
    pub(crate) fn at_hand(&mut self, client: ClientId, class: Class) -> Option<Block> {
        let bytes = class.block_bytes();
        let list = self.classes.iter_mut().find(|c| c.class == class);
        let block = list
            .and_then(|c| c.free.pop())
            .or_else(|| self.adopt(client, class))
            .or_else(|| self.bump(bytes).map(Block::fresh))?;
        self.in_use += bytes as i64;
        Some(block)
    }

    /// Takes a block like [`NodePool::at_hand`], or returns how to get one.
    pub(crate) fn take(&mut self, client: ClientId, class: Class, chunk: u64) -> Found {
        let bytes = class.block_bytes();
        if let Some(block) = self.at_hand(client, class) {
            return Found::Block(block);
        }
        if self.fetching {
            return Found::Fetching;
        }
        // After a refusal a smaller chunk may still fit.
        let fetch = self.left.map_or(chunk, |left| chunk.min(left / PAGE * PAGE));
        if fetch < bytes {
            return Found::Full;
        }
        self.fetching = true;
        Found::Fetch(fetch)
    }

    /// Takes an orphan of this client. This is safe because the client's next WRITE lands after the pending one.
    fn adopt(&mut self, client: ClientId, class: Class) -> Option<Block> {
        let mine = |o: &Orphan| o.client == client && o.class == class;
        let i = self.orphans.iter().position(mine)?;
        Some(self.orphans.swap_remove(i).block)
    }

    /// Takes back a block of `class` to which a WRITE of `client` may be in flight.
    pub(crate) fn put_orphan(&mut self, client: ClientId, block: Block, class: Class) {
        self.in_use -= class.block_bytes() as i64;
        self.orphans.push(Orphan { client, class, block });
    }

    /// Takes back a block like [`NodePool::put_orphan`], but a block that was free before, which does not
    /// count as in use.
    pub(crate) fn put_orphan_again(&mut self, client: ClientId, block: Block, class: Class) {
        self.orphans.push(Orphan { client, class, block });
    }

    /// Takes out a batch of surplus blocks of one class, and a magazine for them.
    pub(crate) fn surplus(&mut self) -> Option<(Block, Vec<(Block, Class)>)> {
        let plenty = |list: &FreeList| list.class != MAGAZINE && list.free.len() >= KEEP + BATCH;
        let i = self.classes.iter().position(plenty)?;
        let magazine = match self.list(MAGAZINE).pop() {
            Some(magazine) => magazine,
            None => Block::fresh(self.bump(MAGAZINE.block_bytes())?),
        };
        let FreeList { class, free } = &mut self.classes[i];
        let blocks = free.drain(..BATCH).map(|block| (block, *class)).collect();
        Some((magazine, blocks))
    }

    /// Takes out the orphans of `client`.
    pub(crate) fn take_orphans(&mut self, client: ClientId) -> Vec<Orphan> {
        let (mine, others) = self.orphans.drain(..).partition(|o| o.client == client);
        self.orphans = others;
        mine
    }

    /// Puts orphans back whose WRITEs may still be in flight.
    pub(crate) fn put_back(&mut self, orphans: Vec<Orphan>) {
        self.orphans.extend(orphans);
    }

    /// Frees orphans whose WRITEs have landed.
    pub(crate) fn landed(&mut self, orphans: Vec<Orphan>) {
        for Orphan { class, block, .. } in orphans {
            self.list(class).push(block);
        }
    }

    fn bump(&mut self, bytes: u64) -> Option<RemotePtr> {
        // Takes from the smallest range that fits, so that remainders are used before fresh chunks.
        let i = (0..self.ranges.len())
            .filter(|&i| self.ranges[i].bytes >= bytes)
            .min_by_key(|&i| self.ranges[i].bytes)?;
        let block = self.ranges[i].start;
        self.ranges[i].start = block.add(bytes);
        self.ranges[i].bytes -= bytes;
        if self.ranges[i].bytes == 0 {
            self.ranges.swap_remove(i);
        }
        Some(block)
    }

    /// Takes back a block that no client can reach. It is reused only within its class.
    pub(crate) fn put(&mut self, block: Block, class: Class) {
        self.in_use -= class.block_bytes() as i64;
        self.list(class).push(block);
    }

    /// Frees a block that was retired before.
    pub(crate) fn put_reclaimed(&mut self, block: Block, class: Class) {
        self.list(class).push(block);
    }

    /// Counts a block of `class` as retired: it is neither in use nor free.
    pub(crate) fn retire(&mut self, class: Class) {
        self.in_use -= class.block_bytes() as i64;
    }

    /// Returns the number of free blocks of `class`.
    pub(crate) fn free(&self, class: Class) -> usize {
        let list = self.classes.iter().find(|c| c.class == class);
        list.map_or(0, |c| c.free.len())
    }

    fn list(&mut self, class: Class) -> &mut Vec<Block> {
        let i = self.classes.iter().position(|c| c.class == class);
        let i = i.unwrap_or_else(|| {
            self.classes.push(FreeList {
                class,
                free: Vec::new(),
            });
            self.classes.len() - 1
        });
        &mut self.classes[i].free
    }

    /// Adds a fetched chunk.
    pub(crate) fn add(&mut self, start: RemotePtr, bytes: u64) {
        self.fetched += bytes;
        let before = self.ranges.iter_mut().find(|r| r.start.add(r.bytes) == start);
        if let Some(before) = before {
            before.bytes += bytes;
            return;
        }
        self.ranges.push(Range { start, bytes });
        if self.ranges.len() > RANGES_MAX
            && let Some(i) = (0..self.ranges.len()).min_by_key(|&i| self.ranges[i].bytes)
        {
            self.wasted += self.ranges.swap_remove(i).bytes;
        }
    }

    /// Accounts for a chunk that lies beyond the allocator's limit, so that it cannot be used. The memory
    /// node then counts as full, because later chunks lie at even higher offsets.
    pub(crate) fn out_of_reach(&mut self, bytes: u64) {
        self.fetched += bytes;
        self.wasted += bytes;
        self.refused(0);
    }

    /// Records that the memory node refused a chunk and has `left` bytes.
    pub(crate) fn refused(&mut self, left: u64) {
        self.left = Some(self.left.map_or(left, |before| before.min(left)));
    }

    /// Ends the fetching, and returns the clients to wake. The caller wakes them after it has left the
    /// section.
    pub(crate) fn fetched(&mut self) -> Vec<Waker> {
        self.fetching = false;
        core::mem::take(&mut self.waiting)
    }

    /// Returns whether a client is still fetching. If so, `waker` is woken afterwards.
    pub(crate) fn wait(&mut self, waker: &Waker) -> bool {
        if self.fetching && !self.waiting.iter().any(|w| w.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
        self.fetching
    }

    /// Returns the bytes of chunks that were never handed out.
    pub(crate) fn spare(&self) -> u64 {
        self.ranges.iter().map(|range| range.bytes).sum()
    }

    /// Adds this memory node's memory use.
    pub(crate) fn add_to(&self, stats: &mut crate::AllocStats) {
        let lists = self.classes.iter();
        let free: u64 = lists.map(|c| c.class.block_bytes() * c.free.len() as u64).sum();
        let orphans: u64 = self.orphans.iter().map(|o| o.class.block_bytes()).sum();
        stats.fetched_bytes += self.fetched;
        stats.in_use_bytes += self.in_use;
        stats.free_bytes += free + orphans;
        stats.wasted_bytes += self.wasted;
    }

    /// Returns everything that later behaviour depends on. Only the number of waiters counts, because all of them
    /// are woken.
    pub(crate) fn state(&self) -> impl core::hash::Hash + '_ {
        let ranges: Vec<_> = self.ranges.iter().map(|r| (r.start.raw(), r.bytes)).collect();
        let classes: Vec<_> = self.classes.iter().map(|c| (c.class, &c.free)).collect();
        (
            ranges,
            classes,
            &self.orphans,
            self.fetching,
            self.waiting.len(),
            self.left,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_verbs::NodeId;

    const CLASS: Class = Class { bytes: 1024, kind: 1 };
    const ME: ClientId = ClientId(5);

    fn at(offset: u64) -> RemotePtr {
        RemotePtr::new(NodeId(1), offset).expect("a small offset")
    }

    #[test]
    fn after_a_refusal_whole_pages_of_what_is_left_are_asked_for() {
        let mut pool = NodePool::default();
        let fetches = |pool: &mut NodePool, bytes| matches!(pool.take(ME, CLASS, 1 << 16), Found::Fetch(b) if b == bytes);
        assert!(fetches(&mut pool, 1 << 16));
        assert!(matches!(pool.take(ME, CLASS, 1 << 16), Found::Fetching));
        pool.fetched();
        pool.refused(10_000);
        assert!(fetches(&mut pool, 8192));
        pool.fetched();
        // The room that is left on a memory node never grows again.
        pool.refused(50_000);
        assert!(fetches(&mut pool, 8192));
        pool.fetched();
        pool.refused(4095);
        assert!(matches!(pool.take(ME, CLASS, 1 << 16), Found::Full));
    }

    #[test]
    fn whoever_waits_for_a_chunk_is_woken_once() {
        let mut pool = NodePool::default();
        let waker = Waker::noop();
        assert!(!pool.wait(waker), "nobody fetches");
        assert!(pool.fetched().is_empty());
        assert!(matches!(pool.take(ME, CLASS, 1 << 16), Found::Fetch(_)));
        assert!(pool.wait(waker) && pool.wait(waker));
        assert_eq!(pool.fetched().len(), 1);
        assert!(!pool.wait(waker));
        assert!(pool.fetched().is_empty());
    }

    #[test]
    fn of_more_ranges_than_are_kept_the_smallest_is_given_up() {
        let mut pool = NodePool::default();
        let wasted = |pool: &NodePool| {
            let mut stats = crate::AllocStats::default();
            pool.add_to(&mut stats);
            stats.wasted_bytes
        };
        for i in 0..RANGES_MAX as u64 {
            pool.add(at((i + 1) << 20), 8192 + 4096 * i);
        }
        assert_eq!(wasted(&pool), 0);
        pool.add(at(100 << 20), 4096);
        pool.add(at(200 << 20), 1 << 16);
        assert_eq!(wasted(&pool), 4096 + 8192);
        // A chunk that begins where a range ends extends that range.
        pool.add(at((200 << 20) + (1 << 16)), 1 << 16);
        assert_eq!(wasted(&pool), 4096 + 8192);
    }

    #[test]
    fn blocks_are_accounted_for_wherever_they_are() {
        let mut pool = NodePool::default();
        pool.add(at(1 << 20), 1 << 16);
        let [a, b, c, d] = [(); 4].map(|()| pool.at_hand(ME, CLASS).expect("room"));
        let stats = |pool: &NodePool| {
            let mut stats = crate::AllocStats::default();
            pool.add_to(&mut stats);
            (stats.in_use_bytes / 1024, stats.free_bytes / 1024)
        };
        assert_eq!((stats(&pool), pool.free(CLASS)), ((4, 0), 0));
        pool.put(a, CLASS);
        pool.retire(CLASS);
        pool.put_orphan(ME, c, CLASS);
        assert_eq!((stats(&pool), pool.free(CLASS)), ((1, 2), 1));
        pool.put_reclaimed(b, CLASS);
        pool.put_orphan_again(ClientId(6), d, CLASS);
        assert_eq!((stats(&pool), pool.free(CLASS)), ((1, 4), 2));
        assert_eq!(pool.free(Class { kind: 2, ..CLASS }), 0);
        let mine = pool.take_orphans(ME);
        assert_eq!((mine.len(), stats(&pool)), (1, (1, 3)));
        pool.landed(mine);
        assert_eq!((stats(&pool), pool.free(CLASS)), ((1, 4), 3));
    }
}
