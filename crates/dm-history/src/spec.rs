//! The sequential specification against which a history is checked.

use std::fmt::Debug;
use std::hash::Hash;

/// A sequential specification. Each key is an independent object.
///
/// [`Spec::step`] is the specification. The methods after it only speed up the search. Their defaults are correct, but
/// slow. If an implementation of them is wrong, verdicts are wrong.
///
/// This example is a counter, whose `add` returns the previous value:
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
/// history.respond(b, 0, 40); // both saw 0, so an update is lost
/// assert!(!check(&Counter, &history, Limits::default()).is_linearizable());
/// ```
pub trait Spec {
    /// Identifies an independent object. Use `()` if there is only one object.
    type Key: Clone + Eq + Hash + Debug;
    /// An invocation.
    type Op: Debug;
    /// A result.
    type Ret: Debug;
    /// The state of the object of one key.
    type State: Clone + Eq + Hash + Debug;

    /// Returns the object to which `op` belongs.
    fn key(&self, op: &Self::Op) -> Self::Key;

    /// Returns the state of `key`'s object before the history began.
    fn initial(&self, key: &Self::Key) -> Self::State;

    /// Runs `op` in `state`. If there is a result, returns the state afterwards, or `None` if `op` cannot have this
    /// result in `state`. If there is no result (the operation is pending), returns the state after `op` took effect,
    /// or `None` if `op` would change nothing.
    fn step(&self, state: &Self::State, op: &Self::Op, ret: Option<&Self::Ret>) -> Option<Self::State>;

    /// Returns the state that `op` with this result sees, and the state that it leaves, if these do not depend on the
    /// state before.
    fn effect(&self, op: &Self::Op, ret: Option<&Self::Ret>) -> Effect<Self::State> {
        let _ = (op, ret);
        Effect::Unknown
    }

    /// Returns whether only operations that are [`Effect::PureIn`] one of the two states can distinguish the states.
    fn alike(&self, left: &Self::State, right: &Self::State) -> bool {
        left == right
    }

    /// Returns the class of `op`, or `None` if no other operation can replace it. Operations of one class are
    /// interchangeable except for the value that they leave. All pending operations of a class must be possible in the
    /// same states. All operations of the class that have returned must be possible in the same states too, and in
    /// these states the pending ones must also be possible. The states that all of them leave must be [`Spec::alike`].
    fn class(&self, op: &Self::Op, ret: Option<&Self::Ret>) -> Option<u8> {
        let _ = (op, ret);
        None
    }
}

/// The known effect of an operation, independent of the state in which it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<State> {
    /// The effect is not known. If a key has such an operation, its check is a plain search.
    Unknown,
    /// The operation never changes the state.
    Pure,
    /// The operation never changes the state, and is possible only in this state: it reads a value.
    PureIn(State),
    /// The operation leaves this state whenever it is possible.
    Sets(State),
    /// The operation leaves this state, like `Sets`. Only an operation that is `PureIn` this state, or `PureIn` the
    /// state before, can show whether the overwrite took place.
    Overwrites(State),
}
