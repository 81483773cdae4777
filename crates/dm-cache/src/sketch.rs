//! The approximate first keys of leaves, in six bytes per leaf (eight if leaves are far apart). If that takes too much
//! memory, only a part of the leaves is stored.

use core::mem::size_of;

use dm_layout::{KEY_BYTES_MAX, KeyBytes};
use dm_sync::{Fingerprint, RwLock, fingerprint_of};
use dm_verbs::RemotePtr;

mod places;
#[cfg(all(test, not(dm_loom)))]
mod tests;

use places::Places;

/// Maximum number of entries of a block. An insertion moves at most this number of entries.
const BLOCK: usize = dm_sync::scaled(1024, 4);
/// If room is needed, one entry in this number is dropped. This is a small part of the entries, so that little of the
/// budget is unused afterwards.
const THINNED: usize = 16;
/// Maximum value of [`State::passes`]. With this value, about one in 600 new entries is kept.
const PASSES_MAX: u32 = 100;
/// Bits of a separator that an entry keeps.
const CODE_BITS: u32 = 16;
/// Additional bits by which a block's codes extend beyond its first leaves, so that other leaves fit into it.
const HEADROOM: u32 = 6;
/// The share of all leaves. Other shares are smaller numbers, in proportion.
const WHOLE: u32 = 1 << 16;

/// The leaves of a tree by their approximate first keys, for a compute node that has too little memory for an
/// exact cache. The sketch returns the leaf of a key or a leaf to its left, from which sibling pointers lead
/// to the right one.
///
/// The sketch keeps two bytes of each separator, *rounded up*, and four bytes of each leaf's address (six if neighbours
/// are more than about half a GiB apart). It cannot store leaves that are not at a multiple of 64 bytes, that lie
/// beyond 64 TiB, or that are on memory nodes from number 256 on. When the budget is used up, it drops one entry in
/// sixteen, evenly over the tree. From then on it also omits the same share of new entries. If a share `s` of the
/// leaves is left, a search takes `(1/s - 1)/2` steps to the right on average.
///
/// ```text
///   block    low ─────────────────────────────────────────────────────── high
///   codes    │ c0 = 0 │  c1  │  c2  │      16 bits: how far from low the separator is, rounded up
///   leaves   │   l0   │  l1  │  l2  │      8 bits of memory node, 24 (or 40) of place
/// ```
///
/// Threads share the sketch by reference. No section awaits, and a lookup allocates nothing.
///
/// # Invariants
/// * **I1** Blocks ascend and do not overlap. The codes of a block ascend strictly from 0, which is the code of its low
///   key.
/// * **I2** A leaf is returned only for keys at or above the separator with which it was added.
/// * **I3** [`Sketch::bytes`] counts every allocation, and stays within the budget unless the sketch is empty. An empty
///   sketch takes at least the size of this struct.
///
/// The design is not from a paper. It addresses small caches, as in Dolphin's Fig. 6 (MSST 2024).
///
/// ```
/// use dm_cache::Sketch;
/// use dm_layout::Key8;
/// use dm_verbs::{NodeId, RemotePtr};
/// # fn at(offset: u64) -> RemotePtr { RemotePtr::new(NodeId(0), offset).unwrap() }
///
/// let sketch = Sketch::new(1 << 20);
/// assert!(sketch.admit([(Key8(0), at(0x4000)), (Key8(500), at(0x4400))], Some(Key8(1000))));
/// assert_eq!(sketch.leaf(&Key8(700)), Some(at(0x4400)));
/// assert_eq!(sketch.leaf(&Key8(1000)), None, "nothing is known from there on");
/// ```
pub struct Sketch<K> {
    state: RwLock<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    budget: u64,
    blocks: Vec<Block<K>>,
    /// Bytes that blocks have allocated.
    heap: u64,
    /// The number of times that the sketch was thinned. New entries are omitted in the same proportion. The number
    /// shrinks again while the sketch uses less than half of its budget.
    passes: u32,
    /// The share of new leaves that the sketch keeps; [`WHOLE`] stands for all of them.
    share: u32,
    /// The sum of the shares since the last kept leaf. At [`WHOLE`], a leaf is kept.
    due: u32,
}

