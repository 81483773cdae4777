//! What a compute node holds of one memory node: ranges to bump through, free lists, and who is fetching a chunk.

use core::task::Waker;

use dm_verbs::RemotePtr;

use crate::superblock::PAGE;

/// Unused ranges that are kept at most; the smallest is given up beyond that.
const RANGES_MAX: usize = 8;

/// Bytes never handed out yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Range {
    start: RemotePtr,
    bytes: u64,
}

/// Freed blocks of one size.
#[derive(Debug)]
struct Class {
    bytes: u64,
    free: Vec<RemotePtr>,
}

/// What [`NodePool::take`] found.
pub(crate) enum Found {
    Block(RemotePtr),
    /// A chunk of that many bytes must be fetched, and the caller is the one to do it.
    Fetch(u64),
    /// Somebody else of this compute node is fetching one.
    Fetching,
    Full,
}

#[derive(Debug, Default)]
pub(crate) struct NodePool {
    ranges: Vec<Range>,
    classes: Vec<Class>,
    /// Somebody is fetching a chunk; the others wait here for it.
    fetching: bool,
    waiting: Vec<Waker>,
    /// What the node said to have left when it last refused. Chunks never come back, so it only shrinks.
    left: Option<u64>,
    /// Bytes of all chunks so far.
    fetched: u64,
    /// Bytes of blocks in use.
    in_use: u64,
    /// Bytes of ranges given up.
    wasted: u64,
}

impl NodePool {
    /// Bytes that its own tables have allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        let lists: usize = self
            .classes
            .iter()
            .map(|c| c.free.capacity() * size_of::<RemotePtr>())
            .sum();
        self.ranges.capacity() * size_of::<Range>()
            + self.classes.capacity() * size_of::<Class>()
            + self.waiting.capacity() * size_of::<Waker>()
            + lists
    }

    /// A block of `bytes` (a multiple of 64), or what to do for one.
    pub(crate) fn take(&mut self, bytes: u64, chunk: u64) -> Found {
        let class = self.classes.iter_mut().find(|c| c.bytes == bytes);
        let block = class.and_then(|c| c.free.pop()).or_else(|| self.bump(bytes));
        if let Some(block) = block {
            self.in_use += bytes;
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

    /// A block comes back; only blocks of its own size are taken from it again.
    pub(crate) fn put(&mut self, block: RemotePtr, bytes: u64) {
        self.in_use -= bytes;
        match self.classes.iter_mut().find(|c| c.bytes == bytes) {
            Some(class) => class.free.push(block),
            None => self.classes.push(Class {
                bytes,
                free: vec![block],
            }),
        }
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

    pub(crate) fn bytes(&self) -> [u64; 4] {
        let free = self.classes.iter().map(|c| c.bytes * c.free.len() as u64).sum();
        [self.fetched, self.in_use, free, self.wasted]
    }

    /// All that later behaviour depends on. Waiters are woken in any case, so who they are is left out.
    pub(crate) fn state(&self) -> impl core::hash::Hash + '_ {
        let ranges: Vec<_> = self.ranges.iter().map(|r| (r.start.raw(), r.bytes)).collect();
        let classes: Vec<_> = self.classes.iter().map(|c| (c.bytes, &c.free)).collect();
        (ranges, classes, self.fetching, self.waiting.len(), self.left)
    }
}
