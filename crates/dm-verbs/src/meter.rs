//! The meter: it counts the cost of a client's operations, in the same way in every world.

use core::cell::Cell;
use core::ops::{Add, AddAssign, Sub};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts of one client. The difference of two snapshots is the cost of the work between them.
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Add for Counters {
            type Output = Self;
            fn add(self, o: Self) -> Self { Self { $($name: self.$name + o.$name,)* } }
        }
        impl AddAssign for Counters {
            fn add_assign(&mut self, o: Self) { *self = *self + o; }
        }
        impl Sub for Counters {
            type Output = Self;
            fn sub(self, o: Self) -> Self { Self { $($name: self.$name - o.$name,)* } }
        }
        impl Counters {
            /// Returns every counter with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
        #[derive(Debug, Default)]
        #[repr(C)]
        struct Cells { $($name: Cell<u64>,)* }
        impl Cells {
            fn get(&self) -> Counters { Counters { $($name: self.$name.get(),)* } }
        }
    };
}

counters! {
    /// READs, word READs included.
    reads,
    /// WRITEs.
    writes,
    /// Compare-and-swaps.
    cas,
    /// Payload bytes of READs.
    bytes_read,
    /// Payload bytes of WRITEs.
    bytes_written,
    /// Chains whose doorbell was rung.
    doorbells,
    /// Waits for completions, if the chain was posted after the previous wait ended. Chains in flight together count
    /// once.
    round_trips,
    /// Masked compare-and-swaps.
    masked_cas,
    /// Fetch-and-adds.
    faa,
    /// Attempts that found a remote lock held.
    lock_retries,
    /// Nanoseconds from the moment at which a client found that a lock was not free until it had the lock or gave up.
    lock_wait_ns,
    /// Attempts that were repeated because a READ mixed bytes from before and after a WRITE.
    torn_reads,
    /// Attempts that were repeated because a cached address or fence key was out of date.
    stale_reads,
    /// Locks that were handed over by another client of the compute node.
    handovers,
    /// Index cache hits.
    cache_hits,
    /// Index cache misses.
    cache_misses,
    /// Nodes split.
    splits,
    /// Merges of two nodes, and replacements of a radix node by its only child or by nothing.
    merges,
    /// Structural changes that other clients had left unfinished and this client finished.
    mended,
    /// Members that were expelled because they had been silent for the time of a lease.
    expelled,
    /// Locks of dead members that were freed.
    freed_locks,
    /// Blocks that dead members had lost and that were given back.
    restored_blocks,
    /// Nodes that were replaced by a copy or by their only child, or removed.
    renewals,
    /// Words of the replaced nodes that were changed by CAS, to stop other writers.
    renewed_words,
    /// Bytes of the copies that replaced nodes.
    renewed_bytes,
    /// Gets that another client's READ answered (read delegation).
    delegated,
    /// Writes that had no effect of their own, because a later write of another client replaced theirs (write
    /// combining).
    combined,
    /// Operations that ran without sharing, because their local lock was in use for another key.
    went_alone,
    /// READs of a single entry, at the place where the compute node expected the key.
    speculations,
    /// Speculative READs that did not give the key's value.
    wrong_speculations,
    /// Verbs that are posted for the pool and not for an operation, such as announcements. No other counter includes
    /// them.
    housekeeping_verbs,
    /// Payload bytes of housekeeping verbs and of directly loaded memory.
    housekeeping_bytes,
}

impl Counters {
    /// Returns the number of verbs without housekeeping verbs.
    pub fn verbs(&self) -> u64 {
        self.reads + self.writes + self.cas + self.masked_cas + self.faa
    }
}

