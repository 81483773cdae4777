//! The reports of the harness: histories, ghost variables, sections, outputs.

use dm_verbs::trace::{What, number};

use super::Machine;
use super::client::{Status, Times};
use super::moves::Effect;
use super::tape::Call;
use crate::fp::Fp;
use crate::verdict::Failure;

impl Machine {
    /// Begins an operation. It counts as invoked only from its first unit, section, wake-up or request to the control
    /// plane on, because a later time is a stricter requirement.
    pub(crate) fn begin_operation(&mut self, c: u8, operation: Fp) {
        self.note_sections();
        self.note(Call::Begin(operation));
        self.act(c, operation.a ^ 0xB);
        let client = &mut *self.clients[usize::from(c)];
        let number = client.operations;
        client.open_operation = Some(number);
        client.operations += 1;
        client.invoked = false;
        self.affect(c, Effect::Begin(number, operation));
    }

    pub(super) fn operation_begins(&mut self, c: u8, number: u32, operation: Fp) {
        self.operations[usize::from(c)].push(Times {
            op: operation,
            ..Times::default()
        });
        let mut id = operation;
        id.fold(u64::from(c) | (u64::from(number) + 1) << 32);
        self.history.xor(id);
    }

    /// Records that the client's open operation counts as invoked, if it did not before.
    pub(super) fn invoked(&mut self, c: u8) {
        let client = &self.clients[usize::from(c)];
        if let (Some(number), false) = (client.open_operation, client.invoked) {
            self.clients[usize::from(c)].invoked = true;
            self.footprint.invokes = true;
            self.affect(c, Effect::Invoke(number));
        }
    }

    pub(super) fn operation_is_invoked(&mut self, c: u8, number: u32) {
        self.operations[usize::from(c)][number as usize].invoked = Some(self.step_count);
        // For the verdict, only the set of operations that have already returned matters.
        let mut before = Fp::at(u64::from(c) | 1 << 40, u64::from(number));
        before.fold2(self.completed);
        self.history.xor(before);
    }

    /// Returns the open operation of `c`.
    pub(crate) fn open_operation(&self, c: u8) -> Option<Fp> {
        let number = self.clients[usize::from(c)].open_operation?;
        Some(self.operations[usize::from(c)].get(number as usize)?.op)
    }

    /// Ends the open operation of `c` with this result.
    pub(crate) fn end_operation(&mut self, c: u8, result: Fp) {
        self.note_sections();
        self.note(Call::End(result));
        self.invoked(c);
        self.act(c, result.a ^ 0xE);
        self.footprint.responds = true;
        let Some(number) = self.clients[usize::from(c)].open_operation.take() else {
            return;
        };
        self.affect(c, Effect::End(number, result));
    }

    pub(super) fn operation_ends(&mut self, c: u8, number: u32, result: Fp) {
        let times = &mut self.operations[usize::from(c)][number as usize];
        (times.returned, times.ret) = (Some(self.step_count), Some(result));
        let place = Fp::at(u64::from(c) | 1 << 41, u64::from(number));
        self.completed.xor(place);
        let mut id = place;
        id.fold2(result);
        self.history.xor(id);
    }

    /// Ends the open operation of `c` without a result, so that it stays pending.
    pub(crate) fn leave_pending(&mut self, c: u8) {
        self.note_sections();
        self.note(Call::Pending);
        self.invoked(c);
        self.clients[usize::from(c)].open_operation = None;
    }

