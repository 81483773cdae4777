//! The control plane: chunks, membership and fences. Each request is one step.

use dm_verbs::{
    CallState, ControlError, ControlReply, ControlRequest, Membership, Nanos, NodeId, Region, RemotePtr,
    Space,
};

use super::Machine;
use super::client::Status;
use super::tape::Call;
use crate::fp::Fp;

/// The duration of a lease. It is measured only with `Elapsed::Clock`.
const LEASE: Nanos = Nanos::from_millis(10);

/// Node numbers from here on stand for clients: a `Describe` of such a node asks whether the client has crashed.
pub(crate) const DETECTOR: u16 = 1 << 15;

impl Machine {
    pub(crate) fn poll_control(
        &mut self,
        c: u8,
        request: &ControlRequest,
        state: &mut CallState,
    ) -> Option<Result<ControlReply, ControlError>> {
        self.note_sections();
        self.note(Call::Control(*request, state.step != 0));
        if state.step == 0 {
            state.step = 1;
            self.act(c, Fp::of(request).a);
            let client = &mut self.clients[usize::from(c)];
            client.control = Some(*request);
            // The reply to an earlier request whose future was dropped is not the reply to this one.
            client.reply = None;
            if self.immediate {
                self.carry_out(c);
            }
        }
        let client = &mut self.clients[usize::from(c)];
        let reply = client.reply.take()?;
        client.seen.fold2(Fp::of(&reply));
        Some(reply)
    }

    pub(super) fn carry_out(&mut self, c: u8) {
        let Some(request) = self.clients[usize::from(c)].control.take() else {
            return;
        };
        let reply = if self.clients[usize::from(c)].fenced {
            Err(ControlError::Fenced)
        } else {
            self.control_reply(c, request)
        };
        self.clients[usize::from(c)].reply = Some(reply);
    }

    fn control_reply(&mut self, c: u8, request: ControlRequest) -> Result<ControlReply, ControlError> {
        match request {
            ControlRequest::Chunk { node, bytes } => self.chunk(node, bytes),
            ControlRequest::Describe { node } if node.0 >= DETECTOR => {
                let client = usize::from(node.0 - DETECTOR);
                match self.clients.get(client).map(|c| c.status) {
                    Some(Status::Crashed) => Ok(ControlReply::Done),
                    _ => Err(ControlError::NoSuchNode { node }),
                }
            }
            ControlRequest::Describe { node } => {
                let bytes = self
                    .mem
                    .size(node.0, Space::Host)
                    .ok_or(ControlError::NoSuchNode { node })?;
                let used = self.allocated[usize::from(node.0)];
                Ok(ControlReply::Region(Region { bytes, used }))
            }
            ControlRequest::Join => Ok(ControlReply::Joined(Membership {
                epoch: 1,
                lease: LEASE,
            })),
            ControlRequest::Fence { client } => {
                let target = client
                    .0
                    .checked_sub(1)
                    .filter(|&t| t < u16::from(self.setup_client()));
                match target {
                    Some(t) => {
                        self.fence(t as u8);
                        Ok(ControlReply::Done)
                    }
                    None => Err(ControlError::NoSuchClient { client }),
                }
            }
            ControlRequest::Enlist { member } => {
                self.clients[usize::from(c)].group = Some(member);
                Ok(ControlReply::Done)
            }
            ControlRequest::FenceMember { member } => {
                for target in 0..self.setup_client() {
                    if self.clients[usize::from(target)].group == Some(member) {
                        self.fence(target);
                    }
                }
                Ok(ControlReply::Done)
            }
            // This arm handles `Leave`, and any future request that needs no reply.
            _ => Ok(ControlReply::Done),
        }
    }

    fn chunk(&mut self, node: NodeId, bytes: u64) -> Result<ControlReply, ControlError> {
        let size = self
            .mem
            .size(node.0, Space::Host)
            .ok_or(ControlError::NoSuchNode { node })?;
        let used = &mut self.allocated[usize::from(node.0)];
        let at = used.next_multiple_of(self.chunk_align);
        let left = size.saturating_sub(at);
        match RemotePtr::new(node, at) {
            Some(p) if bytes <= left => {
                *used = at + bytes;
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

impl Machine {
    pub(crate) fn memory_nodes(&self) -> u16 {
        self.allocated.len() as u16
    }
}
