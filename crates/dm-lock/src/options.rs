//! How a compute node locks: every technique a switch, every published flaw a name.

use dm_verbs::{Capability, Caps, Refused};

/// Consecutive handovers of one lock unless asked otherwise (Sherman §4.3).
pub const DEFAULT_HANDOVER_MAX: u32 = 4;
/// Attempts at one remote lock unless asked otherwise: about a second where an attempt takes 0.1 µs (loopback), so
/// that a holder whose thread is not running for a while is waited for; some 20 seconds over a network.
pub const DEFAULT_BUDGET: u32 = 1 << 23;

/// How clients of one compute node queue among themselves before they go for the remote lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Local {
    /// Not at all: each client tries the remote lock.
    Off,
    /// A local lock without a queue: whoever comes first after a release has it. No handover.
    Spin,
    /// A FIFO queue per lock (Sherman §4.3), and handover of the remote lock to the next in it.
    Queue {
        /// Most handovers in a row; 0 for none.
        handover_max: u32,
    },
}

impl Local {
    /// A queue with so many handovers, or no local lock at all.
    pub const fn queue_if(hierarchical: bool, handover_max: u32) -> Self {
        match hierarchical {
            true => Self::Queue { handover_max },
            false => Self::Off,
        }
    }
}

/// Where lock tables lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockPlace {
    /// In the NIC's own memory.
    Chip,
    /// In host memory.
    Host,
}

impl LockPlace {
    /// On chip, or in host memory.
    pub const fn chip_if(on_chip: bool) -> Self {
        match on_chip {
            true => Self::Chip,
            false => Self::Host,
        }
    }
}

/// By which verb a lock is released.
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
    /// WRITE where the world serialises atomics with WRITEs, else CAS.
    Auto,
    /// A plain 8-byte WRITE; refused where an atomic may overwrite it.
    Write,
    /// Fetch-and-add of the difference (FG's way).
    Faa,
}

/// Published flaws, each to be switched on alone for study. All off is correct.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockFlaws {
    /// T-S3: the lock is handed over before the holder's write-back is posted (Sherman Fig. 6). Loses updates.
    pub handover_before_write_back: bool,
    /// T-S6: the local lock is a packed ticket word whose two fields have this many bits, and the count of tickets
    /// carries into the number being served. Replaces [`LockOptions::local`]. 1 to 32.
    pub packed_tickets: Option<u32>,
    /// T-R4: the local lock draws tickets of this many bits, and lets in whoever has the number being served: with
    /// 2^bits clients ahead of it, one more is let in beside the holder. Replaces [`LockOptions::local`]. 1 to 32.
    pub narrow_tickets: Option<u32>,
    /// T-D3: who shared a lock goes on as soon as the chain that writes and gives the share back is posted.
    pub leave_unawaited: bool,
    /// A broken twin of ours: a lock that others share is given back by WRITE, over what they added meanwhile.
    pub blind_release: bool,
    /// A broken twin of ours: whoever gets the local turn posts its CAS while an unlock that was left behind under
    /// another client's name may still be under way.
    pub unsettled_ignored: bool,
    /// A broken twin of ours: a client that leaves an unlock behind under another's name does not say so to the next.
    pub unsettled_unsaid: bool,
    /// T-S13: four 16-bit locks in a word (Sherman §4.3), no epoch, count or payload. A release by 2-byte WRITE
    /// beside a CAS on another lane of the word is lost where the two are not serialised.
    pub lanes16: bool,
}

/// Everything that can be chosen about locking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockOptions {
    /// Queueing inside the compute node.
    pub local: Local,
    /// Where the tables are to lie.
    pub place: LockPlace,
    /// The releasing verb.
    pub release: ReleaseBy,
    /// Lock and READ in one chain, where the world serves the READ after the CAS.
    pub lock_and_read: bool,
    /// Unlock in the chain of the write-back; off: the write-back is awaited first.
    pub combine: bool,
    /// Attempts at one remote lock before [`crate::LockError::Held`].
    pub budget: u32,
    /// Locks may be shared ([`crate::Locks::share_and_read`]): who takes one for itself waits until nobody shares it, and gives
    /// it back by a masked CAS. Needs masked atomics. Payloads have 16 bits then. Equal among all clients of a pool.
    pub shared: bool,
    /// The compute node's lease epoch, named in the words it takes.
    pub epoch: u8,
    /// Flaws.
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
            epoch: 0,
            flaws: LockFlaws::default(),
        }
    }
}

impl LockOptions {
    /// What these options can't do without, to the letter (nothing falls back).
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
            (self.flaws.lanes16 || self.shared, Capability::MaskedAtomics),
        ]
        .into_iter()
        .filter_map(|(needed, capability)| needed.then_some(capability))
        .collect()
    }

    /// The nearest that a world with these promises can do: tables in host memory where there is no chip, one round
    /// trip more where a combined unlock or a lock-and-read is not in order, release by atomic where WRITEs race.
    /// Locks do the same by themselves for all but the place and sharing, where clients of a pool must agree.
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

    /// Refuses by name what can be done neither as asked nor by falling back.
    ///
    /// # Errors
    /// [`Refused`]: release by WRITE where atomics race with it, lanes or sharing without masked atomics.
    #[inline]
    pub fn check(&self, caps: &Caps) -> Result<(), Refused> {
        if self.release == ReleaseBy::Write {
            caps.require("a lock released by WRITE", &[Capability::AtomicVsWriteSerialised])?;
        }
        if self.flaws.lanes16 {
            caps.require("16-bit lock lanes", &[Capability::MaskedAtomics])?;
        }
        if self.shared {
            caps.require("locks that can be shared", &[Capability::MaskedAtomics])?;
        }
        Ok(())
    }
}
