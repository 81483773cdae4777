//! The state of a node: the memory handed out, the clients with their ids, groups and leases, and the fences.
//!
//! # Invariants
//! * **L1** Memory is handed out once and never taken back, so a chunk is all zeros when it is handed out.
//! * **L2** An id belongs to at most one connection. When this connection ends or the client releases the id, the id is
//!   free. The id is given out again only after each other id was given out or found in use, and with a greater epoch.
//!   An id whose epoch cannot grow is never given out again.
//! * **L3** A fence is kept for each giver and id until this node ends. A *giver* is the memory node that gave a client
//!   its id. The node may forget a giver only if no client of this giver is connected or fenced. A fenced client cannot
//!   attach again.
//! * **L4** A connection's port is shut before any peer learns that the requests of the connection's clients no longer
//!   have an effect.
//! * **L5** After the port of a connection is shut, the node refuses all requests of this connection, even those of
//!   clients that were not fenced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use dm_sync::Arc;

use crate::doorman::Host;
use crate::meetings::Meetings;
use crate::secret::fresh;
use crate::wire::{Answer, Entrance, Identity, Request, Token};

/// One more than the greatest client id; the smallest id is 1. Stamped values (`dm-history`) and lock words
/// (`dm-lock`) store an id in 12 bits.
pub const CLIENTS_END: u16 = 1 << 12;
/// Maximum number of other givers whose clients a node remembers. Each giver has up to 4095 ids, so this limits the
/// memory for fences.
const GIVERS_MAX: usize = 8;

/// The number of a connection.
pub(crate) type Connection = u64;

/// The operations on queue pairs that the control plane needs.
pub trait Ports {
    /// One queue pair.
    type Port: Send;
    /// Shuts `port`: after this returns, no request that arrives at the port has an effect.
    ///
    /// # Errors
    /// Returns an error if the device refuses. The port may then still be in use.
    fn shut(&self, port: &Self::Port) -> io::Result<()>;
}

/// The facts about a node that never change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    /// Bytes of host memory.
    pub(crate) bytes: u64,
    /// The boot number: a random number that the node draws at each start.
    pub(crate) boot: u64,
    pub(crate) lease: Duration,
    pub(crate) clients_per_connection: usize,
    pub(crate) clients_per_host: usize,
    pub(crate) bytes_per_host: u64,
}

pub(crate) struct Ledger<P: Ports> {
    ports: Arc<P>,
    facts: Facts,
    used: u64,
    next_client: u16,
    next_connection: Connection,
    /// The key is an id and its giver.
    clients: BTreeMap<(u16, u64), Client>,
    /// Other givers whose clients this node remembers, the oldest first.
    givers: Vec<u64>,
    connections: BTreeMap<Connection, Link<P::Port>>,
    meetings: Meetings,
    /// Bytes of the chunks that each host has taken. There are at most as many hosts here as chunks.
    taken: BTreeMap<Host, u64>,
}

/// A connection, as the ledger needs it.
struct Link<Port> {
    port: Port,
    host: Host,
    /// Whether the port is shut (L4, L5).
    shut: bool,
}

/// The latest holder of an id of one giver.
#[derive(Clone, Copy, Debug)]
struct Client {
    /// 0 if no holder has come to this node, and only a fence is known.
    epoch: u32,
    token: Token,
    /// All holders whose epoch is at most this are fenced.
    fenced: u32,
    /// `None` if the holder has released the id, or its connection has ended.
    connection: Option<Connection>,
    group: Option<u16>,
    /// `None` if the holder has no lease, or the lease ends later than this machine's clock can represent.
    lease_ends: Option<Instant>,
}

/// Counts for the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Census {
    pub(crate) used: u64,
    pub(crate) connections: usize,
    pub(crate) clients: usize,
    pub(crate) fenced: usize,
    /// Clients whose lease has expired.
    pub(crate) lapsed: usize,
}