/// An event that index code reports. The meter counts verbs by itself.
///
/// ```
/// use dm_verbs::{Event, Meter};
///
/// let meter = Meter::default();
/// meter.note(Event::CacheHit);
/// meter.note(Event::CacheHit);
/// assert_eq!(meter.counters().cache_hits, 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A remote lock was found held.
    LockRetry,
    /// A READ was torn.
    TornRead,
    /// A cached address or fence key was out of date.
    StaleRead,
    /// The lock was handed over by another client of the compute node.
    Handover,
    /// The index cache had the answer.
    CacheHit,
    /// The index cache did not have the answer.
    CacheMiss,
    /// A node was split.
    Split,
    /// Two nodes were merged, or a radix node was replaced by its only child or by nothing.
    Merge,
    /// This client finished a split, merge or hop that another client had left unfinished.
    Mended,
    /// A silent member was expelled.
    Expelled,
    /// A lock of a dead member was freed.
    FreedLock,
    /// A block that a dead member had lost was given back.
    Restored,
    /// A get was answered by another client's READ.
    Delegated,
    /// Another client's write replaced this one.
    Combined,
    /// The local lock was in use for another key.
    WentAlone,
    /// A single entry was read at the place where the compute node expected a key.
    Speculated,
    /// The speculative READ did not give the key's value.
    Misguessed,
}

/// One client's meter. Each endpoint of a world has one; this crate updates it.
///
/// The counters that most verbs change are in its first cache line, because with a thousand clients no meter
/// stays in the L1 cache.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Meter {
    /// The number of waits that counted as round trips. A completion counts only if no other completion has counted
    /// since its chain was posted.
    waits: Cell<u32>,
    housekeeping: Cell<bool>,
    cells: Cells,
}

const _: () = assert!(core::mem::offset_of!(Meter, cells.round_trips) < 64);

#[inline]
fn bump(c: &Cell<u64>, by: u64) {
    c.set(c.get() + by);
}

impl Meter {
    /// Returns the counts so far.
    pub fn counters(&self) -> Counters {
        self.cells.get()
    }

    /// Counts an event.
    #[inline]
    pub fn note(&self, e: Event) {
        let c = &self.cells;
        bump(
            match e {
                Event::LockRetry => &c.lock_retries,
                Event::TornRead => &c.torn_reads,
                Event::StaleRead => &c.stale_reads,
                Event::Handover => &c.handovers,
                Event::CacheHit => &c.cache_hits,
                Event::CacheMiss => &c.cache_misses,
                Event::Split => &c.splits,
                Event::Merge => &c.merges,
                Event::Mended => &c.mended,
                Event::Expelled => &c.expelled,
                Event::FreedLock => &c.freed_locks,
                Event::Restored => &c.restored_blocks,
                Event::Delegated => &c.delegated,
                Event::Combined => &c.combined,
                Event::WentAlone => &c.went_alone,
                Event::Speculated => &c.speculations,
                Event::Misguessed => &c.wrong_speculations,
            },
            1,
        );
    }

    /// Counts the replacement of a node by a copy of `copy` bytes. `copy` is 0 if there is no copy. `words` is the
    /// number of the node's words, each of which was changed by CAS before.
    pub fn renewed(&self, words: usize, copy: usize) {
        let c = &self.cells;
        bump(&c.renewals, 1);
        bump(&c.renewed_words, words as u64);
        bump(&c.renewed_bytes, copy as u64);
    }

    /// Counts this client's verbs as housekeeping until the guard is dropped.
    pub fn housekeeping(&self) -> Housekeeping<'_> {
        Housekeeping {
            meter: self,
            before: self.housekeeping.replace(true),
        }
    }

    /// Counts a posted chain, whose verbs are in `tally`. Returns the number of waits so far.
    // Inlined, so that the counts are constants if a chain is built and posted in one function.
    #[inline(always)]
    pub(crate) fn posted(&self, tally: &Tally) -> u32 {
        let c = &self.cells;
        if self.housekeeping.get() {
            self.kept_house(tally.verbs(), tally.bytes());
            return self.waits.get();
        }
        bump(&c.reads, tally.reads.into());
        bump(&c.writes, tally.writes.into());
        bump(&c.cas, tally.cas.into());
        bump(&c.masked_cas, tally.masked_cas.into());
        bump(&c.faa, tally.faa.into());
        bump(&c.bytes_read, tally.bytes_read);
        bump(&c.bytes_written, tally.bytes_written);
        bump(&c.doorbells, 1);
        self.waits.get()
    }

    /// Counts housekeeping. This function is cold, because otherwise the compiler merges the two branches of its
    /// caller, and chooses the counter at run time for every verb.
    #[cold]
    #[inline(never)]
    fn kept_house(&self, verbs: u64, bytes: u64) {
        bump(&self.cells.housekeeping_verbs, verbs);
        bump(&self.cells.housekeeping_bytes, bytes);
    }

    /// Counts the time for which a client waited for a lock.
    #[inline]
    pub fn waited_for_lock(&self, time: crate::Nanos) {
        bump(&self.cells.lock_wait_ns, time.0);
    }

    pub(crate) fn loaded(&self, bytes: usize) {
        bump(&self.cells.housekeeping_bytes, bytes as u64);
    }

    /// Counts an awaited completion. `posted_at` is the number of waits when its chain was posted.
    #[inline]
    pub(crate) fn waited(&self, posted_at: u32) {
        if posted_at == self.waits.get() && !self.housekeeping.get() {
            bump(&self.cells.round_trips, 1);
            self.waits.set(posted_at.wrapping_add(1));
        }
    }
}

