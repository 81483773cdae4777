//! Splitting so that the new key finds room, and taking over a neighbour's entries.

use alloc::vec::Vec;

use super::{Hopscotch, PRESENT};
use crate::error::{CheckFailure, Reason};
use crate::format::{NodeFormat, Slot, SplitBias, SplitPlan, SplitRequest};
use crate::header::{NodeInit, NodeState};
use crate::key::{FenceKeys, KeyBytes};

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
            if let Some((key, value)) = self.entry(left, slot)?
                && header.fences.contains(&key)
            {
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
        let ascending = request.bias == SplitBias::Ascending && keys.last().copied() == new;
        let wanted = if ascending { keys.len() - 1 } else { keys.len() / 2 };
        let separator = self.separator(left, &keys, wanted, new);
        if separator <= header.fences.low {
            return Err(CheckFailure::corrupt(0, Reason::Order));
        }
        let init = NodeInit {
            level: header.level,
            incarnation: request.right_incarnation,
            version: request.right_version,
            state: NodeState::Splitting,
            owner: request.owner,
            fences: FenceKeys::new(separator, header.fences.high),
            sibling: header.sibling,
        };
        self.found(right, &init);
        // Every entry keeps its number, so that there is a place for each.
        for (key, slot, value) in entries {
            if key >= separator {
                self.put_entry(right, slot, &key, value);
            }
        }
        //= docs/protocol/chime.md H6
        let late_right = match request.new.filter(|(key, _)| *key >= separator) {
            Some((key, value)) => {
                let room = self.room(right, &key);
                let slot = room.ok_or(CheckFailure::corrupt(0, Reason::Order))?;
                Some((slot, key, value))
            }
            None => None,
        };
        Ok(Some(SplitPlan {
            separator,
            right_address: request.right_address,
            owner: request.owner,
            new_left: request.new.filter(|(key, _)| *key < separator),
            late_right,
        }))
    }

    /// The key nearest to the `wanted`-th at which to cut so that the new key finds room: at least one of those in its
    /// neighbourhood goes to the other side (CHIME §4.1, split keys among critical keys).
    fn separator(&self, left: &[u8], keys: &[K], wanted: usize, new: Option<K>) -> K {
        let Some(new) = new.filter(|new| self.room(left, new).is_none()) else {
            return keys[wanted];
        };
        let geometry = &self.geometry;
        let around = || {
            self.slots_near(self.home(&new))
                .map(|slot| K::read_from(&left[geometry.slot_at(slot) + geometry.prefix..]))
        };
        let frees = |separator: &K| match new < *separator {
            true => around().any(|key| key >= *separator),
            false => around().any(|key| key < *separator),
        };
        // One of them lies above or below the new key, so that there is always a cut between the two.
        (0..keys.len())
            .flat_map(|away| [wanted.checked_sub(away), wanted.checked_add(away)])
            .flatten()
            .filter_map(|at| keys.get(at))
            .find(|separator| **separator != keys[0] && frees(separator))
            .copied()
            .unwrap_or(keys[wanted])
    }

    /// Copies the entries of `right` into free slots of `left`, where nothing moves; `false` if some find none.
    pub(super) fn take_over(&self, left: &mut [u8], right: &[u8]) -> Result<bool, CheckFailure> {
        for slot in self.slots(right) {
            let Some((key, value)) = self.entry(right, slot)? else {
                continue;
            };
            if self.find(left, &key)?.is_some() {
                continue;
            }
            // What was split comes back to where it was.
            let same = left[slot.offset()] & PRESENT == 0;
            let free: Option<Slot> = if same { Some(slot) } else { self.room(left, &key) };
            let Some(free) = free else { return Ok(false) };
            self.put_entry(left, free, &key, value);
        }
        Ok(true)
    }
}