impl<P: Ports> Ledger<P> {
    /// Makes an empty ledger. The first [`crate::CHUNK_UNIT`] bytes of the memory are never handed out.
    pub(crate) fn new(ports: Arc<P>, facts: Facts) -> Self {
        Self {
            ports,
            facts,
            used: crate::CHUNK_UNIT.min(facts.bytes),
            next_client: 1,
            next_connection: 1,
            clients: BTreeMap::new(),
            givers: Vec::new(),
            connections: BTreeMap::new(),
            meetings: Meetings::default(),
            taken: BTreeMap::new(),
        }
    }

    pub(crate) fn boot(&self) -> u64 {
        self.facts.boot
    }

    /// Registers a new connection and returns its number.
    pub(crate) fn connect(&mut self, port: P::Port, host: Host) -> Connection {
        let connection = self.next_connection;
        self.next_connection += 1;
        let link = Link {
            port,
            host,
            shut: false,
        };
        self.connections.insert(connection, link);
        connection
    }

    /// Removes a connection. This closes its queue pair and detaches its clients.
    pub(crate) fn disconnect(&mut self, connection: Connection) {
        // The port is closed before any peer can learn that these clients have left (L4).
        drop(self.connections.remove(&connection));
        for client in self.clients.values_mut() {
            if client.connection == Some(connection) {
                client.connection = None;
                client.lease_ends = None;
            }
        }
        self.meetings.leave(connection);
    }

    /// Handles a client that wants to use `connection`, and returns the node's answer.
    pub(crate) fn enter(&mut self, connection: Connection, entrance: Entrance) -> Answer {
        if self.is_shut(connection) {
            return Answer::Fenced;
        }
        match entrance {
            Entrance::Claim => self.claim(connection),
            Entrance::Attach { identity, token } => self.attach(connection, identity, token),
        }
    }

    /// Handles a request of client `caller` on `connection`, and returns the node's answer.
    pub(crate) fn answer(&mut self, connection: Connection, caller: u16, request: Request) -> Answer {
        if self.is_shut(connection) {
            return Answer::Fenced;
        }
        let (facts, used) = (self.facts, self.used);
        let mut holders = self.clients.range_mut((caller, 0)..=(caller, u64::MAX));
        let Some((_, client)) = holders.find(|(_, client)| client.connection == Some(connection)) else {
            return Answer::NotYours;
        };
        match request {
            Request::Release => {
                client.leave();
                Answer::Done
            }
            Request::Chunk { bytes } => self.chunk(connection, bytes),
            Request::Describe => Answer::Region {
                bytes: facts.bytes,
                used,
            },
            Request::Join => {
                client.lease_ends = Instant::now().checked_add(facts.lease);
                Answer::Joined {
                    epoch: client.epoch,
                    lease_nanos: u64::try_from(facts.lease.as_nanos()).unwrap_or(u64::MAX),
                }
            }
            Request::Leave => {
                client.lease_ends = None;
                Answer::Done
            }
            Request::Enlist { group } => {
                client.group = Some(group);
                Answer::Done
            }
            Request::Holder { client } => match self.clients.get(&(client, facts.boot)) {
                Some(known) if known.epoch > 0 => Answer::Holder { epoch: known.epoch },
                _ => Answer::NoSuchClient,
            },
            Request::Fence(identity) => self.fence(identity),
            Request::FenceGroup { group } => self.fence_group(group),
            Request::Meet { place, of } => Answer::Met {
                arrived: self.meetings.meet(place, of, connection),
            },
        }
    }

    fn is_shut(&self, connection: Connection) -> bool {
        self.connections.get(&connection).is_some_and(|link| link.shut)
    }

    fn host(&self, connection: Connection) -> Option<Host> {
        self.connections.get(&connection).map(|link| link.host)
    }

