//! Tests of items over loopback. The index is a map in the memory of the test.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use dm_alloc::{Allocator, MemberArea, ReclaimOptions};
use dm_index::{Applied, Exchange, Fill, IndexError, Key8, RangeIndex, Scan};
use dm_indirect::{Item, ItemFlaws, Items, OutOfLine, Prefix, Reference, block_of, leading_bytes};
use dm_loopback::{Endpoint, Loopback, block_on};
use dm_sync::Arc;
use dm_sync::epoch::{Epochs, Running, Seat};
use dm_verbs::{Env, NodeId, RemotePtr, Transport, Verbs};
use proptest::prelude::*;

/// A disturbance of the next write to the index.
#[derive(Clone, Debug)]
enum Trouble {
    /// The write fails with this error and has no effect.
    Fails(IndexError),
    /// Another client is faster and has written this word before the exchange.
    Raced(Option<[u8; 8]>),
}

#[derive(Debug, Default)]
struct Memory {
    words: RefCell<BTreeMap<Key8, [u8; 8]>>,
    trouble: RefCell<Option<Trouble>>,
    scans: Cell<u32>,
    value_bytes: usize,
    /// The client's seat, if operations are announced.
    seat: Option<Seat>,
}

const UNUSED: IndexError = IndexError::BadInput {
    why: "items do not use this operation",
};

impl RangeIndex for &Memory {
    type Key = Key8;

    fn value_bytes(&self) -> usize {
        self.value_bytes
    }
    async fn get(&self, key: &Key8, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        let found = self.words.borrow().get(key).copied();
        value.clear();
        value.extend(found.into_iter().flatten());
        Ok(found.is_some())
    }
    async fn insert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        Ok(match self.exchange(key, None, Some(value)).await? {
            Applied::Differs => Applied::Present,
            applied => applied,
        })
    }
    async fn update(&self, _: &Key8, _: &[u8]) -> Result<Applied, IndexError> {
        Err(UNUSED)
    }
    /// Correct items never call this; only a flaw does.
    async fn upsert(&self, key: &Key8, value: &[u8]) -> Result<Applied, IndexError> {
        if let Some(Trouble::Raced(word)) = self.trouble.take() {
            self.put(*key, word);
        }
        self.put(*key, Some(value.try_into().unwrap()));
        Ok(Applied::Replaced)
    }
    async fn remove(&self, _: &Key8) -> Result<Applied, IndexError> {
        Err(UNUSED)
    }
    async fn scan(&self, from: &Key8, limit: usize, out: &mut Scan<Key8>) -> Result<(), IndexError> {
        self.scans.set(self.scans.get() + 1);
        out.reset(8);
        for (key, word) in self.words.borrow().range(*from..).take(limit) {
            out.push(*key, word);
        }
        Ok(())
    }
    async fn bulk_load(
        &self,
        _: impl Into<Fill>,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<Key8>,
    ) -> Result<u64, IndexError> {
        if let Some(Trouble::Fails(error)) = self.trouble.take() {
            return Err(error);
        }
        let mut value = Vec::new();
        while let Some(key) = next(&mut value) {
            self.words.borrow_mut().insert(key, value[..].try_into().unwrap());
            value.clear();
        }
        Ok(self.words.borrow().len() as u64)
    }
}

impl Exchange for &Memory {
    async fn exchange(
        &self,
        key: &Key8,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<Applied, IndexError> {
        match self.trouble.take() {
            Some(Trouble::Fails(error)) => return Err(error),
            Some(Trouble::Raced(word)) => self.put(*key, word),
            None => {}
        }
        let found = self.words.borrow().get(key).copied();
        if found.as_ref().map(|w| &w[..]) != before {
            return Ok(Applied::Differs);
        }
        self.put(*key, after.map(|word| word.try_into().unwrap()));
        // The exchange has taken effect here. Its answer comes at a later poll.
        let mut answered = false;
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            match core::mem::replace(&mut answered, true) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        Ok(match (before, after) {
            (None, None) => Applied::Absent,
            (None, Some(_)) => Applied::Inserted,
            (Some(_), Some(_)) => Applied::Replaced,
            (Some(_), None) => Applied::Removed,
        })
    }

    async fn begin(&self) -> Result<Option<Running<'_>>, IndexError> {
        Ok(self.seat.as_ref().and_then(Seat::enter))
    }
}

