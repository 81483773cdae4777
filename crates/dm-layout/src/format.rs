//! What every node format offers, so that a leaf or an inner level takes its format as a type.

use core::fmt::Debug;
use core::ops::Range;

use alloc::vec::Vec;

use crate::error::{CheckFailure, Reason};
use crate::fullness::Fullness;
use crate::header::{Header, LineLag, NodeInit, NodeState};
use crate::key::{FenceKeys, KeyBytes, sealed};
use crate::split::{SplitPlan, SplitRequest};
use crate::value::ValueRef;

/// A place for one entry: its first byte's offset in the node, or in a packed one its line and its number there. Meaningful
/// for the format that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

impl Slot {
    #[inline]
    pub(crate) const fn at(offset: usize) -> Self {
        // A node has at most 65,536 bytes.
        Self(offset as u32)
    }

    /// Offset of the slot's first byte (its presence or front-version byte) from the node's start; in a packed node of its
    /// line's, plus its number in the line.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> usize {
        self.0 as usize
    }
}

/// What one READ of a node says about a key.
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
    /// The key lies at or above the high fence: go on to the sibling (a packed remote pointer).
    GoRight {
        /// The next node.
        sibling: u64,
    },
    /// Whoever led here was out of date.
    Stale(Stale),
}

/// Why a node is not the one that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stale {
    /// The key lies below the low fence.
    Below,
    /// The node is of another level.
    Level(u8),
    /// The node is dead; its keys went here (a packed remote pointer, 0 for unknown).
    Dead {
        /// Where to go on.
        forward: u64,
    },
}

/// Where a writer puts a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The key is in this slot.
    Present(Slot),
    /// The key is absent; a new entry goes here.
    Free(Slot),
    /// The key is absent and nothing is free: split.
    Full,
}

/// What a writer finds that has locked a node, read it, and looks for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Judged {
    /// The node answers for the key, which is or goes here.
    Here(Place),
    /// The key lies at or above the high fence: go on to the sibling (a packed remote pointer).
    GoRight {
        /// The next node.
        sibling: u64,
    },
    /// Whoever led here was out of date.
    Stale(Stale),
    /// A split of this node was begun and given up: finish it first.
    Unfinished,
    /// The right node of a split under way: its splitter makes it live before it unlocks the left node.
    Unborn,
    /// A node of a merge under way.
    Frozen,
}

/// Which part of a node a step edits: the line of the header, or all other lines. Formats that write whole
/// nodes have everything in the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header and what shares its line.
    Head,
    /// The rest.
    Rest,
}

