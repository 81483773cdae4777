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
                "Bytes of the reserved first page and of all chunks handed out.",
                census.used,
            ),
            (
                "connections",
                "gauge",
                "Open connections that have greeted.",
                census.connections as u64,
            ),
            (
                "clients",
                "gauge",
                "Clients that are connected.",
                census.clients as u64,
            ),
            (
                "clients_fenced",
                "gauge",
                "Connected clients that are fenced.",
                census.fenced as u64,
            ),
            (
                "leases_lapsed",
                "gauge",
                "Connected clients whose lease has expired.",
                census.lapsed as u64,
            ),
            (
                "accepted_total",
                "counter",
                "Connections accepted, without those of scrapers of these metrics.",
                load(&self.accepted),
            ),
            (
                "busy_total",
                "counter",
                "Connections refused or displaced because there were too many.",
                load(&self.busy),
            ),
            (
                "wrong_secret_total",
                "counter",
                "Connections refused because their proof of the secret was wrong.",
                load(&self.wrong_secret),
            ),
            (
                "broken_total",
                "counter",
                "Connections that ended because of an invalid message, a stall, an error or any other refusal.",
                load(&self.broken),
            ),
            (
                "requests_total",
                "counter",
                "Requests answered, including those that claim an id or attach a client.",
                load(&self.requests),
            ),
            (
                "chunks_total",
                "counter",
                "Chunks handed out.",
                load(&self.chunks),
            ),
            (
                "fences_total",
                "counter",
                "Requests to fence a client or a group that were carried out.",
                load(&self.fences),
            ),
            (
                "refused_total",
                "counter",
                "Requests refused, except chunks that did not fit, and lookups and fences of unknown clients.",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Identity;

    /// The expected lines follow the code that counts: the ledger's census, the hall's ends of connections, and the
    /// functions above.
    #[test]
    fn a_counter_counts_what_its_help_says() {
        let metrics = Metrics::default();
        let identity = Identity {
            client: 9,
            epoch: 1,
            giver: 1,
        };
        for (request, answer) in [
            (Request::Chunk { bytes: 1 }, Answer::OutOfMemory { left: 0 }),
            (Request::Holder { client: 9 }, Answer::NoSuchClient),
            (Request::Fence(identity), Answer::NoSuchClient),
            (Request::Fence(identity), Answer::Done),
            (Request::FenceGroup { group: 1 }, Answer::Done),
            (Request::Describe, Answer::NotYours),
        ] {
            metrics.answered(&request, &answer);
        }
        metrics.entered(&Answer::NoSuchClient);
        let census = Census {
            used: crate::CHUNK_UNIT,
            ..Census::default()
        };
        let text = metrics.text(&census, 1 << 20, Instant::now());
        for (name, help, value) in [
            (
                "memory_used_bytes",
                "Bytes of the reserved first page and of all chunks handed out.",
                4096,
            ),
            (
                "requests_total",
                "Requests answered, including those that claim an id or attach a client.",
                7,
            ),
            (
                "fences_total",
                "Requests to fence a client or a group that were carried out.",
                2,
            ),
            (
                "refused_total",
                "Requests refused, except chunks that did not fit, and lookups and fences of unknown clients.",
                2,
            ),
        ] {
            let help = format!("# HELP dmkit_node_{name} {help}\n");
            let value = format!("\ndmkit_node_{name} {value}\n");
            assert!(
                text.contains(&help) && text.contains(&value),
                "{help}{value}{text}"
            );
        }
    }
}
