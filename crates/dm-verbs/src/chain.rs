//! Ordered chains: several requests to one memory node behind one doorbell.

use core::future::IntoFuture;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use crate::meter::Tally;
use crate::{Bytes, Many, MaskedCas, NodeId, Old, Op, Outputs, Place, Slot, Then, Ticket, Verbs, Wqe};

/// Chain state: anything may be appended.
#[derive(Debug)]
pub enum Open {}
/// Chain state: a CAS was appended whose success matters, so only READs may follow.
#[derive(Debug)]
pub enum Gated {}

/// A chain under construction. Requests execute in posting order on one queue pair; the last one is signalled.
///
/// Later requests run even when an earlier CAS fails, so after [`Chain::cas`] only READs may follow:
///
/// ```compile_fail
/// # use dm_verbs::*;
/// # fn f<V: Verbs>(v: &V, lock: RemotePtr, data: RemotePtr) {
/// // The WRITE would land although the lock was not taken.
/// v.chain(lock.node()).cas(lock, 0, 1).write(data, b"x").post().detach();
/// # }
/// ```
///
/// Where nothing later needs the CAS's success (it is itself the release, say), [`Chain::free_cas`] says so.
/// All requests must go to the chain's node.
#[must_use = "a chain does nothing until it is posted or awaited"]
#[derive(Debug)]
pub struct Chain<'v, V: Verbs, S, P = Open> {
    v: &'v V,
    node: NodeId,
    /// Closed at drop: a chain that is posted is taken apart instead.
    slot: Slot,
    fence: bool,
    /// What the meter has counted for it.
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

    /// From here on results are numbered at run time instead of typed; for chains of variable length.
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

    // Always: then the request's kind is known, and only its own part of this is left.
    #[inline(always)]
    fn push(&mut self, op: Op<'_>) {
        assert_eq!(op.at().node(), self.node, "a chain goes to one memory node");
        self.tally.add(&op);
        let fence = core::mem::take(&mut self.fence);
        // Not the chain's own: nothing of it need then lie in memory.
        self.v.push(&self.slot.same(), Wqe { op, fence });
    }

    /// The next request starts only when every earlier READ and atomic of this queue pair has completed.
    pub fn fence(mut self) -> Self {
        self.fence = true;
        self
    }

    /// READ `len` bytes.
    #[inline(always)]
    pub fn read(mut self, at: impl Into<Place>, len: u32) -> Chain<'v, V, S::Next, P>
    where
        S: Then<Bytes>,
    {
        self.push(Op::Read { at: at.into(), len });
        self.retype()
    }

    /// READ one aligned word.
    #[inline(always)]
    pub fn word(mut self, at: impl Into<Place>) -> Chain<'v, V, S::Next, P>
    where
        S: Then<Old>,
    {
        self.push(Op::Word { at: at.into() });
        self.retype()
    }

    /// Rings the doorbell. From here on the chain takes effect, whoever polls.
    #[inline(always)]
    pub fn post(self) -> Ticket<'v, V, S>
    where
        S: Outputs<'v, V>,
    {
        let this = ManuallyDrop::new(self);
        this.v.ring(&this.slot.same());
        Ticket::flying(this.v, this.slot.same(), this.v.meter().posted(&this.tally))
    }
}

impl<'v, V: Verbs, S> Chain<'v, V, S, Open> {
    /// WRITE `bytes`; they are copied here. Appends no result, so a conditional WRITE keeps the type.
    #[inline(always)]
    pub fn write(mut self, at: impl Into<Place>, bytes: &[u8]) -> Self {
        self.push(Op::Write { at: at.into(), bytes });
        self
    }

    /// WRITE one little-endian word.
    #[inline(always)]
    pub fn write_word(self, at: impl Into<Place>, word: u64) -> Self {
        self.write(at, &word.to_le_bytes())
    }

    /// Compare-and-swap whose success matters: only READs may follow.
    #[inline(always)]
    pub fn cas(mut self, at: impl Into<Place>, compare: u64, swap: u64) -> Chain<'v, V, S::Next, Gated>
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

    /// Masked compare-and-swap whose success matters: only READs may follow.
    #[inline(always)]
    pub fn masked_cas(mut self, at: impl Into<Place>, masked: MaskedCas) -> Chain<'v, V, S::Next, Gated>
    where
        S: Then<Old>,
    {
        self.push(Op::MaskedCas {
            at: at.into(),
            masked,
        });
        self.retype()
    }

    /// Compare-and-swap on whose success nothing later in this chain depends.
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

    /// Masked compare-and-swap on whose success nothing later in this chain depends.
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

    /// Fetch-and-add.
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
        // Never rung: the world forgets it, nothing was sent.
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
