//! Cuts a failed history down to a readable piece, without removing operations that could explain its
//! results.
//!
//! The piece must fail for the same reason as the whole history, so only these cuts are made:
//!
//! * The end is cut. A prefix of a linearizable history is linearizable, if operations that have not returned yet
//!   count as pending.
//! * The beginning is cut at a moment when only pending operations were running, which stay in the piece. The rest must
//!   then fail from *every* state that was possible at that moment.
//! * Operations that change nothing are removed. An overwrite is removed together with all operations that see its
//!   value.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::check::Limits;
use crate::search::{Budget, Item, explains};
use crate::spec::{Effect, Spec};

/// Maximum number of attempts to drop operations. Each attempt is a check of the piece.
const TRIAL_COUNT_MAX: u32 = 600;
/// Maximum number of states in which a piece may begin. With more states the text would be hard to read.
const START_COUNT_MAX: usize = 32;
/// If a piece has more pending operations than this, they are only counted.
const PENDING_COUNT_MAX: usize = 3;
/// Maximum number of writes that are listed beside a piece. These are the latest ones.
const WRITER_COUNT_MAX: usize = 8;

/// A piece of a history that is not linearizable.
#[derive(Clone, Debug)]
pub struct Counterexample<Key, State> {
    /// The key.
    pub key: Key,
    /// The possible states at the beginning of the piece. The piece fails from each of them.
    pub starts: Vec<State>,
    /// The piece, as positions in [`crate::History::operations`], in the order of invocation.
    pub positions: Vec<usize>,
    /// The time at which the piece ends. An operation that returned later counts as pending.
    pub end: u64,
    /// Number of all operations of the key, without pending ones that cannot change its state.
    pub of: usize,
    lines: Vec<String>,
    /// Writes outside the piece whose values an operation of the piece sees or a starting state contains.
    writers: Vec<String>,
}

impl<Key: fmt::Debug, State: fmt::Debug> fmt::Display for Counterexample<Key, State> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, of, key) = (self.positions.len(), self.of, &self.key);
        writeln!(
            f,
            "key {key:?}: no order explains these {count} of {of} operations,"
        )?;
        match self.starts.as_slice() {
            [start] => writeln!(f, "beginning with {start:?}")?,
            starts => writeln!(f, "beginning with any of {starts:?}")?,
        }
        self.lines.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        if !self.writers.is_empty() {
            writeln!(f, "its values were written, outside of it, by")?;
        }
        self.writers.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Returns a small failing piece of a history that fails, found within the limit of steps.
pub(crate) fn cut_down<S: Spec>(
    spec: &S,
    key: S::Key,
    items: &[Item<'_, S>],
    limits: Limits,
) -> Counterexample<S::Key, S::State> {
    let of = items.len();
    let mut piece = Piece {
        spec,
        items: items.to_vec(),
        starts: vec![spec.initial(&key)],
        budget: Budget::new(limits.steps_per_key),
    };
    piece.cut_end();
    if piece
        .items
        .iter()
        .all(|item| item.effect(spec) != Effect::Unknown)
    {
        piece.cut_beginning();
        piece.drop_bystanders();
    }
    Counterexample {
        key,
        lines: piece.lines(),
        writers: piece.writers(items),
        positions: piece.items.iter().map(|item| item.position).collect(),
        end: piece
            .items
            .iter()
            .filter(|item| item.ret.is_some())
            .map(|item| item.returned)
            .max()
            .unwrap_or(0),
        starts: piece.starts,
        of,
    }
}

struct Piece<'a, S: Spec> {
    spec: &'a S,
    items: Vec<Item<'a, S>>,
    starts: Vec<S::State>,
    budget: Budget,
}

