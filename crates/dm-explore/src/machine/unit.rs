//! The effect of one unit of one request.

use dm_verbs::{AtomicVsWrite, FailedCas};

use super::chain::{Kind, Request, Seen};
use super::shared::Shared;
use super::{Machine, Then};
use crate::fp::Fp;
use crate::knobs::Knobs;
use crate::memory::Memory;

impl Machine {
    /// Serves unit `unit` of request `request` of live chain number `place` of the client.
    pub(super) fn serve_live(&mut self, c: u8, place: u8, request: u8, unit: u8) -> Then {
        let client = &self.clients[usize::from(c)];
        let i = client.live[usize::from(place)];
        let node = client.chains[usize::from(i)].node;
        self.connected(c, node);
        if self.serve(c, i, (false, place, request), unit) {
            self.complete(c, node)
        } else {
            Then::Nothing
        }
    }

    /// Serves unit `unit` of a request of client `c`, and returns whether this finishes chain `i`. `which` identifies
    /// the request in steps: whether it is late, the chain's position, and the request's number.
    pub(super) fn serve(&mut self, c: u8, i: u16, which: (bool, u8, u8), unit: u8) -> bool {
        let request = which.2;
        let client = &self.clients[usize::from(c)];
        if client.open_operation.is_some() && client.chains[usize::from(i)].operations == client.operations {
            self.invoked(c);
        }
        let present = self.is_present(c);
        let chain = &mut *self.clients[usize::from(c)].chains[usize::from(i)];
        let buffer = if present {
            self.buffers.get_mut(c, i, usize::from(request))
        } else {
            None
        };
        let r = &mut chain.requests[usize::from(request)];
        let (from, to) = r.unit(unit, self.unit);
        self.footprint.from = from;
        self.footprint.to = to;
        if r.left() >= 3 {
            self.footprint.inner = Some(which);
        }
        let mut changed = false;
        match r.kind {
            Kind::Read if self.immediate => {
                // No client of the model observes this READ of the setup, so all units are served at once.
                if let Some(buffer) = buffer {
                    buffer.copy_from_slice(self.mem.read(r.at, r.at + r.len));
                }
                r.done = if r.units == 128 {
                    u128::MAX
                } else {
                    (1 << r.units) - 1
                };
            }
            Kind::Read => {
                let bytes = self.mem.read(from, to);
                let hash = self.mem.content(from, to);
                if let Some(buffer) = buffer {
                    buffer[(from - r.at) as usize..(to - r.at) as usize].copy_from_slice(bytes);
                }
                let mut part = Fp::seed(u64::from(unit));
                part.fold2(hash);
                r.seen.xor(part);
                chain.seen.push(Seen {
                    from,
                    to,
                    content: hash.a,
                });
                r.done |= 1 << unit;
            }
            Kind::Word => {
                r.old = self.mem.word(from);
                chain.seen.push(Seen {
                    from,
                    to,
                    content: self.mem.content(from, to).a,
                });
                r.done |= 1;
            }
            Kind::Write => {
                self.footprint.writes = true;
                let at = (r.data + from - r.at) as usize;
                changed = self.mem.write(from, &chain.data[at..at + (to - from) as usize]);
                r.done |= 1 << unit;
            }
            Kind::Cas | Kind::MaskedCas | Kind::Faa => {
                // Both steps of a racy atomic count as writes, because each excludes other atomics.
                self.footprint.writes = true;
                if let Some(touched) = step_atomic(r, &self.knobs, &mut self.mem, &mut self.held) {
                    changed = touched;
                    // Record the value that the atomic found, not the value that it wrote: after an attempt that
                    // changed the word, the next attempt may act differently.
                    let content = Fp::bytes(&r.old.to_le_bytes()).a;
                    chain.seen.push(Seen { from, to, content });
                    r.done |= 1;
                }
            }
        }
        if r.left() == 0 {
            r.finished = true;
            chain.left -= 1;
        }
        let ended = chain.left == 0;
        if changed {
            self.note_change(from, to);
        }
        ended
    }

