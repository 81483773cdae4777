//! The sweep: it frees the locks in the pool's lock tables that a dead member holds, and resets the counts of sharers.

use core::fmt;
use std::collections::VecDeque;

use dm_verbs::{Event, Exhausted, Place, Verbs, Why};

use crate::{AllocError, Superblock};

/// Maximum number of attempts to change one word. Each failure means that another client has changed the word.
const ATTEMPTS: u32 = 1 << 10;
/// Bytes of a lock table that one READ fetches.
const PIECE: u64 = 16 << 10;
/// Maximum number of these READs in flight. Several at once read the tables at the rate of the network, not one piece
/// per round trip.
const AHEAD: usize = 8;

/// A function that returns the new lock word if the member with this number is dead. It returns `None` if the word
/// does not name this member.
pub type Freed = fn(word: u64, member: u16) -> Option<u64>;

/// A function that returns the lock word with its count of sharers set to zero. It returns `None` if the count is zero
/// already.
pub type Unshared = fn(word: u64) -> Option<u64>;

/// The lock tables of a pool, and the rules by which recovery changes their words.
#[derive(Clone)]
pub struct Sweep {
    /// Start of each memory node's table of 8-byte words.
    pub tables: Box<[Place]>,
    /// Number of words in each table.
    pub words: u32,
    /// The rule for words that name a dead member. If it is applied to a word that it has returned, it must return
    /// `None`.
    pub freed: Freed,
    /// The rule for the counts of sharers. If it is applied to a word that it has returned, it must return `None`. It
    /// is used only if the locks of the pool can be shared.
    pub unshared: Unshared,
}

impl fmt::Debug for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweep")
            .field("tables", &self.tables)
            .field("words", &self.words)
            .finish_non_exhaustive()
    }
}

impl Sweep {
    /// Returns the sweep of a pool's lock tables by these rules.
    pub fn of(superblock: &Superblock, freed: Freed, unshared: Unshared) -> Self {
        Self {
            tables: superblock.lock_tables.clone(),
            words: superblock.locks_per_node,
            freed,
            unshared,
        }
    }

    /// Reads all tables, and changes each word that names `member` by CAS. Returns the number of words that it changed.
    /// The caller must have fenced the member at every memory node, and awaited the answers, so that no word names the
    /// member again. Any number of clients may sweep at the same time.
    ///
    /// This takes one READ for each 2048 words (16 KiB), with eight in flight. It also takes a round trip for each
    /// word that names the member.
    ///
    /// # Errors
    /// Returns the first error. Words that were not changed before the error stay as they are. If a READ fails, no word
    /// was changed.
    pub async fn run<V: Verbs>(&self, v: &V, member: u16) -> Result<u64, AllocError> {
        let freed = self.change(v, &|word| (self.freed)(word, member)).await?;
        (0..freed).for_each(|_| v.meter().note(Event::FreedLock));
        Ok(freed)
    }

    /// Reads all tables, and resets the count of sharers in each word by CAS. Returns the number of words that it
    /// changed. No client may share a lock meanwhile, and no request that a client posted for an earlier share may
    /// still land.
    ///
    /// # Errors
    /// Returns the first error. Words that were not changed before the error stay as they are.
    pub(crate) async fn reset<V: Verbs>(&self, v: &V) -> Result<u64, AllocError> {
        self.change(v, &self.unshared).await
    }

    async fn change<V: Verbs>(&self, v: &V, rule: &impl Fn(u64) -> Option<u64>) -> Result<u64, AllocError> {
        let mut changed = 0;
        //= docs/protocol/recovery.md V3
        for (at, word) in self.words(v, |word| rule(word).is_some()).await? {
            changed += u64::from(Self::change_word(v, at, word, rule).await?);
        }
        Ok(changed)
    }

    /// Reads all tables, and returns the place and the content of each word for which `wanted` returns `true`. This
    /// takes one READ for each 2048 words (16 KiB). At most eight READs are in flight at the same time.
    ///
    /// # Errors
    /// Returns the first error.
    pub async fn words<V: Verbs>(
        &self,
        v: &V,
        wanted: impl Fn(u64) -> bool,
    ) -> Result<Vec<(Place, u64)>, AllocError> {
        let mut found = Vec::new();
        let bytes = 8 * u64::from(self.words);
        let all = self
            .tables
            .iter()
            .flat_map(|table| pieces(bytes).map(|(at, len)| (table.add(at), len)));
        let mut reads = all.map(|(piece, len)| (piece, v.read(piece, len)));
        let mut posted: VecDeque<_> = reads.by_ref().take(AHEAD).collect();
        while let Some((piece, read)) = posted.pop_front() {
            let image = read.await?;
            posted.extend(reads.next());
            let words = image
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8])));
            let words = (0..).step_by(8).zip(words).filter(|(_, word)| wanted(*word));
            found.extend(words.map(|(at, word)| (piece.add(at), word)));
        }
        Ok(found)
    }

    /// Changes each word in doubt to the word that `cleared` returns, unless it has changed since it was read. Returns
    /// the number of words that this call changed, and the number of those that others had changed. The caller must
    /// have read the words first, and then have visited all nodes of the index without finding an unfinished change.
    ///
    /// # Errors
    /// Returns the first error.
    pub async fn clear<V: Verbs>(
        v: &V,
        words: impl IntoIterator<Item = (Place, u64)>,
        cleared: fn(word: u64) -> Option<u64>,
    ) -> Result<(u64, u64), AllocError> {
        let (mut done, mut changed) = (0, 0);
        for (at, word) in words {
            //= docs/protocol/recovery.md V8
            let Some(clear) = cleared(word) else { continue };
            match v.cas(at, word, clear).await? == word {
                true => done += 1,
                false => changed += 1,
            }
        }
        Ok((done, changed))
    }

    /// Changes one word. Other clients may change other bits of the word meanwhile.
    async fn change_word<V: Verbs>(
        v: &V,
        at: Place,
        mut word: u64,
        rule: &impl Fn(u64) -> Option<u64>,
    ) -> Result<bool, AllocError> {
        let attempts = v.budget(ATTEMPTS);
        for _ in 0..attempts {
            let Some(new) = rule(word) else {
                return Ok(false);
            };
            let found = v.cas(at, word, new).await?;
            if found == word {
                return Ok(true);
            }
            word = found;
        }
        Err(AllocError::Contended(Exhausted {
            at,
            why: Why::Raced,
            attempts,
        }))
    }
}

/// Divides a table of this many bytes into pieces: offset and length of each.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, u32)> {
    (0..bytes)
        .step_by(PIECE as usize)
        .map(move |at| (at, PIECE.min(bytes - at) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_in_pieces() {
        assert_eq!(pieces(8).collect::<Vec<_>>(), [(0, 8)]);
        assert_eq!(pieces(PIECE).collect::<Vec<_>>(), [(0, PIECE as u32)]);
        let three = [(0, PIECE as u32), (PIECE, PIECE as u32), (2 * PIECE, 24)];
        assert_eq!(pieces(2 * PIECE + 24).collect::<Vec<_>>(), three);
    }
}