impl Memory {
    fn new() -> Self {
        Self {
            value_bytes: 8,
            ..Self::default()
        }
    }

    fn put(&self, key: Key8, word: Option<[u8; 8]>) {
        let mut words = self.words.borrow_mut();
        match word {
            Some(word) => words.insert(key, word),
            None => words.remove(&key),
        };
    }
}

fn world(delays: u32) -> Loopback {
    Loopback::builder()
        .nodes(1)
        .host_bytes(16 << 20)
        .delays(delays)
        .build()
        .unwrap()
}

/// Makes an allocator that reclaims memory. A test detects lost blocks by the memory in use.
fn allocator() -> Allocator {
    let area = MemberArea {
        at: RemotePtr::new(NodeId(0), 15 << 20).unwrap(),
        slots: 1,
    };
    Allocator::new(1, 0)
        .chunk_bytes(4 << 20)
        .reclaiming(area, ReclaimOptions::new())
}

/// Returns the first byte as the prefix, so that keys with the same first byte share a block.
fn first_byte(key: &[u8]) -> Key8 {
    leading_bytes(&key[..key.len().min(1)])
}

fn items<'h>(v: &'h Endpoint, memory: &'h Memory, alloc: &'h Allocator) -> Items<'h, Endpoint, &'h Memory> {
    Items::new(v, memory, alloc, first_byte, 5).unwrap()
}

/// Makes items of which each has a block of its own.
fn exact_items<'h>(
    v: &'h Endpoint,
    memory: &'h Memory,
    alloc: &'h Allocator,
) -> Items<'h, Endpoint, &'h Memory> {
    Items::new(v, memory, alloc, leading_bytes, 5).unwrap().exact()
}

/// Returns the total size in bytes of the blocks that hold these items.
fn blocks_of(map: &BTreeMap<Vec<u8>, Vec<u8>>, prefix: Prefix<Key8>) -> i64 {
    let mut bytes = BTreeMap::<Key8, usize>::new();
    for (key, value) in map {
        *bytes.entry(prefix(key)).or_insert(16) += 8 + key.len() + value.len();
    }
    // Blocks of up to eight lines have a size class for each number of lines.
    bytes
        .values()
        .map(|bytes| bytes.next_multiple_of(64) as i64)
        .sum()
}

fn get(items: &Items<'_, Endpoint, &Memory>, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = b"left over".to_vec();
    let found = block_on(items.get(key, &mut value)).unwrap();
    assert!(found || value.is_empty());
    found.then_some(value)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn items_are_those_of_a_map_and_every_other_block_is_retired(
        ops in prop::collection::vec(
            (0..5u8, prop::collection::vec(0..3u8, 0..4), prop::collection::vec(any::<u8>(), 0..60)), 1..80),
        exact in any::<bool>(),
    ) {
        let (world, memory, alloc) = (world(0), Memory::new(), allocator());
        let v = world.connect(0).unwrap();
        let (items, prefix) = match exact {
            true => (exact_items(&v, &memory, &alloc), leading_bytes as Prefix<Key8>),
            false => (items(&v, &memory, &alloc), first_byte as Prefix<Key8>),
        };
        let mut map = BTreeMap::<Vec<u8>, Vec<u8>>::new();
        for (op, mut key, value) in ops {
            if exact {
                key.resize(3, 0);
            }
            let there = map.contains_key(&key);
            let (applied, wanted) = match op {
                0 => (block_on(items.insert(&key, &value)), if there { Applied::Present } else { Applied::Inserted }),
                1 => (block_on(items.update(&key, &value)), if there { Applied::Replaced } else { Applied::Absent }),
                2 => (block_on(items.upsert(&key, &value)), if there { Applied::Replaced } else { Applied::Inserted }),
                3 => (block_on(items.remove(&key)), if there { Applied::Removed } else { Applied::Absent }),
                _ => {
                    prop_assert_eq!(get(&items, &key), map.get(&key).cloned());
                    continue;
                }
            };
            prop_assert_eq!(applied, Ok(wanted));
            match (op, there) {
                (0, false) | (1, true) | (2, _) => drop(map.insert(key, value)),
                (3, _) => drop(map.remove(&key)),
                _ => {}
            }
            prop_assert_eq!(alloc.stats().in_use_bytes, blocks_of(&map, prefix));
        }
        let mut all = Vec::new();
        block_on(items.scan(b"", usize::MAX, &mut all)).unwrap();
        prop_assert_eq!(all, map.into_iter().collect::<Vec<_>>());
    }
}

