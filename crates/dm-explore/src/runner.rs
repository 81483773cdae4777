//! Executions: steps taken one by one over clients' futures, and begun anew for each path.

use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
// std's, whatever dm-sync's are: wakers are made of its Arc, and the panic hook is a process's.
use std::sync::Arc as StdArc;
// std's own, as above.
use std::sync::Once;
use std::task::{Wake, Waker};

use dm_sync::atomic::{AtomicU64, Ordering};

use crate::fp::{Fp, FpMap, FpSet};
use crate::machine::client::Status;
use crate::machine::saved::Saved;
use crate::machine::tape::Tape;
use crate::machine::{Machine, Then};
use crate::model::{End, Rules};
use crate::step::{Answers, Footprint, Step};
use crate::verdict::Failure;

pub(crate) type ClientFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A model without its types.
pub(crate) trait Program {
    /// Forgets the execution.
    fn reset(&self);
    /// What compute nodes share that has to be there before anybody starts.
    fn open_shared(&self, machine: &Rc<RefCell<Machine>>);
    fn start(&self, machine: &Rc<RefCell<Machine>>, client: u8) -> ClientFuture;
    /// What compute node `node` holds, if it says so itself.
    fn fingerprint(&self, node: u16) -> Option<u64>;
    /// Whether the operations recorded so far can be explained; if not, why.
    fn check_history(&self, machine: &Machine) -> Result<(), String>;
}

/// Makes machines and programs: each thread of a search has its own.
pub(crate) trait Source: Sync {
    /// A machine at the start, and what runs on it.
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
        // Relaxed: set and taken by the one thread that explores.
        self.woken.fetch_or(1 << self.client, Ordering::Relaxed);
    }
}

/// What taking a step showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) footprint: Footprint,
    pub(crate) asked: Answers,
    /// What its client did, if it was noted.
    pub(crate) did: Option<Did>,
}

/// The number of a tape.
pub(crate) type Did = u32;

