//! Linear models that predict the position of a key in a sorted list, with a bounded error.
//!
//! The training is the shrinking cone of FITing-Tree (Galakatos et al., SIGMOD 2019): one pass, in which each point
//! narrows the slopes that a line from the segment's first point may have. All arithmetic is on integers, so the bound
//! is exact.

use core::ops::Range;

/// A line, from its first point to the first point of the next segment.
///
/// ```text
///  position                    ·│ error
///     │                  ·   ·──┴──
///     │            · ───·───        slope: rise / run
///     │      ─·─── ·
///     └──────┴──────────────────── number
///            first
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
struct Segment {
    /// The number of the first point.
    first: u64,
    /// The position of the first point.
    position: u32,
    /// The slope of the line is `rise` / `run`.
    rise: u64,
    run: u64,
}

impl Segment {
    /// Returns the position on the line for a number at or above `first`.
    fn at(&self, number: u64) -> usize {
        let along = u128::from(number - self.first) * u128::from(self.rise) / u128::from(self.run);
        usize::try_from(along)
            .unwrap_or(usize::MAX)
            .saturating_add(self.position as usize)
    }
}

/// Slopes as fractions: numerator and denominator, which is not 0.
type Slope = (u64, u64);

/// Returns whether slope `a` is less than slope `b`.
fn less(a: Slope, b: Slope) -> bool {
    u128::from(a.0) * u128::from(b.1) < u128::from(b.0) * u128::from(a.1)
}

/// A segment in training: its first point, and the slopes with which a line from there is within the error of all later
/// points.
struct Cone {
    first: u64,
    position: u32,
    least: Slope,
    /// `None` if any slope will do.
    most: Option<Slope>,
}

impl Cone {
    fn new(number: u64, position: u32) -> Self {
        Self {
            first: number,
            position,
            least: (0, 1),
            most: None,
        }
    }

    /// Takes another point, with a greater number and position. Returns `false`, and changes nothing, if no line from
    /// the first point is within `error` of this point and all points before.
    fn take(&mut self, number: u64, position: u32, error: u32) -> bool {
        let (run, rise) = (number - self.first, u64::from(position - self.position));
        let lowest = (rise.saturating_sub(u64::from(error)), run);
        let highest = (rise + u64::from(error), run);
        let least = if less(self.least, lowest) {
            lowest
        } else {
            self.least
        };
        let most = self
            .most
            .map_or(highest, |most| if less(highest, most) { highest } else { most });
        if less(most, least) {
            return false;
        }
        (self.least, self.most) = (least, Some(most));
        true
    }

    fn line(&self) -> Segment {
        let (rise, run) = self.most.unwrap_or(self.least);
        Segment {
            first: self.first,
            position: self.position,
            rise,
            run,
        }
    }
}

/// Linear models over a sorted list of numbers.
///
/// ```
/// use dm_learned::Models;
///
/// let numbers: Vec<u64> = (0..1_000).map(|n| n * n).collect();
/// let models = Models::train(numbers.iter().copied(), 8);
/// assert!(models.count() < 30);
/// let predicted = models.predict(500 * 500);
/// assert!((492..=508).contains(&predicted));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Hash, Default)]
pub struct Models {
    segments: Vec<Segment>,
    /// Length of the list.
    numbers: usize,
    /// Maximum error, in slots.
    error: u32,
    /// Slots of each number. Segments predict slots.
    slots: usize,
}

impl Models {
    /// Trains models over an ascending list. For each number of the list, the prediction differs by at most `error`
    /// from the position at which the number first occurs. This holds for the first 2^32 numbers.
    ///
    /// # Panics
    /// Panics if the numbers do not ascend.
    #[must_use]
    pub fn train(numbers: impl IntoIterator<Item = u64>, error: u32) -> Self {
        Self::train_slots(numbers, error, 1)
    }

