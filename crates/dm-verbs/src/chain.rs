//! Ordered chains: several requests to one memory node that one doorbell posts.

use core::future::IntoFuture;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use crate::meter::Tally;
use crate::{Bytes, Many, MaskedCas, NodeId, Old, Op, Outputs, Place, Slot, Then, Ticket, Verbs, Wqe};

/// State of a chain to which any request may be appended.
#[derive(Debug)]
pub enum Open {}
/// State of a chain that contains a CAS whose success matters, so that only READs may follow.
#[derive(Debug)]
pub enum Gated {}

/// A chain under construction. Requests take effect in posting order on one queue pair, except that an unfenced WRITE
/// may overtake earlier READs and atomics, and except where [`Caps`](crate::Caps) promises less. The chain's last
/// request is signalled.
///
/// Later requests run even when an earlier CAS fails, so after [`Chain::cas`] only READs may follow:
///
/// ```compile_fail
/// # use dm_verbs::*;
/// # fn f<V: Verbs>(v: &V, lock: RemotePtr, data: RemotePtr) {
/// // The WRITE would take effect although the lock was not taken.
/// v.chain(lock.node()).cas(lock, 0, 1).write(data, b"x").post().detach();
/// # }
/// ```
///
/// If no later request depends on the CAS's success (for example, because the CAS itself is the release), use
/// [`Chain::free_cas`]. All requests must go to the chain's memory node; a request to another one panics.
#[must_use = "a chain does nothing until it is posted or awaited"]
#[derive(Debug)]
pub struct Chain<'v, V: Verbs, S, P = Open> {
    v: &'v V,
    node: NodeId,
    /// The slot of the chain in the world. Posting moves the slot to the ticket; dropping an unposted chain closes it.
    slot: Slot,
    fence: bool,
    /// The meter's counts for this chain.
    tally: Tally,
    _types: PhantomData<fn() -> (S, P)>,
}

impl<'v, V: Verbs> Chain<'v, V, (), Open> {
    #[inline(always)]
    pub(crate) fn new(v: &'v V, node: NodeId) -> Self {
        Chain {
            v,
            node,
            slot: v.open(node),
            fence: false,
            tally: Tally::default(),
            _types: PhantomData,
        }
    }

    /// Makes the type of the chain independent of its number of results, for chains of variable length. The caller
    /// takes the results by number.
    pub fn many(self) -> Chain<'v, V, Many, Open> {
        self.retype()
    }
}

impl<'v, V: Verbs, S, P> Chain<'v, V, S, P> {
    #[inline(always)]
    fn retype<S2, P2>(self) -> Chain<'v, V, S2, P2> {
        let this = ManuallyDrop::new(self);
        Chain {
            v: this.v,
            node: this.node,
            slot: this.slot.same(),
            fence: this.fence,
            tally: this.tally,
            _types: PhantomData,
        }
    }

    /// Returns the memory node to which all requests of the chain go.
    #[inline]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    // Inlined into every caller, so that the kind of request is known at compile time and only its branch remains.
    #[inline(always)]
    fn push(&mut self, op: Op<'_>) {
        assert_eq!(op.at().node(), self.node, "a chain goes to one memory node");
        self.tally.add(&op);
        let fence = core::mem::take(&mut self.fence);
        // A copy of the slot is passed, so that the compiler need not keep the chain in memory.
        self.v.push(&self.slot.same(), Wqe { op, fence });
    }

    /// Delays the next request until every earlier READ and atomic of this queue pair has completed.
    pub fn fence(mut self) -> Self {
        self.fence = true;
        self
    }

    /// Appends a READ of `len` bytes.
    #[inline(always)]
    pub fn read(mut self, at: impl Into<Place>, len: u32) -> Chain<'v, V, S::Next, P>
    where
        S: Then<Bytes>,
    {
        self.push(Op::Read { at: at.into(), len });
        self.retype()
    }

    /// Appends a READ of one aligned word.
    #[inline(always)]
    pub fn word(mut self, at: impl Into<Place>) -> Chain<'v, V, S::Next, P>
    where
        S: Then<Old>,
    {
        self.push(Op::Word { at: at.into() });
        self.retype()
    }

    /// Rings the doorbell. The chain then takes effect, whether or not the caller polls.
    #[inline(always)]
    pub fn post(self) -> Ticket<'v, V, S>
    where
        S: Outputs<'v, V>,
    {
        let this = ManuallyDrop::new(self);
        this.v.ring(&this.slot.same());
        Ticket::new(this.v, this.slot.same(), this.v.meter().posted(&this.tally))
    }
}

impl<'v, V: Verbs, S> Chain<'v, V, S, Open> {
    /// Appends a WRITE of a copy of `bytes`. A WRITE has no result, so the type of the chain stays the same, and the
    /// caller can append a WRITE conditionally.
    #[inline(always)]
    pub fn write(mut self, at: impl Into<Place>, bytes: &[u8]) -> Self {
        self.push(Op::Write { at: at.into(), bytes });
        self
    }

    /// Appends a WRITE of one little-endian word.
    #[inline(always)]
    pub fn write_word(self, at: impl Into<Place>, word: u64) -> Self {
        self.write(at, &word.to_le_bytes())
    }

    /// Appends a compare-and-swap whose success matters: only READs may follow.
    #[inline(always)]
    pub fn cas(self, at: impl Into<Place>, compare: u64, swap: u64) -> Chain<'v, V, S::Next, Gated>
    where
        S: Then<Old>,
    {
        self.free_cas(at, compare, swap).retype()
    }

    /// Appends a masked compare-and-swap whose success matters: only READs may follow.
    #[inline(always)]
    pub fn masked_cas(self, at: impl Into<Place>, masked: MaskedCas) -> Chain<'v, V, S::Next, Gated>
    where
        S: Then<Old>,
    {
        self.free_masked_cas(at, masked).retype()
    }

    /// Appends a compare-and-swap on whose success no later request of the chain depends.
    #[inline(always)]
    pub fn free_cas(mut self, at: impl Into<Place>, compare: u64, swap: u64) -> Chain<'v, V, S::Next, Open>
    where
        S: Then<Old>,
    {
        self.push(Op::Cas {
            at: at.into(),
            compare,
            swap,
        });
        self.retype()
    }

    /// Appends a masked compare-and-swap on whose success no later request of the chain depends.
    #[inline(always)]
    pub fn free_masked_cas(mut self, at: impl Into<Place>, masked: MaskedCas) -> Chain<'v, V, S::Next, Open>
    where
        S: Then<Old>,
    {
        self.push(Op::MaskedCas {
            at: at.into(),
            masked,
        });
        self.retype()
    }

    /// Appends a fetch-and-add.
    #[inline(always)]
    pub fn faa(mut self, at: impl Into<Place>, add: u64) -> Chain<'v, V, S::Next, Open>
    where
        S: Then<Old>,
    {
        self.push(Op::Faa { at: at.into(), add });
        self.retype()
    }
}

impl<V: Verbs, S, P> Drop for Chain<'_, V, S, P> {
    #[inline]
    fn drop(&mut self) {
        // The doorbell was never rung, so nothing was sent, and the world discards the chain.
        self.v.close(self.slot.same());
    }
}

impl<'v, V: Verbs, S: Outputs<'v, V>, P> IntoFuture for Chain<'v, V, S, P> {
    type Output = <Ticket<'v, V, S> as core::future::Future>::Output;
    type IntoFuture = Ticket<'v, V, S>;
    fn into_future(self) -> Ticket<'v, V, S> {
        self.post()
    }
}
