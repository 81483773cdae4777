//! An ordered map from the low keys of images to their slots. The crate has its own map so that it can count the map's
//! bytes exactly.
//!
//! ```text
//!  firsts   [ a        m          t       ]        the first low of each page
//!  pages    [ a b f k  m n p      t z     ]        lows, and beside them the slots
//! ```
//! A lookup makes two binary searches over packed keys, each of about seven steps for 10 000 images. An insertion moves
//! at most the entries of one page, and the lists of pages if it adds a page.

use core::mem::size_of;

use crate::search;
use crate::slab::{grown_spine, reserve_one};

/// Entries of a full page.
const PAGE: usize = dm_sync::scaled(128, 4);
/// Entries of the smallest page's allocation.
const FIRST: usize = dm_sync::scaled(8, 2);
/// Number of entries by which a page's allocation grows. On average half of them are unused. If the allocation doubled
/// instead, about a quarter of it would be unused.
const STEP: usize = dm_sync::scaled(16, 2);

#[derive(Debug)]
struct Page<K> {
    lows: Vec<K>,
    slots: Vec<u32>,
}

impl<K> Page<K> {
    fn with_capacity(capacity: usize) -> Self {
        Self {
            lows: Vec::with_capacity(capacity),
            slots: Vec::with_capacity(capacity),
        }
    }

    fn bytes(&self) -> u64 {
        (self.lows.capacity() * size_of::<K>() + self.slots.capacity() * size_of::<u32>()) as u64
    }

    /// Grows the allocation to `capacity` entries, if it is shorter.
    fn widen(&mut self, capacity: usize) {
        let more = capacity.saturating_sub(self.lows.len());
        self.lows.reserve_exact(more);
        self.slots.reserve_exact(more);
    }
}

/// The position of an entry: page, and place in it. It is valid until the directory changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cursor {
    page: usize,
    at: usize,
}

/// The way in which [`Directory::insert`] gets room for one more entry.
enum Room {
    /// The page has room.
    Fits(Cursor),
    /// The page is reallocated with this capacity.
    Widen(Cursor, usize),
    /// A new page is appended after the last one, so that ascending keys fill whole pages.
    Append,
    /// The upper half of a full page moves to a new page.
    Split(Cursor),
}

/// The slots of the images of one level, in the order of the images' low keys.
#[derive(Debug)]
pub(crate) struct Directory<K> {
    firsts: Vec<K>,
    pages: Vec<Page<K>>,
    /// Bytes allocated by the pages.
    heap: u64,
}

impl<K: Copy + Ord> Directory<K> {
    pub(crate) fn new() -> Self {
        Self {
            firsts: Vec::new(),
            pages: Vec::new(),
            heap: 0,
        }
    }

    /// Returns the number of bytes allocated for the pages and for the lists of pages, including unused capacity.
    pub(crate) fn bytes(&self) -> u64 {
        self.heap + Self::spine(self.firsts.capacity(), self.pages.capacity())
    }

    fn spine(firsts: usize, pages: usize) -> u64 {
        (firsts * size_of::<K>() + pages * size_of::<Page<K>>()) as u64
    }

    /// Returns the last entry whose low key is not above `key`.
    #[inline]
    pub(crate) fn floor(&self, key: &K) -> Option<Cursor> {
        let page = search::floor(&self.firsts, key)?;
        let at = search::floor(&self.pages.get(page)?.lows, key)?;
        Some(Cursor { page, at })
    }

    /// Returns the entry whose low key is `key`.
    pub(crate) fn exactly(&self, key: &K) -> Option<Cursor> {
        self.floor(key).filter(|cursor| self.low(*cursor) == Some(*key))
    }

    /// Returns the first entry at or after `cursor` (which may point one past a page's end).
    pub(crate) fn settle(&self, cursor: Cursor) -> Option<Cursor> {
        if cursor.at < self.pages.get(cursor.page)?.lows.len() {
            return Some(cursor);
        }
        let page = cursor.page + 1;
        (page < self.pages.len()).then_some(Cursor { page, at: 0 })
    }

    /// Returns the next entry.
    pub(crate) fn next(&self, cursor: Cursor) -> Option<Cursor> {
        self.settle(Cursor {
            at: cursor.at + 1,
            ..cursor
        })
    }

    /// Returns the first entry of all.
    pub(crate) fn first(&self) -> Option<Cursor> {
        self.settle(Cursor { page: 0, at: 0 })
    }

    #[inline]
    pub(crate) fn slot(&self, cursor: Cursor) -> Option<u32> {
        self.pages.get(cursor.page)?.slots.get(cursor.at).copied()
    }

    pub(crate) fn low(&self, cursor: Cursor) -> Option<K> {
        self.pages.get(cursor.page)?.lows.get(cursor.at).copied()
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.pages.iter().map(|page| page.lows.len()).sum()
    }

    /// Returns the slot of the entry with number `rank`, in the order of lows.
    pub(crate) fn nth(&self, mut rank: usize) -> Option<u32> {
        for page in &self.pages {
            match page.slots.get(rank) {
                Some(slot) => return Some(*slot),
                None => rank -= page.slots.len(),
            }
        }
        None
    }

