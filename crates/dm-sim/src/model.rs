//! The cost model: the cost of each step of a verb, and the source of each value.

use dm_verbs::{Capability, Caps};

/// The provenance of a parameter's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provenance {
    /// Stated in a paper or a published artifact.
    Paper,
    /// Fitted to the published figure that [`Parameter::source`] names.
    Fit,
    /// A typical value, which was not measured for this model.
    Assumption,
}

/// The rule for the duration of the DMA of several lines, which determines which parts of a concurrent WRITE a READ
/// sees.
///
/// ```
/// use dm_sim::{CostModel, Tearing};
///
/// assert_eq!(CostModel::cx5_ib().tearing, Tearing::Random);
/// let one_speed = CostModel { tearing: Tearing::EqualSpeed, ..CostModel::cx5_ib() };
/// assert_ne!(one_speed, CostModel::cx5_ib());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tearing {
    /// All READs and WRITEs take the same time per line, 1.5 times [`CostModel::torn_line_ns`]. No transfer overtakes
    /// another one, so the first and the last line of a torn READ have equal versions. This is why bookend versions
    /// fail (CHIME §2).
    EqualSpeed,
    /// Each transfer draws its own time per line, 0.5 to 2.5 times [`CostModel::torn_line_ns`]. So transfers overtake
    /// each other. The presets use this rule.
    Random,
}

/// One parameter of a model, for tables.
///
/// ```
/// use dm_sim::{CostModel, Parameter, Provenance};
///
/// let parameters: Vec<Parameter> = CostModel::cx5_ib().parameters();
/// let buckets = parameters.iter().find(|p| p.name == "buckets").expect("a field of the model");
/// assert_eq!((buckets.value, buckets.provenance), (4096.0, Provenance::Paper));
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parameter {
    /// The field of [`CostModel`].
    pub name: &'static str,
    /// Its value in this model.
    pub value: f64,
    /// The unit of the value.
    pub unit: &'static str,
    /// The provenance of the value.
    pub provenance: Provenance,
    /// The paper and section, or the reason.
    pub source: &'static str,
}

