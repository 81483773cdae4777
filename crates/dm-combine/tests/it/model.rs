//! Random schedules, in which operations take effect, fail, end or are dropped in any order. Their answers must be
//! linearizable, and no client may wait for ever. The same check must find broken variants.

use std::collections::BTreeMap;

use crate::common::{Answered, Asked, BROKEN, Gate, Task, run};
use dm_combine::{Combined, Combiner, Rdwc, RdwcFlaws};
use dm_history::{CallId, History, KvMap, KvOp, KvRet, Limits, check};
use dm_index::{Applied, IndexError};
use dm_loopback::Loopback;
use dm_sync::Fingerprint;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const CLIENTS: usize = 5;
const KEYS: u64 = 2;

/// One move of a schedule. The numbers of calls are taken modulo the number of possible calls.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// An idle client begins an operation of this kind.
    Begin(usize, u64, u8),
    /// A client that was woken is polled.
    Step(usize),
    /// A call at the index takes effect, even if its caller was dropped.
    Effect(usize),
    /// A call that has taken effect answers.
    Reply(usize),
    /// A call answers with an error. It may have taken effect, or may do so later.
    Fail(usize),
    /// A client's operation is dropped.
    Drop(usize),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let client = 0..CLIENTS;
    // One of the keys occurs more often.
    let keys = prop_oneof![3 => Just(0), 1 => 0..KEYS];
    let one = prop_oneof![
        10 => (client.clone(), keys, 0..12u8).prop_map(|(c, k, kind)| Move::Begin(c, k, kind)),
        8 => client.clone().prop_map(Move::Step),
        2 => (0..8usize).prop_map(Move::Effect),
        2 => (0..8usize).prop_map(Move::Reply),
        1 => (0..8usize).prop_map(Move::Fail),
        1 => client.prop_map(Move::Drop),
    ];
    vec(one, 0..240)
}

type Ran<'f> = (Task<'f, Result<Answered, IndexError>>, CallId);

/// A schedule that is being run.
struct Run<'f> {
    gate: Gate,
    map: BTreeMap<u64, u32>,
    tasks: [Option<Ran<'f>>; CLIENTS],
    history: History<KvOp<u64, u32>, KvRet<u32>>,
    now: u64,
    /// The number of operations that have begun. A write writes this number, so all written values differ.
    value: u32,
}

impl<'f> Run<'f> {
    fn asks(&mut self, key: u64, kind: u8) -> Asked {
        self.value += 1;
        match kind {
            0..4 => Asked::Get(key),
            4..7 => Asked::Update(key, self.value),
            7..10 => Asked::Upsert(key, self.value),
            10 => Asked::Insert(key, self.value),
            _ => Asked::Remove(key),
        }
    }

    fn step(&mut self, client: usize) {
        let Some((task, call)) = &mut self.tasks[client] else {
            return;
        };
        let (call, Some(end)) = (*call, task.step()) else {
            return;
        };
        self.tasks[client] = None;
        // An operation that failed may have taken effect, or may still do so.
        if let Ok(answered) = end {
            self.history.respond(call, ret(answered), self.now);
        }
    }

    fn make(&mut self, what: Move, clients: &'f [Combined<'f, dm_loopback::Endpoint, Gate>]) {
        self.now += 1;
        match what {
            Move::Begin(client, key, kind) if self.tasks[client].is_none() => {
                let asked = self.asks(key, kind);
                let call = self.history.invoke(client as u32, op(asked), self.now);
                self.tasks[client] = Some((Task::new(run(&clients[client], asked)), call));
                self.step(client);
            }
            Move::Begin(..) => {}
            Move::Step(client) => self.step(client),
            Move::Drop(client) => self.tasks[client] = None,
            Move::Effect(number) => self.effect(number),
            Move::Reply(number) => self.reply(number, |done| done.map(Ok)),
            Move::Fail(number) => self.reply(number, |_| Some(Err(BROKEN))),
        }
    }

    fn effect(&mut self, number: usize) {
        let mut calls = self.gate.0.borrow_mut();
        let mut open: Vec<_> = calls.iter_mut().filter(|c| c.done.is_none()).collect();
        let count = open.len().max(1);
        if let Some(call) = open.get_mut(number % count) {
            call.done = Some(call.asked.on(&mut self.map));
        }
    }

    fn reply(
        &mut self,
        number: usize,
        with: impl Fn(Option<Answered>) -> Option<Result<Answered, IndexError>>,
    ) {
        let waited: Vec<_> = {
            let calls = self.gate.0.borrow();
            let waited = calls.iter().enumerate().filter(|(_, c)| c.waited_for);
            waited.map(|(i, c)| (i, c.done)).collect()
        };
        let Some(&(at, done)) = waited.get(number % waited.len().max(1)) else {
            return;
        };
        if let Some(reply) = with(done) {
            self.gate.reply(at, reply);
        }
    }

    /// Runs all clients until their operations have ended.
    fn finish(&mut self) -> Result<(), String> {
        for _ in 0..1_000 {
            self.now += 1;
            (0..CLIENTS).for_each(|client| self.step(client));
            if self.tasks.iter().all(Option::is_none) {
                return Ok(());
            }
            (0..8).for_each(|_| self.effect(0));
            (0..8).for_each(|n| self.reply(n, |done| done.map(Ok)));
        }
        Err("a client waits for ever".to_owned())
    }
}

