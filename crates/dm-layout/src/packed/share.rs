//! Decides which keys fit into one node, for splits and merges.

use crate::chunks::Chunks as _;
use alloc::vec::Vec;

use super::Packed;
use super::geometry::{LINE_PARTS, SHAPES};
use crate::Line;
use crate::error::{CheckFailure, Reason};
use crate::format::{NodeEdit, NodeRead, NodeShape, Place};
use crate::fullness::Fullness;
use crate::key::KeyBytes;
use crate::split::{SplitPlan, SplitRequest};

impl<K: KeyBytes> Packed<K> {
    /// Returns whether a node with this low fence key has room for all these keys.
    pub(super) fn has_places(&self, low: &K, keys: impl Iterator<Item = K>) -> bool {
        let mut of_class = [0; SHAPES];
        for key in keys {
            of_class[self.geometry.class(key.above(low))] += 1;
        }
        self.geometry.lines_for(of_class) <= self.geometry.lines()
    }

    /// Returns the share of a node's room that an entry of `key` uses, if the node has this low fence key.
    pub(super) fn share_of(&self, low: &K, key: &K) -> Fullness {
        Fullness {
            taken: self.geometry.parts(self.geometry.class(key.above(low))),
            of: self.geometry.lines() * LINE_PARTS,
        }
    }

    /// Returns how full a node with this low fence key would be with the entries of `images`.
    pub(super) fn fullness_of(&self, low: &K, images: &[&[u8]]) -> Result<Fullness, CheckFailure> {
        let mut full = Fullness {
            taken: 0,
            of: self.geometry.lines() * LINE_PARTS,
        };
        for image in images {
            self.visit_entries(image, |key, _| full.taken += self.share_of(low, &key).taken)?;
        }
        Ok(full)
    }

    /// Splits at the key nearest to the middle (or to the end, for ascending inserts) at which both nodes have room for
    /// their keys, including the new one.
    ///
    /// Such a key always exists. For example, a split at the new key gives the right node the new key, and greater keys
    /// for which the left node had room. If the new key is the smallest of all, a split at the next key leaves only the
    /// new key in the left node.
    pub(super) fn split_in_two<'v>(
        &self,
        left: &[u8],
        right: &mut [u8],
        request: &SplitRequest<'v, K>,
    ) -> Result<Option<SplitPlan<'v, K>>, CheckFailure> {
        let header = self.accept(left)?;
        let mut keys = Vec::with_capacity(self.capacity() + 1);
        self.visit_entries(left, |key, _| {
            if header.fences.contains(&key) {
                keys.push(key);
            }
        })?;
        let new = request.new.map(|(key, _)| key);
        keys.extend(new);
        keys.sort_unstable();
        if keys.len() < 2 {
            return Ok(None);
        }
        let appended = request.appended(&header, keys.last()).is_some();
        let wanted = if appended { keys.len() - 1 } else { keys.len() / 2 };
        let fits = |separator: &K| {
            let behind = keys.partition_point(|key| key < separator);
            let stays = new.filter(|new| new < separator);
            behind > 0
                && self.has_places(separator, keys[behind..].iter().copied())
                && stays.is_none_or(|new| self.keeps_room(left, &header.fences.low, separator, &new))
        };
        let by_distance =
            (0..keys.len()).flat_map(|away| [wanted.checked_sub(away), wanted.checked_add(away)]);
        let separator = by_distance
            .flatten()
            .filter_map(|at| keys.get(at))
            .find(|key| fits(key));
        // If no key can be the separator, the node is corrupt: keys are duplicate, or two nodes do not have enough
        // room.
        let separator = *separator.ok_or(CheckFailure::corrupt(0, Reason::Order))?;
        self.build_from(
            right,
            &request.right(&header, separator),
            left,
            request.new_from(&separator),
        )?;
        Ok(Some(request.cut_at(separator)))
    }

    /// Returns whether some line of `left` has room for `new` after the entries from `separator` on are removed.
    fn keeps_room(&self, left: &[u8], low: &K, separator: &K, new: &K) -> bool {
        let (limit, class) = (separator.above(low), self.geometry.class(new.above(low)));
        let lines = left.in_chunks().0.iter().skip(self.geometry.first_line);
        lines
            .into_iter()
            .any(|line| self.line_takes(line, Some(limit), class))
    }

    /// Copies the entries of `right` into `left`, and moves no entry of `left` to another line. Returns `false` if
    /// some entry does not fit.
    pub(super) fn take_over(&self, left: &mut [u8], right: &[u8]) -> Result<bool, CheckFailure> {
        //= docs/protocol/dolphin.md D16
        let header = self.header(left)?;
        let mut entries = Vec::with_capacity(self.capacity());
        self.visit_entries(right, |key, value| entries.push((key, value)))?;
        // Place the widest entries first, because a narrow entry fits wherever a wide entry leaves room.
        entries.sort_unstable_by_key(|(key, _)| core::cmp::Reverse(*key));
        for (key, value) in entries {
            if let Place::Present(_) = self.place_key(left, &key)? {
                continue;
            }
            // Lines with the next version have taken effect in an earlier attempt, and do not change. That attempt had
            // put the missing entries into the other lines, so they get the same places again.
            let unchanged = |line: &Line| line[0] == header.version;
            let rise = key.above(&header.fences.low);
            let Some(slot) = self.room_in(left.in_chunks().0, rise, unchanged) else {
                return Ok(false);
            };
            self.put_entry(left, slot, &key, value);
        }
        Ok(true)
    }
}
