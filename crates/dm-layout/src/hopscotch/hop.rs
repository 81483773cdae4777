//! Hops: the WRITEs that make room for a key, line by line.

use alloc::vec::Vec;
use core::ops::Range;

use super::geometry::{Known, NEIGHBOURHOOD_MAX};
use super::{HopPlan, Hopscotch, VERSION_AT, YOUNG_ENTRY};
use crate::LINE_BYTES;
use crate::format::Slot;
use crate::key::KeyBytes;
use crate::value::ValueRef;

/// The way of an entry from one slot to another of its neighbourhood.
pub(super) struct Way {
    /// The groups before the boundaries that the entry crosses, in the order of the slots.
    groups: [u16; NEIGHBOURHOOD_MAX],
    count: usize,
    /// Whether the entry moves away from its home.
    forward: bool,
}

impl Way {
    /// Returns the groups before the boundaries that the entry crosses.
    pub(super) fn crossed(&self) -> &[u16] {
        &self.groups[..self.count]
    }
}

impl<K: KeyBytes> Hopscotch<K> {
    /// Returns the way of the entry in slot `from` to slot `to`, both of its neighbourhood.
    pub(super) fn way(&self, image: &[u8], (from, to): (Slot, Slot)) -> Way {
        let geometry = &self.geometry;
        let home = self.home(&K::read_from(&image[from.offset() + geometry.prefix..]));
        let distance = |slot: Slot| self.distance(home, geometry.slot_of(slot.offset()));
        let (old, new) = (distance(from), distance(to));
        let mut way = Way {
            groups: [0; NEIGHBOURHOOD_MAX],
            count: 0,
            forward: new > old,
        };
        let first = (home + old.min(new)) % geometry.span;
        for (group, _) in self.runs(first, old.abs_diff(new) + 1) {
            way.groups[way.count] = group as u16;
            way.count += 1;
        }
        // The entry crosses no boundary after the last of these groups.
        way.count -= 1;
        way
    }

    /// Returns whether slots that were read under the lock are in one state of a node that has this `version` and is
    /// not young. If not, a client may have died during a structural change or a hop.
    pub fn is_sound(&self, image: &[u8], known: &Known, version: u8) -> bool {
        let is_sound = |entry: &[u8]| entry[0] >> VERSION_AT == version && entry[0] & YOUNG_ENTRY == 0;
        let mut before = None;
        self.runs(known.first, known.count).all(|(group, run)| {
            let settled = before
                .replace(group)
                .is_none_or(|before| self.is_settled(image, before));
            settled && image[run].chunks(self.geometry.stride).all(is_sound)
        })
    }

    /// Makes the hops of `plan` in `image`, and puts the new entry into the slot that becomes free. Calls `write` with
    /// the offset and the bytes of each WRITE, in their order. Only the slots that were known to
    /// [`plan_hops`](Self::plan_hops), and bytes between these slots, are changed or written. `counted` is false only
    /// in models of the flaw that hops are not counted.
    ///
    /// If the two slots of a hop are in the same line, one WRITE changes both. Otherwise the entry is overwritten in
    /// its old slot only by a WRITE behind the one that has copied it to its new slot. Such a hop increments the hop
    /// counts of all boundaries between the two slots. The WRITE of each slot's line also changes the copies of these
    /// counts in this line. The copies in lines between the two slots are changed together with the slot that comes
    /// later in the neighbourhood.
    pub fn hop(
        &self,
        image: &mut [u8],
        plan: &HopPlan,
        (key, value): (&K, ValueRef<'_>),
        counted: bool,
        mut write: impl FnMut(usize, &[u8]),
    ) {
        //= docs/protocol/chime.md H4
        let geometry = self.geometry;
        let mut open = Vec::new();
        let mut send = |open: &mut Vec<Range<usize>>, image: &[u8]| {
            for range in open.drain(..) {
                write(range.start, &image[range]);
            }
        };
        for &(from, to) in plan.moves() {
            let Way {
                groups,
                count,
                forward,
            } = self.way(image, (from, to));
            let (at, old) = (to.offset(), from.offset());
            // Only in-line entries hop.
            image.copy_within(old..old + geometry.stride, at);
            cover(&mut open, at..at + geometry.stride);
            if count == 0 {
                // The old slot is in the same line, and one WRITE changes both.
                continue;
            }
            // Of the two slots, one comes later in the neighbourhood. Its line is written together with all copies but
            // one, because these copies are at the front of that line, or in the lines directly before it. The
            // remaining copy is in the other slot's line.
            let mut later = Vec::new();
            for nth in (0..count).map(|n| if forward { count - 1 - n } else { n }) {
                let group = groups[nth].into();
                let (before, after) = geometry.boundary(group);
                if counted {
                    self.set_hops(image, group, image[before].wrapping_add(1));
                }
                let with_copy = |copy: usize, now: bool, open: &mut Vec<_>, later: &mut Vec<_>| {
                    cover(if now { open } else { later }, copy..copy + 1);
                };
                with_copy(after, forward, &mut open, &mut later);
                with_copy(before, forward != (nth == 0), &mut open, &mut later);
            }
            send(&mut open, image);
            open = later;
        }
        let range = self.put_entry(image, plan.slot, key, value);
        cover(&mut open, range);
        send(&mut open, image);
    }
}

/// Adds a range to the ranges that are written next. Ranges in the same line or in successive lines become one, so that
/// all bytes of a line are in the same WRITE.
fn cover(open: &mut Vec<Range<usize>>, mut range: Range<usize>) {
    let lines = |range: &Range<usize>| range.start / LINE_BYTES..range.end.div_ceil(LINE_BYTES);
    // A range that has grown may now touch further ranges.
    while let Some(nth) = open.iter().position(|other| {
        let (old, new) = (lines(other), lines(&range));
        old.start <= new.end && new.start <= old.end
    }) {
        let other = open.remove(nth);
        range = other.start.min(range.start)..other.end.max(range.end);
    }
    open.push(range);
}
