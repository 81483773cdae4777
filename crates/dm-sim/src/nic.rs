//! A network card: its pipelines, links and PCIe, and its counters.

use crate::model::Ticks;
use crate::server::Server;

/// One card. A colocated compute and memory node share one.
#[derive(Debug, Default)]
pub(crate) struct Nic {
    pub(crate) requester: Server,
    pub(crate) responder: Server,
    pub(crate) link_out: Server,
    pub(crate) link_in: Server,
    /// DMA reads: payloads of WRITEs, data for READs, and the read step of atomics.
    pub(crate) from_host: Server,
    /// DMA writes: at the responder the data of WRITEs and the write step of atomics, at the requester the data of
    /// READs and the old values of atomics.
    pub(crate) to_host: Server,
    pub(crate) tally: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) messages_out: u64,
    pub(crate) messages_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) reads: u64,
    /// The number of lone READs. [`Nic::counters`] computes their messages, their received bytes, and the responder
    /// time of one line each from this number.
    pub(crate) lone_reads: u64,
    pub(crate) writes: u64,
    pub(crate) atomics: u64,
    pub(crate) cas_failed: u64,
    pub(crate) stalled: u64,
    pub(crate) torn_windows: u64,
    /// Picoseconds of work of the responder pipeline, and below of PCIe in both directions. The work of the other parts
    /// is proportional to the number of messages or bytes, so it needs no field.
    pub(crate) responder: u64,
    pub(crate) to_host: u64,
    pub(crate) from_host: u64,
}

/// Counts of one card since the simulation began. They do not depend on the speed of the machine that runs
/// the simulation, so regression tests can use them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NicCounters {
    /// Requests sent.
    pub messages_out: u64,
    /// Requests received.
    pub messages_in: u64,
    /// Bytes sent, headers and responses included.
    pub bytes_out: u64,
    /// Bytes received, headers and responses included.
    pub bytes_in: u64,
    /// READs served.
    pub reads: u64,
    /// WRITEs served.
    pub writes: u64,
    /// Atomics served, failed CASes included.
    pub atomics: u64,
    /// CASes that failed because they found another value.
    pub cas_failed: u64,
    /// Transfers of several lines that moved in two steps. If lines may tear, transfers of several words count too.
    pub torn_windows: u64,
    /// Nanoseconds for which the responder was stopped by atomics whose buckets were busy.
    pub stall_ns: u64,
    /// Nanoseconds of work of the requester pipeline.
    pub requester_busy_ns: u64,
    /// Nanoseconds of work of the responder pipeline, without stalls.
    pub responder_busy_ns: u64,
    /// Nanoseconds of transmission.
    pub link_out_busy_ns: u64,
    /// Nanoseconds of reception.
    pub link_in_busy_ns: u64,
    /// Nanoseconds of PCIe transfers to host memory.
    pub to_host_busy_ns: u64,
    /// Nanoseconds of PCIe transfers from host memory.
    pub from_host_busy_ns: u64,
}

impl Nic {
    pub(crate) fn counters(&self, ticks: &Ticks) -> NicCounters {
        let t = &self.tally;
        let bytes_in = t.bytes_in + t.lone_reads * ticks.header_request;
        let responder = t.responder + t.lone_reads * (ticks.read + ticks.line);
        NicCounters {
            messages_out: t.messages_out,
            messages_in: t.messages_in + t.lone_reads,
            bytes_out: t.bytes_out,
            bytes_in,
            reads: t.reads + t.lone_reads,
            writes: t.writes,
            atomics: t.atomics,
            cas_failed: t.cas_failed,
            torn_windows: t.torn_windows,
            stall_ns: t.stalled / 1000,
            requester_busy_ns: t.messages_out * ticks.requester / 1000,
            responder_busy_ns: responder / 1000,
            link_out_busy_ns: t.bytes_out * ticks.link_byte / 1000,
            link_in_busy_ns: bytes_in * ticks.link_byte / 1000,
            to_host_busy_ns: t.to_host / 1000,
            from_host_busy_ns: t.from_host / 1000,
        }
    }
}
