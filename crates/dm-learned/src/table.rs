//! The bytes of a table of leaves, and of the root word.

use dm_alloc::Class;
use dm_index::{CHILD_BYTES, Child, IndexError, KeyBytes};
use dm_layout::{Corrupt, Reason};
use dm_verbs::{LINE, RemotePtr};

/// The bits of an address that are always zero because of the alignment of leaves and pages.
const FREE: u64 = LINE as u64 - 1;
/// The bit of the root word that marks the address of a table.
const TABLE: u64 = 1;
/// The lowest bit of the turn in the root word.
const TURN_AT: u32 = 1;

/// The root word.
///
/// ```text
///  63      node      48 47            offset / 64        6 5 turn 1 0 table
/// ┌────────────────────┬──────────────────────────────────┬────────┬───────┐   0: no leaf yet
/// └────────────────────┴──────────────────────────────────┴────────┴───────┘   table 0: the first leaf itself
/// ```
///
/// The turn counts tables modulo 32, so that a later table at the same address has another root word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Root(u64);

impl Root {
    /// Returns the word of an index whose only entry is its first leaf.
    pub(crate) fn of_leaf(leaf: RemotePtr) -> Self {
        assert!(leaf.raw() & FREE == 0, "{leaf} is not aligned to a line");
        Self(leaf.raw())
    }

    /// Returns the word of the table at `page`, which replaces the one of `before`.
    pub(crate) fn of_table(page: RemotePtr, before: Option<Self>) -> Self {
        assert!(page.raw() & FREE == 0, "{page} is not aligned to a line");
        let turn = before
            .map_or(0, |before| (before.0 & FREE) >> TURN_AT)
            .wrapping_add(1);
        Self(page.raw() | (turn << TURN_AT) & FREE | TABLE)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    /// Reads a root word. Returns `None` if the index has no leaf.
    pub(crate) fn of_word(word: u64) -> Option<Self> {
        (word & !FREE != 0).then_some(Self(word))
    }

    /// Returns the address of the first leaf or of the first page.
    pub(crate) fn at(self) -> RemotePtr {
        RemotePtr::from_raw(self.0 & !FREE)
    }

    pub(crate) const fn is_table(self) -> bool {
        self.0 & TABLE != 0
    }
}

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 1024;
/// Bytes before the entries of a page.
const HEADER: usize = 16;
/// The place of a page's number of entries.
const COUNT_AT: usize = 8;

/// The class of pages. No other block of an index has this kind.
pub(crate) const PAGE: Class = Class {
    bytes: PAGE_BYTES as u32,
    kind: 7,
};

/// Returns the maximum number of entries of a page.
pub(crate) const fn page_capacity<K: KeyBytes>() -> usize {
    (PAGE_BYTES - HEADER) / (K::LEN + CHILD_BYTES)
}

/// Returns the bytes of a page.
///
/// ```text
///   0   next page 8 · entries 4 · 0 4 · low fence key, leaf 6 · …
/// ```
pub(crate) fn encode_page<K: KeyBytes>(
    entries: &[(K, RemotePtr)],
    next: RemotePtr,
) -> Result<Vec<u8>, IndexError> {
    let entry_bytes = K::LEN + CHILD_BYTES;
    let mut bytes = vec![0; HEADER + entries.len() * entry_bytes];
    bytes[..8].copy_from_slice(&next.raw().to_le_bytes());
    let count = entries.len() as u32;
    bytes[COUNT_AT..COUNT_AT + 4].copy_from_slice(&count.to_le_bytes());
    for ((low, leaf), place) in entries.iter().zip(bytes[HEADER..].chunks_exact_mut(entry_bytes)) {
        low.write_to(place);
        place[K::LEN..].copy_from_slice(Child::of(*leaf, CHILD_BYTES)?.bytes());
    }
    Ok(bytes)
}

/// Appends the entries of the page at `at` to `entries`, and returns the address of the next page, which is null after
/// the last one.
///
/// # Errors
/// Returns [`IndexError::Corrupt`] if the bytes are too short, if the number of entries is not valid, if the keys do
/// not ascend from those of the pages before, or from the smallest key on the first page, or if an address is not
/// valid. Because the keys ascend, a walk from page to page ends.
pub(crate) fn decode_page<K: KeyBytes>(
    at: RemotePtr,
    bytes: &[u8],
    entries: &mut Vec<(K, RemotePtr)>,
) -> Result<RemotePtr, IndexError> {
    let corrupt = |offset, reason| IndexError::Corrupt {
        node: at,
        what: Corrupt { offset, reason },
    };
    let (Some(next), Some(count)) = (
        bytes.first_chunk().map(|raw| u64::from_le_bytes(*raw)),
        bytes.get(COUNT_AT..).and_then(|rest| rest.first_chunk()),
    ) else {
        return Err(corrupt(0, Reason::Length));
    };
    let count = u32::from_le_bytes(*count) as usize;
    if count == 0 || count > page_capacity::<K>() {
        return Err(corrupt(COUNT_AT, Reason::Count));
    }
    if next & FREE != 0 {
        return Err(corrupt(0, Reason::Kind));
    }
    let entry_bytes = K::LEN + CHILD_BYTES;
    let places = bytes[HEADER..].chunks_exact(entry_bytes).take(count);
    for (place, offset) in places.zip((HEADER..).step_by(entry_bytes)) {
        let (low, leaf) = (K::read_from(place), Child::decode(&place[K::LEN..]));
        let ascends = entries.last().map_or(low == K::MIN, |(last, _)| *last < low);
        if !ascends || leaf.is_null() {
            return Err(corrupt(offset, Reason::Order));
        }
        entries.push((low, leaf));
    }
    Ok(RemotePtr::from_raw(next))
}

#[cfg(test)]
mod tests {
    use dm_layout::{Key8, KeyN};
    use dm_verbs::NodeId;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn leaf(n: u64) -> RemotePtr {
        RemotePtr::new(NodeId(2), n * 64).expect("in range")
    }

