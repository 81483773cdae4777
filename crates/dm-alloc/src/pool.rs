//! The part of an allocator for one memory node. For each class, it holds the free blocks and the rest of the last
//! chunk. It also records whether a client is fetching a chunk.

use core::task::Waker;

use dm_verbs::{ClientId, RemotePtr};

use crate::block::{Block, Class};
use crate::depot::{BATCH, MAGAZINE};
use crate::superblock::PAGE;

/// Size of the first chunk of a class. Each further chunk is as large as all earlier ones together. No such chunk is
/// larger than the allocator's chunk size. If only a few blocks fit into such a chunk, whole blocks are requested
/// instead, at least one, with room for the record.
const FIRST_CHUNK: u64 = 64 << 10;

/// If a chunk has fewer blocks than this, the room for its record is requested in addition.
const FEW_BLOCKS: u64 = 16;

/// The memory of one class.
#[derive(Debug)]
struct Stock {
    class: Class,
    /// Blocks that were freed.
    free: Vec<Block>,
    /// Start of the part of this class's last chunk that was never handed out.
    rest: RemotePtr,
    rest_bytes: u64,
    /// Bytes of all chunks of this class.
    fetched: u64,
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

/// Blocks that were taken out of a pool for a short time and may come back. Blocks that an operation takes for its
/// nodes do not count.
#[derive(Clone, Copy, Debug)]
#[must_use = "a trip that never ends keeps this compute node from answering a census"]
pub(crate) struct Trip {
    life: u32,
    /// The round of the census whose record contains the blocks; 0 if no record does. A later census waits for the
    /// return of the blocks.
    round: u64,
}

/// A block that a client holds between its operations, for example while it is unknown whether a request has unlinked
/// the block. A census does not give the block to others.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a block that is held for ever is lost"]
pub struct Held {
    pub(crate) at: RemotePtr,
    /// The value of [`NodePool::life`] when the hold began; `None` if the block did not belong to the compute node any
    /// more.
    life: Option<u32>,
}

/// The blocks that a compute node holds, and those that it has handed out since a census began.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    /// Single blocks, in any order.
    pub(crate) blocks: Vec<RemotePtr>,
    /// Memory that was never handed out: its start and its bytes.
    pub(crate) rests: Vec<(RemotePtr, u64)>,
}

#[cfg(feature = "study")]
impl Holdings {
    /// Returns whether a block is among these, or in one of the rests.
    pub(crate) fn contain(&self, block: RemotePtr) -> bool {
        let within = |(start, bytes): &(RemotePtr, u64)| {
            let offset = block.offset().checked_sub(start.offset());
            block.node() == start.node() && offset.is_some_and(|offset| offset < *bytes)
        };
        self.blocks.contains(&block) || self.rests.iter().any(within)
    }
}

/// Maximum number of blocks that a compute node records for each memory node. If there are more, the census fails.
pub(crate) const RECORDS_MAX: usize = dm_sync::scaled(1 << 20, 4);

#[derive(Debug, Default)]
pub(crate) struct NodePool {
    stocks: Vec<Stock>,
    orphans: Vec<Orphan>,
    /// Whether a client is fetching a chunk. The clients that wait for it are in `waiting`.
    fetching: bool,
    waiting: Vec<Waker>,
    /// Upper limit for the next chunk in bytes, if the memory node has refused a chunk, or a chunk was out of reach. It
    /// only shrinks, because chunks are never returned.
    left: Option<u64>,
    /// Bytes of all fetched chunks.
    fetched: u64,
    /// Total size in bytes of the blocks handed out, minus that of the freed blocks. It may be negative, because a
    /// freed block may come from another compute node.
    in_use: i64,
    /// Bytes of chunks that no block can use.
    wasted: u64,
    /// The blocks that have left this pool since the record of a census began; `None` if no census is taken.
    record: Option<Vec<RemotePtr>>,
    /// The round of the census to which the record belongs; 0 without a record.
    round: u64,
    /// Number of trips that have not ended.
    trips: u32,
    /// Number of trips that began before the record and have not ended.
    away: u32,
    /// Blocks that clients hold between their operations.
    held: Vec<RemotePtr>,
    /// Number of times that this compute node has forgotten its memory.
    life: u32,
}

