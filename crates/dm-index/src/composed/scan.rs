//! A scan: batches of leaves, each leaf following on the one before it.

use dm_layout::KeyBytes;
use dm_verbs::{RemotePtr, Verbs, Why};

use super::{Buffers, Composed};
use crate::{IndexError, Inner, Lead, NodeCopy, NodeStore, Scan};

/// Leaves that a scan reads at once.
pub const SCAN_BATCH: usize = 32;

/// How far a batch of a scan came.
enum Progress<K> {
    /// Not even the first leaf held the expected key.
    Lost,
    /// All below this key was seen.
    UpTo(K),
    /// The last leaf of the index was seen.
    End,
}

impl<V: Verbs, K: KeyBytes, I: Inner<V, K>, L: NodeStore<V, K>> Composed<'_, V, K, I, L> {
    /// Takes entries from the leaves of `run`, as long as each follows on the one before it.
    async fn scan_run(
        &self,
        (run, linked): (&[RemotePtr], bool),
        mut expect: K,
        limit: usize,
        copy: &mut NodeCopy<K>,
        out: &mut Scan<K>,
    ) -> Result<Progress<K>, IndexError> {
        let mut progress = Progress::Lost;
        let mut first = linked;
        self.leaves
            .copies(self.v, run, copy, |copy| {
                let linked = core::mem::take(&mut first);
                let answers = copy.fences.contains(&expect) || self.options.flaws().scan_trusts_cache;
                if copy.unborn && !linked || copy.level != 0 || !answers {
                    return false;
                }
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
                // Every key below `high` was seen: the next leaf must answer for `high` itself, whatever was split
                // meanwhile.
                expect = high;
                progress = Progress::UpTo(high);
                out.len() < limit
            })
            .await?;
        if self.options.flaws().scan_trusts_cache && matches!(progress, Progress::UpTo(_)) {
            return Ok(Progress::End);
        }
        Ok(progress)
    }

    /// The loop of a scan; `run` and `copy` are the client's buffers.
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
        // Where to read next when the inner structure need not be asked.
        let mut sibling: Option<Lead> = None;
        // The last leaf that did not say where to go on.
        let mut nowhere = None;
        while out.len() < limit {
            run.clear();
            let mut linked = false;
            match sibling.take() {
                Some(lead) => {
                    linked = lead.linked;
                    run.push(lead.at);
                }
                None => {
                    // Leaves are at least half full but for removes: a wrong guess costs one more batch.
                    let want = (limit - out.len()).div_ceil(self.leaves.capacity().div_ceil(2));
                    self.inner
                        .locate_run(self.v, &expect, want.saturating_add(1).min(SCAN_BATCH), run)
                        .await?;
                }
            }
            let Some(&first) = run.first() else { return Ok(()) };
            if let Some(seat) = &self.presence.seat {
                self.leaves.beat(self.v, seat).await?;
            }
            match self.scan_run((run, linked), expect, limit, copy, out).await? {
                Progress::End => return Ok(()),
                Progress::UpTo(next) => expect = next,
                Progress::Lost => {
                    // The first leaf was torn, split, or is not where the cache says: look at it like a reader.
                    let alive = self.leaves.copy(self.v, first, copy).await?;
                    let leaf = alive && copy.level == 0 && (linked || !copy.unborn);
                    if leaf && copy.fences.contains(&expect) {
                        // The way here was right: nothing to blame, and nothing to look for. (How far the scan has come,
                        // and where it goes on, is carried on: nothing is rewound.)
                        retry.again_wiser(first, Why::Torn).await?;
                        sibling = Some(Lead { at: first, linked });
                        continue;
                    }
                    // Over the sibling pointer, or to where a dead leaf's keys went.
                    let right = !alive || leaf && copy.fences.is_below(&expect);
                    sibling = (right && !copy.sibling.is_null()).then_some(Lead {
                        at: copy.sibling,
                        linked: alive,
                    });
                    if let Some(located) = self.inner.locate(self.v, &expect).await? {
                        match sibling.is_none() && located.leaf.at == first {
                            true => self.inner.misled(self.v, located.proof),
                            false => self.inner.stale(self.v, located.proof),
                        }
                    }
                    // Again nowhere to go: what was remembered anew comes from an entry that says so, which is what to blame.
                    if sibling.is_none() && nowhere.replace(first) == Some(first) {
                        let found = self.inner.find(self.v, &expect).await?;
                        if let Some(located) = found.filter(|located| located.leaf.at == first) {
                            self.inner.misled(self.v, located.proof);
                        }
                    }
                    retry.again_wiser(first, Why::Stale).await?;
                }
            }
        }
        Ok(())
    }
}
