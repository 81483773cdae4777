//! Executions: a runner takes steps one by one, with the clients' futures or with their recorded outcomes. For another
//! path, it begins a new execution or returns to a saved state.

use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
// This is std's `Arc`, even if dm-sync uses another one, because std's `Waker` requires it.
use std::sync::Arc as StdArc;
// This is also std's, because the panic hook belongs to the process.
use std::sync::Once;
use std::task::{Wake, Waker};

use dm_sync::atomic::{AtomicU64, Ordering};

use crate::fp::{Fp, FpMap, FpSet};
use crate::machine::client::Status;
use crate::machine::moves::Moves;
use crate::machine::saved::Saved;
use crate::machine::tape::Tape;
use crate::machine::{Machine, Then};
use crate::model::{End, Rules};
use crate::step::{Answers, Footprint, Step};
use crate::verdict::Failure;

pub(crate) type ClientFuture = Pin<Box<dyn Future<Output = ()>>>;

/// The reason why a search must stop in a state.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    /// The state breaks the model.
    Failed(Failure),
    /// The check of the history gave up on this number of operations on one key, so the history may or may not be
    /// linearizable.
    TooLarge { operations: usize },
}

/// A model behind a trait without type parameters.
pub(crate) trait Program {
    /// Drops the state of the current execution.
    fn reset(&self);
    /// Opens the shared state of compute nodes that must exist before any client starts.
    fn open_shared(&self, machine: &Rc<RefCell<Machine>>);
    fn start(&self, machine: &Rc<RefCell<Machine>>, client: u8) -> ClientFuture;
    /// Returns the hash of the shared state of compute node `node`, if the model has a fingerprint.
    fn fingerprint(&self, node: u16) -> Option<u64>;
    /// Checks that the operations recorded so far are linearizable. The error tells whether they are not, or whether
    /// there are too many of them for the check.
    fn check_history(&self, machine: &Machine) -> Result<(), Stop>;
}

/// A source of machines and programs. Each thread of a search makes its own pair.
pub(crate) trait Source: Sync {
    /// Returns a machine at the start, and the program that runs on it.
    fn make(&self) -> (Rc<RefCell<Machine>>, Box<dyn Program + '_>);
}

struct Flag {
    client: u8,
    woken: StdArc<AtomicU64>,
}

impl Wake for Flag {
    fn wake(self: StdArc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &StdArc<Self>) {
        // Relaxed: only the one thread that explores sets and takes it.
        self.woken.fetch_or(1 << self.client, Ordering::Relaxed);
    }
}

/// The result of taking a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) footprint: Footprint,
    pub(crate) asked: Answers,
}

/// The number of a tape.
type Did = u32;

pub(crate) struct Runner<'p> {
    pub(crate) machine: Rc<RefCell<Machine>>,
    program: &'p dyn Program,
    pub(crate) rules: &'p Rules,
    futures: Vec<Option<ClientFuture>>,
    wakers: Vec<Waker>,
    woken: StdArc<AtomicU64>,
    /// Hashes of histories that were checked and are linearizable.
    checked: FpSet,
    fingerprints: bool,
    /// Tapes by the points of clients at which they were recorded. At these points, the clients need not be polled
    /// again. Only searches that distinguish states by fingerprints use them. `None` in place of a tape means that the
    /// client accessed shared state, so a second look-up must include that state.
    known: Option<FpMap<Option<Did>>>,
    tapes: Vec<Tape>,
    /// The recorded outcomes of steps. Only searches that distinguish states by fingerprints use them.
    moves: Moves,
    /// The number of outcomes that this and other threads stored earlier and dropped since.
    pub(crate) forgotten: u64,
    /// The steps of the execution so far.
    path: Vec<(Step, Answers)>,
    opened: bool,
    /// `steps` counts the steps taken, including those of replays. `spared` counts the steps of replays that
    /// were avoided by restoring a saved state.
    pub(crate) steps: u64,
    /// The number of states that this thread has found in a depth-first search with a cache; 0 in other searches.
    pub(crate) states: u64,
    pub(crate) spared: u64,
    pub(crate) executions: u64,
    #[cfg(debug_assertions)]
    compared: u64,
}