/// A node format: pure functions over a node's bytes.
///
/// **Readers** pass any bytes; a failure is typed, nothing panics. **Writers** hold the node's lock, have
/// accepted an image of it, edit that image in place, and WRITE the byte range that each edit returns
/// (`image[range]` to the node's address plus `range.start`). Edits panic on misuse only: a wrong value length,
/// an image that is not as long as a node, a slot of another format.
///
/// Structural changes are steps, each one WRITE; a crash between any two leaves a node that readers still read
/// rightly and whose header names what was going on:
///
/// | split of L into L and R | merge of R into L |
/// |---|---|
/// | [`prepare_split`](Self::prepare_split): WRITE R (Splitting), **await** | [`freeze`](Self::freeze) R |
/// | [`announce_split`](Self::announce_split): WRITE L's head (Splitting, new fence and sibling) | [`announce_merge`](Self::announce_merge): WRITE L's head (Frozen, lines may run ahead) |
/// | [`clear_split`](Self::clear_split): WRITE L's rest | [`copy_merge`](Self::copy_merge): WRITE L's rest |
/// | [`finish_split`](Self::finish_split): WRITE L's head (Live), **await** | [`widen_merge`](Self::widen_merge): WRITE L's head (R's fence and sibling, still Frozen) |
/// | [`open`](Self::open) R, **await**; unlock L | [`bury`](Self::bury) R; then [`open`](Self::open) L; all of it one chain; the parent; unlock all |
///
/// L's three WRITEs may share a chain: one queue pair places WRITEs in order, and readers accept every mixture
/// that any prefix of lines leaves.
///
/// Sealed.
pub trait NodeFormat<K: KeyBytes>: Clone + Debug + Send + Sync + 'static + sealed::Sealed {
    /// The format's name, as in tables.
    const NAME: &'static str;
    /// Whether an entry may lie in any slot, so that a node takes as many as it has.
    const ANYWHERE: bool = true;
    /// Whether several slots may show one key, with equal values: what a hop leaves that was given up midway.
    const TWINS: bool = false;

    /// Bytes of a node: a multiple of 64.
    fn node_bytes(&self) -> usize;
    /// Entries that fit, at most: what a node [takes](Self::takes) may depend on their keys.
    fn capacity(&self) -> usize;
    /// Bytes of a value.
    fn value_len(&self) -> usize;

    /// Bits that the first byte of every value has: where it says that the entry is there.
    fn value_mark(&self) -> u8 {
        0
    }

    // ---- reading ----

    /// Decodes the header alone. Under the node's lock, or as a hint; it says nothing of the other bytes.
    ///
    /// # Errors
    /// [`CheckFailure::Corrupt`] if this is no header.
    fn header(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure>;

    /// The format's acceptance rule over the whole node: what a scan needs, and a writer before it edits.
    ///
    /// # Errors
    /// [`CheckFailure::Torn`] if the bytes mix two writes; [`CheckFailure::Corrupt`] if they are no node.
    fn accept(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure>;

    /// What these bytes, fresh from one READ, say about `key` in a node of `level`: acceptance and search in
    /// one pass, judging only the bytes that the answer rests on.
    ///
    /// # Errors
    /// As [`accept`](Self::accept), and [`CheckFailure::Torn`] if an entry's own guard fails.
    fn lookup<'a>(&self, bytes: &'a [u8], key: &K, level: u8) -> Result<Lookup<'a>, CheckFailure>;

    /// Where to write `key`, in an accepted image of a node whose fences contain it.
    ///
    /// # Errors
    /// [`CheckFailure::Torn`] if an entry's own guard fails.
    fn place(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure>;

    /// Whether these bytes, READ under the node's lock, are a node of `level` at rest that answers for `key`, and where
    /// the key is or goes: acceptance and [`place`](Self::place) in one pass. A key that is present rests on the
    /// header's line and its own, as for a reader; any other answer on the whole node.
    ///
    /// # Errors
    /// As [`accept`](Self::accept) and [`place`](Self::place).
    fn judge(&self, bytes: &[u8], key: &K, level: u8) -> Result<Judged, CheckFailure> {
        judge(self, bytes, key, level)
    }

    /// Whether a node of this low fence has places for entries of all these keys, each there once.
    fn takes(&self, _low: &K, keys: &mut dyn Iterator<Item = K>) -> bool {
        keys.count() <= self.capacity()
    }

    /// The slots that may hold an entry, in byte order. No slots if `bytes` is no node of this format's length.
    fn slots(&self, bytes: &[u8]) -> impl Iterator<Item = Slot> + use<Self, K>;

    /// The entry in `slot`, if there is one, in an accepted image.
    ///
    /// # Errors
    /// [`CheckFailure::Torn`] if the entry's own guard fails, [`CheckFailure::Corrupt`] if its presence byte
    /// is none.
    fn entry<'a>(&self, bytes: &'a [u8], slot: Slot) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure>;

    /// Shows every entry of an accepted image, in byte order.
    ///
    /// # Errors
    /// As [`entry`](Self::entry); entries before the bad one were shown.
    fn visit<'a>(&self, bytes: &'a [u8], mut each: impl FnMut(K, ValueRef<'a>)) -> Result<(), CheckFailure> {
        for slot in self.slots(bytes) {
            if let Some((key, value)) = self.entry(bytes, slot)? {
                each(key, value);
            }
        }
        Ok(())
    }

    /// The slot of `key`, in an accepted image.
    ///
    /// # Errors
    /// [`CheckFailure::Torn`] if an entry's own guard fails.
    fn find(&self, bytes: &[u8], key: &K) -> Result<Option<Slot>, CheckFailure> {
        Ok(match self.place(bytes, key)? {
            Place::Present(slot) => Some(slot),
            Place::Free(_) | Place::Full => None,
        })
    }

    /// The entry with the greatest key not above `key`: an inner node's way down. In an accepted image.
    ///
    /// # Errors
    /// As [`entry`](Self::entry).
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

    /// Entries in an accepted image.
    ///
    /// # Errors
    /// As [`entry`](Self::entry).
    fn len(&self, bytes: &[u8]) -> Result<usize, CheckFailure> {
        let mut count = 0;
        for slot in self.slots(bytes) {
            count += usize::from(self.entry(bytes, slot)?.is_some());
        }
        Ok(count)
    }

    /// What an entry of `key` takes of a node of this low fence.
    fn share(&self, _low: &K, _key: &K) -> Fullness {
        Fullness {
            taken: 1,
            of: self.capacity(),
        }
    }

    /// How full an accepted image is.
    ///
    /// # Errors
    /// As [`entry`](Self::entry).
    fn fullness(&self, bytes: &[u8]) -> Result<Fullness, CheckFailure> {
        Ok(Fullness {
            taken: self.len(bytes)?,
            of: self.capacity(),
        })
    }

    /// How full `left` would be with the entries of both accepted nodes.
    ///
    /// # Errors
    /// As [`entry`](Self::entry).
    fn fullness_merged(&self, left: &[u8], right: &[u8]) -> Result<Fullness, CheckFailure> {
        let (left, right) = (self.fullness(left)?, self.fullness(right)?);
        Ok(Fullness {
            taken: left.taken + right.taken,
            of: left.of,
        })
    }

    /// Puts the entries of an accepted image that belong to it (key inside the fences: a node that splits may
    /// still show moved ones) into `out`, by key ascending. `out` is cleared first.
    ///
    /// # Errors
    /// As [`entry`](Self::entry).
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

    /// Everything that can be said of a node at rest: acceptance, every entry's guard and presence byte, keys
    /// inside the fences and none twice. For a checker of whole pools, not for the read path.
    ///
    /// # Errors
    /// As [`accept`](Self::accept) and [`entry`](Self::entry); [`Reason::Order`] for a key outside or twice.
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

    /// Overwrites `image` with a new node. `entries` ascend or not, as the format needs no order of its caller.
    /// Panics on more entries than fit.
    fn build<'v>(
        &self,
        image: &mut [u8],
        init: &NodeInit<K>,
        entries: impl IntoIterator<Item = (K, ValueRef<'v>)>,
    );

    /// Overwrites `image` with a new node of those entries of the accepted `from` that lie inside its fences, and `new`.
    ///
    /// # Errors
    /// As [`entry`](Self::entry); [`Reason::Order`] if some key is there twice, or they are more than fit.
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

    /// Puts a new entry into the slot that [`place`](Self::place) called free.
    fn put(&self, image: &mut [u8], slot: Slot, key: &K, value: ValueRef<'_>) -> Range<usize>;

    /// Gives the entry in `slot` a new value.
    fn update(&self, image: &mut [u8], slot: Slot, value: ValueRef<'_>) -> Range<usize>;

    /// Whether an update writes the value alone, inside one line: then it needs nothing but that the slot keeps its key, and
    /// of two at once one is the last.
    fn updates_in_line(&self) -> bool {
        false
    }

    /// Removes the entry in `slot`.
    fn remove(&self, image: &mut [u8], slot: Slot) -> Range<usize>;

    /// Whether other slots show the key of the entry in `slot` too; never unless [`TWINS`](Self::TWINS).
    fn has_twins(&self, _image: &[u8], _slot: Slot) -> bool {
        false
    }

    /// Takes them away: the bytes to WRITE, and to have written before the entry itself changes, since a reader of one
    /// copy alone takes it for the entry.
    fn part_twins(&self, _image: &mut [u8], _slot: Slot) -> Option<Range<usize>> {
        None
    }

    /// The node version `steps` after `version`; wraps at the format's width.
    fn version_after(&self, version: u8, steps: u8) -> u8;

    /// Offset of the aligned 8-byte word that holds version, level, state and incarnation, in formats where a change of
    /// state changes nothing else that a reader checks: it can be changed by a CAS then. `None` in the others.
    fn state_word(&self) -> Option<usize> {
        None
    }

    /// Whether an image shows the right half of a split under way, or another node that is linked only later: who came
    /// by an old address can't tell whether it has been. Total on any bytes; says nothing of whether they hold together.
    fn is_unborn(&self, bytes: &[u8]) -> bool {
        let header = self.header(bytes);
        header.is_ok_and(|h| h.state == NodeState::Splitting && h.lag == LineLag::Equal)
    }

    /// The bytes that a step over `part` writes: one line of header and the rest, or all and nothing.
    fn range(&self, part: Part) -> Range<usize>;

    /// Removes the entries of `part` whose keys are not below `from`. Guards are set by the step's
    /// [`seal_head`](Self::seal_head) or [`seal_rest`](Self::seal_rest).
    fn evict(&self, image: &mut [u8], from: &K, part: Part);

    /// Writes the header and the guard that covers it.
    fn seal_head(&self, image: &mut [u8], header: &Header<K>);

    /// Writes the guards of the other lines, for a header of `version`.
    fn seal_rest(&self, image: &mut [u8], version: u8);

    // ---- structural steps: defaults over the primitives above ----

    /// Decides a split of the accepted `left` and builds the right node into `right`: WRITE it whole, and await
    /// it, before anything leads there. `None` if there are fewer than two keys, the new one included.
    ///
    /// # Errors
    /// As [`accept`](Self::accept) and [`entry`](Self::entry).
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
        // The middle key and no order: nodes keep none, or make their own.
        let separator = appended.unwrap_or_else(|| *keys.select_nth_unstable(half).1);
        if separator == header.fences.low {
            // Nothing is below the middle: keys that are there twice.
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

    /// Links the right node: version + 1, Splitting, new high fence and sibling.
    ///
    /// # Errors
    /// As [`header`](Self::header).
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

    /// Clears the moved entries (survivors stay where they are) and places the new entry if it goes left.
    ///
    /// # Errors
    /// As [`header`](Self::header) and [`place`](Self::place).
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
    /// As [`header`](Self::header).
    fn finish_split(&self, left: &mut [u8]) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(left)?;
        header.state = NodeState::Live;
        header.lag = LineLag::Equal;
        header.owner = 0;
        self.seal_head(left, &header);
        Ok(self.range(Part::Head))
    }

    /// The left node's whole split as one WRITE of the whole node, as the papers do it. Readers are as safe; a
    /// writer that dies inside leaves a node that no one can read or repair.
    ///
    /// # Errors
    /// As the three steps.
    fn split_at_once(&self, left: &mut [u8], plan: &SplitPlan<'_, K>) -> Result<Range<usize>, CheckFailure> {
        self.announce_split(left, plan)?;
        self.clear_split(left, plan)?;
        self.finish_split(left)?;
        Ok(0..self.node_bytes())
    }

    /// Makes a node Live and ownerless: the right node of a finished split, the left one of a merge.
    ///
    /// # Errors
    /// As [`header`](Self::header).
    fn open(&self, image: &mut [u8]) -> Result<Range<usize>, CheckFailure> {
        self.finish_split(image)
    }

    /// Marks a node as taking part in `owner`'s merge; its keys stay readable.
    ///
    /// # Errors
    /// As [`header`](Self::header).
    fn freeze(&self, image: &mut [u8], owner: u32) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(image)?;
        header.state = NodeState::Frozen;
        header.owner = owner;
        self.seal_head(image, &header);
        Ok(self.range(Part::Head))
    }

    /// True if the entries of both accepted nodes fit into one.
    ///
    /// # Errors
    /// As [`entry`](Self::entry).
    fn merge_fits(&self, left: &[u8], right: &[u8]) -> Result<bool, CheckFailure> {
        Ok(self.len(left)? + self.len(right)? <= self.capacity())
    }

    /// Announces on the left node that its lines will run ahead of its header.
    ///
    /// # Errors
    /// As [`header`](Self::header).
    fn announce_merge(&self, left: &mut [u8], owner: u32) -> Result<Range<usize>, CheckFailure> {
        let mut header = self.header(left)?;
        header.state = NodeState::Frozen;
        header.lag = LineLag::Ahead;
        header.owner = owner;
        self.seal_head(left, &header);
        Ok(self.range(Part::Head))
    }

    /// Copies the entries of the frozen, accepted `right` into free slots of `left` (idempotent). Panics if they
    /// don't fit: ask [`merge_fits`](Self::merge_fits) first.
    ///
    /// # Errors
    /// As [`header`](Self::header) and [`entry`](Self::entry).
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

    /// Takes over the right node's keys: version + 1, its high fence and sibling. It stays Frozen: readers find all
    /// keys in either node, writers none to write to, until the right one is dead.
    ///
    /// # Errors
    /// As [`header`](Self::header).
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

    /// Ends a node's life: version + 1 on every line, no entries, Dead, forwarding to `forward`. One WRITE of the
    /// whole node; only when it is awaited may the memory be retired.
    ///
    /// # Errors
    /// As [`header`](Self::header).
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
