//! The timing wheel.
//!
//! ```text
//!  slots[32768]  a slot covers 2.048 ns and holds one event by value, or a list if events share it (one in eight does)
//!  words         a bitmap of the slots in use; the first bit that is set leads to the next event
//!  due           the sorted events of the slot that is being popped, if it held a list or received more events
//!  late[1024]    lists of events beyond the slots; a list covers 8.4 µs and moves into the slots as a whole
//!  far           all later events, in a heap
//! ```
//! A queue of kind [`QueueKind::Heap`] has no slots, and all events are in `far`.
//!
//! # Invariants
//! * **W1** Every slot in use lies in `[cursor, limit)`. This range is not longer than the wheel, so each slot stands
//!   for only one time.
//! * **W2** Events of equal time are popped in the order of insertion: a list is moved as a whole, oldest event first,
//!   before any event is pushed directly to the destination of the list.
//! * **W3** No slot in use lies before `word`.
//! * **W4** While `due` holds events, the cursor's slot is in use and holds a list without nodes.
//! * **W5** `far` holds no event that fits into `late`: whenever `limit` grows, such events are moved at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::nodes::{NONE, Nodes};
use super::{Event, QueueKind, WHAT_BITS};

/// log2 of the picoseconds of one slot.
const SHIFT: u32 = 11;
const LOW: u64 = (1 << SHIFT) - 1;
const SLOTS: usize = 1 << 15;
const WORDS: usize = SLOTS / 64;

/// log2 of the number of slots of a segment, the unit that moves from `late` into the slots. The wheel has eight
/// segments. One of them stays empty, because the cursor may lie just before the first one.
const SEGMENT_SHIFT: u32 = 12;
const SEGMENT_WORDS: u64 = 1 << (SEGMENT_SHIFT - 6);
const SEGMENTS: u64 = SLOTS as u64 >> SEGMENT_SHIFT;
const LATE: usize = 1 << 10;

/// If at least this number of events of `due` has been popped, they are removed before other events are inserted.
const USED: usize = 64;

/// Marks a slot that holds a list. The other bits are the number of the list's newest node.
const LIST: u64 = 1 << 63;
/// The content of an event that does not exist.
const NOTHING: u64 = u64::MAX;
const _: () = assert!(
    WHAT_BITS + SHIFT <= 63,
    "an event by value leaves the list's bit free"
);

#[derive(Debug)]
pub(crate) struct Wheel {
    /// All events before this slot (counted from time 0) have left the slots.
    cursor: u64,
    /// The word of slots (counted from time 0) from which events are popped.
    word: u64,
    /// The first slot (counted from time 0) whose events are still in `late` or `far`.
    limit: u64,
    due: Vec<Event>,
    /// Number of entries of `due` that have been popped.
    head: usize,
    slots: Box<[u64; SLOTS]>,
    words: [u64; WORDS],
    nodes: Nodes,
    late: [u32; LATE],
    /// Number of lists of `late` in use.
    late_lists: u32,
    far: BinaryHeap<Reverse<(u64, u64, u64)>>,
    pushed: u64,
    kind: QueueKind,
}

impl Wheel {
    pub(crate) fn new(kind: QueueKind) -> Self {
        Self {
            cursor: 0,
            word: 0,
            limit: match kind {
                QueueKind::Wheel => SLOTS as u64,
                QueueKind::Heap => 0,
            },
            due: Vec::new(),
            head: 0,
            slots: Box::new([0; SLOTS]),
            words: [0; WORDS],
            nodes: Nodes::default(),
            late: [NONE; LATE],
            late_lists: 0,
            far: BinaryHeap::new(),
            pushed: 0,
            kind,
        }
    }

