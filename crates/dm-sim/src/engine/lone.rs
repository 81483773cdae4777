//! The fast path for READs that are alone in their chains. In most runs, most verbs are of this kind. This path has the
//! same effects as `post_one` and `arrive`, but without branches that such a READ never takes. The costs of a READ of
//! one line are computed beforehand. The functions for a READ of one line and for a longer one are compiled from the
//! same source, with `LONG` false and true.

use dm_verbs::{Caps, LineOrder, Place, RemotePtr, Space};

use super::arrive::{Answer, lines_act_on_arrival, split, way_back};
use super::issue::{UNABLE, take_cpu, transmit};
use super::windows::{Window, copies_within};
use super::{Engine, Odd, What, execute};
use crate::chain::NOBODY;
use crate::lease::{LINE, LONGEST};
use crate::model::Ticks;
use crate::request::{Entry, Kind};

/// The costs of a lone READ.
#[derive(Debug)]
pub(super) struct Lone {
    /// The maximum length of a READ on the path for one line: 64 bytes, or 0 if a line is not transferred in a single
    /// step when the READ arrives.
    line: u64,
    /// The maximum length of a longer READ, or 0 if such a READ is not copied when it arrives.
    longest: u32,
    /// Time of the request on the wire.
    wire: u64,
    /// Time in the responder's pipeline.
    service: u64,
    /// The cost of the response for each length.
    answers: [Answer; LINE + 1],
}

impl Lone {
    pub(super) fn new(t: &Ticks, caps: &Caps) -> Self {
        let lines = lines_act_on_arrival(t, caps);
        Self {
            line: if lines { LINE as u64 } else { 0 },
            longest: if lines { longest(t, caps) } else { 0 },
            wire: t.header_request * t.link_byte,
            service: t.read + t.line,
            answers: core::array::from_fn(|len| Answer::new(t, len as u64, t.pcie_time(len as u64))),
        }
    }
}

/// Returns the maximum length of READs whose parts are always so close that they are copied when they arrive.
fn longest(t: &Ticks, caps: &Caps) -> u32 {
    // For each line of a READ, at most 2.5 times the time of a line passes between the two parts.
    let lines = (2 * copies_within(t, caps)).saturating_sub(1) / (5 * t.torn_line).max(1);
    // A READ of this length touches at most `lines` lines, wherever it begins.
    ((lines * LINE as u64).saturating_sub(LINE as u64 - 1)).min(LONGEST as u64) as u32
}

impl Engine {
    /// Posts a chain that consists of one READ of host memory.
    #[inline(never)]
    pub(crate) fn post_read(&mut self, client: u16, raw: u64, len: u32) -> (u32, u32) {
        let offset = RemotePtr::from_raw(raw).offset();
        if offset % LINE as u64 + u64::from(len) > self.lone.line {
            return self.post_long_read(client, raw, len);
        }
        self.post_lone_read::<false>(client, raw, len)
    }

    #[inline(never)]
    fn post_long_read(&mut self, client: u16, raw: u64, len: u32) -> (u32, u32) {
        if len > self.lone.longest {
            return self.post_any_read(client, RemotePtr::from_raw(raw).into(), len, false);
        }
        self.post_lone_read::<true>(client, raw, len)
    }

    #[inline(always)]
    fn post_lone_read<const LONG: bool>(&mut self, client: u16, raw: u64, len: u32) -> (u32, u32) {
        let at = RemotePtr::from_raw(raw);
        let (node, offset) = (usize::from(at.node().0), at.offset());
        let Some(to) = self.nodes.get(node) else {
            return self.post_any_read(client, at.into(), len, false);
        };
        let qp = self.pair(client, at.node());
        let client_nic = self.clients[usize::from(client)].nic;
        let chain = self.clients[usize::from(client)].home;
        let (c, pair) = (&mut self.chains[chain as usize], &mut self.pairs[qp]);
        let inside = len > 0 && offset + u64::from(len) <= to.caps.host_bytes;
        if !inside || !c.status.is_free() || pair.odd.any(UNABLE) {
            return self.post_any_read(client, at.into(), len, false);
        }
        if LONG {
            to.memory.prefetch(offset as usize, len as usize);
        } else {
            to.memory.prefetch_line(offset as usize);
        }
        c.status.take_off();
        c.owner = NOBODY;
        c.first.set_read(raw, len);
        c.count = 1;
        if c.qp != qp as u32 {
            c.qp = qp as u32;
            c.node = node as u16;
            c.node_nic = to.nic;
        }
        let t = &self.t;
        let nic = &mut self.nics[usize::from(client_nic)];
        let ready = take_cpu(&mut self.clients, client, self.now, t.post) + t.doorbell;
        let request = (t.header_request, self.lone.wire);
        let at = transmit(t, &mut self.rng, nic, pair, request, self.now, ready);
        pair.unanswered += 1;
        let what = if LONG {
            What::ArriveLong { chain }
        } else {
            What::ArriveRead { chain }
        };
        self.queue.push(at, what.pack());
        (chain, c.status.generation())
    }

    /// Posts a chain that consists of one READ of any other kind.
    #[inline(never)]
    pub(crate) fn post_any_read(&mut self, client: u16, at: Place, len: u32, fence: bool) -> (u32, u32) {
        self.post_one(client, &Entry::read(at, len, fence))
    }

    /// Handles the arrival of the only READ of `chain`, which touches one line.
    #[inline(always)]
    pub(super) fn arrive_lone_read(&mut self, chain: u32) {
        self.arrive_lone::<false>(chain);
    }

