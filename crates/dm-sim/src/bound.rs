//! The throughput limit of the cost model: for each resource, its capacity divided by the demand of one operation. The
//! smallest of these values is the limit.

use core::fmt;

use dm_verbs::Space;

use crate::model::CostModel;

/// A kind of verb that the cost model distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VerbKind {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// Compare-and-swap.
    Cas,
    /// Masked compare-and-swap.
    MaskedCas,
    /// Fetch-and-add.
    Faa,
}

impl VerbKind {
    /// Returns the number of bytes of the operands that a request sends behind its headers. Every atomic sends two
    /// words, of which an FAA uses one; a masked CAS sends two masks more.
    #[inline]
    pub(crate) const fn operand_bytes(self) -> u64 {
        match self {
            Self::Read | Self::Write => 0,
            Self::Cas | Self::Faa => 16,
            Self::MaskedCas => 32,
        }
    }
}

/// Verbs of one kind and size that an average operation of the mix issues.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// The kind of verb.
    pub kind: VerbKind,
    /// The memory that the verbs access.
    pub space: Space,
    /// Payload bytes of one verb.
    pub bytes: f64,
    /// 64-byte lines that one verb touches on average.
    pub lines: f64,
    /// Average number of verbs per operation of the mix.
    pub per_op: f64,
}

impl Demand {
    /// Makes a demand of `per_op` verbs on host memory, aligned to lines.
    pub fn new(kind: VerbKind, bytes: f64, per_op: f64) -> Self {
        Self {
            kind,
            space: Space::Host,
            bytes,
            lines: (bytes / 64.0).ceil().max(1.0),
            per_op,
        }
    }
    /// Returns the same demand on on-chip memory.
    pub fn on_chip(self) -> Self {
        Self {
            space: Space::Chip,
            ..self
        }
    }
    /// Returns the same demand at addresses of any alignment: a verb touches `(bytes - 1) / 64 + 1` lines on
    /// average.
    pub fn unaligned(self) -> Self {
        Self {
            lines: (self.bytes - 1.0) / 64.0 + 1.0,
            ..self
        }
    }
}

/// The average demand of one operation of a mix without contention: it does not include retries, stalls and torn
/// READs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MixDemand {
    /// The verbs of one operation.
    pub verbs: Vec<Demand>,
    /// Doorbells of one operation.
    pub chains: f64,
    /// Client CPU time besides posting, in nanoseconds.
    pub cpu_ns: f64,
}

impl MixDemand {
    /// Returns the demand if a share of the operations (`share`, 0 to 1, as measured) issues no verbs, because a leader
    /// carries them out together with its own (`dm-combine`).
    pub fn combined(mut self, share: f64) -> Self {
        for d in &mut self.verbs {
            d.per_op *= 1.0 - share;
        }
        self.chains *= 1.0 - share;
        self
    }
}

/// The machines of a testbed. The load is assumed to spread evenly over them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Testbed {
    /// Compute nodes.
    pub compute_nodes: u16,
    /// Memory nodes.
    pub memory_nodes: u16,
    /// Whether a compute node and a memory node share a card.
    pub colocated: bool,
    /// Hardware threads per compute node.
    pub threads: u16,
}

/// The owner of a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The card of a compute node.
    Compute,
    /// The card of a memory node.
    Memory,
    /// A card that both share.
    Shared,
}

/// A resource of limited capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Pipelines that send requests.
    Requester,
    /// Pipelines that serve requests.
    Responder,
    /// The pipelines that serve requests, if they wait for earlier atomics on the same bytes (more exactly, in the same
    /// atomic bucket) for longer than they work. [`CostModel::bound`] never returns this resource, because such waits
    /// depend on the order of requests.
    Atomics,
    /// Outgoing links.
    LinkOut(Side),
    /// Incoming links.
    LinkIn(Side),
    /// PCIe, from host memory to the card.
    FromHost(Side),
    /// PCIe, from the card to host memory.
    ToHost(Side),
    /// Hardware threads of the clients.
    ClientThreads,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |s: &Side| match s {
            Side::Compute => "compute node",
            Side::Memory => "memory node",
            Side::Shared => "shared card",
        };
        match self {
            Self::Requester => f.write_str("requester pipeline"),
            Self::Responder => f.write_str("responder pipeline"),
            Self::Atomics => f.write_str("atomics on the same bytes"),
            Self::LinkOut(s) => write!(f, "link out, {}", side(s)),
            Self::LinkIn(s) => write!(f, "link in, {}", side(s)),
            Self::FromHost(s) => write!(f, "PCIe from host, {}", side(s)),
            Self::ToHost(s) => write!(f, "PCIe to host, {}", side(s)),
            Self::ClientThreads => f.write_str("client threads"),
        }
    }
}

