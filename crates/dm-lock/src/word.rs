//! The lock word: 64 aligned bits that share no byte with data.

use core::fmt;

use dm_sync::roster::MEMBERS_MAX;
use dm_verbs::{ClientId, MaskedCas};

use crate::cell::SHARE;

/// The number of clients that a lock word can distinguish. A client can use locks only if its id is below this number.
pub const CLIENTS_MAX: u16 = dm_sync::roster::CLIENTS_MAX;

/// The bit of a lock word's payload that marks the word as suspect. It is set if a holder was dropped, or met an error,
/// during a change of several steps ([`Guard::doubt_if_lost`](crate::Guard::doubt_if_lost)), or if a holder died
/// ([`LockWord::freed`]). A client that takes such a lock must read the whole node before it relies on the node.
/// Mending one node does not clear the bit, because one word can guard many nodes (`docs/protocol/recovery.md`, V7 and
/// V8).
pub const DOUBT: u32 = 1;

/// The bit that says whether the holder of a lock lets other clients share the lock
/// ([`Guard::beside_sharers`](crate::Guard::beside_sharers)). It is the second bit of the payload, in words of locks
/// that [can be shared](crate::LockOptions::shared). The CAS that takes the lock writes the bit, which counts only
/// while the lock is held.
pub(crate) const BESIDE: u64 = 1 << (PAYLOAD_SHIFT + 1);

const LOCKED: u64 = 1;
const OWNER_SHIFT: u32 = 1;
const OWNER_MASK: u64 = (CLIENTS_MAX as u64 - 1) << OWNER_SHIFT;
const MEMBER_SHIFT: u32 = 13;
const MEMBER_MASK: u64 = (MEMBERS_MAX as u64 - 1) << MEMBER_SHIFT;
const COUNT_SHIFT: u32 = 24;
const COUNT_MASK: u64 = 0xFF << COUNT_SHIFT;
const PAYLOAD_SHIFT: u32 = 32;
/// Lock bit, owner and member: the bits that an acquisition changes. If the lock can be shared, it also changes
/// [`BESIDE`].
pub(crate) const TAG_MASK: u64 = LOCKED | OWNER_MASK | MEMBER_MASK;

/// A lock word in unpacked form.
///
/// ```text
///  63            payload           32 31   count   24 23   member   13 12     owner      1   0
/// ┌──────────────────────────────────┬───────────────┬────────────────┬───────────────────┬───┐
/// │ the protocol's, survives holders │ releases so   │ owner's member │ client id         │ L │
/// │ (bit 32: a change is in doubt)   │ far, mod 256  │ number (11)    │ (12 bits)         │   │
/// └──────────────────────────────────┴───────────────┴────────────────┴───────────────────┴───┘
/// ```
/// An acquisition compares L, and swaps L, owner and member. A release sets L, owner and member to zero, adds 1 to the
/// count, and writes the payload. The lock word of a lock that was never taken is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LockWord {
    /// Whether the lock is held.
    pub locked: bool,
    /// The id of the client that took the lock from memory, below [`CLIENTS_MAX`]; 0 in a free word. After a handover,
    /// the holder can be another client of the same compute node.
    pub owner: u16,
    /// The number of the member of the pool to which the owner belongs. It is 0 in a free word, and if the owner's
    /// compute node is not a member. If a client dies, other clients can free its lock only if the word names a
    /// member.
    pub member: u16,
    /// The number of releases, modulo 256.
    pub count: u8,
    /// 32 bits for the protocol that uses the lock, or 16 if the lock can be shared. The lowest bit,
    /// [`DOUBT`](crate::DOUBT), says that a structural change under the lock may have failed midway. In a lock that can
    /// be shared, the second bit says that the holder lets other clients share it.
    pub payload: u32,
}

impl LockWord {
    /// Returns the 64-bit form. Only the low 12 bits of `owner` and the low 11 bits of `member` are used.
    #[inline]
    pub const fn pack(self) -> u64 {
        (self.locked as u64)
            | ((self.owner as u64) << OWNER_SHIFT) & OWNER_MASK
            | ((self.member as u64) << MEMBER_SHIFT) & MEMBER_MASK
            | (self.count as u64) << COUNT_SHIFT
            | (self.payload as u64) << PAYLOAD_SHIFT
    }

