//! Chains as the engine stores them, in slots that are reused.

use crate::lease::Lease;
use crate::request::{Entry, Request};
use crate::status::Status;

/// The owner of a chain for which no task waits.
pub(crate) const NOBODY: u32 = u32::MAX;
/// The owner of a chain that was polled with a waker other than the task's own.
pub(crate) const FOREIGN: u32 = u32::MAX - 1;

/// Requests to one memory node that are posted with one doorbell.
///
/// The struct has two cache lines. The second one holds all fields that the events of a lone READ of one line access.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Chain {
    /// Slots for all requests but the first. They are reused, so there may be more slots than the chain has requests.
    more: Vec<Request>,
    /// The time at which the card receives the first request.
    pub(crate) bell: u64,
    /// The first request. Most chains have no other request. The field is valid while `count > 0`.
    pub(crate) first: Request,
    /// The time at which a poll can find the latest completion that is known so far; a time in the past if none is
    /// known.
    pub(crate) done_at: u64,
    pub(crate) status: Status,
    pub(crate) qp: u32,
    /// The task that waits for the chain. If the chain is in the free list, this is instead the next free chain, or
    /// [`NOBODY`].
    pub(crate) owner: u32,
    /// The cards of the client and of the memory node, and the memory node, copied from the queue pair.
    pub(crate) client_nic: u16,
    pub(crate) node_nic: u16,
    pub(crate) node: u16,
    pub(crate) client: u16,
    pub(crate) count: u16,
    /// Requests whose completion time is not known yet.
    pub(crate) unanswered: u16,
    /// The number of times that the node had been cut off when the last request arrived.
    pub(crate) cuts: u8,
    /// Whether the chain is a client's own chain. Such a chain is in no list. A client uses its own chain whenever the
    /// chain is free. Most clients need no other chain, so they reuse the buffers of this one.
    pub(crate) home: bool,
}

const _: () = assert!(size_of::<Chain>() == 128 && core::mem::offset_of!(Chain, first.buffer) == 64);

impl Chain {
    pub(crate) fn new() -> Self {
        Self {
            more: Vec::new(),
            bell: 0,
            first: Request::vacant(),
            done_at: 0,
            status: Status::NEW,
            qp: 0,
            owner: NOBODY,
            client_nic: 0,
            node_nic: 0,
            node: 0,
            client: 0,
            count: 0,
            unanswered: 0,
            cuts: 0,
            home: false,
        }
    }

    /// Makes the client's own chain. `nic` is the client's card.
    pub(crate) fn home(client: u16, nic: u16) -> Self {
        Self {
            home: true,
            client,
            client_nic: nic,
            // The chain has no queue pair yet; its first use looks up the node's queue pair.
            qp: u32::MAX,
            ..Self::new()
        }
    }

    /// Returns request number `i`, which must exist.
    #[inline]
    pub(crate) fn request(&self, i: u16) -> &Request {
        if i == 0 {
            &self.first
        } else {
            &self.more[usize::from(i) - 1]
        }
    }

    /// Returns request number `i` for changes.
    #[inline]
    pub(crate) fn request_mut(&mut self, i: u16) -> &mut Request {
        if i == 0 {
            &mut self.first
        } else {
            &mut self.more[usize::from(i) - 1]
        }
    }

    /// Returns all requests.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        (0..self.count).map(|i| self.request(i))
    }

    /// Appends a request.
    ///
    /// # Panics
    /// Panics if the chain already has 65535 requests; no card accepts such a chain.
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        if self.count == 0 {
            self.first.set(entry);
        } else {
            if self.more.len() < usize::from(self.count) {
                self.more.push(Request::vacant());
            }
            self.more[usize::from(self.count) - 1].set(entry);
        }
        self.count = self
            .count
            .checked_add(1)
            .expect("at most 65535 requests in a chain");
    }

    /// Marks the chain as free. Unless it is a client's own chain, this also puts it at the front of the free list,
    /// which begins at `first`.
    #[inline]
    pub(crate) fn free(&mut self, first: &mut u32, chain: u32) {
        self.status.free();
        if !self.home {
            self.owner = core::mem::replace(first, chain);
        }
    }

    /// Takes a free chain into use: the client's own chain, or the first chain of the list.
    #[inline]
    pub(crate) fn leave_free(&mut self, first: &mut u32) {
        let next = core::mem::replace(&mut self.owner, NOBODY);
        if !self.home {
            *first = next;
        }
    }

    /// Removes all requests and returns their buffers to the pool.
    #[inline]
    pub(crate) fn clear(&mut self) {
        for i in 0..core::mem::take(&mut self.count) {
            let buffer = &mut self.request_mut(i).buffer;
            if !buffer.is_none() {
                *buffer = Lease::NONE;
            }
        }
    }
}