impl<'p> Runner<'p> {
    pub(crate) fn new(machine: Rc<RefCell<Machine>>, program: &'p dyn Program, rules: &'p Rules) -> Self {
        hush();
        let clients = usize::from(machine.borrow().setup_client());
        let woken = StdArc::new(AtomicU64::new(0));
        let waker = |c| {
            Waker::from(StdArc::new(Flag {
                client: c as u8,
                woken: woken.clone(),
            }))
        };
        let fingerprints = machine.borrow().own_fingerprints;
        Self {
            program,
            rules,
            futures: (0..clients).map(|_| None).collect(),
            wakers: (0..clients).map(waker).collect(),
            woken,
            checked: FpSet::default(),
            fingerprints,
            known: None,
            tapes: Vec::new(),
            moves: Moves::default(),
            forgotten: 0,
            path: Vec::new(),
            opened: false,
            machine,
            spared: 0,
            steps: 0,
            states: 0,
            executions: 0,
            #[cfg(debug_assertions)]
            compared: 0,
        }
    }

    /// Sets whether tapes replace the polls of clients at points that they have reached before.
    pub(crate) fn spare_clients(&mut self, yes: bool) {
        self.forgotten = self.outcomes();
        self.known = yes.then(FpMap::default);
        self.moves = Moves::default();
    }

    /// Returns the number of fingerprints under which outcomes of steps were stored.
    pub(crate) fn outcomes(&self) -> u64 {
        let tapes = self.known.as_ref().map_or(0, FpMap::len);
        self.forgotten + (tapes + self.moves.inputs()) as u64
    }

    /// Returns whether the current state can be saved.
    pub(crate) fn can_save(&self) -> bool {
        self.known.is_some()
    }

    pub(crate) fn save(&self, saved: &mut Saved) {
        self.machine.borrow().save(saved);
    }

    /// Returns to `saved`, a state of this execution that was reached after `depth` steps.
    pub(crate) fn restore(&mut self, saved: &Saved, depth: usize) {
        self.executions += 1;
        self.spared += depth as u64;
        self.path.truncate(depth);
        let mut m = self.machine.borrow_mut();
        m.polled_clients = 0;
        m.restore(saved);
    }

    /// Begins a new execution.
    pub(crate) fn reset(&mut self) {
        self.executions += 1;
        self.path.clear();
        if self.known.is_some() && self.opened {
            self.machine.borrow_mut().polled_clients = 0;
            self.machine.borrow_mut().reset_opened();
            return;
        }
        self.begin();
        self.machine.borrow_mut().keep_opened();
        self.opened = true;
    }

    /// Begins an execution with fresh futures.
    fn begin(&mut self) {
        self.machine.borrow_mut().dead = true;
        for future in &mut self.futures {
            if let Some(future) = future.take() {
                // The destructors of clients that crashed or have not ended run now, without effect. A panic in them is
                // ignored.
                let _ = quietly(|| drop(future));
            }
        }
        self.program.reset();
        {
            let mut m = self.machine.borrow_mut();
            m.reset();
            m.polled_clients = u64::MAX;
        }
        self.woken.store(0, Ordering::Relaxed); // Relaxed: one thread.
        self.program.open_shared(&self.machine);
        // A saved state counts the changes of memory before it, so opening must leave as many changes as
        // `reset_opened` does.
        self.machine.borrow_mut().mem.compact();
    }

