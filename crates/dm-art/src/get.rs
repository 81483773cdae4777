//! Get: over the cache to a leaf in one plain function, as far as nothing has to wait; then by reading.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use dm_index::{CpuCost, IndexError, KeyBytes, Reading, Single, SingleStore};
use dm_verbs::{Control, Event, LocalStep, RemotePtr, Step, VerbError, Verbs};

use crate::art::{ArtClient, KeyText};
use crate::errors::misplaced;
use crate::locate::{From, Link, Place, leaf_proves_absence};
use crate::presence::Running;

/// A leaf that the cache named, and the branch of the node that it hangs in.
type Hint = (RemotePtr, u8);

/// How far a get came without waiting.
pub(crate) enum Sought<'s, V: Verbs, K> {
    /// Nowhere, or to the local step before its seat's section.
    Entering(Option<Step<'s, V>>),
    /// To its seat.
    Nothing,
    /// To the local step before the cache's section.
    Coming(Step<'s, V>),
    /// To a cache that names no leaf.
    Unknown,
    /// To a leaf's READ.
    Reading(Hint, Reading<'s, V>),
    /// To a leaf that is not the key's.
    Judged(Hint, Single<K>),
    /// To a READ that failed.
    Broken(VerbError),
}

impl<V: Verbs, K> fmt::Debug for Sought<'_, V, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sought").finish_non_exhaustive()
    }
}

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// The usual way of a get that finds its key, as far as it goes without waiting. `Pending`: not to that end, but as far as
    /// `running` and `sought` say.
    // A plain function: what it knows stays in registers, where an async one keeps it for a time when it waits.
    #[inline(always)]
    pub(crate) fn begin_get<'s>(
        &'s self,
        key: &K,
        value: &mut Vec<u8>,
        cx: &mut Context<'_>,
        running: &mut Option<Running<'s>>,
        sought: &mut Sought<'s, V, K>,
    ) -> Poll<()> {
        if self.art.options.cpu != CpuCost::NONE {
            return Poll::Pending;
        }
        match self.begin_now(cx) {
            Ok(begun) => *running = begun,
            Err(step) => {
                *sought = Sought::Entering(step);
                return Poll::Pending;
            }
        }
        let mut step = self.v.local(LocalStep::Section);
        if Pin::new(&mut step).poll(cx).is_pending() {
            *sought = Sought::Coming(step);
            return Poll::Pending;
        }
        let Some(hint) = self.art.cache.leaf(&KeyText::of(key)) else {
            *sought = Sought::Unknown;
            return Poll::Pending;
        };
        self.v.meter().note(Event::CacheHit);
        let leaves = &self.art.leaves;
        *sought = match leaves.post_read(self.v, hint.0).now(cx) {
            Err(ticket) => Sought::Reading(hint, Reading::Posted(ticket)),
            Ok(Err(e)) => Sought::Broken(e),
            Ok(Ok(bytes)) => match leaves.judge(&bytes, key, value) {
                Ok(Single::Hit) => return Poll::Ready(()),
                Ok(other) => Sought::Judged(hint, other),
                Err(failure) => Sought::Reading(hint, Reading::Failed(failure)),
            },
        };
        Poll::Pending
    }

    /// Reads `key`'s value, from where its beginning had to wait.
    pub(crate) async fn get_slowly(
        &self,
        key: &K,
        value: &mut Vec<u8>,
        sought: Sought<'_, V, K>,
    ) -> Result<bool, IndexError> {
        let first = match sought {
            Sought::Entering(_) | Sought::Nothing => {
                self.art.options.cpu.charge(self.v).await;
                self.v.local(LocalStep::Section).await;
                None
            }
            Sought::Coming(step) => {
                step.await;
                None
            }
            Sought::Unknown => None,
            Sought::Broken(e) => return Err(e.into()),
            Sought::Judged(hint, found) => Some((hint, found)),
            Sought::Reading(hint, begun) => {
                let leaves = &self.art.leaves;
                let found = leaves.get(self.v, hint.0, key, value, Some(begun)).await?;
                Some((hint, found))
            }
        };
        let mut from = From::Cache;
        // A leaf that was another key's when it was read in this operation, and so it is.
        let mut others = None;
        if let Some(((at, branch), found)) = first {
            if found == Single::Hit {
                return Ok(true);
            }
            if leaf_proves_absence(&found, branch, false) {
                return Ok(false);
            }
            others = is_other(&found).then_some(at);
            from = from.surer();
            self.v.local(LocalStep::Section).await;
        }
        let text = KeyText::of(key);
        let mut place = self.locate_entered(&text, from).await?;
        // Three times at most: whatever begins at the root proves what it says.
        loop {
            let proved = match place {
                //= docs/protocol/smart.md M11
                Place::Leaf(link, _) if link.fresh && others == Some(link.child()) => true,
                Place::Leaf(link, _) => {
                    let leaves = &self.art.leaves;
                    let found = leaves.get(self.v, link.child(), key, value, None).await?;
                    if found == Single::Hit {
                        return Ok(true);
                    }
                    self.repair(&found, &link).await?;
                    others = is_other(&found).then_some(link.child());
                    leaf_proves_absence(&found, link.slot.branch, link.fresh)
                }
                _ => place.proves_absence(),
            };
            if proved {
                return Ok(false);
            }
            if from == From::Root {
                return Err(misplaced(self.art.root));
            }
            from = from.surer();
            place = self.locate(&text, from).await?;
        }
    }

    /// T-M1, for study.
    async fn repair(&self, found: &Single<K>, link: &Link) -> Result<(), IndexError> {
        let branch = u64::from(link.slot.branch);
        if let Single::Other { depth, .. } = found
            && self.art.options.flaws.repairs_unchecked
            && link.fresh
            && *depth != branch
        {
            let at = self.art.leaves.depth_at(link.child());
            self.v.cas(at, *depth, branch).await?;
        }
        Ok(())
    }
}

fn is_other<K>(found: &Single<K>) -> bool {
    matches!(found, Single::Other { .. })
}