fn op(asked: Asked) -> KvOp<u64, u32> {
    match asked {
        Asked::Get(key) => KvOp::Get(key),
        Asked::Insert(key, value) => KvOp::Insert(key, value),
        Asked::Update(key, value) => KvOp::Update(key, value),
        Asked::Upsert(key, value) => KvOp::Upsert(key, value),
        Asked::Remove(key) => KvOp::Remove(key),
    }
}

fn ret(answered: Answered) -> KvRet<u32> {
    match answered {
        Answered::Got(Some(value)) => KvRet::Found(value),
        Answered::Got(None) | Answered::Applied(Applied::Absent) => KvRet::Absent,
        Answered::Applied(Applied::Inserted) => KvRet::Inserted,
        Answered::Applied(Applied::Replaced) => KvRet::Replaced,
        Answered::Applied(Applied::Present) => KvRet::Present,
        Answered::Applied(Applied::Removed) => KvRet::Removed,
        Answered::Applied(Applied::Differs) => unreachable!("nothing is exchanged"),
    }
}

/// Runs a schedule and checks its history. Returns the numbers of delegated and combined operations.
fn play(moves: &[Move], rdwc: &Rdwc) -> Result<(u64, u64), String> {
    let world = Loopback::builder()
        .host_bytes(1 << 20)
        .build()
        .map_err(|e| e.to_string())?;
    let v: Vec<_> = (0..CLIENTS)
        .map(|_| world.connect(0).expect("the client connects"))
        .collect();
    let table = Combiner::new(rdwc);
    let (gate, idle) = (Gate::default(), table.fingerprint());
    let clients: Vec<_> = v
        .iter()
        .map(|v| Combined::new(v, gate.clone(), Some(&table)))
        .collect();
    let mut run = Run {
        gate,
        map: BTreeMap::new(),
        tasks: [const { None }; CLIENTS],
        history: History::new(),
        now: 0,
        value: 0,
    };
    for &what in moves {
        run.make(what, &clients);
    }
    run.finish()?;
    if table.fingerprint() != idle {
        return Err("a client is left at a lock".to_owned());
    }
    let checked = check(&KvMap::empty(), &run.history, Limits::default());
    if !checked.is_linearizable() {
        return Err(format!("{checked:?}"));
    }
    let counted = v.iter().map(|v| dm_verbs::Env::meter(v).counters());
    Ok(counted.fold((0, 0), |sum, c| (sum.0 + c.delegated, sum.1 + c.combined)))
}

fn rdwc(flaws: RdwcFlaws) -> Rdwc {
    Rdwc {
        locks: 1,
        flaws,
        ..Rdwc::ON
    }
}

/// Runs up to `cases` random schedules, and stops at the first that fails. Every run of the test has the same
/// schedules. Returns the numbers of delegated and combined operations of all of them.
fn search(rdwc: &Rdwc, cases: u32) -> Result<(u64, u64), String> {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let total = std::cell::Cell::new((0, 0));
    let found = TestRunner::new_with_rng(config, rng).run(&moves(), |moves| {
        let shared = play(&moves, rdwc).map_err(TestCaseError::fail)?;
        let so_far = total.get();
        total.set((so_far.0 + shared.0, so_far.1 + shared.1));
        Ok(())
    });
    found.map_err(|e| e.to_string())?;
    Ok(total.get())
}

#[test]
fn any_schedule_is_linearizable_and_ends() {
    let cases = if cfg!(miri) { 5 } else { 2_000 };
    for locks in [1, 2] {
        let shared = search(
            &Rdwc {
                locks,
                ..rdwc(RdwcFlaws::NONE)
            },
            cases,
        );
        let (delegated, combined) = shared.unwrap_or_else(|e| panic!("{locks} locks: {e}"));
        assert!(
            cfg!(miri) || delegated > 500 && combined > 500,
            "{delegated}, {combined}"
        );
    }
}

/// T-R2 is not among these flaws. It shows only if other clients run between two sections of one operation. Loopback
/// does not suspend an operation there; the explorer does (`dm-models`).
#[test]
fn flawed_variants_are_found() {
    let none = RdwcFlaws::NONE;
    for flaws in [
        RdwcFlaws {
            joins_after_sample: true,
            ..none
        },
        RdwcFlaws {
            joins_earlier_read: true,
            ..none
        },
        RdwcFlaws {
            leaves_silently: true,
            ..none
        },
        RdwcFlaws {
            tells_unknown: true,
            ..none
        },
        RdwcFlaws {
            any_key: true,
            ..none
        },
        RdwcFlaws {
            absorbs_upserts: true,
            ..none
        },
    ] {
        assert!(search(&rdwc(flaws), 5_000).is_err(), "{flaws:?}");
    }
}