    /// Takes `step`.
    pub(crate) fn take(&mut self, step: Step, answers: Answers) -> Taken {
        self.steps += 1;
        // Repeating a known move does not advance the client's future. So as long as the future has followed the
        // current execution, poll it instead.
        let input = if self.is_present(step.client) {
            None
        } else {
            self.input(step, answers)
        };
        if !input.is_some_and(|input| self.repeat(step, input)) {
            if input.is_some() && self.moves.has_room(self.states) {
                self.machine.borrow_mut().record(step.client);
            }
            let then = self.machine.borrow_mut().apply(step, answers);
            match then.client() {
                Some(c) if self.known.is_some() => self.act(step, answers, then, c),
                _ => self.run(then),
            }
            if let Some(input) = input {
                let mut m = self.machine.borrow_mut();
                self.moves.keep(input, &mut m, step.client);
            }
        }
        self.path.push((step, answers));
        let m = self.machine.borrow();
        Taken {
            footprint: m.footprint,
            asked: m.asked(),
        }
    }

    /// Returns whether the future of client `c` has followed the current execution.
    fn is_present(&self, c: u8) -> bool {
        self.machine.borrow().is_present(c)
    }

    /// Returns the hash of the input of `step`, if its outcome can be known.
    fn input(&self, step: Step, answers: Answers) -> Option<Fp> {
        if self.known.is_none() || answers.count > 0 {
            return None;
        }
        self.machine.borrow().input_hash(step)
    }

    /// Takes `step` if its outcome is known. Returns whether it is.
    fn repeat(&mut self, step: Step, input: Fp) -> bool {
        let mut m = self.machine.borrow_mut();
        let Some(known) = self.moves.get(input, || m.shared_with(step.client)) else {
            return false;
        };
        m.repeat(step, known);
        drop(m);
        #[cfg(debug_assertions)]
        self.compare(step, Answers::default());
        true
    }

    /// Carries out the actions of the client of the applied `step`: from a tape if there is one and the client's future
    /// has not followed the execution, and otherwise by polling the client.
    fn act(&mut self, step: Step, answers: Answers, then: Then, c: u8) {
        let (alone, looking) = {
            let m = self.machine.borrow();
            let alone = m.standing(step, answers);
            (alone, m.standing_with_node(alone, c))
        };
        match self.tape(alone, looking) {
            Some(did) if !self.is_present(c) => {
                self.perform(c, did);
                #[cfg(debug_assertions)]
                self.compare(step, answers);
            }
            Some(_) => self.run(then),
            None => {
                if !self.is_present(c) {
                    let _ = self.catch_up(step, answers);
                }
                self.machine.borrow_mut().tape = Some(Tape::default());
                self.run(then);
                let tape = self.machine.borrow_mut().tape.take().unwrap_or_default();
                let did = self.tapes.len() as Did;
                if let Some(known) = &mut self.known {
                    if tape.looked {
                        known.insert(alone, None);
                        known.insert(looking, Some(did));
                    } else {
                        known.insert(alone, Some(did));
                    }
                }
                self.tapes.push(tape);
            }
        }
    }

    /// Returns the tape of a client, which is stored under the point `alone`, or under the point `looking` if the
    /// client accesses the shared state of its compute node.
    fn tape(&self, alone: Fp, looking: Fp) -> Option<Did> {
        let known = self.known.as_ref()?;
        match known.get(&alone)? {
            Some(did) => Some(*did),
            None => known.get(&looking).copied().flatten(),
        }
    }

    /// Checks, in debug builds and only for some steps, that a polled client acts as recorded.
    #[cfg(debug_assertions)]
    fn compare(&mut self, step: Step, answers: Answers) {
        const ONE_IN: u64 = 53;
        self.compared += 1;
        if !self.compared.is_multiple_of(ONE_IN) {
            return;
        }
        let outcome = |runner: &Self| (runner.fingerprint(), runner.machine.borrow().footprint);
        let spared = outcome(self);
        let then = self.catch_up(step, answers);
        self.run(then);
        assert_eq!(
            spared,
            outcome(self),
            "the client of {step:?} acts differently at a point that it has reached before"
        );
    }

