//! Searches: exhaustive depth-first, breadth-first, and random.

mod bfs;
mod crew;
mod dfs;
mod graph;
mod live;
mod pool;
mod random;
mod room;
mod table;

use core::fmt;
use core::time::Duration;
use std::time::Instant;

use crate::fp::{Fp, FpMap, FpSet};
use crate::model::Rules;
use crate::runner::{Runner, Source, Stop};
use crate::step::{Answers, Step};
use crate::trace::{Choice, Log, Trace};
use crate::verdict::{Counterexample, Coverage, Cut, Failure, Lasso, Report, Verdict};

/// The order in which a search visits states.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Method {
    Dfs { cache: bool, sleep: bool },
    Bfs,
    Random { seed: u64, runs: u64, pct: Option<u32> },
}

/// A search and its limits. A search that reaches a limit is not a pass.
///
/// Further searches may follow the first one:
///
/// * If a search with a cache has found no failure, but has not shown that every state reaches an end, or if the model
///   requires lock freedom, a second search examines the whole graph.
/// * If a counterexample may not be a shortest one, a breadth-first search looks for a shorter one. This search has its
///   own limits: 10 million steps and one minute.
/// * If several threads have searched, and no shortest counterexample is known, one thread searches again.
///
/// The limits of states, steps and time hold for each search on its own. So [`Model::run`](crate::Model::run) takes at
/// most about twice the time limit, and one minute more if it shortens a counterexample.
#[derive(Clone, Copy, PartialEq, Debug)]
#[must_use = "a search is run by a model"]
pub struct Search {
    method: Method,
    states: u64,
    steps: u64,
    time: Duration,
    depth: u32,
    shorten: bool,
    threads: u16,
    alone: u64,
}

impl Search {
    /// Default limit of states.
    pub const DEFAULT_STATES: u64 = 20_000_000;
    /// Default limit of wall-clock time.
    pub const DEFAULT_TIME: Duration = Duration::from_secs(120);
    /// Default limit of the steps of one run.
    pub const DEFAULT_DEPTH: u32 = 20_000;

    /// Default number of states that one thread finds before other threads join.
    pub const DEFAULT_ALONE: u64 = 10_000;

    const fn of(method: Method) -> Self {
        Self {
            method,
            states: Self::DEFAULT_STATES,
            steps: u64::MAX,
            time: Self::DEFAULT_TIME,
            depth: Self::DEFAULT_DEPTH,
            shorten: true,
            threads: 0,
            alone: Self::DEFAULT_ALONE,
        }
    }

    /// Searches all states depth-first, with a cache of visited states and with sleep sets. Use this search by default.
    /// A counterexample is then shortened breadth-first.
    pub const fn exhaustive() -> Self {
        Self::of(Method::Dfs {
            cache: true,
            sleep: true,
        })
    }
    /// Searches like `exhaustive`, but without sleep sets. This is for cross-checks.
    pub const fn cached() -> Self {
        Self::of(Method::Dfs {
            cache: true,
            sleep: false,
        })
    }
    /// Searches with sleep sets but without a cache. This is for cross-checks, and detects clients that are not
    /// deterministic.
    pub const fn sleeping() -> Self {
        Self::of(Method::Dfs {
            cache: false,
            sleep: true,
        })
    }
    /// Searches every interleaving one by one. This is for cross-checks of tiny models, and detects clients
    /// that are not deterministic.
    pub const fn naive() -> Self {
        Self::of(Method::Dfs {
            cache: false,
            sleep: false,
        })
    }
    /// Searches all states breadth-first, so that the first counterexample is a shortest one.
    pub const fn shortest() -> Self {
        Self::of(Method::Bfs)
    }
    /// Samples `runs` runs and chooses each step uniformly at random. This detects clients that are not deterministic.
    pub const fn random(seed: u64, runs: u64) -> Self {
        Self::of(Method::Random {
            seed,
            runs,
            pct: None,
        })
    }
    /// Samples `runs` runs by random priorities with `depth - 1` changes each (Burckhardt et al., ASPLOS 2010). A bug
    /// has depth `d` if the order of `d` pairs of steps suffices for it. This search is likely to find bugs of depth
    /// `depth` much sooner than uniform choice. It also detects clients that are not deterministic.
    pub const fn pct(seed: u64, runs: u64, depth: u32) -> Self {
        Self::of(Method::Random {
            seed,
            runs,
            pct: Some(depth),
        })
    }