    /// Returns whether the connection and its host may have one more client. If the client moves, `left` is its old
    /// connection, and the client does not count twice for its host.
    fn has_room(&self, connection: Connection, left: Option<Connection>) -> bool {
        let host = self.host(connection);
        let (mut own, mut of_host) = (0, 0);
        for here in self.clients.values().filter_map(|client| client.connection) {
            own += usize::from(here == connection);
            of_host += usize::from(self.host(here) == host);
        }
        of_host -= usize::from(left.is_some_and(|left| self.host(left) == host));
        own < self.facts.clients_per_connection && of_host < self.facts.clients_per_host
    }

    /// Returns whether a connected client of a giver other than `giver` has this id.
    fn is_taken(&self, id: u16, giver: u64) -> bool {
        let mut holders = self.clients.range((id, 0)..=(id, u64::MAX));
        holders.any(|((_, other), client)| *other != giver && client.connection.is_some())
    }

    /// Claims the next free id. The ids are tried in a cycle, so that an id rests for as long as possible.
    fn claim(&mut self, connection: Connection) -> Answer {
        if !self.has_room(connection, None) {
            return Answer::NoIdLeft;
        }
        let Ok(token) = fresh() else {
            return Answer::Failed;
        };
        let (token, boot) = (Token(token), self.facts.boot);
        for _ in 1..CLIENTS_END {
            let id = self.next_client;
            self.next_client = if id + 1 == CLIENTS_END { 1 } else { id + 1 };
            if self.is_taken(id, boot) {
                continue;
            }
            // Only this node's own epochs count here, because other givers count theirs separately.
            let client = self.clients.entry((id, boot)).or_insert(Client::ABSENT);
            let next = client.epoch.checked_add(1);
            if let (None, Some(epoch)) = (client.connection, next) {
                client.hold(epoch, token, connection);
                return Answer::Claimed {
                    client: id,
                    epoch,
                    token,
                };
            }
        }
        Answer::NoIdLeft
    }

    /// Attaches a client whose id another node has given, or whose id this node gave on an earlier connection.
    fn attach(&mut self, connection: Connection, who: Identity, token: Token) -> Answer {
        let known = match self.known(who) {
            Ok(known) => known,
            Err(answer) => return answer,
        };
        if who.epoch <= known.fenced {
            return Answer::Fenced;
        }
        let same = who.epoch == known.epoch;
        if same && token != known.token || who.epoch < known.epoch {
            return Answer::NotYours;
        }
        if same && known.connection == Some(connection) {
            return Answer::Done;
        }
        // Another holder of the id is connected here. Or the id's giver was restarted, and has given an id that a
        // client of its earlier boot still uses here.
        if !same && known.connection.is_some() || self.is_taken(who.client, who.giver) {
            return Answer::NotYours;
        }
        if !self.has_room(connection, known.connection) || !self.remembers(who.giver) {
            return Answer::NoIdLeft;
        }
        // If the client is still connected elsewhere, it has reconnected before this node noticed that the old
        // connection was lost. The client's old requests must not take effect any more.
        if known.connection.is_some_and(|left| !self.shut(left)) {
            return Answer::Failed;
        }
        let client = self.clients.entry((who.client, who.giver)).or_insert(known);
        client.connection = Some(connection);
        if !same {
            client.hold(who.epoch, token, connection);
        }
        Answer::Done
    }

    /// Returns the latest known holder of the id of `who`, or an error if no client can have this identity.
    fn known(&self, who: Identity) -> Result<Client, Answer> {
        let known = self.clients.get(&(who.client, who.giver));
        let known = known.copied().unwrap_or(Client::ABSENT);
        // A node knows every client to which it gave an id itself.
        let given = who.giver != self.facts.boot || who.epoch <= known.epoch;
        if (1..CLIENTS_END).contains(&who.client) && who.epoch > 0 && given {
            Ok(known)
        } else {
            Err(Answer::NoSuchClient)
        }
    }

