//! The trait that a world implements for its connections, and the verbs that index code posts.

use core::ops::DerefMut;
use core::task::{Context, Poll};

use crate::meter::Tally;
use crate::{Bytes, Caps, Chain, Env, NodeId, Old, Op, Outcome, Place, Retry, Slot, Ticket, VerbError, Wqe};

/// One client's reliable connections to all memory nodes, with a queue pair per node. Each world implements this
/// trait.
///
/// A world need not be `Sync`: a client belongs to one thread.
pub trait Transport: Env + Sized {
    /// The bytes of a READ, owned and editable in place. Dropping the lease returns its buffer to the world.
    type Lease: DerefMut<Target = [u8]>;

    /// Returns the capabilities of the connection to `node`. An unknown node has default (empty) capabilities.
    fn caps(&self, node: NodeId) -> Caps;
    /// Opens a new chain to `node`. This never fails: errors are reported by [`Transport::poll_chain`].
    fn open(&self, node: NodeId) -> Slot;
    /// Appends a request and copies its payload.
    fn push(&self, slot: &Slot, wqe: Wqe<'_>);
    /// Rings the doorbell. The chain then takes effect, whether or not the caller polls.
    fn ring(&self, slot: &Slot);
    /// Polls until the whole rung chain has completed.
    fn poll_chain(&self, slot: &Slot, cx: &mut Context<'_>) -> Poll<Result<(), VerbError>>;
    /// Takes the `i`-th result of a completed chain. Only requests that return a value count.
    fn take(&self, slot: &Slot, i: u16) -> Outcome<Self::Lease>;
    /// Returns the slot to the world. A chain that was not rung is discarded. A chain in flight still runs, and its
    /// error is kept for [`Transport::take_deferred`]. A completed chain is recycled.
    fn close(&self, slot: Slot);
    /// Polls a chain of which only the first result is needed; most chains are of this kind. When the chain has
    /// completed or failed, this closes it, and `slot` is not valid any more.
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
    /// Posts a chain of one request.
    #[inline]
    fn post_one(&self, wqe: Wqe<'_>) -> Slot {
        let slot = self.open(wqe.op.at().node());
        self.push(&slot, wqe);
        self.ring(&slot);
        slot
    }
    /// Returns the first error of dropped tickets that has been found since the last call of this method.
    fn take_deferred(&self) -> Option<VerbError>;
    /// Implements [`Verbs::load`].
    ///
    /// # Errors
    /// Returns [`VerbError`] under the same conditions as [`Verbs::load`].
    fn load_image(&self, at: Place, bytes: &[u8]) -> Result<(), VerbError>;
}

/// The verbs that index code posts. Every [`Transport`] has them.
///
/// # Refused requests
/// A request that no memory node could carry out has no effect, and does not harm the connection. Every world reports
/// it by the same error (if several of them apply, by any one):
///
/// * [`NoSuchNode`]: the memory node does not exist.
/// * [`Unsupported`] with [`ChipMemory`]: the place is in on-chip memory, and the node has none ([`Caps::chip_bytes`]
///   is 0). The offset does not matter, and an empty WRITE is refused too.
/// * [`OutOfBounds`]: the node has this memory, and the access ends beyond it.
/// * [`Misaligned`]: the address of an atomic or a word READ is not a multiple of 8.
/// * [`BadLength`]: a READ of no bytes, or a longer READ or WRITE than the world allows.
/// * [`Unsupported`] with [`MaskedAtomics`]: a masked CAS without [`Caps::masked_atomics`].
///
/// Whether earlier requests of the same chain take effect depends on the world; [`VerbError::index`] tells. With the
/// feature `testing`, `testing::check_refusals` checks a world.
///
/// [`NoSuchNode`]: crate::VerbErrorKind::NoSuchNode
/// [`Unsupported`]: crate::VerbErrorKind::Unsupported
/// [`OutOfBounds`]: crate::VerbErrorKind::OutOfBounds
/// [`Misaligned`]: crate::VerbErrorKind::Misaligned
/// [`BadLength`]: crate::VerbErrorKind::BadLength
/// [`ChipMemory`]: crate::Capability::ChipMemory
/// [`MaskedAtomics`]: crate::Capability::MaskedAtomics
pub trait Verbs: Transport {
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
    /// Posts a WRITE of a copy of `bytes`.
    #[inline]
    fn write(&self, at: impl Into<Place>, bytes: &[u8]) -> Ticket<'_, Self, ()> {
        post(self, Op::Write { at: at.into(), bytes })
    }
    /// Posts a compare-and-swap, which returns the old value.
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
    /// Posts a fetch-and-add, which returns the old value.
    #[inline]
    fn faa(&self, at: impl Into<Place>, add: u64) -> Ticket<'_, Self, (Old,)> {
        post(self, Op::Faa { at: at.into(), add })
    }
    /// Starts a retry loop of at most `budget` attempts.
    #[inline]
    fn retry(&self, budget: u32) -> Retry<'_, Self> {
        Retry::new(self, budget)
    }
    /// Starts an index operation.
    ///
    /// # Errors
    /// Returns the error of a ticket that was dropped earlier, if there is one. Do not start the operation then.
    #[inline]
    fn operation(&self) -> Result<Operation, VerbError> {
        match self.take_deferred() {
            None => Ok(Operation(())),
            Some(e) => Err(e),
        }
    }
    /// Writes `bytes` to `at` directly, outside the cost model. No client may use this memory meanwhile. Bulk loads
    /// and tests use this. The meter counts it as housekeeping.
    ///
    /// # Errors
    /// Returns `Unsupported(DirectLoad)` if the memory can be accessed only by verbs. Use WRITEs then. Returns the same
    /// errors as a WRITE if this client cannot access the memory.
    fn load(&self, at: impl Into<Place>, bytes: &[u8]) -> Result<(), VerbError> {
        self.meter().loaded(bytes.len());
        self.load_image(at.into(), bytes)
    }
}

impl<T: Transport> Verbs for T {}

/// Proof that an operation began without a left-over error. See [`Verbs::operation`].
///
/// ```
/// use dm_verbs::{Operation, RemotePtr, VerbError, Verbs};
///
/// /// Writes without waiting. The next operation returns the error of this WRITE, if there is one.
/// fn publish<V: Verbs>(v: &V, at: RemotePtr, word: u64) -> Result<(), VerbError> {
///     let _began: Operation = v.operation()?;
///     v.write(at, &word.to_le_bytes()).detach();
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "it stands for a check that was made"]
pub struct Operation(());

// Inlined, because each caller passes a constant kind of request, so that the compiler keeps only the code for this
// kind.
#[inline(always)]
fn post<'v, V: Verbs, S>(v: &'v V, op: Op<'_>) -> Ticket<'v, V, S> {
    let meter = v.meter();
    let mut tally = Tally::default();
    tally.add(&op);
    let slot = v.post_one(op.into());
    Ticket::new(v, slot, meter.posted(&tally))
}
