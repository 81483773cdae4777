//! The event queue: a timing wheel, exact to the picosecond, and a binary heap to check it against.
//!
//! ```text
//!  heads[32768]   one list of events per 4.096 ns: a horizon of 134 µs after the cursor
//!  words, tops    a bitmap of non-empty buckets, and one of its non-zero words
//!  due            the bucket under the cursor, sorted by (time, sequence); events are popped here
//!  far            what lies beyond the horizon, in a heap; moved into the wheel as the cursor advances
//! ```
//! Order is by `(time, sequence number)`, exactly as a heap would give it, so a run's digest does not depend on the
//! choice of queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// log2 of the picoseconds that one bucket covers.
const BUCKET_SHIFT: u32 = 12;
const BUCKETS: usize = 1 << 15;
const MASK: u64 = BUCKETS as u64 - 1;
const WORDS: usize = BUCKETS / 64;
const NONE: u32 = u32::MAX;

/// An event: when, in which order among equals, and what (the engine's own packing).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Event {
    pub(crate) at: u64,
    pub(crate) seq: u64,
    pub(crate) what: u64,
}

/// Which queue a simulation runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueueKind {
    /// The timing wheel.
    #[default]
    Wheel,
    /// std's binary heap: slower from some hundred clients on; the wheel is checked against it.
    Heap,
}

#[derive(Debug)]
enum Inner {
    Wheel(Wheel),
    Heap(BinaryHeap<Reverse<Event>>),
}

/// Events in order of `(time, sequence)`.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Inner,
    seq: u64,
}

impl Queue {
    pub(crate) fn new(kind: QueueKind) -> Self {
        let inner = match kind {
            QueueKind::Wheel => Inner::Wheel(Wheel::new()),
            QueueKind::Heap => Inner::Heap(BinaryHeap::new()),
        };
        Self { inner, seq: 0 }
    }

    /// Adds an event. Its time must not lie before the last one popped.
    #[inline]
    pub(crate) fn push(&mut self, at: u64, what: u64) {
        self.seq += 1;
        let event = Event {
            at,
            seq: self.seq,
            what,
        };
        match &mut self.inner {
            Inner::Wheel(w) => w.push(event),
            Inner::Heap(h) => h.push(Reverse(event)),
        }
    }

    /// The next event, unless it lies after `limit`.
    #[inline]
    pub(crate) fn pop(&mut self, limit: u64) -> Option<Event> {
        match &mut self.inner {
            Inner::Wheel(w) => w.pop(limit),
            Inner::Heap(h) => {
                if h.peek()?.0.at > limit {
                    return None;
                }
                h.pop().map(|r| r.0)
            }
        }
    }

    /// Whether no event is left.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.inner {
            Inner::Wheel(w) => w.is_empty(),
            Inner::Heap(h) => h.is_empty(),
        }
    }

    /// How many events were ever pushed.
    pub(crate) fn pushed(&self) -> u64 {
        self.seq
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    event: Event,
    next: u32,
}

#[derive(Debug)]
struct Wheel {
    heads: Box<[u32; BUCKETS]>,
    words: Box<[u64; WORDS]>,
    tops: [u64; WORDS / 64],
    nodes: Vec<Node>,
    free: u32,
    far: BinaryHeap<Reverse<Event>>,
    /// The bucket of the earliest far event.
    far_bucket: u64,
    /// Events of the cursor's bucket and before, latest first.
    due: Vec<Event>,
    /// The bucket, counted from time 0, that `due` covers.
    cursor: u64,
}

impl Wheel {
    fn new() -> Self {
        Self {
            heads: Box::new([NONE; BUCKETS]),
            words: Box::new([0; WORDS]),
            tops: [0; WORDS / 64],
            nodes: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
            far_bucket: u64::MAX,
            due: Vec::new(),
            cursor: 0,
        }
    }

    #[inline]
    fn push(&mut self, event: Event) {
        let bucket = event.at >> BUCKET_SHIFT;
        if bucket <= self.cursor {
            self.insert(event);
        } else if bucket - self.cursor < BUCKETS as u64 {
            self.link(event, bucket);
        } else {
            self.push_far(event, bucket);
        }
    }

    #[cold]
    fn push_far(&mut self, event: Event, bucket: u64) {
        self.far.push(Reverse(event));
        self.far_bucket = self.far_bucket.min(bucket);
    }

    #[inline]
    fn link(&mut self, event: Event, bucket: u64) {
        let b = (bucket & MASK) as usize;
        let node = Node {
            event,
            next: self.heads[b],
        };
        let n = if self.free == NONE {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let n = self.free;
            self.free = self.nodes[n as usize].next;
            self.nodes[n as usize] = node;
            n
        };
        self.heads[b] = n;
        self.words[b >> 6] |= 1 << (b & 63);
        self.tops[b >> 12] |= 1 << ((b >> 6) & 63);
    }