/// The limit of the cost model for a mix on a testbed.
///
/// ```
/// use dm_sim::{Bound, CostModel, Demand, MixDemand, Resource, Testbed, VerbKind};
///
/// // Each operation READs a kilobyte from the only memory node, whose link carries all payloads.
/// let bed = Testbed { compute_nodes: 7, memory_nodes: 1, colocated: false, threads: 22 };
/// let reads = |bytes| MixDemand { verbs: vec![Demand::new(VerbKind::Read, bytes, 1.0)], chains: 1.0, cpu_ns: 0.0 };
/// let large: Bound = CostModel::cx5_ib().bound(&reads(1024.0), &bed);
/// assert!(matches!(large.limit, Resource::LinkOut(_)));
/// let small = CostModel::cx5_ib().bound(&reads(64.0), &bed);
/// assert_eq!(small.limit, Resource::Responder);
/// assert!(small.mops > 3.0 * large.mops);
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Bound {
    /// Million operations per second.
    pub mops: f64,
    /// The resource that limits the throughput.
    pub limit: Resource,
    /// Every resource in use with its own bound in million operations per second, in increasing order.
    pub all: Vec<(Resource, f64)>,
}

/// The time, in nanoseconds, for which one operation uses each resource.
#[derive(Default)]
struct Load {
    requester: f64,
    responder: f64,
    request: f64,
    response: f64,
    compute_from: f64,
    compute_to: f64,
    memory_from: f64,
    memory_to: f64,
}

impl CostModel {
    /// Returns the bound for `mix` on `bed`.
    ///
    /// # Panics
    /// Panics if `bed` has no compute node or no memory node, or if `mix` needs no resource.
    pub fn bound(&self, mix: &MixDemand, bed: &Testbed) -> Bound {
        let (cn, mn) = (f64::from(bed.compute_nodes), f64::from(bed.memory_nodes));
        assert!(
            cn > 0.0 && mn > 0.0,
            "a testbed needs at least one compute node and one memory node"
        );
        let mut l = Load::default();
        let mut count = 0.0;
        for d in &mix.verbs {
            count += d.per_op;
            self.add(&mut l, d);
        }
        let cpu = mix.cpu_ns + mix.chains * self.post_ns + (count - mix.chains).max(0.0) * self.post_next_ns;
        let mut all = vec![
            (Resource::Requester, l.requester / cn),
            (Resource::Responder, l.responder / mn),
            (Resource::ClientThreads, cpu / (cn * f64::from(bed.threads))),
        ];
        if bed.colocated {
            all.push((Resource::LinkOut(Side::Shared), l.request / cn + l.response / mn));
            all.push((Resource::LinkIn(Side::Shared), l.request / mn + l.response / cn));
            all.push((
                Resource::FromHost(Side::Shared),
                l.compute_from / cn + l.memory_from / mn,
            ));
            all.push((
                Resource::ToHost(Side::Shared),
                l.compute_to / cn + l.memory_to / mn,
            ));
        } else {
            all.push((Resource::LinkOut(Side::Compute), l.request / cn));
            all.push((Resource::LinkIn(Side::Memory), l.request / mn));
            all.push((Resource::LinkOut(Side::Memory), l.response / mn));
            all.push((Resource::LinkIn(Side::Compute), l.response / cn));
            all.push((Resource::FromHost(Side::Compute), l.compute_from / cn));
            all.push((Resource::ToHost(Side::Compute), l.compute_to / cn));
            all.push((Resource::FromHost(Side::Memory), l.memory_from / mn));
            all.push((Resource::ToHost(Side::Memory), l.memory_to / mn));
        }
        all.retain(|(_, ns)| *ns > 0.0);
        for (_, ns) in &mut all {
            *ns = 1e3 / *ns;
        }
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (limit, mops) = *all.first().expect("a mix needs at least one resource");
        Bound { mops, limit, all }
    }