    /// Returns every slot, in the order of lows.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.pages.iter().flat_map(|page| page.slots.iter().copied())
    }

    fn room(&self, low: &K) -> Room {
        let Some(last) = self.pages.len().checked_sub(1) else {
            return Room::Append;
        };
        let number = self
            .firsts
            .partition_point(|first| first <= low)
            .saturating_sub(1);
        let page = &self.pages[number];
        let at = page.lows.partition_point(|other| other <= low);
        let cursor = Cursor { page: number, at };
        let (len, capacity) = (page.lows.len(), page.lows.capacity());
        if len < capacity {
            Room::Fits(cursor)
        } else if len < PAGE {
            Room::Widen(cursor, (len + STEP).min(PAGE))
        } else if number == last && at == len {
            Room::Append
        } else {
            Room::Split(cursor)
        }
    }

    /// Returns the number of bytes that [`Directory::insert`] will allocate for this low key, which has no entry yet.
    pub(crate) fn cost_of(&self, low: &K) -> u64 {
        let entry = (size_of::<K>() + size_of::<u32>()) as u64;
        let one_more_page = Self::spine(
            grown_spine(self.firsts.len(), self.firsts.capacity()),
            grown_spine(self.pages.len(), self.pages.capacity()),
        ) - Self::spine(self.firsts.capacity(), self.pages.capacity());
        match self.room(low) {
            Room::Fits(_) => 0,
            Room::Widen(cursor, to) => (to - self.pages[cursor.page].lows.capacity()) as u64 * entry,
            Room::Append => FIRST as u64 * entry + one_more_page,
            // The left page then shrinks. This estimate ignores the bytes that it frees.
            Room::Split(_) => (PAGE - PAGE / 2 + STEP) as u64 * entry + one_more_page,
        }
    }

    /// Points `low` at `slot`: adds an entry, or changes the slot of the existing one.
    pub(crate) fn insert(&mut self, low: K, slot: u32) {
        if let Some(cursor) = self.exactly(&low) {
            self.pages[cursor.page].slots[cursor.at] = slot;
            return;
        }
        let cursor = match self.room(&low) {
            Room::Fits(cursor) => cursor,
            Room::Widen(cursor, to) => {
                self.change(cursor.page, |page| page.widen(to));
                cursor
            }
            Room::Append => {
                self.push_page(self.pages.len(), low, Page::with_capacity(FIRST));
                Cursor {
                    page: self.pages.len() - 1,
                    at: 0,
                }
            }
            Room::Split(cursor) => self.split(cursor),
        };
        let page = &mut self.pages[cursor.page];
        page.lows.insert(cursor.at, low);
        page.slots.insert(cursor.at, slot);
        self.firsts[cursor.page] = page.lows[0];
    }

    /// Removes the entry whose low key is `low`, if it points at `slot`.
    pub(crate) fn remove(&mut self, low: &K, slot: u32) {
        let Some(Cursor { page: number, at }) = self.exactly(low) else {
            return;
        };
        let page = &mut self.pages[number];
        if page.slots[at] != slot {
            return;
        }
        page.lows.remove(at);
        page.slots.remove(at);
        match page.lows.first() {
            Some(first) => {
                self.firsts[number] = *first;
                self.absorb_next(number);
            }
            None => self.drop_page(number),
        }
    }

    /// Moves the next page's entries here if both together fill at most half a page. This never allocates
    /// more than it frees.
    fn absorb_next(&mut self, number: usize) {
        let Some([page, next]) = self.pages.get(number..number + 2) else {
            return;
        };
        let both = page.lows.len() + next.lows.len();
        if both > PAGE / 2 {
            return;
        }
        self.firsts.remove(number + 1);
        let next = self.pages.remove(number + 1);
        self.heap -= next.bytes();
        self.change(number, |page| {
            page.widen(both);
            page.lows.extend(next.lows);
            page.slots.extend(next.slots);
        });
    }

    fn split(&mut self, cursor: Cursor) -> Cursor {
        let half = self.pages[cursor.page].lows.len() / 2;
        let mut right = Page::with_capacity(self.pages[cursor.page].lows.len() - half + STEP);
        self.change(cursor.page, |left| {
            right.lows.extend(left.lows.drain(half..));
            right.slots.extend(left.slots.drain(half..));
            left.lows.shrink_to(half + STEP);
            left.slots.shrink_to(half + STEP);
        });
        let first = right.lows[0];
        self.push_page(cursor.page + 1, first, right);
        if cursor.at <= half {
            cursor
        } else {
            Cursor {
                page: cursor.page + 1,
                at: cursor.at - half,
            }
        }
    }

    fn push_page(&mut self, number: usize, first: K, page: Page<K>) {
        reserve_one(&mut self.firsts);
        reserve_one(&mut self.pages);
        self.heap += page.bytes();
        self.firsts.insert(number, first);
        self.pages.insert(number, page);
    }

    fn drop_page(&mut self, number: usize) {
        self.firsts.remove(number);
        self.heap -= self.pages.remove(number).bytes();
    }

    fn change(&mut self, number: usize, by: impl FnOnce(&mut Page<K>)) {
        let page = &mut self.pages[number];
        let before = page.bytes();
        by(page);
        self.heap = self.heap - before + page.bytes();
    }
}