    /// Handles the arrival of the only READ of `chain`, which touches several lines.
    #[inline(never)]
    pub(super) fn arrive_long_read(&mut self, chain: u32) {
        self.arrive_lone::<true>(chain);
    }

    /// Handles the arrival of a lone READ. It acts now, unless the node is cut off, the queue pair has an unusual
    /// condition, or an earlier request of the queue pair may act at this time or later. Then the general path handles
    /// it.
    #[inline(always)]
    fn arrive_lone<const LONG: bool>(&mut self, chain: u32) {
        let (now, t, lone) = (self.now, &self.t, &self.lone);
        let c = &mut self.chains[chain as usize];
        let pair = &mut self.pairs[c.qp as usize];
        let node = &mut self.nodes[usize::from(c.node)];
        // If the READ may have to wait, the general path decides. An earlier request of the queue pair may act at this
        // same time, in an event that is still in the queue.
        let waits = pair.order[0].max(pair.order[1]) >= now;
        if node.down || pair.odd.any(Odd::ANY) || waits {
            c.unanswered = 1;
            return self.arrive(chain, 0);
        }
        c.cuts = node.cuts;
        let (client_nic, node_nic) = (usize::from(c.client_nic), usize::from(c.node_nic));
        // The slice is created only once. No write through it can move the slice, so the compiler need not reload its
        // address.
        let nics = self.nics.as_mut_slice();
        let nic = &mut nics[node_nic];
        let long;
        let (answer, service, window) = if LONG {
            let (length, lines) = (u64::from(c.first.len), c.first.units(LINE.ilog2()));
            let window = split(
                t,
                &mut c.first,
                LINE as u64,
                lines,
                LineOrder::Increasing,
                &mut self.rng,
            );
            nic.tally.torn_windows += 1;
            nic.tally.responder += (lines - 1) * t.line;
            long = Answer::new(t, length, t.pcie_time(length));
            (&long, lone.service + (lines - 1) * t.line, window)
        } else {
            (&lone.answers[c.first.len as usize], lone.service, 0)
        };
        nic.tally.lone_reads += 1;
        nic.tally.from_host += answer.dma;
        // Cut-through: the last byte has arrived now, unless the link was busy.
        let inside = nic.link_in.through(now, lone.wire);
        let start = nic.responder.fifo(inside, service) + service;
        let ready = nic.from_host.booked(now, start, answer.dma) - answer.dma + window + 2 * t.pcie;
        pair.order[0] = now;
        let pair_of = (client_nic, node_nic);
        let here = way_back(t, nics, pair_of, &mut self.rng, now, ready, (answer, true));
        // The completions of one queue pair are in order.
        let done = pair.done.max(here + t.completion);
        pair.done = done;
        pair.answered = done;
        pair.unanswered -= 1;
        // Times and bytes are updated separately, the bytes last. So fewer values are live while the bytes are copied.
        let tally = &mut nics[node_nic].tally;
        execute::whole(&mut c.first, Kind::Read, Space::Host, &mut node.memory, tally);
        if LONG {
            node.open_window(now, Window::of(&c.first, now + window, chain, 0));
        }
        self.queue.push(done, What::Done { chain }.pack());
    }

    /// Turns the fast path off, so that all READs take the general path.
    #[cfg(test)]
    pub(crate) fn forget_lone_reads(&mut self) {
        (self.lone.line, self.lone.longest) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use dm_verbs::{Env, NodeId, RemotePtr, Verbs};

    use crate::{CostModel, Endpoint, RunEnd, Sim};

    /// Runs READs of different lengths at different places, mixed with WRITEs of the same queue pair, atomics, chains
    /// and dropped tickets.
    async fn anything(v: Endpoint) {
        for _ in 0..400 {
            let r = v.rng(0);
            let at = RemotePtr::new(NodeId(r as u16 & 1), 4096 + (r >> 8) % 512 * 8).expect("in range");
            match r >> 32 & 7 {
                0 => drop(v.write(at, &[r as u8; 200])),
                1 => drop(v.cas(at, 0, r).await.expect("the node is up")),
                2 => drop(
                    v.chain(at.node())
                        .cas(at, 0, 1)
                        .read(at, 40)
                        .await
                        .expect("the node is up"),
                ),
                3 => drop(v.read(at, 64)),
                _ => drop(
                    v.read(at, 1 + (r >> 40) as u32 % 130)
                        .await
                        .expect("the node is up"),
                ),
            }
        }
    }

    #[test]
    fn lone_reads_have_the_same_cost_and_result_on_both_paths() {
        let run = |lone: bool, colocated: bool| {
            let sim = Sim::builder(CostModel::cx6_roce())
                .compute_nodes(2)
                .memory_nodes(2)
                .colocated(colocated)
                .seed(3)
                .build()
                .expect("memory");
            if !lone {
                sim.forget_lone_reads();
            }
            for client in 0..6 {
                sim.spawn(client % 2, client / 4, anything);
            }
            assert_eq!(sim.run(), RunEnd::Finished);
            let nics = [0, 1].map(|n| (sim.compute_nic(n), sim.memory_nic(NodeId(n))));
            (sim.digest(), sim.verbs(), sim.events(), nics)
        };
        for colocated in [false, true] {
            assert_eq!(
                run(true, colocated),
                run(false, colocated),
                "colocated: {colocated}"
            );
        }
    }
}
