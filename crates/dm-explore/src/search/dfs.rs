//! Depth-first search. To backtrack, it restores the nearest saved state of the path, or begins a new execution if
//! there is none. Then it replays the choices up to the branch.
//!
//! # Several threads
//! Each thread has its own execution and path; the visited states are shared. An idle thread gets steps that another
//! thread has not taken yet, from the state nearest to the start, with the path to that state. A step sleeps only if
//! some thread takes it, or has taken it, from a state on the path. It does not matter which thread does this, or when.
//! Every step that does not sleep in a state is claimed by exactly one visit, under the lock of that state. So all
//! threads together reach the same states as a single thread.
//!
//! # Liveness
//! A search with a cache also shows that every state reaches an end without further faults. A state is marked when it
//! is an end, or when a step of progress leads from it to a marked state. The states on the path that lead to it by
//! progress are then marked too, so that nearly all of them are marked during the first descent. Steps that led to an
//! unmarked state are stored, and examined again when the search is over.
//!
//! A sleeping step is not taken, but the state to which it leads can be computed. The fingerprint of a state is the XOR
//! of its parts. A step that commutes with all steps since it was taken changes the same parts in the same way. So the
//! XOR of the change that it made then and the fingerprint of the state where it sleeps is the fingerprint of the state
//! to which it would lead. Steps of one client within one request commute as well, but they change the same part, so
//! their target is not known. If all steps sleep and none of their targets is known, one step is taken to find its
//! target. A target that is not known can only prevent a mark. For the states that remain unmarked, the whole [`Graph`]
//! is recorded by the same search without sleep sets.

use super::graph::Graph;
use super::live::Living;
use super::pool::Pool;
use super::table::Table;
use super::{Cut, End, Walk, choice};
use crate::fp::Fp;
use crate::machine::saved::Saved;
use crate::runner::Stop;
use crate::step::{Answers, Footprint, Step};

/// The maximum number of steps that one state may offer.
const OFFERED_MAX: usize = 128;

/// A step that a state offers.
#[derive(Clone, Copy)]
struct Offered {
    step: Step,
    /// The step's footprint, as far as it is known.
    footprint: Footprint,
    /// The change of a state's fingerprint that the step makes, if known.
    change: Option<Fp>,
}

/// A state on the path.
#[derive(Clone, Default)]
struct Frame {
    /// The index of its first step in the arena.
    first: usize,
    number: u32,
    state: Fp,
    /// Whether this state is marked, and so are all earlier states of the path that lead to it by progress.
    living: bool,
    /// Steps that neither this visit nor an earlier one takes from this state.
    left_out: u128,
    /// Steps that need not be taken here, because another path covers them or they have been taken already.
    sleep: u128,
    /// Steps still to be taken.
    todo: u128,
    /// The step being explored, and its answers.
    at: Option<u8>,
    answers: Answers,
    /// The next sequence of answers to try for the step.
    more: Option<Answers>,
    /// The index of the saved state.
    saved: Option<usize>,
}

impl Frame {
    /// Returns the index in the arena of the step being explored.
    fn step(&self) -> usize {
        self.first + usize::from(self.at.unwrap_or(0))
    }
}

/// A piece of work: steps of a state that are still to be taken, and the path to that state.
pub(super) struct Job {
    frames: Vec<Frame>,
    arena: Vec<Offered>,
}

pub(super) struct Dfs<'w, 'p> {
    pub(super) walk: &'w mut Walk<'p>,
    cache: bool,
    sleep: bool,
    table: &'w Table,
    /// The pool of work, if there are other threads.
    pub(super) pool: Option<&'w Pool<Job>>,
    /// Steps of progress between states that were not marked when the steps were taken.
    pub(super) open: Vec<(u32, u32)>,
    /// Steps of progress that were not taken, with the states to which they lead, if these were not visited at that
    /// time.
    pub(super) unmet: Vec<(u32, Fp)>,
    /// The whole graph, if it must be recorded.
    graph: Option<Graph>,
    frames: Vec<Frame>,
    /// Whether the execution is at the last frame's state.
    in_step: bool,
    /// Whether the execution has left that state to find the target of a step.
    strayed: bool,
    /// States on the path that will be needed again, and the number of buffers in use.
    saved: Vec<Saved>,
    kept: usize,
    /// The steps of the states on the path.
    arena: Vec<Offered>,
}

