//! The trait of all node formats, so that a leaf or an inner level takes its format as a type.

use core::fmt::Debug;
use core::ops::Range;

use alloc::vec::Vec;

use crate::error::{CheckFailure, Reason};
use crate::fullness::Fullness;
use crate::header::{Header, LineLag, NodeInit, NodeState};
use crate::key::{FenceKeys, KeyBytes, sealed};
use crate::split::{SplitPlan, SplitRequest};
use crate::value::ValueRef;

/// A place for one entry: the offset of its first byte in the node, or in a packed node its line and its
/// number there. It is meaningful only for the format that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

impl Slot {
    #[inline]
    pub(crate) const fn at(offset: usize) -> Self {
        // A node has at most 65,536 bytes.
        Self(offset as u32)
    }

    /// Returns the offset of the slot's first byte (its presence or front-version byte) from the node's
    /// start. In a packed node this is the offset of its line plus its number in the line.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> usize {
        self.0 as usize
    }
}

/// The result of searching one READ of a node for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// The key is here.
    Found {
        /// Its place.
        slot: Slot,
        /// Its value.
        value: ValueRef<'a>,
    },
    /// The node answers for the key and does not hold it.
    Absent,
    /// The key is at or above the high fence key: go on to the sibling (a packed remote pointer).
    GoRight {
        /// The next node.
        sibling: u64,
    },
    /// The address that led here was out of date.
    Stale(Stale),
}

/// Why a node is not the one that was searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stale {
    /// The key is below the low fence key.
    Below,
    /// The node has another level.
    Level(u8),
    /// The node is dead; its keys moved to this node (a packed remote pointer, 0 for unknown).
    Dead {
        /// The node to continue with.
        forward: u64,
    },
}

/// The place where a writer puts a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The key is in this slot.
    Present(Slot),
    /// The key is absent; a new entry goes here.
    Free(Slot),
    /// The key is absent and no slot is free: split the node.
    Full,
}

/// The result for a writer that has locked and read a node, and searches it for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Judged {
    /// The node answers for the key; this is the key's place.
    Here(Place),
    /// The key is at or above the high fence key: go on to the sibling (a packed remote pointer).
    GoRight {
        /// The next node.
        sibling: u64,
    },
    /// The address that led here was out of date.
    Stale(Stale),
    /// A split of this node was begun and abandoned: finish it first.
    Unfinished,
    /// The node is the right node of a split under way: its splitter makes it live before it unlocks the left
    /// node.
    Unborn,
    /// The node takes part in a merge under way.
    Frozen,
}

/// The part of a node that a step edits: the line of the header, or all other lines. In formats that write
/// whole nodes, everything is in the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header and the entries in its line.
    Head,
    /// The rest.
    Rest,
}