    /// Remembers `giver`, and forgets another giver that is no longer needed if there are too many. Returns false if
    /// all of them are needed.
    fn remembers(&mut self, giver: u64) -> bool {
        if giver == self.facts.boot || self.givers.contains(&giver) {
            return true;
        }
        if self.givers.len() == GIVERS_MAX {
            let needed = |client: &Client| client.connection.is_some() || client.fenced > 0;
            let mut needed_by: Vec<u64> = self
                .clients
                .iter()
                .filter_map(|((_, giver), client)| needed(client).then_some(*giver))
                .collect();
            needed_by.sort_unstable();
            let idle = |giver: &u64| needed_by.binary_search(giver).is_err();
            let Some(at) = self.givers.iter().position(idle) else {
                return false;
            };
            let idle = self.givers.remove(at);
            self.clients.retain(|(_, giver), _| *giver != idle);
        }
        self.givers.push(giver);
        true
    }

    fn chunk(&mut self, connection: Connection, bytes: u64) -> Answer {
        let Some(host) = self.host(connection) else {
            return Answer::NotYours;
        };
        let taken = self.taken.get(&host).copied().unwrap_or(0);
        let quota = self.facts.bytes_per_host.saturating_sub(taken);
        let left = self.facts.bytes.saturating_sub(self.used).min(quota);
        let wanted = bytes.max(1).checked_next_multiple_of(crate::CHUNK_UNIT);
        match wanted.filter(|wanted| *wanted <= left) {
            Some(wanted) => {
                self.taken.insert(host, taken + wanted);
                let offset = self.used;
                self.used += wanted;
                Answer::Chunk { offset }
            }
            None => Answer::OutOfMemory { left },
        }
    }

    /// Shuts the port of a connection, so that later requests of all its clients have no effect. Returns false if the
    /// device refused.
    fn shut(&mut self, connection: Connection) -> bool {
        let Some(link) = self.connections.get_mut(&connection) else {
            return true;
        };
        link.shut = link.shut || self.ports.shut(&link.port).is_ok();
        link.shut
    }

    fn fence(&mut self, who: Identity) -> Answer {
        let known = match self.known(who) {
            Ok(known) => known,
            Err(answer) => return answer,
        };
        let here = known.connection.filter(|_| known.epoch <= who.epoch);
        // Do not answer `Done` if the port is still in use or the fence cannot be kept.
        if here.is_some_and(|here| !self.shut(here)) || !self.remembers(who.giver) {
            return Answer::Failed;
        }
        let client = self.clients.entry((who.client, who.giver)).or_insert(known);
        client.fenced = client.fenced.max(who.epoch);
        Answer::Done
    }

    fn fence_group(&mut self, group: u16) -> Answer {
        let members = self.clients.values().filter(|client| client.group == Some(group));
        let here: BTreeSet<Connection> = members.filter_map(|client| client.connection).collect();
        if !here.into_iter().all(|connection| self.shut(connection)) {
            return Answer::Failed;
        }
        for client in self.clients.values_mut().filter(|c| c.group == Some(group)) {
            client.fenced = client.fenced.max(client.epoch);
        }
        Answer::Done
    }

    pub(crate) fn census(&self, now: Instant) -> Census {
        let here = || self.clients.values().filter(|client| client.connection.is_some());
        Census {
            used: self.used,
            connections: self.connections.len(),
            clients: here().count(),
            fenced: here().filter(|client| client.epoch <= client.fenced).count(),
            lapsed: here()
                .filter(|client| client.lease_ends.is_some_and(|ends| ends < now))
                .count(),
        }
    }
}

impl Client {
    const ABSENT: Self = Self {
        epoch: 0,
        token: Token([0; 16]),
        fenced: 0,
        connection: None,
        group: None,
        lease_ends: None,
    };

    /// Replaces the holder of the id. The fences of earlier holders stay.
    fn hold(&mut self, epoch: u32, token: Token, connection: Connection) {
        *self = Self {
            epoch,
            token,
            connection: Some(connection),
            fenced: self.fenced,
            ..Self::ABSENT
        };
    }

    fn leave(&mut self) {
        self.connection = None;
        self.group = None;
        self.lease_ends = None;
    }
}

#[cfg(test)]
mod tests;
