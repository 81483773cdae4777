//! Lists of events, in nodes that are reused.

use super::Event;

/// The end of a list.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    event: Event,
    next: u32,
}

/// The nodes of all lists. A list is represented by the number of its newest node, or by [`NONE`].
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    free: u32,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
        }
    }
}

impl Nodes {
    /// Adds `event` to the front of the list `next`, and returns the new list.
    pub(super) fn add(&mut self, event: Event, next: u32) -> u32 {
        let node = Node { event, next };
        if self.free == NONE {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let n = self.free;
            let place = &mut self.nodes[n as usize];
            self.free = place.next;
            *place = node;
            n
        }
    }

    /// Removes the first event of list `n`, which must not be empty. Returns the event and the rest of the list.
    pub(super) fn remove(&mut self, n: u32) -> (Event, u32) {
        let node = &mut self.nodes[n as usize];
        let next = core::mem::replace(&mut node.next, self.free);
        self.free = n;
        (node.event, next)
    }

    /// Reverses a list.
    pub(super) fn oldest_first(&mut self, newest: u32) -> u32 {
        let (mut n, mut done) = (newest, NONE);
        while n != NONE {
            n = core::mem::replace(&mut self.nodes[n as usize].next, core::mem::replace(&mut done, n));
        }
        done
    }
}
