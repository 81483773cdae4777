//! Saved states of the machine, to which a search can return. Futures can't be copied. But if tapes replace the
//! clients (see `tape`), the machine is the whole state.

use super::chain::Chain;
use super::client::ClientState;
use super::stamped::Stamped;
use super::{Machine, NodeState};
use crate::fp::Fp;

/// Everything that changes during an execution, except memory, which undoes its own changes.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    memory: usize,
    chains: Vec<Stamped<Chain>>,
    free: Stamped<Vec<u16>>,
    clients: Vec<Stamped<ClientState>>,
    nodes: Stamped<Vec<NodeState>>,
    held: Stamped<Vec<u32>>,
    allocated: Stamped<Vec<u64>>,
    ghosts: Stamped<Vec<(&'static str, u64)>>,
    faults: (u8, u8, u8),
    step_count: u32,
    clock: u64,
    history: Fp,
    completed: Fp,
}

impl Machine {
    /// Saves the present state in `saved`, and reuses its memory.
    pub(crate) fn save(&self, saved: &mut Saved) {
        saved.memory = self.mem.moment();
        saved.chains.resize_with(self.chains.len(), Stamped::default);
        for (to, from) in saved.chains.iter_mut().zip(&self.chains) {
            to.copy_from(from);
        }
        saved.free.copy_from(&self.free);
        // The client that runs the setup is not saved.
        let clients = usize::from(self.setup_client());
        saved.clients.resize_with(clients, Stamped::default);
        for (to, from) in saved.clients.iter_mut().zip(&self.clients) {
            to.copy_from(from);
        }
        saved.nodes.copy_from(&self.nodes);
        saved.held.copy_from(&self.held);
        saved.allocated.copy_from(&self.allocated);
        saved.ghosts.copy_from(&self.ghosts);
        saved.faults = self.faults;
        (saved.step_count, saved.clock) = (self.step_count, self.clock);
        (saved.history, saved.completed) = (self.history, self.completed);
    }

    /// Returns to `saved`, a state that the present execution went through.
    pub(crate) fn restore(&mut self, saved: &Saved) {
        self.mem.go_back(saved.memory);
        // Chains made since then are free, or will be made again.
        for (to, from) in self.chains.iter_mut().zip(&saved.chains) {
            to.copy_from(from);
        }
        self.free.copy_from(&saved.free);
        for i in (saved.chains.len()..self.chains.len()).rev() {
            self.chains[i].clear();
            self.free.insert(0, i as u16);
        }
        for (to, from) in self.clients.iter_mut().zip(&saved.clients) {
            to.copy_from(from);
        }
        self.nodes.copy_from(&saved.nodes);
        self.held.copy_from(&saved.held);
        self.allocated.copy_from(&saved.allocated);
        self.ghosts.copy_from(&saved.ghosts);
        self.faults = saved.faults;
        (self.step_count, self.clock) = (saved.step_count, saved.clock);
        (self.history, self.completed) = (saved.history, saved.completed);
        self.failure = None;
    }
}
