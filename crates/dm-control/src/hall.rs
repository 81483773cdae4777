//! The thread that serves all connections of a node. It never blocks on a connection, so a peer delays the others only
//! by the time that its messages take.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dm_sync::Arc;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::backoff::Backoff;
use crate::dialogue::{Desk, Dialogue, End, Fabric};
use crate::doorman::{Doorman, Host};
use crate::http;
use crate::limits::Limits;
use crate::metrics::count;
use crate::peer::{Left, Outbox, Peer, Progress, Shared, notice_dead_hosts};
use crate::wire::Refusal;

// Event tokens. Every connection has its own number, which is greater than these.
const CLIENTS: usize = 0;
const PAGE: usize = 1;
const WAKE: usize = 2;
/// Maximum number of connections that a listener accepts in a row, before the thread serves other events.
const ACCEPTS: usize = 64;
/// Maximum number of connections of metrics scrapers. A further connection closes one of them, by the rule for
/// strangers.
const SCRAPERS_MAX: usize = 64;
/// Maximum number of a host's connections of metrics scrapers.
const SCRAPERS_PER_HOST: usize = 8;
/// The pause before the thread tries again, if the system has no descriptor for a connection, or if waiting for events
/// fails.
const SHORTAGE: Duration = Duration::from_millis(100);

/// The state of the thread: its listeners, and the connections that it serves.
pub(crate) struct Hall<F: Fabric> {
    poll: Poll,
    clients: TcpListener,
    page: Option<TcpListener>,
    desk: Arc<Desk<F>>,
    shared: Shared,
    /// Connections by number. A later connection has a greater number; the number is also its event token.
    peers: BTreeMap<usize, Peer<F>>,
    scrapers: BTreeMap<usize, Scraper>,
    page_doorman: Doorman,
    /// The number of the next connection.
    next: usize,
    /// Connections and listeners that have more work, although no further event will report it.
    again: BTreeSet<usize>,
    /// The time of the next attempt to accept, after the system had no descriptor.
    accepts_at: Option<Instant>,
}

/// A connection of a metrics scraper.
struct Scraper {
    stream: TcpStream,
    host: Host,
    request: Vec<u8>,
    response: Option<Outbox>,
    until: Instant,
}

