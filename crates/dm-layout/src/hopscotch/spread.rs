//! Where free slots are best.

use alloc::vec;

use crate::KeyBytes;

use super::Hopscotch;

impl<K: KeyBytes> Hopscotch<K> {
    /// Moves entries that lie as early as they can, in `slots`, so that the free slots lie apart from each other, and
    /// each entry in its neighbourhood still. `order`: the entries by home, ascending.
    ///
    /// An insert hops where its whole neighbourhood is taken. Entries that lie as early as they can make long runs: of 64
    /// slots with 45 random entries 18 % of the neighbourhoods of 8 are full, spread ones leave 6 %.
    pub(super) fn spread(&self, homes: &[usize], order: &mut [usize], slots: &mut [usize]) {
        let (span, near) = (self.geometry.span, self.geometry.neighbourhood);
        let mut taken = vec![false; span];
        for slot in &*slots {
            taken[*slot] = true;
        }
        // Nobody waits at a free slot: from there on it is a line, not a circle.
        let Some(free) = taken.iter().position(|taken| !taken) else {
            return;
        };
        let start = (free + 1) % span;
        let from_start = |slot| self.distance(start, slot);
        order.rotate_left(order.partition_point(|entry| homes[*entry] < start));
        // As late as each can lie: not beyond its neighbourhood, and before the next.
        let mut latest = vec![0; order.len()];
        let mut end = span;
        for (place, entry) in latest.iter_mut().zip(&*order).rev() {
            end = (from_start(homes[*entry]) + near).min(end) - 1;
            *place = end;
        }
        // Every entry's share of the line, and behind that as many slots as a neighbourhood has free on average: an entry
        // lies at its home or behind.
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