    /// Unpacks a 64-bit word. Every word is valid.
    #[inline]
    pub const fn unpack(word: u64) -> Self {
        Self {
            locked: word & LOCKED != 0,
            owner: ((word & OWNER_MASK) >> OWNER_SHIFT) as u16,
            member: ((word & MEMBER_MASK) >> MEMBER_SHIFT) as u16,
            count: (word >> COUNT_SHIFT) as u8,
            payload: (word >> PAYLOAD_SHIFT) as u32,
        }
    }

    /// Returns the word that a release by its holder leaves behind.
    #[must_use]
    #[inline]
    pub const fn released(self, payload: u32) -> Self {
        Self {
            locked: false,
            owner: 0,
            member: 0,
            count: self.count.wrapping_add(1),
            payload,
        }
    }

    /// Returns the word of a free lock without its [`DOUBT`]; `None` if the lock is held, or not in doubt. Other bits
    /// stay. The caller replaces the word by a CAS that compares all of it.
    ///
    /// ```
    /// use dm_lock::{DOUBT, LockWord};
    ///
    /// let doubted = LockWord { count: 9, payload: 6 | DOUBT, ..LockWord::default() };
    /// let sound = LockWord { payload: 6, ..doubted };
    /// assert_eq!(LockWord::cleared(doubted.pack()), Some(sound.pack()));
    /// assert_eq!(LockWord::cleared(sound.pack()), None);
    /// assert_eq!(LockWord::cleared(LockWord { locked: true, ..doubted }.pack()), None);
    /// ```
    //= docs/protocol/recovery.md V8
    pub const fn cleared(word: u64) -> Option<u64> {
        let free = Self::unpack(word);
        if free.locked || free.payload & DOUBT == 0 {
            return None;
        }
        Some(word & !((DOUBT as u64) << PAYLOAD_SHIFT))
    }

    /// Returns `word` as recovery rewrites it after the death of `member`: free, with one more release, and with
    /// [`DOUBT`] set. Returns `None` if no client of `member` holds the lock, or if `member` is 0. All other bits of
    /// the payload stay, and so does a count of sharers. The caller replaces the word by a CAS that compares all of it.
    ///
    /// ```
    /// use dm_lock::{DOUBT, LockWord};
    ///
    /// let held = LockWord { locked: true, owner: 5, member: 3, count: 9, payload: 0 };
    /// let free = LockWord { count: 10, payload: DOUBT, ..LockWord::default() };
    /// assert_eq!(LockWord::freed(held.pack(), 3), Some(free.pack()));
    /// assert_eq!(LockWord::freed(held.pack(), 4), None);
    /// ```
    //= docs/protocol/recovery.md V3
    pub const fn freed(word: u64, member: u16) -> Option<u64> {
        let held = Self::unpack(word);
        if !held.locked || held.member != member || member == 0 {
            return None;
        }
        let count = word.wrapping_add(1 << COUNT_SHIFT) & COUNT_MASK;
        let doubt = (DOUBT as u64) << PAYLOAD_SHIFT;
        Some(word & !(TAG_MASK | COUNT_MASK) | count | doubt)
    }

    /// Returns `word` with a count of sharers of zero, or `None` if the count is zero already. Call this only for a
    /// lock that [can be shared](crate::LockOptions::shared), because the highest 16 bits of other lock words are
    /// payload.
    ///
    /// ```
    /// use dm_lock::LockWord;
    /// assert_eq!(LockWord::unshared(3 << 48 | 0x501), Some(0x501));
    /// assert_eq!(LockWord::unshared(0x501), None);
    /// ```
    //= docs/protocol/recovery.md V13
    pub const fn unshared(word: u64) -> Option<u64> {
        match word & (SHARE - 1) {
            rest if rest == word => None,
            rest => Some(rest),
        }
    }

