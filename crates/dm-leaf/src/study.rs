//! Published flaws and broken twins, which the feature `study` switches on.

use crate::NodeOptions;

/// Published flaws and broken twins of nodes, for study. All are off by default, and each has a counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeafFlaws {
    /// T-S1: an entry whose versions disagree counts as absent instead of being read again.
    pub torn_entry_absent: bool,
    /// T-S2b: a READ that took longer than the version window is not repeated.
    pub no_read_window: bool,
    /// T-S4, T-D6: a split updates the parent, or the separator, before the WRITE of the old node has completed.
    pub parent_before_left: bool,
    /// Broken twin: the left node points to the right node before the WRITE of the right node has completed (S12).
    pub right_unawaited: bool,
    /// T-C3: the right node of a split is live from the start and holds the entry that caused the split, while the
    /// left node may still be half written (H6).
    pub right_born_live: bool,
    /// Broken twin: a merge makes the left node, with the keys of both, live before the right node is dead (S24).
    pub open_before_burial: bool,
    /// T-D7, T-B4: if locks are shared, a remove, and an insert into a free slot, share the node's lock as an update
    /// does. A value can end up under another key, and two clients can insert one key.
    pub slots_shared: bool,
    /// T-B3: an insert of a word writes the word first, and its key afterwards.
    pub pointer_first: bool,
    /// T-D14: if locks are shared, an update of a value that spans several lines shares the node's lock too. Two
    /// concurrent updates then write the same version, and their lines stay mixed.
    pub lines_shared: bool,
    /// Broken twin: a merged node is not marked dead. The models of reclamation use it.
    pub unburied: bool,
    /// Broken twin: a client that finishes another client's merge holds the lock of only one of the two nodes (S24a).
    pub one_lock_mends: bool,
    /// Broken twin: a client that finishes another client's merge makes both nodes live, although the left one may
    /// already have the right one's keys (S24a).
    pub reopens_widened: bool,
    /// Broken twin: a writer that finds a torn node waits for the client that was writing it, although the suspect lock
    /// word shows that this client is gone (S24b).
    pub forgets_doubt: bool,
    /// Broken twin: a writer that got the address of an unborn node from a cache waits for the client that made the
    /// node, although that client may have died (R9).
    pub waits_for_unborn: bool,
}

#[cfg(feature = "study")]
impl LeafFlaws {
    /// No flaw, which is the default.
    pub const NONE: Self = Self {
        torn_entry_absent: false,
        no_read_window: false,
        parent_before_left: false,
        right_unawaited: false,
        right_born_live: false,
        slots_shared: false,
        pointer_first: false,
        lines_shared: false,
        open_before_burial: false,
        unburied: false,
        one_lock_mends: false,
        reopens_widened: false,
        forgets_doubt: false,
        waits_for_unborn: false,
    };
}

impl NodeOptions {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> LeafFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = LeafFlaws::default();
        flaws
    }
}
