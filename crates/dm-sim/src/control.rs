//! The control plane: one weak core per memory node, which serves RPCs in the order in which clients send them.

use std::task::{Poll, Waker};

use dm_verbs::{
    CallState, ControlError, ControlReply, ControlRequest, Membership, Nanos, NodeId, RESERVED_BYTES, Region,
    RemotePtr,
};

use crate::engine::Engine;
use crate::server::Server;

/// Chunks start at multiples of this number of bytes.
const CHUNK_ALIGN: u64 = 4096;

#[derive(Debug)]
struct Core {
    server: Server,
    bytes: u64,
    used: u64,
}

type Answer = Result<ControlReply, ControlError>;

/// The weak cores of the memory nodes.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    cores: Vec<Core>,
}

impl ControlPlane {
    pub(crate) fn new(host_bytes: impl Iterator<Item = u64>) -> Self {
        let core = |bytes| Core {
            server: Server::default(),
            bytes,
            used: RESERVED_BYTES.min(bytes),
        };
        Self {
            cores: host_bytes.map(core).collect(),
        }
    }
}

impl Engine {
    /// Implements `Control::poll_control`. After the first poll, `state` contains the answer and the time at which it
    /// arrives.
    pub(crate) fn poll_control(
        &mut self,
        client: u16,
        request: &ControlRequest,
        state: &mut CallState,
        (task, waker): (Option<u32>, &Waker),
    ) -> Poll<Answer> {
        if state.step == 0 {
            let (at, answer) = self.call(client, request);
            *state = CallState {
                step: at,
                answer: Some(answer),
            };
        }
        if self.now < state.step {
            self.wake_at(state.step, task, waker);
            return Poll::Pending;
        }
        let answer = state.answer.take();
        Poll::Ready(answer.expect("a control call was polled again after it had returned its answer"))
    }

    /// Carries out `request`. Returns the time at which the answer arrives, and the answer.
    fn call(&mut self, client: u16, request: &ControlRequest) -> (u64, Answer) {
        // Node 0 is responsible for membership and fencing.
        let node = match *request {
            ControlRequest::Chunk { node, .. } | ControlRequest::Describe { node } => node,
            _ => NodeId(0),
        };
        let Some(n) = self.nodes.get(usize::from(node.0)) else {
            return (self.now + self.t.pause, Err(ControlError::NoSuchNode { node }));
        };
        if n.down {
            return (self.now + self.t.timeout, Err(ControlError::Unreachable { node }));
        }
        let posted = self.reserve_cpu(client, self.t.post);
        let there = posted + self.t.doorbell + self.t.wire;
        let core = &mut self.control.cores[usize::from(node.0)];
        let mut served = core.server.booked(self.now, there, self.t.rpc_service);
        let answer = if self.clients[usize::from(client)].fenced {
            Err(ControlError::Fenced)
        } else {
            match *request {
                ControlRequest::Chunk { node, bytes } => core.chunk(node, bytes),
                ControlRequest::Describe { .. } => Ok(ControlReply::Region(Region {
                    bytes: core.bytes,
                    used: core.used,
                })),
                ControlRequest::Join => Ok(ControlReply::Joined(Membership {
                    // A simulation never reuses a client id, so every id stays in its first epoch.
                    epoch: 1,
                    lease: Nanos(self.t.lease / 1000),
                })),
                ControlRequest::Leave => Ok(ControlReply::Done),
                ControlRequest::Fence { client } => match usize::from(client.0).checked_sub(1) {
                    Some(c) if c < self.clients.len() => {
                        served = served.max(self.fence(c));
                        Ok(ControlReply::Done)
                    }
                    _ => Err(ControlError::NoSuchClient { client }),
                },
                ControlRequest::Enlist { member } => {
                    self.clients[usize::from(client)].group = Some(member);
                    Ok(ControlReply::Done)
                }
                ControlRequest::FenceMember { member } => {
                    for c in 0..self.clients.len() {
                        if self.clients[c].group == Some(member) && !self.clients[c].fenced {
                            served = served.max(self.fence(c));
                        }
                    }
                    Ok(ControlReply::Done)
                }
                _ => Err(ControlError::Unreachable { node }),
            }
        };
        (served + self.t.wire + self.t.completion, answer)
    }
}

impl Core {
    fn chunk(&mut self, node: NodeId, bytes: u64) -> Answer {
        let at = self.used.next_multiple_of(CHUNK_ALIGN);
        let left = self.bytes.saturating_sub(at);
        match RemotePtr::new(node, at) {
            Some(p) if bytes <= left => {
                self.used = at + bytes;
                Ok(ControlReply::Chunk(p))
            }
            _ => Err(ControlError::OutOfMemory {
                node,
                wanted: bytes,
                left,
            }),
        }
    }
}
