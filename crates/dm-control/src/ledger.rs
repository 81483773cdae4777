//! The state of a node: the memory handed out, the clients with their ids, groups and leases, and the fenced
//! clients.
//!
//! # Invariants
//! * **L1** Memory is handed out once and never taken back, so a chunk is always zero.
//! * **L2** An id belongs to at most one connection. It is free when its connection ends, and is given out
//!   again only after all others were; its epoch has grown then.
//! * **L3** A fence outlives the connection: a fenced client cannot attach again.
//! * **L4** A connection's port is shut before any peer learns that the connection's clients have no effect
//!   any more.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use dm_sync::Arc;

use crate::meetings::Meetings;
use crate::wire::{Answer, Request};

/// Client ids are from 1 to one less than this, because stamped values store their writer in 12 bits
/// (`dm-history`). A lock word has 15 bits for an id.
pub const CLIENTS_END: u16 = 1 << 12;

/// The number of a connection.
pub(crate) type Connection = u64;

/// The operations on the queue pairs of connections that the control plane needs.
pub trait Ports {
    /// One queue pair.
    type Port: Send;
    /// Shuts `port`: after the return, nothing that arrives there has an effect.
    ///
    /// # Errors
    /// Fails if the device refused. The port may then still be in use.
    fn shut(&self, port: &Self::Port) -> io::Result<()>;
}

/// The facts about a node that never change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    /// Bytes of host memory.
    pub(crate) bytes: u64,
    /// A random number that the node draws at each start.
    pub(crate) boot: u64,
    pub(crate) lease: Duration,
    pub(crate) clients_per_connection: usize,
}

pub(crate) struct Ledger<P: Ports> {
    ports: Arc<P>,
    facts: Facts,
    used: u64,
    next_client: u16,
    next_connection: Connection,
    clients: BTreeMap<u16, Client>,
    connections: BTreeMap<Connection, P::Port>,
    meetings: Meetings,
}

/// The latest holder of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Client {
    /// The boot number of the node that gave it the id.
    giver: u64,
    epoch: u32,
    /// `None` if the holder has left, or its connection was cut.
    connection: Option<Connection>,
    fenced: bool,
    group: Option<u16>,
    lease_ends: Option<Instant>,
}

/// Counts for the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Census {
    pub(crate) used: u64,
    pub(crate) connections: usize,
    pub(crate) clients: usize,
    pub(crate) fenced: usize,
    /// Clients whose lease ended without renewal.
    pub(crate) lapsed: usize,
}

impl<P: Ports> Ledger<P> {
    /// Makes a ledger. The first [`crate::CHUNK_UNIT`] bytes are never handed out.
    pub(crate) fn new(ports: Arc<P>, facts: Facts) -> Self {
        Self {
            ports,
            facts,
            used: crate::CHUNK_UNIT.min(facts.bytes),
            next_client: 1,
            next_connection: 1,
            clients: BTreeMap::new(),
            connections: BTreeMap::new(),
            meetings: Meetings::default(),
        }
    }

    pub(crate) fn boot(&self) -> u64 {
        self.facts.boot
    }

    /// Begins a connection.
    pub(crate) fn connect(&mut self, port: P::Port) -> Connection {
        let connection = self.next_connection;
        self.next_connection += 1;
        self.connections.insert(connection, port);
        connection
    }

    /// Ends a connection with its queue pair and its clients.
    pub(crate) fn disconnect(&mut self, connection: Connection) {
        // This comes before any peer can learn that these clients have left (L4).
        drop(self.connections.remove(&connection));
        for client in self.clients.values_mut() {
            if client.connection == Some(connection) {
                client.connection = None;
                client.lease_ends = None;
            }
        }
        self.meetings.leave(connection);
    }

    /// Returns the node's reply to a request of `caller` on `connection`.
    pub(crate) fn answer(&mut self, connection: Connection, caller: u16, request: Request) -> Answer {
        if caller != 0 {
            match self.clients.get(&caller) {
                Some(client) if client.connection == Some(connection) => {
                    if client.fenced {
                        return Answer::Fenced;
                    }
                }
                _ => return Answer::NotYours,
            }
        }
        match request {
            Request::Claim => self.claim(connection),
            Request::Attach { client, epoch, giver } => self.attach(connection, client, epoch, giver),
            Request::Release { client } => self.release(connection, client),
            Request::Chunk { bytes } => self.chunk(bytes),
            Request::Describe => Answer::Region {
                bytes: self.facts.bytes,
                used: self.used,
            },
            Request::Join => self.of_caller(caller, |client, facts| {
                client.lease_ends = Some(Instant::now() + facts.lease);
                Answer::Joined {
                    epoch: client.epoch,
                    lease_nanos: u64::try_from(facts.lease.as_nanos()).unwrap_or(u64::MAX),
                }
            }),
            Request::Leave => self.of_caller(caller, |client, _| {
                client.lease_ends = None;
                Answer::Done
            }),
            Request::Enlist { group } => self.of_caller(caller, |client, _| {
                client.group = Some(group);
                Answer::Done
            }),
            Request::Fence { client } => match self.clients.contains_key(&client) {
                true => self.fence(|id, _| id == client),
                false => Answer::NoSuchClient,
            },
            Request::FenceGroup { group } => self.fence(|_, known| known.group == Some(group)),
            Request::Meet { place, of } => Answer::Met {
                arrived: self.meetings.meet(place, of, connection),
            },
        }
    }