    /// Adds an event. Its time must not be before the time of the event that was popped last.
    #[inline(always)]
    pub(crate) fn push(&mut self, at: u64, what: u64) {
        debug_assert!(what >> WHAT_BITS == 0, "the content of an event fits WHAT_BITS");
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

    /// Inserts an event into its slot.
    #[inline(always)]
    fn place(&mut self, event: Event, slot: u64) {
        let s = slot as usize % SLOTS;
        let (word, bit) = (&mut self.words[s >> 6], 1 << (s & 63));
        if *word & bit == 0 {
            *word |= bit;
            self.slots[s] = event.what << SHIFT | (event.at & LOW);
        } else {
            self.share(event, slot);
        }
    }

    /// Inserts an event into a slot that is in use.
    #[inline(never)]
    fn share(&mut self, event: Event, slot: u64) {
        let s = slot as usize % SLOTS;
        let value = self.slots[s];
        let next = if value & LIST == 0 {
            let first = Self::unpack(value, slot);
            self.nodes.add(first, NONE)
        } else {
            value as u32
        };
        self.slots[s] = LIST | u64::from(self.nodes.add(event, next));
    }

    #[inline]
    fn unpack(value: u64, slot: u64) -> Event {
        Event {
            at: slot << SHIFT | (value & LOW),
            what: value >> SHIFT,
        }
    }

    /// Returns the next event, unless it is after `limit`. Passes the content of the following event to `soon`, as a
    /// hint.
    #[inline(always)]
    pub(crate) fn pop(&mut self, limit: u64, soon: impl Fn(u64)) -> Option<Event> {
        loop {
            let w = self.word as usize % WORDS;
            let bits = self.words[w];
            if bits == 0 {
                if !self.next_word() {
                    return None;
                }
                continue;
            }
            let first = self.word << 6;
            let slot = first | u64::from(bits.trailing_zeros());
            let value = self.slots[slot as usize % SLOTS];
            if value & LIST != 0 {
                let event = self.pop_listed(slot, limit);
                return (event.what != NOTHING).then_some(event);
            }
            let event = Self::unpack(value, slot);
            if event.at > limit {
                return None;
            }
            let rest = bits & (bits - 1);
            self.words[w] = rest;
            self.cursor = slot;
            // If the next slot holds a list, or there is no further slot in the word, the hint is wrong, which does no
            // harm. An unconditional look-up is faster than a branch that the CPU predicts badly.
            let next = first | u64::from((rest | 1 << 63).trailing_zeros());
            soon(self.slots[next as usize % SLOTS] >> SHIFT);
            return Some(event);
        }
    }

    /// Pops the first event of `slot`, which holds a list, perhaps partly popped. If the event is after `limit`, it
    /// stays, and the content of the result is [`NOTHING`]. The result has two words, so that it fits into registers.
    #[inline(never)]
    fn pop_listed(&mut self, slot: u64, limit: u64) -> Event {
        let s = slot as usize % SLOTS;
        let newest = core::mem::replace(&mut self.slots[s], LIST | u64::from(NONE)) as u32;
        self.cursor = slot;
        self.drain(newest);
        let event = self.due[self.head];
        if event.at > limit {
            return Event {
                what: NOTHING,
                ..event
            };
        }
        self.head += 1;
        if self.head == self.due.len() {
            self.due.clear();
            self.head = 0;
            self.words[s >> 6] &= !(1 << (s & 63));
        }
        event
    }

    /// Returns whether no event is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.late_lists == 0 && self.far.is_empty() && self.words.iter().all(|w| *w == 0)
    }

    /// Returns how many events were ever pushed.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Advances to the next word with a slot in use. A queue of kind [`QueueKind::Heap`] moves events from `far` to
    /// `due` instead. Returns whether there is an event.
    #[inline(always)]
    fn next_word(&mut self) -> bool {
        let next = self.word + 1;
        if self.words[next as usize % WORDS] != 0 && !next.is_multiple_of(SEGMENT_WORDS) {
            self.word = next;
            self.cursor = (next << 6) - 1;
            return true;
        }
        self.next_far_word()
    }

    #[inline(never)]
    fn next_far_word(&mut self) -> bool {
        if self.kind == QueueKind::Heap {
            return self.next_of_heap();
        }
        loop {
            if let Some(ahead) = self.used_word() {
                self.move_to(self.word + ahead);
                return true;
            }
            // The slots are empty. The next events are in the segment of the earliest event of `late` and `far`.
            let Some(segment) = self.late_segment() else {
                return false;
            };
            self.reach(segment << SEGMENT_SHIFT);
            self.move_to(self.limit >> 6);
        }
    }

