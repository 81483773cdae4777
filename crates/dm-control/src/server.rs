//! The node's side on the network: a listener, and a thread per connection.

use core::fmt;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use dm_sync::atomic::{AtomicBool, Ordering};
use dm_sync::thread::{self, JoinHandle};
use dm_sync::{Arc, Mutex};

use crate::dialogue::{Desk, Dialogue, End, Fabric};
use crate::doorman::{Doorman, Pass};
use crate::frame::{self, Wait};
use crate::http;
use crate::ledger::{Facts, Ledger};
use crate::limits::{DEFAULT_LEASE, Limits};
use crate::metrics::{Metrics, count};
use crate::secret::{Secret, fresh};
use crate::wire::{Message, Refusal, WireError};

/// Describes a node's control plane. The defaults are a free port of 127.0.0.1, no secret, no metrics,
/// [`Limits::default`] and [`DEFAULT_LEASE`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it starts something"]
pub struct Builder {
    bytes: u64,
    listen: SocketAddr,
    metrics: Option<SocketAddr>,
    secret: Option<Secret>,
    limits: Limits,
    lease: Duration,
}

impl Builder {
    /// Describes the control plane of a node that lends `bytes` bytes of host memory.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            metrics: None,
            secret: None,
            limits: Limits::default(),
            lease: DEFAULT_LEASE,
        }
    }
    /// Accepts connections at this address. An address other than loopback's requires a secret.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }
    /// Serves the counters over HTTP at this address, under `/metrics`.
    pub fn metrics(mut self, address: SocketAddr) -> Self {
        self.metrics = Some(address);
        self
    }
    /// Serves only clients that know this secret.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }
    /// Sets the limits on connections.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
    /// Sets the length of a lease.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Makes the control plane without a network: the caller passes messages to its dialogues.
    ///
    /// # Errors
    /// Returns [`StartError::Random`].
    pub fn desk<F: Fabric>(self, fabric: F) -> Result<Arc<Desk<F>>, StartError> {
        let boot = fresh().map_err(StartError::Random)?;
        let fabric = Arc::new(fabric);
        let facts = Facts {
            bytes: self.bytes,
            boot: u64::from_le_bytes(boot),
            lease: self.lease,
            clients_per_connection: self.limits.clients_per_connection,
        };
        Ok(Arc::new(Desk {
            ledger: Mutex::new(Ledger::new(Arc::clone(&fabric), facts)),
            fabric,
            secret: self.secret,
            metrics: Metrics::default(),
            bytes: self.bytes,
            born: Instant::now(),
        }))
    }

    /// Begins to listen, on its own threads.
    ///
    /// # Errors
    /// Returns [`StartError`].
    pub fn start<F: Fabric>(self, fabric: F) -> Result<Server<F>, StartError> {
        if self.secret.is_none() && !self.listen.ip().is_loopback() {
            return Err(StartError::SecretNeeded { address: self.listen });
        }
        let listener = bind(self.listen)?;
        let address = listener.0;
        let metrics = self.metrics.map(bind).transpose()?;
        let (bytes, limits) = (self.bytes, self.limits);
        let shared = Arc::new(Shared {
            desk: self.desk(fabric)?,
            doorman: Doorman::new(limits),
            limits,
            stopping: AtomicBool::new(false),
            serving: Mutex::default(),
        });
        tracing::info!(%address, bytes, secret = shared.desk.secret.is_some(), "serving");
        let mut threads = Vec::new();
        let scraped = metrics.as_ref().map(|(address, _)| *address);
        if let Some((address, listener)) = metrics {
            tracing::info!(%address, "metrics");
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || {
                http::serve(&listener, || shared.desk.metrics(), || shared.is_stopping());
            }));
        }
        let accepting = Arc::clone(&shared);
        threads.push(thread::spawn(move || accept(&accepting, &listener.1)));
        Ok(Server {
            shared,
            address,
            metrics: scraped,
            threads,
        })
    }
}

fn bind(address: SocketAddr) -> Result<(SocketAddr, TcpListener), StartError> {
    let bound = TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
    bound.map_err(|reason| StartError::Bind { address, reason })
}