    /// Limits the number of states of each search to `n`.
    pub const fn states(mut self, n: u64) -> Self {
        self.states = n;
        self
    }
    /// Limits the steps of each thread in each search to `n`, including those of replays.
    pub const fn steps(mut self, n: u64) -> Self {
        self.steps = n;
        self
    }
    /// Limits the wall-clock time of each search to `t`.
    pub const fn time(mut self, t: Duration) -> Self {
        self.time = t;
        self
    }
    /// Limits the length of a run to `n` steps.
    pub const fn depth(mut self, n: u32) -> Self {
        self.depth = n;
        self
    }
    /// Sets the number of threads; 0, the default, means one for each core. The threads share the work of a depth-first
    /// search with a cache, if it finds enough states ([`Search::alone`]). Unless the search reaches a limit, neither
    /// their number nor their speeds change the verdict, the counterexample, or the number of states and ends. The
    /// number of steps and executions and the longest run may differ.
    ///
    /// ```
    /// use dm_explore::{Client, Model, NoSpec, Search};
    /// use dm_verbs::{NodeId, RemotePtr, Verbs};
    ///
    /// let word = RemotePtr::new(NodeId(0), 64).unwrap();
    /// let adds = move |c: Client<(), NoSpec>| async move {
    ///     for _ in 0..3 {
    ///         c.verbs().faa(word, 1).await.unwrap();
    ///     }
    /// };
    /// let model = (0..4).fold(Model::new("adds"), |model, i| model.client(format!("client {i}"), i, adds));
    /// let alone = model.run(Search::exhaustive().threads(1)).expect_pass();
    /// let together = model.run(Search::exhaustive().threads(2)).expect_pass();
    /// assert_eq!((alone.states, alone.ends_hash), (together.states, together.ends_hash));
    /// ```
    pub const fn threads(mut self, n: u16) -> Self {
        self.threads = n;
        self
    }

    /// Sets the number of states that one thread finds before other threads join. For short searches, more threads are
    /// not worth their cost.
    pub const fn alone(mut self, states: u64) -> Self {
        self.alone = states;
        self
    }

    fn threads_used(&self) -> usize {
        match self.threads {
            0 => dm_sync::thread::available_parallelism().map_or(1, core::num::NonZero::get),
            n => usize::from(n),
        }
    }

    /// Makes the search return its first counterexample as it was found, without shortening it.
    pub const fn unshortened(mut self) -> Self {
        self.shorten = false;
        self
    }
}

/// The reason why a trace does not replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BadReplay {
    /// At this position (from 0), the trace selects a step that is not possible.
    NoSuchStep(usize),
    /// The run of the trace does not fail.
    NothingFails,
    /// The steps of the cycle do not lead back to the state where it begins, or a fault is among them.
    NoCycle,
    /// The run reaches a history that is too large to be checked ([`Cut::History`]), and no other failure before it.
    HistoryTooLarge {
        /// The number of operations on the key for which the check gave up.
        operations: usize,
    },
}

impl fmt::Display for BadReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchStep(i) => write!(
                f,
                "step {i} of the trace is not possible: the trace is of another model or other knobs"
            ),
            Self::NothingFails => f.write_str("the trace does not fail"),
            Self::NoCycle => {
                f.write_str("the steps after the `~` of the trace are not a cycle without faults")
            }
            Self::HistoryTooLarge { operations } => write!(
                f,
                "the linearizability check of the run gave up on the {operations} operations on one key: use fewer \
                 operations in the model"
            ),
        }
    }
}
impl core::error::Error for BadReplay {}

/// The result of a search.
pub(crate) enum End {
    Done,
    /// Nothing failed, but the search has not shown that every state reaches an end.
    Unproven,
    Found(Box<Found>),
    Cut(Cut),
}

/// A failing run.
pub(crate) struct Found {
    failure: Failure,
    trace: Trace,
    shortest: bool,
    lasso: Option<Lasso>,
}