impl NodePool {
    /// Returns the bytes that the tables of this value have allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        let lists: usize = self
            .stocks
            .iter()
            .map(|stock| stock.free.capacity() * size_of::<Block>())
            .sum();
        self.stocks.capacity() * size_of::<Stock>()
            + self.orphans.capacity() * size_of::<Orphan>()
            + self.waiting.capacity() * size_of::<Waker>()
            + self.held.capacity() * size_of::<RemotePtr>()
            + self.record.as_ref().map_or(0, Vec::capacity) * size_of::<RemotePtr>()
            + lists
    }

    /// Takes a block of `class` for `client` without communication, if there is one.
    #[inline]
    pub(crate) fn at_hand(&mut self, client: ClientId, class: Class) -> Option<Block> {
        let stock = self.stocks.iter_mut().find(|stock| stock.class == class);
        let block = stock
            .and_then(|stock| stock.free.pop())
            .or_else(|| self.adopt(client, class))
            .or_else(|| self.carve(class))?;
        self.in_use += class.block_bytes() as i64;
        self.note(block.at);
        Some(block)
    }

    /// Adds a block to the record, if a census is being taken. The block leaves this pool, a client takes it from a
    /// depot, or a client ends its hold.
    #[inline]
    pub(crate) fn note(&mut self, block: RemotePtr) {
        //= docs/protocol/recovery.md V18
        if let Some(record) = &mut self.record
            && record.len() <= RECORDS_MAX
        {
            record.push(block);
        }
    }

    /// Begins a record of the blocks that leave this pool for the census `round`, or continues the record of this
    /// census.
    pub(crate) fn begin_record(&mut self, round: u64) {
        if self.record.is_some() && self.round == round {
            return;
        }
        //= docs/protocol/recovery.md V18
        // An earlier record can be dropped, because this census waits until the operations that took the recorded
        // blocks have ended.
        self.record.get_or_insert_default().clear();
        self.round = round;
        self.away = self.trips;
    }

    /// Ends the record.
    pub(crate) fn end_record(&mut self) {
        self.record = None;
        self.round = 0;
    }

    /// Returns whether there is a complete record. A record is complete if it has not overflowed, and if every trip
    /// that began before it has ended.
    pub(crate) fn is_recorded(&self) -> bool {
        self.away == 0
            && self
                .record
                .as_ref()
                .is_some_and(|record| record.len() <= RECORDS_MAX)
    }

    /// Returns whether more blocks have left this pool than a record can hold.
    pub(crate) fn has_overflown(&self) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| record.len() > RECORDS_MAX)
    }

    /// Adds the blocks in this pool to `holdings`. With `recorded`, also adds those that have left it since the record
    /// began.
    pub(crate) fn add_holdings(&self, holdings: &mut Holdings, recorded: bool) {
        let free = self
            .stocks
            .iter()
            .flat_map(|stock| stock.free.iter().map(|block| block.at));
        let orphans = self.orphans.iter().map(|orphan| orphan.block.at);
        holdings.blocks.extend(free.chain(orphans));
        holdings.blocks.extend(&self.held);
        let record = self.record.iter().filter(|_| recorded);
        holdings.blocks.extend(record.flatten());
        let rests = self.stocks.iter().map(|stock| (stock.rest, stock.rest_bytes));
        holdings.rests.extend(rests.filter(|(_, bytes)| *bytes > 0));
    }

    /// Forgets all memory, because a census may have given it to others. Blocks that come back from earlier trips are
    /// forgotten too.
    pub(crate) fn forget(&mut self) {
        //= docs/protocol/recovery.md V23
        self.stocks.clear();
        self.orphans.clear();
        self.held.clear();
        self.life += 1;
        (self.trips, self.away) = (0, 0);
    }

    /// Returns whether this pool holds no memory and has never fetched a chunk.
    pub(crate) fn is_untouched(&self) -> bool {
        self.stocks.is_empty() && self.orphans.is_empty() && self.held.is_empty() && self.fetched == 0
    }

    /// Holds a block for a client. With `forgets`, the block belongs to an operation whose blocks are forgotten.
    pub(crate) fn hold(&mut self, at: RemotePtr, forgets: bool) -> Held {
        //= docs/protocol/recovery.md V25
        if !forgets {
            self.held.push(at);
        }
        let life = (!forgets).then_some(self.life);
        Held { at, life }
    }

    /// Ends a hold. Returns `false` if the block may belong to others by now. The caller must then forget the block.
    pub(crate) fn release(&mut self, held: &Held) -> bool {
        //= docs/protocol/recovery.md V25
        if held.life != Some(self.life) {
            return false;
        }
        let place = self.held.iter().rposition(|at| *at == held.at);
        if let Some(place) = place {
            self.held.swap_remove(place);
            // An operation may have the block until it is retired. So the record must contain the block.
            self.note(held.at);
        }
        place.is_some()
    }

    /// Returns whether the blocks of a trip still belong to this compute node.
    pub(crate) fn remembers(&self, trip: Trip) -> bool {
        trip.life == self.life
    }

    /// Begins a trip.
    pub(crate) fn begin_trip(&mut self) -> Trip {
        self.trips += 1;
        Trip {
            life: self.life,
            round: self.round,
        }
    }

    /// Ends a trip. Returns `false` if the compute node has forgotten its memory since the trip began, so that the
    /// blocks of the trip must be forgotten too.
    pub(crate) fn end_trip(&mut self, trip: Trip) -> bool {
        let same = self.remembers(trip);
        self.trips -= u32::from(same);
        // Without a record, no census waits for trips. The next record counts the open trips again.
        self.away -= u32::from(same && self.record.is_some() && trip.round != self.round);
        same
    }

    /// Takes a block like [`NodePool::at_hand`], or returns how to get one. `chunk` is the maximum size of a chunk in
    /// bytes; a chunk of few blocks may have room for its record in addition. The last `kept` bytes of a chunk are not
    /// for blocks.
    pub(crate) fn take(&mut self, client: ClientId, class: Class, (chunk, kept): (u64, u64)) -> Found {
        if let Some(block) = self.at_hand(client, class) {
            return Found::Block(block);
        }
        if self.fetching {
            return Found::Fetching;
        }
        let block = class.block_bytes();
        let least = (block + kept).next_multiple_of(PAGE);
        let wanted = self.stock(class).fetched.max(FIRST_CHUNK).min(chunk);
        // If a chunk has many blocks, its record takes the room of one of them. If it has few blocks, room for the
        // record is requested in addition.
        let fetch = match block * FEW_BLOCKS > wanted {
            true => ((wanted / block).max(1) * block + kept).next_multiple_of(PAGE),
            false => wanted,
        };
        // After a refusal a smaller chunk may still fit.
        let fetch = self.left.map_or(fetch, |left| fetch.min(left / PAGE * PAGE));
        if fetch < least {
            return Found::Full;
        }
        self.fetching = true;
        Found::Fetch(fetch)
    }

    /// Takes an orphan of this client. This is safe because the client's next WRITE to the block lands after the
    /// pending one.
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

    /// Takes back a block like [`NodePool::put_orphan`]. The block was free before, so it does not count as in use.
    pub(crate) fn put_orphan_again(&mut self, client: ClientId, block: Block, class: Class) {
        self.orphans.push(Orphan { client, class, block });
    }

    /// Takes out at most [`BATCH`] free blocks of one class, for a magazine. Returns `None` if no class has at least
    /// `least` free blocks.
    pub(crate) fn batch(&mut self, least: usize) -> Option<Vec<(Block, Class)>> {
        let plenty = |stock: &&mut Stock| stock.class != MAGAZINE && stock.free.len() >= least;
        let Stock { class, free, .. } = self.stocks.iter_mut().find(plenty)?;
        let count = free.len().min(BATCH);
        let blocks: Vec<_> = free.drain(..count).map(|block| (block, *class)).collect();
        blocks.iter().for_each(|(block, _)| self.note(block.at));
        Some(blocks)
    }

    /// Returns whether some class has at least `least` free blocks for a magazine.
    pub(crate) fn has_batch(&self, least: usize) -> bool {
        let plenty = |stock: &Stock| stock.class != MAGAZINE && stock.free.len() >= least;
        self.stocks.iter().any(plenty)
    }

    /// Takes out a free magazine.
    pub(crate) fn magazine(&mut self) -> Option<(Block, Trip)> {
        let magazine = self.stock(MAGAZINE).free.pop().or_else(|| self.carve(MAGAZINE))?;
        self.note(magazine.at);
        Some((magazine, self.begin_trip()))
    }

    /// Takes out the orphans of `client`, if there are any.
    pub(crate) fn take_orphans(&mut self, client: ClientId) -> Option<(Vec<Orphan>, Trip)> {
        let (mine, others): (Vec<_>, _) = self.orphans.drain(..).partition(|o| o.client == client);
        self.orphans = others;
        if mine.is_empty() {
            return None;
        }
        mine.iter().for_each(|orphan| self.note(orphan.block.at));
        Some((mine, self.begin_trip()))
    }

    /// Puts orphans back whose WRITEs may still be in flight.
    pub(crate) fn put_back(&mut self, (orphans, trip): (Vec<Orphan>, Trip)) {
        if self.end_trip(trip) {
            self.orphans.extend(orphans);
        }
    }

    /// Frees orphans whose WRITEs have landed.
    pub(crate) fn landed(&mut self, (orphans, trip): (Vec<Orphan>, Trip)) {
        if !self.end_trip(trip) {
            return;
        }
        for Orphan { class, block, .. } in orphans {
            self.stock(class).free.push(block);
        }
    }

    /// Cuts a block from the rest of the last chunk of its class.
    fn carve(&mut self, class: Class) -> Option<Block> {
        let bytes = class.block_bytes();
        let stock = self.stocks.iter_mut().find(|stock| stock.class == class)?;
        stock.rest_bytes = stock.rest_bytes.checked_sub(bytes)?;
        let block = Block::fresh(stock.rest);
        stock.rest = stock.rest.add(bytes);
        Some(block)
    }

    /// Takes back a block that no client can reach. It is reused only within its class.
    pub(crate) fn put(&mut self, block: Block, class: Class) {
        self.in_use -= class.block_bytes() as i64;
        self.stock(class).free.push(block);
    }

    /// Frees a block that does not count as in use, for example because it was retired.
    pub(crate) fn put_reclaimed(&mut self, block: Block, class: Class) {
        self.stock(class).free.push(block);
    }

    /// Counts a block of `class` that was retired or is forgotten: it is neither in use nor free.
    pub(crate) fn retire(&mut self, class: Class) {
        self.in_use -= class.block_bytes() as i64;
    }

    /// Cuts the rests of all chunks into free blocks, except for those of magazines.
    pub(crate) fn cut_rests(&mut self) {
        for stock in self.stocks.iter_mut().filter(|stock| stock.class != MAGAZINE) {
            let bytes = stock.class.block_bytes();
            while let Some(left) = stock.rest_bytes.checked_sub(bytes) {
                stock.free.push(Block::fresh(stock.rest));
                (stock.rest, stock.rest_bytes) = (stock.rest.add(bytes), left);
            }
        }
    }

    /// Returns the number of free blocks of `class`.
    pub(crate) fn free(&self, class: Class) -> usize {
        let stock = self.stocks.iter().find(|stock| stock.class == class);
        stock.map_or(0, |stock| stock.free.len())
    }

    fn stock(&mut self, class: Class) -> &mut Stock {
        let i = self.stocks.iter().position(|stock| stock.class == class);
        let i = i.unwrap_or_else(|| {
            self.stocks.push(Stock {
                class,
                free: Vec::new(),
                rest: RemotePtr::NULL,
                rest_bytes: 0,
                fetched: 0,
            });
            self.stocks.len() - 1
        });
        &mut self.stocks[i]
    }

    /// Adds a fetched chunk for blocks of `class`. The last `kept` bytes are not for blocks.
    pub(crate) fn add(&mut self, class: Class, (start, bytes): (RemotePtr, u64), kept: u64) {
        self.fetched += bytes;
        let usable = (bytes - kept) / class.block_bytes() * class.block_bytes();
        let stock = self.stock(class);
        stock.fetched += bytes;
        // Chunks are fetched one at a time, and only if the rest of the last one is too small for a block.
        let before = core::mem::replace(&mut stock.rest_bytes, usable);
        stock.rest = start;
        self.wasted += bytes - usable + before;
    }

    /// Counts a chunk as wasted, because it lies beyond the allocator's limit. From then on the memory node counts as
    /// full, because later chunks lie at even higher offsets.
    pub(crate) fn out_of_reach(&mut self, bytes: u64) {
        self.fetched += bytes;
        self.wasted += bytes;
        self.refused(0);
    }

    /// Records that the memory node refused a chunk and has `left` bytes.
    pub(crate) fn refused(&mut self, left: u64) {
        self.left = Some(self.left.map_or(left, |before| before.min(left)));
    }

    /// Ends the fetching of a chunk, and returns the wakers of the clients that wait for it. The caller calls the
    /// wakers after it has left the section.
    pub(crate) fn fetched(&mut self) -> Vec<Waker> {
        self.fetching = false;
        core::mem::take(&mut self.waiting)
    }

    /// Returns whether a client is still fetching a chunk. If so, `waker` is woken when the fetching ends.
    pub(crate) fn wait(&mut self, waker: &Waker) -> bool {
        if self.fetching && !self.waiting.iter().any(|w| w.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
        self.fetching
    }

    /// Returns the bytes of chunks that were never handed out.
    pub(crate) fn spare(&self) -> u64 {
        self.stocks.iter().map(|stock| stock.rest_bytes).sum()
    }

    /// Adds this memory node's memory use.
    pub(crate) fn add_to(&self, stats: &mut crate::AllocStats) {
        let blocks = |stock: &Stock| stock.class.block_bytes() * stock.free.len() as u64;
        let free: u64 = self.stocks.iter().map(blocks).sum();
        let orphans: u64 = self.orphans.iter().map(|o| o.class.block_bytes()).sum();
        stats.fetched_bytes += self.fetched;
        stats.in_use_bytes += self.in_use;
        stats.free_bytes += free + orphans;
        stats.wasted_bytes += self.wasted;
    }

    /// Returns everything that later behaviour depends on. Of the waiting clients, it contains only their number,
    /// because all of them are woken together. Of the bytes of all chunks, it contains only whether there are any
    /// ([`NodePool::is_untouched`]), because nothing else depends on them.
    pub(crate) fn state(&self) -> impl core::hash::Hash + '_ {
        let state = |stock: &'_ Stock| (stock.class, stock.rest.raw(), stock.rest_bytes, stock.fetched);
        let stocks: Vec<_> = self
            .stocks
            .iter()
            .map(|stock| (state(stock), &stock.free))
            .collect();
        (
            stocks,
            &self.orphans,
            self.fetching,
            self.waiting.len(),
            (self.left, self.is_untouched()),
            (
                &self.record,
                self.round,
                (self.trips, self.away, self.life),
                &self.held,
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_sync::Fingerprint;
    use dm_verbs::NodeId;

    const CLASS: Class = Class { bytes: 1024, kind: 1 };
    const ME: ClientId = ClientId(5);
    const ROUND: u64 = 7;

    fn at(offset: u64) -> RemotePtr {
        RemotePtr::new(NodeId(1), offset).expect("a small offset")
    }

    #[test]
    fn after_a_refusal_whole_pages_of_what_is_left_are_asked_for() {
        let mut pool = NodePool::default();
        let fetches = |pool: &mut NodePool, bytes| matches!(pool.take(ME, CLASS, (1 << 16, 0)), Found::Fetch(b) if b == bytes);
        assert!(fetches(&mut pool, 1 << 16));
        assert!(matches!(pool.take(ME, CLASS, (1 << 16, 0)), Found::Fetching));
        pool.fetched();
        pool.refused(10_000);
        assert!(fetches(&mut pool, 8192));
        pool.fetched();
        // The room that is left on a memory node never grows again.
        pool.refused(50_000);
        assert!(fetches(&mut pool, 8192));
        pool.fetched();
        pool.refused(4095);
        assert!(matches!(pool.take(ME, CLASS, (1 << 16, 0)), Found::Full));
    }

    /// A compute node that has never fetched memory need not forget it when it joins again. Everything else about the
    /// two pools is equal.
    #[test]
    fn pools_with_and_without_memory_of_their_own_have_different_fingerprints() {
        let [mut untouched, mut touched] = [(); 2].map(|()| NodePool::default());
        untouched.refused(0);
        touched.out_of_reach(1 << 16);
        assert!(untouched.is_untouched() && !touched.is_untouched());
        assert_ne!(untouched.fingerprint(), touched.fingerprint());
        untouched.out_of_reach(1 << 17);
        assert_eq!(untouched.fingerprint(), touched.fingerprint());
        // A pool that forgets its memory has still fetched it.
        let [mut untouched, mut touched] = [(); 2].map(|()| NodePool::default());
        touched.add(CLASS, (at(1 << 20), 1 << 16), 0);
        untouched.forget();
        touched.forget();
        assert_ne!(untouched.fingerprint(), touched.fingerprint());
    }

    #[test]
    fn whoever_waits_for_a_chunk_is_woken_once() {
        let mut pool = NodePool::default();
        let waker = Waker::noop();
        assert!(!pool.wait(waker), "nobody fetches");
        assert!(pool.fetched().is_empty());
        assert!(matches!(pool.take(ME, CLASS, (1 << 16, 0)), Found::Fetch(_)));
        assert!(pool.wait(waker) && pool.wait(waker));
        assert_eq!(pool.fetched().len(), 1);
        assert!(!pool.wait(waker));
        assert!(pool.fetched().is_empty());
    }

    #[test]
    fn chunks_of_a_class_double_and_belong_to_it_alone() {
        let mut pool = NodePool::default();
        let other = Class { kind: 2, ..CLASS };
        let mut chunks = Vec::new();
        for i in 0..4 {
            let Found::Fetch(bytes) = pool.take(ME, CLASS, (200 << 10, 64)) else {
                panic!("no chunk is left");
            };
            pool.add(CLASS, (at((i + 1) << 20), bytes), 64);
            pool.fetched();
            chunks.push(bytes >> 10);
            let mut count = 0;
            while pool.at_hand(ME, CLASS).is_some() {
                count += 1;
            }
            assert_eq!(count, (bytes >> 10) - 1, "the last line is kept");
            assert!(pool.at_hand(ME, other).is_none());
        }
        assert_eq!(chunks, [64, 64, 128, 200]);
        let mut stats = crate::AllocStats::default();
        pool.add_to(&mut stats);
        assert_eq!((stats.wasted_bytes, stats.fetched_bytes), (4 << 10, 456 << 10));
        for (kib, chunk) in [(300, 304), (100, 104), (32, 68), (2, 64)] {
            let large = Class {
                bytes: kib << 10,
                kind: 0,
            };
            let asked = pool.take(ME, large, (200 << 10, 64));
            assert!(matches!(asked, Found::Fetch(b) if b == chunk << 10), "{kib} KiB");
            pool.fetched();
        }
    }

    #[test]
    fn blocks_are_accounted_for_wherever_they_are() {
        let mut pool = NodePool::default();
        pool.add(CLASS, (at(1 << 20), 1 << 16), 0);
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
        let mine = pool.take_orphans(ME).expect("one");
        assert_eq!((mine.0.len(), stats(&pool)), (1, (1, 3)));
        pool.landed(mine);
        assert_eq!((stats(&pool), pool.free(CLASS)), ((1, 4), 3));
    }

    #[test]
    fn during_a_census_a_pool_records_what_leaves_it_and_still_has_the_rest() {
        let mut pool = NodePool::default();
        pool.add(CLASS, (at(1 << 20), 1 << 16), 0);
        let held = |pool: &NodePool| {
            let mut holdings = Holdings::default();
            pool.add_holdings(&mut holdings, true);
            (holdings.blocks, holdings.rests)
        };
        let [a, b, c] = [(); 3].map(|()| pool.at_hand(ME, CLASS).expect("room"));
        let rest = vec![(at((1 << 20) + 3072), (1 << 16) - 3072)];
        assert_eq!(held(&pool), (vec![], rest.clone()), "these left before it");
        pool.put_orphan(ME, c, CLASS);
        let trip = pool.take_orphans(ME).expect("one");
        pool.begin_record(ROUND);
        assert!(!pool.is_recorded(), "an orphan is away");
        pool.put_back(trip);
        assert!(pool.is_recorded());
        pool.put(a, CLASS);
        pool.put(b, CLASS);
        assert_eq!(pool.at_hand(ME, CLASS), Some(b));
        assert_eq!(held(&pool), (vec![a.at, c.at, b.at], rest));
        pool.end_record();
        assert_eq!(held(&pool).0, [a.at, c.at]);

        pool.begin_record(ROUND);
        let trip = pool.take_orphans(ME).expect("one");
        assert!(pool.is_recorded(), "it was recorded when it left");
        pool.forget();
        pool.put_back(trip);
        assert_eq!(held(&pool), (vec![c.at], vec![]), "the record alone");
        for i in 0..=RECORDS_MAX as u64 {
            pool.note(at(64 * (i + 1)));
        }
        assert!(!pool.is_recorded() && pool.has_overflown());
    }

    #[test]
    fn a_block_that_is_held_counts_until_it_is_released_or_forgotten() {
        let mut pool = NodePool::default();
        let held = |pool: &NodePool| {
            let mut holdings = Holdings::default();
            pool.add_holdings(&mut holdings, true);
            holdings.blocks
        };
        let [a, b, c] = [1, 2, 3].map(|i| pool.hold(at(4096 * i), i == 2));
        assert!(!pool.is_untouched());
        assert_eq!(
            held(&pool),
            [a.at, c.at],
            "the operation of the second one belongs to an earlier membership"
        );
        pool.begin_record(ROUND);
        assert!(pool.release(&a) && !pool.release(&b));
        assert_eq!(held(&pool), [c.at, a.at], "it was recorded when it was released");
        pool.forget();
        assert!(!pool.release(&c));
        pool.end_record();
        assert!(held(&pool).is_empty());
    }

    #[test]
    fn a_trip_that_outlasts_a_census_delays_the_next_one() {
        let mut pool = NodePool::default();
        pool.put_orphan(ME, Block::fresh(at(4096)), CLASS);
        pool.begin_record(ROUND);
        let away = pool.take_orphans(ME).expect("one");
        pool.end_record();
        pool.begin_record(ROUND + 1);
        let mut holdings = Holdings::default();
        pool.add_holdings(&mut holdings, true);
        assert!(!pool.is_recorded() && holdings.blocks.is_empty(), "it is nowhere");
        // A second census may begin before this compute node has seen the end of the first one.
        pool.begin_record(ROUND + 2);
        assert!(!pool.is_recorded());
        pool.landed(away);
        assert!(pool.is_recorded());
    }
}
