//! The table of visited states. States are distinguished by their fingerprints, and all threads of a search share the
//! table.

use dm_sync::{CachePadded, Mutex, prefetch};

use super::live::{Living, Marks, spread};
use super::room::{Entry, Room};
use crate::fp::Fp;

/// States whose fingerprints have the same lowest bits in `b`.
#[derive(Default)]
struct Shard {
    entries: Room,
    states: u32,
    /// One bit for each state's number: whether the state is known to reach an end.
    living: Marks,
}

/// The stored facts about a visited state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Met {
    pub(super) number: u32,
    /// The steps that were asleep each time that the state was reached.
    pub(super) sleep: u64,
    /// Whether the state is known to reach an end.
    pub(super) living: bool,
}

pub(super) struct Table {
    shards: Vec<CachePadded<Mutex<Shard>>>,
    /// The number of bits of a state's number that select its shard.
    bits: u32,
}

impl Table {
    /// Creates a table for one thread. States are numbered from 0 in the order of their visits.
    pub(super) fn alone() -> Self {
        Self::with_bits(0)
    }

    /// Creates a table for several threads. It has enough shards that threads seldom wait for each other, and no
    /// more, because small shards do not use huge pages.
    pub(super) fn shared(threads: usize) -> Self {
        Self::with_bits((threads.ilog2() + 3).min(10))
    }

    fn with_bits(bits: u32) -> Self {
        let shard = |_| CachePadded::new(Mutex::new(Shard::default()));
        Self {
            shards: (0..1 << bits).map(shard).collect(),
            bits,
        }
    }

    fn with<R>(&self, shard: u64, f: impl FnOnce(&mut Shard) -> R) -> R {
        self.shards[(shard & ((1 << self.bits) - 1)) as usize].with(f)
    }

    fn number(&self, state: Fp, entry: &Entry) -> u32 {
        let shard = state.b & ((1 << self.bits) - 1);
        (entry.number - 1) << self.bits | shard as u32
    }

    /// Prefetches the cache line of `state` for a look-up soon.
    pub(super) fn expect(&self, state: Fp) {
        self.with(state.b, |shard| {
            let mask = shard.entries.len().wrapping_sub(1);
            if let Some(entry) = shard.entries.get(state.a as usize & mask) {
                prefetch(entry);
            }
        });
    }

    /// Returns the facts known about `state`, if it was visited.
    pub(super) fn get(&self, state: Fp) -> Option<Met> {
        self.with(state.b, |shard| {
            let entry = *shard.entries.get(shard.slot(state)?)?;
            (entry.number != 0).then(|| Met {
                number: self.number(state, &entry),
                sleep: entry.sleep,
                living: shard.living.is_living(entry.number - 1),
            })
        })
    }

    /// Records that `state` was reached with the steps of `sleep` asleep. From now on, a step is asleep in this state
    /// only if it was asleep each time that the state was reached. Returns the earlier facts about the state, or its
    /// new number if it was not visited before. Returns `None` when no numbers are left.
    pub(super) fn reach(&self, state: Fp, sleep: u64) -> Option<Result<Met, u32>> {
        self.with(state.b, |shard| {
            shard.make_room();
            let at = shard.slot(state)?;
            if shard.entries[at].number != 0 {
                let entry = &mut shard.entries[at];
                let before = *entry;
                entry.sleep &= sleep;
                return Some(Ok(Met {
                    number: self.number(state, &before),
                    sleep: before.sleep,
                    living: shard.living.is_living(before.number - 1),
                }));
            }
            if shard.states >= u32::MAX >> self.bits {
                return None;
            }
            shard.states += 1;
            let entry = Entry::new(state, sleep, shard.states);
            shard.entries[at] = entry;
            Some(Err(self.number(state, &entry)))
        })
    }

    /// Returns the number of states, and how many of them are known to reach an end.
    pub(super) fn count(&self) -> (u64, u64) {
        let counts = self
            .shards
            .iter()
            .map(|shard| shard.with(|s| (u64::from(s.states), s.living.count())));
        counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Marks every state from which these steps lead to a marked one. Returns whether all states are marked
    /// afterwards.
    pub(super) fn spread(&self, steps: Vec<(u32, u32)>) -> bool {
        spread(&mut &*self, steps);
        let (states, living) = self.count();
        states == living
    }
}

impl Living for &Table {
    fn is_living(&self, number: u32) -> bool {
        self.with(u64::from(number), |shard| {
            shard.living.is_living(number >> self.bits)
        })
    }

    fn mark(&mut self, number: u32) {
        self.with(u64::from(number), |shard| shard.living.mark(number >> self.bits));
    }
}

impl Shard {
    /// Returns the slot of `state`, or the slot where it would be inserted.
    #[inline]
    fn slot(&self, state: Fp) -> Option<usize> {
        let entries = &*self.entries;
        let mask = entries.len().checked_sub(1)?;
        let mut at = state.a as usize & mask;
        while entries[at].number != 0 && entries[at].state != state {
            at = (at + 1) & mask;
        }
        Some(at)
    }

    /// Makes room for one more entry. At most two thirds of the slots are in use.
    fn make_room(&mut self) {
        const FIRST: usize = 16;
        if (self.states as usize + 1) * 3 <= self.entries.len() * 2 {
            return;
        }
        let room = (self.entries.len() * 2).max(FIRST);
        let old = core::mem::replace(&mut self.entries, Room::new(room));
        for entry in old.iter().filter(|e| e.number != 0) {
            if let Some(at) = self.slot(entry.state) {
                self.entries[at] = *entry;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_new_once_and_its_sleep_shrinks() {
        for table in [Table::alone(), Table::shared(3)] {
            let mut numbers = std::collections::HashSet::new();
            for i in 0..10_000 {
                let state = Fp::at(i, 7);
                assert_eq!(table.get(state), None);
                let number = table.reach(state, 0b110).unwrap().unwrap_err();
                assert!(numbers.insert(number));
                assert!(table.bits > 0 || u64::from(number) == i);
            }
            for i in 0..10_000 {
                let state = Fp::at(i, 7);
                let before = table.reach(state, 0b011).unwrap().unwrap();
                assert_eq!((before.sleep, before.living), (0b110, false));
                (&table).mark(before.number);
                let now = table.get(state).unwrap();
                assert_eq!((now.number, now.sleep, now.living), (before.number, 0b010, true));
                assert_eq!(table.count(), (10_000, i + 1));
            }
        }
    }
}
