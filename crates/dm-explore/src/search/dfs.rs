//! Depth-first: backtracking begins the execution anew and replays the choices up to the branch.

use super::{Cut, End, Walk, choice};
use crate::fp::{Fp, FpMap};
use crate::machine::saved::Saved;
use crate::runner::Did;
use crate::step::{Answers, Footprint, Step};
use crate::trace::Trace;

/// Most steps that one state may offer.
const OFFERED_MAX: usize = 128;

/// A state on the path.
struct Frame {
    /// Where its steps begin in the arena.
    first: usize,
    /// Steps that need not be taken here: another path covers them, or they were taken already.
    sleep: u128,
    /// Steps still to be taken.
    todo: u128,
    /// The step being explored, and its answers.
    at: u8,
    answers: Answers,
    /// What its client did at it.
    did: Option<Did>,
    /// More answers to try for it.
    more: Option<Answers>,
    /// The state itself, among those kept.
    saved: Option<usize>,
}

struct Dfs<'w, 'p> {
    walk: &'w mut Walk<'p>,
    cache: bool,
    sleep: bool,
    /// Per visited state: the steps that were asleep when it was explored.
    visited: FpMap<u64>,
    frames: Vec<Frame>,
    /// States on the path that will be needed again, and how many are in use.
    saved: Vec<Saved>,
    kept: usize,
    /// Steps of the states on the path, with their footprints as far as taken.
    arena: Vec<(Step, Footprint)>,
}

/// Explores everything. With `cache`, states are told apart by fingerprint and explored once, or again when their
/// sleep set shrinks (Godefroid's state-space caching with sleep sets).
pub(crate) fn search(walk: &mut Walk<'_>, cache: bool, sleep: bool) -> End {
    let frames = Vec::new();
    let mut dfs = Dfs {
        walk,
        cache,
        sleep,
        visited: FpMap::default(),
        frames,
        saved: Vec::new(),
        kept: 0,
        arena: Vec::new(),
    };
    dfs.walk.runner.reset();
    match dfs.arrive(None) {
        Some(end) => end,
        None => dfs.explore(),
    }
}

impl Dfs<'_, '_> {
    fn explore(&mut self) -> End {
        let mut in_step = true;
        loop {
            let Some(frame) = self.frames.last_mut() else {
                return End::Done;
            };
            if let Some(more) = frame.more.take() {
                frame.answers = more;
            } else {
                if frame.at != u8::MAX {
                    frame.sleep |= 1 << frame.at;
                }
                if frame.todo == 0 {
                    self.arena.truncate(frame.first);
                    self.kept -= usize::from(frame.saved.is_some());
                    self.frames.pop();
                    in_step = false;
                    continue;
                }
                frame.at = frame.todo.trailing_zeros() as u8;
                frame.todo &= frame.todo - 1;
                frame.answers = Answers::default();
                let at = frame.first + usize::from(frame.at);
                self.arena[at].1 = Footprint::default();
            }
            if !in_step {
                self.replay();
            }
            in_step = true;
            let depth = self.frames.len();
            if let Some(cut) = self.walk.cut(depth) {
                return End::Cut(cut);
            }
            if let Some(end) = self.step() {
                return end;
            }
            // Nothing new there: the execution has to be taken back.
            in_step &= self.frames.len() > depth;
        }
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
            let step = self.arena[frame.first + usize::from(frame.at)].0;
            runner.retake(step, frame.answers, frame.did);
        }
    }

    /// Takes the chosen step of the last frame.
    fn step(&mut self) -> Option<End> {
        let last = self.frames.len() - 1;
        let frame = &self.frames[last];
        let at = frame.first + usize::from(frame.at);
        let first_outcome = self.arena[at].1 == Footprint::default();
        let taken = self.walk.runner.take(self.arena[at].0, frame.answers);
        let known = &mut self.arena[at].1;
        if first_outcome {
            *known = taken.footprint;
        } else {
            known.join(&taken.footprint);
        }
        let frame = &mut self.frames[last];
        frame.answers = taken.asked;
        frame.more = taken.asked.next();
        frame.did = taken.did;
        if let Some(failure) = self.walk.runner.failure(&taken.footprint) {
            return Some(self.found(failure));
        }
        self.walk.runner.history_is_good(&taken.footprint);
        self.arrive(Some(taken.footprint))
    }

    /// At a state, by a step with that footprint: pushes a frame if there is anything to explore.
    fn arrive(&mut self, by: Option<Footprint>) -> Option<End> {
        if let Some(failure) = self.walk.offer() {
            return Some(self.found(failure));
        }
        let offered = &self.walk.offered;
        if offered.len() > OFFERED_MAX {
            // Too wide for the masks: say so rather than leave steps out.
            return Some(End::Cut(Cut::Width));
        }
        let all = if offered.len() == OFFERED_MAX {
            u128::MAX
        } else {
            (1 << offered.len()) - 1
        };
        let first = self.arena.len();
        self.arena
            .extend(offered.iter().map(|&step| (step, Footprint::default())));
        let mut sleep = match by {
            Some(by) if self.sleep => self.asleep(first, &by),
            _ => 0,
        };
        let mut todo = all & !sleep;
        if self.cache {
            let state = self.walk.runner.fingerprint();
            match self.visited.entry(state) {
                std::collections::hash_map::Entry::Vacant(new) => {
                    self.walk.states += 1;
                    new.insert(sleep as u64);
                }
                std::collections::hash_map::Entry::Occupied(mut old) => {
                    let before = u128::from(*old.get());
                    todo = before & !sleep;
                    sleep &= before;
                    *old.get_mut() = sleep as u64;
                }
            }
        }
        if todo == 0 {
            self.arena.truncate(first);
            return None;
        }
        let saved = (todo & (todo - 1) != 0 && self.walk.runner.can_save()).then(|| {
            if self.kept == self.saved.len() {
                self.saved.push(Saved::default());
            }
            self.walk.runner.save(&mut self.saved[self.kept]);
            self.kept += 1;
            self.kept - 1
        });
        self.frames.push(Frame {
            saved,
            first,
            sleep,
            todo,
            at: u8::MAX,
            answers: Answers::default(),
            did: None,
            more: None,
        });
        None
    }

    /// Which of the steps from `first` on sleep: those that slept, or were taken, one state earlier, and commute with
    /// the step since.
    fn asleep(&mut self, first: usize, by: &Footprint) -> u128 {
        let Some(frame) = self.frames.last() else { return 0 };
        let (mut sleeping, mut asleep) = (frame.sleep, 0);
        while sleeping != 0 {
            let bit = sleeping.trailing_zeros() as usize;
            sleeping &= sleeping - 1;
            let (step, footprint) = self.arena[frame.first + bit];
            if !footprint.commutes(by) {
                continue;
            }
            let here = self.arena[first..].iter().position(|(s, _)| *s == step);
            // The cache keeps 64 of them; the others stay awake.
            if let Some(here) = here.filter(|&i| i < 64) {
                self.arena[first + here].1 = footprint;
                asleep |= 1 << here;
            }
        }
        asleep
    }

    fn found(&self, failure: crate::verdict::Failure) -> End {
        let choices = self.frames.iter().map(|f| choice(usize::from(f.at), f.answers));
        End::Found {
            failure,
            trace: Trace(choices.collect()),
            shortest: false,
        }
    }
}

const _: () = assert!(size_of::<(Fp, u64)>() == 24);
