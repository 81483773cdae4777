//! A client as a model's program sees it: its verbs, what its compute node shares, and the harness.

use core::cell::RefCell;
use core::fmt;
use core::future::Future;
use core::hash::Hash;
use std::rc::Rc;

use dm_history::Spec;
use dm_verbs::trace::What;

use crate::endpoint::Endpoint;
use crate::fp::{Fp, FpMap};
use crate::verdict::Failure;

/// Operations and results by their fingerprints, as the machine keeps them.
pub(crate) struct Recorded<P: Spec> {
    pub(crate) ops: FpMap<P::Op>,
    pub(crate) rets: FpMap<P::Ret>,
}

impl<P: Spec> Default for Recorded<P> {
    fn default() -> Self {
        Self {
            ops: FpMap::default(),
            rets: FpMap::default(),
        }
    }
}

/// One client of a model.
pub struct Client<S, P: Spec> {
    pub(crate) verbs: Endpoint,
    pub(crate) shared: Rc<S>,
    pub(crate) recorded: Rc<RefCell<Recorded<P>>>,
}

impl<S, P: Spec> fmt::Debug for Client<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("verbs", &self.verbs)
            .finish_non_exhaustive()
    }
}

impl<S, P: Spec> Client<S, P> {
    /// Its side of the seam.
    pub fn verbs(&self) -> &Endpoint {
        &self.verbs
    }

    /// What the clients of its compute node share.
    pub fn shared(&self) -> &S {
        &self.shared
    }

    /// Enters a section that one client at a time may be in, by name; two inside are a failure.
    pub fn enter(&self, section: &'static str) {
        self.enter_up_to(section, 1);
    }

    /// Enters a section that at most `limit` clients at a time may be in.
    pub fn enter_up_to(&self, section: &'static str, limit: u32) {
        self.verbs
            .machine()
            .monitor_enter(self.verbs.number(), section, limit);
    }

    /// Leaves it.
    pub fn leave(&self, section: &'static str) {
        self.verbs.machine().monitor_leave(self.verbs.number(), section);
    }

    /// Sets the ghost variable `name`, which is the model's and not this client's: no protocol reads it, and
    /// [`End::ghost`](crate::End::ghost) shows it to invariants. It changes in the step at which the client does this,
    /// together with what else the client does and posts up to its next await.
    ///
    /// A variable that nobody has set is 0. Its value is part of the state, so it must not grow without bound: one
    /// that counts the rounds of a waiting loop makes the search endless. What a failed attempt of a retry loop wrote
    /// stays written.
    ///
    /// ```
    /// use dm_explore::{Client, Model, NoSpec, Search};
    /// use dm_verbs::{NodeId, RemotePtr, Verbs};
    ///
    /// // What the memory is going to hold is announced in the step that posts it, and landed in no earlier one.
    /// let word = RemotePtr::new(NodeId(0), 64).unwrap();
    /// let model = Model::new("announced").client("A", 0, move |c: Client<(), NoSpec>| async move {
    ///     c.ghost("posted", 7);
    ///     c.verbs().write(word, &[7; 8]).await.unwrap();
    /// });
    /// let model = model.always("what landed was posted", move |now| {
    ///     let (landed, posted) = (now.word(word) & 0xFF, now.ghost("posted"));
    ///     if landed == 0 || landed == posted { Ok(()) } else { Err(format!("{landed}, not {posted}")) }
    /// });
    /// assert!(model.run(Search::exhaustive()).is_pass());
    /// ```
    pub fn ghost(&self, name: &'static str, value: u64) {
        self.verbs.machine().write_ghost(self.verbs.number(), name, value);
    }

    /// From here on, until it enters that section, the client waits for it: [`crate::Model::bypass`] counts who
    /// overtakes it. Say it where the protocol promises a place in the order: behind the ticket, not ahead of it.
    pub fn waits(&self, section: &'static str) {
        self.verbs.machine().wait_for(self.verbs.number(), section);
    }

    /// Fails the model unless `holds` (the integrity of a value, say).
    pub fn check(&self, holds: bool, why: impl FnOnce() -> String) {
        if !holds {
            let client = self.verbs.number();
            let failure = Failure::Check { client, why: why() };
            self.verbs.machine().fail(failure);
        }
    }

    /// So much time passes, for everybody, under [`crate::Elapsed::Clock`].
    pub fn pass_time(&self, time: dm_verbs::Nanos) {
        self.verbs.machine().pass_time(self.verbs.number(), time.0);
    }

    /// Notes a value for invariants at the end.
    pub fn output(&self, value: u64) {
        self.verbs.machine().output(self.verbs.number(), value);
    }

    /// Promises that how this client goes on is decided by how many times it has called this, and by nothing that it
    /// observed before: between operations of a client without memory, say. Saves states; **a false promise makes a
    /// pass worthless**.
    pub fn forget(&self) {
        self.verbs.machine().forget(self.verbs.number());
    }
}

impl<S, P> Client<S, P>
where
    P: Spec,
    P::Op: Clone + Hash,
    P::Ret: Clone + Hash,
{
    /// Runs an operation and records it: invoked at its first micro-step, returned when `run` ends.
    pub async fn op(&self, op: P::Op, run: impl Future<Output = P::Ret>) -> P::Ret {
        self.begin(op);
        let ret = run.await;
        self.end(&ret);
        ret
    }

    /// The same for an operation that may fail with its effect unknown (`None`): it stays pending for ever.
    pub async fn try_op(&self, op: P::Op, run: impl Future<Output = Option<P::Ret>>) -> Option<P::Ret> {
        self.begin(op);
        let ret = run.await;
        match &ret {
            Some(ret) => self.end(ret),
            None => self.verbs.machine().leave_pending(self.verbs.number()),
        }
        ret
    }

    fn begin(&self, op: P::Op) {
        let fp = Fp::of(&op);
        let mut m = self.verbs.machine();
        m.begin_operation(self.verbs.number(), fp);
        if let Some(log) = &mut m.log {
            let operation = format!("{op:?}");
            let text = format!("begins {operation}");
            log.then(self.verbs.number(), What::Begins { operation }, text);
        }
        self.recorded.borrow_mut().ops.insert(fp, op);
    }

    fn end(&self, ret: &P::Ret) {
        let fp = Fp::of(ret);
        let mut m = self.verbs.machine();
        let op = m.open_operation(self.verbs.number());
        m.end_operation(self.verbs.number(), fp);
        let mut recorded = self.recorded.borrow_mut();
        if let Some(log) = &mut m.log
            && let Some(op) = op.and_then(|op| recorded.ops.get(&op))
        {
            let (operation, value) = (format!("{op:?}"), format!("{ret:?}"));
            let text = format!("returns {operation} -> {value}");
            log.then(self.verbs.number(), What::Returns { operation, value }, text);
        }
        recorded.rets.entry(fp).or_insert_with(|| ret.clone());
    }
}
