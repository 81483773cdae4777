//! A memory node: lends its memory to every card that connects, and does the control plane's little work.

use core::fmt;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use dm_sync::atomic::{AtomicBool, Ordering};
use dm_sync::thread::{self, JoinHandle};
use dm_sync::{Arc, Mutex};
use dm_verbs::{Nanos, RESERVED_BYTES};

use crate::error::IbError;
use crate::ffi::{ChipLent, Cq, Lent, Patience, Qp, QueueOptions};
use crate::wire::{Answer, Message, Request, Window};

/// How long a membership lease lasts unless told otherwise.
pub const DEFAULT_LEASE: Nanos = Nanos::from_millis(100);
/// Client ids run from 1 to one less than this: lock words name their holder in 12 bits.
const CLIENTS_END: u16 = 1 << 12;

/// Describes a memory node. Defaults: the first active device, a free port of 127.0.0.1, on-chip memory as much as the
/// device has, [`DEFAULT_LEASE`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it starts something"]
pub struct NodeBuilder {
    device: Option<String>,
    listen: SocketAddr,
    bytes: u64,
    chip_bytes: u64,
    lease: Nanos,
}

impl NodeBuilder {
    /// On the device of this name.
    pub fn device(mut self, name: &str) -> Self {
        self.device = Some(name.to_owned());
        self
    }
    /// Connections are taken at this address. Whoever can reach it can do anything with the memory.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }
    /// At most so many bytes of on-chip memory are lent.
    pub fn chip_bytes(mut self, bytes: u64) -> Self {
        self.chip_bytes = bytes;
        self
    }
    /// Leases last so long.
    pub fn lease(mut self, lease: Nanos) -> Self {
        self.lease = lease;
        self
    }

    /// Registers the memory and begins to listen, on threads of its own.
    ///
    /// # Errors
    /// [`IbError`]: no device, no memory, an address in use.
    pub fn start(self) -> Result<MemoryNode, IbError> {
        if self.bytes < RESERVED_BYTES {
            return Err(IbError::TooSmall { bytes: self.bytes });
        }
        let device = crate::world::open_device(self.device.as_deref())?;
        let memory = |reason| IbError::Memory {
            bytes: self.bytes,
            reason,
        };
        let host = Lent::new(&device, self.bytes).map_err(memory)?;
        let chip_bytes = device.limits.chip_bytes.min(self.chip_bytes);
        // The card may have lent it to others meanwhile: without it then, which clients are told.
        let chip = (chip_bytes > 0)
            .then(|| ChipLent::new(&device, chip_bytes).ok())
            .flatten();
        let queue = Cq::new(&device, 16).map_err(memory)?;
        let network = |reason| IbError::Network {
            address: self.listen,
            reason,
        };
        let listener = TcpListener::bind(self.listen).map_err(network)?;
        let address = listener.local_addr().map_err(network)?;
        let shared = Arc::new(Shared {
            queue: Arc::new(queue),
            host,
            chip,
            lease: self.lease,
            stopping: AtomicBool::new(false),
            state: Mutex::new(State {
                used: RESERVED_BYTES,
                next_client: 1,
                ..State::default()
            }),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&shared, &listener))
        };
        Ok(MemoryNode {
            shared,
            address,
            accepting: Some(accepting),
        })
    }
}

