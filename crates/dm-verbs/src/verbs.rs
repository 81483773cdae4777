//! The trait that a world implements, and what its users see of it.

use core::ops::DerefMut;
use core::task::{Context, Poll};

use crate::meter::Tally;
use crate::{
    Bytes, Caps, Chain, Env, NodeId, Old, Op, Outcome, Place, Posted, Retry, Slot, Ticket, VerbError, Wqe,
};

/// One client's reliable connections to all memory nodes: a queue pair per node.
///
/// The upper part is what index code uses; the lower is what a world implements. A world need not be `Sync`: a
/// client belongs to one thread.
pub trait Verbs: Env + Sized {
    /// Bytes of a READ: owned, editable in place, one pointer wide. Dropping it gives the buffer back.
    type Lease: DerefMut<Target = [u8]>;

    // ---- for index code -------------------------------------------------------------------------------------

    /// Starts a chain to `node`.
    #[inline]
    fn chain(&self, node: NodeId) -> Chain<'_, Self, ()> {
        Chain::new(self, node)
    }
    /// Posts a READ of `len` bytes.
    #[inline]
    fn read(&self, at: impl Into<Place>, len: u32) -> Ticket<'_, Self, (Bytes,)> {
        post(self, Op::Read { at: at.into(), len })
    }
    /// Posts a READ of one aligned word.
    #[inline]
    fn word(&self, at: impl Into<Place>) -> Ticket<'_, Self, (Old,)> {
        post(self, Op::Word { at: at.into() })
    }
    /// Posts a WRITE; the payload is copied here.
    #[inline]
    fn write(&self, at: impl Into<Place>, bytes: &[u8]) -> Ticket<'_, Self, ()> {
        post(self, Op::Write { at: at.into(), bytes })
    }
    /// Posts a compare-and-swap; answers the old value.
    #[inline]
    fn cas(&self, at: impl Into<Place>, compare: u64, swap: u64) -> Ticket<'_, Self, (Old,)> {
        post(
            self,
            Op::Cas {
                at: at.into(),
                compare,
                swap,
            },
        )
    }
    /// Posts a fetch-and-add; answers the old value.
    #[inline]
    fn faa(&self, at: impl Into<Place>, add: u64) -> Ticket<'_, Self, (Old,)> {
        post(self, Op::Faa { at: at.into(), add })
    }
    /// Starts a retry loop of at most `budget` attempts.
    #[inline]
    fn retry(&self, budget: u32) -> Retry<'_, Self> {
        Retry::new(self, budget)
    }
    /// Begins an index operation.
    ///
    /// # Errors
    /// The error of a ticket that was dropped earlier: the operation must not start.
    #[inline]
    fn operation(&self) -> Result<Operation, VerbError> {
        match self.take_deferred() {
            None => Ok(Operation(())),
            Some(e) => Err(e),
        }
    }
    /// Places `bytes` at `at` directly, outside the cost model and while no client works there (bulk loading,
    /// tests). Counted as housekeeping.
    ///
    /// # Errors
    /// `Unsupported(DirectLoad)` where only verbs reach the memory: use WRITEs then.
    fn load(&self, at: impl Into<Place>, bytes: &[u8]) -> Result<(), VerbError> {
        self.meter().loaded(bytes.len());
        self.load_image(at.into(), bytes)
    }

    // ---- for worlds -----------------------------------------------------------------------------------------

    /// What the connection to `node` promises. An unknown node has default (empty) capabilities.
    fn caps(&self, node: NodeId) -> Caps;
    /// A new chain to `node`. Never fails: errors wait for [`Verbs::poll_chain`].
    fn open(&self, node: NodeId) -> Slot;
    /// Appends a request; its payload is copied.
    fn push(&self, slot: &Slot, wqe: Wqe<'_>);
    /// The doorbell: effects from here on, whoever polls.
    fn ring(&self, slot: &Slot);
    /// Whether the whole rung chain has completed.
    fn poll_chain(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<(), VerbError>>;
    /// Takes the `i`-th result of a completed chain, counting only requests that answer.
    fn take(&self, slot: &Slot, i: u16) -> Outcome<Self::Lease>;
    /// Gives the slot back. Not rung: forget it. In flight: it becomes unsignalled, and an error of it is kept for
    /// [`Verbs::take_deferred`]. Completed: recycle it.
    fn close(&self, slot: Slot);
    /// Polls a chain of which one result is wanted, the first, as of most: when it has completed or failed it is closed
    /// here, and `slot` means nothing any more.
    #[inline]
    fn poll_single(
        &self,
        slot: &Slot,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Outcome<Self::Lease>, VerbError>> {
        let result = core::task::ready!(self.poll_chain(slot, cx));
        let outcome = result.map(|()| self.take(slot, 0));
        self.close(slot.same());
        Poll::Ready(outcome)
    }
    /// Posts a chain of one request. A world whose requests complete at once answers so.
    #[inline]
    fn post_one(&self, wqe: Wqe<'_>) -> Posted<Self::Lease> {
        let slot = self.open(wqe.op.at().node());
        self.push(&slot, wqe);
        self.ring(&slot);
        Posted::Flying(slot)
    }
    /// The first error of a dropped ticket since the last call.
    fn take_deferred(&self) -> Option<VerbError>;
    /// See [`Verbs::load`].
    ///
    /// # Errors
    /// As there.
    fn load_image(&self, at: Place, bytes: &[u8]) -> Result<(), VerbError>;
}

/// Proof that an operation began without an error left over. See [`Verbs::operation`].
///
/// ```
/// use dm_verbs::{Operation, RemotePtr, VerbError, Verbs};
///
/// /// Writes without waiting. What becomes of it shows at the next operation.
/// fn publish<V: Verbs>(v: &V, at: RemotePtr, word: u64) -> Result<(), VerbError> {
///     let _began: Operation = v.operation()?;
///     v.write(at, &word.to_le_bytes()).detach();
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "it stands for a check that was made"]
pub struct Operation(());

// Always: the kind of request is known at the call, and all that depends on it is gone then.
#[inline(always)]
fn post<'v, V: Verbs, S>(v: &'v V, op: Op<'_>) -> Ticket<'v, V, S> {
    let meter = v.meter();
    let mut tally = Tally::default();
    tally.add(&op);
    let posted = v.post_one(op.into());
    let at = meter.posted(&tally);
    match posted {
        Posted::Done(o) => Ticket::ready(v, o, at),
        Posted::Flying(slot) => Ticket::flying(v, slot, at),
    }
}
