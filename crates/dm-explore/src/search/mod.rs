//! Searches: exhaustive depth-first, shortest first, and at random.

mod bfs;
mod dfs;
mod random;

use core::cell::RefCell;
use core::fmt;
use core::time::Duration;
use std::rc::Rc;
use std::time::Instant;

use crate::fp::{Fp, FpMap, FpSet};
use crate::machine::Machine;
use crate::model::Rules;
use crate::runner::{Program, Runner};
use crate::step::{Answers, Step};
use crate::trace::{Choice, Log, Trace};
use crate::verdict::{Counterexample, Coverage, Cut, Failure, Report, Verdict};

/// How to go through the states.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Method {
    Dfs { cache: bool, sleep: bool },
    Bfs,
    Random { seed: u64, runs: u64, pct: Option<u32> },
}

/// A search and its limits. Reaching a limit is no pass.
#[derive(Clone, Copy, PartialEq, Debug)]
#[must_use = "a search is run by a model"]
pub struct Search {
    method: Method,
    states: u64,
    steps: u64,
    time: Duration,
    depth: u32,
    shorten: bool,
}

impl Search {
    /// States unless said otherwise.
    pub const DEFAULT_STATES: u64 = 20_000_000;
    /// Wall-clock time unless said otherwise.
    pub const DEFAULT_TIME: Duration = Duration::from_secs(120);
    /// Steps of one run unless said otherwise.
    pub const DEFAULT_DEPTH: u32 = 20_000;

    const fn of(method: Method) -> Self {
        Self {
            method,
            states: Self::DEFAULT_STATES,
            steps: u64::MAX,
            time: Self::DEFAULT_TIME,
            depth: Self::DEFAULT_DEPTH,
            shorten: true,
        }
    }

    /// Depth-first over all states, with a cache of visited states and sleep sets: the mode to trust. A
    /// counterexample is then shortened breadth-first.
    pub const fn exhaustive() -> Self {
        Self::of(Method::Dfs {
            cache: true,
            sleep: true,
        })
    }
    /// The same without sleep sets: for cross-checks.
    pub const fn cached() -> Self {
        Self::of(Method::Dfs {
            cache: true,
            sleep: false,
        })
    }
    /// Sleep sets without a cache: for cross-checks; catches clients that are not deterministic.
    pub const fn sleeping() -> Self {
        Self::of(Method::Dfs {
            cache: false,
            sleep: true,
        })
    }
    /// Every interleaving one by one: for cross-checks of tiny models; catches clients that are not deterministic.
    pub const fn naive() -> Self {
        Self::of(Method::Dfs {
            cache: false,
            sleep: false,
        })
    }
    /// Breadth-first over all states: the first counterexample is the shortest.
    pub const fn shortest() -> Self {
        Self::of(Method::Bfs)
    }
    /// `runs` runs, each step chosen uniformly; catches clients that are not deterministic.
    pub const fn random(seed: u64, runs: u64) -> Self {
        Self::of(Method::Random {
            seed,
            runs,
            pct: None,
        })
    }
    /// `runs` runs by random priorities with `depth - 1` changes each (Burckhardt et al., ASPLOS 2010): finds bugs of
    /// that depth much sooner than uniform choice.
    pub const fn pct(seed: u64, runs: u64, depth: u32) -> Self {
        Self::of(Method::Random {
            seed,
            runs,
            pct: Some(depth),
        })
    }

    /// At most so many states.
    pub const fn states(mut self, n: u64) -> Self {
        self.states = n;
        self
    }
    /// At most so many micro-steps, replays included.
    pub const fn steps(mut self, n: u64) -> Self {
        self.steps = n;
        self
    }
    /// At most so much time.
    pub const fn time(mut self, t: Duration) -> Self {
        self.time = t;
        self
    }
    /// No run longer than so many steps.
    pub const fn depth(mut self, n: u32) -> Self {
        self.depth = n;
        self
    }
    /// Gives the first counterexample as it was found.
    pub const fn unshortened(mut self) -> Self {
        self.shorten = false;
        self
    }
}

/// A trace that does not replay.
///
/// No example: what replaying a trace fails with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadReplay {
    /// At this step (from 0) there are fewer possible steps than the trace asks for.
    NoSuchStep(usize),
    /// It ran to its end without failing.
    NothingFails,
}

