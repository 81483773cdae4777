//! The thread that serves all connections of a node. It never waits for one of them, so that no peer costs
//! another one more than the time of its messages.

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
use crate::peer::{Left, Outbox, Peer, Shared, Turn, notice_dead_hosts};
use crate::wire::Refusal;

const CLIENTS: usize = 0;
const PAGE: usize = 1;
const WAKE: usize = 2;
/// Connections that are accepted before it is the others' turn.
const ACCEPTS: usize = 64;
/// Metrics scrapers at a time, in all and per host. They make room for newcomers as strangers do.
const SCRAPERS_MAX: usize = 64;
const SCRAPERS_PER_HOST: usize = 8;
/// The time until connections are accepted again, if the system has no descriptors for them.
const SHORTAGE: Duration = Duration::from_millis(100);

/// The state of the thread.
pub(crate) struct Hall<F: Fabric> {
    poll: Poll,
    clients: TcpListener,
    page: Option<TcpListener>,
    desk: Arc<Desk<F>>,
    shared: Shared,
    /// By their numbers, which grow with the arrival and are also those of their events.
    peers: BTreeMap<usize, Peer<F>>,
    scrapers: BTreeMap<usize, Scraper>,
    page_doorman: Doorman,
    next: usize,
    /// Those who can go on without an event.
    again: BTreeSet<usize>,
    /// The time at which to accept again after a shortage.
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
    /// Prepares to serve these listeners. Also returns a waker that gives [`Hall::run`] a turn.
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

    /// Serves until `stopping` returns true. Whatever a peer does, only its own connection is affected.
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
            let mut due = core::mem::take(&mut self.again);
            if self.accepts_at.is_some_and(|at| at <= now) {
                // Connections that arrived before cause no further event, at either listener.
                self.accepts_at = None;
                due.extend([CLIENTS, PAGE]);
            }
            due.extend(events.iter().map(|event| event.token().0));
            due.extend(
                self.deadlines()
                    .filter(|(_, until)| *until <= now)
                    .map(|(n, _)| n),
            );
            // Newcomers come last: the one whose place they take may have sent what makes it a client.
            for number in due.into_iter().rev() {
                match number {
                    CLIENTS | PAGE => self.accept(number, now),
                    _ if self.peers.contains_key(&number) => self.peer_turn(number, now),
                    _ => self.scraper_turn(number, now),
                }
            }
        }
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadlines = self.deadlines().map(|(_, until)| until);
        let first = deadlines.chain(self.accepts_at).min()?;
        Some(first.saturating_duration_since(now))
    }

    /// Returns who has a turn when, even if nothing happens.
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
                        tracing::warn!(%error, "a connection could not be taken");
                    }
                    // The system has no descriptor left. A stranger or a scraper gives its own, if there is one.
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
            // The peer has gone already, or the system has no memory for another one.
            return;
        };
        // Bytes may have arrived already, and there is no event for them.
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

    fn peer_turn(&mut self, number: usize, now: Instant) {
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        match peer.turn(now, &mut self.shared) {
            Turn::Waits => {}
            Turn::Again => {
                self.again.insert(number);
            }
            Turn::Over(left) => self.end(number, left, now),
        }
    }

    /// Ends a connection, with its descriptor and its queue pair.
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
    /// Reads and answers as far as that is possible now. Returns whether the connection is over.
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
