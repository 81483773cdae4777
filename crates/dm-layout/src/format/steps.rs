//! The steps of splits and merges that do not depend on the format.

use core::ops::Range;

use crate::error::CheckFailure;
use crate::format::{NodeStructure, Part, Place};
use crate::header::{Header, LineLag, NodeState};
use crate::key::KeyBytes;
use crate::split::SplitPlan;

/// The steps of splits and merges that do not depend on the format. Every [`NodeStructure`] implements this trait.
pub trait NodeSteps<K: KeyBytes>: NodeStructure<K> {
    /// Links the right node: the left node becomes Splitting and gets the next version, the new high fence key, and the
    /// right node as its sibling.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`header`](super::NodeRead::header).
    fn announce_split(&self, left: &mut [u8], plan: &SplitPlan<'_, K>) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(left)?;
        header.version = self.version_after(header.version, 1);
        header.state = NodeState::Splitting;
        header.lag = LineLag::Behind;
        header.owner = plan.owner;
        header.sibling = plan.right_address;
        header.fences.high = Some(plan.separator);
        self.evict(left, &plan.separator, Part::Head);
        self.seal_head(left, &header);
        Ok(self.range(Part::Head))
    }

    /// Removes the entries that have moved from all lines but the first, and puts the new entry into its slot if it
    /// belongs in the left node. The other entries stay in their lines, except in the checksummed format, whose entries
    /// are sorted.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`header`](super::NodeRead::header) and
    /// [`place`](super::NodeRead::place).
    fn clear_split(&self, left: &mut [u8], plan: &SplitPlan<'_, K>) -> Result<Range<usize>, CheckFailure> {
        let header = self.header(left)?;
        self.evict(left, &plan.separator, Part::Rest);
        if let Some((key, value)) = plan.new_left {
            if let Place::Free(slot) = self.place(left, &key)? {
                self.put(left, slot, &key, value);
            }
        }
        self.seal_rest(left, header.version);
        Ok(self.range(Part::Rest))
    }

    /// Ends the split in the left node, which becomes Live and has no owner. The header's line may contain the new
    /// entry.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`header`](super::NodeRead::header).
    fn finish_split(&self, left: &mut [u8]) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(left)?;
        header.state = NodeState::Live;
        header.lag = LineLag::Equal;
        header.owner = 0;
        self.seal_head(left, &header);
        Ok(self.range(Part::Head))
    }

    /// Splits the left node by one WRITE of the whole node, as in the papers. Readers are as safe as with separate
    /// steps. But if the writer dies during this WRITE, no client can read or repair the node.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as the three steps.
    fn split_at_once(&self, left: &mut [u8], plan: &SplitPlan<'_, K>) -> Result<Range<usize>, CheckFailure> {
        self.announce_split(left, plan)?;
        self.clear_split(left, plan)?;
        self.finish_split(left)?;
        Ok(0..self.node_bytes())
    }

    /// Makes a node Live, without an owner: the right node of a split, the left node of a merge, or a new root.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`header`](super::NodeRead::header).
    fn open(&self, image: &mut [u8]) -> Result<Range<usize>, CheckFailure> {
        self.finish_split(image)
    }

    /// Marks a node as part of a merge. Its keys stay readable. `partner` identifies the other node of the merge
    /// ([`Header::owner`]), for a client that finds the merge unfinished.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`header`](super::NodeRead::header).
    fn freeze(&self, image: &mut [u8], partner: u32) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(image)?;
        header.state = NodeState::Frozen;
        header.owner = partner;
        self.seal_head(image, &header);
        Ok(self.range(Part::Head))
    }

    /// Announces in the left node's header that its lines may have the next version already. `partner` identifies the
    /// right node, as in [`freeze`](Self::freeze).
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`header`](super::NodeRead::header).
    fn announce_merge(&self, left: &mut [u8], partner: u32) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(left)?;
        header.state = NodeState::Frozen;
        header.lag = LineLag::Ahead;
        header.owner = partner;
        self.seal_head(left, &header);
        Ok(self.range(Part::Head))
    }

    /// Extends the left node's range over the right node's keys: the version grows by one, and the high fence key and
    /// the sibling are those of the right node. The left node stays Frozen: readers find the right node's keys in both
    /// nodes, and writers must not write until the right node is dead.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`header`](super::NodeRead::header).
    fn widen_merge(&self, left: &mut [u8], right: &Header<K>) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(left)?;
        header.version = self.version_after(header.version, 1);
        header.state = NodeState::Frozen;
        header.lag = LineLag::Equal;
        header.sibling = right.sibling;
        header.fences.high = right.fences.high;
        self.seal_head(left, &header);
        Ok(self.range(Part::Head))
    }
}

impl<K: KeyBytes, F: NodeStructure<K>> NodeSteps<K> for F {}
