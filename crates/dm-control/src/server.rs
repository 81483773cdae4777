//! The node's side on the network: its builder, and its thread.

use core::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use dm_sync::atomic::{AtomicBool, Ordering};
use dm_sync::thread::JoinHandle;
use dm_sync::{Arc, Mutex};

use crate::dialogue::{Desk, Fabric};
use crate::hall::Hall;
use crate::ledger::{Facts, Ledger};
use crate::limits::{DEFAULT_LEASE, Limits};
use crate::lines::Lines;
use crate::metrics::Metrics;
use crate::secret::{Secret, fresh};
use crate::wire::Address;

/// The builder of a node's control plane. The defaults are a free port of 127.0.0.1, no secret, no metrics,
/// [`Limits::default`] and [`DEFAULT_LEASE`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it starts something"]
pub struct Builder {
    bytes: u64,
    listen: SocketAddr,
    metrics: Option<SocketAddr>,
    secret: Option<Secret>,
    known_as: Vec<Address>,
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
            known_as: Vec::new(),
            limits: Limits::default(),
            lease: DEFAULT_LEASE,
        }
    }
    /// Accepts connections at this address. Every address except a loopback address requires a secret.
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
    /// Accepts clients that have connected to `address`, which belongs to a proxy and not to this machine.
    pub fn known_as(mut self, address: SocketAddr) -> Self {
        self.known_as.push(address.into());
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
    /// Returns [`StartError::Random`] if the system cannot provide random bytes.
    pub fn desk<F: Fabric>(self, fabric: F) -> Result<Arc<Desk<F>>, StartError> {
        let boot = fresh().map_err(StartError::Random)?;
        let fabric = Arc::new(fabric);
        let facts = Facts {
            bytes: self.bytes,
            boot: u64::from_le_bytes(boot),
            lease: self.lease,
            clients_per_connection: self.limits.clients_per_connection,
            clients_per_host: self.limits.clients_per_host,
            bytes_per_host: self.limits.bytes_per_host.unwrap_or(self.bytes - self.bytes / 16),
        };
        Ok(Arc::new(Desk {
            ledger: Mutex::new(Ledger::new(Arc::clone(&fabric), facts)),
            fabric,
            secret: self.secret,
            known_as: self.known_as,
            metrics: Metrics::default(),
            strangers_lines: Lines::default(),
            clients_lines: Lines::default(),
            bytes: self.bytes,
            born: Instant::now(),
        }))
    }

    /// Starts to listen, on a new thread.
    ///
    /// # Errors
    /// Returns [`StartError`] if the address needs a secret, if it or the address of the metrics cannot be used, or if
    /// the system lacks random bytes, threads or descriptors.
    pub fn start<F: Fabric>(self, fabric: F) -> Result<Server<F>, StartError> {
        if self.secret.is_none() && !self.listen.ip().is_loopback() {
            return Err(StartError::SecretNeeded { address: self.listen });
        }
        let (address, clients) = bind(self.listen)?;
        let page = self.metrics.map(bind).transpose()?;
        let metrics = page.as_ref().map(|(address, _)| *address);
        let page = page.map(|(_, listener)| listener);
        let (bytes, limits) = (self.bytes, self.limits);
        let desk = self.desk(fabric)?;
        let made = Hall::new(clients, page, Arc::clone(&desk), limits);
        let (hall, waker) = made.map_err(StartError::System)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stopping);
        // std's builder is used because `std::thread::spawn` panics if the system has no thread left.
        let thread = std::thread::Builder::new()
            .name("dm-control".to_owned())
            // Acquire: pairs with Release in `drop`.
            .spawn(move || hall.run(|| flag.load(Ordering::Acquire)))
            .map_err(StartError::System)?;
        tracing::info!(%address, bytes, secret = desk.secret.is_some(), "serving");
        if desk.secret.as_ref().is_some_and(Secret::is_weak) {
            tracing::warn!(
                "the secret is weak: others may guess it; `openssl rand -hex 32` prints a strong one"
            );
        }
        if let Some(address) = metrics {
            tracing::info!(%address, "metrics");
        }
        Ok(Server {
            desk,
            address,
            metrics,
            stopping,
            waker,
            thread: Some(thread),
        })
    }
}

/// Maximum number of connections that the system queues until they are accepted. When the queue is full, the system
/// drops the first packets of further connections, and their clients retry only after a second.
const BACKLOG: i32 = 4096;

fn bind(address: SocketAddr) -> Result<(SocketAddr, TcpListener), StartError> {
    let bound = || {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        // As in std, this option is set, so that a restarted node can use its port again at once.
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        Ok((listener.local_addr()?, listener))
    };
    bound().map_err(|reason| StartError::Bind { address, reason })
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
    /// The node cannot listen at the address: for example, it is in use or does not belong to this machine.
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        reason: io::Error,
    },
    /// The system has no random bytes.
    Random(io::Error),
    /// The system has no thread, or no descriptors, for the node.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SecretNeeded { address } => {
                write!(f, "listening at {address}, beyond this machine, needs a secret")
            }
            Self::Bind { address, reason } => write!(f, "listening at {address}: {reason}"),
            Self::Random(reason) => write!(f, "no random bytes: {reason}"),
            Self::System(reason) => write!(f, "the system can't run a control plane: {reason}"),
        }
    }
}

impl core::error::Error for StartError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Bind { reason, .. } | Self::Random(reason) | Self::System(reason) => Some(reason),
            _ => None,
        }
    }
}

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
    desk: Arc<Desk<F>>,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    stopping: Arc<AtomicBool>,
    /// Wakes the thread, so that it checks the flag.
    waker: mio::Waker,
    thread: Option<JoinHandle<()>>,
}

impl<F: Fabric> Server<F> {
    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// Returns the address at which the server serves its metrics, if it does.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }
    /// Returns the text of the metrics.
    pub fn metrics(&self) -> String {
        self.desk.metrics()
    }
    /// Returns the node's device.
    pub fn fabric(&self) -> &F {
        &self.desk.fabric
    }
}

impl<F: Fabric> Drop for Server<F> {
    fn drop(&mut self) {
        // Release: pairs with Acquire in `start`.
        self.stopping.store(true, Ordering::Release);
        let woken = self.waker.wake();
        // If the wake fails, the thread sees the flag only at its next event. That may take for ever, so do not join
        // the thread.
        if let (Ok(()), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
        tracing::info!(address = %self.address, "stopped");
    }
}

impl<F: Fabric> fmt::Debug for Server<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
