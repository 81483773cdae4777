//! Members: client ids, membership epochs, and fencing.
//!
//! Before client A changes memory, A sets its busy word, executes a fence instruction, and checks whether it was
//! fenced. Client B, which fences A, changes A's state word, executes a fence instruction, and waits until A's busy
//! word is 0. At least one of A and B sees the other's store (as in the store-buffer litmus test with both fences). So
//! no effect of A happens after the answer to the fence request.

use core::cell::Cell;

use dm_sync::{process_alive, region};
use dm_verbs::ClientId;

use crate::format::{CLIENTS_MAX, client_busy, client_group, client_state, header};
use crate::world::World;

/// A client's word: `epoch:32 | unused:7 | process:22 | joined:1 | fenced:1 | live:1`, the low bits last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State(u64);

const LIVE: u64 = 1;
const FENCED: u64 = 2;
const JOINED: u64 = 4;
const PROCESS_SHIFT: u32 = 3;
const PROCESS_MASK: u64 = (1 << 22) - 1;
const EPOCH_SHIFT: u32 = 32;

impl State {
    pub(crate) fn live(self) -> bool {
        self.0 & LIVE != 0
    }
    pub(crate) fn fenced(self) -> bool {
        self.0 & FENCED != 0
    }
    pub(crate) fn epoch(self) -> u32 {
        (self.0 >> EPOCH_SHIFT) as u32
    }
    fn process(self) -> u32 {
        ((self.0 >> PROCESS_SHIFT) & PROCESS_MASK) as u32
    }
    /// Returns the word of the next holder of the id.
    fn successor(self, process: u32) -> Self {
        let epoch = u64::from(self.epoch().wrapping_add(1));
        Self(epoch << EPOCH_SHIFT | u64::from(process) << PROCESS_SHIFT | LIVE)
    }
    /// Returns the word of the id after it was freed. The epoch stays.
    fn freed(self) -> Self {
        Self(self.0 >> EPOCH_SHIFT << EPOCH_SHIFT)
    }
}

impl World {
    pub(crate) fn member(&self, client: ClientId) -> State {
        State(self.word(client_state(client.0)))
    }

    /// Changes `client`'s word if `change` returns a new one. Returns the old word, and whether it was changed.
    fn change(&self, client: ClientId, change: impl Fn(State) -> Option<State>) -> (State, bool) {
        // The closure may run several times, and its last run counts.
        let changed = Cell::new(false);
        let found = self.control.update(client_state(client.0), |word| {
            let new = change(State(word));
            changed.set(new.is_some());
            new.map(|new| new.0)
        });
        (State(found.unwrap_or_default()), changed.get())
    }

    /// Claims the id `client` for this process; with `from_the_dead` even from a process that is dead. Returns the
    /// epoch of the membership, or `None` if the id is in use or is no valid id.
    pub(crate) fn claim(&self, client: ClientId, from_the_dead: bool) -> Option<u32> {
        if client.0 == 0 || u32::from(client.0) >= CLIENTS_MAX {
            return None;
        }
        let me = std::process::id();
        let (found, claimed) = self.change(client, |state| {
            let dead = from_the_dead && state.live() && !process_alive(state.process());
            (!state.live() || dead).then(|| state.successor(me))
        });
        if !claimed {
            return None;
        }
        // A dead process may have left the busy word set.
        self.set_word(client_busy(client.0), 0);
        self.set_word(client_group(client.0), 0);
        Some(found.successor(me).epoch())
    }

    /// Claims a free id. If there is none, claims an id of a dead process.
    pub(crate) fn claim_any(&self) -> Option<(ClientId, u32)> {
        for from_the_dead in [false, true] {
            // The cycle of numbers contains 0, which no client gets.
            for _ in 0..CLIENTS_MAX {
                let next = self.control.faa(header::NEXT_CLIENT, 1).unwrap_or_default();
                let client = ClientId((next % u64::from(CLIENTS_MAX)) as u16);
                if let Some(epoch) = self.claim(client, from_the_dead) {
                    return Some((client, epoch));
                }
            }
        }
        None
    }

