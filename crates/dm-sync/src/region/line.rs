//! One 64-byte line: eight atomic words, and the sequence lock beside it.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use std::time::{Duration, Instant};

use super::{LINE_BYTES, WORD_BYTES, WORDS_PER_LINE};

/// Eight words. The bytes of each word are little-endian on every host.
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [AtomicU64; WORDS_PER_LINE]);

impl Line {
    /// Copies the bytes from `first` on into `out`, word by word. The copy may mix words from before and after a write;
    /// a caller that needs the line of one moment must check the line's lock.
    #[inline]
    pub(super) fn copy_out(&self, first: usize, out: &mut [u8]) {
        // Relaxed: the fences of the caller's lock order the copy.
        self.copy_words_out(first, out, |word| word.load(Relaxed));
    }

    /// Does the same as [`Line::copy_out`], and reads each word with `load`, in increasing order.
    #[inline]
    pub(super) fn copy_words_out(&self, first: usize, out: &mut [u8], load: impl Fn(&AtomicU64) -> u64) {
        if let Ok(out) = <&mut [u8; LINE_BYTES]>::try_from(&mut *out) {
            for (word, out) in self.0.iter().zip(out.chunks_exact_mut(WORD_BYTES)) {
                out.copy_from_slice(&load(word).to_le_bytes());
            }
            return;
        }
        let mut image = [0; LINE_BYTES];
        let last = first + out.len();
        let words = first / WORD_BYTES..last.div_ceil(WORD_BYTES);
        for (word, image) in self.0[words.clone()]
            .iter()
            .zip(image.chunks_exact_mut(WORD_BYTES).skip(words.start))
        {
            image.copy_from_slice(&load(word).to_le_bytes());
        }
        out.copy_from_slice(&image[first..last]);
    }

    /// Writes `bytes` from `first` on. The line must be locked, so that no other thread writes and readers
    /// detect the write.
    #[inline]
    pub(super) fn copy_in_locked(&self, first: usize, bytes: &[u8]) {
        self.for_each_word(first, bytes, |word, image, mask| {
            if mask == u64::MAX {
                word.store(image, Relaxed);
            } else {
                // The line is locked, so no other thread can change the word between the load and the store.
                word.store(word.load(Relaxed) & !mask | image, Relaxed);
            }
        });
    }

    /// Writes `bytes` from `first` on without a lock. Each word is changed in one step, and its other bytes
    /// stay unchanged.
    pub(super) fn copy_in_words(&self, first: usize, bytes: &[u8]) {
        self.for_each_word(first, bytes, |word, image, mask| {
            // Release: a thread that sees this word also sees the words and lines written before it.
            if mask == u64::MAX {
                word.store(image, Release);
            } else {
                let merged = |old: u64| Some(old & !mask | image);
                // The closure always returns a value, so the update always succeeds.
                let _ = word.fetch_update(Release, Relaxed, merged);
            }
        });
    }

    /// Calls `put` for each word that `bytes` change, in increasing order: with the word, its new bits, and their mask.
    #[inline]
    fn for_each_word(&self, first: usize, bytes: &[u8], mut put: impl FnMut(&AtomicU64, u64, u64)) {
        if let Ok(bytes) = <&[u8; LINE_BYTES]>::try_from(bytes) {
            for (word, bytes) in self.0.iter().zip(bytes.chunks_exact(WORD_BYTES)) {
                let mut image = [0; WORD_BYTES];
                image.copy_from_slice(bytes);
                put(word, u64::from_le_bytes(image), u64::MAX);
            }
            return;
        }
        let mut at = first;
        let mut rest = bytes;
        while !rest.is_empty() {
            let begin = at % WORD_BYTES;
            let take = rest.len().min(WORD_BYTES - begin);
            let (now, later) = rest.split_at(take);
            let mut image = [0; WORD_BYTES];
            let mut mask = [0; WORD_BYTES];
            image[begin..begin + take].copy_from_slice(now);
            mask[begin..begin + take].fill(0xFF);
            put(
                &self.0[at / WORD_BYTES],
                u64::from_le_bytes(image),
                u64::from_le_bytes(mask),
            );
            at += take;
            rest = later;
        }
    }
}

/// A sequence lock in one word: `sequence << 22 | process id of the holder`. The id is 0 while no thread
/// writes.
///
/// The sequence has 42 bits, so a reader is wrong only if the line is written 2^42 times during its copy.
#[repr(transparent)]
pub(super) struct LineLock(AtomicU64);

/// Bits of a process id (on Linux, ids are below 2^22).
pub(super) const HOLDER_BITS: u32 = 22;
const HOLDER_MASK: u64 = (1 << HOLDER_BITS) - 1;

