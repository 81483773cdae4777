//! Small sequential specifications.

use dm_history::{Effect, Spec};

/// The specification of a model that records no operations.
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
    /// Adds to the counter and returns its old value.
    Add(u64),
    /// Returns the value.
    Get,
}

/// The specification of a counter that starts at this value. Each operation returns the value before the operation.
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
    /// Reads the value.
    Read,
    /// Writes a value.
    Write(T),
}

/// The specification of a register that starts at this value. A read returns `Some`, and a write returns `None`.
///
/// Sixteen bytes within one line behave as a register; sixteen bytes across the end of a line do not:
/// ```
/// use dm_explore::{Client, Model, Register, RegisterOp, Search};
/// use dm_verbs::{NodeId, RemotePtr, Verbs};
///
/// type Pair = Register<Vec<u8>>;
/// let model = |offset| {
///     let at = RemotePtr::new(NodeId(0), offset).unwrap();
///     let write = move |c: Client<(), Pair>| async move {
///         let run = async {
///             c.verbs().write(at, &[1; 16]).await.unwrap();
///             None
///         };
///         c.op(RegisterOp::Write(vec![1; 16]), run).await;
///     };
///     let read = move |c: Client<(), Pair>| async move {
///         let run = async { Some(c.verbs().read(at, 16).await.unwrap().to_vec()) };
///         c.op(RegisterOp::Read, run).await;
///     };
///     let model = Model::new("register").spec(Register(vec![0; 16]));
///     model.client("writer", 0, write).client("reader", 1, read)
/// };
/// assert!(model(64).run(Search::exhaustive()).is_pass());
/// assert!(model(120).run(Search::exhaustive()).counterexample().is_some());
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