/// Explores all states with a cache, and records the whole graph.
pub(super) fn graph(walk: &mut Walk<'_>) -> Result<Graph, End> {
    let table = Table::alone();
    let mut dfs = Dfs::new(walk, &table, true, false);
    dfs.graph = Some(Graph::default());
    match dfs.explore_all() {
        End::Done => Ok(dfs.graph.unwrap_or_default()),
        end => Err(end),
    }
}

impl<'w, 'p> Dfs<'w, 'p> {
    pub(super) fn new(walk: &'w mut Walk<'p>, table: &'w Table, cache: bool, sleep: bool) -> Self {
        Self {
            walk,
            cache,
            sleep,
            table,
            pool: None,
            open: Vec::new(),
            unmet: Vec::new(),
            graph: None,
            frames: Vec::new(),
            in_step: true,
            strayed: false,
            saved: Vec::new(),
            kept: 0,
            arena: Vec::new(),
        }
    }

    /// Explores all states, with this thread alone.
    pub(super) fn explore_all(&mut self) -> End {
        self.explore_some(u64::MAX).unwrap_or(End::Done)
    }

    /// Explores from the start until this number of states is found, and then returns `None`. Returns the end of the
    /// search if the search ends earlier.
    pub(super) fn explore_some(&mut self, states: u64) -> Option<End> {
        self.walk.runner.reset();
        let state = self.state();
        if let Some(end) = self.arrive(state, None) {
            return Some(end);
        }
        while self.walk.states < states {
            if let Some(end) = self.next() {
                return Some(end);
            }
        }
        None
    }

    /// Explores the rest of this thread's own work, and then work that other threads give away.
    pub(super) fn explore_shared(&mut self, pool: &'w Pool<Job>) -> End {
        self.pool = Some(pool);
        loop {
            loop {
                match self.next() {
                    None => {}
                    Some(End::Done) => break,
                    Some(end) => {
                        pool.stop();
                        return end;
                    }
                }
                if pool.is_stopped() {
                    return End::Done;
                }
                if pool.is_hungry() {
                    self.give(pool);
                }
                self.walk.share_states(|new| pool.add_states(new));
            }
            match pool.take() {
                Some(job) => self.begin(job),
                None => return End::Done,
            }
        }
    }

    /// Takes the next step, or returns to an earlier state that has steps left.
    fn next(&mut self) -> Option<End> {
        let Some(frame) = self.frames.last_mut() else {
            return Some(End::Done);
        };
        if let Some(more) = frame.more.take() {
            frame.answers = more;
        } else {
            frame.sleep |= frame.at.map_or(0, |at| 1 << at);
            if frame.todo == 0 {
                self.leave();
                self.in_step = false;
                return None;
            }
            frame.at = Some(frame.todo.trailing_zeros() as u8);
            frame.todo &= frame.todo - 1;
            frame.answers = Answers::default();
            let at = frame.step();
            self.arena[at].footprint = Footprint::default();
            self.arena[at].change = None;
        }
        if !self.in_step {
            self.replay();
        }
        let depth = self.frames.len();
        if let Some(cut) = self.walk.cut(depth) {
            return Some(End::Cut(cut));
        }
        if let Some(end) = self.step() {
            return Some(end);
        }
        // The step led to no new state, or the execution left the path to find a target. So the execution must return.
        self.in_step = !core::mem::take(&mut self.strayed) && self.frames.len() > depth;
        None
    }

