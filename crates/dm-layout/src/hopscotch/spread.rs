//! Spreads the free slots over a node.

use alloc::vec;

use crate::KeyBytes;

use super::Hopscotch;

impl<K: KeyBytes> Hopscotch<K> {
    /// Moves entries within their neighbourhoods so that the free slots are spread out. `slots` must contain the
    /// earliest possible slot of each entry, and `order` lists the entries by ascending home.
    ///
    /// An insert must hop if its whole neighbourhood is full. Entries in their earliest slots form long runs: in 64
    /// slots with 45 random entries, 18 % of the neighbourhoods of 8 are full; after spreading, 6 %.
    pub(super) fn spread(&self, homes: &[usize], order: &mut [usize], slots: &mut [usize]) {
        let (span, near) = (self.geometry.span, self.geometry.neighbourhood);
        let mut taken = vec![false; span];
        for slot in &*slots {
            taken[*slot] = true;
        }
        // No entry is displaced beyond a free slot. So the slots after a free slot can be treated as a line instead of
        // a circle.
        let Some(free) = taken.iter().position(|taken| !taken) else {
            return;
        };
        let start = (free + 1) % span;
        let from_start = |slot| self.distance(start, slot);
        order.rotate_left(order.partition_point(|entry| homes[*entry] < start));
        // The latest slot of each entry: it is in the entry's neighbourhood, and before the slot of the next entry.
        let mut latest = vec![0; order.len()];
        let mut end = span;
        for (place, entry) in latest.iter_mut().zip(&*order).rev() {
            end = (from_start(homes[*entry]) + near).min(end) - 1;
            *place = end;
        }
        // The target of an entry is its proportional place in the line, plus `shift`, the average number of free slots
        // of a neighbourhood, because an entry is at its home or after it.
        let entries = order.len();
        let shift = ((span - entries) * near).div_ceil(span);
        let mut next = 0;
        for (nth, (entry, latest)) in order.iter().zip(latest).enumerate() {
            let earliest = from_start(homes[*entry]).max(next);
            let slot = (nth * span / entries + shift).max(earliest).min(latest);
            debug_assert!(earliest <= latest, "the earliest places are places");
            next = slot + 1;
            slots[*entry] = (start + slot) % span;
        }
    }
}