/// The reason why a control plane did not start.
///
/// ```
/// # use dm_control::{Fabric, Port, Ports};
/// # struct Nothing;
/// # impl Ports for Nothing {
/// #     type Port = ();
/// #     fn shut(&self, _: &()) -> std::io::Result<()> {
/// #         Ok(())
/// #     }
/// # }
/// # impl Fabric for Nothing {
/// #     fn open(&self, _: &Port) -> std::io::Result<((), Port)> {
/// #         Ok(((), Port::default()))
/// #     }
/// # }
/// use dm_control::{Builder, StartError};
///
/// // An address that other machines can reach requires a secret.
/// let all = "0.0.0.0:0".parse()?;
/// let refused = Builder::new(1 << 20).listen(all).start(Nothing);
/// assert!(matches!(refused, Err(StartError::SecretNeeded { address }) if address == all));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// This address requires a secret. Without it, anyone who can reach the address could access the memory.
    SecretNeeded {
        /// The address.
        address: SocketAddr,
    },
    /// The address is in use, or does not belong to this machine.
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        reason: io::Error,
    },
    /// The system has no random bytes.
    Random(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SecretNeeded { address } => {
                write!(f, "listening at {address}, beyond this machine, needs a secret")
            }
            Self::Bind { address, reason } => write!(f, "listening at {address}: {reason}"),
            Self::Random(reason) => write!(f, "no random bytes: {reason}"),
        }
    }
}

impl core::error::Error for StartError {}

/// A running control plane. Dropping it ends every connection, with its queue pair.
///
/// ```
/// # use dm_control::{Fabric, Port, Ports};
/// # struct Nothing;
/// # impl Ports for Nothing {
/// #     type Port = ();
/// #     fn shut(&self, _: &()) -> std::io::Result<()> {
/// #         Ok(())
/// #     }
/// # }
/// # impl Fabric for Nothing {
/// #     fn open(&self, _: &Port) -> std::io::Result<((), Port)> {
/// #         Ok(((), Port::default()))
/// #     }
/// # }
/// use dm_control::{Builder, Client, ClientError, DEFAULT_PATIENCE, Secret, Server};
///
/// let secret = Secret::new(b"correct horse battery")?;
/// let node: Server<Nothing> = Builder::new(1 << 20).secret(secret).start(Nothing)?;
/// let stranger = Client::connect(node.address(), None, &Port::default(), DEFAULT_PATIENCE);
/// assert!(matches!(stranger, Err(ClientError::SecretNeeded)));
/// assert!(node.metrics().contains("dmkit_node_"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server<F: Fabric> {
    shared: Arc<Shared<F>>,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<F: Fabric> {
    desk: Arc<Desk<F>>,
    doorman: Arc<Doorman>,
    limits: Limits,
    stopping: AtomicBool,
    /// The streams in use, so that `drop` can end them, and their threads.
    serving: Mutex<BTreeMap<u64, (TcpStream, JoinHandle<()>)>>,
}

impl<F: Fabric> Server<F> {
    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// Returns the address of its metrics.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }
    /// Returns the text of the metrics.
    pub fn metrics(&self) -> String {
        self.shared.desk.metrics()
    }
    /// Returns the node's device.
    pub fn fabric(&self) -> &F {
        &self.shared.desk.fabric
    }
}

impl<F: Fabric> Drop for Server<F> {
    fn drop(&mut self) {
        // Release: pairs with Acquire in `is_stopping`.
        self.shared.stopping.store(true, Ordering::Release);
        // A listener checks the flag only after a connection, so this connects to it.
        for address in [Some(self.address), self.metrics].into_iter().flatten() {
            let _ = TcpStream::connect_timeout(&reachable(address), Duration::from_secs(1));
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        for (_, (stream, serving)) in self.shared.serving.with(core::mem::take) {
            let _ = stream.shutdown(Shutdown::Both);
            let _ = serving.join();
        }
        tracing::info!(address = %self.address, "stopped");
    }
}

/// Returns an address through which this machine itself can reach a listener.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    address
}

impl<F: Fabric> fmt::Debug for Server<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl<F: Fabric> Shared<F> {
    fn is_stopping(&self) -> bool {
        // Acquire: pairs with Release in `drop`.
        self.stopping.load(Ordering::Acquire)
    }
}