impl End {
    /// Returns the end of a search that must stop in the state to which `choices` lead. A history that is too large is
    /// a limit and not a failure, because the history may be linearizable.
    pub(crate) fn stopped(stop: Stop, choices: Vec<Choice>, shortest: bool) -> Self {
        match stop {
            Stop::Failed(failure) => Self::Found(Box::new(Found {
                failure,
                trace: Trace::of(choices),
                shortest,
                lasso: None,
            })),
            Stop::TooLarge { operations } => Self::Cut(Cut::History { operations }),
        }
    }
}

/// The state that every kind of search keeps.
pub(crate) struct Walk<'p> {
    pub(crate) runner: Runner<'p>,
    search: Search,
    begun: Instant,
    pub(crate) states: u64,
    /// `others` is the number of states that other threads have reported, and `told` the number that this thread has
    /// reported.
    others: u64,
    told: u64,
    pub(crate) ends: FpSet,
    pub(crate) depth: u32,
    pub(crate) offered: Vec<Step>,
    ticks: u32,
}

impl Walk<'_> {
    /// Returns the limit that the search has reached, if any. Reads the clock only at every 256th call.
    pub(crate) fn cut(&mut self, depth: usize) -> Option<Cut> {
        self.depth = self.depth.max(depth as u32);
        self.ticks += 1;
        if depth > self.search.depth as usize {
            return Some(Cut::Depth);
        }
        if self.states + self.others > self.search.states {
            return Some(Cut::States);
        }
        if self.runner.steps > self.search.steps {
            return Some(Cut::Steps);
        }
        (self.ticks.is_multiple_of(256) && self.begun.elapsed() > self.search.time).then_some(Cut::Time)
    }

    /// Passes the number of this thread's new states to `add`, once there are at least 256. `add` returns the number of
    /// states of all threads.
    fn share_states(&mut self, add: impl FnOnce(u64) -> u64) {
        const SELDOM: u64 = 256;
        let new = self.states - self.told;
        if new >= SELDOM {
            self.told = self.states;
            self.others = add(new) - self.told;
        }
    }

    /// Lists the possible steps of the current state, and returns whether it is an end: whether none of them is
    /// progress. Returns an error if it is an end that breaks the model, or whose history is too large to be checked.
    pub(crate) fn offer(&mut self) -> Result<bool, Stop> {
        let mut offered = core::mem::take(&mut self.offered);
        self.runner.offer(&mut offered);
        self.offered = offered;
        if self.offered.iter().any(|s| s.is_progress()) {
            return Ok(false);
        }
        match self.runner.final_stop() {
            Some(stop) => Err(stop),
            None => {
                self.ends.insert(self.runner.fingerprint());
                Ok(true)
            }
        }
    }

    /// Prepares another search with the same limits.
    fn renew(&mut self, search: &Search) {
        (self.states, self.others, self.told) = (0, 0, 0);
        self.search = *search;
        self.search.time = self.begun.elapsed().saturating_add(search.time);
        self.search.steps = self.runner.steps.saturating_add(search.steps);
    }

    /// Searches the whole graph and decides whether every state reaches an end or, if the model requires lock freedom,
    /// whether there is a cycle.
    fn prove(&mut self) -> End {
        let (states, search) = (self.states, self.search);
        self.renew(&search);
        let graph = dfs::graph(self);
        self.search = search;
        let caught = match graph {
            Ok(graph) if self.runner.rules.lock_free => graph.cycle(),
            Ok(graph) => graph.caught(),
            Err(end) => {
                self.states = self.states.max(states);
                return end;
            }
        };
        assert_eq!(states, self.states, "two searches reach the same states");
        let Some(caught) = caught else { return End::Done };
        let trace = Trace {
            choices: caught.choices,
            cycle: Some(caught.cycle),
        };
        let failure = follow(&mut self.runner, &trace).ok().flatten();
        End::Found(Box::new(Found {
            failure: failure.expect("the graph's cycle is one of the model"),
            trace,
            shortest: true,
            lasso: Some(Lasso {
                begins: caught.cycle,
                doomed: caught.doomed,
                states: caught.states,
            }),
        }))
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
            outcomes: self.runner.outcomes(),
            ends: self.ends.len() as u64,
            ends_hash: (hash.a, hash.b),
            depth: self.depth,
            time: self.begun.elapsed(),
            knobs,
            assumptions,
        }
    }
}

