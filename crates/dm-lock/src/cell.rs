//! The remote side of one lock: the requests that take, release and undo its word (or, with T-S13, its lane).

use core::fmt;

use dm_sync::atomic::{AtomicU8, Ordering};
use dm_verbs::{
    Capability, Caps, Chain, ClientId, MaskedCas, Old, Open, Outputs, Place, Refused, RemotePtr, Space, Then,
    Verbs,
};

use crate::word::{BESIDE, TAG_MASK};
use crate::{LockOptions, LockWord, ReleaseBy};

/// The verbs that the locks of a memory node use, and their order, packed into a few bits. A compute node stores a plan
/// for each memory node ([`Plans`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan(u8);

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("masked", &self.masked())
            .field("read_in_order", &self.read_in_order())
            .field("share_in_order", &self.share_in_order())
            .field("combine", &self.combine())
            .field("release", &self.release())
            .finish()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    Write,
    Faa,
    Cas,
}

impl Plan {
    const MASKED: u8 = 1;
    const READ_IN_ORDER: u8 = 1 << 1;
    const SHARE_IN_ORDER: u8 = 1 << 2;
    const COMBINE: u8 = 1 << 3;
    const RELEASE_FAA: u8 = 1 << 4;
    const RELEASE_CAS: u8 = 1 << 5;
    /// Set in every plan, so that 0 means that no plan was computed yet.
    const KNOWN: u8 = 1 << 7;

    /// Computes the plan. It uses a fallback if the world lacks a capability that the options need. If there is no
    /// fallback, the options are refused.
    pub(crate) fn new<V: Verbs>(v: &V, options: &LockOptions, word: Place) -> Result<Self, Refused> {
        let caps = v.caps(word.node());
        options.check(&caps)?;
        let serialised = caps.has(Capability::AtomicVsWriteSerialised);
        let on_chip = word.space() == Space::Chip;
        let in_order = caps.has(Capability::CasThenReadInOrder);
        //= docs/protocol/lock.md L5
        let release = match options.release {
            ReleaseBy::Faa => Release::Faa,
            //= docs/protocol/lock.md L15
            _ if options.shared && !options.flaws().blind_release => Release::Cas,
            _ if options.shared => Release::Write,
            ReleaseBy::Write => Release::Write,
            ReleaseBy::Auto if serialised => Release::Write,
            ReleaseBy::Auto => Release::Cas,
        };
        let bits = [
            (true, Self::KNOWN),
            (caps.has(Capability::MaskedAtomics), Self::MASKED),
            //= docs/protocol/lock.md L3
            (options.lock_and_read && in_order, Self::READ_IN_ORDER),
            //= docs/protocol/lock.md L16
            (in_order, Self::SHARE_IN_ORDER),
            //= docs/protocol/lock.md L6
            (
                options.combine && (!on_chip || caps.has(Capability::HostBeforeChip)),
                Self::COMBINE,
            ),
            (release == Release::Faa, Self::RELEASE_FAA),
            (release == Release::Cas, Self::RELEASE_CAS),
        ];
        let set = |bits, (on, bit): (bool, u8)| if on { bits | bit } else { bits };
        Ok(Self(bits.into_iter().fold(0, set)))
    }

    #[inline]
    const fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    #[inline]
    pub(crate) const fn masked(self) -> bool {
        self.has(Self::MASKED)
    }

    #[inline]
    pub(crate) const fn read_in_order(self) -> bool {
        self.has(Self::READ_IN_ORDER)
    }

    /// Returns whether a READ is served after the FAA of a share in its chain. No option turns this off.
    #[inline]
    pub(crate) const fn share_in_order(self) -> bool {
        self.has(Self::SHARE_IN_ORDER)
    }

    #[inline]
    pub(crate) const fn combine(self) -> bool {
        self.has(Self::COMBINE)
    }

    #[inline]
    pub(crate) const fn release(self) -> Release {
        if self.has(Self::RELEASE_CAS) {
            Release::Cas
        } else if self.has(Self::RELEASE_FAA) {
            Release::Faa
        } else {
            Release::Write
        }
    }
}

/// The plans of all memory nodes. A client that takes or shares a lock computes the plan if none is stored.
#[derive(Debug)]
pub(crate) struct Plans(Box<[AtomicU8]>);

impl Plans {
    pub(crate) fn new(memory_nodes: usize) -> Self {
        Self((0..memory_nodes).map(|_| AtomicU8::new(0)).collect())
    }

    /// Returns the plan of `word`'s memory node. All clients of a compute node that are connected have the same
    /// capabilities there.
    #[inline(always)]
    pub(crate) fn of<V: Verbs>(&self, v: &V, options: &LockOptions, word: Place) -> Result<Plan, Refused> {
        let kept = &self.0[usize::from(word.node().0)];
        // Relaxed: the byte publishes nothing else, and a client that does not see it computes the same plan.
        let plan = Plan(kept.load(Ordering::Relaxed));
        if plan.has(Plan::KNOWN) {
            return Ok(plan);
        }
        Self::made(kept, v, options, word)
    }

    #[cold]
    fn made<V: Verbs>(kept: &AtomicU8, v: &V, options: &LockOptions, word: Place) -> Result<Plan, Refused> {
        let plan = Plan::new(v, options, word)?;
        // A client that is not connected yet reports the default capabilities, but another client may report others.
        // So this plan is not kept.
        if v.caps(word.node()) != Caps::default() {
            // Relaxed: as above.
            kept.store(plan.0, Ordering::Relaxed);
        }
        Ok(plan)
    }
}

