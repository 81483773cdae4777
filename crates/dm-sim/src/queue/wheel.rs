//! The timing wheel.
//!
//! ```text
//!  slots[16384]  one event per 2.048 ns, by value; a list of them where several fall together (one in eight does)
//!  words, tops   a bitmap of slots in use, and one of its non-zero words
//!  due           events at or before the cursor, sorted: a word's at a time, popped before anything else
//!  late[1024]    lists of what lies beyond the slots, 8.4 µs each; one list is moved into the slots at a time
//!  far           what lies beyond that, in a heap
//! ```
//! As [`QueueKind::Heap`] it has no slots: all goes through `far`.
//!
//! # Invariants
//! * **W1** Every slot in use lies in `(cursor, limit)`, which is shorter than the wheel: a slot means one time.
//! * **W2** Events of equal time leave in the order in which they came: a list is moved on as a whole, oldest first,
//!   and before anything is pushed directly to where it goes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Event, QueueKind, WHAT_BITS};

/// log2 of the picoseconds of one slot.
const SHIFT: u32 = 11;
const LOW: u64 = (1 << SHIFT) - 1;
const SLOTS: usize = 1 << 14;
const WORDS: usize = SLOTS / 64;
const TOPS: usize = WORDS / 64;

/// log2 of the slots of a segment: what is moved from `late` at a time. Four of them make the wheel.
const SEGMENT_SHIFT: u32 = 12;
const SEGMENTS: u64 = SLOTS as u64 >> SEGMENT_SHIFT;
const LATE: usize = 1 << 10;

/// From so many popped events on, they are cleared away before others are put between.
const USED: usize = 64;

const NONE: u32 = u32::MAX;
/// A slot that holds a list: the number of its newest node.
const LIST: u64 = 1 << 63;
const _: () = assert!(
    WHAT_BITS + SHIFT <= 63,
    "an event by value leaves the list's bit free"
);

#[derive(Clone, Copy, Debug)]
struct Node {
    event: Event,
    next: u32,
}

#[derive(Debug)]
pub(crate) struct Wheel {
    /// The slot, counted from time 0, up to which everything is in `due`.
    cursor: u64,
    /// The first slot whose events are still in `late` or `far`.
    limit: u64,
    due: Vec<Event>,
    /// How many of `due` have been popped.
    head: usize,
    slots: Box<[u64; SLOTS]>,
    words: [u64; WORDS],
    tops: [u64; TOPS],
    nodes: Vec<Node>,
    free: u32,
    late: [u32; LATE],
    /// Lists of `late` in use.
    late_lists: u32,
    far: BinaryHeap<Reverse<(u64, u64, u64)>>,
    pushed: u64,
    kind: QueueKind,
}

impl Wheel {
    pub(crate) fn new(kind: QueueKind) -> Self {
        Self {
            cursor: 0,
            limit: match kind {
                QueueKind::Wheel => SLOTS as u64,
                QueueKind::Heap => 0,
            },
            due: Vec::new(),
            head: 0,
            slots: Box::new([0; SLOTS]),
            words: [0; WORDS],
            tops: [0; TOPS],
            nodes: Vec::new(),
            free: NONE,
            late: [NONE; LATE],
            late_lists: 0,
            far: BinaryHeap::new(),
            pushed: 0,
            kind,
        }
    }

    /// Adds an event. Its time must not lie before the last one popped.
    #[inline]
    pub(crate) fn push(&mut self, at: u64, what: u64) {
        debug_assert!(what >> WHAT_BITS == 0, "what an event is about fits its bits");
        self.pushed += 1;
        let event = Event { at, what };
        let slot = at >> SHIFT;
        if slot <= self.cursor {
            self.insert(event);
        } else if slot < self.limit {
            self.place(event, slot);
        } else {
            self.push_late(event, slot >> SEGMENT_SHIFT);
        }
    }

    /// Puts an event into its slot.
    #[inline]
    fn place(&mut self, event: Event, slot: u64) {
        let s = slot as usize % SLOTS;
        let (word, bit) = (&mut self.words[s >> 6], 1 << (s & 63));
        if *word & bit == 0 {
            *word |= bit;
            self.tops[s >> 12] |= 1 << ((s >> 6) & 63);
            self.slots[s] = event.what << SHIFT | (event.at & LOW);
        } else {
            self.share(event, slot);
        }
    }

