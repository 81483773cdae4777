//! The path through the memory node: link, responder pipeline, atomic buckets, PCIe.

use dm_verbs::{AtomicUnit, AtomicVsWrite, Caps, CasThenRead, LineOrder, Space};

use super::issue::request_bytes;
use super::windows::Window;
use super::{Engine, Node, Odd, QueuePair, What, execute};
use crate::model::{Tearing, Ticks};
use crate::nic::Nic;
use crate::request::{Kind, Request};
use crate::rng::Dice;

/// Returns the time that a request of `lines` lines takes in the responder's pipeline.
#[inline(always)]
fn service(t: &Ticks, kind: Kind, space: Space, lines: u64) -> u64 {
    let (first, lines) = match (space, kind) {
        (Space::Chip, _) => (t.chip, lines - 1),
        (Space::Host, Kind::Read | Kind::Word) => (t.read, lines),
        (Space::Host, Kind::Write) => (t.write, lines - 1),
        (Space::Host, Kind::Cas | Kind::MaskedCas | Kind::Faa) => (t.atomic, 0),
    };
    first + lines * t.line
}

/// Returns how long an atomic occupies its bucket.
#[inline]
fn occupancy(t: &Ticks, kind: Kind, space: Space) -> u64 {
    match (space, kind) {
        (Space::Chip, _) => t.bucket_chip,
        (Space::Host, Kind::Faa) => t.bucket_faa,
        (Space::Host, _) => t.bucket_cas,
    }
}

/// The maximum delay of an atomic in picoseconds, if a later READ may overtake the atomic. It is twice the time that
/// the presets set between the first and the second request of a chain (`fetch_ns`).
const LATE_ATOMIC: u64 = 500_000;

/// Returns the time from which a request may act on memory, given the earlier requests of its queue pair.
#[inline(always)]
fn earlier(pair: &QueuePair, kind: Kind, space: Space, caps: &Caps) -> u64 {
    let order = if caps.host_before_chip {
        pair.order[0].max(pair.order[1])
    } else {
        pair.order[space as usize]
    };
    if kind.mutates() {
        order.max(pair.atomic_at)
    } else {
        order
    }
}

/// Returns whether requests act on memory when they arrive, instead of when the pipeline serves them.
///
/// The pipeline serves requests in order of arrival, so the order is the same in both cases, but acting on arrival
/// saves an event. Requests cannot act on arrival if an atomic takes time, or if other requests may overtake an atomic,
/// because then the order depends on the time at which the atomic gets its bucket.
pub(super) fn acts_on_arrival(t: &Ticks, caps: &Caps) -> bool {
    t.stall && caps.cas_then_read == CasThenRead::InOrder && caps.atomic_vs_write == AtomicVsWrite::Serialised
}

/// Returns whether requests within one line act on memory when they arrive. If so, only the order of arrival determines
/// their effect.
pub(super) fn lines_act_on_arrival(t: &Ticks, caps: &Caps) -> bool {
    acts_on_arrival(t, caps) && caps.atomic_unit == AtomicUnit::Line
}

/// The conditions under which an arriving request has no effect.
const DEAF: Odd = Odd::BROKEN.and(Odd::FENCED);

impl Engine {
    /// Handles the arrival of request `i` of `chain`.
    #[inline]
    pub(super) fn arrive(&mut self, chain: u32, i: u16) {
        let r = self.chains[chain as usize].request(i);
        match (r.kind, r.space()) {
            (Kind::Read, Space::Host) => self.arrive_read(chain, i),
            (Kind::Write, Space::Host) => self.arrive_write(chain, i),
            (Kind::Cas, Space::Host) => self.arrive_cas(chain, i),
            (Kind::Cas, Space::Chip) => self.arrive_chip_cas(chain, i),
            (Kind::Write, Space::Chip) => self.arrive_chip_write(chain, i),
            (kind, space) => self.arrive_other(chain, i, kind, space),
        }
    }

    #[inline(never)]
    fn arrive_read(&mut self, chain: u32, i: u16) {
        self.arrive_as(chain, i, Kind::Read, Space::Host);
    }

