//! How much one node gives to anybody, and how long it waits for them.

use core::time::Duration;

/// How long a membership lease lasts unless told otherwise.
pub const DEFAULT_LEASE: Duration = Duration::from_millis(100);

/// Bounds on connections, so that nobody's nonsense takes what others need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Connections that have greeted.
    pub connections: usize,
    /// Of those, from one address.
    pub connections_per_host: usize,
    /// Connections that have not greeted yet.
    pub strangers: usize,
    /// Of those, from one address.
    pub strangers_per_host: usize,
    /// Clients of one connection.
    pub clients_per_connection: usize,
    /// How long a whole greeting may take.
    pub greeting: Duration,
    /// How long a message may take from its first byte to its last, and an answer to be taken.
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
