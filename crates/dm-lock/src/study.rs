//! Published flaws and broken twins, which can be switched on with the feature `study`.

use crate::LockOptions;

/// Published flaws and broken twins, for study. Each can be switched on alone. The default has none and is correct.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockFlaws {
    /// T-S3: a holder hands the lock over before it posts its write-back (Sherman Fig. 6). Updates get lost.
    pub handover_before_write_back: bool,
    /// T-S6: the local lock is a packed ticket word with two fields of this many bits, 1 to 32. An overflow of the
    /// count of tickets changes the number that is being served. Replaces [`LockOptions::local`].
    pub packed_tickets: Option<u32>,
    /// T-R4: the local lock draws tickets of this many bits, 1 to 32. Every client whose ticket equals the number that
    /// is being served gets the turn. A client with 2^bits clients ahead of it gets the turn together with the holder.
    /// Replaces [`LockOptions::local`].
    pub narrow_tickets: Option<u32>,
    /// T-D3: a client that shared a lock does not await the chain that writes its data and releases the share.
    pub leave_unawaited: bool,
    /// Broken twin: the release of a lock that can be shared is a WRITE, which overwrites a concurrent change
    /// of the count of sharers.
    pub blind_release: bool,
    /// T-B1: the READ stands before the FAA that takes a share, in the same chain.
    pub read_before_share: bool,
    /// T-B2: a client that waits until no client shares its lock does not READ again afterwards.
    pub read_while_shared: bool,
    /// Broken twin: the client that gets the local turn does not wait for an unsettled word. So it may post its CAS
    /// while an earlier unlock is in flight.
    pub unsettled_ignored: bool,
    /// Broken twin: a client whose unlock of a word that names another client is not awaited does not pass this word
    /// to the next client. So the next client may post its CAS while the unlock is in flight.
    pub unsettled_unsaid: bool,
    /// T-S13: four 16-bit locks in a word (Sherman §4.3), without member, count or payload. If the world does not
    /// serialise atomics with WRITEs, a CAS on another lane of the word can undo a release by a 2-byte WRITE.
    pub lanes16: bool,
}

#[cfg(feature = "study")]
impl LockFlaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        handover_before_write_back: false,
        packed_tickets: None,
        narrow_tickets: None,
        leave_unawaited: false,
        blind_release: false,
        read_before_share: false,
        read_while_shared: false,
        unsettled_ignored: false,
        unsettled_unsaid: false,
        lanes16: false,
    };
}

impl LockOptions {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> LockFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = LockFlaws::default();
        flaws
    }
}