    /// Moves the events with the earliest slot from `far` to `due`.
    fn next_of_heap(&mut self) -> bool {
        let Some(Reverse((first, ..))) = self.far.peek() else {
            return false;
        };
        self.cursor = first >> SHIFT;
        while let Some(Reverse((at, _, what))) = self.far.peek().copied()
            && at >> SHIFT == self.cursor
        {
            self.far.pop();
            self.insert(Event { at, what });
        }
        true
    }

    /// Returns the distance to the first word with a slot in use, within one lap of the wheel.
    fn used_word(&self) -> Option<u64> {
        let from = self.word as usize % WORDS;
        let (before, behind) = self.words.split_at(from);
        let ahead = behind.iter().chain(before).position(|w| *w != 0)?;
        Some(ahead as u64)
    }

    /// Advances to `word`, and moves the events that now fit into the slots.
    #[inline]
    fn move_to(&mut self, word: u64) {
        self.word = word;
        // The cursor stops before the first slot of `word`, because the events that are moved below may belong in this
        // slot.
        self.cursor = self.cursor.max((word << 6).saturating_sub(1));
        let segment = word / SEGMENT_WORDS;
        while self.limit >> SEGMENT_SHIFT < segment + SEGMENTS - 1 {
            self.fetch();
        }
    }

    /// Moves the next segment of `late` into the slots.
    fn fetch(&mut self) {
        let segment = self.limit >> SEGMENT_SHIFT;
        let l = segment as usize % LATE;
        let newest = core::mem::replace(&mut self.late[l], NONE);
        // From now on, this list of `late` belongs to the segment one lap later.
        self.late_lists -= u32::from(newest != NONE);
        self.reach((segment + 1) << SEGMENT_SHIFT);
        let mut n = self.nodes.oldest_first(newest);
        while n != NONE {
            let event;
            (event, n) = self.nodes.remove(n);
            self.place(event, event.at >> SHIFT);
        }
    }

    /// Raises the limit, and moves events from `far` to `late` that now fit.
    fn reach(&mut self, limit: u64) {
        self.limit = limit;
        while let Some(Reverse((at, _, what))) = self.far.peek().copied() {
            let segment = at >> (SHIFT + SEGMENT_SHIFT);
            if segment >= self.limit_of_late() {
                break;
            }
            self.far.pop();
            self.link_late(Event { at, what }, segment);
        }
    }

    /// Returns the first segment that is too far for `late`.
    fn limit_of_late(&self) -> u64 {
        (self.limit >> SEGMENT_SHIFT) + LATE as u64
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
        self.late[l] = self.nodes.add(event, self.late[l]);
    }

    /// Returns the segment of the earliest event in `late` or `far`.
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

    /// Moves a slot's list to `due`, in order.
    fn drain(&mut self, newest: u32) {
        let mut n = newest;
        while n != NONE {
            // The list is newest first. So an event is inserted before the events of equal time that are already in
            // `due`, because it is older.
            let event;
            (event, n) = self.nodes.remove(n);
            let mut i = self.due.len();
            self.due.push(event);
            while i > 0 && self.due[i - 1].at >= event.at {
                self.due.swap(i - 1, i);
                i -= 1;
            }
        }
    }

    /// Inserts an event into `due`, behind the events of equal time. Its slot must not be after the cursor's.
    #[inline(never)]
    fn insert(&mut self, event: Event) {
        if self.due.is_empty() {
            let s = self.cursor as usize % SLOTS;
            self.slots[s] = LIST | u64::from(NONE);
            self.words[s >> 6] |= 1 << (s & 63);
            self.word = self.cursor >> 6;
        }
        if self.head >= USED {
            // Otherwise `due` would grow as long as events are inserted before the remaining ones.
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
    fn popped_events_are_removed_while_a_later_event_waits() {
        let mut wheel = Wheel::new(QueueKind::Wheel);
        // Both events are in the first word of slots. The second event waits while other events are inserted before
        // it.
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