/// A node format: pure functions over a node's bytes.
///
/// **Readers** may pass any bytes: a failure is a typed error, and nothing panics. **Writers** hold the
/// node's lock and have accepted an image of the node. They edit that image in place, and WRITE the byte
/// range that each edit returns (`image[range]` to the node's address plus `range.start`). Edits panic only
/// on misuse: a wrong value length, an image that is not as long as a node, or a slot of another format.
///
/// Structural changes are steps, and each step is one WRITE. A crash between any two steps leaves a node that
/// readers still read correctly, and whose header names the change:
///
/// | split of L into L and R | merge of R into L |
/// |---|---|
/// | [`prepare_split`](Self::prepare_split): WRITE R (Splitting), **await** | [`freeze`](Self::freeze) R |
/// | [`announce_split`](Self::announce_split): WRITE L's head (Splitting, new fence and sibling) | [`announce_merge`](Self::announce_merge): WRITE L's head (Frozen, lines may run ahead) |
/// | [`clear_split`](Self::clear_split): WRITE L's rest | [`copy_merge`](Self::copy_merge): WRITE L's rest |
/// | [`finish_split`](Self::finish_split): WRITE L's head (Live), **await** | [`widen_merge`](Self::widen_merge): WRITE L's head (R's fence and sibling, still Frozen) |
/// | [`open`](Self::open) R, **await**; unlock L | [`bury`](Self::bury) R; then [`open`](Self::open) L; all of it one chain; the parent; unlock all |
///
/// L's three WRITEs may share a chain: one queue pair places WRITEs in order, and readers accept every
/// mixture that any prefix of lines leaves.
///
/// Sealed.
pub trait NodeFormat<K: KeyBytes>: Clone + Debug + Send + Sync + 'static + sealed::Sealed {
    /// The format's name, as in tables.
    const NAME: &'static str;
    /// Whether an entry may be in any slot, so that a node takes as many entries as it has slots.
    const ANYWHERE: bool = true;
    /// Whether several slots may show one key, with equal values. An abandoned hop leaves such duplicates.
    const TWINS: bool = false;

    /// Returns the bytes of a node: a multiple of 64.
    fn node_bytes(&self) -> usize;
    /// Returns the maximum number of entries. How many a node really [takes](Self::takes) may depend on their
    /// keys.
    fn capacity(&self) -> usize;
    /// Returns the bytes of a value.
    fn value_len(&self) -> usize;

    /// Returns the bits that the first byte of every value has, if this byte also marks the entry as present.
    fn value_mark(&self) -> u8 {
        0
    }

    // ---- reading ----

    /// Decodes only the header, under the node's lock or as a hint. This says nothing about the other bytes.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Corrupt`] if the bytes are not a header.
    fn header(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure>;

    /// Applies the format's acceptance rule to the whole node, as a scan needs it, and a writer before it
    /// edits.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if the bytes mix two writes, and [`CheckFailure::Corrupt`] if they are
    /// not a node.
    fn accept(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure>;

    /// Searches these bytes, fresh from one READ, for `key` in a node of `level`. Acceptance and search are
    /// one pass, which judges only the bytes on which the answer rests.
    ///
    /// # Errors
    /// The same as [`accept`](Self::accept), and [`CheckFailure::Torn`] if an entry's own guard fails.
    fn lookup<'a>(&self, bytes: &'a [u8], key: &K, level: u8) -> Result<Lookup<'a>, CheckFailure>;

    /// Returns where to write `key`, in an accepted image of a node whose fence keys contain it.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if an entry's own guard fails.
    fn place(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure>;

    /// Returns whether these bytes, READ under the node's lock, are a node of `level` at rest that answers
    /// for `key`, and where the key is or goes: acceptance and [`place`](Self::place) in one pass. A key that
    /// is present rests on the header's line and its own, as for a reader; any other answer on the whole
    /// node.
    ///
    /// # Errors
    /// The same as [`accept`](Self::accept) and [`place`](Self::place).
    fn judge(&self, bytes: &[u8], key: &K, level: u8) -> Result<Judged, CheckFailure> {
        judge(self, bytes, key, level)
    }

    /// Returns whether a node of this low fence has places for entries of all these keys, each there once.
    fn takes(&self, _low: &K, keys: &mut dyn Iterator<Item = K>) -> bool {
        keys.count() <= self.capacity()
    }

    /// Returns the slots that may hold an entry, in byte order; none if `bytes` does not have the length of
    /// such a node.
    fn slots(&self, bytes: &[u8]) -> impl Iterator<Item = Slot> + use<Self, K>;

    /// Returns the entry in `slot`, if there is one, in an accepted image.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if the entry's own guard fails, and [`CheckFailure::Corrupt`] if its
    /// presence byte is invalid.
    fn entry<'a>(&self, bytes: &'a [u8], slot: Slot) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure>;

    /// Passes every entry of an accepted image to `each`, in byte order.
    ///
    /// # Errors
    /// The same as [`entry`](Self::entry); the entries before the bad one were passed.
    fn visit<'a>(&self, bytes: &'a [u8], mut each: impl FnMut(K, ValueRef<'a>)) -> Result<(), CheckFailure> {
        for slot in self.slots(bytes) {
            if let Some((key, value)) = self.entry(bytes, slot)? {
                each(key, value);
            }
        }
        Ok(())
    }

    /// Returns the slot of `key`, in an accepted image.
    ///
    /// # Errors
    /// Returns [`CheckFailure::Torn`] if an entry's own guard fails.
    fn find(&self, bytes: &[u8], key: &K) -> Result<Option<Slot>, CheckFailure> {
        Ok(match self.place(bytes, key)? {
            Place::Present(slot) => Some(slot),
            Place::Free(_) | Place::Full => None,
        })
    }

    /// Returns the entry with the greatest key not above `key` in an accepted image; inner nodes descend by
    /// it.
    ///
    /// # Errors
    /// The same as [`entry`](Self::entry).
    fn floor<'a>(&self, bytes: &'a [u8], key: &K) -> Result<Option<(Slot, K, ValueRef<'a>)>, CheckFailure> {
        let mut best: Option<(Slot, K, ValueRef<'a>)> = None;
        for slot in self.slots(bytes) {
            if let Some((k, value)) = self.entry(bytes, slot)?
                && k <= *key
                && best.is_none_or(|(_, b, _)| b < k)
            {
                best = Some((slot, k, value));
            }
        }
        Ok(best)
    }

    /// Returns the number of entries in an accepted image.
    ///
    /// # Errors
    /// The same as [`entry`](Self::entry).
    fn len(&self, bytes: &[u8]) -> Result<usize, CheckFailure> {
        let mut count = 0;
        for slot in self.slots(bytes) {
            count += usize::from(self.entry(bytes, slot)?.is_some());
        }
        Ok(count)
    }

    /// Returns how much an entry of `key` takes of a node with this low fence key.
    fn share(&self, _low: &K, _key: &K) -> Fullness {
        Fullness {
            taken: 1,
            of: self.capacity(),
        }
    }

    /// Returns how full an accepted image is.
    ///
    /// # Errors
    /// The same as [`entry`](Self::entry).
    fn fullness(&self, bytes: &[u8]) -> Result<Fullness, CheckFailure> {
        Ok(Fullness {
            taken: self.len(bytes)?,
            of: self.capacity(),
        })
    }

    /// Returns how full `left` would be with the entries of both accepted nodes.
    ///
    /// # Errors
    /// The same as [`entry`](Self::entry).
    fn fullness_merged(&self, left: &[u8], right: &[u8]) -> Result<Fullness, CheckFailure> {
        let (left, right) = (self.fullness(left)?, self.fullness(right)?);
        Ok(Fullness {
            taken: left.taken + right.taken,
            of: left.of,
        })
    }

    /// Collects the entries of an accepted image whose keys are inside its fence keys into `out`, by
    /// ascending key (a node that splits may still show moved entries). `out` is cleared first.
    ///
    /// # Errors
    /// The same as [`entry`](Self::entry).
    fn gather<'a>(
        &self,
        bytes: &'a [u8],
        fences: &FenceKeys<K>,
        out: &mut Vec<(K, ValueRef<'a>)>,
    ) -> Result<(), CheckFailure> {
        out.clear();
        self.visit(bytes, |key, value| {
            if fences.contains(&key) {
                out.push((key, value));
            }
        })?;
        out.sort_unstable_by_key(|entry| entry.0);
        Ok(())
    }

    /// Checks everything that is known about a node at rest: acceptance, every entry's guard and presence
    /// byte, and that the keys are inside the fence keys and all different. It is for a checker of whole
    /// pools, not for the read path.
    ///
    /// # Errors
    /// The same as [`accept`](Self::accept) and [`entry`](Self::entry); [`Reason::Order`] for a key that is
    /// outside or duplicate.
    fn audit(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        let header = self.accept(bytes)?;
        let mut seen = Vec::with_capacity(self.capacity());
        for slot in self.slots(bytes) {
            if let Some((key, _)) = self.entry(bytes, slot)? {
                if !header.fences.contains(&key) && header.lag == LineLag::Equal {
                    return Err(CheckFailure::corrupt(slot.offset(), Reason::Order));
                }
                seen.push((key, slot));
            }
        }
        seen.sort_unstable();
        for pair in seen.windows(2) {
            if pair[0].0 == pair[1].0 {
                return Err(CheckFailure::corrupt(pair[1].1.offset(), Reason::Order));
            }
        }
        Ok(header)
    }

    // ---- editing an image ----

    /// Overwrites `image` with a new node. `entries` may have any order. Panics if they do not fit.
    fn build<'v>(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        entries: impl IntoIterator<Item = (K, ValueRef<'v>)>,
    );

    /// Overwrites `image` with a new node. It contains the entries of the accepted `from` that are inside the
    /// new fence keys, and `new`.
    ///
    /// # Errors
    /// The same as [`entry`](Self::entry); [`Reason::Order`] if a key is duplicate, or if there are more
    /// entries than fit.
    fn build_from(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        from: &[u8],
        new: Option<(K, ValueRef<'_>)>,
    ) -> Result<(), CheckFailure> {
        let mut entries = Vec::with_capacity(self.capacity() + 1);
        self.visit(from, |key, value| {
            if init.fences.contains(&key) {
                entries.push((key, value));
            }
        })?;
        entries.extend(new);
        let mut keys: Vec<K> = entries.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        let twice = keys.windows(2).any(|pair| pair[0] == pair[1]);
        if twice || !self.takes(&init.fences.low, &mut keys.iter().copied()) {
            return Err(CheckFailure::corrupt(0, Reason::Order));
        }
        self.build(image, init, entries);
        Ok(())
    }

    /// Puts a new entry into the slot that [`place`](Self::place) returned as free.
    fn put(&self, image: &mut [u8], slot: Slot, key: &K, value: ValueRef<'_>) -> Range<usize>;

    /// Gives the entry in `slot` a new value.
    fn update(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize>;

    /// Returns whether an update writes only the value, inside one line. Such an update requires only that
    /// the slot keeps its key, and of two concurrent updates one is the last.
    fn updates_in_line(&self) -> bool {
        false
    }

    /// Removes the entry in `slot`.
    fn remove(&self, image: &mut [u8], slot: Slot) -> Range<usize>;

    /// Removes the duplicates of the entry in `slot` from other slots and returns the bytes to WRITE; `None` if
    /// there are none, as always unless [`TWINS`](Self::TWINS). They must be written before the entry itself
    /// changes, because a reader that sees only a duplicate takes it for the entry.
    fn part_twins(&self, _image: &mut [u8], _slot: Slot) -> Option<Range<usize>> {
        None
    }

    /// Returns the node version `steps` after `version`; wraps at the format's width.
    fn version_after(&self, version: u8, steps: u8) -> u8;

    /// Returns the offset of the aligned 8-byte word that holds version, level, state and incarnation, in
    /// formats in which a change of state changes nothing else that a reader checks: then a CAS can change
    /// the state. `None` in the other formats.
    fn state_word(&self) -> Option<usize> {
        None
    }

    /// Returns whether an image shows a node that is linked only later, such as the right half of a split
    /// under way. A client that came by an old address cannot tell whether the node has been linked. This
    /// accepts any bytes, and does not check whether they are consistent.
    fn is_unborn(&self, bytes: &[u8]) -> bool {
        let header = self.header(bytes);
        header.is_ok_and(|h| h.state == NodeState::Splitting && h.lag == LineLag::Equal)
    }

    /// Returns the bytes that a step over `part` writes: the header's line and the rest, or everything and
    /// nothing.
    fn range(&self, part: Part) -> Range<usize>;

    /// Removes the entries of `part` whose keys are not below `from`. Guards are set by the step's
    /// [`seal_head`](Self::seal_head) or [`seal_rest`](Self::seal_rest).
    fn evict(&self, image: &mut [u8], from: &K, part: Part);

    /// Writes the header and the guard that covers it.
    fn seal_head(&self, image: &mut [u8], header: &Header<K>);

    /// Writes the guards of the other lines, for a header of `version`.
    fn seal_rest(&self, image: &mut [u8], version: u8);

    // ---- structural steps: defaults over the primitives above ----

    /// Decides a split of the accepted `left` and builds the right node in `right`. WRITE the right node
    /// whole, and await it, before anything leads to it. Returns `None` if there are fewer than two keys,
    /// including the new one.
    ///
    /// # Errors
    /// The same as [`accept`](Self::accept) and [`entry`](Self::entry).
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
        // Only the middle key is needed: nodes have no order, or make their own.
        let separator = appended.unwrap_or_else(|| *keys.select_nth_unstable(half).1);
        if separator == header.fences.low {
            // If nothing is below the middle key, keys are duplicate.
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

    /// Links the right node: version + 1, Splitting, new high fence key and sibling.
    ///
    /// # Errors
    /// The same as [`header`](Self::header).
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

    /// Clears the moved entries (the others stay where they are) and places the new entry if it goes left.
    ///
    /// # Errors
    /// The same as [`header`](Self::header) and [`place`](Self::place).
    fn clear_split(&self, left: &mut [u8], plan: &SplitPlan<'_, K>) -> Result<Range<usize>, CheckFailure> {
        let header = self.header(left)?;
        self.evict(left, &plan.separator, Part::Rest);
        if let Some((key, value)) = plan.new_left
            && let Place::Free(slot) = self.place(left, &key)?
        {
            self.put(left, slot, &key, value);
        }
        self.seal_rest(left, header.version);
        Ok(self.range(Part::Rest))
    }

    /// Ends the split on the left node: Live, no owner. The head line may carry the new entry.
    ///
    /// # Errors
    /// The same as [`header`](Self::header).
    fn finish_split(&self, left: &mut [u8]) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(left)?;
        header.state = NodeState::Live;
        header.lag = LineLag::Equal;
        header.owner = 0;
        self.seal_head(left, &header);
        Ok(self.range(Part::Head))
    }

    /// Does the left node's whole split as one WRITE of the whole node, as the papers do. Readers are as
    /// safe, but a writer that dies inside this WRITE leaves a node that nobody can read or repair.
    ///
    /// # Errors
    /// The same as the three steps.
    fn split_at_once(&self, left: &mut [u8], plan: &SplitPlan<'_, K>) -> Result<Range<usize>, CheckFailure> {
        self.announce_split(left, plan)?;
        self.clear_split(left, plan)?;
        self.finish_split(left)?;
        Ok(0..self.node_bytes())
    }

    /// Makes a node Live and ownerless: the right node of a finished split, or the left one of a merge.
    ///
    /// # Errors
    /// The same as [`header`](Self::header).
    fn open(&self, image: &mut [u8]) -> Result<Range<usize>, CheckFailure> {
        self.finish_split(image)
    }

    /// Marks a node as taking part in `owner`'s merge; its keys stay readable.
    ///
    /// # Errors
    /// The same as [`header`](Self::header).
    fn freeze(&self, image: &mut [u8], owner: u32) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(image)?;
        header.state = NodeState::Frozen;
        header.owner = owner;
        self.seal_head(image, &header);
        Ok(self.range(Part::Head))
    }

    /// Returns whether the entries of both accepted nodes fit into one.
    ///
    /// # Errors
    /// The same as [`entry`](Self::entry).
    fn merge_fits(&self, left: &[u8], right: &[u8]) -> Result<bool, CheckFailure> {
        Ok(self.len(left)? + self.len(right)? <= self.capacity())
    }

    /// Announces on the left node that its lines will run ahead of its header.
    ///
    /// # Errors
    /// The same as [`header`](Self::header).
    fn announce_merge(&self, left: &mut [u8], owner: u32) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(left)?;
        header.state = NodeState::Frozen;
        header.lag = LineLag::Ahead;
        header.owner = owner;
        self.seal_head(left, &header);
        Ok(self.range(Part::Head))
    }

    /// Copies the entries of the frozen, accepted `right` into free slots of `left`; repeating this changes
    /// nothing. Panics if they do not fit: ask [`merge_fits`](Self::merge_fits) first.
    ///
    /// # Errors
    /// The same as [`header`](Self::header) and [`entry`](Self::entry).
    fn copy_merge(&self, left: &mut [u8], right: &[u8]) -> Result<Range<usize>, CheckFailure> {
        let header = self.header(left)?;
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

    /// Extends the left node over the right node's keys: version + 1, its high fence key and sibling. The
    /// left node stays Frozen: readers find all keys in either node, and writers may not write until the
    /// right node is dead.
    ///
    /// # Errors
    /// The same as [`header`](Self::header).
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

    /// Ends a node's life: version + 1 on every line, no entries, Dead, forwarding to `forward`. This is one
    /// WRITE of the whole node; only after it was awaited may the memory be retired.
    ///
    /// # Errors
    /// The same as [`header`](Self::header).
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

/// [`NodeFormat::judge`] in two passes.
pub(crate) fn judge<K: KeyBytes, F: NodeFormat<K>>(
    format: &F,
    bytes: &[u8],
    key: &K,
    level: u8,
) -> Result<Judged, CheckFailure> {
    let header = format.accept(bytes)?;
    Ok(match header.state {
        NodeState::Dead => Judged::Stale(Stale::Dead {
            forward: header.sibling,
        }),
        _ if header.level != level => Judged::Stale(Stale::Level(header.level)),
        _ if *key < header.fences.low => Judged::Stale(Stale::Below),
        NodeState::Splitting if header.lag == LineLag::Behind => Judged::Unfinished,
        NodeState::Splitting => Judged::Unborn,
        NodeState::Frozen => Judged::Frozen,
        NodeState::Live if header.fences.is_below(key) => Judged::GoRight {
            sibling: header.sibling,
        },
        NodeState::Live => Judged::Here(format.place(bytes, key)?),
    })
}
