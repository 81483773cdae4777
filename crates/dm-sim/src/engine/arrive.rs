//! At the memory node: link, responder pipeline, atomic buckets, PCIe.

use dm_verbs::{AtomicUnit, AtomicVsWrite, Caps, CasThenRead, LineOrder, Space};

use super::issue::request_bytes;
use super::{Engine, QueuePair, What};
use crate::chain::{Kind, Request};
use crate::model::{Tearing, Ticks};
use crate::rng::Rng;

/// Time in the responder's pipeline.
#[inline]
fn service(t: &Ticks, r: &Request) -> u64 {
    let lines = r.units(64);
    let (first, lines) = match (r.space(), r.kind) {
        (Space::Chip, _) => (t.chip, lines - 1),
        (Space::Host, Kind::Read | Kind::Word) => (t.read, lines),
        (Space::Host, Kind::Write) => (t.write, lines - 1),
        (Space::Host, Kind::Cas | Kind::MaskedCas | Kind::Faa) => (t.atomic, 0),
    };
    first + lines * t.line
}

/// How long an atomic keeps its bucket.
#[inline]
fn occupancy(t: &Ticks, r: &Request) -> u64 {
    match (r.space(), r.kind) {
        (Space::Chip, _) => t.bucket_chip,
        (Space::Host, Kind::Faa) => t.bucket_faa,
        (Space::Host, _) => t.bucket_cas,
    }
}

/// Up to this long after its turn an atomic acts where a READ behind it may be served first: picoseconds, twice the
/// distance at which a chain's second request follows the first.
const LATE_ATOMIC: u64 = 500_000;

/// Until when this request must wait for earlier ones of its queue pair.
#[inline]
fn earlier(pair: &QueuePair, r: &Request, caps: &Caps) -> u64 {
    let order = if caps.host_before_chip {
        pair.order[0].max(pair.order[1])
    } else {
        pair.order[r.space() as usize]
    };
    if r.kind.mutates() {
        order.max(pair.atomic_at)
    } else {
        order
    }
}

