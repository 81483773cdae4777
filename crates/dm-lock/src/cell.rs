//! The remote side of one lock: how its word (or, with T-S13, its lane) is taken, released and undone.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use dm_verbs::{
    Capability, Chain, ClientId, Effect, MaskedCas, Old, Open, Outputs, Place, Refused, RemotePtr, Space,
    Then, Ticket, VerbError, Verbs,
};

use crate::word::TAG_MASK;
use crate::{LockOptions, LockWord, ReleaseBy};

/// How to go about a lock in this world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) masked: bool,
    pub(crate) read_in_order: bool,
    /// The same behind the FAA of a share, which no option turns off.
    pub(crate) share_in_order: bool,
    pub(crate) combine: bool,
    pub(crate) release: Release,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    Write,
    Faa,
    Cas,
}

impl Plan {
    /// Falls back where the world lacks what the options would like, and refuses what has no fallback.
    #[inline]
    pub(crate) fn new<V: Verbs>(v: &V, options: &LockOptions, word: Place) -> Result<Self, Refused> {
        let caps = v.caps(word.node());
        options.check(&caps)?;
        let serialised = caps.has(Capability::AtomicVsWriteSerialised);
        let on_chip = word.space() == Space::Chip;
        Ok(Self {
            masked: caps.has(Capability::MaskedAtomics),
            //= docs/protocol/lock.md L3
            read_in_order: options.lock_and_read && caps.has(Capability::CasThenReadInOrder),
            //= docs/protocol/lock.md L16
            share_in_order: caps.has(Capability::CasThenReadInOrder),
            //= docs/protocol/lock.md L6
            combine: options.combine && (!on_chip || caps.has(Capability::HostBeforeChip)),
            //= docs/protocol/lock.md L5
            release: match options.release {
                ReleaseBy::Faa => Release::Faa,
                //= docs/protocol/lock.md L15
                _ if options.shared && !options.flaws().blind_release => Release::Cas,
                _ if options.shared => Release::Write,
                ReleaseBy::Write => Release::Write,
                ReleaseBy::Auto if serialised => Release::Write,
                ReleaseBy::Auto => Release::Cas,
            },
        })
    }
}

/// One more who shares the lock: the highest 16 bits count them, so that nothing is carried out of their field.
pub(crate) const SHARE: u64 = 1 << SHARERS_SHIFT;
const SHARERS_SHIFT: u32 = 48;
/// What is the holder's of a word that can be shared.
const HELD_MASK: u64 = SHARE - 1;

/// Lock words by default; words whose highest 16 bits count who shares them; 16-bit lanes of a word with T-S13.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Word,
    Shared,
    Lane { shift: u32 },
}

/// One lock in remote memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// The 8-byte word.
    pub(crate) place: Place,
    pub(crate) kind: Kind,
}

impl Cell {
    /// The bits of the word that are this lock's.
    const fn mask(self) -> u64 {
        match self.kind {
            Kind::Word => u64::MAX,
            Kind::Shared => HELD_MASK,
            Kind::Lane { shift } => 0xFFFF << shift,
        }
    }

    pub(crate) const fn own(self, word: u64) -> u64 {
        word & self.mask()
    }

    /// How many share it, if it can be shared.
    #[inline]
    pub(crate) const fn sharers(self, word: u64) -> u64 {
        match self.kind {
            Kind::Shared => word >> SHARERS_SHIFT,
            Kind::Word | Kind::Lane { .. } => 0,
        }
    }

    /// The operands that take it.
    #[inline]
    pub(crate) fn take(self, client: ClientId, epoch: u8) -> MaskedCas {
        match self.kind {
            Kind::Word | Kind::Shared => LockWord::acquire(client, epoch),
            Kind::Lane { shift } => {
                let mask = 0xFFFF << shift;
                // One more than the id: 0 is a free lane.
                MaskedCas {
                    compare: 0,
                    compare_mask: mask,
                    swap: (u64::from(client.0) + 1) << shift,
                    swap_mask: mask,
                }
            }
        }
    }

    /// What it says, in the terms of a whole word.
    #[inline]
    pub(crate) fn word(self, raw: u64) -> LockWord {
        match self.kind {
            Kind::Word => LockWord::unpack(raw),
            Kind::Shared => LockWord::unpack(raw & HELD_MASK),
            Kind::Lane { shift } => {
                let tag = (raw >> shift) as u16;
                LockWord {
                    locked: tag != 0,
                    owner: tag.saturating_sub(1),
                    ..LockWord::default()
                }
            }
        }
    }

    /// The bits that its holder leaves behind.
    #[inline]
    pub(crate) fn released(self, raw: u64, payload: u32) -> u64 {
        match self.kind {
            Kind::Word => LockWord::unpack(raw).released(payload).pack(),
            Kind::Shared => LockWord::unpack(raw).released(payload).pack() & HELD_MASK,
            Kind::Lane { .. } => 0,
        }
    }

    /// What a release by FAA adds.
    pub(crate) fn difference(self, raw: u64, payload: u32) -> u64 {
        self.released(raw, payload).wrapping_sub(raw)
    }

