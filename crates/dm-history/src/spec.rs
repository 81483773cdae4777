//! The sequential specification that a history is checked against.

use std::fmt::Debug;
use std::hash::Hash;

/// A sequential specification, one independent object per key.
///
/// Only [`Spec::step`] decides a verdict. The methods after it are advice that saves search. Wrong advice
/// gives wrong verdicts; no advice (the default) only makes the check slow.
///
/// A counter, whose `add` answers what was there before:
///
/// ```
/// use dm_history::{History, Limits, Spec, check};
///
/// struct Counter;
/// impl Spec for Counter {
///     type Key = ();
///     type Op = u64; // how much is added
///     type Ret = u64;
///     type State = u64;
///     fn key(&self, _: &u64) {}
///     fn initial(&self, _: &()) -> u64 {
///         0
///     }
///     fn step(&self, state: &u64, add: &u64, ret: Option<&u64>) -> Option<u64> {
///         ret.is_none_or(|ret| ret == state).then_some(state + add)
///     }
/// }
///
/// let mut history = History::new();
/// let (a, b) = (history.invoke(0, 1, 10), history.invoke(1, 1, 20));
/// history.respond(a, 0, 30);
/// history.respond(b, 0, 40); // both saw nothing: an update is lost
/// assert!(!check(&Counter, &history, Limits::default()).is_linearizable());
/// ```
pub trait Spec {
    /// Names an independent object; an object that is not made of parts uses `()`.
    type Key: Clone + Eq + Hash + Debug;
    /// An invocation.
    type Op: Debug;
    /// A result.
    type Ret: Debug;
    /// The state of the object of one key.
    type State: Clone + Eq + Hash + Debug;

    /// Returns the object that `op` belongs to.
    fn key(&self, op: &Self::Op) -> Self::Key;

    /// Returns the state of `key`'s object before the history began.
    fn initial(&self, key: &Self::Key) -> Self::State;

    /// Runs `op` in `state`. If there is a result, returns the state afterwards, or `None` if `op` cannot
    /// give that result here. If there is none (a pending operation), returns the state after it took effect,
    /// or `None` if it would change nothing.
    fn step(&self, state: &Self::State, op: &Self::Op, ret: Option<&Self::Ret>) -> Option<Self::State>;

    /// Returns what `op` with this result can see and which state it leaves, whatever the state before.
    fn effect(&self, op: &Self::Op, ret: Option<&Self::Ret>) -> Effect<Self::State> {
        let _ = (op, ret);
        Effect::Unknown
    }

    /// Returns whether no operation can distinguish the two states, except those that are [`Effect::PureIn`]
    /// one of them.
    fn alike(&self, left: &Self::State, right: &Self::State) -> bool {
        left == right
    }

    /// Returns the group of operations that are interchangeable except for the value that they leave. All
    /// pending ones of a group must be possible in the same states. All that returned must be too; in these
    /// states the pending ones must also be possible, and the states that they leave there must be
    /// [`Spec::alike`].
    fn class(&self, op: &Self::Op, ret: Option<&Self::Ret>) -> Option<u8> {
        let _ = (op, ret);
        None
    }
}

/// The knowledge about an operation before its state is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<State> {
    /// Nothing is known. One such operation makes the check of its key a plain search.
    Unknown,
    /// Never changes the state.
    Pure,
    /// Never changes the state, and is possible only in this state: a read of a value.
    PureIn(State),
    /// Leaves this state whenever it is possible.
    Sets(State),
    /// The same as `Sets`, and only a `PureIn` of this state or of the one before can tell whether it took
    /// place: an overwrite.
    Overwrites(State),
}
