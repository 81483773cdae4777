//! What a sequential object does: the one thing a history is checked against.

use std::fmt::Debug;
use std::hash::Hash;

/// A sequential specification, one independent object per key.
///
/// Only [`Spec::step`] decides a verdict. The methods after it are advice that saves search; wrong advice gives wrong
/// verdicts, no advice (the default) only slow ones.
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

    /// The object that `op` belongs to.
    fn key(&self, op: &Self::Op) -> Self::Key;

    /// The state of `key`'s object before the history began.
    fn initial(&self, key: &Self::Key) -> Self::State;

    /// Runs `op` in `state`. With a result: the state afterwards, or `None` if `op` can't give that result here.
    /// Without one (a pending operation): the state after it took effect, or `None` if it would change nothing.
    fn step(&self, state: &Self::State, op: &Self::Op, ret: Option<&Self::Ret>) -> Option<Self::State>;

    /// What `op` with this result can see and leave behind, whatever the state.
    fn effect(&self, op: &Self::Op, ret: Option<&Self::Ret>) -> Effect<Self::State> {
        let _ = (op, ret);
        Effect::Unknown
    }

    /// Are the two states the same to every operation but those that are [`Effect::PureIn`] one of them?
    fn alike(&self, left: &Self::State, right: &Self::State) -> bool {
        left == right
    }

    /// The group of operations that can stand in for each other, but for the value they leave. All its pending
    /// ones must be possible in the same states; so must all that returned, and there the pending ones too, and
    /// what they leave there must be [`Spec::alike`].
    fn class(&self, op: &Self::Op, ret: Option<&Self::Ret>) -> Option<u8> {
        let _ = (op, ret);
        None
    }
}

/// What is known of an operation before its state is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<State> {
    /// Nothing is known. One such operation makes the check of its key a plain search.
    Unknown,
    /// Never changes the state.
    Pure,
    /// Never changes the state and is possible in this one only: a read of a value.
    PureIn(State),
    /// Wherever it is possible, it leaves this state.
    Sets(State),
    /// As `Sets`; and nothing but a `PureIn` of this state or of the one before can tell whether it took place:
    /// an overwrite.
    Overwrites(State),
}
