//! Small sequential specifications.

use dm_history::{Effect, Spec};

/// No operations are recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSpec;

impl Spec for NoSpec {
    type Key = ();
    type Op = ();
    type Ret = ();
    type State = ();
    fn key(&self, (): &()) {}
    fn initial(&self, (): &()) {}
    fn step(&self, (): &(), (): &(), _: Option<&()>) -> Option<()> {
        Some(())
    }
}

/// An operation on a [`Counter`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CounterOp {
    /// Adds, and answers what was there before.
    Add(u64),
    /// Reads.
    Get,
}

/// A counter that starts at this value; operations answer what it held before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter(pub u64);

impl Spec for Counter {
    type Key = ();
    type Op = CounterOp;
    type Ret = u64;
    type State = u64;
    fn key(&self, _: &CounterOp) {}
    fn initial(&self, (): &()) -> u64 {
        self.0
    }
    fn step(&self, state: &u64, op: &CounterOp, ret: Option<&u64>) -> Option<u64> {
        if ret.is_some_and(|r| r != state) {
            return None;
        }
        match op {
            CounterOp::Add(n) => Some(state.wrapping_add(*n)),
            CounterOp::Get => Some(*state),
        }
    }
}

/// An operation on a [`Register`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegisterOp<T> {
    /// Reads.
    Read,
    /// Writes.
    Write(T),
}

/// A register that starts at this value. A read answers `Some`, a write `None`.
///
/// A word of one line is a register; a value that is written in two halves is none:
/// ```
/// use dm_explore::{Client, Model, Register, RegisterOp, Search};
/// use dm_verbs::{NodeId, RemotePtr, Verbs};
///
/// let model = |low: RemotePtr, high: RemotePtr| {
///     let write = move |c: Client<(), Register<(u64, u64)>>| async move {
///         let run = async {
///             c.verbs().write(low, &1u64.to_le_bytes()).await.unwrap();
///             c.verbs().write(high, &1u64.to_le_bytes()).await.unwrap();
///             None
///         };
///         c.op(RegisterOp::Write((1, 1)), run).await;
///     };
///     let read = move |c: Client<(), Register<(u64, u64)>>| async move {
///         let run = async { Some((c.verbs().word(low).await.unwrap(), c.verbs().word(high).await.unwrap())) };
///         c.op(RegisterOp::Read, run).await;
///     };
///     Model::new("register").spec(Register((0, 0))).client("writer", 0, write).client("reader", 1, read)
/// };
/// let word = RemotePtr::new(NodeId(0), 64).unwrap();
/// assert!(model(word, word).run(Search::exhaustive()).is_pass());
/// assert!(model(word, word.add(8)).run(Search::exhaustive()).counterexample().is_some());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Register<T>(pub T);

impl<T: Clone + Eq + core::hash::Hash + core::fmt::Debug> Spec for Register<T> {
    type Key = ();
    type Op = RegisterOp<T>;
    type Ret = Option<T>;
    type State = T;
    fn key(&self, _: &RegisterOp<T>) {}
    fn initial(&self, (): &()) -> T {
        self.0.clone()
    }
    fn step(&self, state: &T, op: &RegisterOp<T>, ret: Option<&Option<T>>) -> Option<T> {
        match (op, ret) {
            (RegisterOp::Read, Some(Some(seen))) => (seen == state).then(|| state.clone()),
            (RegisterOp::Write(value), None | Some(None)) => Some(value.clone()),
            _ => None,
        }
    }
    fn effect(&self, op: &RegisterOp<T>, ret: Option<&Option<T>>) -> Effect<T> {
        match (op, ret) {
            (RegisterOp::Read, Some(Some(seen))) => Effect::PureIn(seen.clone()),
            (RegisterOp::Read, _) => Effect::Pure,
            (RegisterOp::Write(value), _) => Effect::Overwrites(value.clone()),
        }
    }
}
