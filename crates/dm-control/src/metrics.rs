//! The counters of a node, in the text format of Prometheus.

use core::fmt::Write;
use std::time::Instant;

use dm_sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::ledger::Census;
use crate::wire::{Answer, Request};

/// Counters. Each is updated independently of the others.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) accepted: AtomicU64,
    /// Connections that were refused or displaced because there were too many, or because the system had no descriptor
    /// left.
    pub(crate) busy: AtomicU64,
    pub(crate) wrong_secret: AtomicU64,
    /// Connections that ended because of garbage, a stall, a message out of turn, another version or address, a lack of
    /// queue pairs, or an error.
    pub(crate) broken: AtomicU64,
    requests: AtomicU64,
    chunks: AtomicU64,
    fences: AtomicU64,
    refused: AtomicU64,
}

/// Increments a counter.
pub(crate) fn count(counter: &AtomicU64) {
    // Relaxed: the value of one counter implies nothing about another.
    counter.fetch_add(1, Relaxed);
}

impl Metrics {
    pub(crate) fn entered(&self, answer: &Answer) {
        count(&self.requests);
        if !matches!(answer, Answer::Claimed { .. } | Answer::Done) {
            count(&self.refused);
        }
    }

    pub(crate) fn answered(&self, request: &Request, answer: &Answer) {
        count(&self.requests);
        match (request, answer) {
            (Request::Chunk { .. }, Answer::Chunk { .. }) => count(&self.chunks),
            (Request::Fence(_) | Request::FenceGroup { .. }, Answer::Done) => count(&self.fences),
            (_, Answer::Fenced | Answer::NotYours | Answer::Failed | Answer::NoIdLeft) => {
                count(&self.refused);
            }
            _ => {}
        }
    }

    /// Returns the text of all counters, together with the current state.
    pub(crate) fn text(&self, census: &Census, bytes: u64, born: Instant) -> String {
        // Relaxed: as in `count`.
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let all = [
            (
                "up_seconds",
                "gauge",
                "Seconds since the start.",
                born.elapsed().as_secs(),
            ),
            ("memory_bytes", "gauge", "Bytes of host memory.", bytes),
            (
                "memory_used_bytes",
                "gauge",
                "Bytes handed out as chunks.",
                census.used,
            ),
            (
                "connections",
                "gauge",
                "Connections that have greeted.",
                census.connections as u64,
            ),
            ("clients", "gauge", "Clients with an id.", census.clients as u64),
            (
                "clients_fenced",
                "gauge",
                "Clients that are fenced off.",
                census.fenced as u64,
            ),
            (
                "leases_lapsed",
                "gauge",
                "Clients whose lease ended without renewal.",
                census.lapsed as u64,
            ),
            (
                "accepted_total",
                "counter",
                "Connections that were accepted.",
                load(&self.accepted),
            ),
            (
                "busy_total",
                "counter",
                "Connections refused because there were too many.",
                load(&self.busy),
            ),
            (
                "wrong_secret_total",
                "counter",
                "Peers without the secret.",
                load(&self.wrong_secret),
            ),
            (
                "broken_total",
                "counter",
                "Connections ended by garbage or a stall.",
                load(&self.broken),
            ),
            (
                "requests_total",
                "counter",
                "Requests answered.",
                load(&self.requests),
            ),
            (
                "chunks_total",
                "counter",
                "Chunks handed out.",
                load(&self.chunks),
            ),
            ("fences_total", "counter", "Fences done.", load(&self.fences)),
            (
                "refused_total",
                "counter",
                "Requests refused.",
                load(&self.refused),
            ),
        ];
        let mut text = String::new();
        for (name, kind, help, value) in all {
            let name = format!("dmkit_node_{name}");
            let _ = write!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
            );
        }
        text
    }
}