macro_rules! cost_model {
    ($($(#[$doc:meta])* $name:ident : $unit:literal, $provenance:ident, $source:literal;)*) => {
        /// The costs of a testbed's parts. Most of them are times in nanoseconds; each field states its unit.
        ///
        /// This is a model, not a card. The two presets ([`CostModel::cx5_ib`], [`CostModel::cx6_roce`])
        /// contain values from the papers, a few values that are fitted to single published figures, and
        /// assumptions; [`CostModel::parameters`] returns the provenance of each number. No preset is tuned to pass
        /// tests. Every field may be changed for an ablation.
        #[derive(Clone, PartialEq, Debug)]
        pub struct CostModel {
            /// The name printed with every result.
            pub name: &'static str,
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nUnit: ", $unit, ". ", stringify!($provenance), ": ", $source, ".")]
                pub $name: f64,
            )*
            /// Whether an atomic that finds its bucket busy stops the responder's pipeline until the bucket is free.
            /// Otherwise, the atomic waits beside the pipeline.
            ///
            /// This is a fit of the structure: it is inferred from the ratios of Sherman §5.7, and is not a documented
            /// behaviour. Without it, on-chip locks are 1.3 times as fast as host locks; with it they are 3.1 times as
            /// fast, and in the paper 2.9 times.
            pub atomics_stall: bool,
            /// The way in which transfers of several lines tear. This is an assumption.
            pub tearing: Tearing,
            /// The capabilities of the simulated cards, which use all the freedom that these capabilities leave.
            /// `host_bytes` is set per simulation, `inline_bytes` from the field of that name.
            ///
            /// 256 KiB of on-chip memory and masked atomics are from Sherman §4.3, and increasing READ lines are from
            /// Sherman, footnote 5. All other values are assumptions.
            pub caps: Caps,
        }

        impl CostModel {
            /// Returns every number of the model with its provenance.
            pub fn parameters(&self) -> Vec<Parameter> {
                vec![$(Parameter {
                    name: stringify!($name),
                    value: self.$name,
                    unit: $unit,
                    provenance: Provenance::$provenance,
                    source: $source,
                }),*]
            }
        }
    };
}

cost_model! {
    /// Time of one byte on a link, per direction.
    link_ns_per_byte: "ns/B", Paper, "100 Gb/s in all four papers";
    /// Headers of a request packet that carries no WRITE data: READ requests, and atomics without their operands.
    header_request: "B", Assumption, "packet formats of InfiniBand and RoCEv2";
    /// Headers of a response packet: READ data, atomic answers, acknowledgements.
    header_response: "B", Assumption, "packet formats of InfiniBand and RoCEv2";
    /// Headers of a packet that carries WRITE data.
    header_write: "B", Assumption, "packet formats of InfiniBand and RoCEv2";
    /// Payload bytes of one packet.
    mtu: "B", Assumption, "4096 on InfiniBand, 1024 on RoCE";
    /// Time in the requester pipeline, per message.
    requester_ns: "ns", Fit, "Sherman Fig. 3: more than 50 M outbound WRITEs per second up to 128 B";
    /// Time in the responder pipeline, per READ of host memory.
    responder_read_ns: "ns", Fit, "SMART §3: 45 M small READs per second";
    /// Time in the responder pipeline, per line: every line of a READ of host memory, and every line but the first of a
    /// WRITE or of a verb on on-chip memory.
    responder_line_ns: "ns", Fit, "CHIME Fig. 4c (1.3x) and Sherman Fig. 3";
    /// Time in the responder pipeline, per WRITE to host memory.
    responder_write_ns: "ns", Fit, "Sherman Fig. 3: more than 50 M inbound WRITEs per second up to 128 B";
    /// Time in the responder pipeline, per atomic on host memory.
    responder_atomic_ns: "ns", Fit, "Sherman Fig. 2 at skew 0: axis tops near 20 M lock pairs per second";
    /// Time in the responder pipeline, per verb on on-chip memory.
    responder_chip_ns: "ns", Paper, "Sherman §4.3: about 110 M CAS per second";
    /// Number of atomic buckets; the low bits of the address choose one.
    buckets: "", Paper, "Sherman §3.2.2: e.g. 4096, 12 least significant bits";
    /// Time for which a CAS on host memory occupies its bucket.
    bucket_cas_ns: "ns", Fit, "Sherman Fig. 2: 0.494 M lock pairs per second at skew 0.99";
    /// Time for which a fetch-and-add on host memory occupies its bucket.
    bucket_faa_ns: "ns", Fit, "Sherman Fig. 2: 0.494 M lock pairs per second at skew 0.99";
    /// Time for which an atomic on on-chip memory occupies its bucket.
    bucket_chip_ns: "ns", Fit, "Sherman §5.7: on-chip locks gain 2.89x";
    /// Time of one way through the wire, the switch, and the fixed parts of two cards.
    wire_ns: "ns", Fit, "round trips of about 2 µs; cycle of the hierarchical lock in Sherman §5.7";
    /// Upper end of the uniform jitter added to each way.
    jitter_ns: "ns", Assumption, "breaks phase locking; factors move up to 11 % between 0 and 200";
    /// Time of one way over the responder's PCIe. A READ or atomic takes it twice. Requests to on-chip memory do not
    /// cross it.
    pcie_ns: "ns", Assumption, "typical; that on-chip memory skips it is Sherman §4.3";
    /// Time of one byte on PCIe, per direction.
    pcie_ns_per_byte: "ns/B", Assumption, "PCIe 3.0 x16, 15.75 GB/s";
    /// Header bytes of a PCIe packet, which carries up to 256 bytes of payload.
    pcie_header: "B", Assumption, "PCIe packet format";
    /// Client CPU time for posting a chain and ringing its doorbell.
    post_ns: "ns", Assumption, "typical";
    /// Client CPU time for each further request of a chain.
    post_next_ns: "ns", Assumption, "typical";
    /// Time of a doorbell from CPU to card; the doorbell carries the first request.
    doorbell_ns: "ns", Assumption, "typical MMIO write";
    /// Time to fetch a chain's further requests, or a payload that is not inline.
    fetch_ns: "ns", Assumption, "typical DMA read";
    /// Largest payload that travels inside its request.
    inline_bytes: "B", Assumption, "the artifacts pass a limit at queue pair creation; a knob";
    /// Time until a completion is in host memory and a poll has found it.
    completion_ns: "ns", Assumption, "typical";
    /// DMA time per line, before [`Tearing`]'s factor.
    torn_line_ns: "ns", Assumption, "typical";
    /// Time to hand a local lock over between threads of one compute node.
    hand_off_ns: "ns", Fit, "Sherman §5.7: handover gains 2.34x";
    /// Time of one iteration of a retry loop without any verb.
    pause_ns: "ns", Assumption, "a few instructions";
    /// Time of a memory node's weak core, per control request.
    rpc_service_ns: "ns", Assumption, "1-2 wimpy cores per memory node (Sherman §4.2.4)";
    /// Time after which an unanswered request fails.
    timeout_ns: "ns", Assumption, "a few retransmissions of 67 µs";
    /// Length of the lease of a client's membership.
    lease_ns: "ns", Assumption, "10 ms";
}

impl CostModel {
    /// Returns a model of ConnectX-5 at 100 Gb/s InfiniBand, the testbed of Sherman and of Dolphin.
    pub fn cx5_ib() -> Self {
        Self {
            name: "model cx5-ib",
            link_ns_per_byte: 0.08,
            header_request: 42.0,
            header_response: 30.0,
            header_write: 42.0,
            mtu: 4096.0,
            requester_ns: 16.7,
            responder_read_ns: 20.0,
            responder_line_ns: 2.6,
            responder_write_ns: 17.0,
            responder_atomic_ns: 22.2,
            responder_chip_ns: 9.1,
            buckets: 4096.0,
            bucket_cas_ns: 148.0,
            bucket_faa_ns: 296.0,
            bucket_chip_ns: 48.0,
            wire_ns: 600.0,
            jitter_ns: 60.0,
            pcie_ns: 200.0,
            pcie_ns_per_byte: 0.0635,
            pcie_header: 24.0,
            post_ns: 100.0,
            post_next_ns: 20.0,
            doorbell_ns: 150.0,
            fetch_ns: 250.0,
            inline_bytes: 64.0,
            completion_ns: 300.0,
            torn_line_ns: 4.0,
            hand_off_ns: 450.0,
            pause_ns: 20.0,
            rpc_service_ns: 2_000.0,
            timeout_ns: 500_000.0,
            lease_ns: 10_000_000.0,
            atomics_stall: true,
            tearing: Tearing::Random,
            caps: preset_caps(),
        }
    }

    /// Returns a model of ConnectX-6 at 100 Gb/s RoCEv2, the testbed of SMART and of CHIME. It differs from
    /// [`CostModel::cx5_ib`] only in headers and packet size.
    pub fn cx6_roce() -> Self {
        Self {
            name: "model cx6-roce",
            header_request: 90.0,
            header_response: 86.0,
            header_write: 98.0,
            mtu: 1024.0,
            ..Self::cx5_ib()
        }
    }

    /// Returns the capabilities in [`CostModel::caps`] that no specification promises. Print them together with
    /// results.
    pub fn assumptions(&self) -> Vec<Capability> {
        [
            Capability::LineAtomicity,
            Capability::CasThenReadInOrder,
            Capability::AtomicVsWriteSerialised,
            Capability::HostBeforeChip,
            Capability::WriteLinesIncreasing,
        ]
        .into_iter()
        .filter(|c| self.caps.has(*c))
        .collect()
    }
}

fn preset_caps() -> Caps {
    use dm_verbs::{AtomicUnit, AtomicVsWrite, CasThenRead, FailedCas, LineOrder};
    Caps {
        host_bytes: 0,
        chip_bytes: 256 << 10,
        masked_atomics: true,
        inline_bytes: 0,
        atomic_unit: AtomicUnit::Line,
        read_lines: LineOrder::Increasing,
        write_lines: LineOrder::Increasing,
        cas_then_read: CasThenRead::InOrder,
        atomic_vs_write: AtomicVsWrite::Serialised,
        failed_cas: FailedCas::LeavesAlone,
        host_before_chip: true,
    }
}

/// The model in picoseconds, with precomputed values for the engine.
#[derive(Clone, Debug)]
pub(crate) struct Ticks {
    pub(crate) link_byte: u64,
    pub(crate) header_request: u64,
    pub(crate) header_response: u64,
    pub(crate) header_write: u64,
    pub(crate) mtu: u64,
    pub(crate) requester: u64,
    pub(crate) read: u64,
    pub(crate) line: u64,
    pub(crate) write: u64,
    pub(crate) atomic: u64,
    pub(crate) chip: u64,
    pub(crate) bucket_mask: u64,
    pub(crate) bucket_cas: u64,
    pub(crate) bucket_faa: u64,
    pub(crate) bucket_chip: u64,
    pub(crate) wire: u64,
    pub(crate) jitter: u64,
    pub(crate) pcie: u64,
    /// PCIe time of 1024 bytes in picoseconds. The time of one byte is not a whole number of picoseconds.
    pub(crate) pcie_kib: u64,
    pub(crate) pcie_header: u64,
    pub(crate) post: u64,
    pub(crate) post_next: u64,
    pub(crate) doorbell: u64,
    pub(crate) fetch: u64,
    pub(crate) inline: u32,
    pub(crate) completion: u64,
    pub(crate) torn_line: u64,
    pub(crate) hand_off: u64,
    pub(crate) pause: u64,
    pub(crate) rpc_service: u64,
    pub(crate) timeout: u64,
    pub(crate) lease: u64,
    pub(crate) stall: bool,
    pub(crate) tearing: Tearing,
}

fn ps(ns: f64) -> u64 {
    (ns * 1000.0).round() as u64
}

impl Ticks {
    pub(crate) fn new(m: &CostModel) -> Self {
        let buckets = m.buckets.round().max(1.0) as u64;
        assert!(
            buckets.is_power_of_two(),
            "low address bits choose the bucket: the number must be a power of two"
        );
        Self {
            link_byte: ps(m.link_ns_per_byte),
            header_request: m.header_request as u64,
            header_response: m.header_response as u64,
            header_write: m.header_write as u64,
            mtu: (m.mtu as u64).max(1),
            requester: ps(m.requester_ns),
            read: ps(m.responder_read_ns),
            line: ps(m.responder_line_ns),
            write: ps(m.responder_write_ns),
            atomic: ps(m.responder_atomic_ns),
            chip: ps(m.responder_chip_ns),
            bucket_mask: buckets - 1,
            bucket_cas: ps(m.bucket_cas_ns),
            bucket_faa: ps(m.bucket_faa_ns),
            bucket_chip: ps(m.bucket_chip_ns),
            wire: ps(m.wire_ns),
            jitter: ps(m.jitter_ns),
            pcie: ps(m.pcie_ns),
            pcie_kib: ps(m.pcie_ns_per_byte * 1024.0),
            pcie_header: m.pcie_header as u64,
            post: ps(m.post_ns),
            post_next: ps(m.post_next_ns),
            doorbell: ps(m.doorbell_ns),
            fetch: ps(m.fetch_ns),
            inline: m.inline_bytes as u32,
            completion: ps(m.completion_ns),
            torn_line: ps(m.torn_line_ns),
            hand_off: ps(m.hand_off_ns),
            pause: ps(m.pause_ns).max(1000),
            rpc_service: ps(m.rpc_service_ns),
            timeout: ps(m.timeout_ns),
            lease: ps(m.lease_ns),
            stall: m.atomics_stall,
            tearing: m.tearing,
        }
    }

    /// Returns the number of packets of a message with `payload` bytes. An empty message has one.
    #[inline]
    pub(crate) fn packets(&self, payload: u64) -> u64 {
        if payload <= self.mtu {
            1
        } else {
            payload.div_ceil(self.mtu)
        }
    }

    /// Returns the PCIe time of `bytes`.
    #[inline]
    pub(crate) fn pcie_time(&self, bytes: u64) -> u64 {
        let packets = (bytes + 255) >> 8;
        ((bytes + packets * self.pcie_header) * self.pcie_kib) >> 10
    }
}