    /// Appends the release of a lock held as `raw` by WRITE.
    // Always: a chain that is passed on in memory costs as much as the request.
    #[inline(always)]
    pub(crate) fn write_release<'v, V: Verbs, S>(
        self,
        chain: Chain<'v, V, S, Open>,
        raw: u64,
        payload: u32,
    ) -> Chain<'v, V, S, Open> {
        match self.kind {
            Kind::Word | Kind::Shared => chain.write_word(self.place, self.released(raw, payload)),
            Kind::Lane { shift } => chain.write(self.place.add(u64::from(shift / 8)), &[0; 2]),
        }
    }

    /// Appends the release of a lock held as `raw` by an atomic; it answers `raw` (in this lock's bits) if the lock
    /// was still held.
    pub(crate) fn atomic_release<'v, V: Verbs, S: Then<Old>>(
        self,
        chain: Chain<'v, V, S, Open>,
        raw: u64,
        payload: u32,
        release: Release,
    ) -> Chain<'v, V, S::Next, Open>
    where
        S::Next: Outputs<'v, V>,
    {
        let released = self.released(raw, payload);
        match (release, self.kind) {
            (Release::Faa, _) => chain.faa(self.place, self.difference(raw, payload)),
            (_, Kind::Word) => chain.free_cas(self.place, raw, released),
            (_, Kind::Shared | Kind::Lane { .. }) => {
                chain.free_masked_cas(self.place, self.own_cas(raw, released))
            }
        }
    }

    fn own_cas(self, compare: u64, swap: u64) -> MaskedCas {
        MaskedCas {
            compare,
            compare_mask: self.mask(),
            swap,
            swap_mask: self.mask(),
        }
    }

    /// Posts, unsignalled, the release of a lock held as `raw`. By a compare of all of its bits: it does nothing if
    /// another release came first, in whatever order they land.
    pub(crate) fn abandon<V: Verbs>(self, v: &V, raw: u64, payload: u32) {
        //= docs/protocol/lock.md L8
        let chain = v.chain(self.place.node());
        let Some(host) = self.to_be_flushed(v) else {
            return self
                .atomic_release(chain, raw, payload, Release::Cas)
                .post()
                .detach();
        };
        self.atomic_release(chain.word(host).fence(), raw, payload, Release::Cas)
            .post()
            .detach();
    }

    /// Posts, unsignalled, what gives a share back that was certainly taken, and not given back yet.
    #[cold]
    pub(crate) fn give_back<V: Verbs>(self, v: &V) {
        //= docs/protocol/lock.md L17
        let (chain, less) = (v.chain(self.place.node()), SHARE.wrapping_neg());
        match self.to_be_flushed(v) {
            None => chain.faa(self.place, less).post().detach(),
            Some(host) => chain.word(host).fence().faa(self.place, less).post().detach(),
        }
    }

    /// Where to READ before an atomic that must not overtake what this client wrote: to the host it may land after an
    /// atomic on the chip, and can't be awaited in a destructor. A READ of the host comes after those WRITEs, and a fence
    /// waits for its answer.
    fn to_be_flushed<V: Verbs>(self, v: &V) -> Option<RemotePtr> {
        let node = self.place.node();
        let flushed = self.place.space() == Space::Host || v.caps(node).has(Capability::HostBeforeChip);
        (!flushed).then(|| RemotePtr::new(node, 0).unwrap_or(RemotePtr::NULL))
    }
}

/// A CAS for a lock in flight, with what came along in its chain. Dropped before its answer is known, it undoes what
/// the CAS may do: behind it on the same queue pair, and naming this client, so that it does nothing if the CAS failed.
///
/// Made in the step that posted the CAS, so that no await lies between.
pub(crate) struct Attempt<'v, V: Verbs, S> {
    v: &'v V,
    ticket: Ticket<'v, V, S>,
    cell: Cell,
    how: How,
    /// The answer is not known.
    armed: bool,
}

/// What an attempt is to be undone by.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// It was a masked CAS with these operands.
    Masked(MaskedCas),
    /// It was a CAS from `before` to `taken`.
    Plain { taken: u64, before: u64 },
}

impl<'v, V: Verbs, S> Attempt<'v, V, S> {
    #[inline]
    pub(crate) fn new(v: &'v V, ticket: Ticket<'v, V, S>, cell: Cell, how: How) -> Self {
        Self {
            v,
            ticket,
            cell,
            how,
            armed: true,
        }
    }
}

impl How {
    /// What to do about an attempt that ended in an error.
    #[cold]
    pub(crate) fn failed<V: Verbs>(self, v: &V, cell: Cell, e: &VerbError) {
        // Else it is certain what the CAS did: nothing.
        if e.index != 0 || e.effect != Effect::None {
            self.undo(v, cell);
        }
    }

    #[cold]
    fn undo<V: Verbs>(self, v: &V, cell: Cell) {
        //= docs/protocol/lock.md L7
        match self {
            Self::Masked(take) => {
                let mask = match cell.kind {
                    Kind::Word | Kind::Shared => TAG_MASK,
                    Kind::Lane { .. } => take.swap_mask,
                };
                let undo = MaskedCas {
                    compare: take.swap,
                    compare_mask: mask,
                    swap: 0,
                    swap_mask: mask,
                };
                let chain = v.chain(cell.place.node());
                chain.free_masked_cas(cell.place, undo).post().detach();
            }
            Self::Plain { taken, before } => v.cas(cell.place, taken, before).detach(),
        }
    }
}

// Nothing points into it.
impl<V: Verbs, S> Unpin for Attempt<'_, V, S> {}

impl<'v, V: Verbs, S: Outputs<'v, V>> Future for Attempt<'v, V, S> {
    type Output = Result<S::Out, VerbError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = core::task::ready!(Pin::new(&mut self.ticket).poll(cx));
        self.armed = false;
        if let Err(e) = &answer {
            self.how.failed(self.v, self.cell, e);
        }
        Poll::Ready(answer)
    }
}

impl<V: Verbs, S> Drop for Attempt<'_, V, S> {
    #[inline]
    fn drop(&mut self) {
        if self.armed {
            self.how.undo(self.v, self.cell);
        }
    }
}

impl LockOptions {
    pub(crate) fn lanes(&self) -> u32 {
        if self.flaws().lanes16 { 4 } else { 1 }
    }
}
