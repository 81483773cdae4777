//! Options of locking: each technique has a switch, and each published flaw has a name.

use dm_verbs::{Capability, Caps, Refused};

#[cfg(feature = "study")]
use crate::LockFlaws;

/// Default limit on consecutive handovers of one lock (Sherman §4.3).
pub const DEFAULT_HANDOVER_MAX: u32 = 4;
/// Default number of attempts to take one remote lock. So many attempts last about 20 seconds over a network, and about
/// a second on loopback (0.1 µs per attempt). This is longer than the time for which the thread of a holder is normally
/// descheduled.
pub const DEFAULT_BUDGET: u32 = 1 << 23;

/// The kind of queue in which clients of one compute node wait before they try the remote lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Local {
    /// There are no local locks: each client tries the remote lock.
    Off,
    /// A local lock without a queue: the first client that tries after a release takes it. There is no handover.
    Spin,
    /// A FIFO queue per lock (Sherman §4.3); a holder can hand the remote lock to the next client in the queue.
    Queue {
        /// Maximum number of consecutive handovers; 0 for none.
        handover_max: u32,
    },
}

impl Local {
    /// Returns a queue with this limit on handovers if `hierarchical` is set, and no local locks otherwise.
    pub const fn queue_if(hierarchical: bool, handover_max: u32) -> Self {
        match hierarchical {
            true => Self::Queue { handover_max },
            false => Self::Off,
        }
    }
}

/// The kind of memory that holds the lock tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockPlace {
    /// The RNIC's on-chip memory.
    Chip,
    /// Host memory.
    Host,
}

impl LockPlace {
    /// Returns [`LockPlace::Chip`] if `on_chip` is set, and [`LockPlace::Host`] otherwise.
    pub const fn chip_if(on_chip: bool) -> Self {
        match on_chip {
            true => Self::Chip,
            false => Self::Host,
        }
    }
}

/// The verb that releases a lock. A lock that [can be shared](LockOptions::shared) is released by a masked CAS instead.
///
/// ```
/// use dm_lock::{LockOptions, LockPlace, ReleaseBy};
/// use dm_verbs::Capability;
///
/// let options = LockOptions { place: LockPlace::Host, lock_and_read: false, ..LockOptions::default() };
/// assert!(options.needs().is_empty(), "there is a verb for every world");
/// let by_write = LockOptions { release: ReleaseBy::Write, ..options };
/// assert_eq!(by_write.needs(), [Capability::AtomicVsWriteSerialised]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseBy {
    /// A WRITE if the world serialises atomics with WRITEs, otherwise a CAS.
    Auto,
    /// A plain 8-byte WRITE. It is refused if the world does not serialise atomics with WRITEs, because an atomic
    /// could then undo it.
    Write,
    /// A fetch-and-add of the difference, as in the baseline FG of the Sherman paper.
    Faa,
}

/// Options of a compute node's locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockOptions {
    /// The kind of local queue.
    pub local: Local,
    /// The kind of memory for the lock tables.
    pub place: LockPlace,
    /// The verb that releases a lock.
    pub release: ReleaseBy,
    /// Whether [`crate::Locks::lock_and_read`] posts CAS and READ in one chain, if the world executes them in order.
    pub lock_and_read: bool,
    /// Whether the unlock is posted in the chain of the write-back, if the world executes them in order. Otherwise the
    /// write-back is awaited first.
    pub combine: bool,
    /// Maximum number of attempts to take one remote lock; exceeding it returns [`crate::LockError::Held`]. It also
    /// limits the wait for sharers, which ends in [`crate::LockError::Shared`].
    pub budget: u32,
    /// Whether locks can be shared ([`crate::Locks::share_and_read`]). A client that takes such a lock waits until the
    /// lock has no sharers, and releases the lock by a masked CAS. This needs masked atomics and leaves 16 bits for
    /// payloads. All clients of a pool must use the same value.
    pub shared: bool,
    /// Published flaws and broken twins that are switched on.
    #[cfg(feature = "study")]
    pub flaws: LockFlaws,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            local: Local::Queue {
                handover_max: DEFAULT_HANDOVER_MAX,
            },
            place: LockPlace::Chip,
            release: ReleaseBy::Auto,
            lock_and_read: true,
            combine: true,
            budget: DEFAULT_BUDGET,
            shared: false,
            #[cfg(feature = "study")]
            flaws: LockFlaws::default(),
        }
    }
}

impl LockOptions {
    /// Returns the capabilities that the chosen techniques need. If one of them is missing, the locks refuse to work or
    /// use a fallback ([`LockOptions::fit`]). Plain locks and [`ReleaseBy::Auto`] work in every world and need no
    /// capability, although they use masked atomics and serialised WRITEs if the world has them.
    pub fn needs(&self) -> Vec<Capability> {
        let chip = self.place == LockPlace::Chip;
        [
            (chip, Capability::ChipMemory),
            (chip && self.combine, Capability::HostBeforeChip),
            (self.lock_and_read, Capability::CasThenReadInOrder),
            (
                self.release == ReleaseBy::Write,
                Capability::AtomicVsWriteSerialised,
            ),
            (self.flaws().lanes16 || self.shared, Capability::MaskedAtomics),
        ]
        .into_iter()
        .filter_map(|(needed, capability)| needed.then_some(capability))
        .collect()
    }

    /// Returns the nearest options that a world with these capabilities supports. Tables move to host memory if there
    /// is no on-chip memory. A combined unlock or a lock-and-read that the world does not order costs one more round
    /// trip. If WRITEs race with atomics, an atomic releases locks. Without masked atomics, sharing is turned off.
    ///
    /// Without this call, locks use the same fallbacks for a combined unlock, for lock-and-read and for
    /// [`ReleaseBy::Auto`], and refuse [`ReleaseBy::Write`] if WRITEs race with atomics. They never change the place
    /// or turn sharing off, because all clients of a pool must use the same ones.
    #[must_use]
    pub fn fit(mut self, caps: &Caps) -> Self {
        if !caps.has(Capability::ChipMemory) {
            self.place = LockPlace::Host;
        }
        self.combine &= self.place == LockPlace::Host || caps.has(Capability::HostBeforeChip);
        self.lock_and_read &= caps.has(Capability::CasThenReadInOrder);
        self.shared &= caps.has(Capability::MaskedAtomics);
        if self.release == ReleaseBy::Write && !caps.has(Capability::AtomicVsWriteSerialised) {
            self.release = ReleaseBy::Auto;
        }
        self
    }

    /// Refuses options that the world supports neither directly nor by a fallback. Does not check
    /// [`LockOptions::place`].
    ///
    /// # Errors
    /// Returns [`Refused`], which names the missing capability. Release by WRITE is refused if atomics race with
    /// WRITEs; 16-bit lanes and sharing are refused without masked atomics.
    #[inline]
    pub fn check(&self, caps: &Caps) -> Result<(), Refused> {
        if self.release == ReleaseBy::Write {
            caps.require("a lock released by WRITE", &[Capability::AtomicVsWriteSerialised])?;
        }
        if self.flaws().lanes16 {
            caps.require("a 16-bit lock lane", &[Capability::MaskedAtomics])?;
        }
        if self.shared {
            caps.require("a lock that can be shared", &[Capability::MaskedAtomics])?;
        }
        Ok(())
    }
}
