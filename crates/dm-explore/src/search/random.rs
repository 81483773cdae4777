//! Random search: by uniform choice, or by priorities that change a few times (PCT).

use super::{End, Walk, choice};
use crate::fp::Fp;
use crate::runner::Stop;
use crate::step::{Answers, Step, StepKind};
use crate::trace::Choice;
use crate::verdict::Cut;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// Returns the number of the agent that takes a step. Each client has three agents with priorities of their own: its
/// program, its requests, and its faults and late requests.
fn agent(step: Step) -> usize {
    let part = match step.kind {
        StepKind::Unit { .. } => 1,
        StepKind::Cancel
        | StepKind::Crash
        | StepKind::Fail { .. }
        | StepKind::Refuse { .. }
        | StepKind::Late { .. } => 2,
        _ => 0,
    };
    usize::from(step.client) * 3 + part
}

/// The priorities of one run, in three ranges: as drawn at the start, as lowered at a point of change, and as lowered
/// by a pause.
struct Pct {
    priorities: Vec<u64>,
    changes: Vec<u32>,
    /// The lowest priority that a pause has given so far. The client that a pause lowered last has it; at first no
    /// client has it.
    lowest: u64,
    pauses: u32,
}

/// One of this many pauses of a run gives its client the lowest priority. If every pause lowered its client, the other
/// clients would run to their ends before any client made a second attempt.
const PAUSES: u32 = 16;

impl Pct {
    fn new(rng: &mut Rng, agents: usize, depth: u32, length: u32) -> Self {
        let drawn = 1 << 33;
        let priorities = (0..agents).map(|_| drawn + (rng.next() >> 33)).collect();
        let changes = (1..depth)
            .map(|_| rng.below(length.max(1) as usize) as u32)
            .collect();
        Self {
            priorities,
            changes,
            lowest: 1 << 31,
            pauses: 0,
        }
    }

    /// Counts a pause, and gives the client the lowest priority at every 16th pause of the run. Otherwise a client that
    /// waits for another one could run alone until the run reaches the limit of depth.
    fn paused(&mut self, client: u8) {
        self.pauses += 1;
        if self.pauses.is_multiple_of(PAUSES) {
            self.lowest -= 1;
            self.priorities[usize::from(client) * 3] = self.lowest;
        }
    }

    fn choose(&mut self, rng: &mut Rng, offered: &[Step], at: u32) -> usize {
        let best = |p: &Self| offered.iter().map(|&s| p.priorities[agent(s)]).max().unwrap_or(0);
        for i in 0..self.changes.len() {
            if self.changes[i] == at {
                let top = best(self);
                if let Some(p) = self.priorities.iter_mut().find(|p| **p == top) {
                    *p = (1 << 32) + i as u64;
                }
            }
        }
        let top = best(self);
        let mine: Vec<usize> = (0..offered.len())
            .filter(|&i| self.priorities[agent(offered[i])] == top)
            .collect();
        mine[rng.below(mine.len())]
    }
}

pub(crate) fn search(walk: &mut Walk<'_>, seed: u64, runs: u64, pct: Option<u32>) -> End {
    let agents = usize::from(walk.runner.machine.borrow().setup_client()) * 3;
    let mut longest = 32;
    // A run whose history is too large to check ends, but a later run may still find a failure.
    let mut too_large = None;
    'runs: for run in 0..runs {
        let mut rng = Rng(Fp::at(seed, run).a);
        let mut pct = pct.map(|depth| Pct::new(&mut rng, agents, depth, longest));
        let mut path: Vec<Choice> = Vec::new();
        walk.runner.reset();
        loop {
            match walk.offer() {
                Err(Stop::TooLarge { operations }) => {
                    too_large = Some(Cut::History { operations });
                    continue 'runs;
                }
                Err(stop) => return End::stopped(stop, path, false),
                Ok(true) => break,
                Ok(false) => {}
            }
            // The limit of depth counts the step that the run takes next, as in the other searches.
            if let Some(cut) = walk.cut(path.len() + 1) {
                return End::Cut(cut);
            }
            let index = match &mut pct {
                Some(pct) => pct.choose(&mut rng, &walk.offered, path.len() as u32),
                None => rng.below(walk.offered.len()),
            };
            // These are sixty random answers; a step uses as many as it needs.
            let answers = Answers {
                bits: rng.next() & ((1 << Answers::MAX) - 1),
                count: Answers::MAX,
            };
            let taken = walk.runner.take(walk.offered[index], answers);
            path.push(choice(index, taken.asked));
            match walk.runner.stop(&taken.footprint) {
                None => {}
                Some(Stop::TooLarge { operations }) => {
                    too_large = Some(Cut::History { operations });
                    continue 'runs;
                }
                Some(stop) => return End::stopped(stop, path, false),
            }
            if let Some(pct) = &mut pct
                && taken.footprint.compares
            {
                pct.paused(taken.footprint.client);
            }
            walk.runner.history_is_good(&taken.footprint);
        }
        longest = longest.max(path.len() as u32);
    }
    too_large.map_or(End::Done, End::Cut)
}
