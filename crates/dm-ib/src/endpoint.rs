//! A client. It implements the traits of `dm-verbs` over the connections of its thread.

use core::cell::RefCell;
use core::fmt;
use core::task::{Context, Poll};
use std::rc::Rc;

use dm_control::{Answer, Entrance, Identity, Request};
use dm_verbs::{
    Attempts, CallState, Capability, Caps, ClientId, Control, ControlError, ControlReply, ControlRequest,
    Env, Membership, Meter, Nanos, NodeId, Op, Outcome, Place, Region, RemotePtr, Slot, Transport, VerbError,
    VerbErrorKind, Wqe,
};

use crate::chains::{Answers, Chain, Deferred, Phase, Pushed};
use crate::error::IbError;
use crate::ffi::{self, Lease, PIECE_BYTES_MAX, What};
use crate::rng::Rng;
use crate::thread::{Inner, Link};

/// A client of a [`crate::Thread`], through which index code issues its verbs. It is cheap, so make one per coroutine.
///
/// Dropping it frees its client id. Ids are given out in a cycle, so that a free id rests for as long as possible. All
/// that the client has written stays in memory.
pub struct Endpoint {
    thread: Rc<Inner>,
    client: ClientId,
    compute_node: u16,
    meter: Meter,
    deferred: Deferred,
    streams: RefCell<Vec<(u32, Rng)>>,
}

impl Endpoint {
    pub(crate) fn new(thread: &Rc<Inner>, compute_node: u16) -> Result<Self, IbError> {
        let enter = |node: usize, entry| {
            thread.enter(node, entry).map_err(|reason| IbError::Node {
                address: thread.world.nodes[node],
                reason,
            })
        };
        let (client, epoch, token) = match enter(0, Entrance::Claim)? {
            Answer::Claimed { client, epoch, token } => (client, epoch, token),
            Answer::Fenced => return Err(IbError::ThreadFenced),
            refusal => return Err(IbError::not_entered(refusal, thread.world.nodes[0])),
        };
        // From now on, dropping the endpoint frees the id.
        let endpoint = Self {
            thread: Rc::clone(thread),
            client: ClientId(client),
            compute_node,
            meter: Meter::default(),
            deferred: Deferred::default(),
            streams: RefCell::default(),
        };
        let giver = thread.giver();
        let identity = Identity { client, epoch, giver };
        thread.clients.borrow_mut().insert(client, (identity, token));
        for node in 1..thread.world.nodes.len() {
            match enter(node, Entrance::Attach { identity, token })? {
                Answer::Done => {}
                refusal => {
                    let address = thread.world.nodes[node];
                    return Err(IbError::not_attached(refusal, address, ClientId(client)));
                }
            }
        }
        Ok(endpoint)
    }

    /// Calls the control plane of `node`.
    fn call(&self, node: NodeId, request: Request) -> Result<Answer, ControlError> {
        if usize::from(node.0) >= self.thread.world.nodes.len() {
            return Err(ControlError::NoSuchNode { node });
        }
        match self.thread.call(usize::from(node.0), self.client.0, request) {
            Ok(Answer::Fenced) => Err(ControlError::Fenced),
            // If the id does not belong to this connection any more, it belongs to another client.
            Ok(Answer::NotYours) => Err(ControlError::Fenced),
            Ok(Answer::Failed) | Err(_) => Err(ControlError::Unreachable { node }),
            Ok(answer) => Ok(answer),
        }
    }

    /// Sends a request to every memory node, because each node has its own queue pair to a client's thread.
    fn everywhere(
        &self,
        request: Request,
        check: impl Fn(Answer) -> Result<(), ControlError>,
    ) -> Result<ControlReply, ControlError> {
        for node in 0..self.memory_nodes() {
            check(self.call(NodeId(node), request)?)?;
        }
        Ok(ControlReply::Done)
    }

    /// Waits at `place` until `of` threads of any machines have arrived there, but no longer than `most`. Returns
    /// whether all have arrived. This blocks the whole thread.
    ///
    /// # Errors
    /// Returns [`IbError::Node`] if memory node 0 refuses the request or does not answer.
    pub fn meet(&self, place: u64, of: u16, most: core::time::Duration) -> Result<bool, IbError> {
        let met = self.thread.meet(self.client.0, place, of, most);
        met.map_err(|reason| IbError::Node {
            address: self.thread.world.nodes[0],
            reason,
        })
    }