    #[inline(never)]
    fn arrive_write(&mut self, chain: u32, i: u16) {
        self.arrive_as(chain, i, Kind::Write, Space::Host);
    }

    #[inline(never)]
    fn arrive_cas(&mut self, chain: u32, i: u16) {
        self.arrive_as(chain, i, Kind::Cas, Space::Host);
    }

    #[inline(never)]
    fn arrive_chip_cas(&mut self, chain: u32, i: u16) {
        self.arrive_as(chain, i, Kind::Cas, Space::Chip);
    }

    #[inline(never)]
    fn arrive_chip_write(&mut self, chain: u32, i: u16) {
        self.arrive_as(chain, i, Kind::Write, Space::Chip);
    }

    #[inline(never)]
    fn arrive_other(&mut self, chain: u32, i: u16, kind: Kind, space: Space) {
        self.arrive_as(chain, i, kind, space);
    }

    // Inlined into each of the callers above, so that each copy has only the branches that it needs.
    #[inline(always)]
    fn arrive_as(&mut self, chain: u32, i: u16, kind: Kind, space: Space) {
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
            on_arrival,
            copies_within,
            ..
        } = self;
        let now = *now;
        let c = &mut chains[chain as usize];
        let pair = &mut pairs[c.qp as usize];
        let node = &mut nodes[usize::from(c.node)];
        if node.down || pair.odd.any(DEAF) {
            let fenced = pair.odd.any(Odd::FENCED);
            self.lost_request(chain, i, fenced);
            return;
        }
        c.cuts = node.cuts;
        let (client_nic, node_nic) = (usize::from(c.client_nic), usize::from(c.node_nic));
        let nic = &mut nics[node_nic];
        let r = c.request_mut(i);
        let (atomic, mutates, host) = (kind.is_atomic(), kind.mutates(), space == Space::Host);
        let offset = r.offset();
        let (length, lines) = if atomic || kind == Kind::Word {
            (8, 1)
        } else {
            (u64::from(r.len), r.units(6))
        };
        let bytes = request_bytes(t, kind, length);
        nic.tally.messages_in += 1;
        nic.tally.bytes_in += bytes;
        // Cut-through: the last byte has arrived now, unless the link was busy.
        let wire = bytes * t.link_byte;
        let inside = nic.link_in.through(now, wire);
        let service = service(t, kind, space, lines);
        let start = if atomic {
            nic.tally.atomics += 1;
            admit_atomic(t, caps, nic, node, (offset, kind, space), (inside, service), rng)
        } else {
            nic.responder.fifo(inside, service) + service
        };

        nic.tally.responder += service;
        let dma = t.pcie_time(length);
        let mut act = if host {
            to_memory(t, nic, kind, now, start, dma)
        } else {
            start
        };
        let mut after = earlier(pair, kind, space, caps);
        let bucket = offset & t.bucket_mask as usize;
        if atomic && let Some(written) = node.write_back(space, bucket) {
            // Earlier WRITEs of its queue pair, or a busy PCIe, may have delayed the previous atomic after the
            // pipeline. So this atomic must also wait until the previous one has written back.
            after = after.max(*written);
        }
        let mut at = (if *on_arrival { now } else { act }).max(after);
        let window = window(t, caps, nic, r, (kind, space), lines, rng);
        match kind {
            Kind::Read | Kind::Word => {
                nic.tally.reads += 1;
                // `atomic_at` stays 0 if the card promises CAS→READ in order.
                let between = at < pair.atomic_at && at + window > pair.atomic_at;
                if between && caps.cas_then_read == CasThenRead::WholeReadFirst {
                    at = pair.atomic_at;
                }
            }
            Kind::Write => nic.tally.writes += 1,
            Kind::Cas | Kind::MaskedCas | Kind::Faa => {}
        }
        if atomic && let Some(written) = node.write_back(space, bucket) {
            *written = at + window;
        }
        if atomic && caps.cas_then_read != CasThenRead::InOrder {
            pair.atomic_at = pair.atomic_at.max(at + window);
        } else {
            let o = &mut pair.order[usize::from(!host)];
            *o = (*o).max(if mutates { at + window } else { at });
        }

