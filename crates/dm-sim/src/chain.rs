//! Chains as the engine stores them: slots that are used again.

use crate::lease::Lease;
use crate::request::{Entry, Request};
use crate::status::Status;

/// Nobody waits for the chain.
pub(crate) const NOBODY: u32 = u32::MAX;
/// Who waits gave a waker that is not a task's own.
pub(crate) const FOREIGN: u32 = u32::MAX - 1;

/// Requests to one memory node behind one doorbell.
///
/// Two cache lines: the second holds all that the events of a lone READ look at.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Chain {
    more: Vec<Request>,
    /// When the card has the first request.
    pub(crate) bell: u64,
    /// The first request: most chains have no other. Meaningful while `count > 0`.
    pub(crate) first: Request,
    /// When the last completion known so far is found. Of one that was not even known to be in flight, any time
    /// past.
    pub(crate) done_at: u64,
    pub(crate) status: Status,
    pub(crate) qp: u32,
    /// The task that waits. Of a free chain that is in the list: the next free one, or [`NOBODY`].
    pub(crate) owner: u32,
    /// The cards of the client and of the memory node, and that node, as the queue pair says.
    pub(crate) client_nic: u16,
    pub(crate) node_nic: u16,
    pub(crate) node: u16,
    pub(crate) client: u16,
    pub(crate) count: u16,
    /// Requests whose completion time is not known yet.
    pub(crate) unanswered: u16,
    /// How often the node had been cut off when the last request arrived.
    pub(crate) cuts: u8,
    /// It is its client's own, which uses it whenever it is free, and in no list: most clients need no other, and find
    /// in it what they left there.
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

    /// The own chain of `client`, whose card is `nic`.
    pub(crate) fn home(client: u16, nic: u16) -> Self {
        Self {
            home: true,
            client,
            client_nic: nic,
            // None: which node it belongs to is looked up at its first use.
            qp: u32::MAX,
            ..Self::new()
        }
    }

    /// Request number `i`, which must exist.
    #[inline]
    pub(crate) fn request(&self, i: u16) -> &Request {
        if i == 0 {
            &self.first
        } else {
            &self.more[usize::from(i) - 1]
        }
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn request_mut(&mut self, i: u16) -> &mut Request {
        if i == 0 {
            &mut self.first
        } else {
            &mut self.more[usize::from(i) - 1]
        }
    }

    /// All requests.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        (0..self.count).map(|i| self.request(i))
    }

    /// Appends a request.
    ///
    /// # Panics
    /// From 65535 requests on: no card takes such a chain.
    #[inline]
    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        if self.count == 0 {
            self.first.set(entry);
        } else {
            let mut r = Request::vacant();
            r.set(entry);
            self.more.push(r);
        }
        self.count = self
            .count
            .checked_add(1)
            .expect("at most 65535 requests in a chain");
    }

    /// Once it is clear, puts it before `first` among the free ones.
    #[inline]
    pub(crate) fn free(&mut self, first: &mut u32, chain: u32) {
        self.status.free();
        if !self.home {
            self.owner = core::mem::replace(first, chain);
        }
    }

    /// It is free, its client's own or the `first` of the list, and is going to be used.
    #[inline]
    pub(crate) fn leave_free(&mut self, first: &mut u32) {
        let next = core::mem::replace(&mut self.owner, NOBODY);
        if !self.home {
            *first = next;
        }
    }

    /// Forgets all requests and gives their buffers back.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.count > 1 {
            self.more.clear();
        }
        self.count = 0;
        if !self.first.buffer.is_none() {
            self.first.buffer = Lease::NONE;
        }
    }
}
