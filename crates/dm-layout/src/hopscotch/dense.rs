//! The dense layout, for keys and values of 8 bytes: two lines have seven entries.
//!
//! Every line begins with a [`Front`]: everything that the other layout stores once per entry or in a mark. Four places
//! of 15 bytes follow. The first place of every second line is a mark, and each other place is an entry: the last seven
//! bytes of its key, and its value. The first byte of all keys of a node is the *prefix*, which every front contains. A
//! node covers keys with other first bytes too, but it stores none: a writer splits the node to insert such a key, and a
//! reader of a neighbourhood does not accept such a key as absent.

use core::ops::Range;

use super::geometry::{HopGeometry, Reach};
use super::study::{EntryFlaws, NearFlaws};
use super::{Hopscotch, Near, flag};
use crate::LINE_BYTES;
use crate::format::Slot;
use crate::key::{FenceKeys, KeyBytes};
use crate::split::SplitRequest;
use crate::value::ValueRef;

/// Bytes of a front.
pub(crate) const FRONT: usize = 4;
/// The last byte of a front contains the presence bits, so that one WRITE covers them and any entry of the line.
pub(crate) const PRESENCE_AT: usize = 3;
/// Bytes of an entry or a mark.
pub(crate) const PLACE: usize = 15;
/// Bytes of a key that an entry stores.
pub(crate) const TAIL: usize = 7;
/// Entries of a pair of lines: three behind a mark, and four.
pub(crate) const PER_PAIR: usize = 7;
/// Entries of a line with a mark.
pub(crate) const BEHIND_MARK: usize = 3;
/// Bits of a node version.
pub(crate) const VERSION_BITS: u8 = 5;
/// Bits of a hop count.
pub(crate) const HOP_BITS: u8 = 7;
/// The key and the value of an entry each have this number of bytes.
pub(crate) const FIELD: usize = 8;

const TAIL_MASK: u64 = u64::MAX >> 8;
const YOUNG: u32 = 1 << 27;

/// The first four bytes of a line: both hop counts (of the boundary before the line, and of the boundary after it), the
/// prefix, the node version, a bit for young nodes, and a presence bit for each place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Front(u32);

impl Front {
    #[inline]
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        line.first_chunk().map(|bytes| Self(u32::from_le_bytes(*bytes)))
    }

    /// Returns the front of the line that contains the byte at `at`.
    #[inline]
    pub(super) fn at(image: &[u8], at: usize) -> Self {
        let start = line_of(at);
        Self::read(&image[start..start + FRONT]).unwrap_or(Self(0))
    }

    fn store(self, image: &mut [u8], at: usize) {
        let start = line_of(at);
        image[start..start + FRONT].copy_from_slice(&self.0.to_le_bytes());
    }

    const fn field(self, from: u32, bits: u32) -> u8 {
        (self.0 >> from & ((1 << bits) - 1)) as u8
    }

    #[must_use]
    const fn with(self, from: u32, bits: u32, value: u8) -> Self {
        let mask = ((1 << bits) - 1) << from;
        Self(self.0 & !mask | (value as u32) << from & mask)
    }

    /// Returns the hop count of the boundary before the line.
    pub(super) const fn hops_before(self) -> u8 {
        self.field(0, HOP_BITS as u32)
    }

    /// Returns the hop count of the boundary after the line.
    pub(super) const fn hops_after(self) -> u8 {
        self.field(HOP_BITS as u32, HOP_BITS as u32)
    }

    pub(super) const fn prefix(self) -> u8 {
        self.field(14, 8)
    }

    pub(super) const fn version(self) -> u8 {
        self.field(22, VERSION_BITS as u32)
    }

    pub(super) const fn is_young(self) -> bool {
        self.0 & YOUNG != 0
    }

    /// Returns whether the entry in place `place` is present.
    #[inline]
    const fn has(self, place: usize) -> bool {
        self.0 >> (28 + place) & 1 != 0
    }

    const fn with_present(self, place: usize, present: bool) -> Self {
        self.with(28 + place as u32, 1, present as u8)
    }
}

