//! Saved states of the machine, to which a search can return. Futures cannot be copied. But if tapes replace
//! the clients (see `tape`), the machine alone is the whole state.

use super::client::{Client, Times};
use super::shared::Shared;
use super::{Machine, NodeState};
use crate::fp::Fp;

/// Everything that changes during an execution, except memory, which can undo its changes.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    memory: usize,
    /// The clients, and one more that runs the setup, with their recorded operations.
    clients: Vec<Client>,
    operations: Vec<Shared<Vec<Times>>>,
    nodes: Shared<Vec<NodeState>>,
    held: Shared<Vec<u32>>,
    allocated: Shared<Vec<u64>>,
    ghosts: Shared<Vec<(&'static str, u64)>>,
    faults: (u8, u8, u8),
    step_count: u32,
    clock: u64,
    history: Fp,
    completed: Fp,
}

impl Machine {
    /// Saves the current state in `saved`, and reuses the allocations there.
    pub(crate) fn save(&self, saved: &mut Saved) {
        saved.memory = self.mem.moment();
        saved.clients.clone_from(&self.clients);
        saved.operations.clone_from(&self.operations);
        saved.nodes.clone_from(&self.nodes);
        saved.held.clone_from(&self.held);
        saved.allocated.clone_from(&self.allocated);
        saved.ghosts.clone_from(&self.ghosts);
        saved.faults = self.faults;
        (saved.step_count, saved.clock) = (self.step_count, self.clock);
        (saved.history, saved.completed) = (self.history, self.completed);
    }

    /// Returns to `saved`, an earlier state of the current execution.
    pub(crate) fn restore(&mut self, saved: &Saved) {
        self.mem.go_back(saved.memory);
        self.clients.clone_from(&saved.clients);
        self.operations.clone_from(&saved.operations);
        self.nodes.clone_from(&saved.nodes);
        self.held.clone_from(&saved.held);
        self.allocated.clone_from(&saved.allocated);
        self.ghosts.clone_from(&saved.ghosts);
        self.faults = saved.faults;
        (self.step_count, self.clock) = (saved.step_count, saved.clock);
        (self.history, self.completed) = (saved.history, saved.completed);
        self.failure = None;
    }
}
