//! Last known lock words, used as the first guess of a plain CAS where masked CAS is missing.

use dm_sync::{Fingerprint, Mutex, fingerprint_unordered};

use crate::LockId;

/// Maximum number of words that are stored.
const WORDS: usize = dm_sync::scaled(1024, 4);

/// For a limited number of locks, the word with which this compute node last released each of them. A wrong guess costs
/// one more round trip, and so does a missing guess, unless the lock was never taken.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    words: Mutex<Words>,
}

/// A direct-mapped table. It is allocated when the first word is noted.
#[derive(Debug, Default)]
struct Words(Vec<Option<(LockId, u64)>>);

fn slot(id: LockId) -> usize {
    (id.index as usize ^ usize::from(id.node.0) << 5) % WORDS
}

impl Hints {
    /// Returns the word with which this compute node last released lock `id`, or 0 if none is stored.
    pub(crate) fn guess(&self, id: LockId) -> u64 {
        self.words.with(|Words(words)| match words.get(slot(id)) {
            Some(Some((known, word))) if *known == id => *word,
            _ => 0,
        })
    }

    /// Stores the word with which this compute node has released lock `id`.
    pub(crate) fn note(&self, id: LockId, word: u64) {
        self.words.with(|Words(words)| {
            if words.is_empty() {
                words.resize(WORDS, None);
            }
            words[slot(id)] = Some((id, word));
        });
    }

    /// Returns the number of bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.words
            .with(|Words(words)| words.capacity() * size_of::<Option<(LockId, u64)>>())
    }
}

impl Fingerprint for Hints {
    fn fingerprint(&self) -> u64 {
        self.words.fingerprint()
    }
}

impl Fingerprint for Words {
    /// Returns 0 if no word is known.
    fn fingerprint(&self) -> u64 {
        let mut known = self.0.iter().flatten().peekable();
        match known.peek() {
            None => 0,
            Some(_) => fingerprint_unordered(known.copied()),
        }
    }
}

#[cfg(test)]
mod tests {
    use dm_verbs::NodeId;

    use super::*;

    #[test]
    fn a_lock_that_takes_anothers_place_does_not_take_its_word() {
        let id = |index| LockId {
            node: NodeId(0),
            high: 0,
            index,
        };
        let hints = Hints::default();
        assert_eq!((hints.guess(id(1)), hints.fingerprint()), (0, 0));
        hints.note(id(1), 7);
        let other = id(1 + WORDS as u32);
        assert_eq!((hints.guess(id(1)), hints.guess(other)), (7, 0));
        hints.note(other, 9);
        assert_eq!((hints.guess(id(1)), hints.guess(other)), (0, 9));
        assert_ne!(hints.fingerprint(), 0);
    }

    #[test]
    fn neighbours_are_remembered_together() {
        let id = |index| LockId {
            node: NodeId(0),
            high: 0,
            index,
        };
        let hints = Hints::default();
        (1..4).for_each(|i| hints.note(id(i), u64::from(i) + 10));
        assert_eq!([1, 2, 3].map(|i| hints.guess(id(i))), [11, 12, 13]);
    }
}