impl fmt::Display for BadReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchStep(i) => write!(
                f,
                "step {i} of the trace is not possible: another model, or other knobs"
            ),
            Self::NothingFails => f.write_str("the trace does not fail"),
        }
    }
}
impl core::error::Error for BadReplay {}

/// How a search ended.
pub(crate) enum End {
    Done,
    Found {
        failure: Failure,
        trace: Trace,
        shortest: bool,
    },
    Cut(Cut),
}

/// What every search keeps.
pub(crate) struct Walk<'p> {
    pub(crate) runner: Runner<'p>,
    search: Search,
    begun: Instant,
    pub(crate) states: u64,
    pub(crate) ends: FpSet,
    pub(crate) depth: u32,
    pub(crate) offered: Vec<Step>,
    ticks: u32,
}

impl Walk<'_> {
    /// Whether a limit is reached. Looks at the clock now and then only.
    pub(crate) fn cut(&mut self, depth: usize) -> Option<Cut> {
        self.depth = self.depth.max(depth as u32);
        self.ticks += 1;
        if depth > self.search.depth as usize {
            return Some(Cut::Depth);
        }
        if self.states > self.search.states {
            return Some(Cut::States);
        }
        if self.runner.steps > self.search.steps {
            return Some(Cut::Steps);
        }
        (self.ticks.is_multiple_of(256) && self.begun.elapsed() > self.search.time).then_some(Cut::Time)
    }

    /// Offers the steps of the present state; answers what is wrong if it is an end.
    pub(crate) fn offer(&mut self) -> Option<Failure> {
        let mut offered = core::mem::take(&mut self.offered);
        self.runner.offer(&mut offered);
        self.offered = offered;
        if self.offered.iter().any(|s| s.is_progress()) {
            return None;
        }
        let failure = self.runner.final_failure();
        if failure.is_none() {
            self.ends.insert(self.runner.fingerprint());
        }
        failure
    }

    fn report(&self, coverage: Coverage) -> Report {
        let knobs = self.runner.machine.borrow().knobs.clone();
        let mut assumptions = self.runner.rules.promises.clone();
        assumptions.extend(Report::engine_assumptions(&knobs));
        let mut hash = Fp::default();
        for &end in &self.ends {
            hash.add(end);
        }
        Report {
            model: self.runner.rules.model.clone(),
            coverage,
            states: self.states,
            steps: self.runner.steps,
            spared: self.runner.spared,
            executions: self.runner.executions,
            ends: self.ends.len() as u64,
            ends_hash: (hash.a, hash.b),
            depth: self.depth,
            time: self.begun.elapsed(),
            knobs,
            assumptions,
        }
    }
}

pub(crate) fn run(
    machine: Rc<RefCell<Machine>>,
    program: &dyn Program,
    rules: &Rules,
    search: &Search,
) -> Verdict {
    let caching = matches!(search.method, Method::Dfs { cache: true, .. } | Method::Bfs);
    machine.borrow_mut().determinism = (!caching).then(FpMap::default);
    let mut walk = walk(Runner::new(machine, program, rules), *search);
    walk.runner.spare_clients(caching);
    let end = match search.method {
        Method::Dfs { cache, sleep } => dfs::search(&mut walk, cache, sleep),
        Method::Bfs => bfs::search(&mut walk, None),
        Method::Random { seed, runs, pct } => random::search(&mut walk, seed, runs, pct),
    };
    let coverage = match search.method {
        Method::Random { seed, runs, .. } => Coverage::Sampled { runs, seed },
        _ if matches!(end, End::Done) => Coverage::Exhaustive,
        _ => Coverage::Partial,
    };
    match end {
        End::Done => Verdict::Pass(Box::new(walk.report(coverage))),
        End::Cut(by) => Verdict::Truncated {
            by,
            report: Box::new(walk.report(coverage)),
        },
        End::Found {
            failure,
            trace,
            shortest,
        } => {
            let report = walk.report(coverage);
            let found = (failure, trace, shortest);
            let hidden = matches!(found.0, Failure::NotDeterministic { .. });
            let (failure, trace, shortest) = if search.shorten && !shortest && !hidden {
                shorten(&mut walk, found)
            } else {
                found
            };
            walk.runner.machine.borrow_mut().determinism = None;
            walk.runner.spare_clients(false);
            let (steps, lines) = tell(&mut walk.runner, &trace);
            let clients = rules.clients.clone();
            Verdict::Counterexample(Box::new(Counterexample {
                failure,
                trace,
                steps,
                clients,
                lines,
                shortest,
                report,
            }))
        }
    }
}