/// The counts of a chain under construction. The meter adds them when the chain is posted.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    reads: u16,
    writes: u16,
    cas: u16,
    masked_cas: u16,
    faa: u16,
    bytes_read: u64,
    bytes_written: u64,
}

impl Tally {
    #[inline(always)]
    pub(crate) fn add(&mut self, op: &crate::Op<'_>) {
        use crate::Op;
        // 16 bits are enough, because the results of a chain are numbered with 16 bits too.
        match op {
            Op::Read { len, .. } => {
                self.reads += 1;
                self.bytes_read += u64::from(*len);
            }
            Op::Word { .. } => {
                self.reads += 1;
                self.bytes_read += 8;
            }
            Op::Write { bytes, .. } => {
                self.writes += 1;
                self.bytes_written += bytes.len() as u64;
            }
            Op::Cas { .. } => self.cas += 1,
            Op::MaskedCas { .. } => self.masked_cas += 1,
            Op::Faa { .. } => self.faa += 1,
        }
    }

    // Inlined, because the tally is then a constant at each call and need not be stored.
    #[inline(always)]
    fn verbs(&self) -> u64 {
        [self.reads, self.writes, self.cas, self.masked_cas, self.faa]
            .into_iter()
            .map(u64::from)
            .sum()
    }

    /// Returns how many bytes of remote memory the chain reads and writes.
    #[inline(always)]
    fn bytes(&self) -> u64 {
        let atomics = u64::from(self.cas) + u64::from(self.masked_cas) + u64::from(self.faa);
        self.bytes_read + self.bytes_written + 8 * atomics
    }
}

/// See [`Meter::housekeeping`].
///
/// ```
/// use dm_verbs::{Housekeeping, RemotePtr, VerbError, Verbs};
///
/// /// Zeroes a word without counting it among the operation's verbs.
/// async fn clear<V: Verbs>(v: &V, at: RemotePtr) -> Result<(), VerbError> {
///     let _counts: Housekeeping<'_> = v.meter().housekeeping();
///     v.write(at, &[0; 8]).await
/// }
/// ```
#[derive(Debug)]
#[must_use = "housekeeping ends when this is dropped"]
pub struct Housekeeping<'m> {
    meter: &'m Meter,
    before: bool,
}

impl Drop for Housekeeping<'_> {
    fn drop(&mut self) {
        self.meter.housekeeping.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, Place, RemotePtr};

    #[test]
    fn a_chain_counts_verb_by_verb_when_it_is_posted() {
        let at = Place::from(RemotePtr::NULL);
        let ops = [
            Op::Read { at, len: 100 },
            Op::Word { at },
            Op::Write { at, bytes: &[0; 7] },
            Op::Faa { at, add: 1 },
        ];
        let meter = Meter::default();
        let mut tally = Tally::default();
        ops.iter().for_each(|op| tally.add(op));
        assert_eq!(meter.counters(), Counters::default());
        meter.posted(&tally);
        let posted = meter.counters();
        assert_eq!(
            (
                posted.verbs(),
                posted.bytes_read,
                posted.bytes_written,
                posted.doorbells
            ),
            (4, 108, 7, 1)
        );
        let _unmetered = meter.housekeeping();
        meter.posted(&tally);
        let both = meter.counters();
        assert_eq!((both.housekeeping_verbs, both.housekeeping_bytes), (4, 123));
        assert_eq!((both.verbs(), both.doorbells), (4, 1));
    }
}