/// Returns `count` items. Every three of them share a block.
fn many(count: u64) -> Vec<Item> {
    let item = |i: u64| (vec![(i / 3) as u8, (i % 3) as u8], vec![i as u8; i as usize % 50]);
    (0..count).map(item).collect()
}

#[test]
fn loaded_items_are_scanned_from_any_key_in_batches() {
    let (world, memory, alloc) = (world(2), Memory::new(), allocator());
    let v = world.connect(0).unwrap();
    let items = items(&v, &memory, &alloc);
    let all = many(300);
    let mut load = all.clone().into_iter();
    assert_eq!(block_on(items.bulk_load(0.8, || load.next())), Ok(300));
    assert_eq!(
        alloc.stats().in_use_bytes,
        blocks_of(&all.iter().cloned().collect(), first_byte)
    );
    assert_eq!(memory.words.borrow().len(), 100);
    let mut found = Vec::new();
    for (from, limit) in [
        (0, usize::MAX),
        (0, 300),
        (0, 7),
        (4, 96),
        (5, 97),
        (151, 1),
        (299, 5),
        (7, 0),
    ] {
        block_on(items.scan(&all[from].0, limit, &mut found)).unwrap();
        let wanted: Vec<_> = all.iter().skip(from).take(limit).cloned().collect();
        assert_eq!(found, wanted, "{limit} from {from}");
    }
    memory.scans.set(0);
    block_on(items.scan(b"", 1000, &mut found)).unwrap();
    assert_eq!(memory.scans.get(), 4, "100 blocks, 32 at a time");
    block_on(items.scan(&[200], 10, &mut found)).unwrap();
    assert_eq!(found, []);
}

#[test]
fn a_failed_load_frees_its_blocks() {
    let (world, memory, alloc) = (world(2), Memory::new(), allocator());
    let v = world.connect(0).unwrap();
    let items = items(&v, &memory, &alloc);
    for (a, b) in [(1, 0), (1, 1), (200, 7)] {
        let mut all = many(202);
        all.swap(a, b);
        if a == b {
            all[a] = all[a - 1].clone();
        }
        let mut load = all.into_iter();
        let refused = block_on(items.bulk_load(0.8, || load.next()));
        assert!(matches!(refused, Err(IndexError::BadInput { .. })), "{refused:?}");
        assert_eq!(alloc.stats().in_use_bytes, 0);
    }
    let load = |error: &IndexError| {
        *memory.trouble.borrow_mut() = Some(Trouble::Fails(*error));
        let mut load = many(9).into_iter();
        assert_eq!(
            block_on(items.bulk_load(0.8, || load.next())).as_ref(),
            Err(error)
        );
        alloc.stats().in_use_bytes
    };
    assert_eq!(load(&UNUSED), 0, "no word can point to the blocks");
    assert!(load(&in_doubt()) > 0, "a word may point to the blocks");
    let mut none = core::iter::empty();
    assert_eq!(block_on(items.bulk_load(0.8, || none.next())), Ok(0));
}

/// Returns an error whose operation may have taken effect.
fn in_doubt() -> IndexError {
    IndexError::OutOfMemory { wanted: 64, nodes: 1 }
}