    /// Frees `client`, if its epoch is still `epoch`.
    pub(crate) fn release(&self, client: ClientId, epoch: u32) {
        self.change(client, |state| {
            (state.live() && state.epoch() == epoch).then(|| state.freed())
        });
    }

    pub(crate) fn set_joined(&self, client: ClientId, joined: bool) {
        self.change(client, |state| {
            Some(State(if joined {
                state.0 | JOINED
            } else {
                state.0 & !JOINED
            }))
        });
    }

    pub(crate) fn enlist(&self, client: ClientId, member: u16) {
        self.set_word(client_group(client.0), 1 + u64::from(member));
        // The fence instruction orders the store before all later loads of this client. So a client that fences the
        // group either finds this client in it, or this client sees everything that was written before the group was
        // fenced.
        region::fence();
    }

    /// Returns the clients of a group, and the freed ids whose last holders were in it.
    pub(crate) fn group(&self, member: u16) -> impl Iterator<Item = ClientId> + '_ {
        let clients = (1..CLIENTS_MAX).map(|client| ClientId(client as u16));
        clients.filter(move |client| self.word(client_group(client.0)) == 1 + u64::from(member))
    }

    /// Fences `client`. Returns false if there is no such client. The client may still be carrying out a chain
    /// afterwards.
    pub(crate) fn fence_off(&self, client: ClientId) -> bool {
        if client.0 == 0 || u32::from(client.0) >= CLIENTS_MAX {
            return false;
        }
        let (found, _) = self.change(client, |state| state.live().then_some(State(state.0 | FENCED)));
        if found.live() {
            self.set_word(header::ALARM, 1);
            // The fence instruction orders the store before the load of the busy word in `quiet`. The documentation of
            // this module explains why.
            region::fence();
        }
        found.live()
    }

    /// Returns whether the fenced `client` no longer has a chain in progress that changes memory. This is also true if
    /// its process is dead.
    pub(crate) fn quiet(&self, client: ClientId) -> bool {
        self.word(client_busy(client.0)) == 0 || !process_alive(self.member(client).process())
    }

    /// Marks `client` as busy with a chain that changes memory. The caller must check [`World::alarmed`] after this
    /// call, because a check before it can miss a fence (see the module's documentation).
    #[inline]
    pub(crate) fn begin_change(&self, client: ClientId) {
        self.set_word(client_busy(client.0), 1);
        region::fence();
    }

    /// Marks `client` as not busy. Every client that reads from now on sees the effects of `client`'s chain. `unfenced`
    /// tells whether memory may have been changed after the last fence instruction.
    #[inline]
    pub(crate) fn end_change(&self, client: ClientId, unfenced: bool) {
        self.set_word(client_busy(client.0), 0);
        if unfenced {
            // Orders the effects before all later loads of this thread, so that WRITE→READ is in order.
            region::fence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;

    #[test]
    fn every_id_is_tried_wherever_the_cycle_begins() {
        let world = World::in_memory(&Builder::new().nodes(1).host_bytes(8192)).expect("memory");
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        child.wait().expect("it ends");
        for first in [1, 7, u64::from(CLIENTS_MAX) - 1] {
            for id in 1..CLIENTS_MAX as u16 {
                world.set_word(client_state(id), State(0).successor(std::process::id()).0);
            }
            // Two rounds of the cycle begin at `first`. An id just before it comes last in each of them.
            world.set_word(header::NEXT_CLIENT, first);
            let before = |steps: u64| match (first + u64::from(CLIENTS_MAX) - steps) % u64::from(CLIENTS_MAX)
            {
                0 => None,
                id => Some(ClientId(id as u16)),
            };
            for last in [before(1), before(2)].into_iter().flatten() {
                let dead = State(0).successor(child.id());
                world.set_word(client_state(last.0), dead.0);
                world.set_word(header::NEXT_CLIENT, first);
                assert_eq!(world.claim_any(), Some((last, 2)), "the cycle begins at {first}");
            }
            assert_eq!(world.claim_any(), None);
        }
    }
}
