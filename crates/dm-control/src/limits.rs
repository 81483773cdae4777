//! Limits on the resources of a node that a peer may use, and on the time for which the node waits for a peer.

use core::time::Duration;

/// Default length of a membership lease.
pub const DEFAULT_LEASE: Duration = Duration::from_millis(100);

/// Limits on connections, so that no peer can use up the resources that others need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of connections that have greeted.
    pub connections: usize,
    /// Maximum number of connections per host that have greeted. A host is an IPv4 address, or the first 64 bits
    /// of an IPv6 address.
    pub connections_per_host: usize,
    /// Maximum number of connections that have not greeted yet. A further connection displaces one of them.
    pub strangers: usize,
    /// Maximum number of connections per host that have not greeted yet.
    pub strangers_per_host: usize,
    /// Maximum number of clients of one connection.
    pub clients_per_connection: usize,
    /// Maximum number of clients per host. The rest of the ids is kept for other hosts.
    pub clients_per_host: usize,
    /// Maximum number of bytes that the clients of a host may take as chunks, until the node ends. `None` means 15/16
    /// of the node's memory.
    pub bytes_per_host: Option<u64>,
    /// Time for a whole greeting.
    pub greeting: Duration,
    /// Time for a message from its first byte to its last, and for the peer to accept a reply.
    pub message: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_host: 256,
            strangers: 128,
            strangers_per_host: 64,
            clients_per_connection: 2048,
            clients_per_host: 3072,
            bytes_per_host: None,
            greeting: Duration::from_secs(2),
            message: Duration::from_secs(2),
        }
    }
}
