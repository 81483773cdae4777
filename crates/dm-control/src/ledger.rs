//! The state of a node: the memory handed out, the clients with their ids, groups and leases, and the fences.
//!
//! # Invariants
//! * **L1** Memory is handed out once and never taken back, so a chunk is always zero.
//! * **L2** An id belongs to at most one connection. It is free when its connection ends, and is given out
//!   again only after all others were; its epoch has grown then. An id whose epoch cannot grow rests for ever.
//! * **L3** A fence is kept for each giver and id, until this node ends or the giver's clients are forgotten
//!   because none of them is here or fenced. A fenced client cannot attach again.
//! * **L4** A connection's port is shut before any peer learns that the connection's clients have no effect
//!   any more.
//! * **L5** A connection whose port is shut can ask for nothing, whichever of its clients was fenced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use dm_sync::Arc;

use crate::doorman::Host;
use crate::meetings::Meetings;
use crate::secret::fresh;
use crate::wire::{Answer, Entrance, Identity, Request, Token};

/// Client ids are from 1 to one less than this, because stamped values store their writer in 12 bits
/// (`dm-history`). A lock word has 15 bits for an id.
pub const CLIENTS_END: u16 = 1 << 12;
/// Other nodes whose clients a node remembers. Each remembers 4095 ids, so this limits the memory for fences.
const GIVERS_MAX: usize = 8;

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
    pub(crate) clients_per_host: usize,
    pub(crate) bytes_per_host: u64,
}

pub(crate) struct Ledger<P: Ports> {
    ports: Arc<P>,
    facts: Facts,
    used: u64,
    next_client: u16,
    next_connection: Connection,
    /// By id and giver.
    clients: BTreeMap<(u16, u64), Client>,
    /// The other nodes that have clients here.
    givers: Vec<u64>,
    connections: BTreeMap<Connection, Line<P::Port>>,
    meetings: Meetings,
    /// Bytes of chunks by host. There are at most as many hosts as chunks.
    taken: BTreeMap<Host, u64>,
}

struct Line<Port> {
    port: Port,
    host: Host,
    /// Whether nothing that arrives at the port has an effect any more.
    shut: bool,
}

/// The latest holder of an id that one giver has given.
#[derive(Clone, Copy, Debug)]
struct Client {
    /// 0 if this node knows only a fence.
    epoch: u32,
    token: Token,
    /// The holders up to this epoch are fenced.
    fenced: u32,
    /// `None` if the holder has left, or its connection was cut.
    connection: Option<Connection>,
    group: Option<u16>,
    /// `None` if there is no lease, or it ends later than this machine's clock can say.
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
            givers: Vec::new(),
            connections: BTreeMap::new(),
            meetings: Meetings::default(),
            taken: BTreeMap::new(),
        }
    }

    pub(crate) fn boot(&self) -> u64 {
        self.facts.boot
    }

    /// Begins a connection.
    pub(crate) fn connect(&mut self, port: P::Port, host: Host) -> Connection {
        let connection = self.next_connection;
        self.next_connection += 1;
        let line = Line {
            port,
            host,
            shut: false,
        };
        self.connections.insert(connection, line);
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

    /// Returns the node's reply to a client that comes to `connection`.
    pub(crate) fn enter(&mut self, connection: Connection, entrance: Entrance) -> Answer {
        if self.is_shut(connection) {
            return Answer::Fenced;
        }
        match entrance {
            Entrance::Claim => self.claim(connection),
            Entrance::Attach { identity, token } => self.attach(connection, identity, token),
        }
    }

    /// Returns the node's reply to a request of `caller` on `connection`.
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
        self.connections.get(&connection).is_some_and(|line| line.shut)
    }

    fn host(&self, connection: Connection) -> Option<Host> {
        self.connections.get(&connection).map(|line| line.host)
    }

    /// Returns whether the connection and its host may have another client, which comes from `left` if it is
    /// here already.
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

    /// Returns whether a client with this id is here, other than `giver`'s.
    fn is_taken(&self, id: u16, giver: u64) -> bool {
        let mut holders = self.clients.range((id, 0)..=(id, u64::MAX));
        holders.any(|((_, other), client)| *other != giver && client.connection.is_some())
    }

    /// Claims the id that has been free for the longest time.
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
            // The epochs of other givers do not count: this node repeats none of its own.
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

    /// Attaches a client that another node has given, or that this node has given before its connection was
    /// lost.
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
        // Another client has the id by now, or the node that gave it out was restarted while the id is in use
        // here.
        if !same && known.connection.is_some() || self.is_taken(who.client, who.giver) {
            return Answer::NotYours;
        }
        if !self.has_room(connection, known.connection) || !self.remembers(who.giver) {
            return Answer::NoIdLeft;
        }
        // The client has reconnected before this node noticed that the old connection was lost. None of its
        // old requests may land any more.
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

    /// Returns the latest holder of the id that `who` has, if `who` can exist.
    fn known(&self, who: Identity) -> Result<Client, Answer> {
        let known = self.clients.get(&(who.client, who.giver));
        let known = known.copied().unwrap_or(Client::ABSENT);
        // This node knows every client that it has given an id.
        let given = who.giver != self.facts.boot || who.epoch <= known.epoch;
        if (1..CLIENTS_END).contains(&who.client) && who.epoch > 0 && given {
            Ok(known)
        } else {
            Err(Answer::NoSuchClient)
        }
    }

    /// Makes room for the clients of `giver`. Returns false if there is none.
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

    /// Shuts a connection's port: nothing that arrives there has an effect from then on, whichever client of
    /// the connection has sent it. Returns false if the device refused.
    fn shut(&mut self, connection: Connection) -> bool {
        let Some(line) = self.connections.get_mut(&connection) else {
            return true;
        };
        line.shut = line.shut || self.ports.shut(&line.port).is_ok();
        line.shut
    }

    fn fence(&mut self, who: Identity) -> Answer {
        let known = match self.known(who) {
            Ok(known) => known,
            Err(answer) => return answer,
        };
        let here = known.connection.filter(|_| known.epoch <= who.epoch);
        // If the port is still in use, or the fence cannot be kept, it must not be reported as done.
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

    /// Gives the id to its next holder.
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