    /// Brings the execution to the state of the last frame.
    fn replay(&mut self) {
        let runner = &mut self.walk.runner;
        let before = self.frames.len() - 1;
        let nearest = self.frames.iter().rposition(|f| f.saved.is_some());
        match nearest.and_then(|i| Some((i, self.frames[i].saved?))) {
            Some((i, at)) => runner.restore(&self.saved[at], i),
            None => runner.reset(),
        }
        for frame in &self.frames[nearest.unwrap_or(0)..before] {
            runner.take(self.arena[frame.step()].step, frame.answers);
        }
    }

    /// Takes the chosen step of the last frame.
    fn step(&mut self) -> Option<End> {
        let last = self.frames.len() - 1;
        let frame = &mut self.frames[last];
        let offered = &mut self.arena[frame.step()];
        let taken = self.walk.runner.take(offered.step, frame.answers);
        if offered.footprint == Footprint::default() {
            offered.footprint = taken.footprint;
        } else {
            offered.footprint.join(&taken.footprint);
        }
        frame.answers = taken.asked;
        frame.more = taken.asked.next();
        let state = self.state();
        if let Some(stop) = self.walk.runner.stop(&taken.footprint) {
            return Some(self.stopped(stop));
        }
        self.walk.runner.history_is_good(&taken.footprint);
        self.arrive(state, Some(taken.footprint))
    }

    /// Returns the fingerprint of the present state and prefetches its entry. Returns 0 if the search has no cache.
    fn state(&mut self) -> Fp {
        if !self.cache {
            return Fp::default();
        }
        let state = self.walk.runner.fingerprint();
        self.table.expect(state);
        state
    }

    /// Handles the arrival at `state` by a step with footprint `by`. Pushes a frame if there is anything to explore.
    /// Returns the end of the search if the search ends here.
    fn arrive(&mut self, state: Fp, by: Option<Footprint>) -> Option<End> {
        let first = self.arena.len();
        let mut frame = Frame {
            first,
            state,
            ..Frame::default()
        };
        // The possible steps are computed before the look-up, so that the prefetched entry is in the CPU's cache by
        // then. They are not needed if the state was visited before, but waiting for memory would cost more than
        // computing them.
        let offered = self.walk.offer();
        if self.cache {
            // Most states that are reached again were explored with no step asleep.
            if let Some(met) = self.table.get(frame.state).filter(|met| met.sleep == 0) {
                (frame.number, frame.living) = (met.number, met.living);
                self.note(&frame);
                return None;
            }
        }
        let ended = match offered {
            Ok(ended) => ended,
            Err(stop) => return Some(self.stopped(stop)),
        };
        let offered = &self.walk.offered;
        let all = match offered.len() {
            // The masks are too narrow for this state. The search ends with a limit instead of omitting a step
            // silently.
            too_many if too_many > OFFERED_MAX => return Some(End::Cut(Cut::Width)),
            OFFERED_MAX => u128::MAX,
            n => (1 << n) - 1,
        };
        self.arena.extend(offered.iter().map(|&step| Offered {
            step,
            footprint: Footprint::default(),
            change: None,
        }));
        if let Some(by) = by.filter(|_| self.sleep) {
            frame.sleep = self.asleep(first, &by);
        }
        frame.todo = all & !frame.sleep;
        if self.cache {
            if let Some(cut) = self.reach(&mut frame, ended) {
                return Some(End::Cut(cut));
            }
            self.note(&frame);
        }
        if frame.todo == 0 {
            self.wake(&frame);
            self.look(&frame);
            self.arena.truncate(first);
            return None;
        }
        if frame.todo & (frame.todo - 1) != 0 && self.walk.runner.can_save() {
            frame.saved = Some(self.save());
        }
        if frame.left_out != 0 && !self.awake(&frame) {
            self.wake(&frame);
            self.look(&frame);
        }
        self.frames.push(frame);
        None
    }