        // An earlier request of the queue pair, or an earlier atomic of the bucket, may act at the time `now` too, in
        // an event that is still in the queue. So this request must act in an event of its own, which comes after that
        // event.
        let waits = at > now || after == now;
        if waits {
            queue.push(at, What::Execute { chain, request: i }.pack());
            if mutates {
                node.go_before(at);
            }
        }
        if r.parts == 2 && kind == Kind::Read && host && !waits && window < *copies_within {
            execute::whole(r, kind, space, &mut node.memory, &mut nic.tally);
            node.open_window(now, Window::of(r, at + window, chain, i));
        } else if r.parts == 2 {
            if !waits {
                execute::first(r, &mut node.memory, caps, &mut nic.tally);
            }
            queue.push(at + window, What::ExecuteRest { chain, request: i }.pack());
            if mutates {
                node.go_before(at + window);
            }
            c.status.acts_late();
        } else if waits {
            c.status.acts_late();
        } else {
            execute::whole(r, kind, space, &mut node.memory, &mut nic.tally);
        }
        let len = if kind.answers() { length } else { 0 };
        act = act.max(at) + window;
        let ready = if kind.answers() {
            act + if host { t.pcie } else { 0 }
        } else {
            // The acknowledgement does not wait for memory. But it must not arrive before the data is in memory,
            // because a client that has awaited it may tell other clients to read the data.
            start.max(act.saturating_sub(t.wire))
        };

        let nic_pair = (client_nic, node_nic);
        let answer = Answer::new(t, len, dma);
        let here = way_back(t, nics, nic_pair, rng, now, ready, (&answer, len > 0));
        // The completions of one queue pair are in order.
        pair.done = pair.done.max(here + t.completion);
        c.done_at = c.done_at.max(pair.done);
        c.unanswered -= 1;
        if c.unanswered == 0 {
            queue.push(c.done_at, What::Done { chain }.pack());
        }
        let qp = c.qp;
        if mutates && host && !waits {
            node.copy_again(chains, offset..offset + length as usize, now);
        }
        if len > 0 {
            pair.unanswered -= 1;
            pair.answered = pair.done;
            if pair.odd.any(Odd::PARKED) && pair.unanswered == 0 {
                self.unpark(qp);
            }
        }
    }
}

/// Passes a request over PCIe to host memory, and returns the time at which it arrives.
///
/// All kinds of requests take the same time from the pipeline to memory, so they reach memory in the order of the
/// pipeline, unless PCIe is busy.
#[inline(always)]
fn to_memory(t: &Ticks, nic: &mut Nic, kind: Kind, now: u64, start: u64, dma: u64) -> u64 {
    let reads = !kind.mutates();
    if reads || kind.is_atomic() {
        nic.tally.from_host += dma;
        let read = nic.from_host.booked(now, start, dma);
        if reads {
            return read - dma + t.pcie;
        }
    }
    nic.tally.to_host += dma;
    nic.to_host.booked(now, start, dma) - dma + t.pcie
}

/// Returns the time between a request's first and second part, or 0 if it has only one part.
#[inline(always)]
fn window(
    t: &Ticks,
    caps: &Caps,
    nic: &mut Nic,
    r: &mut Request,
    (kind, space): (Kind, Space),
    lines: u64,
    rng: &mut Dice,
) -> u64 {
    if kind.is_atomic() {
        if caps.atomic_vs_write != AtomicVsWrite::Racy {
            return 0;
        }
        // The bucket's next atomic waits for the write-back, so that atomics exclude each other.
        r.parts = 2;
        return occupancy(t, kind, space) / 2;
    }
    let (unit, units) = match caps.atomic_unit {
        AtomicUnit::Line => (64, lines),
        AtomicUnit::Word => (8, r.units(3)),
    };
    if units <= 1 {
        return 0;
    }
    r.parts = 2;
    nic.tally.torn_windows += 1;
    let order = if kind == Kind::Read {
        caps.read_lines
    } else {
        caps.write_lines
    };
    split(t, r, unit, units, order, rng)
}