impl<F: Fabric> Hall<F> {
    /// Registers the listeners. Also returns a waker, with which another thread makes [`Hall::run`] check `stopping`.
    pub(crate) fn new(
        clients: std::net::TcpListener,
        page: Option<std::net::TcpListener>,
        desk: Arc<Desk<F>>,
        limits: Limits,
    ) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let listen = |listener: std::net::TcpListener, number| {
            listener.set_nonblocking(true)?;
            let mut listener = TcpListener::from_std(listener);
            let registry = poll.registry();
            registry.register(&mut listener, Token(number), Interest::READABLE)?;
            io::Result::Ok(listener)
        };
        let clients = listen(clients, CLIENTS)?;
        let page = page.map(|page| listen(page, PAGE)).transpose()?;
        let waker = Waker::new(poll.registry(), Token(WAKE))?;
        let hall = Self {
            poll,
            clients,
            page,
            desk,
            shared: Shared {
                doorman: Doorman::new(limits),
                backoff: Backoff::default(),
                limits,
            },
            peers: BTreeMap::new(),
            scrapers: BTreeMap::new(),
            page_doorman: Doorman::new(Limits {
                strangers: SCRAPERS_MAX,
                strangers_per_host: SCRAPERS_PER_HOST,
                ..limits
            }),
            next: WAKE + 1,
            again: BTreeSet::new(),
            accepts_at: None,
        };
        Ok((hall, waker))
    }

    /// Serves until `stopping` returns true. An error of a peer ends only the connection of this peer.
    pub(crate) fn run(mut self, stopping: impl Fn() -> bool) {
        let mut events = Events::with_capacity(256);
        loop {
            let timeout = self.timeout(Instant::now());
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "no events");
                crate::pause(SHORTAGE);
            }
            if stopping() {
                return;
            }
            let now = Instant::now();
            // `again` is emptied here, and `peer_turn` and `accept` may fill it again.
            let mut due = core::mem::take(&mut self.again);
            if self.accepts_at.is_some_and(|at| at <= now) {
                // No further event reports connections that arrived during the shortage, so try both listeners.
                self.accepts_at = None;
                due.extend([CLIENTS, PAGE]);
            }
            due.extend(events.iter().map(|event| event.token().0));
            due.extend(
                self.deadlines()
                    .filter(|(_, until)| *until <= now)
                    .map(|(n, _)| n),
            );
            // The listeners have the smallest numbers and are served last. So the message of a stranger, which may be
            // its proof, is read before a new connection displaces the stranger.
            for number in due.into_iter().rev() {
                match number {
                    CLIENTS | PAGE => self.accept(number, now),
                    _ if self.peers.contains_key(&number) => self.peer_turn(number, now),
                    _ => self.scraper_turn(number, now),
                }
            }
        }
    }

    /// Returns how long the thread may wait for events.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadlines = self.deadlines().map(|(_, until)| until);
        let first = deadlines.chain(self.accepts_at).min()?;
        Some(first.saturating_duration_since(now))
    }

    /// Returns the connections that must be served at a certain time even without an event, with these times.
    fn deadlines(&self) -> impl Iterator<Item = (usize, Instant)> {
        let peers = self
            .peers
            .iter()
            .filter_map(|(number, peer)| Some((*number, peer.deadline()?)));
        let scrapers = self
            .scrapers
            .iter()
            .map(|(number, scraper)| (*number, scraper.until));
        peers.chain(scrapers)
    }

    /// Accepts connections of `listener` until none is left, at most [`ACCEPTS`].
    fn accept(&mut self, listener: usize, now: Instant) {
        for _ in 0..ACCEPTS {
            let accepted = match (listener, &self.page) {
                (CLIENTS, _) => self.clients.accept(),
                (_, Some(page)) => page.accept(),
                (_, None) => return,
            };
            match accepted {
                Ok((stream, address)) => self.admit(listener, stream, address, now),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    if self.desk.strangers_lines.may(now) {
                        tracing::warn!(%error, "a connection could not be accepted");
                    }
                    // Usually the system has no descriptor left. Close a stranger or a scraper, if there is one, to
                    // free its descriptor.
                    if let Some(goes) = self.shared.doorman.longest_waiting() {
                        self.end(goes, Left::Displaced, now);
                    } else if let Some(goes) = self.page_doorman.longest_waiting() {
                        self.end_scraper(goes);
                    } else {
                        self.accepts_at = now.checked_add(SHORTAGE);
                        return;
                    }
                }
            }
        }
        self.again.insert(listener);
    }

    /// Adds an accepted connection and serves it at once. Then ends the connection that it displaces, if there are too
    /// many.
    fn admit(&mut self, listener: usize, mut stream: TcpStream, address: SocketAddr, now: Instant) {
        let number = self.next;
        self.next += 1;
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = stream
            .set_nodelay(true)
            .and_then(|()| notice_dead_hosts(socket2::SockRef::from(&stream)))
            .and_then(|()| {
                let registry = self.poll.registry();
                registry.register(&mut stream, Token(number), both)
            })
            .and_then(|()| stream.local_addr());
        let Ok(here) = ready else {
            // The peer has already disconnected, or the system has no memory for another connection.
            return;
        };
        // Bytes that have arrived before the registration cause no event, so serve the connection now.
        let goes = if listener == PAGE {
            let host = address.ip().into();
            let scraper = Scraper {
                stream,
                host,
                request: Vec::new(),
                response: None,
                until: now + http::PATIENCE,
            };
            self.scrapers.insert(number, scraper);
            self.scraper_turn(number, now);
            let stays = self.scrapers.contains_key(&number);
            stays.then(|| self.page_doorman.admit(number, host)).flatten()
        } else {
            count(&self.desk.metrics.accepted);
            let dialogue = Dialogue::new(&self.desk, address, here);
            let greeting_ends = now.checked_add(self.shared.limits.greeting);
            let peer = Peer::new(number, stream, address, dialogue, greeting_ends);
            let goes = self.shared.doorman.admit(number, peer.host);
            self.peers.insert(number, peer);
            self.peer_turn(number, now);
            goes
        };
        if let Some(goes) = goes {
            match listener {
                PAGE => self.end_scraper(goes),
                _ => self.end(goes, Left::Displaced, now),
            }
        }
    }

    /// Serves a connection, and ends it or schedules it again.
    fn peer_turn(&mut self, number: usize, now: Instant) {
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        match peer.turn(now, &mut self.shared) {
            Progress::Waits => {}
            Progress::Again => {
                self.again.insert(number);
            }
            Progress::Over(left) => self.end(number, left, now),
        }
    }

    /// Ends a connection. Closes its descriptor and its queue pair.
    fn end(&mut self, number: usize, left: Left, now: Instant) {
        let Some(peer) = self.peers.remove(&number) else {
            return;
        };
        self.shared.doorman.leave(number, peer.host);
        self.note_end(&peer, &left, now);
        let displaced = matches!(left, Left::Displaced);
        peer.close(displaced.then_some(Refusal::Busy));
    }

    fn note_end(&self, peer: &Peer<F>, left: &Left, now: Instant) {
        let metrics = &self.desk.metrics;
        match left {
            Left::Closed => {}
            Left::Displaced | Left::Ended(End::Refused(Refusal::Busy)) => count(&metrics.busy),
            Left::Ended(End::Refused(Refusal::Secret)) => count(&metrics.wrong_secret),
            Left::Broken(_) | Left::Ended(_) => count(&metrics.broken),
        }
        if !self.desk.lines(peer.has_greeted()).may(now) {
            return;
        }
        let peer = peer.address;
        match left {
            Left::Closed => tracing::info!(%peer, "gone"),
            Left::Displaced => tracing::warn!(%peer, "too many connections: displaced by a newcomer"),
            Left::Ended(end) => tracing::warn!(%peer, reason = %end, "connection ended"),
            Left::Broken(error) if error.kind() == io::ErrorKind::TimedOut => {
                tracing::warn!(%peer, "stalled: connection ended");
            }
            Left::Broken(error) => tracing::warn!(%peer, %error, "connection ended"),
        }
    }

    /// Serves a scraper, and ends its connection after the response, an error or the deadline.
    fn scraper_turn(&mut self, number: usize, now: Instant) {
        let Some(scraper) = self.scrapers.get_mut(&number) else {
            return;
        };
        let over = scraper.turn(|| self.desk.metrics()).unwrap_or(true);
        if over || scraper.until <= now {
            self.end_scraper(number);
        }
    }

    fn end_scraper(&mut self, number: usize) {
        if let Some(scraper) = self.scrapers.remove(&number) {
            self.page_doorman.leave(number, scraper.host);
        }
    }
}

impl Scraper {
    /// Reads and writes as much as is possible without waiting. Returns whether the connection is finished.
    fn turn(&mut self, text: impl FnOnce() -> String) -> io::Result<bool> {
        while self.response.is_none() {
            let mut bytes = [0; 512];
            let got = match self.stream.read(&mut bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            self.request
                .extend_from_slice(bytes.get(..got).unwrap_or_default());
            if got == 0 || self.request.len() > http::REQUEST_MAX {
                return Ok(true);
            }
            if http::is_complete(&self.request) {
                let mut outbox = Outbox::default();
                outbox.put(http::respond(&self.request, text));
                self.response = Some(outbox);
                break;
            }
        }
        let stream = &mut self.stream;
        self.response
            .as_mut()
            .map_or(Ok(true), |outbox| outbox.flush(stream))
    }
}
