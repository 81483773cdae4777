//! What the harness around operations reports: histories, monitors, outputs.

use super::Machine;
use super::client::Times;
use super::tape::Call;
use crate::fp::Fp;
use crate::verdict::Failure;

impl Machine {
    /// An operation begins; it counts as invoked from its first micro-step on, the latest moment that is true.
    pub(crate) fn begin_operation(&mut self, c: u8, operation: Fp) {
        self.note_sections();
        self.note(Call::Begin(operation));
        self.act(c, operation.a ^ 0xB);
        let client = &mut self.clients[usize::from(c)];
        client.open_operation = Some(client.times.len() as u32);
        client.times.push(Times {
            op: operation,
            ..Times::default()
        });
        let number = client.times.len() as u64;
        let mut id = operation;
        id.fold(u64::from(c) | number << 32);
        self.history.xor(id);
    }

    /// The client's open operation takes its first micro-step.
    pub(super) fn invoked(&mut self, c: u8) {
        let now = self.step_count;
        let client = &mut self.clients[usize::from(c)];
        let Some(number) = client.open_operation else {
            return;
        };
        let times = &mut client.times[number as usize];
        if times.invoked.is_none() {
            times.invoked = Some(now);
            self.footprint.invokes = true;
            // What matters later is which operations had returned by now.
            let mut before = Fp::at(u64::from(c) | 1 << 40, u64::from(number));
            before.fold2(self.completed);
            self.history.xor(before);
        }
    }

    /// The open operation of `c`.
    pub(crate) fn open_operation(&self, c: u8) -> Option<Fp> {
        let client = &self.clients[usize::from(c)];
        Some(client.times.get(client.open_operation? as usize)?.op)
    }

    /// The open operation of `c` returned this.
    pub(crate) fn end_operation(&mut self, c: u8, result: Fp) {
        self.note_sections();
        self.note(Call::End(result));
        self.invoked(c);
        self.act(c, result.a ^ 0xE);
        self.footprint.responds = true;
        let now = self.step_count;
        let client = &mut self.clients[usize::from(c)];
        let Some(number) = client.open_operation.take() else {
            return;
        };
        client.times[number as usize].returned = Some(now);
        client.times[number as usize].ret = Some(result);
        let place = Fp::at(u64::from(c) | 1 << 41, u64::from(number));
        self.completed.xor(place);
        let mut id = place;
        id.fold2(result);
        self.history.xor(id);
    }

    /// The open operation of `c` ended without saying what it did.
    pub(crate) fn leave_pending(&mut self, c: u8) {
        self.note_sections();
        self.note(Call::Pending);
        self.invoked(c);
        self.clients[usize::from(c)].open_operation = None;
    }

    /// Client `c` found something wrong itself.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.note(Call::Fail(Box::new(failure.clone())));
        self.failure.get_or_insert(failure);
    }

    /// Everything about the history that a verdict depends on.
    pub(crate) fn history_hash(&self) -> Fp {
        self.history
    }

    /// `c` enters a section that at most `limit` clients may be in.
    pub(crate) fn monitor_enter(&mut self, c: u8, name: &'static str, limit: u32) {
        self.note_sections();
        self.note(Call::Enter(name, limit));
        self.act(c, 3);
        self.footprint.monitors = true;
        let at = self.monitors.iter().position(|m| m.0 == name).unwrap_or_else(|| {
            self.monitors.push((name, 0));
            self.monitors.len() - 1
        });
        self.monitors[at].1 += 1;
        if self.monitors[at].1 > limit && self.failure.is_none() {
            self.failure = Some(Failure::Monitor {
                client: c,
                name,
                inside: self.monitors[at].1,
                limit,
            });
        }
    }

    pub(crate) fn monitor_leave(&mut self, c: u8, name: &'static str) {
        self.note_sections();
        self.note(Call::Leave(name));
        self.act(c, 4);
        self.footprint.monitors = true;
        if let Some(m) = self.monitors.iter_mut().find(|m| m.0 == name) {
            m.1 = m.1.saturating_sub(1);
        }
    }

    pub(crate) fn output(&mut self, c: u8, value: u64) {
        self.note_sections();
        self.note(Call::Output(value));
        self.act(c, value);
        let client = &mut self.clients[usize::from(c)];
        client.outputs.push(value);
        client.output_hash.fold(value);
    }

    /// The client's standing from here on is decided by how often it forgot.
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
        client.dirty = true;
    }
}
