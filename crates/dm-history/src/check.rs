//! The check of a whole history. Each key is checked separately.

use std::collections::HashMap;
use std::fmt;

use crate::counterexample::{Counterexample, cut_down};
use crate::history::History;
use crate::search::{Budget, Item, OutOfSteps, explains};
use crate::spec::{Effect, Spec};

/// Limits of the search that a check makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of steps (operations tried) per key. A step costs some tens of nanoseconds.
    pub steps_per_key: u64,
}

impl Limits {
    /// The steps per key of [`Limits::default`].
    pub const DEFAULT_STEPS_PER_KEY: u64 = 20_000_000;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps_per_key: Self::DEFAULT_STEPS_PER_KEY,
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug)]
#[must_use = "only `Linearizable` is a pass"]
pub enum Verdict<Key, State> {
    /// An order of the operations explains every result.
    Linearizable(Passed),
    /// No order explains every result. The counterexample is a small piece of the history that shows this.
    Counterexample(Box<Counterexample<Key, State>>),
    /// The check reached the limit of steps for a key, and no other key failed. The result is not known, so this is
    /// not a pass.
    TooLarge(TooLarge<Key>),
}

/// The amount of work that a passed check needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Number of operations, pending ones included.
    pub operations: usize,
    /// Number of keys, without those whose only operations are pending ones that cannot change the state.
    pub keys: usize,
    /// Number of steps of the search.
    pub steps: u64,
}

/// The first key for which the check reached the limit of steps, in the order in which the keys appear in the history.
///
/// ```
/// use dm_history::{History, KvMap, KvOp, KvRet, Limits, TooLarge, Verdict, check};
///
/// let mut history = History::new();
/// for (client, value) in [(0, 'a'), (1, 'b')] {
///     let put = history.invoke(client, KvOp::Upsert(7, value), 10);
///     history.respond(put, KvRet::Replaced, 20);
/// }
/// let verdict = check(&KvMap::loaded([(7, 'x')]), &history, Limits { steps_per_key: 1 });
/// assert!(matches!(verdict, Verdict::TooLarge(TooLarge { key: 7, operations: 2, .. })));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLarge<Key> {
    /// The key.
    pub key: Key,
    /// Number of operations of the key, without pending ones that cannot change its state.
    pub operations: usize,
    /// The limit of steps per key, which the check has reached.
    pub steps: u64,
}

impl<Key, State> Verdict<Key, State> {
    /// Returns whether the history passed.
    #[must_use]
    pub fn is_linearizable(&self) -> bool {
        matches!(self, Self::Linearizable(_))
    }
}

impl<Key: fmt::Debug, State: fmt::Debug> Verdict<Key, State> {
    /// Returns the amount of work if the check passed. Tests use this.
    ///
    /// # Panics
    /// Panics with the text of the verdict unless the history is linearizable.
    #[track_caller]
    pub fn expect_linearizable(self) -> Passed {
        match self {
            Self::Linearizable(passed) => passed,
            other => panic!("{other}"),
        }
    }
}

impl<Key: fmt::Debug, State: fmt::Debug> fmt::Display for Verdict<Key, State> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linearizable(Passed {
                operations,
                keys,
                steps,
            }) => {
                write!(
                    f,
                    "linearizable: {operations} operations on {keys} keys, {steps} steps"
                )
            }
            Self::Counterexample(found) => found.fmt(f),
            Self::TooLarge(TooLarge {
                key,
                operations,
                steps,
            }) => write!(
                f,
                "undecided: {steps} steps did not suffice for the {operations} operations on key {key:?}"
            ),
        }
    }
}

/// Checks that the operations of each key have a sequential order that `spec` allows and that agrees with every result.
/// If one operation returned before another one was invoked, it comes first in this order. The order may omit pending
/// operations.
///
/// ```
/// use dm_history::{History, KvMap, KvOp, KvRet, Limits, check};
/// let mut history = History::new();
/// let remove = history.invoke(0, KvOp::Remove(1), 10); // crashed: never returns
/// let first = history.invoke(1, KvOp::Get(1), 20);
/// history.respond(first, KvRet::Found('a'), 30);
/// let second = history.invoke(1, KvOp::Get(1), 40);
/// history.respond(second, KvRet::Absent, 50); // the remove took effect after all
/// # let _ = remove;
/// let passed = check(&KvMap::loaded([(1, 'a')]), &history, Limits::default()).expect_linearizable();
/// assert_eq!((passed.operations, passed.keys), (3, 1));
/// ```
pub fn check<S: Spec>(
    spec: &S,
    history: &History<S::Op, S::Ret>,
    limits: Limits,
) -> Verdict<S::Key, S::State> {
    let mut passed = Passed {
        operations: 0,
        keys: 0,
        steps: 0,
    };
    let mut undecided = None;
    for (key, items) in by_key(spec, history) {
        let mut budget = Budget::new(limits.steps_per_key);
        match explains(spec, &items, spec.initial(&key), &mut budget) {
            Ok(true) => {}
            Ok(false) => return Verdict::Counterexample(Box::new(cut_down(spec, key, &items, limits))),
            Err(OutOfSteps) => {
                let steps = limits.steps_per_key;
                undecided.get_or_insert(TooLarge {
                    key,
                    operations: items.len(),
                    steps,
                });
            }
        }
        passed.keys += 1;
        passed.steps += limits.steps_per_key - budget.left();
    }
    passed.operations = history.operation_count();
    undecided.map_or(Verdict::Linearizable(passed), Verdict::TooLarge)
}

/// Groups the operations by key, and sorts each group by invocation. The keys are in order of appearance. Pending
/// operations that cannot change the state are omitted.
fn by_key<'a, S: Spec>(spec: &S, history: &'a History<S::Op, S::Ret>) -> Vec<(S::Key, Vec<Item<'a, S>>)> {
    let mut places: HashMap<S::Key, usize> = HashMap::new();
    let mut keys: Vec<(S::Key, Vec<Item<'a, S>>)> = Vec::new();
    for (position, operation) in history.operations().enumerate() {
        let item = Item::new(position, operation);
        if item.ret.is_none() && item.effect(spec) == Effect::Pure {
            continue;
        }
        let key = spec.key(&operation.op);
        let place = *places.entry(key.clone()).or_insert(keys.len());
        if place == keys.len() {
            keys.push((key, Vec::new()));
        }
        keys[place].1.push(item);
    }
    for (_, items) in &mut keys {
        items.sort_by_key(|item| item.source.invoked); // stable: operations with equal times keep their order
    }
    keys
}