    /// Brings the future of the client of `step` to the machine's state, until only the poll of `step` remains. Returns
    /// the work that the runner must do then. Futures of other compute nodes share no local state with this client, so
    /// they are not polled if the outcomes of all their steps are known.
    fn catch_up(&mut self, step: Step, answers: Answers) -> Then {
        let neighbours = self.machine.borrow().neighbours(step.client);
        if !self.walk_again(neighbours) {
            let all = self.walk_again(u64::MAX);
            debug_assert!(all, "every future can be polled");
        }
        self.machine.borrow_mut().apply(step, answers)
    }

    /// Begins a new execution, and takes the steps of the path with the futures of `clients`, which are bits. Returns
    /// false if the outcome of a step of another client is not known.
    fn walk_again(&mut self, clients: u64) -> bool {
        self.begin();
        self.machine.borrow_mut().polled_clients = clients;
        for i in 0..self.path.len() {
            let (step, answers) = self.path[i];
            self.steps += 1;
            if self.is_present(step.client) {
                let then = self.machine.borrow_mut().apply(step, answers);
                self.run(then);
            } else if !self.take_known(step, answers) {
                return false;
            }
        }
        true
    }

    /// Takes a step of a client that is not polled. Returns false if the step's outcome is not known.
    fn take_known(&mut self, step: Step, answers: Answers) -> bool {
        let input = self.input(step, answers);
        let mut m = self.machine.borrow_mut();
        if let Some(known) = input.and_then(|input| self.moves.get(input, || m.shared_with(step.client))) {
            m.repeat(step, known);
            return true;
        }
        let Some(c) = m.apply(step, answers).client() else {
            return true;
        };
        let alone = m.standing(step, answers);
        let looking = m.standing_with_node(alone, c);
        drop(m);
        let Some(did) = self.tape(alone, looking) else {
            return false;
        };
        self.perform(c, did);
        true
    }

    /// Replays the tape `did` in place of client `c`.
    fn perform(&mut self, c: u8, did: Did) {
        let tape = &self.tapes[did as usize];
        let mut m = self.machine.borrow_mut();
        m.enter(c);
        m.perform(c, tape);
        m.leave(c, tape.end, tape.woken);
        if let Some(message) = &tape.panic {
            let message = message.clone();
            m.failure.get_or_insert(Failure::Panic { client: c, message });
        }
        if let Some(told) = tape.told {
            let node = m.clients[usize::from(c)].node;
            m.set_node_fingerprint(node, c, told);
        }
    }

