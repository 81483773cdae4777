//! Published flaws and broken twins, which the feature `study` switches on.

use crate::LockOptions;

/// Published flaws, each of which can be switched on alone for study. The default has none and is correct.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockFlaws {
    /// T-S3: a holder hands the lock over before it posts its write-back (Sherman Fig. 6). Updates get lost.
    pub handover_before_write_back: bool,
    /// T-S6: the local lock is a packed ticket word with two fields of this many bits, 1 to 32. The count of tickets
    /// carries into the number that is being served. Replaces [`LockOptions::local`].
    pub packed_tickets: Option<u32>,
    /// T-R4: the local lock draws tickets of this many bits, 1 to 32, and lets in every client whose ticket equals
    /// the number that is being served. If 2^bits clients are ahead of a client, it is let in beside the holder.
    /// Replaces [`LockOptions::local`].
    pub narrow_tickets: Option<u32>,
    /// T-D3: a client that shared a lock does not await the chain that writes its data and gives the share back.
    pub leave_unawaited: bool,
    /// Broken twin: a lock that can be shared is released by WRITE, which overwrites a change of the count of
    /// sharers.
    pub blind_release: bool,
    /// Broken twin: the client that gets the local turn posts its CAS although an earlier unlock under
    /// another client's name may still be in flight.
    pub unsettled_ignored: bool,
    /// Broken twin: a client that leaves an unlock in flight under another client's name does not tell the
    /// next client.
    pub unsettled_unsaid: bool,
    /// T-S13: four 16-bit locks in a word (Sherman §4.3), without epoch, count or payload. If the world does not
    /// serialise atomics with WRITEs, a CAS on another lane of the word can undo a release by a 2-byte WRITE.
    pub lanes16: bool,
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
