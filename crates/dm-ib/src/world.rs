//! A world, which threads share: a device, the addresses of the memory nodes, and the assumptions about them.

use core::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use dm_control::Secret;
use dm_sync::Arc;
use dm_verbs::{Capability, Caps};

use crate::choice::DeviceChoice;
use crate::error::IbError;
use crate::ffi::{AtomicScope, Device, Limits, Patience, RETRIES_MAX};
use crate::thread::Thread;

/// Default number of work requests of one queue pair.
pub const DEFAULT_QUEUE_DEPTH: u32 = 1024;
/// Default number of inline payload bytes to request; a device may grant fewer.
pub const DEFAULT_INLINE: u32 = 64;

/// The builder of a world. By default, the world uses the first active device, [`DEFAULT_QUEUE_DEPTH`] and
/// [`DEFAULT_INLINE`], and assumes no capabilities.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    device: DeviceChoice,
    nodes: Vec<SocketAddr>,
    secret: Option<Secret>,
    patience: Patience,
    assumed: Vec<Capability>,
    queue_depth: u32,
    inline: u32,
    slower: u32,
    seed: u64,
}

impl Builder {
    /// Uses this device.
    pub fn device(mut self, device: impl Into<DeviceChoice>) -> Self {
        self.device = device.into();
        self
    }
    /// Sets the secret that the memory nodes require.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }
    /// Sets the retries. A request that is not acknowledged within 4.096 µs · 2^`timeout` is sent again, `retries`
    /// times at most. Then its chain fails, and its effect is unknown. `retries` is at most 6 and `timeout` at most 31.
    /// The defaults are 6 and 14, which is half a second in all.
    pub fn patience(mut self, retries: u8, timeout: u8) -> Self {
        self.patience = Patience {
            timeout: timeout.min(31),
            retries: retries.min(RETRIES_MAX),
        };
        self
    }
    /// Assumes that every memory node has `capabilities`, although this cannot be checked. The assumptions are part of
    /// [`Ib::promises`], which must be shown with results.
    pub fn assume(mut self, capabilities: &[Capability]) -> Self {
        self.assumed.extend_from_slice(capabilities);
        self
    }
    /// Sets the number of work requests that each queue pair holds: at least 1, and at most as many as the device
    /// allows. Further chains wait for room.
    pub fn queue_depth(mut self, depth: u32) -> Self {
        self.queue_depth = depth;
        self
    }
    /// Declares that round trips take up to `factor` times as long as between real cards. The time limits of protocols
    /// (the version window of a READ, leases) are multiplied by this factor. Use it for emulated devices; all clients
    /// must use the same factor. The factor is part of [`Ib::promises`].
    pub fn slower(mut self, factor: u32) -> Self {
        self.slower = factor.max(1);
        self
    }
    /// Sets the number of inline payload bytes to request.
    pub fn inline(mut self, bytes: u32) -> Self {
        self.inline = bytes;
        self
    }
    /// Sets the seed of the clients' random streams.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Opens the device. [`Ib::thread`] connects to the memory nodes.
    ///
    /// # Errors
    /// Returns [`IbError`] if there is no such device, if the device has no atomics, if there are no nodes or more than
    /// 65535, or if a capability cannot be assumed ([`IbError::CannotAssume`]).
    pub fn build(self) -> Result<Ib, IbError> {
        if !(1..=usize::from(u16::MAX)).contains(&self.nodes.len()) {
            return Err(IbError::BadNodeCount {
                nodes: self.nodes.len(),
            });
        }
        for &capability in &self.assumed {
            let on_nobodys_word = [
                Capability::MaskedAtomics,
                Capability::ChipMemory,
                Capability::DirectLoad,
            ];
            if on_nobodys_word.contains(&capability) {
                return Err(IbError::CannotAssume { capability });
            }
        }
        let device = open_device(&self.device)?;
        Ok(Ib {
            world: Arc::new(World {
                queue_depth: self.queue_depth.clamp(1, device.limits.queue_depth_max.max(1)),
                device,
                nodes: self.nodes,
                secret: self.secret,
                patience: self.patience,
                assumed: self.assumed,
                inline: self.inline,
                slower: self.slower,
                seed: self.seed,
                born: Instant::now(),
            }),
        })
    }
}

/// Opens a device. Returns an error if there is no such device, or if it has no atomics.
pub(crate) fn open_device(choice: &DeviceChoice) -> Result<Arc<Device>, IbError> {
    let device = Device::open(choice).map_err(|reason| IbError::Device {
        name: choice.name.clone(),
        reason,
    })?;
    if device.limits.atomics == AtomicScope::None {
        return Err(IbError::NoAtomics {
            name: device.name().to_owned(),
        });
    }
    Ok(Arc::new(device))
}

pub(crate) struct World {
    pub(crate) device: Arc<Device>,
    pub(crate) nodes: Vec<SocketAddr>,
    pub(crate) secret: Option<Secret>,
    pub(crate) patience: Patience,
    pub(crate) assumed: Vec<Capability>,
    pub(crate) queue_depth: u32,
    pub(crate) inline: u32,
    pub(crate) slower: u32,
    pub(crate) seed: u64,
    pub(crate) born: Instant,
}

