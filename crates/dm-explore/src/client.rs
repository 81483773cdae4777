//! The client of a model: its verbs, the state that its compute node shares, and the methods that report to
//! the explorer.

use core::cell::RefCell;
use core::fmt;
use core::future::Future;
use core::hash::Hash;
use std::rc::Rc;

use dm_history::Spec;
use dm_verbs::trace::What;
use dm_verbs::{Control, ControlRequest, NodeId};

use crate::endpoint::Endpoint;
use crate::fp::{Fp, FpMap};
use crate::machine::DETECTOR;
use crate::verdict::Failure;

/// Operations and results with their fingerprints. The machine stores only the fingerprints.
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
    /// Returns the client's verbs.
    pub fn verbs(&self) -> &Endpoint {
        &self.verbs
    }

    /// Returns the state that the clients of its compute node share.
    pub fn shared(&self) -> &S {
        &self.shared
    }

    /// Enters the section `section`, in which only one client may be at a time. The model fails if two
    /// clients are inside.
    pub fn enter(&self, section: &'static str) {
        self.enter_up_to(section, 1);
    }

    /// Enters a section in which at most `limit` clients may be at a time.
    pub fn enter_up_to(&self, section: &'static str, limit: u32) {
        self.verbs
            .machine()
            .monitor_enter(self.verbs.number(), section, limit);
    }

    /// Leaves the section.
    pub fn leave(&self, section: &'static str) {
        self.verbs.machine().monitor_leave(self.verbs.number(), section);
    }

    /// Sets the ghost variable `name`. A ghost variable belongs to the model and not to this client. No protocol reads
    /// it; invariants read it with [`End::ghost`](crate::End::ghost). It changes in the same step in which the client
    /// makes this call, together with everything that the client does and posts until its next await.
    ///
    /// A variable that no client has set is 0. Its value is part of the state, so it must not grow without bound: a
    /// variable that counts the iterations of a waiting loop makes the search endless. If a failed attempt of a retry
    /// loop sets a value, the value stays set.
    ///
    /// ```
    /// use dm_explore::{Client, Model, NoSpec, Search};
    /// use dm_verbs::{NodeId, RemotePtr, Verbs};
    ///
    /// // The ghost gets the new value in the step that posts the WRITE, so it is never behind memory.
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

    /// Declares that the client waits for `section` from now on, until it enters the section. [`crate::Model::bypass`]
    /// counts how often other clients enter the section in the meantime. Call this when the protocol has fixed the
    /// client's place in the order, for example after the client has taken a ticket.
    pub fn waits(&self, section: &'static str) {
        self.verbs.machine().wait_for(self.verbs.number(), section);
    }

    /// Fails the model unless `holds` is true. Use this, for example, to check a value that the client has read.
    pub fn check(&self, holds: bool, why: impl FnOnce() -> String) {
        if !holds {
            let client = self.verbs.number();
            let failure = Failure::Check { client, why: why() };
            self.verbs.machine().fail(failure);
        }
    }

    /// Advances the clock by `time` for all clients. They see the clock only with [`crate::Elapsed::Clock`].
    pub fn pass_time(&self, time: dm_verbs::Nanos) {
        self.verbs.machine().pass_time(self.verbs.number(), time.0);
    }

    /// Asks a perfect failure detector whether the client with this number (from 0, in the order of addition) has
    /// crashed. Returns `false` to a client that has been fenced. Like every request to the control plane, this is one
    /// step. Use it in a [`survivor`](crate::Model::survivor).
    pub async fn has_crashed(&self, client: usize) -> bool {
        // A node number above all memory nodes stands for the client, so that this is a step of the control plane.
        let node = NodeId(DETECTOR + client as u16);
        self.verbs.call(ControlRequest::Describe { node }).await.is_ok()
    }

    /// Records a value for the invariants, which read it with [`End::outputs`](crate::End::outputs).
    pub fn output(&self, value: u64) {
        self.verbs.machine().output(self.verbs.number(), value);
    }

    /// Promises that the client's further behaviour does not depend on anything that it has observed before this call,
    /// but only on how often it has called `forget` and on what it observes from now on. This is true, for example,
    /// between the operations of a client without local state. The promise reduces the number of states. **A false
    /// promise makes a pass worthless.**
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
    /// Runs an operation and records it. The operation counts as invoked at its first unit, section, wake-up or request
    /// to the control plane, or at its end if it has none of these. It counts as returned when `run` ends.
    pub async fn op(&self, op: P::Op, run: impl Future<Output = P::Ret>) -> P::Ret {
        self.begin(op);
        let ret = run.await;
        self.end(&ret);
        ret
    }

    /// Runs and records an operation that may fail with an unknown effect. If `run` returns `None`, the operation stays
    /// pending for ever.
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
