//! The effect of a request on memory.

use core::mem::{forget, replace};
use core::ops::Range;

use dm_verbs::{AtomicUnit, Caps, FailedCas, LineOrder, Space};

use super::Engine;
use crate::lease::{LINE, Lease};
use crate::memory::Memory;
use crate::nic::Tally;
use crate::request::{Kind, Request};

/// Carries out all of `r` in a single step.
#[inline(always)]
pub(super) fn whole(r: &mut Request, kind: Kind, space: Space, memory: &mut Memory, tally: &mut Tally) {
    match kind {
        Kind::Read => {
            // The buffer is taken only now, so that few buffers are in use at a time and they stay in the CPU's cache.
            let (at, len, memory) = (r.offset(), r.len as usize, memory.bytes_mut(space));
            // `forget` skips the drop of the old buffer, which is empty because a READ acts only once.
            let line = memory.get(at..).and_then(<[u8]>::first_chunk::<LINE>);
            match line {
                Some(line) if len <= LINE => forget(replace(&mut r.buffer, Lease::of_line(len, line))),
                _ => {
                    forget(replace(&mut r.buffer, Lease::take(len)));
                    r.transfer(kind, memory, 0..len);
                }
            }
        }
        // A WRITE of one word is common: it usually releases a lock.
        Kind::Write if r.len == 8 => memory.set_word(space, r.offset(), r.words[0]),
        Kind::Write => r.transfer(kind, memory.bytes_mut(space), 0..r.len as usize),
        Kind::Word => r.words[0] = memory.word(space, r.offset()),
        Kind::Cas | Kind::MaskedCas | Kind::Faa => {
            // A failed CAS that writes the old value back has no visible effect here.
            if let Some(new) = swap(r, kind, space, memory, tally) {
                memory.set_word(space, r.offset(), new);
            }
        }
    }
}

/// Carries out the first part of `r`, which acts in two parts: some units of a transfer, or the read step of an atomic
/// that races with WRITEs.
pub(super) fn first(r: &mut Request, memory: &mut Memory, caps: &Caps, tally: &mut Tally) {
    if r.kind.is_atomic() {
        let new = swap(r, r.kind, r.space(), memory, tally);
        r.words[1] = new.unwrap_or(r.words[0]);
        r.words[2] = u64::from(new.is_some() || caps.failed_cas == FailedCas::WritesBack);
        return;
    }
    if r.kind == Kind::Read {
        r.buffer = Lease::take(r.len as usize);
    }
    part(r, memory, caps, true);
}

/// Returns the new value that an atomic stores, or `None` if the atomic fails.
#[inline]
fn swap(r: &mut Request, kind: Kind, space: Space, memory: &Memory, tally: &mut Tally) -> Option<u64> {
    let old = memory.word(space, r.offset());
    let new = r.apply(kind, old);
    tally.cas_failed += u64::from(new.is_none());
    r.words[0] = old;
    new
}

impl Engine {
    /// Carries out request `i` of `chain`, which could not act when it arrived: the whole request, or its first part.
    pub(super) fn execute(&mut self, chain: u32, i: u16) {
        let c = &mut self.chains[chain as usize];
        let node = &mut self.nodes[usize::from(c.node)];
        let tally = &mut self.nics[usize::from(node.nic)].tally;
        let r = c.request_mut(i);
        if r.parts == 2 {
            first(r, &mut node.memory, &self.caps, tally);
            self.changed(chain, i);
        } else {
            let (kind, space) = (r.kind, r.space());
            whole(r, kind, space, &mut node.memory, tally);
            self.changed(chain, i);
            self.executed(chain);
        }
    }

    /// Carries out the second part: the rest of a transfer, or the write-back of an atomic that races with WRITEs.
    pub(super) fn execute_rest(&mut self, chain: u32, i: u16) {
        let c = &mut self.chains[chain as usize];
        let node = &mut self.nodes[usize::from(c.node)];
        let r = c.request_mut(i);
        if !r.kind.is_atomic() {
            part(r, &mut node.memory, &self.caps, false);
        } else if r.words[2] != 0 {
            node.memory.set_word(r.space(), r.offset(), r.words[1]);
        }
        self.changed(chain, i);
        self.executed(chain);
    }

    /// Updates the copies of READs with the bytes that request `i` of `chain` has changed.
    fn changed(&mut self, chain: u32, i: u16) {
        let c = &self.chains[chain as usize];
        let (node, r) = (&mut self.nodes[usize::from(c.node)], c.request(i));
        if r.kind.mutates() && r.space() == Space::Host {
            let changed = r.offset()..r.offset() + r.len as usize;
            node.copy_again(&mut self.chains, changed, self.now);
        }
    }

    /// Records that a whole request has acted on memory.
    #[inline]
    fn executed(&mut self, chain: u32) {
        self.chains[chain as usize].status.executed();
        self.recycle(chain);
    }
}

/// Moves the units of a transfer that belong to its first part if `first` is true, and otherwise those of its second
/// part.
fn part(r: &mut Request, memory: &mut Memory, caps: &Caps, first: bool) {
    let (len, space) = (r.len as usize, r.space());
    let memory = memory.bytes_mut(space);
    let order = if r.kind == Kind::Read {
        caps.read_lines
    } else {
        caps.write_lines
    };
    match order {
        LineOrder::Increasing => {
            let cut = (r.words[3] as usize).min(len);
            r.transfer(r.kind, memory, if first { 0..cut } else { cut..len });
        }
        LineOrder::Any => {
            let size = if caps.atomic_unit == AtomicUnit::Line {
                64
            } else {
                8
            };
            for (n, range) in units(r.offset(), len, size).enumerate() {
                if (r.words[3] >> (n % 64) & 1 == 1) == first {
                    r.transfer(r.kind, memory, range);
                }
            }
        }
    }
}

/// Returns the aligned units of `size` bytes that `[offset, offset + len)` touches, as ranges relative to
/// `offset`.
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