#[test]
fn a_block_is_freed_if_no_word_can_point_to_it() {
    let (world, memory, alloc) = (world(2), Memory::new(), allocator());
    let v = world.connect(0).unwrap();
    let items = items(&v, &memory, &alloc);
    let in_use = || alloc.stats().in_use_bytes;
    let trouble = |trouble| *memory.trouble.borrow_mut() = Some(trouble);

    trouble(Trouble::Fails(UNUSED));
    assert_eq!(block_on(items.insert(b"a", b"1")), Err(UNUSED));
    assert_eq!(in_use(), 0);
    trouble(Trouble::Fails(in_doubt()));
    assert_eq!(block_on(items.insert(b"a", b"1")), Err(in_doubt()));
    assert_eq!(in_use(), 64, "a word may point to the block");

    // Other clients are faster: one inserts another key with the same prefix, and one removes the key.
    let theirs = block_on(alloc.alloc(&v, 64, None)).unwrap();
    block_on(v.write(theirs, &block_of([(&b"ab"[..], &b"2"[..])]))).unwrap();
    let word = Reference::new(theirs, 64).unwrap().encode();
    let before = in_use();
    trouble(Trouble::Raced(Some(word)));
    assert_eq!(block_on(items.insert(b"a", b"1")), Ok(Applied::Inserted));
    assert_eq!(
        (get(&items, b"a"), get(&items, b"ab")),
        (Some(b"1".to_vec()), Some(b"2".to_vec()))
    );
    assert_eq!(in_use(), before, "a new block replaced the old one");
    trouble(Trouble::Raced(None));
    assert_eq!(block_on(items.update(b"a", b"3")), Ok(Applied::Absent));
    assert_eq!(in_use(), before);
    trouble(Trouble::Raced(None));
    assert_eq!(block_on(items.remove(b"a")), Ok(Applied::Absent));
}

#[test]
fn a_dropped_insert_takes_effect_or_leaves_nothing() {
    let (mut happened, mut did_not) = (0, 0);
    for (seed, polls) in (0..8).flat_map(|seed| (1..16).map(move |polls| (seed, polls))) {
        let world = Loopback::builder()
            .nodes(1)
            .host_bytes(16 << 20)
            .delays(8)
            .seed(seed / 2)
            .build()
            .unwrap();
        let (memory, alloc) = (Memory::new(), allocator());
        let v = world.connect(0).unwrap();
        let items = match seed % 2 {
            0 => items(&v, &memory, &alloc),
            _ => exact_items(&v, &memory, &alloc),
        };
        block_on(items.insert(b"ab", b"1")).unwrap();
        let before = alloc.stats().in_use_bytes;
        let mut insert = Box::pin(items.insert(b"b", b"2"));
        let mut cx = Context::from_waker(Waker::noop());
        let over = (0..polls).any(|_| insert.as_mut().poll(&mut cx).is_ready());
        drop(insert);
        let is_there = get(&items, b"b").is_some();
        assert_eq!(
            alloc.stats().in_use_bytes,
            before + if is_there { 64 } else { 0 },
            "after {polls} polls"
        );
        match is_there {
            true if !over => happened += 1,
            true => {}
            false => did_not += 1,
        }
    }
    assert!(happened > 0 && did_not > 0);
}

/// While an exchange may still be in flight, no block is reused. So the word that the exchange expects cannot get into
/// the index again.
#[test]
fn a_write_that_is_dropped_in_its_exchange_stays_announced() {
    let (mut announced, mut over) = (0, 0);
    for (exact, polls) in [false, true]
        .into_iter()
        .flat_map(|e| (1..16).map(move |p| (e, p)))
    {
        let world = world(8);
        let epochs = Arc::new(Epochs::new());
        let seat = Epochs::seat(&epochs);
        seat.enroll(0, 64);
        let memory = Memory {
            seat: Some(seat),
            ..Memory::new()
        };
        let (alloc, v) = (allocator(), world.connect(0).unwrap());
        let items = match exact {
            false => items(&v, &memory, &alloc),
            true => exact_items(&v, &memory, &alloc),
        };
        block_on(items.insert(b"ab", b"1")).unwrap();
        assert_eq!(epochs.oldest(), None, "a write that has ended");
        let word = memory.words.borrow().clone();
        let mut update = Box::pin(items.update(b"ab", b"2"));
        let mut cx = Context::from_waker(Waker::noop());
        let ended = (0..polls).any(|_| update.as_mut().poll(&mut cx).is_ready());
        drop(update);
        // The index of this test exchanges the word at the poll before its answer.
        let exchanged = *memory.words.borrow() != word;
        assert_eq!(
            epochs.oldest().is_some(),
            exchanged && !ended,
            "after {polls} polls"
        );
        announced += u32::from(exchanged && !ended);
        over += u32::from(ended);
    }
    assert!(announced > 0 && over > 0, "{announced}, {over}");
}