    /// Trains models like [`Models::train`], over a list each of whose numbers begins a row of `slots` slots. `error`
    /// counts slots, so it may be less than a row. The error is bounded only for the first 2^32 slots.
    ///
    /// # Panics
    /// Panics if the numbers do not ascend.
    #[must_use]
    pub fn train_slots(numbers: impl IntoIterator<Item = u64>, error: u32, slots: u32) -> Self {
        let mut models = Self {
            error,
            slots: slots.max(1) as usize,
            ..Self::default()
        };
        let (mut cone, mut last) = (None::<Cone>, None);
        for number in numbers {
            let position = u32::try_from(models.numbers * models.slots).unwrap_or(u32::MAX);
            models.numbers += 1;
            if last == Some(number) {
                continue;
            }
            assert!(last < Some(number), "the numbers must ascend");
            last = Some(number);
            if let Some(cone) = &mut cone {
                if cone.take(number, position, error) {
                    continue;
                }
                models.segments.push(cone.line());
            }
            cone = Some(Cone::new(number, position));
        }
        models.segments.extend(cone.map(|cone| cone.line()));
        models.segments.shrink_to_fit();
        models
    }

    /// Returns the predicted position of a number. It is below the length of the list, or 0 if the list is empty.
    #[must_use]
    pub fn predict(&self, number: u64) -> usize {
        self.slot(number).map_or(0, |(slot, _)| slot / self.slots)
    }

    /// Returns the predicted slot of a number, and the slots of its model. Returns `None` if no model begins at or
    /// below the number.
    fn slot(&self, number: u64) -> Option<(usize, Range<usize>)> {
        let after = self.segments.partition_point(|segment| segment.first <= number);
        let segment = after.checked_sub(1).map(|i| self.segments[i])?;
        // A line may rise beyond the next segment's first point.
        let end = self
            .segments
            .get(after)
            .map_or(self.numbers * self.slots, |next| next.position as usize);
        Some((segment.at(number).min(end - 1), segment.position as usize..end))
    }

    /// Returns the positions that the error admits for a number: those of the slots from `error` below the predicted
    /// one to `error + more` above it, within the slots of the number's model. The position of the last number of the
    /// list at or below `number` is one of them, unless several numbers of the list are equal. If there is no such
    /// number, this returns only the first position, or nothing if the list is empty.
    #[must_use]
    pub fn admitted(&self, number: u64, more: usize) -> Range<usize> {
        let Some((slot, all)) = self.slot(number) else {
            return 0..self.numbers.min(1);
        };
        let error = self.error as usize;
        let first = slot.saturating_sub(error).max(all.start);
        let last = slot.saturating_add(error.saturating_add(more)).min(all.end - 1);
        first / self.slots..last / self.slots + 1
    }