    /// Changes memory by the effect of a unit, and wakes the clients that wait for this change. Client `c` stays
    /// unchanged.
    pub(super) fn change_memory(&mut self, c: u8, place: u8, request: u8, unit: u8) {
        let client = &self.clients[usize::from(c)];
        let chain = &client.chains[usize::from(client.live[usize::from(place)])];
        let r = &chain.requests[usize::from(request)];
        let (from, to) = r.unit(unit, self.unit);
        let changed = match r.kind {
            Kind::Read | Kind::Word => false,
            Kind::Write => {
                let at = (r.data + from - r.at) as usize;
                self.mem.write(from, &chain.data[at..at + (to - from) as usize])
            }
            Kind::Cas | Kind::MaskedCas | Kind::Faa => {
                step_atomic(&mut { *r }, &self.knobs, &mut self.mem, &mut self.held) == Some(true)
            }
        };
        if changed {
            self.note_change(from, to);
        }
    }

    /// Wakes the clients that wait for a change of memory between `from` and `to`.
    fn note_change(&mut self, from: u32, to: u32) {
        let mut woke = false;
        for (d, client) in self.clients.iter_mut().enumerate() {
            if client.paused && !client.ready && client.watch.iter().any(|s| s.from < to && from < s.to) {
                client.ready = true;
                self.footprint.clients |= 1 << d;
                woke = true;
            }
        }
        if woke {
            self.spoil();
        }
    }

    /// Completes chains in order: the chains of the queue pair are done up to the first one that is not carried out
    /// yet. If the client waits for one of them, the client is polled at once, because an early answer is the strictest
    /// requirement on its program.
    pub(super) fn complete(&mut self, c: u8, node: u16) -> Then {
        let mut polls = false;
        let mut closed = false;
        for place in 0..self.clients[usize::from(c)].live.len() {
            let client = &self.clients[usize::from(c)];
            let i = client.live[place];
            let chain = &client.chains[usize::from(i)];
            if chain.node != node || chain.done {
                continue;
            }
            if chain.left > 0 {
                break;
            }
            polls |= chain.awaited;
            closed |= chain.closed;
            self.clients[usize::from(c)].chains[usize::from(i)].done = true;
            self.log_completion(c, i);
        }
        if closed {
            self.sweep(c);
        }
        if polls { Then::Poll(c) } else { Then::Nothing }
    }

    /// Returns whether some memory in `watch` has changed since it was read.
    pub(super) fn has_changed(&self, watch: &[Seen]) -> bool {
        watch
            .iter()
            .any(|s| self.mem.content(s.from, s.to).a != s.content)
    }
}

/// Takes the next step of an atomic. Returns `None` if a step is left, and otherwise whether this step changed memory.
///
/// If atomics race with WRITEs, an atomic has two steps: it reads, and then it writes back. Otherwise it has one step.
/// A failed CAS also has one step, unless the setting [`FailedCas::WritesBack`] makes it write back.
fn step_atomic(
    r: &mut Request,
    knobs: &Knobs,
    mem: &mut Memory,
    held: &mut Shared<Vec<u32>>,
) -> Option<bool> {
    if r.half {
        r.half = false;
        held.retain(|&w| w != r.at);
        return Some(mem.write(r.at, &r.new.to_le_bytes()));
    }
    r.old = mem.word(r.at);
    let swaps = r.kind == Kind::Faa || r.operands.matches(r.old);
    r.new = match r.kind {
        Kind::Faa => r.old.wrapping_add(r.operands.swap),
        _ if swaps => r.operands.apply(r.old),
        _ => r.old,
    };
    let racy = knobs.atomic_vs_write == AtomicVsWrite::Racy;
    if racy && (swaps || knobs.failed_cas == FailedCas::WritesBack) {
        r.half = true;
        held.push(r.at);
        return None;
    }
    Some(mem.write(r.at, &r.new.to_le_bytes()))
}