/// Returns the position of the line that contains the byte at `at`.
#[inline]
pub(crate) const fn line_of(at: usize) -> usize {
    at / LINE_BYTES * LINE_BYTES
}

/// Returns the number of the place at `at`. For other positions it returns some place.
#[inline]
const fn place_of(at: usize) -> usize {
    (at % LINE_BYTES).saturating_sub(FRONT) / PLACE % 4
}

/// Returns the key as a number.
#[inline]
fn number<K: KeyBytes>(key: &K) -> u64 {
    let mut bytes = [0; FIELD];
    key.write_to(&mut bytes);
    u64::from_be_bytes(bytes)
}

/// Returns the first byte of a key.
#[inline]
pub(super) fn first_byte<K: KeyBytes>(key: &K) -> u8 {
    (number(key) >> (8 * TAIL)) as u8
}

/// Reads the seven bytes of a key at the start of `bytes`.
#[inline]
fn tail(bytes: &[u8]) -> Option<u64> {
    let mut all = [0; FIELD];
    all[1..].copy_from_slice(bytes.get(..TAIL)?);
    Some(u64::from_be_bytes(all))
}

/// The fence keys of the keys with one prefix: without their first bytes, and without a high fence key that none of
/// these keys reaches.
fn clipped<K: KeyBytes>(fences: &FenceKeys<K>, prefix: u8) -> (u64, Option<u64>) {
    let first = u64::from(prefix) << (8 * TAIL);
    let low = number(&fences.low).max(first) - first;
    let high = fences
        .high
        .as_ref()
        .map(|high| number(high).saturating_sub(first));
    (low.min(TAIL_MASK), high.filter(|high| *high <= TAIL_MASK))
}

/// The content of a mark.
struct Mark {
    front: Front,
    flags: u8,
    low: u64,
    high: u64,
}

impl Mark {
    /// Reads the mark of a line from the line's first bytes.
    #[inline]
    fn read(line: &[u8]) -> Option<Self> {
        let bytes = line.get(FRONT..FRONT + PLACE)?;
        Some(Self {
            front: Front::read(line)?,
            flags: bytes[0],
            low: tail(&bytes[1..])?,
            high: tail(&bytes[1 + TAIL..])?,
        })
    }
}

impl HopGeometry {
    /// Returns the bytes to read for the keys with this home: from the beginning of its line on. There is a mark in
    /// every second line, so the range nearly always contains one.
    pub(super) fn reach_dense(&self, home: usize) -> Reach {
        let last = home + self.neighbourhood - 1;
        let end_of = |slot| self.slot_at(slot) + PLACE;
        let group = self.group_of(home);
        let from = self.group_at(group);
        if last >= self.span {
            // The first line has a mark.
            return Reach {
                home,
                first: from..end_of(self.span - 1),
                second: Some(LINE_BYTES..end_of(last - self.span)),
                marks: [0..0, 0..1],
            };
        }
        let mut first = from..end_of(last);
        let marked = group.next_multiple_of(2);
        if marked < self.groups {
            first.end = first.end.max(self.group_at(marked) + FRONT + PLACE);
            return Reach {
                home,
                first,
                second: None,
                marks: [marked..marked + 1, 0..0],
            };
        }
        first.start = self.group_at(group - 1);
        Reach {
            home,
            first,
            second: None,
            marks: [group - 1..group, 0..0],
        }
    }
}

impl<K: KeyBytes> Hopscotch<K> {
    /// Returns whether the entry at `at` is present.
    #[inline]
    pub(super) fn is_present_dense(image: &[u8], at: usize) -> bool {
        Front::at(image, at).has(place_of(at))
    }

    pub(super) fn set_present_dense(image: &mut [u8], at: usize, present: bool) {
        Front::at(image, at)
            .with_present(place_of(at), present)
            .store(image, at);
    }