/// The cost of a response.
#[derive(Debug)]
pub(super) struct Answer {
    /// Bytes on the wire, including headers.
    bytes: u64,
    /// Time on the wire.
    wire: u64,
    /// Time of the data on PCIe.
    pub(super) dma: u64,
}

impl Answer {
    /// Returns the cost of a response with `len` bytes of payload, which take the time `dma` on PCIe. An
    /// acknowledgement has no payload.
    #[inline(always)]
    pub(super) fn new(t: &Ticks, len: u64, dma: u64) -> Self {
        let bytes = len + t.packets(len) * t.header_response;
        Self {
            bytes,
            wire: bytes * t.link_byte,
            dma,
        }
    }
}

/// Sends a response, with or without `data`, that is ready on the memory node's card at `ready`. Returns the time at
/// which the client's card has received it; with `data`, the time at which the transfer to host memory begins.
#[inline(always)]
pub(super) fn way_back(
    t: &Ticks,
    nics: &mut [Nic],
    (client, node): (usize, usize),
    rng: &mut Dice,
    now: u64,
    ready: u64,
    (&Answer { bytes, wire, dma }, data): (&Answer, bool),
) -> u64 {
    let server = &mut nics[node];
    let sent = server.link_out.booked(now, ready, wire);
    server.tally.bytes_out += bytes;
    let client = &mut nics[client];
    client.tally.bytes_in += bytes;
    let first_byte = sent + t.wire + rng.below(t.jitter) - wire;
    let here = client.link_in.booked(now, first_byte, wire);
    if !data {
        return here;
    }
    client.tally.to_host += dma;
    client.to_host.booked(now, here, dma) - dma
}

/// Passes an atomic through the responder and its bucket. Returns the time at which it leaves the pipeline, plus a
/// random delay if a later READ may overtake it.
fn admit_atomic(
    t: &Ticks,
    caps: &Caps,
    nic: &mut Nic,
    node: &mut Node,
    (offset, kind, space): (usize, Kind, Space),
    (inside, service): (u64, u64),
    rng: &mut Dice,
) -> u64 {
    let buckets = match space {
        Space::Host => &mut node.host_buckets,
        Space::Chip => &mut node.chip_buckets,
    };
    let bucket = &mut buckets[offset & t.bucket_mask as usize];
    let turn = inside.max(nic.responder.free_at());
    let mut start = if t.stall {
        let start = nic.responder.fifo(turn.max(*bucket), service);
        nic.tally.stalled += start - turn;
        start
    } else {
        nic.responder.fifo(turn, service).max(*bucket)
    };
    *bucket = start + occupancy(t, kind, space);
    start += service;
    if caps.cas_then_read != CasThenRead::InOrder {
        // The atomic is late and occupies its bucket until it acts, so that atomics exclude each other.
        let late = rng.below(LATE_ATOMIC);
        start += late;
        *bucket += late;
    }
    start
}

/// Draws the units that belong to the first part of a transfer, and the delay of the second part.
#[inline(always)]
pub(super) fn split(
    t: &Ticks,
    r: &mut Request,
    unit: u64,
    units: u64,
    order: LineOrder,
    rng: &mut Dice,
) -> u64 {
    r.words[3] = match order {
        // The first part is any subset of the units, chosen by their numbers modulo 64.
        LineOrder::Any => rng.bits(),
        // The first part is a prefix. The word stores its length in bytes.
        LineOrder::Increasing => {
            let first = unit - r.offset() as u64 % unit;
            first + rng.below(units - 1) * unit
        }
    };
    // If words may tear, each word takes as long as a line. With shorter times, the pipeline would serve one transfer
    // after the other, and none would tear.
    let time = units * t.torn_line;
    match t.tearing {
        Tearing::EqualSpeed => time * 3 / 2,
        // The factor is 0.5 to 2.5, in steps of 1/1024.
        Tearing::Random => (time * (512 + rng.below(2048))) >> 10,
    }
}