fn accept<F: Fabric>(shared: &Arc<Shared<F>>, listener: &TcpListener) {
    for number in 0.. {
        let accepted = listener.accept();
        if shared.is_stopping() {
            return;
        }
        let (mut stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                crate::pause(Duration::from_millis(10));
                continue;
            }
        };
        let Some(pass) = shared.doorman.admit(peer.ip()) else {
            tracing::warn!(%peer, "too many connections");
            count(&shared.desk.metrics.busy);
            // The message fits into the stream's buffer, so this does not block.
            let _ = frame::send(
                &mut stream,
                &Message::Refuse(Refusal::Busy),
                Duration::from_millis(1),
            );
            continue;
        };
        count(&shared.desk.metrics.accepted);
        let Ok(kept) = stream.try_clone() else { continue };
        let serving = {
            let shared = Arc::clone(shared);
            thread::spawn(move || {
                let end = serve(&shared, &mut stream, pass);
                shared.note_end(peer, end);
                let _ = stream.shutdown(Shutdown::Both);
            })
        };
        shared.serving.with(|all| {
            all.retain(|_, (_, serving)| !serving.is_finished());
            all.insert(number, (kept, serving));
        });
    }
}

/// The reason why a connection ended.
enum Left {
    /// The client closed it.
    Closed,
    Ended(End),
    Broken(io::Error),
}

impl<F: Fabric> Shared<F> {
    fn note_end(&self, peer: SocketAddr, left: Left) {
        let metrics = &self.desk.metrics;
        match left {
            Left::Closed => tracing::info!(%peer, "gone"),
            Left::Broken(_) if self.is_stopping() => {}
            Left::Broken(error) => {
                count(&metrics.broken);
                match error.kind() {
                    io::ErrorKind::TimedOut => tracing::warn!(%peer, "stalled: connection ended"),
                    _ => tracing::warn!(%peer, %error, "connection ended"),
                }
            }
            Left::Ended(end) => {
                match &end {
                    End::Refused(Refusal::Secret) => count(&metrics.wrong_secret),
                    End::Refused(Refusal::Busy) => count(&metrics.busy),
                    _ => count(&metrics.broken),
                }
                tracing::warn!(%peer, reason = %end, "connection ended");
            }
        }
    }
}

/// Serves one connection until it ends. Whatever the other side does, only this connection is affected.
fn serve<F: Fabric>(shared: &Shared<F>, stream: &mut TcpStream, mut pass: Pass) -> Left {
    match serve_all(shared, stream, &mut pass) {
        Ok(None) => Left::Closed,
        Ok(Some(end)) => Left::Ended(end),
        Err(error) => match error.downcast::<WireError>() {
            Ok(wire) => Left::Ended(End::Wire(wire)),
            Err(error) => Left::Broken(error),
        },
    }
}

fn serve_all<F: Fabric>(
    shared: &Shared<F>,
    stream: &mut TcpStream,
    pass: &mut Pass,
) -> io::Result<Option<End>> {
    let limits = &shared.limits;
    stream.set_nodelay(true)?;
    notice_dead_hosts(stream)?;
    let greeting = Instant::now() + limits.greeting;
    let mut dialogue = Dialogue::new(&shared.desk);
    loop {
        let greeted = dialogue.has_greeted();
        let wait = match greeted {
            false => Wait::Until(greeting),
            true => Wait::ForFirstByte(limits.message),
        };
        let Some(body) = frame::receive(stream, wait)? else {
            return Ok(None);
        };
        let (mut message, mut end) = dialogue.hear(&body);
        if !greeted && dialogue.has_greeted() && !pass.greet() {
            (message, end) = (
                Some(Message::Refuse(Refusal::Busy)),
                Some(End::Refused(Refusal::Busy)),
            );
        }
        if let Some(message) = message {
            frame::send(stream, &message, limits.message)?;
        }
        if end.is_some() {
            return Ok(end);
        }
    }
}

/// Turns keepalive on. A client whose host has failed sends nothing, so the system must probe it and end the
/// connection.
fn notice_dead_hosts(stream: &TcpStream) -> io::Result<()> {
    let alive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    socket2::SockRef::from(stream).set_tcp_keepalive(&alive)
}
