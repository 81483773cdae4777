//! A memory node. It lends its memory to every card that connects, and runs the control plane of `dm-control`.

use core::fmt;
use core::time::Duration;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use dm_control::{Fabric, Limits, Port, Ports, Secret, Server};
use dm_sync::Arc;
use dm_verbs::{Nanos, RESERVED_BYTES};

use crate::choice::DeviceChoice;
use crate::error::IbError;
use crate::ffi::{ChipLent, Cq, Lent, Patience, Qp, QueueOptions};
use crate::wire::{NodePort, Window, read_client_port};

/// Default length of a membership lease.
pub const DEFAULT_LEASE: Nanos = Nanos(dm_control::DEFAULT_LEASE.as_nanos() as u64);

// Chunks begin after the superblock's page.
const _: () = assert!(dm_control::CHUNK_UNIT == RESERVED_BYTES);

/// The builder of a memory node. By default, the node uses the first active device and port, listens on a free port of
/// 127.0.0.1, has no secret and no metrics, lends all on-chip memory of the device, and uses [`DEFAULT_LEASE`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it starts something"]
pub struct NodeBuilder {
    device: DeviceChoice,
    bytes: u64,
    chip_bytes: u64,
    listen: SocketAddr,
    control: dm_control::Builder,
}

impl NodeBuilder {
    /// Uses this device.
    pub fn device(mut self, device: impl Into<DeviceChoice>) -> Self {
        self.device = device.into();
        self
    }
    /// Accepts connections at this address. Every address except a loopback address requires a secret.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self.control = self.control.listen(address);
        self
    }
    /// Serves only clients that know this secret.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.control = self.control.secret(secret);
        self
    }
    /// Accepts clients that have connected to `address`, which belongs to a proxy and not to this machine.
    pub fn known_as(mut self, address: SocketAddr) -> Self {
        self.control = self.control.known_as(address);
        self
    }
    /// Serves the counters at this address, for Prometheus.
    pub fn metrics(mut self, address: SocketAddr) -> Self {
        self.control = self.control.metrics(address);
        self
    }
    /// Sets the limits for connections.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.control = self.control.limits(limits);
        self
    }
    /// Limits the on-chip memory that is lent to this many bytes.
    pub fn chip_bytes(mut self, bytes: u64) -> Self {
        self.chip_bytes = bytes;
        self
    }
    /// Sets the length of a lease.
    pub fn lease(mut self, lease: Nanos) -> Self {
        self.control = self.control.lease(Duration::from_nanos(lease.0));
        self
    }

    /// Registers the memory and starts to listen, on a new thread.
    ///
    /// # Errors
    /// Returns [`IbError`] if there are too few bytes, if no device can be opened, if the device has no atomics, if
    /// memory cannot be registered, or if an address is in use or needs a secret.
    pub fn start(self) -> Result<MemoryNode, IbError> {
        if self.bytes <= RESERVED_BYTES {
            return Err(IbError::TooSmall { bytes: self.bytes });
        }
        let device = crate::world::open_device(&self.device)?;
        let memory = |reason| IbError::Memory {
            bytes: self.bytes,
            reason,
        };
        let host = Lent::new(&device, self.bytes).map_err(memory)?;
        let chip_bytes = device.limits.chip_bytes.min(self.chip_bytes);
        // Another process may have allocated the card's memory meanwhile. Then the node runs without on-chip memory,
        // and reports 0 bytes to clients.
        let chip = (chip_bytes > 0)
            .then(|| ChipLent::new(&device, chip_bytes).ok())
            .flatten();
        let card = Card {
            queue: Arc::new(Cq::new(&device, 16).map_err(memory)?),
            host,
            chip,
        };
        let device = device.name().to_owned();
        let server = self.control.start(card).map_err(IbError::Start)?;
        Ok(MemoryNode { server, device })
    }
}

/// A running memory node. Dropping it closes every connection and frees the memory.
pub struct MemoryNode {
    server: Server<Card>,
    device: String,
}

impl MemoryNode {
    /// Returns the builder of a node that lends `bytes` of host memory.
    pub fn builder(bytes: u64) -> NodeBuilder {
        NodeBuilder {
            device: DeviceChoice::default(),
            bytes,
            chip_bytes: u64::MAX,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            control: dm_control::Builder::new(bytes),
        }
    }

    /// Returns the address at which the node listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the address at which the node serves its metrics, or `None` if it does not serve them.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.server.metrics_address()
    }

    /// Returns the node's counters, in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        self.server.metrics()
    }

    /// Returns the name of the device through which the node lends memory.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns the number of bytes of on-chip memory that the node lends.
    pub fn chip_bytes(&self) -> u64 {
        self.server.fabric().chip.as_ref().map_or(0, ChipLent::bytes)
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode")
            .field("address", &self.address())
            .field("card", self.server.fabric())
            .finish_non_exhaustive()
    }
}

/// The device and its memory, as the control plane uses them.
struct Card {
    queue: Arc<Cq>,
    host: Lent,
    chip: Option<ChipLent>,
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card")
            .field("host", &self.host)
            .field("chip", &self.chip)
            .finish_non_exhaustive()
    }
}

impl Ports for Card {
    type Port = Qp;
    fn shut(&self, port: &Qp) -> io::Result<()> {
        port.shut()
    }
}

impl Fabric for Card {
    fn open(&self, theirs: &Port) -> io::Result<(Qp, Port)> {
        let peer = read_client_port(theirs).ok_or(io::ErrorKind::InvalidData)?;
        let options = QueueOptions {
            depth: 1,
            inline: 0,
            serves: true,
        };
        let qp = Qp::new(&self.queue, options)?;
        qp.connect(0, &peer, Patience::default())?;
        let chip = self.chip.as_ref().map_or_else(Window::default, |chip| Window {
            address: 0,
            key: chip.key(),
            bytes: chip.bytes(),
        });
        let own = NodePort {
            peer: qp.local(0),
            host: Window {
                address: self.host.address(),
                key: self.host.key(),
                bytes: self.host.bytes(),
            },
            chip,
        };
        Ok((qp, own.port()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_needs_more_than_its_reserved_page() {
        for bytes in [0, RESERVED_BYTES] {
            let refused = MemoryNode::builder(bytes).start().err();
            let refused = refused.expect("no byte is left for clients");
            assert!(
                matches!(refused, IbError::TooSmall { bytes: found } if found == bytes),
                "{refused}"
            );
        }
    }
}
