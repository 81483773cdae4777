//! Reading one neighbourhood: what CHIME is about.
//!
//! The bytes of a neighbourhood ([`HopGeometry::reach`](super::HopGeometry::reach)) hold all that a reader needs to trust
//! them: marks with both fences and the node version, and the node version with every entry.
//!
//! * A key that is *found* rests on its own line and on the marks, all of one version: the node had those fences in that
//!   version, and its line held the key in it.
//! * A key is *absent* only if all of its neighbourhood and the marks are of one version: within a version no key changes
//!   its slot, so whichever slot the key had, the READ saw it when the key was there.
//!
//! Whatever else the bytes are (mixed, another range, dead, young), they decide nothing, and the whole node is read.

use core::ops::Range;

use super::geometry::MARK_HEAD;
use super::{Hopscotch, PRESENT, Reach, VERSION_AT, flag};
use crate::LINE_BYTES;
use crate::format::Slot;
use crate::key::KeyBytes;
use crate::value::ValueRef;

/// What a neighbourhood says about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near<'a> {
    /// The key is here.
    Found {
        /// Its place.
        slot: Slot,
        /// Its value.
        value: ValueRef<'a>,
        /// The node version: what an edit of the entry must carry.
        version: u8,
        /// There is no other entry in its neighbourhood.
        lonely: bool,
        /// Another slot shows the key too, or may: a hop was given up. The value is right all the same.
        twice: bool,
    },
    /// The node answers for the key and does not hold it.
    Absent {
        /// The free slot nearest to its home.
        free: Option<Slot>,
        /// The node version.
        version: u8,
    },
    /// These bytes decide nothing: read the whole node.
    Unsure,
}

/// Published flaws of judging a neighbourhood, off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NearFlaws {
    /// T-C1: the search ends at the first free slot.
    pub stops_at_vacancy: bool,
    /// T-C2: absence is taken from slots of different versions.
    pub absent_unchecked: bool,
    /// T-C3: a key that is found is not checked against the fences.
    pub found_unchecked: bool,
    /// T-C6: a node in used memory is taken for linked, since its range is the one expected.
    pub takes_young: bool,
}

/// The parts of a node that one or two READs brought.
#[derive(Clone, Copy)]
struct View<'a> {
    parts: [(usize, &'a [u8]); 2],
}

impl<'a> View<'a> {
    #[inline]
    fn get(&self, range: Range<usize>) -> Option<&'a [u8]> {
        self.parts.iter().find_map(|(at, bytes)| {
            let from = range.start.checked_sub(*at)?;
            bytes.get(from..range.end - at)
        })
    }

    #[inline]
    fn byte(&self, at: usize) -> Option<u8> {
        self.get(at..at + 1)?.first().copied()
    }
}

impl<K: KeyBytes> Hopscotch<K> {
    /// What the bytes of `reach` say about `key`, whose home it is of. `linked`: the node's address was read, within this
    /// operation, of a node that is linked.
    #[must_use]
    pub fn near<'a>(
        &self,
        reach: &Reach,
        parts: (&'a [u8], &'a [u8]),
        key: &K,
        linked: bool,
        flaws: NearFlaws,
    ) -> Near<'a> {
        let second = reach.second.clone().unwrap_or_default();
        let view = View {
            parts: [(reach.first.start, parts.0), (second.start, parts.1)],
        };
        self.judge_near(reach, &view, key, linked, flaws)
            .unwrap_or(Near::Unsure)
    }

    fn judge_near<'a>(
        &self,
        reach: &Reach,
        view: &View<'a>,
        key: &K,
        linked: bool,
        flaws: NearFlaws,
    ) -> Option<Near<'a>> {
        let marked = self.marks(reach, view)?;
        let young = marked.flags & flag::YOUNG != 0 && !flaws.takes_young;
        let known = marked.flags & !(flag::YOUNG | flag::HAS_HIGH) == flag::NODE;
        let has_high = marked.flags & flag::HAS_HIGH != 0;
        let inside = *key >= marked.low && (!has_high || *key < marked.high);
        if !known || young && !linked || !inside && !flaws.found_unchecked {
            return None;
        }
        let (geometry, probe) = (&self.geometry, key.probe());
        let (mut found, mut twice, mut others) = (None, false, false);
        let (mut free, mut mixed) = (None, !inside);
        for slot in self.slots_near(self.home(key)) {
            let at = geometry.slot_at(slot);
            let entry = view.get(at..at + geometry.stride)?;
            if entry[0] >> VERSION_AT != marked.version {
                mixed = true;
            } else if entry[0] & PRESENT == 0 {
                free = free.or(Some(Slot::at(at)));
                if flaws.stops_at_vacancy {
                    break;
                }
            } else if K::probe_at(&entry[geometry.prefix..]) != probe {
                others = true;
            } else if found.is_some() {
                twice = true;
            } else {
                found = Some(at);
            }
        }
        if let Some(at) = found {
            return Some(Near::Found {
                slot: Slot::at(at),
                value: self.value_near(view, at, marked.version)?,
                version: marked.version,
                lonely: !others && !mixed,
                twice: twice || mixed,
            });
        }
        if mixed && !(flaws.absent_unchecked && inside) {
            return None;
        }
        Some(Near::Absent {
            free,
            version: marked.version,
        })
    }

    /// The value of the entry at `at`, if all of its lines are of one write.
    fn value_near<'a>(&self, view: &View<'a>, at: usize, version: u8) -> Option<ValueRef<'a>> {
        let lines = self.geometry.entry_lines;
        for line in 1..lines {
            let start = at + line * LINE_BYTES;
            let same =
                view.byte(start)? >> VERSION_AT == version && view.byte(start + 1)? == view.byte(at + 1)?;
            if !same {
                return None;
            }
        }
        Some(self.value_in(view.get(at..at + self.geometry.entry_lines_bytes())?))
    }

    /// What the marks in these parts say together, if they are of one version.
    fn marks(&self, reach: &Reach, view: &View<'_>) -> Option<Marked<K>> {
        let geometry = &self.geometry;
        let groups = geometry.marks_in(&reach.first);
        let wrapped = reach.second.as_ref().map(|range| geometry.marks_in(range));
        let mut fences = [0; 128];
        let mut pieces = 0_u32;
        let mut head: Option<[u8; MARK_HEAD]> = None;
        for group in groups.chain(wrapped.unwrap_or_default()) {
            let at = geometry.mark_at(group);
            let mark = view.get(at..at + MARK_HEAD + geometry.piece)?;
            let (own, piece) = mark.split_first_chunk()?;
            if *head.get_or_insert(*own) != *own {
                return None;
            }
            let number = group % geometry.pieces;
            pieces |= 1 << number;
            let to = number * geometry.piece;
            fences[to..to + geometry.piece].copy_from_slice(piece);
        }
        let [version, flags, ..] = head?;
        (pieces == (1 << geometry.pieces) - 1).then(|| Marked {
            version: version >> VERSION_AT,
            flags,
            low: K::read_from(&fences),
            high: K::read_from(&fences[K::LEN..]),
        })
    }
}

/// What the marks of a neighbourhood say.
struct Marked<K> {
    version: u8,
    flags: u8,
    low: K,
    high: K,
}
