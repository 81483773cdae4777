//! Liveness: the states that are known to reach an end without further faults.

/// A set of states, by number. Some are marked as living: they are known to reach an end.
pub(super) trait Living {
    fn is_living(&self, state: u32) -> bool;
    fn mark(&mut self, state: u32);
}

/// One bit for each state.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<u64>);

impl Living for Marks {
    fn is_living(&self, state: u32) -> bool {
        let word = self.0.get(state as usize / 64);
        word.is_some_and(|w| w >> (state % 64) & 1 == 1)
    }

    fn mark(&mut self, state: u32) {
        let word = state as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (state % 64);
    }
}

impl Marks {
    /// Returns the number of marked states.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|w| u64::from(w.count_ones())).sum()
    }
}

/// Marks every state from which these steps lead to a marked one.
pub(super) fn spread(living: &mut impl Living, mut steps: Vec<(u32, u32)>) {
    steps.sort_unstable_by_key(|&(from, to)| (to, from));
    steps.dedup();
    let mut new: Vec<u32> = steps.iter().map(|&(_, to)| to).collect();
    new.dedup();
    new.retain(|&to| living.is_living(to));
    while let Some(to) = new.pop() {
        let first = steps.partition_point(|e| e.1 < to);
        for &(from, _) in steps[first..].iter().take_while(|e| e.1 == to) {
            if !living.is_living(from) {
                living.mark(from);
                new.push(from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_spread_against_the_steps_and_a_closed_cycle_stays_unmarked() {
        let mut living = Marks::default();
        living.mark(3);
        // The steps are 0 → 1 → 2 → 0, 2 → 3, where 3 is an end, and 0 → 64 → 65 → 64.
        let steps = [(0, 1), (1, 2), (2, 0), (2, 3), (0, 64), (64, 65), (65, 64)];
        spread(&mut living, steps.to_vec());
        let marked = |s| living.is_living(s);
        assert!([0, 1, 2, 3].into_iter().all(marked) && ![64, 65, 200].into_iter().any(marked));
        assert_eq!(living.count(), 4);
    }
}