/// A running memory node. Dropping it ends every connection to it and gives the memory back.
pub struct MemoryNode {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

impl MemoryNode {
    /// Begins to describe a node that lends `bytes` of host memory.
    pub fn builder(bytes: u64) -> NodeBuilder {
        NodeBuilder {
            device: None,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            bytes,
            chip_bytes: u64::MAX,
            lease: DEFAULT_LEASE,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        // Release: pairs with Acquire in `accept`.
        self.shared.stopping.store(true, Ordering::Release);
        // The listener looks up when somebody comes.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let streams = self
            .shared
            .state
            .with(|state| core::mem::take(&mut state.serving));
        for (stream, serving) in streams {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            let _ = serving.join();
        }
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode")
            .field("address", &self.address)
            .field("host", &self.shared.host)
            .field("chip", &self.shared.chip)
            .finish_non_exhaustive()
    }
}

struct Shared {
    queue: Arc<Cq>,
    host: Lent,
    chip: Option<ChipLent>,
    lease: Nanos,
    stopping: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: u64,
    next_client: u16,
    next_connection: u64,
    members: BTreeMap<u16, Member>,
    /// How often each id was given out.
    epochs: BTreeMap<u16, u32>,
    connections: BTreeMap<u64, Arc<Qp>>,
    serving: Vec<(TcpStream, JoinHandle<()>)>,
}

struct Member {
    connection: u64,
    fenced: bool,
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    for stream in listener.incoming() {
        // Acquire: pairs with Release in `drop`.
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        // A connection that failed before it began concerns nobody here.
        let Ok(stream) = stream else { continue };
        let Ok(kept) = stream.try_clone() else { continue };
        let serving = {
            let shared = Arc::clone(shared);
            // Whatever the other side sends ends at worst this connection.
            thread::spawn(move || drop(serve(&shared, stream)))
        };
        shared.state.with(|state| {
            state.serving.retain(|(_, serving)| !serving.is_finished());
            state.serving.push((kept, serving));
        });
    }
}

/// Serves one connection to its end.
fn serve(shared: &Shared, mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(Message::Hello(peer)) = Message::receive(&mut stream)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let options = QueueOptions {
        depth: 1,
        inline: 0,
        serves: true,
    };
    let qp = Arc::new(Qp::new(&shared.queue, options)?);
    qp.connect(0, &peer, Patience::default())?;
    let chip = shared.chip.as_ref().map_or_else(Window::default, |chip| Window {
        address: 0,
        key: chip.key(),
        bytes: chip.bytes(),
    });
    let welcome = Message::Welcome {
        peer: qp.local(0),
        host: Window {
            address: shared.host.address(),
            key: shared.host.key(),
            bytes: shared.host.bytes(),
        },
        chip,
    };
    let connection = shared.state.with(|state| {
        let connection = state.next_connection;
        state.next_connection += 1;
        state.connections.insert(connection, qp);
        connection
    });
    let end = welcome
        .send(&mut stream)
        .and_then(|()| serve_calls(shared, &mut stream, connection));
    // Its clients are gone with it. The queue pair goes last, outside of the lock.
    let qp = shared.state.with(|state| {
        state.members.retain(|_, member| member.connection != connection);
        state.connections.remove(&connection)
    });
    drop(qp);
    end
}

fn serve_calls(shared: &Shared, stream: &mut TcpStream, connection: u64) -> io::Result<()> {
    while let Some(message) = Message::receive(stream)? {
        let Message::Call { caller, request } = message else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let answer = shared.answer(connection, caller, request);
        Message::Answer(answer).send(stream)?;
    }
    Ok(())
}

impl Shared {
    fn answer(&self, connection: u64, caller: u16, request: Request) -> Answer {
        self.state.with(|state| {
            if state.members.get(&caller).is_some_and(|member| member.fenced) {
                return Answer::Fenced;
            }
            match request {
                Request::Claim => state.claim(connection),
                Request::Attach { client } => {
                    let member = Member {
                        connection,
                        fenced: false,
                    };
                    state.members.insert(client, member);
                    Answer::Done
                }
                Request::Release { client } => {
                    let own = state
                        .members
                        .get(&client)
                        .is_some_and(|m| m.connection == connection);
                    if own {
                        state.members.remove(&client);
                    }
                    Answer::Done
                }
                Request::Chunk { bytes } => state.chunk(bytes, self.host.bytes()),
                Request::Describe => Answer::Region {
                    bytes: self.host.bytes(),
                    used: state.used,
                },
                Request::Join => Answer::Joined {
                    epoch: state.epochs.get(&caller).copied().unwrap_or_default(),
                    lease_nanos: self.lease.0,
                },
                Request::Leave => Answer::Done,
                Request::Fence { client } => state.fence(client),
            }
        })
    }
}

impl State {
    /// The next free id, so that an id rests as long as possible before it is given out again.
    fn claim(&mut self, connection: u64) -> Answer {
        for _ in 1..CLIENTS_END {
            let client = self.next_client;
            self.next_client = if client + 1 == CLIENTS_END { 1 } else { client + 1 };
            if !self.members.contains_key(&client) {
                *self.epochs.entry(client).or_default() += 1;
                let member = Member {
                    connection,
                    fenced: false,
                };
                self.members.insert(client, member);
                return Answer::Claimed { client };
            }
        }
        Answer::NoIdLeft
    }

    /// Memory is handed out once and never taken back, so a chunk is always zero.
    fn chunk(&mut self, bytes: u64, size: u64) -> Answer {
        let end = bytes
            .max(1)
            .checked_next_multiple_of(RESERVED_BYTES)
            .and_then(|bytes| self.used.checked_add(bytes))
            .filter(|end| *end <= size);
        match end {
            Some(end) => Answer::Chunk {
                offset: core::mem::replace(&mut self.used, end),
            },
            None => Answer::OutOfMemory {
                left: size.saturating_sub(self.used),
            },
        }
    }

    /// The queue pair that serves the client's thread goes into its error state: nothing that arrives there has an
    /// effect from then on, whichever client of the thread has sent it.
    fn fence(&mut self, client: u16) -> Answer {
        let Some(member) = self.members.get_mut(&client) else {
            return Answer::NoSuchClient;
        };
        let shut = self.connections.get(&member.connection).map(|qp| qp.shut());
        match shut {
            None | Some(Ok(())) => {
                member.fenced = true;
                Answer::Done
            }
            // It serves on, so the fence must not be believed.
            Some(Err(_)) => Answer::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rest_before_they_come_back_and_run_out_at_the_end() {
        let mut state = State {
            next_client: 1,
            ..State::default()
        };
        assert_eq!(state.claim(0), Answer::Claimed { client: 1 });
        state.members.remove(&1);
        assert_eq!(state.claim(0), Answer::Claimed { client: 2 });
        for _ in 3..CLIENTS_END {
            assert!(matches!(state.claim(0), Answer::Claimed { .. }));
        }
        assert_eq!(state.claim(0), Answer::Claimed { client: 1 });
        assert_eq!(state.epochs[&1], 2);
        assert_eq!(state.claim(0), Answer::NoIdLeft);
    }

    #[test]
    fn chunks_are_whole_pages_until_there_are_none() {
        let mut state = State {
            used: RESERVED_BYTES,
            ..State::default()
        };
        let size = 4 * RESERVED_BYTES;
        assert_eq!(state.chunk(1, size), Answer::Chunk { offset: 4096 });
        assert_eq!(state.chunk(u64::MAX, size), Answer::OutOfMemory { left: 8192 });
        assert_eq!(state.chunk(4097, size), Answer::Chunk { offset: 8192 });
        assert_eq!(state.chunk(0, size), Answer::OutOfMemory { left: 0 });
    }

    #[test]
    fn nobody_can_be_fenced_who_is_not_there() {
        assert_eq!(State::default().fence(3), Answer::NoSuchClient);
    }
}
