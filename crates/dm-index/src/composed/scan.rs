//! Scans: batches of leaves, in which each leaf continues where the previous one ended.

use dm_layout::KeyBytes;
use dm_verbs::{RemotePtr, Verbs, Why};

use super::{Buffers, Composed};
use crate::{
    BulkLoad, HOPS_FREE, IndexError, Inner, Lead, NodeAccess, NodeCopies, NodeCopy, NodeStore, Reclaim, Run,
    Scan,
};

/// Maximum number of leaves that a scan reads at the same time.
pub const SCAN_BATCH: usize = 32;

/// The progress of one batch of a scan.
enum Progress<K> {
    /// The first node did not cover the expected key, was torn or dead, was not a leaf, or might not be linked.
    Lost,
    /// All keys below this one were seen. The addresses are the last leaf whose entries were read, and its sibling
    /// pointer.
    UpTo(K, RemotePtr, RemotePtr),
    /// The last leaf of the index was seen.
    End,
}

impl<V: Verbs, K: KeyBytes, I: Inner<V, K>, L: NodeAccess<V, K>> Composed<'_, V, K, I, L> {
    /// Takes entries from the leaves of `run` as long as each leaf continues where the previous one ended.
    async fn scan_run(
        &self,
        (run, linked): (&mut Run<K>, bool),
        mut expect: K,
        limit: usize,
        copy: &mut NodeCopy<K>,
        out: &mut Scan<K>,
    ) -> Result<Progress<K>, IndexError> {
        let mut progress = Progress::Lost;
        let mut first = linked;
        let (mut leaves, mut entries) = (0, 0);
        let read = self
            .leaves
            .whole()
            .copies(self.v, run.leaves(), copy, |copy| {
                let linked = core::mem::take(&mut first);
                let answers = copy.fences.contains(&expect) || self.options.flaws().scan_trusts_cache;
                if copy.unborn && !linked || copy.level != 0 || !answers {
                    return false;
                }
                leaves += 1;
                entries += copy.entries.len();
                for (key, value) in copy.iter().filter(|(k, _)| *k >= expect) {
                    if out.len() == limit {
                        break;
                    }
                    out.push(key, value);
                }
                let Some(high) = copy.fences.high else {
                    progress = Progress::End;
                    return false;
                };
                // Every key below `high` was read. The next leaf must be the one that covers `high`, even if leaves
                // were split meanwhile.
                expect = high;
                progress = Progress::UpTo(high, copy.at, copy.sibling);
                out.len() < limit
            })
            .await;
        // If the scan's own leaves were all read, an error concerns only a leaf that was read beside them, and is
        // ignored.
        if leaves < run.own() {
            read?;
        }
        run.saw(leaves, entries);
        if self.options.flaws().scan_trusts_cache && matches!(progress, Progress::UpTo(..)) {
            return Ok(Progress::End);
        }
        Ok(progress)
    }

    /// Runs the loop of a scan with the client's `buffers`.
    pub(super) async fn scan_into(
        &self,
        from: &K,
        limit: usize,
        buffers: &mut Buffers<K>,
        out: &mut Scan<K>,
    ) -> Result<(), IndexError> {
        let Buffers { run, copy } = buffers;
        let mut expect = *from;
        let mut retry = self.v.retry(self.options.attempts);
        // The next leaf, if no search is needed: a sibling pointer gave its address, or the same leaf is read again.
        let mut sibling: Option<Lead> = None;
        // Steps along sibling pointers since the last search in the inner structure.
        let mut hops = 0;
        // The last leaf whose entries were read, and its sibling pointer; null if that leads nowhere.
        let (mut last, mut right) = (RemotePtr::NULL, RemotePtr::NULL);
        // A leaf to which the inner structure led, and which the scan has passed. The inner structure lacks the separators
        // of leaves that were split off, or it leads to a dead leaf.
        let mut passed = RemotePtr::NULL;
        // Whether a search has been repeated after many of these steps.
        let mut searched_again = false;
        // The last leaf that did not show where the scan must continue.
        let mut nowhere = None;
        while out.len() < limit {
            // After inserts in random order, leaves are 69 % full on average (`Fill::AsInserted`).
            let per_leaf = (self.leaves.whole().capacity() * 7).div_ceil(10);
            let most = run.begin(expect, limit - out.len(), per_leaf);
            let mut linked = false;
            match sibling.take() {
                Some(lead) => {
                    linked = lead.linked;
                    run.push_alone(lead.at);
                }
                None => {
                    hops = 0;
                    self.inner
                        .locate_run(self.v, &expect, most.min(SCAN_BATCH), run)
                        .await?;
                    let first = run.leaves().first().copied().unwrap_or_default();
                    if !right.is_null() && (first == passed || first == last) {
                        if first != passed {
                            passed = first;
                            // The search below reads what the cache lacks, such as a root that is a leaf.
                            if let Some(located) = self.inner.locate(self.v, &expect).await? {
                                self.inner.stale(self.v, located.proof);
                            }
                        }
                        run.replace_first(right);
                        (linked, hops) = (true, 1);
                    }
                }
            }
            let Some(&first) = run.leaves().first() else {
                return Ok(());
            };
            if let Some(seat) = &self.presence.seat {
                self.leaves.whole().reclaim().keep_alive(self.v, seat).await?;
            }
            let progress = self.scan_run((run, linked), expect, limit, copy, out).await?;
            if hops > 0 && !matches!(progress, Progress::Lost) {
                self.inner.found(self.v, &expect, first, hops).await;
            }
            match progress {
                Progress::End => return Ok(()),
                Progress::UpTo(next, leaf, its_right) => {
                    (expect, last, right, searched_again) = (next, leaf, its_right, false);
                }
                Progress::Lost => {
                    // The first leaf was torn, was split, or is not at the cached address. Read it alone.
                    let alive = self.leaves.whole().copy(self.v, first, copy).await?;
                    let leaf = alive && copy.level == 0 && (linked || !copy.unborn);
                    if leaf && copy.fences.contains(&expect) {
                        // The address was right, so no hint must be invalidated and no search is needed. The scan keeps
                        // its progress, so the explorer must not rewind past this attempt.
                        retry.again_wiser(first, Why::Torn).await?;
                        sibling = Some(Lead { at: first, linked });
                        continue;
                    }
                    // Continue at the right sibling, or at the node that took over the keys of a dead leaf.
                    let follows = !alive || leaf && copy.fences.is_below(&expect);
                    sibling = (follows && !copy.sibling.is_null()).then_some(Lead {
                        at: copy.sibling,
                        linked: alive,
                    });
                    if sibling.is_none() {
                        right = RemotePtr::NULL;
                    } else if hops == 0 {
                        passed = first;
                    }
                    hops += u32::from(sibling.is_some());
                    // After this many steps to the right, a new search probably takes fewer steps. It is made only once
                    // until the scan makes progress, because the inner structure may lack the separators of the leaves
                    // on the way, and would lead here again.
                    let far = hops == HOPS_FREE && !searched_again;
                    if far {
                        (searched_again, sibling) = (true, None);
                    }
                    if let Some(located) = self.inner.locate(self.v, &expect).await? {
                        match !far && sibling.is_none() && located.leaf.at == first {
                            true => self.inner.invalidate(self.v, located.proof),
                            false => self.inner.stale(self.v, located.proof),
                        }
                    }
                    if far {
                        // The entry that led here may be correct, so it is only reported as stale. This search learns
                        // the leaves that were split off from the entry's leaf.
                        self.inner.find(self.v, &expect).await?;
                    }
                    // Twice in a row, this leaf did not show where the scan must continue. The cached address was
                    // dropped after the first time, and a search has found the same address again. So the entry in the
                    // inner structure is wrong.
                    if !far && sibling.is_none() && nowhere.replace(first) == Some(first) {
                        let found = self.inner.find(self.v, &expect).await?;
                        if let Some(located) = found.filter(|located| located.leaf.at == first) {
                            self.inner.invalidate(self.v, located.proof);
                        }
                    }
                    retry.again_wiser(first, Why::Stale).await?;
                }
            }
        }
        Ok(())
    }
}