impl<'a, S: Spec> Piece<'a, S> {
    /// Returns whether the piece certainly fails. If the limit of steps is reached, returns false.
    fn fails(&mut self, items: &[Item<'a, S>], starts: &[S::State]) -> bool {
        starts.iter().all(|start| {
            matches!(
                explains(self.spec, items, start.clone(), &mut self.budget),
                Ok(false)
            )
        })
    }

    /// Cuts the piece just after the earliest response at which it fails.
    fn cut_end(&mut self) {
        let mut ends: Vec<u64> = self
            .items
            .iter()
            .filter(|item| item.ret.is_some())
            .map(|item| item.returned)
            .collect();
        ends.sort_unstable();
        ends.dedup();
        let (mut low, mut high) = (0, ends.len().saturating_sub(1)); // ends[high] fails
        while low < high {
            let middle = low.midpoint(high);
            let items = self.until(ends[middle]);
            let starts = self.starts.clone();
            if self.fails(&items, &starts) {
                high = middle
            } else {
                low = middle + 1
            }
        }
        if let Some(&end) = ends.get(high) {
            self.items = self.until(end);
        }
    }

    fn until(&self, end: u64) -> Vec<Item<'a, S>> {
        let begun = self.items.iter().filter(|item| item.source.invoked <= end);
        begun
            .map(|item| {
                if item.returned > end {
                    item.pending()
                } else {
                    *item
                }
            })
            .filter(|item| item.ret.is_some() || item.effect(self.spec) != Effect::Pure)
            .collect()
    }

    /// Moves the beginning of the piece to the latest moment at which only pending operations run and from which the
    /// rest still fails.
    fn cut_beginning(&mut self) {
        let mut quiet = Vec::new();
        let mut busy_until = 0;
        for (at, item) in self.items.iter().enumerate() {
            if at > 0 && item.source.invoked > busy_until {
                quiet.push(at);
            }
            if item.ret.is_some() {
                busy_until = busy_until.max(item.returned);
            }
        }
        // A piece that fails also fails from an earlier beginning, so all cuts that fail come before those that do not.
        let (mut low, mut high) = (0, quiet.len());
        let mut best = None;
        while low < high {
            let middle = low.midpoint(high);
            let starts = self.states_before(quiet[middle]);
            let (before, rest) = self.items.split_at(quiet[middle]);
            let mut items: Vec<_> = before.iter().filter(|item| item.ret.is_none()).copied().collect();
            items.extend_from_slice(rest);
            if starts.len() <= START_COUNT_MAX && self.fails(&items, &starts) {
                best = Some((items, starts));
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if let Some((items, starts)) = best {
            (self.items, self.starts) = (items, starts);
        }
    }

    /// Returns every state that is possible just before item `at` is invoked, and possibly some that are not. Only
    /// pending operations may be running at that moment.
    fn states_before(&self, at: usize) -> Vec<S::State> {
        let made = |item: &Item<'a, S>| match item.effect(self.spec) {
            Effect::Sets(state) | Effect::Overwrites(state) => Some(state),
            _ => None,
        };
        let before = &self.items[..at];
        // A write that returned before another write was invoked cannot be the last write.
        let last_began = before
            .iter()
            .filter(|item| item.ret.is_some() && made(item).is_some());
        let last_began = last_began.map(|item| item.source.invoked).max();
        let mut states = if last_began.is_none() {
            self.starts.clone()
        } else {
            Vec::new()
        };
        for item in before
            .iter()
            .filter(|item| last_began.is_none_or(|began| item.returned >= began))
        {
            states.extend(made(item).filter(|state| !states.contains(state)));
        }
        states
    }

    /// Drops operations without which the piece still fails. The first round tries to drop halves of the piece, and
    /// each later round tries smaller parts.
    fn drop_bystanders(&mut self) {
        let mut trials = TRIAL_COUNT_MAX;
        for whole_values in [true, false] {
            let mut part = self.droppable(whole_values).len().div_ceil(2);
            while part > 0 {
                let mut from = 0;
                loop {
                    let units = self.droppable(whole_values);
                    if from >= units.len() || trials == 0 {
                        break;
                    }
                    trials -= 1;
                    let out: HashSet<usize> = units[from..units.len().min(from + part)]
                        .iter()
                        .flatten()
                        .copied()
                        .collect();
                    let kept = self
                        .items
                        .iter()
                        .filter(|item| !out.contains(&item.position))
                        .copied();
                    let kept: Vec<_> = kept.collect();
                    let starts = self.starts.clone();
                    if self.fails(&kept, &starts) {
                        self.items = kept
                    } else {
                        from += part
                    }
                }
                part = if part == 1 { 0 } else { part.div_ceil(2) };
            }
        }
    }

    /// Returns sets of positions that may be removed together. With `whole_values`, a set contains an overwrite and
    /// all operations that see its value. Otherwise, a set contains a single operation that changes nothing.
    fn droppable(&self, whole_values: bool) -> Vec<Vec<usize>> {
        let effects: Vec<_> = self.items.iter().map(|item| item.effect(self.spec)).collect();
        let mut viewers: HashMap<&S::State, Vec<usize>> = HashMap::new();
        for (item, effect) in self.items.iter().zip(&effects) {
            if let Effect::PureIn(state) = effect {
                viewers.entry(state).or_default().push(item.position);
            }
        }
        let units = self
            .items
            .iter()
            .zip(&effects)
            .filter_map(|(item, effect)| match effect {
                Effect::Overwrites(state) if whole_values => {
                    let mut unit = viewers.get(state).cloned().unwrap_or_default();
                    unit.push(item.position);
                    Some(unit)
                }
                Effect::Pure | Effect::PureIn(_) if !whole_values => Some(vec![item.position]),
                _ => None,
            });
        units.collect()
    }

    fn lines(&self) -> Vec<String> {
        let last = self
            .items
            .iter()
            .filter(|item| item.ret.is_some())
            .map(|item| item.returned)
            .max();
        let mark = |item: &Item<'a, S>| {
            if Some(item.returned) == last {
                "   <- can't be explained"
            } else {
                ""
            }
        };
        let is_quiet = |item: &&Item<'a, S>| item.ret.is_none();
        let quiet = self.items.iter().filter(is_quiet).count();
        let shown = self
            .items
            .iter()
            .filter(|item| quiet <= PENDING_COUNT_MAX || !is_quiet(item));
        let mut lines: Vec<String> = shown.map(|item| self.line(item) + mark(item)).collect();
        if quiet > PENDING_COUNT_MAX {
            lines.push(format!(
                "and {quiet} operations that had not returned, none of which helps"
            ));
        }
        lines
    }

