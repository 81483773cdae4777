//! Reads all leaves in which a key may be, as published for ROLEX.

use dm_index::{Answer, Applied, IndexError, KeyBytes, Lead, NodeAccess, NodeCopies, NodeCopy, Stale, Write};
use dm_sync::{Arc, Mutex};
use dm_verbs::{LocalStep, RemotePtr, Verbs};
use smallvec::SmallVec;

use crate::known::Known;

/// Number of leaves of a run that need no allocation: with an error of 16 and leaves of 16 entries, a run has at most
/// four leaves, each with a synonym leaf.
const INLINE: usize = 8;

/// An access to leaves that reads the run of a key, with one doorbell for each memory node.
/// [`Learned::runs`](crate::Learned::runs) makes it.
///
/// * A get reads the run and, after each of its leaves, one synonym leaf if its compute node knows any. If none of them
///   covers the key, it takes steps to the right from the leaf to which the hint leads.
/// * A write does the same before it locks the key's leaf and reads that leaf again. A write that may add the key reads
///   no synonym leaves.
/// * An operation that follows a sibling pointer reads only the leaf to which the pointer leads.
///
/// A run is only a hint: the fence keys of each of its leaves show whether it is the key's leaf. If the key's leaf is
/// torn or dead, or if the run cannot be read, the operation goes on as if there were no run.
#[derive(Debug)]
pub struct Runs<K: KeyBytes, A> {
    pub(crate) leaves: A,
    pub(crate) known: Arc<Mutex<Known<K>>>,
}

/// The result of the READs of a run.
enum Seen {
    /// This leaf covers the key. The flag says whether the key is present.
    Here(RemotePtr, bool),
    /// The leaf to which the hint leads ends below the key. The operation continues at its right neighbour.
    Right(Lead),
    /// The READs do not show where the key is.
    Nothing,
}

impl<K: KeyBytes, A> Runs<K, A> {
    /// Reads the run of `key`, whose hint leads to `lead`, with known synonym leaves if `synonyms` is set. If the key
    /// is present, `found` receives its value.
    async fn read<V: Verbs>(
        &self,
        v: &V,
        lead: RemotePtr,
        (key, synonyms): (&K, bool),
        mut found: impl FnMut(&[u8]),
    ) -> Seen
    where
        A: NodeAccess<V, K, Whole: NodeCopies<V, K>>,
    {
        let mut at = SmallVec::<[RemotePtr; INLINE]>::new();
        v.local(LocalStep::Section).await;
        self.known.with(|known| known.predicted(key, synonyms, &mut at));
        // A write that may add the key reads a synonym leaf only under that leaf's lock.
        if at.is_empty() || synonyms && !at.contains(&lead) {
            at.push(lead);
        }
        let (mut seen, mut copy) = (Seen::Nothing, NodeCopy::new());
        let reading = self.leaves.whole().copies_at_once(v, &at, &mut copy, |copy| {
            //= docs/protocol/reclaim.md R9
            let usable = copy.level == 0 && !copy.unborn;
            // If a split moves the key meanwhile, two leaves may cover it. Each was right at some moment of the READs.
            if !usable || matches!(seen, Seen::Here(..)) {
                return;
            }
            if copy.fences.contains(key) {
                let entry = copy.entries.binary_search_by(|(other, _)| other.cmp(key));
                if let Some((_, value)) = entry.ok().and_then(|nth| copy.iter().nth(nth)) {
                    found(value);
                }
                seen = Seen::Here(copy.at, entry.is_ok());
            } else if copy.at == lead && copy.fences.is_below(key) && !copy.sibling.is_null() {
                seen = Seen::Right(Lead::linked(copy.sibling));
            }
        });
        //= docs/protocol/rolex.md X9
        let _errors_may_be_those_of_other_leaves = reading.await;
        if let Seen::Here(leaf, _) = seen
            && leaf != lead
        {
            //= docs/protocol/rolex.md X6
            v.local(LocalStep::Section).await;
            self.known.with(|known| known.forget_of(key, lead));
        }
        seen
    }
}

impl<V: Verbs, K: KeyBytes, A: NodeAccess<V, K>> NodeAccess<V, K> for Runs<K, A> {
    type Whole = A::Whole;

    fn whole(&self) -> &Self::Whole {
        self.leaves.whole()
    }

    fn value_bytes(&self) -> usize {
        self.leaves.value_bytes()
    }

    async fn get(
        &self,
        v: &V,
        at: Lead,
        level: u8,
        key: &K,
        value: &mut Vec<u8>,
    ) -> Result<Answer<K, bool>, IndexError> {
        if !at.linked {
            let keep = |found: &[u8]| {
                value.clear();
                value.extend_from_slice(found);
            };
            match self.read(v, at.at, (key, true), keep).await {
                Seen::Here(_, found) => return Ok(Answer::Done(found)),
                Seen::Right(lead) => return Ok(Answer::Stale(Stale::Right(lead))),
                Seen::Nothing => {}
            }
        }
        self.leaves.get(v, at, level, key, value).await
    }

    async fn write(
        &self,
        v: &V,
        mut at: Lead,
        level: u8,
        key: &K,
        write: Write<'_>,
        after: Option<&mut NodeCopy<K>>,
    ) -> Result<Answer<K, Applied>, IndexError> {
        if !at.linked {
            let adds = matches!(
                write,
                Write::Insert(_) | Write::Upsert(_) | Write::Exchange { before: None, .. }
            );
            match self.read(v, at.at, (key, !adds), |_| ()).await {
                Seen::Here(_, false)
                    if matches!(write, Write::Update(_) | Write::Remove | Write::Swap { .. }) =>
                {
                    return Ok(Answer::Done(Applied::Absent));
                }
                Seen::Here(leaf, _) => at = Lead::hint(leaf),
                Seen::Right(lead) => return Ok(Answer::Stale(Stale::Right(lead))),
                Seen::Nothing => {}
            }
        }
        self.leaves.write(v, at, level, key, write, after).await
    }
}
