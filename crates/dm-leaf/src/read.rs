//! Reads of nodes. A read of one node is one READ and one check of its bytes. It is repeated if the READ was torn or
//! took too long. Reads of several nodes at once are not repeated.

use dm_index::{Answer, IndexError, Lead, NodeCopy, Stale, gather};
use dm_layout::{
    CheckFailure, Corrupt, Header, KeyBytes, LineLag, Lookup, NodeFormat, NodeState, Reason, TornPart,
};
use dm_verbs::{Control, Nanos, RemotePtr, Retry, Verbs, Why};
use smallvec::SmallVec;

use crate::Nodes;
use crate::write::failure;

/// Maximum number of READs that [`Nodes::copy_nodes`] has in flight. For more nodes, it posts one batch after another.
const PARALLEL: usize = 32;

/// Number of failed attempts after which a loop checks whether its compute node must announce itself.
const PATIENCE: u32 = 16;

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    pub(crate) async fn get_entry<V: Verbs + Control>(
        &self,
        v: &V,
        Lead { at, linked }: Lead,
        level: u8,
        key: &K,
        out: &mut Vec<u8>,
    ) -> Result<Answer<K, bool>, IndexError> {
        let mut retry = v.retry(self.options.attempts);
        loop {
            let posted = v.now();
            let bytes = v.read(at, self.node_len()).await?;
            match self.format.lookup(&bytes, key, level) {
                _ if self.too_slow(v, posted) => {}
                //= docs/protocol/reclaim.md R9
                _ if !linked && self.format.is_unborn(&bytes) => return Ok(Answer::Stale(Stale::Elsewhere)),
                Ok(Lookup::Found { value, .. }) => {
                    out.clear();
                    value.append_to(out);
                    return Ok(Answer::Done(true));
                }
                Ok(Lookup::Absent) => return Ok(Answer::Done(false)),
                Ok(Lookup::GoRight { sibling }) => return Ok(Answer::Stale(go_right(at, sibling)?)),
                Ok(Lookup::Stale(dm_layout::Stale::Dead { forward })) => {
                    return Ok(Answer::Stale(follow(forward)));
                }
                Ok(Lookup::Stale(_)) => return Ok(Answer::Stale(Stale::Elsewhere)),
                Err(CheckFailure::Torn {
                    part: TornPart::Entry,
                    ..
                }) if self.options.flaws().torn_entry_absent => {
                    return Ok(Answer::Done(false));
                }
                Err(CheckFailure::Torn { .. }) => {
                    //= docs/protocol/sherman.md S26
                    if let Some(next) = self.beyond(at, &bytes) {
                        return Ok(Answer::Stale(follow(next.raw())));
                    }
                }
                Err(CheckFailure::Corrupt(what)) => return Err(IndexError::Corrupt { node: at, what }),
            }
            drop(bytes);
            retry.again(at, Why::Torn).await?;
            self.have_patience(v, &retry).await?;
        }
    }

    /// Announces the compute node if an announcement is due. Loops that wait for other clients call this after each
    /// failed attempt, so that other members do not fence the compute node. Only every [`PATIENCE`]th call checks
    /// whether an announcement is due.
    pub(crate) async fn have_patience<V: Verbs + Control>(
        &self,
        v: &V,
        retry: &Retry<'_, V>,
    ) -> Result<(), IndexError> {
        //= docs/protocol/reclaim.md R2
        match retry.failed().is_multiple_of(PATIENCE) {
            true => Ok(self.alloc.announce_if_due(v).await?),
            false => Ok(()),
        }
    }

    /// Returns whether a version may have wrapped since `posted`.
    #[inline]
    fn too_slow<V: Verbs>(&self, v: &V, posted: Nanos) -> bool {
        !self.options.flaws().no_read_window && v.elapsed(posted, self.options.read_window)
    }

    pub(crate) async fn copy_node<V: Verbs + Control>(
        &self,
        v: &V,
        at: RemotePtr,
        copy: &mut NodeCopy<K>,
    ) -> Result<bool, IndexError> {
        let mut retry = v.retry(self.options.attempts);
        loop {
            let posted = v.now();
            let bytes = v.read(at, self.node_len()).await?;
            match self.decode(at, &bytes, copy) {
                _ if self.too_slow(v, posted) => {}
                Ok(header) => return Ok(header.state != NodeState::Dead),
                Err(CheckFailure::Torn { .. }) => {
                    // A torn unborn node is not linked yet, and never will be if its creator has died (R9).
                    let unborn = self.format.is_unborn(&bytes).then_some(RemotePtr::NULL);
                    if let Some(next) = self.beyond(at, &bytes).or(unborn)
                        && let Ok(header) = self.format.header(&bytes)
                    {
                        Self::show_head(at, &header, self.format.value_len(), copy);
                        copy.sibling = next;
                        return Ok(false);
                    }
                }
                Err(CheckFailure::Corrupt(what)) => return Err(IndexError::Corrupt { node: at, what }),
            }
            drop(bytes);
            retry.again(at, Why::Torn).await?;
            self.have_patience(v, &retry).await?;
        }
    }

    pub(crate) async fn copy_nodes<V: Verbs>(
        &self,
        v: &V,
        at: &[RemotePtr],
        copy: &mut NodeCopy<K>,
        mut each: impl FnMut(&NodeCopy<K>) -> bool,
    ) -> Result<(), IndexError> {
        for batch in at.chunks(PARALLEL) {
            let posted = v.now();
            let tickets: SmallVec<[_; PARALLEL]> =
                batch.iter().map(|&at| v.read(at, self.node_len())).collect();
            for (&at, ticket) in batch.iter().zip(tickets) {
                let bytes = ticket.await?;
                let alive = match self.decode(at, &bytes, copy) {
                    _ if self.too_slow(v, posted) => false,
                    Ok(header) => header.state != NodeState::Dead,
                    Err(CheckFailure::Torn { .. }) => false,
                    Err(CheckFailure::Corrupt(what)) => return Err(IndexError::Corrupt { node: at, what }),
                };
                if !alive || !each(copy) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn copy_at_once<V: Verbs>(
        &self,
        v: &V,
        at: &[RemotePtr],
        copy: &mut NodeCopy<K>,
        mut each: impl FnMut(&NodeCopy<K>),
    ) -> Result<(), IndexError> {
        let wanted: SmallVec<[_; PARALLEL]> = at.iter().map(|&at| (at, self.node_len())).collect();
        let posted = v.now();
        let read = gather(v, &wanted).await?;
        if self.too_slow(v, posted) {
            return Ok(());
        }
        for (&at, bytes) in at.iter().zip(&read) {
            let header = self.decode(at, bytes, copy);
            if header.is_ok_and(|header| header.state != NodeState::Dead) {
                each(copy);
            }
        }
        Ok(())
    }

    /// Checks an image and decodes its header into `copy`, without entries.
    fn head(&self, at: RemotePtr, bytes: &[u8], copy: &mut NodeCopy<K>) -> Result<Header<K>, CheckFailure> {
        let header = self.format.accept(bytes)?;
        Self::show_head(at, &header, self.format.value_len(), copy);
        Ok(header)
    }

    pub(crate) fn show_head(at: RemotePtr, header: &Header<K>, value_bytes: usize, copy: &mut NodeCopy<K>) {
        copy.at = at;
        copy.level = header.level;
        copy.unborn = header.state == NodeState::Splitting && header.lag == LineLag::Equal;
        copy.incarnation = header.incarnation;
        copy.fences = header.fences;
        copy.sibling = RemotePtr::from_raw(header.sibling);
        copy.value_bytes = value_bytes;
        copy.entries.clear();
        copy.values.clear();
        copy.folded.clear();
    }

    /// Checks an image and decodes its header into `copy`. Keeps its bytes for [`Nodes::unfold_node`].
    pub(crate) fn fold(
        &self,
        at: RemotePtr,
        bytes: &[u8],
        copy: &mut NodeCopy<K>,
    ) -> Result<(), CheckFailure> {
        self.head(at, bytes, copy)?;
        copy.folded_entries = self.format.len(bytes)?;
        copy.folded.extend_from_slice(bytes);
        Ok(())
    }

    /// Decodes the bytes that [`Nodes::fold`] has kept, if there are any.
    pub(crate) fn unfold_node(&self, copy: &mut NodeCopy<K>) -> Result<(), IndexError> {
        if copy.folded.is_empty() {
            return Ok(());
        }
        let (at, bytes) = (copy.at, core::mem::take(&mut copy.folded));
        self.decode(at, &bytes, copy).map_err(|e| failure(at, e))?;
        Ok(())
    }

    /// Checks an image and decodes it into `copy`. Sorts the entries, and omits entries outside the node's fence keys,
    /// which a split has moved away.
    pub(crate) fn decode(
        &self,
        at: RemotePtr,
        bytes: &[u8],
        copy: &mut NodeCopy<K>,
    ) -> Result<Header<K>, CheckFailure> {
        let header = self.head(at, bytes, copy)?;
        let NodeCopy { entries, values, .. } = copy;
        self.format.visit(bytes, |key, value| {
            if header.fences.contains(&key) {
                // A node has at most 64 KiB.
                entries.push((key, values.len() as u32));
                value.append_to(values);
            }
        })?;
        copy.entries.sort_unstable_by_key(|entry| entry.0);
        // A key that was removed and inserted again during the READ may be in two slots. Each was true at some moment
        // of the READ; either will do, but not both.
        copy.entries.dedup_by_key(|entry| entry.0);
        Ok(header)
    }
}

/// Returns where a client continues after it has found a dead node: at the node with the forwarding address `forward`,
/// or at [`Stale::Elsewhere`] if `forward` is 0.
pub(crate) fn follow(forward: u64) -> Stale {
    if forward == 0 {
        Stale::Elsewhere
    } else {
        //= docs/protocol/reclaim.md R10
        Stale::Right(Lead::hint(RemotePtr::from_raw(forward)))
    }
}

/// Returns the sibling of the node at `at`, as the place where a client continues if its key is not below the node's
/// upper fence key.
///
/// # Errors
/// Returns [`IndexError::Corrupt`] if the node has no sibling, although it has an upper fence key.
pub(crate) fn go_right(at: RemotePtr, sibling: u64) -> Result<Stale, IndexError> {
    if sibling == 0 {
        let what = Corrupt {
            offset: 0,
            reason: Reason::Fences,
        };
        return Err(IndexError::Corrupt { node: at, what });
    }
    Ok(Stale::Right(Lead::linked(RemotePtr::from_raw(sibling))))
}