    /// Returns the last [`WRITER_COUNT_MAX`] writes among `all` that are not in the piece, and whose states the piece
    /// begins with or sees. Writes that were invoked after all operations of the piece are left out.
    fn writers(&self, all: &[Item<'a, S>]) -> Vec<String> {
        let seen = self.items.iter().filter_map(|item| match item.effect(self.spec) {
            Effect::PureIn(state) => Some(state),
            _ => None,
        });
        let states: HashSet<S::State> = seen.chain(self.starts.iter().cloned()).collect();
        let inside: HashSet<usize> = self.items.iter().map(|item| item.position).collect();
        let last = self.items.iter().map(|item| item.source.invoked).max();
        let writes = all.iter().filter(|item| {
            let makes = match item.effect(self.spec) {
                Effect::Sets(state) | Effect::Overwrites(state) => states.contains(&state),
                _ => false,
            };
            makes && !inside.contains(&item.position) && Some(item.source.invoked) <= last
        });
        let mut lines: Vec<String> = writes.map(|item| self.line(item)).collect();
        lines.drain(..lines.len().saturating_sub(WRITER_COUNT_MAX));
        lines
    }

    fn line(&self, item: &Item<'a, S>) -> String {
        let times = self
            .items
            .iter()
            .flat_map(|item| [item.source.invoked, item.returned]);
        let width = times
            .filter(|&at| at != u64::MAX)
            .max()
            .unwrap_or(0)
            .to_string()
            .len();
        let (client, invoked, op) = (item.source.client, item.source.invoked, &item.source.op);
        match item.ret {
            Some(ret) => format!(
                "client {client:>3}  [{invoked:>width$}, {:>width$}]  {op:?} -> {ret:?}",
                item.returned
            ),
            None => format!(
                "client {client:>3}  [{invoked:>width$}, {:>width$}]  {op:?} -> not yet known",
                "?"
            ),
        }
    }
}