    #[inline]
    fn pop(&mut self, limit: u64) -> Option<Event> {
        if let Some(event) = self.due.last() {
            if event.at > limit {
                return None;
            }
            return self.due.pop();
        }
        let b = self.next_bucket()?;
        let first = self.heads[b];
        let Node { event, next } = self.nodes[first as usize];
        if next == NONE && event.at <= limit {
            // Alone in its bucket, as most are: no need to sort.
            self.heads[b] = NONE;
            self.clear(b);
            self.nodes[first as usize].next = self.free;
            self.free = first;
            return Some(event);
        }
        self.drain(b);
        if self.due.last()?.at > limit {
            return None;
        }
        self.due.pop()
    }

    fn is_empty(&self) -> bool {
        self.due.is_empty() && self.far.is_empty() && self.tops.iter().all(|t| *t == 0)
    }

    /// Moves the cursor to the next bucket that holds anything, and tells its place; `None` when nothing is left.
    #[inline]
    fn next_bucket(&mut self) -> Option<usize> {
        loop {
            if self.far_bucket.wrapping_sub(self.cursor) < BUCKETS as u64 {
                self.fetch_far();
            }
            let from = ((self.cursor + 1) & MASK) as usize;
            if let Some(b) = self.next_set(from) {
                self.cursor += 1 + ((b as u64).wrapping_sub(from as u64) & MASK);
                return Some(b);
            }
            if self.far.is_empty() {
                return None;
            }
            // The wheel is empty: jump so that the earliest far event comes within the horizon.
            self.cursor = self.far_bucket - 1;
        }
    }

    /// Moves far events that have come within the horizon into the wheel.
    #[cold]
    fn fetch_far(&mut self) {
        self.far_bucket = loop {
            let Some(Reverse(event)) = self.far.peek().copied() else {
                break u64::MAX;
            };
            let bucket = event.at >> BUCKET_SHIFT;
            if bucket - self.cursor >= BUCKETS as u64 {
                break bucket;
            }
            self.far.pop();
            self.link(event, bucket);
        };
    }

    #[inline]
    fn clear(&mut self, b: usize) {
        let word = &mut self.words[b >> 6];
        *word &= !(1 << (b & 63));
        if *word == 0 {
            self.tops[b >> 12] &= !(1 << ((b >> 6) & 63));
        }
    }

    /// Sorts a bucket into `due`, which is empty.
    fn drain(&mut self, b: usize) {
        let mut n = core::mem::replace(&mut self.heads[b], NONE);
        self.clear(b);
        while n != NONE {
            let node = &mut self.nodes[n as usize];
            let event = node.event;
            let next = core::mem::replace(&mut node.next, self.free);
            self.free = n;
            n = next;
            self.due.push(event);
        }
        match self.due.as_mut_slice() {
            [a, b] => {
                if *a < *b {
                    core::mem::swap(a, b);
                }
            }
            more => more.sort_unstable_by(|a, b| b.cmp(a)),
        }
    }

    /// Puts an event for the cursor's own bucket, or one before it, into its place.
    fn insert(&mut self, event: Event) {
        let mut i = self.due.len();
        while i > 0 && self.due[i - 1] < event {
            i -= 1;
        }
        self.due.insert(i, event);
    }

    /// The first non-empty bucket at or after `from`, going round once.
    #[inline]
    fn next_set(&self, from: usize) -> Option<usize> {
        let word = from >> 6;
        let bits = self.words[word] & (u64::MAX << (from & 63));
        if bits != 0 {
            return Some(word << 6 | bits.trailing_zeros() as usize);
        }
        // Words after `word`; the last turn sees the words up to and including it.
        let start = (word + 1) % WORDS;
        let groups = self.tops.len();
        let mut mask = u64::MAX << (start & 63);
        for turn in 0..=groups {
            let group = (start / 64 + turn) % groups;
            let set = self.tops[group] & mask;
            if set != 0 {
                let w = group << 6 | set.trailing_zeros() as usize;
                return Some(w << 6 | self.words[w].trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random pushes over all ranges (same bucket, wheel, beyond the horizon) interleaved with pops.
    fn drive(kind: QueueKind, seed: u64) -> Vec<(u64, u64)> {
        let mut queue = Queue::new(kind);
        let mut state = seed;
        let mut random = move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            state >> 33
        };
        let (mut now, mut out) = (0u64, Vec::new());
        for step in 0..60_000u64 {
            for _ in 0..random() % 3 {
                let ahead = match random() % 8 {
                    0 => 0,
                    1 => random() % 4096,
                    2 => 100_000_000 + random() % 100_000_000,
                    3 => 134_217_728 + random() % 8192,
                    4 => 5_000_000_000 + random() % 1_000_000_000,
                    _ => random() % 3_000_000,
                };
                queue.push(now + ahead, step);
            }
            let limit = now + random() % 5_000_000;
            match queue.pop(limit) {
                Some(e) => {
                    now = e.at;
                    out.push((e.at, e.what));
                }
                None => now = limit,
            }
        }
        while let Some(e) = queue.pop(u64::MAX) {
            out.push((e.at, e.what));
        }
        assert_eq!(out.len() as u64, queue.pushed());
        out
    }

    #[test]
    fn the_wheel_gives_exactly_the_order_of_a_heap() {
        for seed in 1..6 {
            assert_eq!(
                drive(QueueKind::Wheel, seed),
                drive(QueueKind::Heap, seed),
                "seed {seed}"
            );
        }
    }
}