pub(crate) struct Runner<'p> {
    pub(crate) machine: Rc<RefCell<Machine>>,
    program: &'p dyn Program,
    pub(crate) rules: &'p Rules,
    futures: Vec<Option<ClientFuture>>,
    wakers: Vec<Waker>,
    woken: StdArc<AtomicU64>,
    /// Histories whose verdict is known to be good.
    checked: FpSet,
    fingerprints: bool,
    /// What clients did where they stood, so that they need not do it again; only searches that rely on states being
    /// told apart by fingerprints do this. `None` for a client that looked at shared state: that is asked for then.
    known: Option<FpMap<Option<Did>>>,
    tapes: Vec<Tape>,
    /// The execution so far.
    path: Vec<(Step, Answers, Option<Did>)>,
    /// Whether the futures stand where the machine does.
    present: bool,
    opened: bool,
    /// Steps taken, those of replays included, and steps of replays that going back to a saved state spared.
    pub(crate) steps: u64,
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
            path: Vec::new(),
            present: false,
            opened: false,
            machine,
            spared: 0,
            steps: 0,
            executions: 0,
            #[cfg(debug_assertions)]
            compared: 0,
        }
    }

    /// From here on: whether clients are spared doing again what is known that they do.
    pub(crate) fn spare_clients(&mut self, yes: bool) {
        self.known = yes.then(FpMap::default);
    }

    /// Whether the present state can be kept.
    pub(crate) fn can_save(&self) -> bool {
        self.known.is_some()
    }

    pub(crate) fn save(&self, saved: &mut Saved) {
        self.machine.borrow().save(saved);
    }

    /// Back to a state of this execution, which `depth` steps led to.
    pub(crate) fn restore(&mut self, saved: &Saved, depth: usize) {
        self.executions += 1;
        self.spared += depth as u64;
        self.path.truncate(depth);
        self.present = false;
        let mut m = self.machine.borrow_mut();
        m.deaf = true;
        m.restore(saved);
    }

    /// Begins a new execution.
    pub(crate) fn reset(&mut self) {
        self.executions += 1;
        self.path.clear();
        if self.known.is_some() && self.opened {
            self.present = false;
            self.machine.borrow_mut().deaf = true;
            self.machine.borrow_mut().reset_opened();
            return;
        }
        self.begin();
        self.machine.borrow_mut().keep_opened();
        self.opened = true;
    }

    /// Begins with fresh futures.
    fn begin(&mut self) {
        self.machine.borrow_mut().dead = true;
        for future in &mut self.futures {
            if let Some(future) = future.take() {
                // A crashed client's guards run now, without effect; if they panic nobody is there to care.
                let _ = quietly(|| drop(future));
            }
        }
        self.program.reset();
        {
            let mut m = self.machine.borrow_mut();
            m.reset();
            m.deaf = false;
        }
        self.woken.store(0, Ordering::Relaxed); // Relaxed: one thread.
        self.program.open_shared(&self.machine);
        // A kept state counts the changes of memory before it, so opening must leave as many as `reset_opened` does.
        self.machine.borrow_mut().mem.compact();
        self.present = true;
    }

    /// Takes `step`.
    pub(crate) fn take(&mut self, step: Step, answers: Answers) -> Taken {
        self.steps += 1;
        let then = self.machine.borrow_mut().apply(step, answers);
        let did = match then.client() {
            None => None,
            Some(c) if self.known.is_some() => Some(self.act(step, answers, then, c)),
            Some(_) => {
                self.run(then);
                None
            }
        };
        self.path.push((step, answers, did));
        let m = self.machine.borrow();
        Taken {
            footprint: m.footprint,
            asked: m.asked(),
            did,
        }
    }

    /// Takes `step` again, at which its client did that.
    pub(crate) fn retake(&mut self, step: Step, answers: Answers, did: Option<Did>) {
        let Some(did) = did.filter(|_| self.known.is_some() && !self.present) else {
            self.take(step, answers);
            return;
        };
        self.steps += 1;
        let then = self.machine.borrow_mut().apply(step, answers);
        if let Some(c) = then.client() {
            self.perform(c, did);
        }
        self.path.push((step, answers, Some(did)));
    }

    /// The client of `step`, which was applied, does what it does: from its tape, or else by itself.
    fn act(&mut self, step: Step, answers: Answers, then: Then, c: u8) -> Did {
        let (alone, looking) = {
            let m = self.machine.borrow();
            let alone = m.standing(step, answers);
            (alone, m.standing_with_node(alone, c))
        };
        let known = self.known.as_ref().and_then(|known| match known.get(&alone)? {
            Some(did) => Some(*did),
            None => known.get(&looking).copied().flatten(),
        });
        match known {
            Some(did) if !self.present => {
                self.perform(c, did);
                #[cfg(debug_assertions)]
                self.compare(step, answers, then);
                did
            }
            Some(did) => {
                self.run(then);
                did
            }
            None => {
                if !self.present {
                    self.catch_up(step, answers);
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
                did
            }
        }
    }

    /// Now and then, in tests: what the client did without being asked is what it does when asked.
    #[cfg(debug_assertions)]
    fn compare(&mut self, step: Step, answers: Answers, then: Then) {
        const ONE_IN: u64 = 53;
        self.compared += 1;
        if !self.compared.is_multiple_of(ONE_IN) {
            return;
        }
        let spared = self.fingerprint();
        self.catch_up(step, answers);
        self.run(then);
        assert_eq!(
            spared,
            self.fingerprint(),
            "the client of {step:?} does something else than it did where it stood the same"
        );
    }

    /// Brings the futures to where the machine is, short of what the client of `step` does.
    fn catch_up(&mut self, step: Step, answers: Answers) {
        self.begin();
        for i in 0..self.path.len() {
            let (step, answers, _) = self.path[i];
            self.steps += 1;
            let then = self.machine.borrow_mut().apply(step, answers);
            self.run(then);
        }
        self.machine.borrow_mut().apply(step, answers);
    }

    /// What client `c` did, without it.
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

    /// What a step comes to, by the clients themselves.
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
            // Whoever was in no section left shared state as it was: the next time that may be another one.
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

    /// What is wrong in the present state, reached by a step with this footprint.
    pub(crate) fn failure(&mut self, footprint: &Footprint) -> Option<Failure> {
        let m = self.machine.borrow();
        if let Some(failure) = &m.failure {
            return Some(failure.clone());
        }
        if self.rules.lock_free
            && let Some(c) = m.waiter()
        {
            return Some(Failure::NotLockFree { clients: vec![c] });
        }
        if footprint.responds
            && let Some(failure) = self.explain(&m)
        {
            return Some(failure);
        }
        self.rules.broken(&self.rules.always, &End::new(&m))
    }

    fn explain(&self, m: &Machine) -> Option<Failure> {
        if self.checked.contains(&m.history_hash()) {
            return None;
        }
        self.program
            .check_history(m)
            .err()
            .map(|why| Failure::NotLinearizable { why })
    }

    /// Remembers that the present history is good.
    pub(crate) fn history_is_good(&mut self, footprint: &Footprint) {
        if footprint.responds {
            self.checked.insert(self.machine.borrow().history_hash());
        }
    }

    /// What is wrong in the present state, where nothing can go on.
    pub(crate) fn final_failure(&self) -> Option<Failure> {
        let clients = self.unfinished();
        if !(clients.is_empty() || self.may_hang()) {
            return Some(Failure::Stuck { clients });
        }
        let m = self.machine.borrow();
        self.explain(&m)
            .or_else(|| self.rules.broken(&self.rules.at_end, &End::new(&m)))
    }

    /// The clients that have not run to their end, and should.
    pub(crate) fn unfinished(&self) -> Vec<u8> {
        let m = self.machine.borrow();
        let waits = |&c: &u8| !m.clients[usize::from(c)].is_over() && !m.is_in_reserve(c);
        (0..m.setup_client()).filter(waits).collect()
    }

    /// Whether the model lets clients wait for ever in the present state, and so in all that follow.
    pub(crate) fn may_hang(&self) -> bool {
        let m = self.machine.borrow();
        let crashed = || m.clients.iter().any(|c| c.status == Status::Crashed);
        self.rules.crash_may_block && (m.has_failed() || crashed())
    }

    pub(crate) fn fingerprint(&self) -> Fp {
        self.machine.borrow_mut().fingerprint()
    }

    pub(crate) fn offer(&self, into: &mut Vec<Step>) {
        self.machine.borrow().offer(into);
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

/// A client's panic is a finding, not a message of this process.
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
