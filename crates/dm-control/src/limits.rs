//! Limits on what a peer may use of a node, and on how long the node waits for it.

use core::time::Duration;

/// Default length of a membership lease.
pub const DEFAULT_LEASE: Duration = Duration::from_millis(100);

/// Limits on connections, so that no peer can take what others need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Connections that have greeted, in all.
    pub connections: usize,
    /// Connections that have greeted, per address.
    pub connections_per_host: usize,
    /// Connections that have not greeted yet, in all.
    pub strangers: usize,
    /// Connections that have not greeted yet, per address.
    pub strangers_per_host: usize,
    /// Clients of one connection.
    pub clients_per_connection: usize,
    /// Time for a whole greeting.
    pub greeting: Duration,
    /// Time for a message from its first byte to its last, and for the peer to take an answer.
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
            greeting: Duration::from_secs(2),
            message: Duration::from_secs(2),
        }
    }
}
