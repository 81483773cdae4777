//! Homes of keys, and the assignment of entries to slots.

use crate::chunks::Chunks as _;
use alloc::vec;
use alloc::vec::Vec;

use super::geometry::{Known, SPAN_MAX};
use super::{Hopscotch, PRESENT};
use crate::error::CheckFailure;
use crate::format::Slot;
use crate::key::{KEY_BYTES_MAX, KeyBytes};

/// Maximum number of hops of one insert.
pub(crate) const HOPS_MAX: usize = 3;
/// Maximum number of hops of one insert across the same boundary. Each of them increments the boundary's hop count,
/// which must not wrap during a READ (rule H2 of docs/protocol/chime.md).
const CROSSINGS_MAX: usize = 2;

/// The hops that make room for a key, in the order in which they must be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopPlan {
    moves: [(Slot, Slot); HOPS_MAX],
    len: usize,
    /// The slot for the key after the hops: the source of the last hop, whose entry has been copied then.
    pub slot: Slot,
}

impl HopPlan {
    /// Returns the hops as pairs of source and destination. The destination of a later hop is the source of an earlier
    /// one.
    #[must_use]
    pub fn moves(&self) -> &[(Slot, Slot)] {
        &self.moves[..self.len]
    }
}

/// Applies the finaliser of splitmix64. The function is part of the format, because all clients must compute equal
/// homes.
const fn spread(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl<K: KeyBytes> Hopscotch<K> {
    /// Returns the hash of a key, which is part of the format. The high half of the hash determines the key's home.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &K) -> u64 {
        // If a key does not end at a word, its last word is filled with zeros.
        let mut bytes = [0; KEY_BYTES_MAX];
        key.write_to(&mut bytes);
        let words = bytes[..K::LEN.next_multiple_of(8)].in_chunks::<8>().0;
        words.iter().fold(0x9E37_79B9_7F4A_7C15, |hash, word| {
            spread(hash ^ u64::from_le_bytes(*word))
        })
    }

    /// Returns the home of `key`: the slot that its hash selects.
    #[inline]
    #[must_use]
    pub fn home(&self, key: &K) -> usize {
        self.home_of(self.hash(key))
    }

    /// Returns the home of a key with this [`hash`](Self::hash).
    #[inline]
    #[must_use]
    pub const fn home_of(&self, hash: u64) -> usize {
        // The home is computed from the high half of the hash by a multiplication, because a remainder is slower.
        (((hash >> 32) * self.geometry.span as u64) >> 32) as usize
    }

    /// Returns the distance from `home` to `slot`, wrapping around at the node's end.
    #[inline]
    pub(crate) const fn distance(&self, home: usize, slot: usize) -> usize {
        if slot >= home {
            slot - home
        } else {
            slot + self.geometry.span - home
        }
    }

    /// Returns how many entries do not fit before the node's end, so that they wrap around to its start. `counts`
    /// contains the number of entries of each home.
    fn left_over(counts: &[u16]) -> usize {
        let serve = |waiting: usize, count: &u16| (waiting + usize::from(*count)).saturating_sub(1);
        // The first round computes this number. A second round adds the entries that these entries displace.
        counts.iter().chain(counts).fold(0, serve)
    }

    /// Returns whether entries with these homes can all have slots in their neighbourhoods.
    pub(super) fn has_places(&self, homes: &mut dyn Iterator<Item = usize>) -> bool {
        let span = self.geometry.span;
        let mut counts = [0_u16; SPAN_MAX];
        let mut entries = 0;
        for home in homes {
            counts[home] += 1;
            entries += 1;
            if entries > span {
                return false;
            }
        }
        let counts = &counts[..span];
        // The entries form a queue, sorted by their homes as in `arrange`. Each slot takes the first entry of the
        // queue. Of all queued entries, the first one is displaced most.
        let mut waiting = Self::left_over(counts);
        if waiting > self.geometry.neighbourhood {
            return false;
        }
        // The home of the first entry of the queue, and the number of queued entries of this home. Here the slots at
        // the node's start have numbers from `span` on, because the queued entries that wrap around have smaller homes.
        let (mut oldest, mut of_it) = (span, usize::from(counts[0]));
        let mut left = waiting;
        while left > 0 {
            oldest -= 1;
            of_it = usize::from(counts[oldest]).min(left);
            left -= of_it;
        }
        for slot in span..2 * span {
            waiting += usize::from(counts[slot - span]);
            if waiting == 0 {
                continue;
            }
            while of_it == 0 {
                oldest += 1;
                of_it = usize::from(counts[oldest % span]);
            }
            if slot - oldest >= self.geometry.neighbourhood {
                return false;
            }
            of_it -= 1;
            waiting -= 1;
        }
        true
    }

    /// Returns slots for entries with these homes, each in its neighbourhood. Returns `None` if there are no such
    /// slots.
    ///
    /// Entries get slots in the order of their homes, because no other order has a smaller maximum displacement. Then
    /// the free slots are spread over the node.
    pub(super) fn arrange(&self, homes: &[usize]) -> Option<Vec<usize>> {
        let span = self.geometry.span;
        if homes.len() > span {
            return None;
        }
        // Entries by home, ascending.
        let mut order: Vec<usize> = (0..homes.len()).collect();
        order.sort_unstable_by_key(|entry| homes[*entry]);
        let mut counts = vec![0_u16; span];
        for home in homes {
            counts[*home] += 1;
        }
        let mut waiting = Self::left_over(&counts);
        let mut slots = vec![0; homes.len()];
        // The last entries in this order wrap around to the node's start.
        let mut next = homes.len().checked_sub(waiting)?;
        let mut placed = 0;
        for (slot, count) in counts.iter().enumerate() {
            waiting += usize::from(*count);
            if waiting == 0 {
                continue;
            }
            waiting -= 1;
            let entry = *order.get(next % homes.len())?;
            next += 1;
            placed += 1;
            if self.distance(homes[entry], slot) >= self.geometry.neighbourhood {
                return None;
            }
            slots[entry] = slot;
        }
        if placed < homes.len() {
            return None;
        }
        self.spread(homes, &mut order, &mut slots);
        Some(slots)
    }

    /// Returns the fewest hops within the slots `known` that make room for the absent `key`, whose neighbourhood is
    /// full. The image must contain the bytes of these slots, and those of the boundaries between them.
    ///
    /// Returns `None` if three hops are not enough, or if these hops cross a boundary more than twice. Also returns
    /// `None` if entries have their own lines, because such nodes do not count hops.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] if the bytes are not as long as a node of this format.
    pub fn plan_hops(&self, image: &[u8], key: &K, known: &Known) -> Result<Option<HopPlan>, CheckFailure> {
        self.length(image)?;
        if !self.geometry.is_in_line() {
            return Ok(None);
        }
        let plan = match self.geometry.span <= 64 {
            true => self.plan_in_word(image, key, known),
            false => self.plan_in_table(image, key, known),
        };
        Ok(plan.filter(|plan| self.crosses_seldom(image, plan)))
    }

    /// Returns whether the hop counts of all boundaries change by at most [`CROSSINGS_MAX`].
    fn crosses_seldom(&self, image: &[u8], plan: &HopPlan) -> bool {
        let mut crossed = [0_u8; SPAN_MAX];
        plan.moves().iter().all(|hop| {
            self.way(image, *hop).crossed().iter().all(|&group| {
                crossed[usize::from(group)] += 1;
                usize::from(crossed[usize::from(group)]) <= CROSSINGS_MAX
            })
        })
    }

    /// Implements [`plan_hops`](Self::plan_hops) for nodes of any span.
    fn plan_in_table(&self, image: &[u8], key: &K, known: &Known) -> Option<HopPlan> {
        let geometry = &self.geometry;
        /// The value of `wanted_by` for a slot that the search has not reached.
        const NEW: u16 = u16::MAX;
        /// The value of `wanted_by` for a slot of the key's own neighbourhood.
        const ROOT: u16 = u16::MAX - 1;
        // The state of a breadth-first search: for each reached slot, the slot whose entry can hop to it, and the queue
        // of reached slots with their numbers of hops.
        let mut wanted_by = [NEW; SPAN_MAX];
        let mut queue = [(0_u16, 0_u8); SPAN_MAX];
        let (mut head, mut tail) = (0, 0);
        for slot in self.slots_near(self.home(key)) {
            wanted_by[slot] = ROOT;
            queue[tail] = (slot as u16, 0);
            tail += 1;
        }
        while head < tail {
            let (from, hops) = queue[head];
            head += 1;
            if usize::from(hops) == HOPS_MAX {
                return None;
            }
            let at = geometry.slot_at(usize::from(from));
            let home = self.home(&K::read_from(&image[at + geometry.prefix..]));
            if self.distance(home, from.into()) >= geometry.neighbourhood {
                // The bytes are corrupt.
                continue;
            }
            for to in self.slots_near(home) {
                if wanted_by[to] != NEW || !known.contains(geometry, to) {
                    continue;
                }
                wanted_by[to] = from;
                if image[geometry.slot_at(to)] & PRESENT == 0 {
                    return Some(self.path_to(to, |slot| wanted_by[slot].into()));
                }
                queue[tail] = (to as u16, hops + 1);
                tail += 1;
            }
        }
        None
    }

    /// Implements [`plan_hops`](Self::plan_hops) for nodes of at most 64 slots. A set of slots is one word, with a bit
    /// for each slot.
    fn plan_in_word(&self, image: &[u8], key: &K, known: &Known) -> Option<HopPlan> {
        let geometry = &self.geometry;
        let all = u64::MAX >> (64 - geometry.span);
        let from = |first: usize, count: usize| {
            let slots = ((1_u128 << count) - 1) << first;
            (slots | slots >> geometry.span) as u64 & all
        };
        let near = |home: usize| from(home, geometry.neighbourhood);
        // An invalid slot number marks the slots of the key's own neighbourhood.
        let mut wanted_by = [u8::MAX; 64];
        let mut last = near(self.home(key));
        let mut asked = last | !from(known.first, known.count);
        for _ in 0..HOPS_MAX {
            let mut next = 0;
            while last != 0 {
                let from = last.trailing_zeros();
                last &= last - 1;
                let at = geometry.slot_at(from as usize);
                let home = self.home(&K::read_from(&image[at + geometry.prefix..]));
                if near(home) >> from & 1 == 0 {
                    // The bytes are corrupt.
                    continue;
                }
                let mut fresh = near(home) & !asked;
                asked |= fresh;
                next |= fresh;
                while fresh != 0 {
                    let to = fresh.trailing_zeros() as usize;
                    fresh &= fresh - 1;
                    wanted_by[to] = from as u8;
                    if image[geometry.slot_at(to)] & PRESENT == 0 {
                        return Some(self.path_to(to, |slot| wanted_by[slot].into()));
                    }
                }
            }
            last = next;
        }
        None
    }

    /// Returns the hops that free a slot for the key. The first hop moves an entry to `free`. Each later hop moves an
    /// entry to the source of the hop before it. The source of the last hop is a slot for the key.
    fn path_to(&self, free: usize, wanted_by: impl Fn(usize) -> usize) -> HopPlan {
        let slot = |number: usize| Slot::at(self.geometry.slot_at(number));
        let mut plan = HopPlan {
            moves: [(Slot::at(0), Slot::at(0)); HOPS_MAX],
            len: 0,
            slot: slot(free),
        };
        let mut to = free;
        // For a slot of the key's own neighbourhood, `wanted_by` returns no valid slot, so the path ends there.
        while plan.len < HOPS_MAX && wanted_by(to) < self.geometry.span {
            let from = wanted_by(to);
            plan.moves[plan.len] = (slot(from), slot(to));
            plan.len += 1;
            to = from;
        }
        plan.slot = slot(to);
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key8;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that `arrange` and `has_places` agree, and that the slots that `arrange` returns are valid: each slot
        /// is used once, and no entry is too far from its home. If `arrange` finds no slots, a matching by augmenting
        /// paths finds none either.
        #[test]
        fn arranging_finds_places_if_there_are_any(
            h in 2_usize..6,
            homes in prop::collection::vec(0_usize..12, 0..13),
        ) {
            let format = Hopscotch::<Key8>::new(12, h, 8).expect("a node");
            let slots = format.arrange(&homes);
            prop_assert_eq!(slots.is_some(), format.has_places(&mut homes.iter().copied()));
            prop_assert_eq!(slots.is_some(), matched(&homes, h) == homes.len());
            if let Some(slots) = slots {
                let mut taken = [false; 12];
                for (home, slot) in homes.iter().zip(slots) {
                    prop_assert!(format.distance(*home, slot) < h && !taken[slot]);
                    taken[slot] = true;
                }
            }
        }
    }

    #[test]
    fn free_slots_lie_apart() {
        let format = Hopscotch::<Key8>::new(64, 8, 8).expect("a node");
        let (mut full, mut of, mut seed) = (0, 0, 1_u64);
        while of < 64 * 100 {
            let homes: Vec<usize> = (0..45)
                .map(|_| {
                    seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                    format.home_of(seed)
                })
                .collect();
            let Some(slots) = format.arrange(&homes) else {
                continue;
            };
            let is_full = |home: &usize| (0..8).all(|d| slots.contains(&((home + d) % 64)));
            full += (0..64).filter(is_full).count();
            of += 64;
        }
        assert!(full * 100 / of < 8, "{full} neighbourhoods of {of} are full");
    }

    fn matched(homes: &[usize], h: usize) -> usize {
        let mut owner = [None; 12];
        (0..homes.len())
            .filter(|entry| augment(*entry, homes, h, &mut owner, &mut [false; 12]))
            .count()
    }

    fn augment(
        entry: usize,
        homes: &[usize],
        h: usize,
        owner: &mut [Option<usize>; 12],
        seen: &mut [bool; 12],
    ) -> bool {
        for slot in (0..h).map(|d| (homes[entry] + d) % 12) {
            if core::mem::replace(&mut seen[slot], true) {
                continue;
            }
            if owner[slot].is_none_or(|other| augment(other, homes, h, owner, seen)) {
                owner[slot] = Some(entry);
                return true;
            }
        }
        false
    }
}
