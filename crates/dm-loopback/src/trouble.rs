//! Memory nodes that are unreachable, or whose completions are lost.

/// The trouble of a memory node that was cut off. See [`crate::Loopback::cut`].
///
/// ```
/// use dm_loopback::{Loopback, Trouble, block_on};
/// use dm_verbs::{NodeId, RemotePtr, Verbs};
///
/// let world = Loopback::builder().nodes(1).build()?;
/// let (client, at) = (world.connect(0)?, RemotePtr::new(NodeId(0), 8192).expect("below 2^48"));
/// world.cut(NodeId(0), Trouble::AnswersLost);
/// assert!(block_on(async { client.faa(at, 1).await }).is_err());
/// world.restore(NodeId(0));
/// assert_eq!(block_on(async { client.word(at).await })?, 1, "it took effect all the same");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// No request reaches the node: chains fail without effect.
    Unreachable,
    /// Chains take effect, but their completions are lost, so the client does not know the effect.
    AnswersLost,
    /// The first requests of each chain take effect, up to this number, and the others do not. No completion arrives,
    /// so the client does not know the effect.
    LostAfter(u16),
}

impl Trouble {
    /// Encodes the trouble as a word of the control region; 0 means none.
    pub(crate) fn to_word(trouble: Option<Self>) -> u64 {
        match trouble {
            None => 0,
            Some(Self::Unreachable) => 1,
            Some(Self::AnswersLost) => 2,
            Some(Self::LostAfter(requests)) => 3 + u64::from(requests),
        }
    }

    pub(crate) fn from_word(word: u64) -> Option<Self> {
        match word {
            0 => None,
            1 => Some(Self::Unreachable),
            2 => Some(Self::AnswersLost),
            more => Some(Self::LostAfter(u16::try_from(more - 3).unwrap_or(u16::MAX))),
        }
    }

    /// Returns how many requests of a chain are carried out at most.
    pub(crate) fn carried_out(self) -> usize {
        match self {
            Self::Unreachable => 0,
            Self::AnswersLost => usize::MAX,
            Self::LostAfter(requests) => usize::from(requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_troubles_decode() {
        let all = [
            Trouble::Unreachable,
            Trouble::AnswersLost,
            Trouble::LostAfter(0),
            Trouble::LostAfter(9),
        ];
        for trouble in all.map(Some).into_iter().chain([None]) {
            assert_eq!(Trouble::from_word(Trouble::to_word(trouble)), trouble);
        }
    }
}
