//! The bytes of a block: the items whose keys have the same prefix.

use dm_layout::{Corrupt, Reason, checksum_of};
use dm_verbs::LINE;

/// Size of the header in bytes. It contains a checksum of the bytes in use after the checksum, the number of items, and
/// the number of bytes in use.
const HEADER: usize = 16;
/// Number of bytes before an item's key, which contain the lengths of the key and of the value.
const ITEM_HEADER: usize = 8;

/// The items of one block, by ascending key.
///
/// ```text
/// | checksum 8 | items 4 | bytes 4 | key length 4 | value length 4 | key | value | key length ...
/// ```
///
/// A block is written once, before any word points to it, and only operations that have read such a word read the
/// block. So no reader meets a writer, and the checksum only serves to detect damaged memory and wrong words.
#[derive(Clone, Copy, Debug)]
pub struct Bundle<'a> {
    /// The bytes after the header; every item has been checked.
    items: &'a [u8],
}

impl<'a> Bundle<'a> {
    /// Checks the bytes of a block.
    ///
    /// # Errors
    /// Returns [`Corrupt`] if the checksum, a length, the number of items or the order of keys shows that the bytes are
    /// not a block.
    pub fn parse(block: &'a [u8]) -> Result<Self, Corrupt> {
        let bad = |offset, reason| Corrupt { offset, reason };
        let word = |at: usize| {
            let bytes = block.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map(|b| u32::from_le_bytes(*b) as usize)
        };
        let (Some(checksum), Some(count), Some(bytes)) = (block.first_chunk::<8>(), word(8), word(12)) else {
            return Err(bad(0, Reason::Length));
        };
        if bytes < HEADER || bytes > block.len() {
            return Err(bad(12, Reason::Length));
        }
        if checksum_of(&block[8..bytes]) != u64::from_le_bytes(*checksum) {
            return Err(bad(0, Reason::Kind));
        }
        let this = Self {
            items: &block[HEADER..bytes],
        };
        let (mut rest, mut before, mut found) = (this.items, None, 0);
        while !rest.is_empty() {
            let at = bytes - rest.len();
            let (key, _, behind) = split_item(rest).ok_or(bad(at, Reason::Length))?;
            if before.is_some_and(|before| before >= key) {
                return Err(bad(at, Reason::Order));
            }
            (before, rest, found) = (Some(key), behind, found + 1);
        }
        match found == count && count > 0 {
            true => Ok(this),
            false => Err(bad(8, Reason::Count)),
        }
    }

    /// Returns the length of the block in bytes, a multiple of a line.
    pub(crate) const fn block_bytes(self) -> usize {
        (HEADER + self.items.len()).next_multiple_of(LINE)
    }

    /// Returns the keys and values in ascending order of keys.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.items;
        core::iter::from_fn(move || {
            let (key, value, behind) = split_item(rest)?;
            rest = behind;
            Some((key, value))
        })
    }

    /// Returns the value of `key`.
    #[must_use]
    pub fn get(self, key: &[u8]) -> Option<&'a [u8]> {
        self.iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// Returns the key if there is exactly one item.
    #[must_use]
    pub fn alone(self) -> Option<&'a [u8]> {
        let mut keys = self.iter().map(|(key, _)| key);
        let first = keys.next();
        first.filter(|_| keys.next().is_none())
    }

    /// Returns a block of these items in which `key` has `value`. If `value` is `None`, the block does not contain
    /// `key`. Returns `None` if no item remains.
    #[must_use]
    pub fn with(self, key: &[u8], value: Option<&[u8]>) -> Option<Vec<u8>> {
        let below = self.iter().take_while(|(k, _)| *k < key);
        let above = self.iter().skip_while(|(k, _)| *k <= key);
        let items: Vec<_> = below
            .chain(value.map(|value| (key, value)))
            .chain(above)
            .collect();
        (!items.is_empty()).then(|| block_of(items))
    }
}

/// Splits off the first item; returns its key, its value and the rest.
fn split_item(items: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key, rest) = items.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_first_chunk::<4>()?;
    let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key) as usize)?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value) as usize)?;
    Some((key, value, rest))
}

