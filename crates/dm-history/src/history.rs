//! The record of a run: the operations of each client, the times at which they began and ended, and their
//! results.

/// One operation of a history: its interval and, if it ended, its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<Op, Ret> {
    /// The client that ran the operation. The operations of one client keep their order even if their times are equal,
    /// because the clock may be coarse.
    pub client: u32,
    /// The invocation.
    pub op: Op,
    /// The time of the invocation.
    pub invoked: u64,
    /// The time of the return, and the result. `None` means that the operation is pending: it may take effect at any
    /// later time or never.
    pub returned: Option<(u64, Ret)>,
}

/// A handle of an invocation, until its response is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "an invocation without a response stays pending for ever"]
pub struct CallId(usize);

/// Invocations and responses of all clients.
///
/// The caller provides the times, from any clock that is monotone across clients (a simulator's virtual time, a shared
/// counter, a monotone host clock). Operation `a` is before `b` if `a` returned at an earlier time than `b` was
/// invoked. If both times are equal, `a` is before `b` only if both belong to one client and `a` was recorded first.
/// All other pairs are concurrent. So a coarse clock can hide an error, but never makes a correct history fail.
///
/// ```
/// use dm_history::{History, KvOp, KvRet};
/// let mut history: History<KvOp<u64, u64>, KvRet<u64>> = History::new();
/// let put = history.invoke(3, KvOp::Upsert(1, 5), 100);
/// let lost = history.invoke(4, KvOp::Remove(1), 110); // its client dies, so it stays pending
/// history.respond(put, KvRet::Inserted, 120);
/// let _ = lost;
/// assert_eq!(history.pending_count(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct History<Op, Ret> {
    /// `None` if the invocation was withdrawn.
    slots: Vec<Option<Operation<Op, Ret>>>,
}

impl<Op, Ret> Default for History<Op, Ret> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<Op, Ret> History<Op, Ret> {
    /// Makes an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `client` began `op` at time `at`.
    pub fn invoke(&mut self, client: u32, op: Op, at: u64) -> CallId {
        self.slots.push(Some(Operation {
            client,
            op,
            invoked: at,
            returned: None,
        }));
        CallId(self.slots.len() - 1)
    }

    /// Records the result of `call`.
    ///
    /// # Panics
    /// Panics if the recording is invalid: the call already has a result or was withdrawn, or returns before it was
    /// invoked. A verdict on such a recording would mean nothing. A call of another history is detected only if this
    /// history has no open call with the same number.
    pub fn respond(&mut self, call: CallId, ret: Ret, at: u64) {
        let slot = self.slots.get_mut(call.0).and_then(Option::as_mut);
        let operation = slot.expect("the call belongs to this history and was not withdrawn");
        assert!(operation.returned.is_none(), "a call returns once");
        assert!(
            operation.invoked <= at,
            "a call returns at or after its invocation"
        );
        operation.returned = Some((at, ret));
    }

    /// Removes an invocation that certainly had no effect, for example because its verb was refused before it was
    /// posted. If this is not certain, leave the invocation pending.
    pub fn withdraw(&mut self, call: CallId) {
        if let Some(slot) = self.slots.get_mut(call.0) {
            *slot = None;
        }
    }

    /// Adds an operation together with its result, if it has one.
    ///
    /// # Panics
    /// Panics if the operation returns before it was invoked.
    pub fn push(&mut self, operation: Operation<Op, Ret>) {
        if let Some((at, _)) = &operation.returned {
            assert!(
                operation.invoked <= *at,
                "a call returns at or after its invocation"
            );
        }
        self.slots.push(Some(operation));
    }

    /// Appends another client's recording. Both recordings must use the same clock. A [`CallId`] of the other recording
    /// is not valid in this one.
    pub fn append(&mut self, other: Self) {
        self.slots.extend(other.slots);
    }

    /// Returns the operations, in the order in which they were recorded.
    pub fn operations(&self) -> impl Iterator<Item = &Operation<Op, Ret>> {
        self.slots.iter().flatten()
    }

    /// Returns the number of operations, pending ones included.
    #[must_use]
    pub fn operation_count(&self) -> usize {
        self.operations().count()
    }

    /// Returns the number of operations without a result.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.operations()
            .filter(|operation| operation.returned.is_none())
            .count()
    }
}

impl<Op, Ret> Extend<Operation<Op, Ret>> for History<Op, Ret> {
    fn extend<I: IntoIterator<Item = Operation<Op, Ret>>>(&mut self, operations: I) {
        for operation in operations {
            self.push(operation);
        }
    }
}

impl<Op, Ret> FromIterator<Operation<Op, Ret>> for History<Op, Ret> {
    fn from_iter<I: IntoIterator<Item = Operation<Op, Ret>>>(operations: I) -> Self {
        let mut history = Self::new();
        history.extend(operations);
        history
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withdrawn_calls_are_gone_and_unanswered_ones_pending() {
        let mut history: History<&str, ()> = History::new();
        let refused = history.invoke(0, "refused", 1);
        let answered = history.invoke(1, "answered", 2);
        let _crashed = history.invoke(2, "crashed", 3);
        history.withdraw(refused);
        history.respond(answered, (), 5);
        assert_eq!(
            history.operations().map(|o| o.op).collect::<Vec<_>>(),
            ["answered", "crashed"]
        );
        assert_eq!((history.operation_count(), history.pending_count()), (2, 1));
    }

    #[test]
    #[should_panic(expected = "a call returns once")]
    fn a_second_answer_is_refused() {
        let mut history: History<(), ()> = History::new();
        let call = history.invoke(0, (), 1);
        history.respond(call, (), 2);
        history.respond(call, (), 3);
    }
}