/// A world of real queue pairs. It is `Send + Sync`, and its clones share the world.
#[derive(Clone)]
pub struct Ib {
    world: Arc<World>,
}

impl Ib {
    /// Returns the builder of a world with memory nodes at these addresses, which are numbered in this order.
    pub fn builder(nodes: &[SocketAddr]) -> Builder {
        Builder {
            device: DeviceChoice::default(),
            nodes: nodes.to_vec(),
            secret: None,
            patience: Patience::default(),
            assumed: Vec::new(),
            queue_depth: DEFAULT_QUEUE_DEPTH,
            inline: DEFAULT_INLINE,
            slower: 1,
            seed: 0,
        }
    }

    /// Makes the connections of the calling thread: a queue pair to each memory node, and one completion queue.
    ///
    /// # Errors
    /// Returns [`IbError`] if a memory node cannot be reached or refuses the connection, if two of the addresses belong
    /// to the same memory node, or if the device has no queues left.
    pub fn thread(&self) -> Result<Thread, IbError> {
        Thread::new(&self.world)
    }

    /// Returns the number of memory nodes.
    pub fn memory_nodes(&self) -> u16 {
        self.world.nodes.len() as u16 // at most 65535
    }

    /// Returns the limits that the device has reported, and the assumptions.
    pub fn promises(&self) -> Promises {
        Promises {
            device: self.world.device.name().to_owned(),
            limits: self.world.device.limits,
            assumed: self.world.assumed.clone(),
            slower: self.world.slower,
        }
    }
}

impl fmt::Debug for Ib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ib")
            .field("device", &self.world.device)
            .field("nodes", &self.world.nodes)
            .field("assumed", &self.world.assumed)
            .finish_non_exhaustive()
    }
}

impl World {
    /// Returns the capabilities of a connection: sizes and assumptions. Orders are only assumed, because no card
    /// promises them.
    pub(crate) fn caps(&self, host_bytes: u64, chip_bytes: u64, inline_bytes: u32) -> Caps {
        let known = Caps {
            host_bytes,
            chip_bytes,
            inline_bytes,
            ..Caps::default()
        };
        self.assumed.iter().fold(known, |caps, &more| caps.assume(more))
    }
}

/// The basis of results in a world: the limits that the device reports, and the assumptions of the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promises {
    /// The name of the device.
    pub device: String,
    /// The device's limits.
    pub limits: Limits,
    /// The assumed capabilities.
    pub assumed: Vec<Capability>,
    /// The factor that was set with [`Builder::slower`].
    pub slower: u32,
}

impl fmt::Display for Promises {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = match self.limits.atomics {
            AtomicScope::None => "no atomics",
            AtomicScope::Device => "atomics among themselves",
            AtomicScope::Machine => "atomics in the whole machine",
        };
        let chip = self.limits.chip_bytes;
        write!(f, "{}: {scope}, {chip} bytes on chip; assumed: ", self.device)?;
        let mut assumed: Vec<String> = self.assumed.iter().map(ToString::to_string).collect();
        if self.slower > 1 {
            assumed.push(format!("round trips {} times those of a card", self.slower));
        }
        if assumed.is_empty() {
            assumed.push("nothing".to_owned());
        }
        f.write_str(&assumed.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_of_the_device_cannot_be_assumed() {
        let nodes = [SocketAddr::from(([127, 0, 0, 1], 1))];
        for capability in [
            Capability::MaskedAtomics,
            Capability::ChipMemory,
            Capability::DirectLoad,
        ] {
            let refused = Ib::builder(&nodes).assume(&[capability]).build();
            assert!(
                matches!(refused, Err(IbError::CannotAssume { capability: named }) if named == capability),
                "{refused:?}"
            );
        }
        assert!(matches!(
            Ib::builder(&[]).build(),
            Err(IbError::BadNodeCount { nodes: 0 })
        ));
    }

    #[test]
    fn promises_list_the_assumptions() {
        let mut promises = Promises {
            device: "rxe0".to_owned(),
            limits: Limits {
                atomics: AtomicScope::Device,
                chip_bytes: 0,
                initiator_depth: 1,
                responder_depth: 1,
                queue_depth_max: 1,
                completions_max: 1,
            },
            assumed: Vec::new(),
            slower: 1,
        };
        assert_eq!(
            promises.to_string(),
            "rxe0: atomics among themselves, 0 bytes on chip; assumed: nothing"
        );
        promises.assumed = vec![Capability::LineAtomicity, Capability::CasThenReadInOrder];
        promises.slower = 10;
        let shown = promises.to_string();
        assert!(
            shown.ends_with(
                "assumed: 64-byte line atomicity, CAS→READ in order on one queue pair, round trips 10 times those of a card"
            ),
            "{shown}"
        );
    }
}