pub(crate) fn run(source: &dyn Source, rules: &Rules, search: &Search) -> Verdict {
    let (machine, program) = source.make();
    let caching = matches!(search.method, Method::Dfs { cache: true, .. } | Method::Bfs);
    machine.borrow_mut().determinism = (!caching).then(FpMap::default);
    let mut walk = walk(Runner::new(machine, &*program, rules), *search);
    let mut several = false;
    walk.runner.spare_clients(caching);
    let end = match search.method {
        Method::Dfs { cache, sleep } => {
            let end;
            (end, several) = crew::search(&mut walk, source, cache, sleep);
            end
        }
        Method::Bfs => bfs::search(&mut walk, None),
        Method::Random { seed, runs, pct } => random::search(&mut walk, seed, runs, pct),
    };
    let end = match end {
        End::Unproven => walk.prove(),
        End::Done if caching && rules.lock_free => walk.prove(),
        end => end,
    };
    let coverage = match search.method {
        Method::Random { seed, runs, .. } => Coverage::Sampled { runs, seed },
        _ if matches!(end, End::Done) => Coverage::Exhaustive,
        _ => Coverage::Partial,
    };
    match end {
        End::Done | End::Unproven if matches!(search.method, Method::Random { .. }) => {
            Verdict::Sampled(Box::new(walk.report(coverage)))
        }
        End::Done | End::Unproven => {
            assert!(!walk.ends.is_empty(), "a search that is done has reached an end");
            Verdict::Pass(Box::new(walk.report(coverage)))
        }
        End::Cut(by) => Verdict::Truncated {
            by,
            report: Box::new(walk.report(coverage)),
        },
        End::Found(found) => {
            let mut found = *found;
            let report = walk.report(coverage);
            let hidden = matches!(found.failure, Failure::NotDeterministic { .. });
            if search.shorten && !found.shortest && !hidden {
                found = shorten(&mut walk, found);
            }
            if several && !found.shortest {
                found = alone(&mut walk, source, search, found);
            }
            walk.runner.machine.borrow_mut().determinism = None;
            walk.runner.spare_clients(false);
            let ((steps, lines), replayed) = tell(&mut walk.runner, &found.trace);
            let clients = rules.clients.clone();
            // The search has replaced clients by recorded calls. In this run, every client was polled.
            let kind = |failure: &Failure| core::mem::discriminant(failure);
            if !hidden && replayed.as_ref().map(kind) != Some(kind(&found.failure)) {
                let why = found.failure.tell(&clients);
                found.failure = Failure::NotReproduced { why };
            }
            Verdict::Counterexample(Box::new(Counterexample {
                failure: found.failure,
                trace: found.trace,
                steps,
                lasso: found.lasso,
                clients,
                lines,
                shortest: found.shortest,
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
        others: 0,
        told: 0,
        ends: FpSet::default(),
        depth: 0,
        offered: Vec::new(),
        ticks: 0,
    }
}

/// Returns the failing run that a search with one thread finds first, or `found` if it finds none. Which run several
/// threads find first depends on their speeds.
fn alone(walk: &mut Walk<'_>, source: &dyn Source, search: &Search, found: Found) -> Found {
    let Method::Dfs { cache, sleep } = search.method else {
        return found;
    };
    walk.renew(search);
    walk.search.threads = 1;
    match crew::search(walk, source, cache, sleep).0 {
        End::Found(first) => *first,
        _ => found,
    }
}

/// Searches breadth-first for a shorter failing run, within a limit on steps and one on time. If no limit is reached,
/// the result is a shortest run; otherwise it is `found`.
fn shorten(walk: &mut Walk<'_>, found: Found) -> Found {
    // This search replays the whole path to every state, so its cost grows with the steps and not with the states. A
    // limit on steps ends the search at the same run on every machine. The time limit is for models with slow steps.
    const STEPS: u64 = 10_000_000;
    const TIME: Duration = Duration::from_secs(60);
    walk.runner.machine.borrow_mut().determinism = None;
    walk.runner.spare_clients(true);
    walk.search = walk
        .search
        .states(u64::MAX)
        .steps(walk.runner.steps + STEPS)
        .time(walk.begun.elapsed() + TIME);
    match bfs::search(walk, Some(found.trace.choices.len() + 1)) {
        End::Found(shorter) => *shorter,
        End::Done | End::Unproven => Found {
            shortest: true,
            ..found
        },
        End::Cut(_) => found,
    }
}

type Told = (Vec<crate::trace::TraceStep>, Vec<(u32, String)>);

/// Runs `trace` and describes every step in words. Also returns the failure in which the run ends.
fn tell(runner: &mut Runner<'_>, trace: &Trace) -> (Told, Option<Failure>) {
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
            ..Log::default()
        });
    }
    let failure = follow(runner, trace).ok().flatten();
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
    ((steps, named), failure)
}

/// Returns the failure for which a replay must stop, if any.
fn failed(stop: Option<Stop>) -> Result<Option<Failure>, BadReplay> {
    match stop {
        None => Ok(None),
        Some(Stop::Failed(failure)) => Ok(Some(failure)),
        Some(Stop::TooLarge { operations }) => Err(BadReplay::HistoryTooLarge { operations }),
    }
}

/// Runs `trace` and returns its failure, if any. A cycle is a failure if it leads back to the state where it begins
/// and all its steps are progress: then no client has ended in the cycle, and none will end while the cycle repeats.
fn follow(runner: &mut Runner<'_>, trace: &Trace) -> Result<Option<Failure>, BadReplay> {
    runner.reset();
    let mut offered = Vec::new();
    let mut failure = None;
    // The state where the cycle begins, and the clients that act in the cycle.
    let (mut entry, mut round) = (None, Vec::new());
    for (i, choice) in trace.choices.iter().enumerate() {
        runner.offer(&mut offered);
        let step = *offered
            .get(usize::from(choice.index))
            .ok_or(BadReplay::NoSuchStep(i))?;
        if trace.cycle == Some(i) {
            entry = Some(runner.fingerprint());
        }
        if entry.is_some() {
            round.push(step.client);
            if !step.is_progress() {
                return Err(BadReplay::NoCycle);
            }
        }
        let taken = runner.take(step, choice.answers);
        failure = failed(runner.stop(&taken.footprint))?;
        if failure.is_some() {
            break;
        }
    }
    if let (None, Some(entry)) = (&failure, entry) {
        if entry != runner.fingerprint() {
            return Err(BadReplay::NoCycle);
        }
        return Ok(Some(if runner.rules.lock_free {
            round.sort_unstable();
            round.dedup();
            Failure::NotLockFree { clients: round }
        } else {
            let clients = runner.unfinished();
            Failure::Livelock { clients }
        }));
    }
    runner.offer(&mut offered);
    if failure.is_none() && !offered.iter().any(|s| s.is_progress()) {
        failure = failed(runner.final_stop())?;
    }
    Ok(failure)
}

pub(crate) fn replay(source: &dyn Source, rules: &Rules, trace: &Trace) -> Result<Counterexample, BadReplay> {
    let (machine, program) = source.make();
    let mut walk = walk(Runner::new(machine, &*program, rules), Search::exhaustive());
    let failure = follow(&mut walk.runner, trace)?.ok_or(BadReplay::NothingFails)?;
    let ((steps, lines), _) = tell(&mut walk.runner, trace);
    walk.depth = trace.choices.len() as u32;
    Ok(Counterexample {
        failure,
        trace: trace.clone(),
        steps,
        lasso: trace.cycle.map(|begins| Lasso {
            begins,
            doomed: None,
            states: None,
        }),
        clients: rules.clients.clone(),
        lines,
        shortest: false,
        report: walk.report(Coverage::Sampled { runs: 1, seed: 0 }),
    })
}

/// Returns a choice in the form that traces store.
pub(crate) fn choice(index: usize, answers: Answers) -> Choice {
    Choice {
        index: index as u8,
        answers,
    }
}