/// If another key has the same prefix, the new block is written only after the index was read. If the memory node fails
/// during the insert, no word points to a block that was not written.
#[test]
fn an_unwritten_block_is_not_published() {
    let (mut failed, mut done) = (0, 0);
    for (seed, polls) in (0..4).flat_map(|seed| (1..12).map(move |polls| (seed, polls))) {
        let world = Loopback::builder()
            .nodes(1)
            .host_bytes(16 << 20)
            .delays(8)
            .seed(seed);
        let world = world.build().unwrap();
        let (memory, alloc) = (Memory::new(), allocator());
        let v = world.connect(0).unwrap();
        let items = items(&v, &memory, &alloc);
        block_on(items.insert(b"a", b"1")).unwrap();
        let mut insert = Box::pin(items.insert(b"ab", b"2"));
        let mut cx = Context::from_waker(Waker::noop());
        if (0..polls).any(|_| insert.as_mut().poll(&mut cx).is_ready()) {
            continue;
        }
        world.cut(NodeId(0), dm_loopback::Trouble::Unreachable);
        let inserted = block_on(insert);
        world.restore(NodeId(0));
        let _ = v.take_deferred();
        assert_eq!(get(&items, b"a"), Some(b"1".to_vec()), "{inserted:?}");
        assert_eq!(get(&items, b"ab").is_some(), inserted.is_ok());
        match inserted {
            Ok(_) => done += 1,
            Err(_) => failed += 1,
        }
    }
    assert!(failed > 0 && done > 0);
}

/// A block that was written ahead and is not needed is free at once for every client of the compute node, because its
/// WRITE has completed.
#[test]
fn a_block_that_was_not_needed_is_free_at_once() {
    let (world, memory, alloc) = (world(2), Memory::new(), allocator());
    let (v, other) = (world.connect(0).unwrap(), world.connect(0).unwrap());
    let items = items(&v, &memory, &alloc);
    block_on(items.insert(b"a", b"1")).unwrap();
    assert_eq!(block_on(items.insert(b"a", b"2")), Ok(Applied::Present));
    let reference = Reference::decode(&memory.words.borrow()[&first_byte(b"a")]).unwrap();
    let class = dm_alloc::Class {
        bytes: 64,
        kind: b'i',
    };
    let free = alloc.at_hand(other.client(), class, reference.at()).unwrap();
    assert!(!free.is_fresh(), "the second insert's block");
    assert_ne!(free.at, reference.at());
}

