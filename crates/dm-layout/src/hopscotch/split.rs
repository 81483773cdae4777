//! Splits a node so that the new key has room, and copies the entries of a neighbour.

use alloc::vec::Vec;

use super::{Hopscotch, PRESENT};
use crate::error::{CheckFailure, Reason};
use crate::format::{NodeRead, NodeShape, Slot};
use crate::key::{KEY_BYTES_MAX, KeyBytes};
use crate::split::{SplitBias, SplitPlan, SplitRequest};

impl<K: KeyBytes> Hopscotch<K> {
    pub(super) fn split_in_two<'v>(
        &self,
        left: &[u8],
        right: &mut [u8],
        request: &SplitRequest<'v, K>,
    ) -> Result<Option<SplitPlan<'v, K>>, CheckFailure> {
        let header = self.accept(left)?;
        let mut entries = Vec::with_capacity(self.capacity());
        for slot in self.slots(left) {
            let entry = self.entry(left, slot)?;
            if let Some((key, value)) = entry.filter(|(key, _)| header.fences.contains(key)) {
                entries.push((key, slot, value));
            }
        }
        let mut keys = Vec::with_capacity(entries.len() + 1);
        keys.extend(entries.iter().map(|(key, ..)| *key));
        let new = request.new.map(|(key, _)| key);
        keys.extend(new);
        keys.sort_unstable();
        keys.dedup();
        if keys.len() < 2 {
            return Ok(None);
        }
        let separator = if request.bias == SplitBias::Coarse {
            self.coarse_separator(left, &keys, new)
        } else {
            let appended = request.appended(&header, keys.last()).is_some();
            let wanted = if appended { keys.len() - 1 } else { keys.len() / 2 };
            self.separator_near(left, &keys, wanted, new)
        };
        if separator <= header.fences.low {
            return Err(CheckFailure::corrupt(0, Reason::Order));
        }
        self.found(right, &request.right(&header, separator));
        // Every entry keeps its slot number, so all of them have slots.
        for (key, slot, value) in entries {
            if key >= separator {
                self.put_entry(right, slot, &key, value);
            }
        }
        //= docs/protocol/chime.md H6
        let late_right = match request.new_from(&separator) {
            Some((key, value)) => {
                let room = self.room(right, &key);
                let slot = room.ok_or(CheckFailure::corrupt(0, Reason::Room))?;
                Some((slot, key, value))
            }
            None => None,
        };
        Ok(Some(SplitPlan {
            late_right,
            ..request.cut_at(separator)
        }))
    }

    /// Returns a function that tells whether a cut makes room for `new`. If the neighbourhood of the new key is full,
    /// at least one key of the neighbourhood must move to the other node (CHIME §4.1: the split key is one of the
    /// critical keys).
    fn frees(&self, left: &[u8], new: Option<K>) -> impl Fn(&K) -> bool {
        let full = new.filter(|new| self.room(left, new).is_none());
        let around = move |new: &K| {
            self.slots_near(self.home(new))
                .map(|slot| K::read_from(&left[self.geometry.slot_at(slot) + self.geometry.prefix..]))
        };
        move |separator| match full {
            None => true,
            Some(new) if new < *separator => around(&new).any(|key| key >= *separator),
            Some(new) => around(&new).any(|key| key < *separator),
        }
    }

    /// Returns the key nearest to key number `wanted` at which a cut makes room for the new key.
    fn separator_near(&self, left: &[u8], keys: &[K], wanted: usize, new: Option<K>) -> K {
        let frees = self.frees(left, new);
        // A full neighbourhood contains a key that is greater or less than the new key, so there always is a cut
        // between the two.
        (0..keys.len())
            .flat_map(|away| [wanted.checked_sub(away), wanted.checked_add(away)])
            .flatten()
            .filter_map(|at| keys.get(at))
            .find(|separator| **separator != keys[0] && frees(separator))
            .copied()
            .unwrap_or(keys[wanted])
    }

    /// Returns the separator with the fewest significant bits at which a cut makes room for the new key. Separators
    /// that leave about a quarter of the entries or more on each side are preferred. Among separators with equally many
    /// significant bits, the one nearest to the middle is chosen.
    fn coarse_separator(&self, left: &[u8], keys: &[K], new: Option<K>) -> K {
        let (middle, edge) = (keys.len() / 2, keys.len() / 4);
        let frees = self.frees(left, new);
        let cuts = keys.windows(2).zip(1_usize..).map(|(pair, at)| {
            let (separator, bits) = between(&pair[0], &pair[1]);
            let away = at.abs_diff(middle);
            (separator, (away > edge, bits, away))
        });
        let best = cuts
            .filter(|(separator, _)| frees(separator))
            .min_by_key(|cut| cut.1);
        best.map_or(keys[middle], |(separator, _)| separator)
    }

    /// Copies the entries of `right` into free slots of `left`, and moves no entry of `left`. Returns `false` if there
    /// is no free slot for some entry.
    pub(super) fn take_over(&self, left: &mut [u8], right: &[u8]) -> Result<bool, CheckFailure> {
        for slot in self.slots(right) {
            let Some((key, value)) = self.entry(right, slot)? else {
                continue;
            };
            if crate::find(self, left, &key)?.is_some() {
                continue;
            }
            // If the entry's slot number is free in `left` too, the entry keeps it. So the entries of an earlier split
            // return to their old slots.
            let same = left[slot.offset()] & PRESENT == 0;
            let free: Option<Slot> = if same { Some(slot) } else { self.room(left, &key) };
            let Some(free) = free else { return Ok(false) };
            self.put_entry(left, free, &key, value);
        }
        Ok(true)
    }
}

/// Returns a short separator and the number of its significant bits. Of the keys that are greater than `low` and not
/// greater than `high`, the separator is the one with the most trailing zero bits.
fn between<K: KeyBytes>(low: &K, high: &K) -> (K, usize) {
    let (mut below, mut key) = ([0; KEY_BYTES_MAX], [0_u8; KEY_BYTES_MAX]);
    low.write_to(&mut below);
    high.write_to(&mut key);
    let Some(byte) = (0..K::LEN).find(|&byte| below[byte] != key[byte]) else {
        return (*high, 8 * K::LEN);
    };
    // In the first bit that differs, the greater key has a 1.
    let bit = (below[byte] ^ key[byte]).leading_zeros() as usize;
    key[byte] &= 0xff << (7 - bit);
    key[byte + 1..].fill(0);
    (K::read_from(&key), 8 * byte + bit + 1)
}

#[cfg(test)]
mod tests {
    use super::between;
    use crate::{Key8, KeyN};

    #[test]
    fn a_coarse_key_is_the_shortest_between_two() {
        let cases = [
            (0, u64::MAX, 1 << 63, 1),
            (1, 2, 2, 63),
            (0x7fff, 0x8001, 0x8000, 49),
            (0x8000, 0x8001, 0x8001, 64),
        ];
        for (low, high, separator, bits) in cases {
            assert_eq!(between(&Key8(low), &Key8(high)), (Key8(separator), bits));
        }
        let (mut low, mut high) = ([5; 32], [5; 32]);
        (low[20], high[20]) = (0x30, 0x3f);
        let mut separator = [0; 32];
        separator[..20].fill(5);
        separator[20] = 0x38;
        assert_eq!(between(&KeyN(low), &KeyN(high)), (KeyN(separator), 165));
    }
}