    fn add(&self, l: &mut Load, d: &Demand) {
        let packets = (d.bytes / self.mtu).ceil().max(1.0);
        let further = (d.lines - 1.0).max(0.0) * self.responder_line_ns;
        let service = match (d.space, d.kind) {
            (Space::Chip, _) => self.responder_chip_ns + further,
            (Space::Host, VerbKind::Read) => self.responder_read_ns + d.lines * self.responder_line_ns,
            (Space::Host, VerbKind::Write) => self.responder_write_ns + further,
            (Space::Host, VerbKind::Cas | VerbKind::MaskedCas | VerbKind::Faa) => self.responder_atomic_ns,
        };
        let (request, response) = match d.kind {
            VerbKind::Read => (self.header_request, d.bytes + packets * self.header_response),
            VerbKind::Write => (d.bytes + packets * self.header_write, self.header_response),
            VerbKind::Cas | VerbKind::MaskedCas | VerbKind::Faa => (
                self.header_request + d.kind.operand_bytes() as f64,
                8.0 + self.header_response,
            ),
        };
        let dma = (d.bytes + (d.bytes / 256.0).ceil() * self.pcie_header) * self.pcie_ns_per_byte;
        let (read, write) = (d.kind == VerbKind::Read, d.kind == VerbKind::Write);
        let host = d.space == Space::Host;
        l.requester += d.per_op * self.requester_ns;
        l.responder += d.per_op * service;
        l.request += d.per_op * request * self.link_ns_per_byte;
        l.response += d.per_op * response * self.link_ns_per_byte;
        if write && d.bytes > self.inline_bytes {
            l.compute_from += d.per_op * dma;
        }
        if !write {
            l.compute_to += d.per_op * dma;
        }
        if host && !write {
            l.memory_from += d.per_op * dma;
        }
        if host && !read {
            l.memory_to += d.per_op * dma;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Testbed = Testbed {
        compute_nodes: 10,
        memory_nodes: 1,
        colocated: false,
        threads: 64,
    };

    fn reads(bytes: f64) -> MixDemand {
        MixDemand {
            verbs: vec![Demand::new(VerbKind::Read, bytes, 1.0)],
            chains: 1.0,
            cpu_ns: 0.0,
        }
    }

    #[test]
    fn bounds_of_the_published_arithmetic() {
        let m = CostModel::cx6_roce();
        // A 1131-byte leaf needs two packets, which allows 9.6 M per second; a 1024-byte leaf needs one,
        // which allows 11.3 M.
        let two = m.bound(&reads(1131.0), &ONE);
        let one = m.bound(&reads(1024.0), &ONE);
        assert!(
            (two.mops - 9.59).abs() < 0.01 && (one.mops - 11.26).abs() < 0.01,
            "{two:?} {one:?}"
        );
        assert_eq!(two.limit, Resource::LinkOut(Side::Memory));
        let small = m.bound(&reads(64.0), &ONE);
        assert!(
            (small.mops - 44.2).abs() < 0.1 && small.limit == Resource::Responder,
            "{small:?}"
        );
    }

    #[test]
    fn colocation_shares_links_and_combining_reduces_the_demand() {
        let m = CostModel::cx5_ib();
        let bed = Testbed {
            compute_nodes: 8,
            memory_nodes: 8,
            colocated: true,
            threads: 22,
        };
        let apart = m.bound(
            &reads(1024.0),
            &Testbed {
                colocated: false,
                ..bed
            },
        );
        let shared = m.bound(&reads(1024.0), &bed);
        assert!(
            shared.mops < apart.mops && shared.limit == Resource::LinkOut(Side::Shared),
            "{shared:?}"
        );
        let half = m.bound(&reads(1024.0).combined(0.5), &bed);
        assert!((half.mops / shared.mops - 2.0).abs() < 1e-9);
        let busy = m.bound(
            &MixDemand {
                cpu_ns: 50_000.0,
                ..reads(8.0)
            },
            &bed,
        );
        assert_eq!(busy.limit, Resource::ClientThreads);
    }
}