    /// Puts an event into a slot that is in use.
    #[inline(never)]
    fn share(&mut self, event: Event, slot: u64) {
        let s = slot as usize % SLOTS;
        let value = self.slots[s];
        let next = if value & LIST == 0 {
            let first = Self::unpack(value, slot);
            self.node(first, NONE)
        } else {
            value as u32
        };
        self.slots[s] = LIST | u64::from(self.node(event, next));
    }

    fn node(&mut self, event: Event, next: u32) -> u32 {
        let node = Node { event, next };
        if self.free == NONE {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let n = self.free;
            let place = &mut self.nodes[n as usize];
            self.free = place.next;
            *place = node;
            n
        }
    }

    #[inline]
    fn unpack(value: u64, slot: u64) -> Event {
        Event {
            at: slot << SHIFT | (value & LOW),
            what: value >> SHIFT,
        }
    }

    /// The next event, unless it lies after `limit`. `soon` is told of what comes within a word of slots, before it
    /// comes.
    #[inline(always)]
    pub(crate) fn pop(&mut self, limit: u64, soon: impl Fn(u64)) -> Option<Event> {
        if self.head == self.due.len() {
            self.refill(soon);
        }
        let event = *self.due.get(self.head)?;
        if event.at > limit {
            return None;
        }
        self.head += 1;
        Some(event)
    }

