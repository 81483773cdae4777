//! Tickets: posted chains that may be awaited.

use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::{Outputs, Slot, VerbError, Verbs};

/// A chain in flight. A client can post several chains and then await their tickets one after another. If a ticket is
/// dropped, its chain still runs. If the chain fails, the client's next [`Verbs::operation`] returns the error; of
/// several such errors, it returns the first.
///
/// ```
/// use dm_verbs::{Bytes, RemotePtr, Ticket, VerbError, Verbs};
///
/// /// Reads two nodes in one round trip, on any memory nodes: both READs are posted before either is awaited.
/// async fn both<V: Verbs>(v: &V, at: [RemotePtr; 2]) -> Result<(V::Lease, V::Lease), VerbError> {
///     let one: Ticket<'_, V, (Bytes,)> = v.read(at[0], 1024);
///     let other = v.read(at[1], 1024);
///     Ok((one.await?, other.await?))
/// }
/// ```
#[must_use = "await it, or `.detach()` it if its result does not matter"]
#[derive(Debug)]
pub struct Ticket<'v, V: Verbs, S> {
    v: &'v V,
    slot: Slot,
    /// Whether the slot still belongs to this ticket.
    open: bool,
    /// The client's number of waits at the time of posting, for counting round trips.
    posted_at: u32,
    _results: PhantomData<fn() -> S>,
}

// The results are moved out by value, so nothing points into a ticket.
impl<V: Verbs, S> Unpin for Ticket<'_, V, S> {}

impl<'v, V: Verbs, S> Ticket<'v, V, S> {
    #[inline(always)]
    pub(crate) fn new(v: &'v V, slot: Slot, posted_at: u32) -> Self {
        Ticket {
            v,
            slot,
            open: true,
            posted_at,
            _results: PhantomData,
        }
    }

    /// Marks the slot as collected or closed, and counts the wait.
    #[inline(always)]
    fn taken(&mut self) {
        self.open = false;
        self.v.meter().waited(self.posted_at);
    }

    #[cold]
    fn failed<T>(&mut self, e: VerbError) -> Poll<Result<T, VerbError>> {
        self.taken();
        Poll::Ready(Err(e))
    }

    /// Drops the ticket. The chain still runs, but is not awaited.
    pub fn detach(self) {
        drop(self);
    }
}

impl<'v, V: Verbs, S: Outputs<'v, V>> Future for Ticket<'v, V, S> {
    type Output = Result<S::Out, VerbError>;

    // Inlined, because most polls find a request still in flight, or a single result, which then stays in a register.
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        assert!(this.open, "a ticket is polled no more once it was ready");
        // Two separate arms, so that a result is moved without space for an error.
        match core::task::ready!(S::poll(this.v, &this.slot.same(), cx)) {
            Ok(out) => {
                this.taken();
                Poll::Ready(Ok(out))
            }
            Err(e) => this.failed(e),
        }
    }
}

impl<V: Verbs, S> Drop for Ticket<'_, V, S> {
    #[inline]
    fn drop(&mut self) {
        if self.open {
            self.v.close(self.slot.same());
        }
    }
}