    fn control(&self, request: &ControlRequest) -> Result<ControlReply, ControlError> {
        let first = NodeId(0);
        let odd = |node| Err(ControlError::Unreachable { node });
        match *request {
            ControlRequest::Chunk { node, bytes } => match self.call(node, Request::Chunk { bytes })? {
                Answer::Chunk { offset } => match RemotePtr::new(node, offset) {
                    Some(at) => Ok(ControlReply::Chunk(at)),
                    None => odd(node),
                },
                Answer::OutOfMemory { left } => Err(ControlError::OutOfMemory {
                    node,
                    wanted: bytes,
                    left,
                }),
                _ => odd(node),
            },
            ControlRequest::Describe { node } => match self.call(node, Request::Describe)? {
                Answer::Region { bytes, used } => Ok(ControlReply::Region(Region { bytes, used })),
                _ => odd(node),
            },
            ControlRequest::Join => match self.call(first, Request::Join)? {
                Answer::Joined { epoch, lease_nanos } => Ok(ControlReply::Joined(Membership {
                    epoch,
                    lease: Nanos(lease_nanos),
                })),
                _ => odd(first),
            },
            ControlRequest::Leave => self.call(first, Request::Leave).map(|_| ControlReply::Done),
            ControlRequest::Fence { client } => {
                // Memory node 0, which gives the ids, has a record of the latest holder of the id. Another node may not
                // have this record yet. It then stores the fence, and refuses the holder when the holder attaches.
                let epoch = match self.call(first, Request::Holder { client: client.0 })? {
                    Answer::Holder { epoch } => epoch,
                    _ => return Err(ControlError::NoSuchClient { client }),
                };
                let identity = Identity {
                    client: client.0,
                    epoch,
                    giver: self.thread.giver(),
                };
                self.everywhere(Request::Fence(identity), |answer| match answer {
                    Answer::NoSuchClient => Err(ControlError::NoSuchClient { client }),
                    _ => Ok(()),
                })
            }
            ControlRequest::Enlist { member } => {
                self.everywhere(Request::Enlist { group: member }, |_| Ok(()))
            }
            ControlRequest::FenceMember { member } => {
                self.everywhere(Request::FenceGroup { group: member }, |_| Ok(()))
            }
            // A newer version of `dm-verbs` may have requests that are unknown here.
            _ => Err(ControlError::NoSuchNode {
                node: NodeId(u16::MAX),
            }),
        }
    }

    /// Returns the request in the form in which it is sent, or the reason why it cannot be sent.
    fn request(
        &self,
        link: &Link,
        inline: &mut Vec<u8>,
        wqe: &Wqe<'_>,
    ) -> Result<ffi::Request, VerbErrorKind> {
        let op = &wqe.op;
        let window = link.window(op.at().space());
        check(op, window.bytes)?;
        let take = |len: usize| self.thread.pool.take(len).map_err(|_| VerbErrorKind::QueueFull);
        let what = match *op {
            Op::Read { len, .. } => What::Read(take(len as usize)?),
            Op::Word { .. } => What::Read(take(8)?),
            Op::Write { bytes, .. } if bytes.len() <= link.caps.inline_bytes as usize => {
                let begin = inline.len();
                inline.extend_from_slice(bytes);
                What::WriteInline(begin..inline.len())
            }
            Op::Write { bytes, .. } => {
                let mut lease = take(bytes.len())?;
                lease.copy_from_slice(bytes);
                What::Write(lease)
            }
            Op::Cas { compare, swap, .. } => What::Cas {
                answer: take(8)?,
                compare,
                swap,
            },
            Op::Faa { add, .. } => What::Faa {
                answer: take(8)?,
                add,
            },
            Op::MaskedCas { .. } => return Err(VerbErrorKind::Unsupported(Capability::MaskedAtomics)),
        };
        Ok(ffi::Request {
            what,
            // `check` has verified that the bytes lie within the window.
            address: window.address.wrapping_add(op.at().offset()),
            key: window.key,
            fence: wqe.fence,
        })
    }
}