    #[inline]
    pub(super) fn key_at_dense(image: &[u8], at: usize) -> K {
        let mut bytes = [0; FIELD];
        bytes[0] = Front::at(image, at).prefix();
        bytes[1..].copy_from_slice(&image[at..at + TAIL]);
        K::read_from(&bytes)
    }

    pub(super) fn write_key_dense(image: &mut [u8], at: usize, key: &K) {
        let mut bytes = [0; FIELD];
        key.write_to(&mut bytes);
        image[at..at + TAIL].copy_from_slice(&bytes[1..]);
    }

    /// Returns the first byte of the keys that this image of a node stores.
    pub(super) fn prefix_of(&self, image: &[u8]) -> u8 {
        Front::at(image, LINE_BYTES).prefix()
    }

    /// Returns whether the node does not store keys like this one, because it has another prefix.
    pub(super) fn is_foreign(&self, image: &[u8], key: &K) -> bool {
        self.geometry.dense && first_byte(key) != self.prefix_of(image)
    }

    pub(super) fn set_prefix(&self, image: &mut [u8], prefix: u8) {
        for group in 0..self.geometry.groups {
            let at = self.geometry.group_at(group);
            Front::at(image, at).with(14, 8, prefix).store(image, at);
        }
    }

    /// Sets the prefix of a node whose entries from `from` on were removed: that of the remaining entries. If there are
    /// none, it is the first byte of the greatest key that the node still covers.
    pub(super) fn choose_prefix(&self, image: &mut [u8], from: &K) {
        let stored = (0..self.geometry.span)
            .map(|slot| self.geometry.slot_at(slot))
            .find(|at| Self::is_present_dense(image, *at));
        let prefix = match stored {
            Some(at) => Front::at(image, at).prefix(),
            None => (number(from).saturating_sub(1) >> (8 * TAIL)) as u8,
        };
        self.set_prefix(image, prefix);
    }

    /// Writes the node version and youth into every front, and the flags and the fence keys into the marks.
    pub(super) fn stamp_dense(&self, image: &mut [u8], version: u8, fences: &FenceKeys<K>, flags: u8) {
        let version = version & self.geometry.place.version_mask;
        let young = u8::from(flags & flag::YOUNG != 0);
        for group in 0..self.geometry.groups {
            let at = self.geometry.group_at(group);
            let front = Front::at(image, at)
                .with(22, VERSION_BITS.into(), version)
                .with(27, 1, young);
            front.store(image, at);
            if group % 2 != 0 {
                continue;
            }
            let (low, high) = clipped(fences, front.prefix());
            let has_high = if high.is_some() { flag::HAS_HIGH } else { 0 };
            let mark = &mut image[at + FRONT..at + FRONT + PLACE];
            mark[0] = flags & !flag::YOUNG | flag::NODE | has_high;
            mark[1..1 + TAIL].copy_from_slice(&low.to_be_bytes()[1..]);
            mark[1 + TAIL..].copy_from_slice(&high.unwrap_or(0).to_be_bytes()[1..]);
        }
    }

    pub(super) fn set_hops_dense(&self, image: &mut [u8], group: usize, count: u8) {
        let (before, after) = self.geometry.boundary(group);
        let bits = u32::from(HOP_BITS);
        Front::at(image, before)
            .with(bits, bits, count)
            .store(image, before);
        Front::at(image, after).with(0, bits, count).store(image, after);
    }

