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

use crate::fp::{Fp, FpSet};
use crate::machine::client::Status;
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
}

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
    pub(crate) steps: u64,
    pub(crate) executions: u64,
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
            machine,
            steps: 0,
            executions: 0,
        }
    }

    /// Begins a new execution.
    pub(crate) fn reset(&mut self) {
        self.executions += 1;
        self.machine.borrow_mut().dead = true;
        for future in &mut self.futures {
            if let Some(future) = future.take() {
                // A crashed client's guards run now, without effect; if they panic nobody is there to care.
                let _ = quietly(|| drop(future));
            }
        }
        self.program.reset();
        self.machine.borrow_mut().reset();
        self.woken.store(0, Ordering::Relaxed); // Relaxed: one thread.
        self.program.open_shared(&self.machine);
        if self.fingerprints {
            self.machine.borrow_mut().own_fingerprints = true;
        }
    }

    /// Takes `step`.
    pub(crate) fn take(&mut self, step: Step, answers: Answers) -> Taken {
        self.steps += 1;
        let then = self.machine.borrow_mut().apply(step, answers);
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
        let m = self.machine.borrow();
        Taken {
            footprint: m.footprint,
            asked: m.asked(),
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
        if let Some(message) = panic {
            m.failure.get_or_insert(Failure::Panic { client: c, message });
        }
        let node = m.clients[usize::from(c)].node;
        if self.fingerprints
            && m.footprint.nodes != 0
            && let Some(f) = self.program.fingerprint(node)
        {
            m.set_node_fingerprint(node, c, f);
        }
    }

    /// What is wrong in the present state, reached by a step with this footprint.
    pub(crate) fn failure(&mut self, footprint: &Footprint) -> Option<Failure> {
        let m = self.machine.borrow();
        if let Some(failure) = &m.failure {
            return Some(failure.clone());
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
        let m = self.machine.borrow();
        let stuck: Vec<u8> = (0..m.setup_client())
            .filter(|&c| !m.clients[usize::from(c)].is_over())
            .collect();
        let crashed = m.clients.iter().any(|c| c.status == Status::Crashed);
        if !(stuck.is_empty() || crashed && self.rules.crash_may_block) {
            return Some(Failure::Stuck { clients: stuck });
        }
        self.explain(&m)
            .or_else(|| self.rules.broken(&self.rules.at_end, &End::new(&m)))
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