    /// Returns the operands of the masked CAS that takes a free lock for `client`. The CAS changes neither count nor
    /// payload.
    #[inline]
    pub const fn acquire(client: ClientId, member: u16) -> MaskedCas {
        let tag = Self {
            locked: true,
            owner: client.0,
            member,
            count: 0,
            payload: 0,
        };
        MaskedCas {
            compare: 0,
            compare_mask: LOCKED,
            swap: tag.pack(),
            swap_mask: TAG_MASK,
        }
    }

    /// Returns the bytes of the word in hexadecimal with their meaning, for golden tests and for the
    /// documentation.
    pub fn picture(self) -> String {
        use core::fmt::Write;
        let mut text = String::new();
        for byte in self.pack().to_le_bytes() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x} ");
        }
        let _ = write!(text, " {self}");
        text
    }
}

impl fmt::Display for LockWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.locked {
            true => write!(f, "held by {} (member {})", ClientId(self.owner), self.member)?,
            false => f.write_str("free")?,
        }
        write!(f, ", {} releases, payload {:#x}", self.count, self.payload)
    }
}

/// Returns named example words in the form of [`LockWord::picture`], for golden tests and for the documentation.
pub fn pictures() -> Vec<(&'static str, String)> {
    let held = LockWord {
        locked: true,
        owner: 0x234,
        member: 0x156,
        count: 0x78,
        payload: 0x9ABC_DEF0,
    };
    vec![
        ("never taken", LockWord::default().picture()),
        ("held", held.picture()),
        ("released", held.released(0x11).picture()),
        (
            "last client",
            LockWord {
                owner: CLIENTS_MAX - 1,
                ..held
            }
            .picture(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_as_pictured() {
        let lines: Vec<String> = pictures()
            .into_iter()
            .map(|(name, p)| format!("{name}: {p}"))
            .collect();
        assert_eq!(
            lines,
            [
                "never taken: 00 00 00 00 00 00 00 00  free, 0 releases, payload 0x0",
                "held: 69 c4 2a 78 f0 de bc 9a  held by client 564 (member 342), 120 releases, payload 0x9abcdef0",
                "released: 00 00 00 79 11 00 00 00  free, 121 releases, payload 0x11",
                "last client: ff df 2a 78 f0 de bc 9a  held by client 4095 (member 342), 120 releases, payload \
                 0x9abcdef0",
            ]
        );
    }

    proptest! {
        #[test]
        fn unpacking_is_total_and_packs_back(word: u64) {
            prop_assert_eq!(LockWord::unpack(word).pack(), word);
        }

        #[test]
        fn acquiring_leaves_count_and_payload(word: u64, owner in 0..CLIENTS_MAX, member in 0..MEMBERS_MAX) {
            let take = LockWord::acquire(ClientId(owner), member);
            let free = word & !LOCKED;
            prop_assert!(take.matches(free) && !take.matches(word | LOCKED));
            let (before, after) = (LockWord::unpack(free), LockWord::unpack(take.apply(free)));
            prop_assert_eq!(after, LockWord { locked: true, owner, member, ..before });
        }

        #[test]
        fn recovery_changes_only_its_own_bits(word: u64, member in 1..MEMBERS_MAX) {
            let held = LockWord::unpack(word);
            let free = held.released(held.payload | DOUBT).pack();
            let expected = held.locked && held.member == member;
            prop_assert_eq!(LockWord::freed(word, member), expected.then_some(free));
            // The doubt is cleared only in the word of a free lock.
            let sound = LockWord { payload: held.payload & !DOUBT, ..held };
            let doubtful = !held.locked && held.payload & DOUBT != 0;
            prop_assert_eq!(LockWord::cleared(word), doubtful.then_some(sound.pack()));
            // The highest 16 bits of a word that can be shared count the sharers.
            let rest = word << 16 >> 16;
            prop_assert_eq!(LockWord::unshared(word), (rest != word).then_some(rest));
            prop_assert_eq!(LockWord::unshared(rest), None);
            let taken = LockWord { locked: true, member, ..held };
            let free = taken.released(taken.payload | DOUBT).pack();
            prop_assert_eq!(LockWord::freed(taken.pack(), member), Some(free));
        }
    }
}
