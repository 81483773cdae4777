//! What a compute node holds of one memory node: ranges to bump through, free lists, and who is fetching a chunk.

use core::task::Waker;

use dm_verbs::{ClientId, RemotePtr};

use crate::block::{Block, Class};
use crate::depot::{BATCH, KEEP, MAGAZINE};
use crate::superblock::PAGE;

/// Unused ranges that are kept at most; the smallest is given up beyond that.
const RANGES_MAX: usize = 8;

/// Bytes never handed out yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Range {
    start: RemotePtr,
    bytes: u64,
}

/// Freed blocks of one class.
#[derive(Debug)]
struct FreeList {
    class: Class,
    free: Vec<Block>,
}

/// A block that was given up while a WRITE to it was under way: it lands before whatever this client writes there next,
/// and some time before whatever this client has read from that memory node later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Orphan {
    client: ClientId,
    class: Class,
    block: Block,
}

/// What [`NodePool::take`] found.
pub(crate) enum Found {
    Block(Block),
    /// A chunk of that many bytes must be fetched, and the caller is the one to do it.
    Fetch(u64),
    /// Somebody else of this compute node is fetching one.
    Fetching,
    Full,
}

#[derive(Debug, Default)]
pub(crate) struct NodePool {
    ranges: Vec<Range>,
    classes: Vec<FreeList>,
    orphans: Vec<Orphan>,
    /// Somebody is fetching a chunk; the others wait here for it.
    fetching: bool,
    waiting: Vec<Waker>,
    /// What the node said to have left when it last refused. Chunks never come back, so it only shrinks.
    left: Option<u64>,
    /// Bytes of all chunks so far.
    fetched: u64,
    /// Bytes of blocks handed out, less those that came back: they may have come from another compute node.
    in_use: i64,
    /// Bytes of ranges given up.
    wasted: u64,
}

impl NodePool {
    /// Bytes that its own tables have allocated.
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

    /// A block of `class` for `client`, if there is one.
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

    /// The same, or what to do for one.
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

    /// This client's own orphan: its next WRITE goes behind the last.
    fn adopt(&mut self, client: ClientId, class: Class) -> Option<Block> {
        let mine = |o: &Orphan| o.client == client && o.class == class;
        let i = self.orphans.iter().position(mine)?;
        Some(self.orphans.swap_remove(i).block)
    }

    /// A block of `class` comes back that `client` may still be writing to.
    pub(crate) fn put_orphan(&mut self, client: ClientId, block: Block, class: Class) {
        self.in_use -= class.block_bytes() as i64;
        self.orphans.push(Orphan { client, class, block });
    }

    /// The same, of a block that was free.
    pub(crate) fn put_orphan_again(&mut self, client: ClientId, block: Block, class: Class) {
        self.orphans.push(Orphan { client, class, block });
    }

    /// Some of the blocks of a class that there are more than enough of, and a magazine to put them into.
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

    /// Puts them back.
    pub(crate) fn put_back(&mut self, orphans: Vec<Orphan>) {
        self.orphans.extend(orphans);
    }

    /// What was written to them has landed.
    pub(crate) fn landed(&mut self, orphans: Vec<Orphan>) {
        for Orphan { class, block, .. } in orphans {
            self.list(class).push(block);
        }
    }

    fn bump(&mut self, bytes: u64) -> Option<RemotePtr> {
        // The smallest range that fits: remainders first, the fresh chunk last.
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

    /// A block comes back that nobody can reach; it goes to requests of its own class only.
    pub(crate) fn put(&mut self, block: Block, class: Class) {
        self.in_use -= class.block_bytes() as i64;
        self.list(class).push(block);
    }

    /// A block that was retired before is free.
    pub(crate) fn put_reclaimed(&mut self, block: Block, class: Class) {
        self.list(class).push(block);
    }

    /// A block is retired: no longer in use, and not free yet.
    pub(crate) fn retire(&mut self, class: Class) {
        self.in_use -= class.block_bytes() as i64;
    }

    /// Free blocks of `class`, as many as have come back.
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

    /// The chunk is there.
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

    /// A chunk came that is not to be used, and what comes later is no better.
    pub(crate) fn out_of_reach(&mut self, bytes: u64) {
        self.fetched += bytes;
        self.wasted += bytes;
        self.refused(0);
    }

    /// The node refused a chunk and has `left` bytes.
    pub(crate) fn refused(&mut self, left: u64) {
        self.left = Some(self.left.map_or(left, |before| before.min(left)));
    }

    /// Nobody fetches any more; the answer is whom to wake, outside of the section.
    pub(crate) fn fetched(&mut self) -> Vec<Waker> {
        self.fetching = false;
        core::mem::take(&mut self.waiting)
    }

    /// Whether somebody still fetches; then `waker` is woken after it.
    pub(crate) fn wait(&mut self, waker: &Waker) -> bool {
        if self.fetching && !self.waiting.iter().any(|w| w.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
        self.fetching
    }

    /// Adds what it has to do with.
    pub(crate) fn add_to(&self, stats: &mut crate::AllocStats) {
        let lists = self.classes.iter();
        let free: u64 = lists.map(|c| c.class.block_bytes() * c.free.len() as u64).sum();
        let orphans: u64 = self.orphans.iter().map(|o| o.class.block_bytes()).sum();
        stats.fetched_bytes += self.fetched;
        stats.in_use_bytes += self.in_use;
        stats.free_bytes += free + orphans;
        stats.wasted_bytes += self.wasted;
    }

    /// All that later behaviour depends on. Waiters are woken in any case, so who they are is left out.
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
        // It never has more again than it once said.
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
        // What begins where a range ends is one with it.
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