    fn of_caller(&mut self, caller: u16, then: impl FnOnce(&mut Client, &Facts) -> Answer) -> Answer {
        match self.clients.get_mut(&caller) {
            Some(client) => then(client, &self.facts),
            None => Answer::NotYours,
        }
    }

    fn has_room(&self, connection: Connection) -> bool {
        let held = self.clients.values().filter(|c| c.connection == Some(connection));
        held.count() < self.facts.clients_per_connection
    }

    /// Claims the id that has been free for the longest time.
    fn claim(&mut self, connection: Connection) -> Answer {
        if !self.has_room(connection) {
            return Answer::NoIdLeft;
        }
        for _ in 1..CLIENTS_END {
            let id = self.next_client;
            self.next_client = if id + 1 == CLIENTS_END { 1 } else { id + 1 };
            let known = self.clients.get(&id);
            if known.is_none_or(|client| client.connection.is_none()) {
                let epoch = known.map_or(0, |client| client.epoch).wrapping_add(1);
                let client = Client::new(self.facts.boot, epoch, connection);
                self.clients.insert(id, client);
                return Answer::Claimed { client: id, epoch };
            }
        }
        Answer::NoIdLeft
    }

    /// Attaches an id that another node has given out, or that this node has given to the same client before
    /// its connection was lost.
    fn attach(&mut self, connection: Connection, id: u16, epoch: u32, giver: u64) -> Answer {
        if !(1..CLIENTS_END).contains(&id) {
            return Answer::NoSuchClient;
        }
        if !self.has_room(connection) {
            return Answer::NoIdLeft;
        }
        match self.clients.get_mut(&id) {
            Some(known) if (known.giver, known.epoch) == (giver, epoch) => {
                if known.fenced {
                    return Answer::Fenced;
                }
                // The client has reconnected before this node noticed that the old connection was lost. None
                // of its old requests may land any more.
                let left = known.connection.filter(|other| *other != connection);
                let port = left.and_then(|left| self.connections.get(&left));
                if port.is_some_and(|port| self.ports.shut(port).is_err()) {
                    return Answer::Failed;
                }
                known.connection = Some(connection);
                Answer::Done
            }
            // Another client has the id by now, or the node that gave it out was restarted while the id is in
            // use here.
            Some(known) if known.connection.is_some() => Answer::NotYours,
            Some(known) if known.giver == giver && known.epoch > epoch => Answer::NotYours,
            // This node gives its own ids by `claim`.
            _ if giver == self.facts.boot => Answer::NoSuchClient,
            _ => {
                self.clients.insert(id, Client::new(giver, epoch, connection));
                Answer::Done
            }
        }
    }

    fn release(&mut self, connection: Connection, id: u16) -> Answer {
        match self.clients.get_mut(&id) {
            Some(client) if client.connection == Some(connection) => {
                client.connection = None;
                client.group = None;
                client.lease_ends = None;
                Answer::Done
            }
            _ => Answer::NotYours,
        }
    }

    fn chunk(&mut self, bytes: u64) -> Answer {
        let end = bytes
            .max(1)
            .checked_next_multiple_of(crate::CHUNK_UNIT)
            .and_then(|bytes| self.used.checked_add(bytes))
            .filter(|end| *end <= self.facts.bytes);
        match end {
            Some(end) => Answer::Chunk {
                offset: core::mem::replace(&mut self.used, end),
            },
            None => Answer::OutOfMemory {
                left: self.facts.bytes.saturating_sub(self.used),
            },
        }
    }

    /// Shuts the ports of the clients that are `meant`. Nothing that arrives there has an effect from then
    /// on, whichever client of the connection has sent it.
    fn fence(&mut self, meant: impl Fn(u16, &Client) -> bool) -> Answer {
        let shut: BTreeSet<Connection> = self
            .clients
            .iter()
            .filter(|(id, client)| meant(**id, client))
            .filter_map(|(_, client)| client.connection)
            .collect();
        for connection in &shut {
            let port = self.connections.get(connection);
            if port.is_some_and(|port| self.ports.shut(port).is_err()) {
                // The port is still in use, so the fence must not be reported as done.
                return Answer::Failed;
            }
        }
        for (id, client) in &mut self.clients {
            if meant(*id, client) {
                client.fenced = true;
            }
        }
        Answer::Done
    }

    pub(crate) fn census(&self, now: Instant) -> Census {
        let here = || self.clients.values().filter(|client| client.connection.is_some());
        Census {
            used: self.used,
            connections: self.connections.len(),
            clients: here().count(),
            fenced: here().filter(|client| client.fenced).count(),
            lapsed: here()
                .filter(|client| client.lease_ends.is_some_and(|ends| ends < now))
                .count(),
        }
    }
}

impl Client {
    fn new(giver: u64, epoch: u32, connection: Connection) -> Self {
        Self {
            giver,
            epoch,
            connection: Some(connection),
            fenced: false,
            group: None,
            lease_ends: None,
        }
    }
}

#[cfg(test)]
mod tests;