    /// Looks up the state of `frame` and records it as reached. Returns the limit that the search has reached, if any.
    fn reach(&mut self, frame: &mut Frame, ended: bool) -> Option<Cut> {
        match self.table.reach(frame.state, frame.sleep as u64) {
            None => return Some(Cut::States),
            Some(Err(new)) => {
                frame.number = new;
                self.walk.states += 1;
                self.walk.runner.states = self.walk.states;
                frame.living = ended || self.walk.runner.may_hang();
                if frame.living {
                    self.table.mark(new);
                }
                if let Some(graph) = &mut self.graph {
                    graph.state(frame.living);
                }
            }
            Some(Ok(met)) => {
                let before = u128::from(met.sleep);
                frame.todo = before & !frame.sleep;
                frame.sleep &= before;
                (frame.number, frame.living) = (met.number, met.living);
            }
        }
        frame.left_out = frame.sleep;
        None
    }

    /// Saves the present state and returns the index of its buffer.
    fn save(&mut self) -> usize {
        if self.kept == self.saved.len() {
            self.saved.push(Saved::default());
        }
        self.walk.runner.save(&mut self.saved[self.kept]);
        self.kept += 1;
        self.kept - 1
    }

    /// Records the step of the last frame, which led to `to`.
    fn note(&mut self, to: &Frame) {
        let Some(last) = self.frames.last() else { return };
        let offered = &mut self.arena[last.step()];
        if offered.change.is_none() {
            let mut change = last.state;
            change.xor(to.state);
            offered.change = Some(change);
        }
        let step = offered.step;
        if let Some(graph) = &mut self.graph {
            let choice = choice(usize::from(last.at.unwrap_or(0)), last.answers);
            graph.edge(last.number, to.number, step, choice);
        } else if !step.is_progress() {
        } else if to.living {
            self.mark_path();
        } else if !last.living {
            self.open.push((last.number, to.number));
        }
    }

    /// Marks the last frame's state, and all states on the path that lead to it by progress.
    fn mark_path(&mut self) {
        for i in (0..self.frames.len()).rev() {
            let frame = &mut self.frames[i];
            if frame.living {
                return;
            }
            frame.living = true;
            self.table.mark(frame.number);
            let before = i.checked_sub(1).map(|i| &self.frames[i]);
            if before.is_some_and(|f| !self.arena[f.step()].step.is_progress()) {
                return;
            }
        }
    }

    /// Finishes the last frame.
    fn leave(&mut self) {
        let Some(frame) = self.frames.pop() else { return };
        self.kept -= usize::from(frame.saved.is_some());
        self.wake(&frame);
        self.arena.truncate(frame.first);
    }

    /// Looks whether an omitted step of `frame` leads to a state that reaches an end, as far as the targets are known.
    /// `frame` is not on the path: it was just removed, or is not added yet. Does nothing if steps that were taken
    /// have already shown that its state reaches an end.
    fn wake(&mut self, frame: &Frame) {
        let mut left = if frame.living { 0 } else { frame.left_out };
        while left != 0 {
            let bit = left.trailing_zeros() as usize;
            left &= left - 1;
            let Offered { step, change, .. } = self.arena[frame.first + bit];
            let Some(mut to) = change.filter(|_| step.is_progress()) else {
                continue;
            };
            to.xor(frame.state);
            if self.leads(frame.number, to) {
                return;
            }
        }
    }

    /// Returns whether a step of progress from the state of `frame` has not been taken yet.
    fn awake(&self, frame: &Frame) -> bool {
        let steps = self.arena[frame.first..].iter().enumerate();
        let mut awake = steps.filter(|(i, _)| frame.todo >> i & 1 == 1);
        awake.any(|(_, o)| o.step.is_progress())
    }

    /// Takes one of the omitted steps of progress whose target is not known, to find its target. Does nothing if the
    /// state is marked already.
    fn look(&mut self, frame: &Frame) {
        if self.table.is_living(frame.number) {
            return;
        }
        let mut left = frame.left_out;
        while left != 0 {
            let bit = left.trailing_zeros() as usize;
            left &= left - 1;
            let Offered { step, change, .. } = self.arena[frame.first + bit];
            if change.is_some() || !step.is_progress() {
                continue;
            }
            self.strayed = true;
            self.walk.runner.take(step, Answers::default());
            let to = self.walk.runner.fingerprint();
            self.leads(frame.number, to);
            return;
        }
    }