    /// Records a failure that was found while a client was polled.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.spoil();
        self.note(Call::Fail(Box::new(failure.clone())));
        self.failure.get_or_insert(failure);
    }

    /// Returns a hash of everything in the history on which a verdict depends.
    pub(crate) fn history_hash(&self) -> Fp {
        self.history
    }

    /// Returns the value of ghost variable `name`.
    pub(crate) fn ghost(&self, name: &str) -> u64 {
        self.ghosts.iter().find(|g| g.0 == name).map_or(0, |g| g.1)
    }

    pub(super) fn ghost_mut(&mut self, name: &'static str) -> &mut u64 {
        self.footprint.ghosts = true;
        let at = self.ghosts.iter().position(|g| g.0 == name).unwrap_or_else(|| {
            self.ghosts.push((name, 0));
            self.ghosts.len() - 1
        });
        &mut self.ghosts[at].1
    }

    /// Writes ghost variable `name` for client `c`.
    pub(crate) fn write_ghost(&mut self, c: u8, name: &'static str, value: u64) {
        self.note_sections();
        self.note(Call::Ghost(name, value));
        self.act(c, value ^ Fp::bytes(name.as_bytes()).a);
        let before = self.ghost(name);
        self.affect(c, Effect::Ghost(name, value));
        if before != value
            && let Some(log) = &mut self.log
        {
            log.remark(c, format!("ghost {name} {} → {}", number(before), number(value)));
        }
    }

    /// Lets `c` enter a section that admits at most `limit` clients. A ghost variable counts the clients inside.
    pub(crate) fn monitor_enter(&mut self, c: u8, name: &'static str, limit: u32) {
        self.note_sections();
        self.note(Call::Enter(name, limit));
        self.act(c, 3);
        if let Some(log) = &mut self.log {
            let section = name.to_owned();
            log.then(c, What::Enters { section }, format!("enters {name}"));
        }
        self.affect(c, Effect::Enter(name, limit));
    }

    pub(super) fn section_is_entered(&mut self, c: u8, name: &'static str, limit: u32) {
        let inside = self.ghost_mut(name);
        *inside += 1;
        let inside = u32::try_from(*inside).unwrap_or(u32::MAX);
        self.overtake(c, name);
        if inside > limit && self.failure.is_none() {
            self.failure = Some(Failure::Monitor {
                client: c,
                name,
                inside,
                limit,
            });
        }
    }

    /// Records that `c` waits for a section, if the model bounds overtaking for this section. Otherwise, the record
    /// would only add states.
    pub(crate) fn wait_for(&mut self, c: u8, name: &'static str) {
        self.note_sections();
        self.note(Call::Wait(name));
        self.act(c, 5);
        if self.bypass.iter().any(|b| b.0 == name) {
            self.footprint.ghosts = true;
            self.clients[usize::from(c)].waits = Some((name, 0));
        }
    }

    /// Records that `by` enters a section, if the model bounds overtaking for this section. So `by` no longer waits for
    /// it, and overtakes all running clients that do.
    fn overtake(&mut self, by: u8, name: &'static str) {
        let Some(&(_, limit)) = self.bypass.iter().find(|b| b.0 == name) else {
            return;
        };
        for d in 0..self.setup_client() {
            let client = &mut self.clients[usize::from(d)];
            let Some((_, overtaken)) = client.waits.filter(|w| w.0 == name) else {
                continue;
            };
            if d == by {
                client.waits = None;
            } else if client.status == Status::Running {
                client.waits = Some((name, overtaken + 1));
                let failed = overtaken == limit && self.failure.is_none();
                self.footprint.clients |= 1 << d;
                if failed {
                    self.failure = Some(Failure::Bypass {
                        client: d,
                        name,
                        by,
                        limit,
                    });
                }
            }
        }
    }

    /// Returns a client that waits for another client: it can take no step, and none of its requests is in flight.
    pub(crate) fn waiter(&self) -> Option<u8> {
        (0..self.setup_client()).find(|&c| {
            let client = &self.clients[usize::from(c)];
            client.status == Status::Running
                && !client.can_wake()
                && !client.at_local
                && client.control.is_none()
                && client.live.iter().all(|&i| self.chain(c, i).left == 0)
        })
    }

    pub(crate) fn monitor_leave(&mut self, c: u8, name: &'static str) {
        self.note_sections();
        self.note(Call::Leave(name));
        self.act(c, 4);
        if let Some(log) = &mut self.log {
            let section = name.to_owned();
            log.then(c, What::Leaves { section }, format!("leaves {name}"));
        }
        self.affect(c, Effect::Leave(name));
    }

    pub(super) fn section_is_left(&mut self, name: &'static str) {
        let inside = self.ghost_mut(name);
        *inside = inside.saturating_sub(1);
    }

    pub(crate) fn output(&mut self, c: u8, value: u64) {
        self.note_sections();
        self.note(Call::Output(value));
        self.act(c, value);
        let client = &mut self.clients[usize::from(c)];
        client.outputs.push(value);
        client.output_hash.fold(value);
    }

    /// Forgets what client `c` has observed: from now on, its number of calls of `forget` identifies the point that it
    /// has reached.
    pub(crate) fn forget(&mut self, c: u8) {
        self.note_sections();
        self.note(Call::Forget);
        let client = &mut *self.clients[usize::from(c)];
        client.forgotten += 1;
        client.seen = Fp::seed(u64::from(c) | 1 << 50);
        client.seen.fold(u64::from(client.forgotten));
        client.acts = 0;
        client.rng = 0;
        client.reads.clear();
        client.marks.clear();
        (client.looks_before, client.changed_before) = (client.looks, client.changed);
    }
}