/// Leaves by their separators, and the end of their range.
type Known<K> = (Vec<(K, RemotePtr)>, Option<K>);

/// Neighbouring leaves.
#[derive(Debug)]
struct Block<K> {
    low: K,
    /// The end of the keys that it covers; `None` is plus infinity.
    high: Option<K>,
    /// Leading bytes that all its separators share.
    skip: u8,
    /// Codes count in units of this power of two, from `low` on.
    shift: u8,
    codes: Vec<u16>,
    leaves: Places,
}

/// Size in bytes of the longest key, plus eight, so that eight bytes can be read from any byte of a key on.
const PADDED: usize = KEY_BYTES_MAX + 8;

fn padded<K: KeyBytes>(key: &K) -> [u8; PADDED] {
    let mut bytes = [0; PADDED];
    key.write_to(&mut bytes[..K::LEN]);
    bytes
}

/// Returns the eight bytes of a key after the first `skip`, as a number.
fn window(bytes: &[u8; PADDED], skip: usize) -> u64 {
    let raw = bytes.get(skip..).and_then(|rest| rest.first_chunk());
    raw.map_or(0, |raw| u64::from_be_bytes(*raw))
}

/// Returns the number of leading bytes that two keys share.
fn shared_bytes(a: &[u8; PADDED], b: &[u8; PADDED]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl<K: KeyBytes> Block<K> {
    /// Makes a block whose first leaf begins at `low` and is at `leaf`. `last` is the last separator that the caller
    /// will add to the block. Returns `None` if the address of the leaf cannot be stored.
    fn new(low: K, last: &K, leaf: RemotePtr) -> Option<Self> {
        let (from, to) = (padded(&low), padded(last));
        // This skips fewer bytes than the two keys share, so that leaves which share fewer bytes with them fit into the
        // block too.
        let skip = shared_bytes(&from, &to)
            .saturating_sub(2)
            .min(K::LEN.saturating_sub(8));
        let span = window(&to, skip).wrapping_sub(window(&from, skip));
        let bits = u64::BITS - span.leading_zeros() + HEADROOM;
        let mut new = Self {
            low,
            high: None,
            skip: skip as u8,
            shift: bits.saturating_sub(CODE_BITS).min(u64::BITS - CODE_BITS) as u8,
            // The code of the block's low is 0.
            codes: vec![0],
            leaves: Places::around(leaf),
        };
        new.leaves.insert(0, leaf).then_some(new)
    }

    fn heap(&self) -> u64 {
        (self.codes.capacity() * size_of::<u16>() + self.leaves.heap()) as u64
    }

    /// Returns the distance of a key from the block's low, in units and rounded down, and whether there is a
    /// remainder. Returns `None` if the distance has no code.
    #[inline]
    fn distance(&self, key: &K) -> Option<(u16, bool)> {
        let (low, key) = (padded(&self.low), padded(key));
        let skip = usize::from(self.skip);
        if shared_bytes(&low, &key) < skip {
            return None;
        }
        let far = window(&key, skip).checked_sub(window(&low, skip))?;
        let code = u16::try_from(far >> self.shift).ok()?;
        let rest = far & ((1 << self.shift) - 1) != 0 || key.iter().skip(skip + 8).any(|byte| *byte != 0);
        Some((code, rest))
    }

    /// Returns the code of a separator, rounded up. So no key below the separator has this code or a higher one,
    /// because the codes of keys are rounded down.
    fn code(&self, separator: &K) -> Option<u16> {
        let (code, rest) = self.distance(separator)?;
        code.checked_add(u16::from(rest))
    }

    /// Returns the number of the entry for `key`, which is not below `low`.
    #[inline]
    fn position(&self, key: &K) -> usize {
        // Keys are rounded down, because separators are rounded up. If a key is too far from `low` to have a code, the
        // last entry is the right one.
        let Some((code, _)) = self.distance(key) else {
            return self.codes.len() - 1;
        };
        self.codes.partition_point(|c| *c <= code).max(1) - 1
    }

    fn reaches(&self, key: &K) -> bool {
        self.high.is_none_or(|high| *key < high)
    }

    /// Adds a leaf. If an existing leaf has the same code, the new leaf replaces it. Returns `false` if the separator
    /// has no code, if the block is full, or if the leaf's address cannot be stored.
    fn put(&mut self, separator: &K, leaf: RemotePtr) -> bool {
        let Some(code) = self.code(separator) else {
            return false;
        };
        let at = self.codes.partition_point(|c| *c < code);
        if self.codes.get(at) == Some(&code) {
            // Of two leaves with the same code, the one that is added last is kept. It is usually the right one, which
            // is nearer to the keys at or above the code.
            return self.leaves.set(at, leaf);
        }
        if self.codes.len() == BLOCK || !self.leaves.insert(at, leaf) {
            return false;
        }
        self.codes.reserve_exact(1);
        self.codes.insert(at, code);
        true
    }

    /// Returns the separator of entry `i`, rounded up.
    fn separator(&self, i: usize) -> Option<K> {
        let code = *self.codes.get(i)?;
        if code == 0 {
            return Some(self.low);
        }
        let (mut bytes, skip) = (padded(&self.low), usize::from(self.skip));
        let from = window(&bytes, skip).checked_add(u64::from(code) << self.shift)?;
        bytes[skip..].fill(0);
        bytes[skip..skip + 8].copy_from_slice(&from.to_be_bytes());
        // The bytes after the last byte of a key must be zero, because no separator has other bytes there.
        let exact = bytes[K::LEN..].iter().all(|byte| *byte == 0);
        exact.then(|| K::read_from(&bytes))
    }

    /// Returns the entries from number `from` on, with their rounded separators. This omits an entry whose
    /// separator is rounded up to the end of the block, because it covers no key of the block.
    fn entries_from(&self, from: usize) -> Vec<(K, RemotePtr)> {
        (from..self.codes.len())
            .filter_map(|i| Some((self.separator(i)?, self.leaves.get(i)?)))
            .filter(|(separator, _)| self.reaches(separator))
            .collect()
    }

    /// Returns the number of the entry that was added with this separator, or of the entry to its left if there is
    /// none. A separator's code is rounded up, unlike the code of a key.
    fn entered(&self, separator: &K) -> Option<usize> {
        let code = self.code(separator)?;
        self.codes.partition_point(|c| *c <= code).checked_sub(1)
    }

    fn truncate(&mut self, len: usize) {
        self.codes.truncate(len);
        self.leaves.truncate(len);
    }

    /// Drops one entry per group of neighbours: the one that leaves the smallest gap, so that the rest stays
    /// evenly spread.
    fn thin(&mut self) {
        let gap = |codes: &[u16], i: usize| {
            let end = codes
                .get(i + 1)
                .map_or(u32::from(u16::MAX), |code| u32::from(*code));
            end - u32::from(codes[i - 1])
        };
        let (mut kept, group) = (0, THINNED.min(self.codes.len()).max(2));
        for from in (0..self.codes.len()).step_by(group) {
            let until = (from + group).min(self.codes.len());
            // The very first entry is the beginning of the block and stays. An incomplete group loses no
            // entry.
            let victim = (until - from == group).then(|| {
                let least = (from.max(1)..until).min_by_key(|i| gap(&self.codes, *i));
                least.unwrap_or(until)
            });
            for i in (from..until).filter(|i| victim != Some(*i)) {
                // Entries move only to places in front of the next group. So `gap` still finds the old content of the
                // next group, and of the entry before it.
                self.codes[kept] = self.codes[i];
                self.leaves.copy(i, kept);
                kept += 1;
            }
        }
        self.truncate(kept);
        self.codes.shrink_to_fit();
        self.leaves.shrink();
    }
}

impl<K: KeyBytes> State<K> {
    fn bytes(&self) -> u64 {
        self.heap + (self.blocks.capacity() * size_of::<Block<K>>()) as u64 + size_of::<Sketch<K>>() as u64
    }

    /// Returns the block that begins at `key`, or otherwise the last block that begins below it.
    #[inline]
    fn floor(&self, key: &K) -> Option<usize> {
        self.blocks
            .partition_point(|block| block.low <= *key)
            .checked_sub(1)
    }

    #[inline]
    fn covering(&self, key: &K) -> Option<usize> {
        self.floor(key).filter(|i| self.blocks[*i].reaches(key))
    }

    fn recount(&mut self) {
        self.heap = self.blocks.iter().map(Block::heap).sum();
    }

    /// Removes the entries of `[low, high)`. If a block extends beyond `high`, returns its entries from
    /// `high` on, and its end.
    fn cut(&mut self, low: &K, high: Option<K>) -> Option<Known<K>> {
        let across = high.and_then(|high| {
            let block = &self.blocks[self.covering(&high)?];
            let from = match block.code(&high) {
                Some(code) => block.codes.partition_point(|c| *c < code),
                None => block.codes.len(),
            };
            (block.low < high).then(|| (block.entries_from(from), block.high))
        });
        if let Some(i) = self.covering(low).filter(|i| self.blocks[*i].low < *low) {
            let block = &mut self.blocks[i];
            let kept = match block.code(low) {
                Some(code) => block.codes.partition_point(|c| *c < code).max(1),
                None => block.codes.len(),
            };
            block.truncate(kept);
            block.high = Some(*low);
        }
        self.blocks
            .retain(|block| block.low < *low || high.is_some_and(|high| block.low >= high));
        across
    }

    /// Drops entries until the sketch is within its budget. Returns `false` if the sketch is empty afterwards, for
    /// example because the budget is too small for any entry.
    fn fit(&mut self) -> bool {
        self.recount();
        while self.bytes() > self.budget && !self.blocks.is_empty() {
            let before = self.bytes();
            for block in &mut self.blocks {
                block.thin();
            }
            self.counted_passes((self.passes + 1).min(PASSES_MAX));
            self.blocks.shrink_to_fit();
            self.recount();
            if self.bytes() == before {
                self.halve();
            }
        }
        !self.blocks.is_empty()
    }

    fn counted_passes(&mut self, passes: u32) {
        self.passes = passes;
        self.share = (0..passes).fold(WHOLE, |share, _| share - share / THINNED as u32);
    }

    /// Drops every second block, or the only one. This is called when each block has only one entry left. If the block
    /// before a dropped block ends where the dropped one begins, its entry then also covers the keys of the dropped
    /// block.
    fn halve(&mut self) {
        let old = core::mem::take(&mut self.blocks);
        let only = old.len() == 1;
        let mut kept: Vec<Block<K>> = Vec::new();
        for (i, block) in old.into_iter().enumerate() {
            if i % 2 == 0 {
                kept.push(block);
            } else if let Some(left) = kept.last_mut().filter(|left| left.high == Some(block.low)) {
                left.high = block.high;
            }
        }
        if only {
            kept.clear();
        }
        kept.shrink_to_fit();
        self.blocks = kept;
        self.recount();
    }

    /// Adds leaves to a range that has no entries. `entries` are adjacent leaves in the order of their keys. Of these,
    /// one in `WHOLE / share` is kept, evenly spread. The kept leaves go to the block that ends where the first leaf of
    /// `entries` begins, as long as they fit, and otherwise to new blocks. The range ends at `high`.
    fn place(&mut self, (entries, high): (&[(K, RemotePtr)], Option<K>), share: u32) {
        let (Some(&(low, _)), Some(&(last, _))) = (entries.first(), entries.last()) else {
            return;
        };
        let mut at = self.floor(&low).filter(|i| self.blocks[*i].high == Some(low));
        for (n, &(separator, leaf)) in entries.iter().enumerate() {
            if let Some(i) = at {
                // An omitted leaf can be reached from its left neighbour. The first leaf is kept, because a
                // client has just searched for it.
                self.due += share;
                match self.due.checked_sub(WHOLE) {
                    Some(due) => self.due = due,
                    None if n == 0 => self.due = 0,
                    None => continue,
                }
                let block = &mut self.blocks[i];
                if block.put(&separator, leaf) {
                    continue;
                }
                block.high = Some(separator);
            }
            let Some(block) = Block::new(separator, &last, leaf) else {
                // This leaf's address cannot be stored, so the rest is not added.
                return;
            };
            if self.blocks.len() == self.blocks.capacity() {
                self.blocks.reserve_exact(self.blocks.len() / 8 + 1);
            }
            let i = self.blocks.partition_point(|block| block.low < separator);
            self.blocks.insert(i, block);
            at = Some(i);
        }
        let Some(i) = at else { return };
        self.blocks[i].high = high;
        self.join(i);
    }

    /// Joins block `i` with the next block, if they are adjacent and one block has codes and room for all entries.
    fn join(&mut self, i: usize) {
        let [block, next] = match self.blocks.get_mut(i..i + 2) {
            Some([block, next]) if block.high == Some(next.low) => [block, next],
            _ => return,
        };
        let all = next.entries_from(0);
        let fits = block.codes.len() + all.len() <= BLOCK
            && all.len() == next.codes.len()
            && all
                .iter()
                .all(|(separator, leaf)| block.code(separator).is_some() && block.leaves.takes(*leaf));
        if fits {
            block.high = next.high;
            for (separator, leaf) in &all {
                block.put(separator, *leaf);
            }
            self.blocks.remove(i + 1);
        }
    }

    /// Adds a leaf to block `i`.
    fn insert(&mut self, i: usize, separator: &K, leaf: RemotePtr) -> bool {
        let block = &mut self.blocks[i];
        if block.put(separator, leaf) {
            return true;
        }
        // The block must not be divided at a leaf that cannot be stored, because no block could then take the entries
        // behind it.
        let divides = block.codes.len() == BLOCK && Places::can_store(leaf);
        let Some(code) = block.code(separator).filter(|_| divides) else {
            return false;
        };
        // The block is full, so it ends at the new leaf, and another block begins.
        let (from, high) = (block.codes.partition_point(|c| *c < code), block.high);
        let mut entries = vec![(*separator, leaf)];
        entries.extend(block.entries_from(from));
        block.truncate(from);
        block.high = Some(*separator);
        self.place_apart(&entries, high);
        true
    }

    /// Adds leaves to a range that has no entries, in one new block. Leaves that the block cannot store are left out.
    fn place_apart(&mut self, entries: &[(K, RemotePtr)], high: Option<K>) {
        let Some((&(low, leaf), &(last, _))) = entries.first().zip(entries.last()) else {
            return;
        };
        if let Some(mut block) = Block::new(low, &last, leaf) {
            let i = self.blocks.partition_point(|block| block.low < low);
            block.high = high;
            for (separator, leaf) in &entries[1..] {
                block.put(separator, *leaf);
            }
            self.blocks.insert(i, block);
        }
    }

    fn admit(&mut self, entries: &[(K, RemotePtr)], high: Option<K>) -> bool {
        if self.bytes() < self.budget / 2 {
            self.counted_passes(self.passes.saturating_sub(1));
        }
        let (Some(&(low, _)), Some(&(_, last))) = (entries.first(), entries.last()) else {
            return false;
        };
        let across = self.cut(&low, high);
        // The new entries are thinned as much and as evenly as the existing ones.
        self.place((entries, high), self.share);
        if let (Some((mut rest, end)), Some(high)) = (across, high) {
            // If the leaf that begins at `high` is not stored, the last leaf before it is used, because it is to the
            // left of all the others. If that leaf cannot be stored, the rest begins at its own first leaf.
            if Places::can_store(last) && rest.first().is_none_or(|(separator, _)| *separator > high) {
                rest.insert(0, (high, last));
            }
            self.place((&rest, end), WHOLE);
        }
        self.fit()
    }

    /// Removes the entry for `key` if it is `leaf`, and returns whether it did. With `hole`, or if the entry is the
    /// first of its block, the entry's range then has no entry. Otherwise the range belongs to the leaf to the left.
    fn drop_entry(&mut self, key: &K, leaf: RemotePtr, hole: bool) -> bool {
        let Some(i) = self.covering(key) else {
            return false;
        };
        let block = &mut self.blocks[i];
        // If the hint was wrong, the entry may be found either by the key or, if the key is a separator, by its rounded
        // code.
        let found = [Some(block.position(key)).filter(|_| hole), block.entered(key)];
        let mut found = found.into_iter().flatten();
        let Some(at) = found.find(|i| block.leaves.get(*i) == Some(leaf)) else {
            return false;
        };
        if at > 0 && !hole {
            block.codes.remove(at);
            block.leaves.remove(at);
            return true;
        }
        let (rest, end) = (block.entries_from(at + 1), block.high);
        match block.separator(at).filter(|_| at > 0) {
            Some(from) => {
                block.truncate(at);
                // The separator is rounded up, so it may be above the block's last key.
                block.high = Some(end.map_or(from, |end| end.min(from)));
            }
            None => drop(self.blocks.remove(i)),
        }
        self.place_apart(&rest, end);
        // Two blocks may take more memory than one.
        self.fit();
        true
    }
}

impl<K: KeyBytes> Sketch<K> {
    /// Makes an empty sketch whose [`Sketch::bytes`] stays within `budget` as long as the sketch has an entry.
    pub fn new(budget: u64) -> Self {
        Self {
            state: RwLock::new(State {
                budget,
                blocks: Vec::new(),
                heap: 0,
                passes: 0,
                share: WHOLE,
                due: 0,
            }),
        }
    }

    /// Returns the leaf of `key` or a leaf to its left; `None` if the sketch has no entry for the key.
    #[inline]
    pub fn leaf(&self, key: &K) -> Option<RemotePtr> {
        self.state.with_read(|state| {
            let block = &state.blocks[state.covering(key)?];
            block.leaves.get(block.position(key))
        })
    }

    /// Adds neighbouring leaves with their ascending separators. The last leaf ends at `high`. Earlier entries of this
    /// range are removed. Returns `false` if there are no leaves, or if the sketch is empty afterwards, because the
    /// budget is too small or the addresses cannot be stored.
    pub fn admit(&self, entries: impl IntoIterator<Item = (K, RemotePtr)>, high: Option<K>) -> bool {
        let entries: Vec<_> = entries.into_iter().collect();
        self.state.with_write(|state| state.admit(&entries, high))
    }

    /// Adds one more leaf, if the sketch has an entry that covers its separator. Returns `false` if there is no such
    /// entry, or if the new leaf cannot be stored.
    pub fn insert(&self, separator: &K, leaf: RemotePtr) -> bool {
        self.state.with_write(|state| {
            let Some(i) = state.covering(separator) else {
                return false;
            };
            let done = state.insert(i, separator, leaf);
            state.fit() && done
        })
    }

    /// Reports that the hint `leaf` for `key` was wrong. Removes the entry and returns `true` if `leaf` is still the
    /// hint for this key, or the entry of this separator.
    pub fn forget(&self, key: &K, leaf: RemotePtr) -> bool {
        self.state.with_write(|state| state.drop_entry(key, leaf, true))
    }

    /// Reports that the leaf that began at `separator` no longer exists, and that the leaf to its left covers
    /// its keys. Returns whether the sketch had an entry for the leaf.
    pub fn merged(&self, separator: &K, leaf: RemotePtr) -> bool {
        self.state
            .with_write(|state| state.drop_entry(separator, leaf, false))
    }

    /// Returns the number of steps to the right after which the caller should look up the key again. It is several
    /// times the mean number of steps. If the key's leaf is further away, other clients have probably split leaves on
    /// the way.
    pub fn reach(&self) -> u32 {
        let share = self.state.with_read(|state| state.share).max(1);
        8 + 4 * (WHOLE / share)
    }

    /// Returns the number of leaves in the sketch.
    pub fn len(&self) -> usize {
        self.state
            .with_read(|state| state.blocks.iter().map(|block| block.codes.len()).sum())
    }

    /// Returns whether the sketch has no leaf.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the whole sketch in bytes: this struct, and every allocation that it owns, including unused
    /// capacity.
    pub fn bytes(&self) -> u64 {
        self.state.with_read(State::bytes)
    }
}

impl<K: KeyBytes> Fingerprint for Sketch<K> {
    fn fingerprint(&self) -> u64 {
        self.state.with_read(|state| {
            let blocks = state.blocks.iter().map(|block| {
                fingerprint_of(&((block.low, block.high, block.skip), &block.codes, &block.leaves))
            });
            fingerprint_of(&(
                blocks.collect::<Vec<_>>(),
                (state.passes, state.due),
                state.bytes(),
            ))
        })
    }
}

impl<K: KeyBytes> core::fmt::Debug for Sketch<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sketch")
            .field("leaves", &self.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