/// The addend of the FAA that adds one sharer. The highest 16 bits count the sharers, so an overflow changes no other
/// bits.
pub(crate) const SHARE: u64 = 1 << SHARERS_SHIFT;
const SHARERS_SHIFT: u32 = 48;
/// The bits of a word that belong to the holder if the lock can be shared.
const HELD_MASK: u64 = SHARE - 1;

/// The kind of lock word: a plain word, a word whose highest 16 bits count its sharers, or a 16-bit lane of a word
/// (T-S13).
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
    /// Returns the bits of the word that belong to this lock.
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

    /// Returns the number of clients that share the lock; 0 if it cannot be shared.
    #[inline]
    pub(crate) const fn sharers(self, word: u64) -> u64 {
        match self.kind {
            Kind::Shared => word >> SHARERS_SHIFT,
            Kind::Word | Kind::Lane { .. } => 0,
        }
    }

    /// Returns whether a client that finds `word` must not share the lock.
    //= docs/protocol/lock.md L19
    #[inline]
    pub(crate) fn excludes(self, word: u64) -> bool {
        self.word(word).locked && word & BESIDE == 0
    }

    /// Returns the operands of the CAS that takes the lock. If `beside` is set, and the lock can be shared, the holder
    /// lets other clients share it.
    #[inline]
    pub(crate) fn take(self, client: ClientId, member: u16, beside: bool) -> MaskedCas {
        match self.kind {
            Kind::Word => LockWord::acquire(client, member),
            //= docs/protocol/lock.md L19
            Kind::Shared => {
                let take = LockWord::acquire(client, member);
                MaskedCas {
                    swap: take.swap | if beside { BESIDE } else { 0 },
                    swap_mask: take.swap_mask | BESIDE,
                    ..take
                }
            }
            Kind::Lane { shift } => {
                let mask = 0xFFFF << shift;
                // A lane holds the client's id plus 1, because 0 means that the lane is free.
                MaskedCas {
                    compare: 0,
                    compare_mask: mask,
                    swap: (u64::from(client.0) + 1) << shift,
                    swap_mask: mask,
                }
            }
        }
    }

    /// Decodes the word. A lane is decoded as a [`LockWord`] with only a lock bit and an owner.
    #[inline]
    pub(crate) fn word(self, raw: u64) -> LockWord {
        match self.kind {
            Kind::Word => LockWord::unpack(raw),
            Kind::Shared => LockWord::unpack(raw & HELD_MASK & !BESIDE),
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

    /// Returns the bits after a release.
    #[inline]
    pub(crate) fn released(self, raw: u64, payload: u32) -> u64 {
        match self.kind {
            Kind::Word => LockWord::unpack(raw).released(payload).pack(),
            Kind::Shared => LockWord::unpack(raw).released(payload).pack() & HELD_MASK & !BESIDE,
            Kind::Lane { .. } => 0,
        }
    }

    /// Returns the addend of a release by FAA.
    pub(crate) fn difference(self, raw: u64, payload: u32) -> u64 {
        self.released(raw, payload).wrapping_sub(raw)
    }

    /// Appends the release, by WRITE, of a lock held as `raw`.
    // This is always inlined, because passing a chain in memory costs as much as the request.
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

    /// Appends the release, by an atomic, of a lock held as `raw`. The atomic returns `raw` (in this lock's bits) if
    /// the lock was still held.
    #[inline]
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

    /// Posts the release of a lock that is held as `raw`, without awaiting it. The request compares all bits of the
    /// lock, so it does nothing if another release took effect first.
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

    /// Posts the release of a share, without awaiting it. The share must not have been released yet. It was certainly
    /// taken, or the request that takes it is in flight on the same queue pair.
    #[cold]
    pub(crate) fn give_back<V: Verbs>(self, v: &V) {
        //= docs/protocol/lock.md L17
        let (chain, less) = (v.chain(self.place.node()), SHARE.wrapping_neg());
        match self.to_be_flushed(v) {
            None => chain.faa(self.place, less).post().detach(),
            Some(host) => chain.word(host).fence().faa(self.place, less).post().detach(),
        }
    }

    /// Returns the address to READ before an atomic that must not overtake this client's WRITEs. A WRITE to host memory
    /// may take effect after a later atomic on the chip, and a destructor cannot await it. A READ of host memory
    /// executes after these WRITEs, and a fence delays the atomic until this READ has completed. Returns `None` if the
    /// atomic cannot overtake the WRITEs.
    fn to_be_flushed<V: Verbs>(self, v: &V) -> Option<RemotePtr> {
        let node = self.place.node();
        let flushed = self.place.space() == Space::Host || v.caps(node).has(Capability::HostBeforeChip);
        (!flushed).then(|| RemotePtr::new(node, 0).unwrap_or(RemotePtr::NULL))
    }
}

impl Cell {
    /// Posts the undo of a masked CAS with the operands `take`, without awaiting it.
    #[cold]
    pub(crate) fn undo<V: Verbs>(self, v: &V, take: MaskedCas) {
        let mask = match self.kind {
            Kind::Word | Kind::Shared => TAG_MASK,
            Kind::Lane { .. } => take.swap_mask,
        };
        let undo = MaskedCas {
            compare: take.swap,
            compare_mask: mask,
            swap: 0,
            swap_mask: mask,
        };
        let chain = v.chain(self.place.node());
        chain.free_masked_cas(self.place, undo).post().detach();
    }
}

impl LockOptions {
    pub(crate) fn lanes(&self) -> u32 {
        if self.flaws().lanes16 { 4 } else { 1 }
    }
}