/// Returns a block of `items`, which must ascend by key. Its length is a multiple of a line.
///
/// ```
/// use dm_indirect::{Bundle, block_of};
///
/// let block = block_of([(&b"ada"[..], &b"lovelace"[..])]);
/// assert_eq!(block.len(), 64);
/// assert_eq!(Bundle::parse(&block).unwrap().get(b"ada"), Some(&b"lovelace"[..]));
/// ```
#[must_use]
pub fn block_of<'i>(items: impl IntoIterator<Item = (&'i [u8], &'i [u8])>) -> Vec<u8> {
    let (mut block, mut count) = (vec![0; HEADER], 0u32);
    for (key, value) in items {
        // The casts lose nothing in a block of at most `BLOCK_BYTES_MAX` bytes, and no longer block is ever written.
        block.extend((key.len() as u32).to_le_bytes());
        block.extend((value.len() as u32).to_le_bytes());
        block.extend_from_slice(key);
        block.extend_from_slice(value);
        count += 1;
    }
    let bytes = block.len();
    block[8..12].copy_from_slice(&count.to_le_bytes());
    block[12..16].copy_from_slice(&(bytes as u32).to_le_bytes());
    let checksum = checksum_of(&block[8..]);
    block[..8].copy_from_slice(&checksum.to_le_bytes());
    block.resize(bytes.next_multiple_of(LINE), 0);
    block
}

/// Returns the size in bytes of a block of one item, before rounding up to whole lines.
pub(crate) const fn block_bytes(key: usize, value: usize) -> usize {
    HEADER + ITEM_HEADER + key + value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Items = BTreeMap<Vec<u8>, Vec<u8>>;

    fn block(items: &Items) -> Vec<u8> {
        block_of(items.iter().map(|(k, v)| (&k[..], &v[..])))
    }

    proptest! {
        #[test]
        fn a_block_contains_the_items_it_was_made_of(
            mut items in prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..5), prop::collection::vec(any::<u8>(), 0..90), 1..6),
            key in prop::collection::vec(any::<u8>(), 0..5),
            value in prop::option::of(prop::collection::vec(any::<u8>(), 0..90)),
        ) {
            let bytes = block(&items);
            prop_assert!(bytes.len().is_multiple_of(LINE));
            let bundle = Bundle::parse(&bytes).expect("the block is valid");
            let shown: Items = bundle.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            prop_assert_eq!(&shown, &items);
            prop_assert_eq!(bundle.get(&key), items.get(&key).map(|v| &v[..]));
            prop_assert_eq!(bundle.alone().is_some(), items.len() == 1);
            prop_assert_eq!(bundle.block_bytes(), bytes.len());
            for (key, value) in &items {
                let alone = block_of([(&key[..], &value[..])]);
                prop_assert_eq!(block_bytes(key.len(), value.len()).next_multiple_of(LINE), alone.len());
            }
            let changed = bundle.with(&key, value.as_deref());
            match value {
                Some(value) => drop(items.insert(key, value)),
                None => drop(items.remove(&key)),
            }
            prop_assert_eq!(changed, (!items.is_empty()).then(|| block(&items)));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Bundle::parse(&bytes);
        }

        #[test]
        fn one_changed_bit_is_found(at in 0..4 * 64usize, bit in 0..8u32) {
            let items = Items::from([(b"a".to_vec(), vec![1; 70]), (b"b".to_vec(), vec![2; 80])]);
            let mut bytes = block(&items);
            let used = Bundle::parse(&bytes).expect("the block is valid").items.len() + HEADER;
            let at = at % used;
            bytes[at] ^= 1 << bit;
            prop_assert!(Bundle::parse(&bytes).is_err());
        }
    }

    #[test]
    fn contradictory_bytes_are_refused_with_their_offset() {
        let sealed = |mut block: Vec<u8>| {
            let bytes =
                u32::from_le_bytes(*block[12..].first_chunk().expect("the header is complete")) as usize;
            let checksum = checksum_of(&block[8..bytes.min(block.len())]);
            block[..8].copy_from_slice(&checksum.to_le_bytes());
            block
        };
        let good = block(&Items::from([(b"a".to_vec(), vec![1]), (b"b".to_vec(), vec![2])]));
        let mut counted = good.clone();
        counted[8] = 3;
        let mut swapped = good.clone();
        swapped[HEADER + ITEM_HEADER] = b'c';
        let mut long = good.clone();
        long[HEADER] = 200;
        for (bytes, offset, reason) in [
            (sealed(counted), 8, Reason::Count),
            (sealed(swapped), HEADER + ITEM_HEADER + 2, Reason::Order),
            (sealed(long), HEADER, Reason::Length),
            (good[..12].to_vec(), 0, Reason::Length),
            (block(&Items::new()), 8, Reason::Count),
        ] {
            assert_eq!(Bundle::parse(&bytes).err(), Some(Corrupt { offset, reason }));
        }
    }
}