fn walk(runner: Runner<'_>, search: Search) -> Walk<'_> {
    Walk {
        runner,
        search,
        begun: Instant::now(),
        states: 0,
        ends: FpSet::default(),
        depth: 0,
        offered: Vec::new(),
        ticks: 0,
    }
}

/// Looks breadth-first, for a while, for a shorter failing run; the shortest one, if the while suffices.
fn shorten(walk: &mut Walk<'_>, found: (Failure, Trace, bool)) -> (Failure, Trace, bool) {
    // States end it, so that every machine shows the same run; time is for one that hardly gets on.
    const STATES: u64 = 2_000_000;
    const TIME: Duration = Duration::from_secs(600);
    walk.runner.machine.borrow_mut().determinism = None;
    walk.runner.spare_clients(true);
    walk.search = walk
        .search
        .states(walk.states + STATES)
        .time(walk.begun.elapsed() + TIME);
    match bfs::search(walk, Some(found.1.0.len())) {
        End::Found {
            failure,
            trace,
            shortest,
        } => (failure, trace, shortest),
        End::Done => (found.0, found.1, true),
        End::Cut(_) => found,
    }
}

type Told = (Vec<crate::trace::TraceStep>, Vec<(u32, String)>);

/// Runs `trace` with every step put into words.
fn tell(runner: &mut Runner<'_>, trace: &Trace) -> Told {
    {
        let mut m = runner.machine.borrow_mut();
        let names = runner.rules.names.iter();
        let names = names.filter_map(|(at, bytes, name)| {
            let flat = m.mem.flat(*at, *bytes as usize).ok()?;
            Some((flat, flat + bytes, name.clone()))
        });
        let names = names.collect();
        m.log = Some(Log {
            names,
            steps: Vec::new(),
        });
    }
    let _ = follow(runner, trace);
    let mut m = runner.machine.borrow_mut();
    let mut lines: Vec<u32> = Vec::new();
    let steps = m
        .log
        .as_mut()
        .map(|log| core::mem::take(&mut log.steps))
        .unwrap_or_default();
    for step in &steps {
        if let Some(touch) = &step.touch
            && !lines.contains(&touch.line)
        {
            lines.push(touch.line);
        }
    }
    lines.sort_unstable();
    let named = lines.into_iter().map(|line| (line, m.line_name(line))).collect();
    m.log = None;
    (steps, named)
}

/// Runs `trace`; what fails in it, and how.
fn follow(runner: &mut Runner<'_>, trace: &Trace) -> Result<Option<Failure>, BadReplay> {
    runner.reset();
    let mut offered = Vec::new();
    let mut failure = None;
    for (i, choice) in trace.0.iter().enumerate() {
        runner.offer(&mut offered);
        let step = *offered
            .get(usize::from(choice.index))
            .ok_or(BadReplay::NoSuchStep(i))?;
        let taken = runner.take(step, choice.answers);
        failure = runner.failure(&taken.footprint);
        if failure.is_some() {
            break;
        }
    }
    runner.offer(&mut offered);
    if failure.is_none() && !offered.iter().any(|s| s.is_progress()) {
        failure = runner.final_failure();
    }
    Ok(failure)
}

pub(crate) fn replay(
    machine: Rc<RefCell<Machine>>,
    program: &dyn Program,
    rules: &Rules,
    trace: &Trace,
) -> Result<Counterexample, BadReplay> {
    let mut walk = walk(Runner::new(machine, program, rules), Search::exhaustive());
    let failure = follow(&mut walk.runner, trace)?.ok_or(BadReplay::NothingFails)?;
    let (steps, lines) = tell(&mut walk.runner, trace);
    walk.depth = trace.0.len() as u32;
    Ok(Counterexample {
        failure,
        trace: trace.clone(),
        steps,
        clients: rules.clients.clone(),
        lines,
        shortest: false,
        report: walk.report(Coverage::Sampled { runs: 1, seed: 0 }),
    })
}

/// A choice, as traces keep it.
pub(crate) fn choice(index: usize, answers: Answers) -> Choice {
    Choice {
        index: index as u8,
        answers,
    }
}
