//! The whole graph of states. It is recorded if a search could not show that every state reaches an end, and is then
//! searched for the states from which no end is reached. If a model requires lock freedom, it is recorded to search for
//! cycles.

use std::collections::VecDeque;

use super::live::{Living, Marks, spread};
use crate::model::CLIENTS_MAX;
use crate::step::{Answers, Step};
use crate::trace::Choice;

/// A step from one state to another.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: u32,
    to: u32,
    /// Whether the step is progress (the lowest bit), its client (the next five bits), and the number of its choice.
    label: u32,
}

const _: () = assert!(CLIENTS_MAX <= 32);

impl Edge {
    fn is_progress(self) -> bool {
        self.label & 1 == 1
    }

    /// Returns the client, as a bit.
    fn client(self) -> u32 {
        1 << (self.label >> 1 & 31)
    }

    fn choice(self) -> usize {
        (self.label >> 6) as usize
    }
}

/// The states by number, from 0, and every step between them.
#[derive(Debug, Default)]
pub(super) struct Graph {
    states: u32,
    edges: Vec<Edge>,
    /// The index of the first edge of each state, once the edges are sorted.
    first: Vec<u32>,
    choices: Vec<Choice>,
    ends: Marks,
}

/// A run that ends in a state from which no end can be reached, or in a cycle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Caught {
    pub(super) choices: Vec<Choice>,
    /// The number of choices after which no end can be reached; `None` if the failure is another one.
    pub(super) doomed: Option<usize>,
    /// The number of choices before the cycle.
    pub(super) cycle: usize,
    /// The number of states in the closed set that the run never leaves.
    pub(super) states: Option<u64>,
}

impl Graph {
    /// Adds a new state with the next number.
    pub(super) fn state(&mut self, is_end: bool) {
        if is_end {
            self.ends.mark(self.states);
        }
        self.states += 1;
    }

    pub(super) fn edge(&mut self, from: u32, to: u32, step: Step, choice: Choice) {
        // All choices without answers come first, ordered by their index.
        if self.choices.is_empty() {
            let answers = Answers::default();
            self.choices = (0..=u8::MAX).map(|index| Choice { index, answers }).collect();
        }
        let number = if choice.answers.count == 0 {
            usize::from(choice.index)
        } else {
            // There are only a few such choices: they differ in their answers to questions about time.
            let known = self.choices.iter().skip(256).position(|c| *c == choice);
            known.map_or_else(
                || {
                    self.choices.push(choice);
                    self.choices.len() - 1
                },
                |i| i + 256,
            )
        };
        let label = (number as u32) << 6 | u32::from(step.client) << 1 | u32::from(step.is_progress());
        self.edges.push(Edge { from, to, label });
    }

    /// Returns the edges of a state. The edges must be sorted.
    fn of(&self, state: u32) -> &[Edge] {
        let at = state as usize;
        &self.edges[self.first[at] as usize..self.first[at + 1] as usize]
    }