/// Refuses requests that the peer would refuse, because a refusal by the peer breaks the queue pair.
fn check(op: &Op<'_>, size: u64) -> Result<(), VerbErrorKind> {
    let len = op.len() as u64;
    if size == 0 {
        // Host memory is never empty, so this place is in on-chip memory.
        return Err(VerbErrorKind::Unsupported(Capability::ChipMemory));
    }
    let empty_read = matches!(op, Op::Read { len: 0, .. });
    if empty_read || len > PIECE_BYTES_MAX as u64 {
        return Err(VerbErrorKind::BadLength { len });
    }
    let word = op.is_atomic() || matches!(op, Op::Word { .. });
    if word && !op.at().offset().is_multiple_of(8) {
        return Err(VerbErrorKind::Misaligned);
    }
    if len > size || op.at().offset() > size - len {
        return Err(VerbErrorKind::OutOfBounds { size });
    }
    Ok(())
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.thread.clients.borrow_mut().remove(&self.client.0);
        // Errors can be ignored, because a node drops the clients of a connection when it loses the connection.
        for node in 0..self.thread.world.nodes.len() {
            let _ = self.thread.call(node, self.client.0, Request::Release);
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("client", &self.client)
            .field("compute_node", &self.compute_node)
            .finish_non_exhaustive()
    }
}

impl Env for Endpoint {
    fn client(&self) -> ClientId {
        self.client
    }

    fn compute_node(&self) -> u16 {
        self.compute_node
    }