/// An unlocked lock word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(u64);

/// The reason why a line could not be locked or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// The holder's process has ended.
    Dead(u32),
    /// The holder lives and keeps the line locked.
    Busy(u32),
}

/// Number of spins before a waiter yields its processor. A line is normally held for tens of nanoseconds.
const SPINS: u32 = crate::scaled(128, 2) as u32;
/// Number of yields between two checks of the holder and the clock.
const YIELDS_PER_LOOK: u32 = crate::scaled(256, 16) as u32;
/// The time for which a waiter waits for a living holder, which may be stopped or not scheduled. It is far
/// longer than the time for which a loaded machine deschedules a thread.
const PATIENCE: Duration = Duration::from_millis(crate::scaled(5_000, 50) as u64);

impl LineLock {
    /// Waits until no thread writes, and begins a read.
    #[inline]
    pub(super) fn begin(&self) -> Result<Stamp, Stuck> {
        // Acquire: pairs with the Release in `unlock`; the copy sees everything that the last writer wrote.
        let word = self.0.load(Acquire);
        if word & HOLDER_MASK == 0 {
            Ok(Stamp(word))
        } else {
            self.wait(PATIENCE)
        }
    }

    /// Returns whether there was no writer since `begin`, so that the copy made in between is consistent.
    #[inline]
    pub(super) fn unchanged(&self, stamp: Stamp) -> bool {
        // Acquire fence, then Relaxed load: if the copy saw a later writer's word, it synchronises with the
        // Release fence in that writer's `try_lock`, and this load sees that writer's lock or a newer value.
        fence(Acquire);
        self.0.load(Relaxed) == stamp.0
    }

    /// Locks for `holder` if nothing changed since `stamp`.
    #[inline]
    pub(super) fn try_lock(&self, stamp: Stamp, holder: u32) -> bool {
        // Acquire: the new holder sees the words of the last one. Relaxed on failure: no data is read then.
        let locked = self
            .0
            .compare_exchange(stamp.0, stamp.0 | u64::from(holder), Acquire, Relaxed)
            .is_ok();
        // Release fence: orders the lock before the Relaxed word stores that follow; pairs with `unchanged`.
        fence(Release);
        locked
    }

    /// Waits for the line and locks it.
    #[inline]
    pub(super) fn lock(&self, holder: u32) -> Result<Stamp, Stuck> {
        loop {
            let stamp = self.begin()?;
            if self.try_lock(stamp, holder) {
                return Ok(stamp);
            }
        }
    }

    /// Ends the write that began at `stamp`.
    #[inline]
    pub(super) fn unlock(&self, stamp: Stamp) {
        // Release: pairs with the Acquire in `begin` and `try_lock`.
        self.0.store(stamp.0.wrapping_add(1 << HOLDER_BITS), Release);
    }

    #[cold]
    fn wait(&self, patience: Duration) -> Result<Stamp, Stuck> {
        for _ in 0..SPINS {
            core::hint::spin_loop();
            let word = self.0.load(Acquire); // as in `begin`
            if word & HOLDER_MASK == 0 {
                return Ok(Stamp(word));
            }
        }
        let since = Instant::now();
        loop {
            for _ in 0..YIELDS_PER_LOOK {
                std::thread::yield_now();
                let word = self.0.load(Acquire); // as in `begin`
                if word & HOLDER_MASK == 0 {
                    return Ok(Stamp(word));
                }
            }
            let word = self.0.load(Acquire); // as in `begin`
            let holder = (word & HOLDER_MASK) as u32;
            if holder == 0 {
                return Ok(Stamp(word));
            }
            // A holder that unlocked before it died has changed the word. So the word is read again after the process
            // was checked.
            if !crate::process_alive(holder) && self.0.load(Acquire) == word {
                return Err(Stuck::Dead(holder));
            }
            if since.elapsed() >= patience {
                return Err(Stuck::Busy(holder));
            }
        }
    }
}

#[cfg(all(test, not(any(dm_loom, dm_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_living_holder_that_stands_still_is_waited_for_so_long_and_no_longer() {
        let lock = LineLock(AtomicU64::new(0));
        let (us, other) = (std::process::id(), 1);
        // Process 1 is alive, and never unlocks the line.
        let stamp = lock.lock(other).unwrap();
        let patience = Duration::from_millis(50);
        assert!(matches!(lock.wait(patience), Err(Stuck::Busy(1))));
        lock.unlock(stamp);
        assert!(lock.lock(us).is_ok());
    }
}