    fn progress(&self, state: u32) -> impl Iterator<Item = Edge> + '_ {
        self.of(state).iter().copied().filter(|e| e.is_progress())
    }

    fn sort(&mut self) {
        self.edges.sort_by_key(|e| e.from);
        self.first = vec![0; self.states as usize + 1];
        for e in &self.edges {
            self.first[e.from as usize + 1] += 1;
        }
        for i in 1..self.first.len() {
            self.first[i] += self.first[i - 1];
        }
    }

    /// Returns the shortest run to a state from which no end can be reached, continued into a cycle; or `None` if
    /// every state reaches an end.
    pub(super) fn caught(mut self) -> Option<Caught> {
        self.sort();
        let mut living = core::mem::take(&mut self.ends);
        let progress = self.edges.iter().filter(|e| e.is_progress());
        spread(&mut living, progress.map(|e| (e.from, e.to)).collect());
        if living.count() == u64::from(self.states) {
            return None;
        }
        let (mut path, doomed) = self.nearest(0, |_| true, |s| !living.is_living(s))?;
        let set = self.closed_set(doomed);
        let (on, entry) = self.nearest(doomed, Edge::is_progress, |s| set.binary_search(&s).is_ok())?;
        let doomed = path.len();
        path.extend(on);
        let cycle = path.len();
        path.extend(self.round(&set, entry)?);
        Some(Caught {
            choices: self.choices(&path),
            doomed: Some(doomed),
            cycle,
            states: Some(set.len() as u64),
        })
    }

    fn choices(&self, path: &[Edge]) -> Vec<Choice> {
        path.iter().map(|e| self.choices[e.choice()]).collect()
    }

    /// Returns the shortest run into a cycle of progress, with a shortest cycle there; or `None` if there is no
    /// cycle.
    pub(super) fn cycle(mut self) -> Option<Caught> {
        self.sort();
        let mut on_cycles: Vec<u32> = Vec::new();
        self.components(0..self.states, |graph, set| {
            if set.len() > 1 || graph.progress(set[0]).any(|e| e.to == set[0]) {
                on_cycles.extend(set);
            }
            false
        });
        on_cycles.sort_unstable();
        let (mut path, entry) = self.nearest(0, |_| true, |s| on_cycles.binary_search(&s).is_ok())?;
        let cycle = path.len();
        let rounds = self.progress(entry).filter_map(|e| {
            let mut round = vec![e];
            round.extend(self.nearest(e.to, Edge::is_progress, |s| s == entry)?.0);
            Some(round)
        });
        path.extend(rounds.min_by_key(Vec::len)?);
        Some(Caught {
            choices: self.choices(&path),
            doomed: None,
            cycle,
            states: None,
        })
    }

    /// Returns the shortest path from a state, along the given edges, to a wanted state.
    fn nearest(
        &self,
        from: u32,
        along: impl Fn(Edge) -> bool,
        wanted: impl Fn(u32) -> bool,
    ) -> Option<(Vec<Edge>, u32)> {
        let mut by: Vec<Option<Edge>> = vec![None; self.states as usize];
        let mut queue = VecDeque::from([from]);
        while let Some(s) = queue.pop_front() {
            if wanted(s) {
                let (mut path, mut at) = (Vec::new(), s);
                while at != from {
                    let edge = by[at as usize]?;
                    path.push(edge);
                    at = edge.from;
                }
                path.reverse();
                return Some((path, s));
            }
            for &e in self.of(s).iter().filter(|e| along(**e)) {
                if e.to != from && by[e.to as usize].is_none() {
                    by[e.to as usize] = Some(e);
                    queue.push_back(e.to);
                }
            }
        }
        None
    }

    /// Returns a closed set, sorted: progress never leads out of the set, and each of its states is reached from every
    /// other one. The set is reached from `from`. It is the first complete component, because a component that leads
    /// to another one is completed later.
    fn closed_set(&self, from: u32) -> Vec<u32> {
        let mut closed = Vec::new();
        self.components(from..from + 1, |_, set| {
            closed.extend(set);
            true
        });
        closed.sort_unstable();
        closed
    }

    /// Finds the strongly connected components of progress that are reached from these states (Tarjan). A component is
    /// found after all components to which it leads. Ends when `found` returns true.
    fn components(&self, from: core::ops::Range<u32>, mut found: impl FnMut(&Self, &[u32]) -> bool) {
        const NEW: u32 = u32::MAX;
        const COMPLETE: u32 = u32::MAX - 1;
        let mut number = vec![NEW; self.states as usize];
        let mut low = vec![0; self.states as usize];
        let (mut stack, mut next) = (Vec::new(), 0);
        // The states on the current path, each with its next edge to examine.
        let mut way: Vec<(u32, u32)> = Vec::new();
        for root in from {
            if number[root as usize] == NEW {
                way.push((root, self.first[root as usize]));
            }
            while let Some((state, at)) = way.last_mut() {
                let (state, here) = (*state, *state as usize);
                if number[here] == NEW {
                    (number[here], low[here]) = (next, next);
                    next += 1;
                    stack.push(state);
                }
                if *at < self.first[here + 1] {
                    let e = self.edges[*at as usize];
                    *at += 1;
                    match number[e.to as usize] {
                        _ if !e.is_progress() => {}
                        COMPLETE => {}
                        NEW => way.push((e.to, self.first[e.to as usize])),
                        known => low[here] = low[here].min(known),
                    }
                    continue;
                }
                if low[here] == number[here] {
                    let first = stack.iter().rposition(|&s| s == state).unwrap_or(0);
                    if found(self, &stack[first..]) {
                        return;
                    }
                    for s in stack.drain(first..) {
                        number[s as usize] = COMPLETE;
                    }
                }
                way.pop();
                if let Some((before, _)) = way.last() {
                    low[*before as usize] = low[*before as usize].min(low[here]);
                }
            }
        }
    }

    /// Returns a cycle within a closed set, from `entry` back to it. Every client that acts in the set also acts in
    /// the cycle. Otherwise the cycle might only be a schedule that never runs some client.
    fn round(&self, set: &[u32], entry: u32) -> Option<Vec<Edge>> {
        let of = |s: u32, clients: u32| self.progress(s).find(|e| e.client() & clients != 0);
        let all = set.iter().flat_map(|&s| self.progress(s));
        let mut missing = all.fold(0, |clients, e| clients | e.client());
        let (mut round, mut at) = (Vec::new(), entry);
        while missing != 0 {
            let (path, s) = self.nearest(at, Edge::is_progress, |s| of(s, missing).is_some())?;
            round.extend(path);
            let edge = of(s, missing)?;
            missing &= !edge.client();
            at = edge.to;
            round.push(edge);
        }
        round.extend(self.nearest(at, Edge::is_progress, |s| s == entry)?.0);
        Some(round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::StepKind;

    fn graph(states: u32, ends: &[u32], edges: &[(u32, u32, u8, StepKind)]) -> Graph {
        let mut graph = Graph::default();
        (0..states).for_each(|s| graph.state(ends.contains(&s)));
        for (i, &(from, to, client, kind)) in edges.iter().enumerate() {
            let (index, answers) = (i as u8, Answers::default());
            graph.edge(from, to, Step { client, kind }, Choice { index, answers });
        }
        graph
    }

    #[test]
    fn a_run_is_caught_where_only_faults_lead_out() {
        use StepKind::{Crash, Wake};
        // State 1 leads to state 2, which is the end, and to state 3. States 3 and 4 lead to each other, by one client
        // each, and state 4 leads to itself. Only a crash leads from states 3 and 4 to an end.
        let edges = [
            (0, 1, 0, Wake),
            (1, 2, 0, Wake),
            (1, 3, 1, Wake),
            (3, 4, 0, Wake),
            (4, 3, 1, Wake),
            (4, 4, 0, Wake),
            (3, 2, 0, Crash),
        ];
        let caught = graph(5, &[2], &edges).caught().expect("3 reaches no end");
        let path: Vec<u8> = caught.choices.iter().map(|c| c.index).collect();
        assert_eq!(
            (path, caught.doomed, caught.cycle),
            (vec![0, 2, 3, 4], Some(2), 2)
        );
        assert_eq!(caught.states, Some(2));
        // Now the step to the end is progress.
        let mut edges = edges;
        edges[6].3 = Wake;
        assert_eq!(graph(5, &[2], &edges).caught(), None);
    }

    #[test]
    fn a_cycle_is_found_though_every_state_reaches_an_end() {
        use StepKind::{Crash, Wake};
        let mut edges = [
            (0, 1, 0, Wake),
            (1, 2, 0, Wake),
            (2, 1, 1, Wake),
            (2, 3, 0, Wake),
            (0, 4, 0, Wake),
            (4, 3, 0, Wake),
            (4, 0, 0, Crash),
        ];
        assert_eq!(graph(5, &[3], &edges).caught(), None);
        let found = graph(5, &[3], &edges)
            .cycle()
            .expect("1 and 2 lead to each other");
        let path: Vec<u8> = found.choices.iter().map(|c| c.index).collect();
        assert_eq!((path, found.cycle), (vec![0, 1, 2], 1));
        edges[2].3 = Crash;
        assert_eq!(
            graph(5, &[3], &edges).cycle(),
            None,
            "a fault is no part of a cycle"
        );
    }

    #[test]
    fn the_cycle_lies_in_the_set_that_nothing_leaves() {
        use StepKind::Wake;
        // 0 ⇄ 1 is a cycle, but 1 also leads to 2, which leads to itself: {2} is the only set that is never left.
        let edges = [(0, 1, 0, Wake), (1, 0, 0, Wake), (1, 2, 1, Wake), (2, 2, 1, Wake)];
        let caught = graph(3, &[], &edges).caught().expect("there is no end");
        let path: Vec<u8> = caught.choices.iter().map(|c| c.index).collect();
        assert_eq!((path, caught.doomed, caught.cycle), (vec![0, 2, 3], Some(0), 2));
    }
}