    /// Returns the time since this process built the world.
    fn now(&self) -> Nanos {
        let since = self.thread.world.born.elapsed();
        Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Multiplies `limit` by the factor of [`crate::Builder::slower`].
    fn elapsed(&self, since: Nanos, limit: Nanos) -> bool {
        let limit = limit.0.saturating_mul(u64::from(self.thread.world.slower));
        self.now() - since >= Nanos(limit)
    }

    fn rng(&self, stream: u32) -> u64 {
        let streams = &mut *self.streams.borrow_mut();
        let index = streams
            .iter()
            .position(|(id, _)| *id == stream)
            .unwrap_or_else(|| {
                streams.push((stream, Rng::new(self.thread.world.seed, self.client, stream)));
                streams.len() - 1
            });
        streams[index].1.next()
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Lets the other coroutines of the thread run, and (through the executor) polls for completions.
    fn poll_pause(&self, state: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        if core::mem::replace(state, 1) == 1 {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Attempts for Endpoint {}

impl Transport for Endpoint {
    type Lease = Lease;

    fn caps(&self, node: NodeId) -> Caps {
        let state = self.thread.state.borrow();
        state
            .links
            .get(usize::from(node.0))
            .map_or_else(Caps::default, |link| link.caps)
    }

    fn open(&self, node: NodeId) -> Slot {
        let state = &mut *self.thread.state.borrow_mut();
        // Memory would be exhausted before there are that many chains.
        let (index, generation) = state.port.open().expect("fewer than 2^24 chains at a time");
        if state.chains.len() <= index as usize {
            state.chains.resize_with(index as usize + 1, Chain::default);
        }
        state.chains[index as usize].begin(usize::from(node.0), &self.deferred);
        Slot { index, generation }
    }

    fn push(&self, slot: &Slot, wqe: Wqe<'_>) {
        let state = &mut *self.thread.state.borrow_mut();
        let list = state.port.list(slot.index, slot.generation);
        let list = list.expect("a slot belongs to the thread that opened it, until it is rung");
        let chain = &mut state.chains[slot.index as usize];
        let made = match state.links.get(chain.node) {
            Some(link) => self.request(link, &mut list.inline, &wqe),
            None => Err(VerbErrorKind::NoSuchNode),
        };
        match made {
            Ok(request) => list.requests.push(Some(request)),
            Err(kind) => chain.refuse(kind, wqe.op.at()),
        }
        chain.pushed.push(Pushed {
            at: wqe.op.at(),
            answers: match wqe.op {
                Op::Write { .. } => Answers::Nothing,
                Op::Read { .. } => Answers::Bytes,
                _ => Answers::Word,
            },
        });
    }

    fn ring(&self, slot: &Slot) {
        self.thread.with(|state, due| state.ring(slot.index, due));
    }

    fn poll_chain(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<(), VerbError>> {
        let mut state = self.thread.state.borrow_mut();
        let chain = &mut state.chains[slot.index as usize];
        if chain.phase == Phase::Completed {
            chain.told = true;
            return Poll::Ready(chain.error.map_or(Ok(()), Err));
        }
        match &mut chain.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn take(&self, slot: &Slot, i: u16) -> Outcome<Lease> {
        let state = &mut *self.thread.state.borrow_mut();
        let Some((number, answers)) = state.chains[slot.index as usize].answer(i) else {
            return Outcome::None;
        };
        let list = state.port.list(slot.index, slot.generation);
        let taken = list.and_then(|list| list.requests.get_mut(number)?.take());
        let Some(What::Read(lease) | What::Cas { answer: lease, .. } | What::Faa { answer: lease, .. }) =
            taken.map(|request| request.what)
        else {
            return Outcome::None;
        };
        if answers == Answers::Bytes {
            return Outcome::Lease(lease);
        }
        // Cards return old values in the machine's byte order, but memory holds words in little-endian order.
        lease
            .first_chunk()
            .map_or(Outcome::None, |word| Outcome::Old(u64::from_le_bytes(*word)))
    }

    fn close(&self, slot: Slot) {
        let state = &mut *self.thread.state.borrow_mut();
        let chain = &mut state.chains[slot.index as usize];
        match chain.phase {
            Phase::Building | Phase::Completed => state.release(slot.index),
            Phase::Queued | Phase::Flying => {
                chain.orphan = true;
                chain.waker = None;
            }
            Phase::Free => {}
        }
    }

    fn take_deferred(&self) -> Option<VerbError> {
        self.deferred.take()
    }

    /// Refuses a direct load: the memory is remote, so only verbs can access it.
    fn load_image(&self, at: Place, _: &[u8]) -> Result<(), VerbError> {
        let kind = VerbErrorKind::Unsupported(Capability::DirectLoad);
        Err(VerbError::refused(kind, at))
    }
}

impl Control for Endpoint {
    fn memory_nodes(&self) -> u16 {
        self.thread.world.nodes.len() as u16 // at most 65535
    }

    /// Sends the request and waits for the answer. All coroutines of the thread wait meanwhile, but control requests
    /// are rare.
    fn poll_control(
        &self,
        request: &ControlRequest,
        _: &mut CallState,
        _: &mut Context<'_>,
    ) -> Poll<Result<ControlReply, ControlError>> {
        Poll::Ready(self.control(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_a_peer_would_refuse_are_never_sent() {
        let at = |offset| Place::from(RemotePtr::new(NodeId(0), offset).unwrap());
        let size = 4096;
        let read = |offset, len| check(&Op::Read { at: at(offset), len }, size);
        assert_eq!(read(0, 4096), Ok(()));
        assert_eq!(read(1, 4096), Err(VerbErrorKind::OutOfBounds { size }));
        assert_eq!(read(u64::MAX >> 16, 1), Err(VerbErrorKind::OutOfBounds { size }));
        assert_eq!(read(0, 0), Err(VerbErrorKind::BadLength { len: 0 }));
        assert_eq!(read(0, 1 << 21), Err(VerbErrorKind::BadLength { len: 1 << 21 }));
        let faa = |offset| {
            check(
                &Op::Faa {
                    at: at(offset),
                    add: 1,
                },
                size,
            )
        };
        assert_eq!(faa(4088), Ok(()));
        assert_eq!(faa(4092), Err(VerbErrorKind::Misaligned));
        assert_eq!(faa(4096), Err(VerbErrorKind::OutOfBounds { size }));
        let chip = check(&Op::Word { at: at(0) }, 0);
        assert_eq!(chip, Err(VerbErrorKind::Unsupported(Capability::ChipMemory)));
        assert_eq!(
            check(
                &Op::Write {
                    at: at(4096),
                    bytes: &[]
                },
                size
            ),
            Ok(())
        );
    }
}