    /// Looks up `key` in a neighbourhood. `get(offset, len)` must return `len` bytes of the node from `offset` on.
    #[inline]
    pub(super) fn judge_dense<'a>(
        &self,
        reach: &Reach,
        get: impl Fn(usize, usize) -> Option<&'a [u8]>,
        key: &K,
        linked: bool,
        flaws: NearFlaws,
    ) -> Option<Near<'a>> {
        let [first, second] = &reach.marks;
        let marked = if first.is_empty() {
            second.start
        } else {
            first.start
        };
        let mark = Mark::read(get(self.geometry.group_at(marked), FRONT + PLACE)?)?;
        let (prefix, version) = (mark.front.prefix(), mark.front.version());
        let young = mark.front.is_young() && !flaws.takes_young;
        let known = mark.flags & !flag::HAS_HIGH == flag::NODE;
        let wanted = number(key) & TAIL_MASK;
        let inside =
            wanted >= mark.low && (mark.flags & flag::HAS_HIGH == 0 || wanted < mark.high) || flaws.any_range;
        if !known || young && !linked || !inside || first_byte(key) != prefix {
            return None;
        }
        let (mut found, mut twice, mut others) = (None, false, false);
        let (mut free, mut mixed) = (None, !self.is_settled_near(reach, &get)?);
        for at in self.offsets_near(reach.home) {
            let front = Front::read(get(line_of(at), FRONT)?)?;
            let entry = get(at, PLACE)?;
            if front.version() != version || front.prefix() != prefix {
                mixed = true;
            } else if !front.has(place_of(at)) {
                free = free.or(Some(Slot::at(at)));
                if flaws.stops_at_vacancy {
                    break;
                }
            } else if tail(entry)? != wanted {
                others = true;
            } else if found.is_some() {
                twice = true;
            } else {
                found = Some((at, &entry[TAIL..]));
            }
        }
        if let Some((at, value)) = found {
            return Some(Near::Found {
                slot: Slot::at(at),
                value: ValueRef::from(value),
                version,
                lonely: !others && !mixed,
                twice: twice || mixed,
            });
        }
        if mixed && !flaws.absent_unchecked {
            return None;
        }
        Some(Near::Absent { free, version })
    }

    /// Checks an entry that was read alone, from the beginning of its line on.
    #[inline]
    pub(super) fn judge_alone_dense<'a>(bytes: &'a [u8], key: &K, flaws: EntryFlaws) -> Option<ValueRef<'a>> {
        let front = Front::read(bytes)?;
        let at = bytes.len().checked_sub(PLACE).filter(|at| *at < LINE_BYTES)?;
        let absent = !front.has(place_of(at)) && !flaws.takes_absent;
        let young = front.is_young() && !flaws.takes_young;
        let entry = &bytes[at..];
        if absent || young || front.prefix() != first_byte(key) || tail(entry)? != number(key) & TAIL_MASK {
            return None;
        }
        Some(ValueRef::from(&entry[TAIL..]))
    }

    /// Returns the separator of a split that makes room for a key with another prefix than the node's, which is
    /// `prefix`. If the new key is greater than the node's entries, it moves to the right node alone. If it is less, all
    /// entries move, and the left node gets its prefix ([`choose_prefix`](Self::choose_prefix)).
    pub(super) fn foreign_separator(request: &SplitRequest<'_, K>, prefix: u8) -> Option<K> {
        let new = first_byte(&request.new?.0);
        let first = if new > prefix { new } else { new.checked_add(1)? };
        let mut bytes = [0; FIELD];
        bytes[0] = first;
        Some(K::read_from(&bytes))
    }

    /// Copies the bytes of a line from the presence bits to the end of the entry at `at` to `out`, with this entry in
    /// its place. Returns their range in the node.
    pub(super) fn encode_dense<'a>(
        get: impl Fn(usize, usize) -> Option<&'a [u8]>,
        at: usize,
        (key, value): (&K, &[u8]),
        out: &mut [u8],
    ) -> Option<Range<usize>> {
        let range = line_of(at) + PRESENCE_AT..at + PLACE;
        let bytes = get(range.start, range.len())?;
        let (out, entry) = out.get_mut(..range.len())?.split_at_mut(range.len() - PLACE);
        out.copy_from_slice(&bytes[..out.len()]);
        out[0] |= 1 << (4 + place_of(at));
        let mut whole = [0; FIELD];
        key.write_to(&mut whole);
        entry[..TAIL].copy_from_slice(&whole[1..]);
        entry[TAIL..].copy_from_slice(value);
        Some(range)
    }

    /// Returns the presence byte of the line without the entry at `at`.
    pub(super) fn cleared_dense(byte: u8, at: usize) -> u8 {
        byte & !(1 << (4 + place_of(at)))
    }
}