    /// Returns the number of entries of a sorted list that are at or below a searched entry. `is_at_or_below` says
    /// whether the entry at a position is at or below the searched one. The models must have been trained over this
    /// list, and `number` must belong to the searched entry. The search begins at the predicted position, and needs
    /// about log2(`error`) steps. Its result does not depend on the models.
    #[must_use]
    pub fn count_to(&self, number: u64, mut is_at_or_below: impl FnMut(usize) -> bool) -> usize {
        let near = self.predict(number);
        let (mut low, mut high) = (0, self.numbers);
        // Entries below `low` are at or below the searched one; those from `high` on are not.
        let mut step = self.error as usize / self.slots.max(1) + 1;
        if near < self.numbers && is_at_or_below(near) {
            low = near + 1;
            while let Some(next) = low.checked_add(step).filter(|next| *next < high) {
                match is_at_or_below(next) {
                    true => low = next + 1,
                    false => high = next,
                }
                step = step.saturating_mul(2);
            }
        } else {
            high = near.min(self.numbers);
            while let Some(next) = high.checked_sub(step).filter(|next| *next >= low) {
                match is_at_or_below(next) {
                    true => low = next + 1,
                    false => high = next,
                }
                step = step.saturating_mul(2);
            }
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match is_at_or_below(middle) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Returns the number of models.
    #[must_use]
    pub fn count(&self) -> usize {
        self.segments.len()
    }

    /// Returns the bytes of the allocation.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.segments.capacity() * size_of::<Segment>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Checks the error bound for all numbers of the list, and the counts for all numbers next to them.
    fn check(mut numbers: Vec<u64>, error: u32) -> Models {
        numbers.sort_unstable();
        let models = Models::train(numbers.iter().copied(), error);
        assert!(models.count() <= numbers.len());
        for &number in &numbers {
            let first = numbers.partition_point(|other| *other < number);
            let predicted = models.predict(number);
            assert!(
                predicted.abs_diff(first) <= error as usize,
                "{number}: {predicted} instead of {first}"
            );
        }
        let near = numbers
            .iter()
            .flat_map(|n| [n.saturating_sub(1), *n, n.saturating_add(1)]);
        for number in near.chain([0, u64::MAX, u64::MAX / 2]) {
            let counted = models.count_to(number, |i| numbers[i] <= number);
            assert_eq!(
                counted,
                numbers.partition_point(|other| *other <= number),
                "{number}"
            );
        }
        models
    }

    /// Lists of different distributions, with duplicates, runs and extremes.
    fn lists() -> impl Strategy<Value = Vec<u64>> {
        let clustered = (any::<u64>(), vec(0..1_000_u64, 0..50))
            .prop_map(|(base, near)| near.iter().map(|n| base.saturating_add(*n)).collect::<Vec<_>>());
        prop_oneof![
            vec(any::<u64>(), 0..300),
            vec(0..20_u64, 0..300),
            vec(clustered, 0..8).prop_map(|parts| parts.concat()),
            vec(0..64_u32, 0..200).prop_map(|all| all.iter().map(|n| 1_u64 << n).collect()),
            vec(
                prop_oneof![Just(0), Just(1), Just(u64::MAX - 1), Just(u64::MAX), any::<u64>()],
                0..40
            ),
        ]
    }

    proptest! {
        #[test]
        fn the_error_is_bounded_for_any_list(numbers in lists(), error in prop_oneof![0..4_u32, 0..200_u32, Just(u32::MAX)]) {
            check(numbers, error);
        }
    }

    proptest! {
        /// A number between two successive numbers of the list belongs to the lower one.
        #[test]
        fn the_admitted_positions_have_that_of_any_number(
            numbers in vec(any::<u64>(), 1..300),
            slots in 1..70_u32,
            error in 0..40_u32,
            others in vec(any::<u64>(), 20),
        ) {
            let mut numbers = numbers;
            numbers.sort_unstable();
            numbers.dedup();
            let models = Models::train_slots(numbers.iter().copied(), error, slots);
            let near = numbers.iter().flat_map(|n| [n.saturating_sub(1), *n, n.saturating_add(1)]);
            for number in near.chain(others) {
                let position = numbers.partition_point(|other| *other <= number);
                let admitted = models.admitted(number, 2);
                prop_assert!(
                    admitted.contains(&position.saturating_sub(1)),
                    "{} of {}: {:?}", position, number, admitted
                );
                prop_assert_eq!(models.count_to(number, |i| numbers[i] <= number), position);
                let most = (2 * error + 2).div_ceil(slots) as usize + 1;
                prop_assert!(admitted.len() <= most, "{:?}", admitted);
            }
        }
    }

    #[test]
    fn an_error_of_16_admits_three_or_four_rows_of_16() {
        let models = Models::train_slots((0..1_000).map(|n| n * 1_000), 16, 16);
        let counts: Vec<usize> = (0..16_000)
            .map(|n| models.admitted(500_000 + n, 2).len())
            .collect();
        assert_eq!((counts.iter().min(), counts.iter().max()), (Some(&3), Some(&4)));
        assert_eq!(
            (models.admitted(0, 2), models.admitted(u64::MAX, 2)),
            (0..2, 998..1_000)
        );
    }

    #[test]
    fn a_line_needs_one_model_and_extremes_need_no_more_than_their_number() {
        assert_eq!(check((0..10_000).map(|n| 7 + n * 13).collect(), 0).count(), 1);
        assert_eq!(check(Vec::new(), 4).count(), 0);
        assert_eq!(check(vec![u64::MAX], 4).count(), 1);
        assert!(check(vec![0, u64::MAX], 0).count() <= 2);
        assert!(check(vec![0, 1, u64::MAX - 1, u64::MAX], 0).count() <= 4);
        assert_eq!(check(vec![5; 1_000], 0).count(), 1);
    }

    #[test]
    fn a_larger_error_never_needs_more_than_a_smaller_one_here() {
        let squares: Vec<u64> = (0..5_000).map(|n| n * n).collect();
        let counts: Vec<usize> = [0, 1, 4, 16, 64]
            .map(|error| check(squares.clone(), error).count())
            .to_vec();
        assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
        assert!(counts[3] < 20, "{counts:?}");
    }

    #[test]
    #[should_panic(expected = "ascend")]
    fn numbers_that_descend_are_refused() {
        let _ = Models::train([2, 1], 4);
    }
}