    /// Carries out the consequences of a step by polling or dropping the client's future.
    fn run(&mut self, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Start(c) => {
                let future = self.program.start(&self.machine, c);
                self.futures[usize::from(c)] = Some(future);
                self.poll(c);
            }
            Then::Poll(c) => self.poll(c),
            Then::Drop(c) => {
                self.machine.borrow_mut().enter(c);
                let future = self.futures[usize::from(c)].take();
                let outcome = quietly(|| drop(future));
                self.after(c, Some(Status::Cancelled), outcome.err());
            }
        }
    }

    fn poll(&mut self, c: u8) {
        self.machine.borrow_mut().enter(c);
        let Some(future) = &mut self.futures[usize::from(c)] else {
            return;
        };
        let mut cx = Context::from_waker(&self.wakers[usize::from(c)]);
        let outcome = quietly(|| future.as_mut().poll(&mut cx));
        let (end, panic) = match outcome {
            Ok(Poll::Pending) => (None, None),
            Ok(Poll::Ready(())) => {
                self.futures[usize::from(c)] = None;
                (Some(Status::Done), None)
            }
            Err(panic) => (Some(Status::Done), Some(panic)),
        };
        self.after(c, end, panic);
    }

    fn after(&mut self, c: u8, end: Option<Status>, panic: Option<String>) {
        let woken = self.woken.swap(0, Ordering::Relaxed); // Relaxed: one thread.
        let mut m = self.machine.borrow_mut();
        m.leave(c, end, woken);
        let node = m.clients[usize::from(c)].node;
        let told = (self.fingerprints && m.footprint.nodes != 0)
            .then(|| self.program.fingerprint(node))
            .flatten();
        if let Some(tape) = &mut m.tape {
            // A client that entered no section did not change shared state. At the next replay the shared state may be
            // different, so its fingerprint is not stored.
            (tape.end, tape.woken, tape.told) = (end, woken, told.filter(|_| tape.looked));
            tape.panic.clone_from(&panic);
        }
        if let Some(message) = panic {
            m.failure.get_or_insert(Failure::Panic { client: c, message });
        }
        if let Some(told) = told {
            m.set_node_fingerprint(node, c, told);
        }
    }

    /// Returns why the search must stop in the current state, which a step with `footprint` has reached. Returns `None`
    /// if the search can go on.
    pub(crate) fn stop(&mut self, footprint: &Footprint) -> Option<Stop> {
        let m = self.machine.borrow();
        if let Some(failure) = &m.failure {
            return Some(Stop::Failed(failure.clone()));
        }
        if self.rules.lock_free
            && let Some(c) = m.waiter()
        {
            return Some(Stop::Failed(Failure::NotLockFree { clients: vec![c] }));
        }
        let history = if footprint.responds {
            self.explain(&m)
        } else {
            None
        };
        worse(history, || self.rules.broken(&self.rules.always, &End::new(&m)))
    }

    /// Returns why the search must stop because of the current history, if it must.
    fn explain(&self, m: &Machine) -> Option<Stop> {
        if self.checked.contains(&m.history_hash()) {
            return None;
        }
        self.program.check_history(m).err()
    }

    /// Records that the current history is linearizable.
    pub(crate) fn history_is_good(&mut self, footprint: &Footprint) {
        if footprint.responds {
            self.checked.insert(self.machine.borrow().history_hash());
        }
    }

    /// Returns why the search must stop in the current state, in which no step of progress is possible. Returns `None`
    /// if the search can go on.
    pub(crate) fn final_stop(&self) -> Option<Stop> {
        let clients = self.unfinished();
        if !(clients.is_empty() || self.may_hang()) {
            return Some(Stop::Failed(Failure::Stuck { clients }));
        }
        let m = self.machine.borrow();
        worse(self.explain(&m), || {
            self.rules.broken(&self.rules.at_end, &End::new(&m))
        })
    }

    /// Returns the clients that should have run to their end but have not.
    pub(crate) fn unfinished(&self) -> Vec<u8> {
        let m = self.machine.borrow();
        let waits = |&c: &u8| !m.clients[usize::from(c)].is_over() && !m.is_in_reserve(c);
        (0..m.setup_client()).filter(waits).collect()
    }

    /// Returns whether the model allows clients to wait for ever, in the current state and in all later ones.
    pub(crate) fn may_hang(&self) -> bool {
        let m = self.machine.borrow();
        let crashed = || m.clients.iter().any(|c| c.status == Status::Crashed);
        self.rules.crash_may_block && (m.has_failed() || crashed())
    }

    pub(crate) fn fingerprint(&self) -> Fp {
        self.machine.borrow().fingerprint()
    }

    pub(crate) fn offer(&self, into: &mut Vec<Step>) {
        self.machine.borrow().offer(into);
    }
}

/// Returns the reason to stop that a history gives, or else the one that `broken` gives. A broken invariant outweighs a
/// history that is too large, because the invariant is certainly broken.
fn worse(history: Option<Stop>, broken: impl FnOnce() -> Option<Failure>) -> Option<Stop> {
    match history {
        Some(Stop::Failed(_)) => history,
        None | Some(Stop::TooLarge { .. }) => broken().map(Stop::Failed).or(history),
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        self.machine.borrow_mut().dead = true;
        for future in &mut self.futures {
            let future = future.take();
            let _ = quietly(|| drop(future));
        }
        self.program.reset();
    }
}

std::thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Silences the panic hook for panics of clients, because the explorer reports these as failures.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
}

fn quietly<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    QUIET.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(f));
    QUIET.set(false);
    outcome.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "(no message)".to_owned())
    })
}
