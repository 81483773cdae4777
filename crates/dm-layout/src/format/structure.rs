//! Steps of splits and merges that depend on the format, and the room in nodes.

use core::ops::Range;

use alloc::vec::Vec;

use crate::error::{CheckFailure, Reason};
use crate::format::{NodeEdit, Part, Place};
use crate::fullness::Fullness;
use crate::header::{Header, LineLag, NodeState};
use crate::key::KeyBytes;
use crate::split::{SplitPlan, SplitRequest};

/// Splits and merges nodes, in the steps that depend on the format, and computes how full nodes are.
pub trait NodeStructure<K: KeyBytes>: NodeEdit<K> {
    /// Returns the share of a node's room that an entry of `key` uses, if the node has this low fence key.
    fn share(&self, _low: &K, _key: &K) -> Fullness {
        Fullness {
            taken: 1,
            of: self.capacity(),
        }
    }

    /// Returns how full an accepted image is.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`entry`](super::NodeRead::entry).
    fn fullness(&self, bytes: &[u8]) -> Result<Fullness, CheckFailure> {
        Ok(Fullness {
            taken: self.len(bytes)?,
            of: self.capacity(),
        })
    }

    /// Returns how full `left` would be with the entries of both accepted nodes.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`entry`](super::NodeRead::entry).
    fn fullness_merged(&self, left: &[u8], right: &[u8]) -> Result<Fullness, CheckFailure> {
        let (left, right) = (self.fullness(left)?, self.fullness(right)?);
        Ok(Fullness {
            taken: left.taken + right.taken,
            of: left.of,
        })
    }

    /// Plans a split of the accepted `left`, and builds the right node in `right`. The caller must WRITE the whole
    /// right node, and await this WRITE, before any pointer to the node is written. Returns `None` if there are fewer
    /// than two keys, including the new one.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`accept`](super::NodeRead::accept) and
    /// [`entry`](super::NodeRead::entry), and [`Reason::Order`] or [`Reason::Room`] if no split is possible, for
    /// example because a key is duplicate.
    fn prepare_split<'v>(
        &self,
        left: &[u8],
        right: &mut [u8],
        request: &SplitRequest<'v, K>,
    ) -> Result<Option<SplitPlan<'v, K>>, CheckFailure> {
        let header = self.accept(left)?;
        let mut keys = Vec::with_capacity(self.capacity() + 1);
        self.visit(left, |key, _| {
            if header.fences.contains(&key) {
                keys.push(key);
            }
        })?;
        let appended = request.appended(&header, &keys);
        keys.extend(request.new.map(|(key, _)| key));
        let half = keys.len() / 2;
        if half == 0 {
            return Ok(None);
        }
        // Only the middle key is needed, because formats do not rely on the order of these entries.
        let separator = appended.unwrap_or_else(|| *keys.select_nth_unstable(half).1);
        if separator == header.fences.low {
            // If no key is less than the middle key, some keys are duplicate.
            return Err(CheckFailure::corrupt(0, Reason::Order));
        }
        let plan = request.cut_at(separator);
        self.build_from(
            right,
            &request.right(&header, separator),
            left,
            request.new_from(&separator),
        )?;
        Ok(Some(plan))
    }

    /// Returns whether the entries of both accepted nodes fit into one.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`entry`](super::NodeRead::entry).
    fn merge_fits(&self, left: &[u8], right: &[u8]) -> Result<bool, CheckFailure> {
        let mut both = left.to_vec();
        self.clear_copies(&mut both, &self.header(left)?);
        Ok(self.len(&both)? + self.len(right)? <= self.capacity())
    }

    /// Removes the entries that an earlier attempt of a merge has copied into `left`. They are outside its fence keys,
    /// which the attempt has not changed.
    fn clear_copies(&self, left: &mut [u8], header: &Header<K>) {
        if let Some(high) = header.fences.high {
            self.evict(left, &high, Part::Head);
            self.evict(left, &high, Part::Rest);
        }
    }

    /// Repairs the image of a live node that readers do not accept, because a client has died while it moved entries
    /// within the node. Returns the bytes to WRITE, or `None` if the format moves no entries within a node.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`header`](super::NodeRead::header) and
    /// [`entry`](super::NodeRead::entry).
    fn repair(&self, _image: &mut [u8]) -> Result<Option<Range<usize>>, CheckFailure> {
        Ok(None)
    }

    /// Copies the entries of the frozen, accepted `right` into free slots of `left`. A repeated attempt puts every
    /// entry into the slot of the first attempt, even if only some lines of that attempt have taken effect. So a line
    /// has the same bytes in both attempts, except for the versions of entries that span lines, and readers may see
    /// either. Panics if the entries do not fit: call [`merge_fits`](Self::merge_fits) first.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`header`](super::NodeRead::header) and
    /// [`entry`](super::NodeRead::entry).
    fn copy_merge(&self, left: &mut [u8], right: &[u8]) -> Result<Range<usize>, CheckFailure> {
        let header = self.header(left)?;
        self.clear_copies(left, &header);
        for slot in self.slots(right) {
            if let Some((key, value)) = self.entry(right, slot)? {
                match self.place(left, &key)? {
                    Place::Free(free) => {
                        self.put(left, free, &key, value);
                    }
                    Place::Present(_) => {}
                    Place::Full => panic!("a merge needs room for all of the right node's entries"),
                }
            }
        }
        self.seal_rest(left, self.version_after(header.version, 1));
        Ok(self.range(Part::Rest))
    }

    /// Marks a node as Dead: every line gets the next version, all entries are removed, and `forward` becomes the
    /// sibling. This is one WRITE of the whole node. The caller may retire the memory only after it has awaited this
    /// WRITE.
    ///
    /// # Errors
    /// Returns [`CheckFailure`] under the same conditions as [`header`](super::NodeRead::header).
    fn bury(&self, image: &mut [u8], forward: u64) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(image)?;
        header.version = self.version_after(header.version, 1);
        header.state = NodeState::Dead;
        header.lag = LineLag::Equal;
        header.owner = 0;
        header.sibling = forward;
        self.evict(image, &K::MIN, Part::Head);
        self.evict(image, &K::MIN, Part::Rest);
        self.seal_rest(image, header.version);
        self.seal_head(image, &header);
        Ok(0..self.node_bytes())
    }
}