impl Engine {
    /// Request `i` of `chain` has arrived.
    pub(super) fn arrive(&mut self, chain: u32, i: u16) {
        let Engine {
            now,
            t,
            caps,
            queue,
            nics,
            nodes,
            pairs,
            chains,
            rng,
            ..
        } = self;
        let now = *now;
        let c = &mut chains[chain as usize];
        let pair = &mut pairs[c.qp as usize];
        let node = &mut nodes[usize::from(c.node)];
        let nic = &mut nics[usize::from(c.node_nic)];
        let r = c.request_mut(i);
        if node.down || pair.broken || pair.fenced {
            let fenced = pair.fenced;
            self.lost_request(chain, i, fenced);
            return;
        }
        if r.space() == Space::Host {
            node.memory.prefetch(r.offset(), r.len as usize);
        }
        let bytes = request_bytes(t, r);
        nic.tally.messages_in += 1;
        nic.tally.bytes_in += bytes;
        // Cut-through: the last byte is here now unless the link was busy.
        let wire = bytes * t.link_byte;
        let inside = nic.link_in.fifo(now.saturating_sub(wire), wire) + wire;

        let service = service(t, r);
        let mut start;
        if r.kind.is_atomic() {
            nic.tally.atomics += 1;
            let b = (r.offset() as u64 & t.bucket_mask) as usize;
            let bucket = match r.space() {
                Space::Host => &mut node.host_buckets[b],
                Space::Chip => &mut node.chip_buckets[b],
            };
            let turn = inside.max(nic.responder.free_at());
            if t.stall {
                start = nic.responder.fifo(turn.max(*bucket), service);
                nic.tally.stalled += start - turn;
            } else {
                start = nic.responder.fifo(turn, service).max(*bucket);
            }
            *bucket = start + occupancy(t, r);
        } else {
            start = nic.responder.fifo(inside, service);
        }
        start += service;
        let ordered = caps.cas_then_read == CasThenRead::InOrder;
        if r.kind.is_atomic() && !ordered {
            // Late, and its bucket taken until then: atomics keep excluding each other.
            let late = rng.below(LATE_ATOMIC);
            start += late;
            let b = (r.offset() as u64 & t.bucket_mask) as usize;
            match r.space() {
                Space::Host => node.host_buckets[b] += late,
                Space::Chip => node.chip_buckets[b] += late,
            }
        }

        // Equal offsets from pipeline to memory for all kinds: the pipeline's order is the memory's.
        let dma = t.pcie_time(u64::from(r.len));
        let mut act = match (r.space(), r.kind.mutates()) {
            (Space::Chip, _) => start,
            (Space::Host, false) => nic.from_host.booked(now, start, dma) - dma + t.pcie,
            (Space::Host, true) => {
                if r.kind.is_atomic() {
                    nic.from_host.booked(now, start, dma);
                }
                nic.to_host.booked(now, start, dma) - dma + t.pcie
            }
        };
        act = act.max(earlier(pair, r, caps));
        let mut rest = act;
        let racy = r.kind.is_atomic() && caps.atomic_vs_write == AtomicVsWrite::Racy;
        if racy {
            // The write-back comes while the bucket is still taken, so atomics exclude each other all the same.
            r.parts = 2;
            rest = act + occupancy(t, r) / 2;
        } else if !r.kind.is_atomic() {
            let unit = if caps.atomic_unit == AtomicUnit::Line {
                64
            } else {
                8
            };
            let units = r.units(unit);
            if units > 1 {
                r.parts = 2;
                nic.tally.torn_windows += 1;
                rest = act + split(t, r, unit, units, (caps.read_lines, caps.write_lines), rng);
            }
        }
        if r.kind.is_atomic() && !ordered {
            pair.atomic_at = pair.atomic_at.max(rest);
        } else {
            let o = &mut pair.order[r.space() as usize];
            *o = (*o).max(if r.kind.mutates() { rest } else { act });
        }
        match r.kind {
            Kind::Read | Kind::Word => {
                nic.tally.reads += 1;
                // `atomic_at` stays 0 where CAS→READ is in order.
                let between = act < pair.atomic_at && rest > pair.atomic_at;
                if between && caps.cas_then_read == CasThenRead::WholeReadFirst {
                    rest += pair.atomic_at - act;
                    act = pair.atomic_at;
                }
            }
            Kind::Write => nic.tally.writes += 1,
            Kind::Cas | Kind::MaskedCas | Kind::Faa => {}
        }
        queue.push(act, What::Execute { chain, request: i }.pack());
        if r.parts == 2 {
            queue.push(rest, What::ExecuteRest { chain, request: i }.pack());
        }
        if r.kind == Kind::Write {
            // The acknowledgement does not wait for memory, but it is not back before the data is there: who awaited it
            // may tell others to look.
            let ready = start.max(rest.saturating_sub(t.wire));
            self.respond(chain, ready, 0);
        }
    }
}

/// Draws what the first part of a transfer of several units holds, and how long after it the second comes.
fn split(
    t: &Ticks,
    r: &mut Request,
    unit: u64,
    units: u64,
    (read_lines, write_lines): (LineOrder, LineOrder),
    rng: &mut Rng,
) -> u64 {
    let order = if r.kind == Kind::Read {
        read_lines
    } else {
        write_lines
    };
    r.words[3] = match order {
        // Any subset of the units, by their number modulo 64.
        LineOrder::Any => rng.next(),
        // A prefix, in bytes.
        LineOrder::Increasing => {
            let first = unit - r.offset() as u64 % unit;
            first + rng.below(units - 1) * unit
        }
    };
    // Where words tear, each takes a line's time: the pipeline would keep shorter windows apart.
    let time = units * t.torn_line;
    match t.tearing {
        Tearing::EqualSpeed => time * 3 / 2,
        // 0.5 to 2.5 in steps of 1/1024.
        Tearing::Random => (time * (512 + rng.below(2048))) >> 10,
    }
}