    #[test]
    fn the_root_word_tells_leaves_tables_and_turns_apart() {
        let first = Root::of_leaf(leaf(9));
        assert!(!first.is_table() && first.at() == leaf(9));
        let table = Root::of_table(leaf(9), Some(first));
        assert!(table.is_table() && table.at() == leaf(9));
        let mut words = vec![first.word(), table.word()];
        for _ in 0..30 {
            let last = words.last().and_then(|word| Root::of_word(*word));
            words.push(Root::of_table(leaf(9), last).word());
        }
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 32);
        assert_eq!(Root::of_word(0), None);
        assert_eq!(Root::of_word(first.word()), Some(first));
    }

    #[test]
    fn a_page_returns_its_entries() {
        let entries: Vec<_> = (0..page_capacity::<Key8>() as u64)
            .map(|n| (Key8(n * 5), leaf(n + 1)))
            .collect();
        assert_eq!(entries.len(), 72);
        let bytes = encode_page(&entries, leaf(77)).expect("the addresses fit");
        assert!(bytes.len() <= PAGE_BYTES);
        let mut found = Vec::new();
        assert_eq!(decode_page(leaf(3), &bytes, &mut found), Ok(leaf(77)));
        assert_eq!(found, entries);
        // The next page must have larger keys.
        assert!(decode_page(leaf(3), &bytes, &mut found).is_err());
        let far = RemotePtr::new(NodeId(1024), 64).expect("in range");
        assert!(encode_page(&[(Key8(0), far)], RemotePtr::NULL).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_page_or_an_error(bytes in vec(any::<u8>(), PAGE_BYTES), count in 0..80_u8) {
            let mut bytes = bytes;
            bytes[COUNT_AT..HEADER].copy_from_slice(&[count, 0, 0, 0, 0, 0, 0, 0]);
            bytes[0] &= !63;
            bytes[HEADER..HEADER + 32].fill(0);
            let mut entries = Vec::<(KeyN<32>, RemotePtr)>::new();
            if decode_page(leaf(1), &bytes, &mut entries).is_ok() {
                prop_assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
            }
        }
    }
}