    /// What comes behind the event popped last, if that is known yet.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u64> {
        self.due.get(self.head).map(|e| e.what)
    }

    /// Fills `due`, which is used up, with the events of the next word that has any.
    #[inline(never)]
    fn refill(&mut self, soon: impl Fn(u64)) {
        self.due.clear();
        self.head = 0;
        let Some(w) = self.next_word() else { return };
        let mut bits = core::mem::take(&mut self.words[w]);
        self.tops[w >> 6] &= !(1 << (w & 63));
        let first = self.cursor & !63;
        self.cursor = first | 63;
        while bits != 0 {
            let slot = first | u64::from(bits.trailing_zeros());
            bits &= bits - 1;
            let value = self.slots[slot as usize % SLOTS];
            if value & LIST == 0 {
                let event = Self::unpack(value, slot);
                soon(event.what);
                self.due.push(event);
            } else {
                self.drain(value);
            }
        }
    }

    /// Whether no event is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.due.len() && self.late_lists == 0 && self.far.is_empty() && self.tops == [0; TOPS]
    }

    /// How many events were ever pushed.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Moves the cursor into the next word that has a slot in use, and tells its place; `None` when what is next, if
    /// anything, is in `due`.
    fn next_word(&mut self) -> Option<usize> {
        if self.kind == QueueKind::Heap {
            self.cursor = self.far.peek()?.0.0 >> SHIFT;
            while let Some(Reverse((at, _, what))) = self.far.peek().copied()
                && at >> SHIFT == self.cursor
            {
                self.far.pop();
                self.insert(Event { at, what });
            }
            return None;
        }
        loop {
            if let Some(w) = self.used_word() {
                let here = self.cursor >> 6;
                let ahead = (w as u64).wrapping_sub(here) % WORDS as u64;
                self.move_to((here + ahead) << 6);
                return Some(w);
            }
            // The slots are empty, and nothing lies before the segment of the earliest event beyond.
            self.limit = self.late_segment()? << SEGMENT_SHIFT;
            self.move_to(self.limit);
        }
    }

    /// The first word with a slot in use, going round once from the cursor's.
    fn used_word(&self) -> Option<usize> {
        let from = (self.cursor as usize >> 6) % WORDS;
        let mut mask = u64::MAX << (from & 63);
        for turn in 0..=TOPS {
            let top = (from / 64 + turn) % TOPS;
            let set = self.tops[top] & mask;
            if set != 0 {
                return Some(top << 6 | set.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    /// Moves the cursor to `slot`, and into the slots what has come within their reach.
    #[inline]
    fn move_to(&mut self, slot: u64) {
        self.cursor = slot;
        while self.limit >> SEGMENT_SHIFT < (slot >> SEGMENT_SHIFT) + SEGMENTS {
            self.fetch();
        }
    }

    /// Moves the next segment of `late` into the slots.
    fn fetch(&mut self) {
        let segment = self.limit >> SEGMENT_SHIFT;
        self.limit += 1 << SEGMENT_SHIFT;
        let l = segment as usize % LATE;
        let mut n = core::mem::replace(&mut self.late[l], NONE);
        if n != NONE {
            self.late_lists -= 1;
            n = self.oldest_first(n);
        }
        while n != NONE {
            let Node { event, next } = self.nodes[n as usize];
            self.nodes[n as usize].next = self.free;
            self.free = n;
            n = next;
            self.place(event, event.at >> SHIFT);
        }
        while let Some(Reverse((at, _, what))) = self.far.peek().copied() {
            let of = at >> (SHIFT + SEGMENT_SHIFT);
            if of >= self.limit_of_late() {
                break;
            }
            self.far.pop();
            self.link_late(Event { at, what }, of);
        }
    }

    /// The first segment that is too far for `late`.
    fn limit_of_late(&self) -> u64 {
        (self.limit >> SEGMENT_SHIFT) + LATE as u64
    }

    /// Turns a list round.
    fn oldest_first(&mut self, newest: u32) -> u32 {
        let (mut n, mut done) = (newest, NONE);
        while n != NONE {
            n = core::mem::replace(&mut self.nodes[n as usize].next, core::mem::replace(&mut done, n));
        }
        done
    }

    #[cold]
    fn push_late(&mut self, event: Event, segment: u64) {
        if self.kind == QueueKind::Wheel && segment < self.limit_of_late() {
            self.link_late(event, segment);
        } else {
            self.far.push(Reverse((event.at, self.pushed, event.what)));
        }
    }

    fn link_late(&mut self, event: Event, segment: u64) {
        let l = segment as usize % LATE;
        self.late_lists += u32::from(self.late[l] == NONE);
        self.late[l] = self.node(event, self.late[l]);
    }

    /// The segment of the earliest event in `late` or `far`.
    #[cold]
    fn late_segment(&self) -> Option<u64> {
        let first = self.limit >> SEGMENT_SHIFT;
        if self.late_lists == 0 {
            return self
                .far
                .peek()
                .map(|Reverse((at, ..))| at >> (SHIFT + SEGMENT_SHIFT));
        }
        (first..first + LATE as u64).find(|s| self.late[*s as usize % LATE] != NONE)
    }

    /// Appends the events of a slot's list to `due`, sorted.
    #[inline(never)]
    fn drain(&mut self, value: u64) {
        let start = self.due.len();
        let mut n = value as u32;
        while n != NONE {
            // Newest first: what is put before its equals came before them.
            let Node { event, next } = self.nodes[n as usize];
            self.nodes[n as usize].next = self.free;
            self.free = n;
            n = next;
            let mut i = start;
            while i < self.due.len() && self.due[i].at < event.at {
                i += 1;
            }
            self.due.insert(i, event);
        }
    }

    /// Puts an event that lies not behind the cursor into its place in `due`: behind those of its time.
    #[inline(never)]
    fn insert(&mut self, event: Event) {
        if self.head >= USED {
            // Else it would grow as long as something always comes before what is left.
            self.due.drain(..self.head);
            self.head = 0;
        }
        let mut i = self.due.len();
        while i > self.head && self.due[i - 1].at > event.at {
            i -= 1;
        }
        self.due.insert(i, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_popped_does_not_pile_up_before_what_waits() {
        let mut wheel = Wheel::new(QueueKind::Wheel);
        // Both in the first word of slots: the second is known, and waits, while others come before it.
        let (first, last) = (1 << SHIFT, 60 << SHIFT);
        wheel.push(first, 1);
        wheel.push(last, 2);
        assert_eq!(wheel.pop(u64::MAX, |_| {}).map(|e| e.what), Some(1));
        for i in 0..10_000 {
            let at = first + i;
            wheel.push(at, 3);
            assert_eq!(wheel.pop(u64::MAX, |_| {}), Some(Event { at, what: 3 }));
        }
        assert!(wheel.due.capacity() < 4 * USED, "{}", wheel.due.capacity());
        assert_eq!(wheel.pop(u64::MAX, |_| {}), Some(Event { at: last, what: 2 }));
        assert!(wheel.is_empty());
    }
}