#[test]
fn flaws_have_their_effects() {
    let with = |flaw: fn(&mut ItemFlaws), has: bool| {
        let mut flaws = ItemFlaws::default();
        if has {
            flaw(&mut flaws);
        }
        flaws
    };
    for has in [false, true] {
        // The memory node fails while the block is written.
        let (world, memory, alloc) = (world(0), Memory::new(), allocator());
        let v = world.connect(0).unwrap();
        block_on(items(&v, &memory, &alloc).insert(b"c", b"1")).unwrap();
        let flaws = with(|flaws| flaws.unawaited = true, has);
        let flawed = items(&v, &memory, &alloc).with_flaws(flaws);
        world.cut(NodeId(0), dm_loopback::Trouble::Unreachable);
        assert_eq!(block_on(flawed.insert(b"a", b"1")).is_ok(), has);
        world.restore(NodeId(0));
        let _ = v.take_deferred();
        assert_eq!(memory.words.borrow().contains_key(&first_byte(b"a")), has);

        // Another client inserts a key with the same prefix meanwhile.
        let flaws = with(|flaws| flaws.blind = true, has);
        let flawed = items(&v, &memory, &alloc).with_flaws(flaws);
        let theirs = block_on(alloc.alloc(&v, 64, None)).unwrap();
        block_on(v.write(theirs, &block_of([(&b"db"[..], &b"2"[..])]))).unwrap();
        let word = Reference::new(theirs, 64).unwrap().encode();
        *memory.trouble.borrow_mut() = Some(Trouble::Raced(Some(word)));
        assert_eq!(block_on(flawed.insert(b"d", b"1")), Ok(Applied::Inserted));
        assert_eq!(get(&flawed, b"d"), Some(b"1".to_vec()));
        assert_eq!(
            get(&flawed, b"db").is_none(),
            has,
            "only with the flaw, the other client's write is lost"
        );

        // The exchange has taken effect, but the insert is dropped before the answer arrives.
        let flaws = with(|flaws| flaws.gives_back = true, has);
        let flawed = items(&v, &memory, &alloc).with_flaws(flaws);
        let before = alloc.stats().in_use_bytes;
        let mut insert = Box::pin(flawed.insert(b"e", b"1"));
        assert!(
            insert
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        drop(insert);
        assert!(memory.words.borrow().contains_key(&first_byte(b"e")));
        let in_use = alloc.stats().in_use_bytes - before;
        assert_eq!(in_use, if has { 0 } else { 64 });
    }
}

#[test]
fn the_longest_item_fits_and_longer_ones_are_refused() {
    let (world, memory, alloc) = (world(0), Memory::new(), allocator());
    let v = world.connect(0).unwrap();
    let items = items(&v, &memory, &alloc);
    let most = vec![7; (1 << 20) - 24 - 1];
    assert_eq!(block_on(items.insert(b"a", &most)), Ok(Applied::Inserted));
    assert_eq!(get(&items, b"a").map(|value| value.len()), Some(most.len()));
    let in_use = alloc.stats().in_use_bytes;
    assert_eq!(in_use, 1 << 20);
    let (item, all) = (
        "the item does not fit into a block of 1 MiB",
        "the items with this key prefix do not fit into a block of 1 MiB",
    );
    for (key, value, why) in [(&b"bc"[..], &most[..], item), (b"a2", b"", all)] {
        let refused = block_on(items.upsert(key, value));
        assert_eq!(refused, Err(IndexError::BadInput { why }));
        assert_eq!(alloc.stats().in_use_bytes, in_use);
    }
    assert_eq!(
        block_on(items.remove(&vec![b'a'; 2 << 20])),
        Err(IndexError::BadInput {
            why: "the item does not fit into a block of 1 MiB"
        })
    );
    assert_eq!(block_on(items.remove(b"a")), Ok(Applied::Removed));
    assert_eq!(alloc.stats().in_use_bytes, 0);
}

#[test]
fn words_that_are_not_references_are_reported() {
    let (world, memory, alloc) = (world(0), Memory::new(), allocator());
    let v = world.connect(0).unwrap();
    let items = items(&v, &memory, &alloc);
    block_on(items.insert(b"a", b"1")).unwrap();
    let key = first_byte(b"a");
    let good = Reference::decode(&memory.words.borrow()[&key]).unwrap();
    let elsewhere = RemotePtr::new(NodeId(1), good.at().offset()).unwrap();
    let longer = Reference::new(good.at(), 128).unwrap();
    let nothing = Reference::new(RemotePtr::new(NodeId(0), 14 << 20).unwrap(), 64).unwrap();
    let words = [
        ([0; 8], RemotePtr::NULL),
        (Reference::new(elsewhere, 64).unwrap().encode(), RemotePtr::NULL),
        (longer.encode(), good.at()),
        (nothing.encode(), nothing.at()),
    ];
    for (word, at) in words {
        memory.put(key, Some(word));
        let mut found = Vec::new();
        let answers = [
            block_on(items.get(b"a", &mut Vec::new())).map(drop),
            block_on(items.update(b"a", b"2")).map(drop),
            block_on(items.scan(b"", 5, &mut found)),
        ];
        for answer in answers {
            assert!(
                matches!(answer, Err(IndexError::Corrupt { node, .. }) if node == at),
                "{answer:?}"
            );
        }
    }
}

#[test]
fn an_index_of_other_values_is_refused() {
    let (world, memory, alloc) = (world(0), Memory::new(), allocator());
    let v = world.connect(0).unwrap();
    let other = Memory {
        value_bytes: 16,
        ..Memory::default()
    };
    let wrong = IndexError::ValueLength {
        found: 16,
        expected: 8,
    };
    assert_eq!(Items::new(&v, &other, &alloc, first_byte, 5).err(), Some(wrong));
    let made = |for_items| Items::made_for_them(for_items, &v, &memory, &alloc, first_byte, 5);
    assert!(matches!(made(false).err(), Some(IndexError::BadInput { .. })));
    assert!(made(true).is_ok());
}

#[test]
fn items_of_one_size_are_an_index() {
    let (world, memory, alloc) = (world(0), Memory::new(), allocator());
    let v = world.connect(0).unwrap();
    let index = OutOfLine::<_, _, Key8>::new(items(&v, &memory, &alloc), 100);
    assert_eq!(index.value_bytes(), 100);
    let value = |i: u8| vec![i; 100];
    let keys: Vec<_> = (0..40).map(|i| Key8(i << 54)).collect();
    let mut load = keys.iter();
    let loaded = index.bulk_load(0.8, |out| {
        out.extend(value(1));
        load.next().copied()
    });
    assert_eq!(block_on(loaded), Ok(40));
    let wrong = Err(IndexError::ValueLength {
        found: 99,
        expected: 100,
    });
    assert_eq!(block_on(index.insert(&Key8(9), &value(2)[1..])), wrong);
    assert_eq!(block_on(index.update(&keys[3], &value(2)[1..])), wrong);
    assert_eq!(block_on(index.upsert(&keys[3], &value(2)[1..])), wrong);
    let short = index.bulk_load(0.8, |out| {
        out.extend(&value(1)[1..]);
        Some(keys[0])
    });
    assert_eq!(block_on(short).map(drop), wrong.map(drop));

    assert_eq!(block_on(index.insert(&keys[3], &value(2))), Ok(Applied::Present));
    assert_eq!(block_on(index.insert(&Key8(9), &value(2))), Ok(Applied::Inserted));
    assert_eq!(block_on(index.update(&keys[3], &value(3))), Ok(Applied::Replaced));
    assert_eq!(block_on(index.upsert(&keys[4], &value(4))), Ok(Applied::Replaced));
    assert_eq!(block_on(index.remove(&keys[5])), Ok(Applied::Removed));
    let mut found = Vec::new();
    assert_eq!(block_on(index.get(&keys[3], &mut found)), Ok(true));
    assert_eq!(found, value(3));
    assert_eq!(block_on(index.get(&keys[5], &mut found)), Ok(false));
    let mut scan = Scan::new();
    block_on(index.scan(&keys[3], 3, &mut scan)).unwrap();
    assert_eq!(scan.keys(), [keys[3], keys[4], keys[6]]);
    assert_eq!(scan.get(1), Some((keys[4], &value(4)[..])));

    let shorter = OutOfLine::<_, _, Key8>::new(items(&v, &memory, &alloc), 99);
    assert!(matches!(
        block_on(shorter.scan(&keys[3], 3, &mut scan)),
        Err(IndexError::BadInput { .. })
    ));
    let longer = OutOfLine::<_, _, dm_index::KeyN<32>>::new(items(&v, &memory, &alloc), 100);
    let from = dm_index::KeyN([0; 32]);
    let scanned = block_on(longer.scan(&from, 3, &mut Scan::new()));
    assert!(matches!(scanned, Err(IndexError::BadInput { .. })));
}
