//! The moment at which a request acts on memory, and the way back.

use core::ops::Range;

use dm_verbs::{AtomicUnit, AtomicVsWrite, FailedCas, LineOrder, Space};

use super::{Engine, What};
use crate::chain::{Kind, Request};
use crate::memory::Memory;

impl Engine {
    /// Request `i` of `chain` acts on memory: all of it, or the first part.
    pub(super) fn execute(&mut self, chain: u32, i: u16) {
        let c = &mut self.chains[chain as usize];
        let node = &mut self.nodes[usize::from(c.node)];
        let r = c.request_mut(i);
        match r.kind {
            Kind::Read | Kind::Write => {
                if r.kind == Kind::Read {
                    // Not earlier: few buffers are in use at a time, and stay in the cache.
                    r.buffer = self.pool.take(r.len as usize);
                }
                if r.parts == 2 {
                    part(
                        r,
                        &mut node.memory,
                        self.caps.atomic_unit,
                        orders(&self.caps, r.kind),
                        true,
                    );
                    return;
                }
                let len = r.len as usize;
                let space = r.space();
                r.transfer(node.memory.bytes_mut(space), 0..len);
            }
            Kind::Word => r.words[0] = node.memory.word(r.space(), r.offset()),
            Kind::Cas | Kind::MaskedCas | Kind::Faa => {
                let old = node.memory.word(r.space(), r.offset());
                let new = r.apply(old);
                if new.is_none() {
                    self.nics[usize::from(node.nic)].tally.cas_failed += 1;
                }
                r.words[0] = old;
                if self.caps.atomic_vs_write == AtomicVsWrite::Racy {
                    let write_back = new.is_some() || self.caps.failed_cas == FailedCas::WritesBack;
                    r.words[1] = new.unwrap_or(old);
                    r.words[2] = u64::from(write_back);
                    return;
                }
                // Serialised: a failed CAS that writes the old value back can't be seen.
                if let Some(new) = new {
                    node.memory.set_word(r.space(), r.offset(), new);
                }
            }
        }
        self.executed(chain, i);
    }

    /// The second part: the rest of a transfer, or the write-back of an atomic that does not exclude WRITEs.
    pub(super) fn execute_rest(&mut self, chain: u32, i: u16) {
        let c = &mut self.chains[chain as usize];
        let node = &mut self.nodes[usize::from(c.node)];
        let r = c.request_mut(i);
        if r.kind.is_atomic() {
            if r.words[2] != 0 {
                node.memory.set_word(r.space(), r.offset(), r.words[1]);
            }
        } else {
            part(
                r,
                &mut node.memory,
                self.caps.atomic_unit,
                orders(&self.caps, r.kind),
                false,
            );
        }
        self.executed(chain, i);
    }

    /// A request is through with memory: answer, unless that was done before.
    #[inline]
    fn executed(&mut self, chain: u32, i: u16) {
        let c = &mut self.chains[chain as usize];
        c.unexecuted -= 1;
        let r = c.request(i);
        if r.kind == Kind::Write {
            self.recycle(chain);
            return;
        }
        let len = u64::from(r.len);
        let back = if r.space() == Space::Host { self.t.pcie } else { 0 };
        if self.nodes[usize::from(c.node)].down {
            self.lost_answer(chain, i);
            return;
        }
        self.respond(chain, self.now + back, len);
    }

    /// Sends an answer with `len` bytes of payload (an acknowledgement: 0) that the memory node's card has at
    /// `ready`.
    #[inline]
    pub(super) fn respond(&mut self, chain: u32, ready: u64, len: u64) {
        let Engine {
            now,
            t,
            nics,
            pairs,
            chains,
            rng,
            queue,
            ..
        } = self;
        let now = *now;
        let c = &mut chains[chain as usize];
        let pair = &mut pairs[c.qp as usize];
        let bytes = len + t.packets(len) * t.header_response;
        let wire = bytes * t.link_byte;
        let server = &mut nics[usize::from(c.node_nic)];
        let sent = server.link_out.booked(now, ready, wire);
        server.tally.bytes_out += bytes;
        let client = &mut nics[usize::from(c.client_nic)];
        client.tally.bytes_in += bytes;
        let first_byte = sent + t.wire + rng.below(t.jitter) - wire;
        let mut here = client.link_in.booked(now, first_byte, wire);
        if len > 0 {
            let dma = t.pcie_time(len);
            here = client.to_host.booked(now, here, dma) - dma;
        }
        // Completions of one queue pair come in order.
        pair.done = pair.done.max(here + t.completion);
        c.done_at = c.done_at.max(pair.done);
        c.unanswered -= 1;
        if c.unanswered == 0 {
            queue.push(c.done_at, What::Done { chain }.pack());
        }
        if len > 0 {
            pair.unanswered -= 1;
            pair.answered = pair.done;
            if pair.parked && pair.unanswered == 0 {
                let qp = c.qp;
                self.unpark(qp);
            }
        }
    }
}

fn orders(caps: &dm_verbs::Caps, kind: Kind) -> LineOrder {
    if kind == Kind::Read {
        caps.read_lines
    } else {
        caps.write_lines
    }
}

/// Moves the units of a transfer that belong to its first (or second) part.
fn part(r: &mut Request, memory: &mut Memory, unit: AtomicUnit, order: LineOrder, first: bool) {
    let (len, space) = (r.len as usize, r.space());
    let memory = memory.bytes_mut(space);
    match order {
        LineOrder::Increasing => {
            let cut = (r.words[3] as usize).min(len);
            r.transfer(memory, if first { 0..cut } else { cut..len });
        }
        LineOrder::Any => {
            let size = if unit == AtomicUnit::Line { 64 } else { 8 };
            for (n, range) in units(r.offset(), len, size).enumerate() {
                if (r.words[3] >> (n % 64) & 1 == 1) == first {
                    r.transfer(memory, range);
                }
            }
        }
    }
}

/// The aligned units of `size` bytes that `[offset, offset + len)` touches, as ranges relative to `offset`.
fn units(offset: usize, len: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    core::iter::from_fn(move || {
        if from >= len {
            return None;
        }
        let to = (from + size - (offset + from) % size).min(len);
        let range = from..to;
        from = to;
        Some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::units;

    #[test]
    fn units_cover_a_transfer_once_and_cut_at_aligned_addresses() {
        let all: Vec<_> = units(60, 137, 64).collect();
        assert_eq!(all, [0..4, 4..68, 68..132, 132..137]);
        assert_eq!(units(0, 64, 64).count(), 1);
        assert_eq!(units(5, 0, 64).count(), 0);
    }
}