    /// Records that a step of progress leads from state `from`, which follows the last state of the path, to state
    /// `to`. Returns whether this shows that `from` reaches an end.
    fn leads(&mut self, from: u32, to: Fp) -> bool {
        match self.table.get(to) {
            None => self.unmet.push((from, to)),
            Some(met) if !met.living => self.open.push((from, met.number)),
            Some(_) => {
                self.table.mark(from);
                let last = self.frames.last();
                if last.is_some_and(|f| self.arena[f.step()].step.is_progress()) {
                    self.mark_path();
                }
                return true;
            }
        }
        false
    }

    /// Returns the sleeping steps among those from `first` on: the steps that slept or were taken in the previous
    /// state, and that commute with the last step.
    fn asleep(&mut self, first: usize, by: &Footprint) -> u128 {
        let Some(frame) = self.frames.last() else { return 0 };
        let (mut sleeping, mut asleep) = (frame.sleep, 0);
        while sleeping != 0 {
            let bit = sleeping.trailing_zeros() as usize;
            sleeping &= sleeping - 1;
            let slept = &self.arena[frame.first + bit];
            if !slept.footprint.commutes(by) {
                continue;
            }
            let mut slept = *slept;
            let here = self.arena[first..].iter().position(|o| o.step == slept.step);
            // The cache stores one bit for each of the first 64 steps, so later steps never sleep.
            if let Some(here) = here.filter(|&i| i < 64) {
                // Two parts of one request change the same part of a state's fingerprint.
                slept.change = slept.change.filter(|_| slept.footprint.client != by.client);
                self.arena[first + here] = slept;
                asleep |= 1 << here;
            }
        }
        asleep
    }

    /// Returns the end of a search that must stop at the end of the path.
    fn stopped(&self, stop: Stop) -> End {
        let choices = self.frames.iter();
        let choices = choices.map(|f| choice(usize::from(f.at.unwrap_or(0)), f.answers));
        End::stopped(stop, choices.collect(), false)
    }

    // ---- work of others ---------------------------------------------------------------------------------------------

    /// Gives other threads about half of the remaining steps of the first state on the path that has any.
    fn give(&mut self, pool: &Pool<Job>) {
        let Some(at) = self.frames.iter().position(|f| f.todo != 0) else {
            return;
        };
        let is_last = at == self.frames.len() - 1;
        let frame = &mut self.frames[at];
        let mut given = frame.todo;
        let keep = if is_last {
            given.count_ones().div_ceil(2)
        } else {
            given.count_ones() / 2
        };
        for _ in 0..keep {
            given &= given - 1;
        }
        if given == 0 {
            return;
        }
        frame.todo &= !given;
        let mut frames = self.frames[..=at].to_vec();
        for frame in &mut frames {
            (frame.todo, frame.left_out) = (0, 0);
            (frame.more, frame.saved) = (None, None);
        }
        if let Some(frame) = frames.last_mut() {
            frame.todo = given;
            // If all sequences of answers for the last step were tried, its footprint is complete, so the step may
            // sleep.
            if self.frames[at].more.is_none() {
                frame.sleep |= frame.at.map_or(0, |at| 1 << at);
            }
            frame.at = None;
        }
        let behind = self.frames.get(at + 1).map_or(self.arena.len(), |f| f.first);
        pool.give(Job {
            frames,
            arena: self.arena[..behind].to_vec(),
        });
    }

    /// Brings the execution to the state where `job` begins.
    pub(super) fn begin(&mut self, job: Job) {
        (self.frames, self.arena) = (job.frames, job.arena);
        self.kept = 0;
        self.replay();
        self.in_step = true;
        let saved = self.walk.runner.can_save().then(|| self.save());
        if let Some(frame) = self.frames.last_mut() {
            frame.saved = saved;
            debug_assert_eq!(
                frame.state,
                self.walk.runner.fingerprint(),
                "the path leads there"
            );
        }
    }
}
