//! Broken twins of reclamation, which can be switched on with the feature `study`.

use super::ReclaimOptions;

/// Errors of reclamation that can be switched on for the explorer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReclaimFlaws {
    /// A retired block is free at once.
    pub no_grace: bool,
    /// A reused block is handed out with the incarnation and version of its last node.
    pub same_life: bool,
    /// The current epoch is announced instead of the epoch of the oldest running operation.
    pub announces_now: bool,
    /// A silent member is removed without being fenced.
    pub no_fence: bool,
    /// A dead node is not marked dead. Code that writes nodes must obey this flaw.
    pub unburied: bool,
    /// Number of a beat's low bits that looks compare; 0 means all of them.
    pub beat_bits: u32,
    /// While one client announces its compute node, no other client may do so.
    pub one_announces: bool,
    /// A failed READ counts as proof that all earlier requests have landed.
    pub error_proves: bool,
    /// A member's clients begin shares while the gate is shut.
    pub gate_ignored: bool,
    /// A member does not mark the blocks that it has recorded during a census.
    pub unrecorded: bool,
    /// A member that leaves does not end the census.
    pub leaves_open: bool,
    /// A member that joins begins its record with its first look.
    pub joins_unrecorded: bool,
    /// A census does not learn of blocks that clients hold between their operations.
    pub unheld: bool,
}

#[cfg(feature = "study")]
impl ReclaimFlaws {
    /// None of them: the default.
    pub const NONE: Self = Self {
        no_grace: false,
        same_life: false,
        announces_now: false,
        no_fence: false,
        unburied: false,
        beat_bits: 0,
        one_announces: false,
        error_proves: false,
        gate_ignored: false,
        unrecorded: false,
        leaves_open: false,
        joins_unrecorded: false,
        unheld: false,
    };
}

impl ReclaimOptions {
    /// Returns the flaws that are switched on: none without the feature `study`.
    #[inline(always)]
    pub(crate) fn flaws(&self) -> ReclaimFlaws {
        #[cfg(feature = "study")]
        let flaws = self.flaws;
        #[cfg(not(feature = "study"))]
        let flaws = ReclaimFlaws::default();
        flaws
    }
}
