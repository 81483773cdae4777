//! Breadth-first search: the first failing run is a shortest one.

use std::collections::VecDeque;

use super::{Cut, End, Walk, choice};
use crate::fp::FpSet;
use crate::step::Answers;
use crate::trace::Choice;

/// A state, stored as its parent and the choice that led from there to it.
struct Node {
    parent: u32,
    depth: u32,
    choice: Choice,
}

/// Explores level by level, with a cache and without sleep sets, and omits runs of `below` steps or more. It does not
/// show that every state reaches an end.
pub(crate) fn search(walk: &mut Walk<'_>, below: Option<usize>) -> End {
    let root = Choice {
        index: 0,
        answers: Answers::default(),
    };
    let mut nodes = vec![Node {
        parent: u32::MAX,
        depth: 0,
        choice: root,
    }];
    let mut visited = FpSet::default();
    let mut queue = VecDeque::from([0u32]);
    let mut path = Vec::new();
    while let Some(number) = queue.pop_front() {
        path_to(&nodes, number, &mut path);
        if below.is_some_and(|b| path.len() + 1 >= b) {
            return End::Done;
        }
        run(walk, &path);
        if number == 0
            && let Err(stop) = walk.offer()
        {
            return End::stopped(stop, Vec::new(), true);
        }
        if number == 0 {
            visited.insert(walk.runner.fingerprint());
            walk.states += 1;
        }
        let mut offered = Vec::new();
        walk.runner.offer(&mut offered);
        let mut here = true;
        for (index, &step) in offered.iter().enumerate() {
            let mut answers = Some(Answers::default());
            while let Some(given) = answers {
                if !core::mem::take(&mut here) {
                    run(walk, &path);
                }
                if let Some(cut) = walk.cut(path.len() + 1) {
                    return End::Cut(cut);
                }
                let taken = walk.runner.take(step, given);
                answers = taken.asked.next();
                let last = choice(index, taken.asked);
                let stop = walk.runner.stop(&taken.footprint);
                if stop.is_none() {
                    walk.runner.history_is_good(&taken.footprint);
                    if !visited.insert(walk.runner.fingerprint()) {
                        continue;
                    }
                }
                if let Some(stop) = stop.or_else(|| walk.offer().err()) {
                    path.push(last);
                    return End::stopped(stop, path, true);
                }
                walk.states += 1;
                let Ok(new) = u32::try_from(nodes.len()) else {
                    return End::Cut(Cut::States);
                };
                nodes.push(Node {
                    parent: number,
                    depth: path.len() as u32 + 1,
                    choice: last,
                });
                queue.push_back(new);
            }
        }
    }
    End::Unproven
}

fn path_to(nodes: &[Node], number: u32, path: &mut Vec<Choice>) {
    path.clear();
    let mut at = number as usize;
    path.reserve(nodes[at].depth as usize);
    while nodes[at].parent != u32::MAX {
        path.push(nodes[at].choice);
        at = nodes[at].parent as usize;
    }
    path.reverse();
}

fn run(walk: &mut Walk<'_>, path: &[Choice]) {
    walk.runner.reset();
    let mut offered = core::mem::take(&mut walk.offered);
    for c in path {
        walk.runner.offer(&mut offered);
        walk.runner.take(offered[usize::from(c.index)], c.answers);
    }
    walk.offered = offered;
}
