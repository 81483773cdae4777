//! Reads one neighbourhood, which is the central idea of CHIME.
//!
//! The bytes of a neighbourhood ([`HopGeometry::reach`](super::HopGeometry::reach)) contain everything that a reader
//! needs to check them: marks with both fence keys and the node version, and the node version in every entry.
//!
//! * A key is *found* if its own line and the marks have one version. Then, in this version, the node had these fence
//!   keys, and its line contained the key.
//! * A key is *absent* only if all lines of its neighbourhood and the marks have one version, and both copies of each
//!   hop count between its slots are equal. Then no hop across a boundary of lines took effect between the READs of the
//!   lines. Within a line a hop is atomic. So the READ would have seen the key in one of its slots.
//!
//! All other bytes prove nothing. They may be a mixture, or belong to a node with another range of keys, to a dead
//! node, or to a young node whose address the reader has not read in a linked node. The reader must then read the whole
//! node.

use super::geometry::{FENCES_MAX, MARK_HEAD, MARK_VERSION};
use super::study::NearFlaws;
use super::{Hopscotch, PRESENT, Reach, VERSION_AT, flag};
use crate::LINE_BYTES;
use crate::format::Slot;
use crate::key::KeyBytes;
use crate::value::ValueRef;

/// The result of searching a neighbourhood for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near<'a> {
    /// The node contains the key.
    Found {
        /// The slot of the key.
        slot: Slot,
        /// The value of the key.
        value: ValueRef<'a>,
        /// The node version. An edit that writes the entry's first byte must write this version.
        version: u8,
        /// Whether no slot of the neighbourhood contains another key; `false` if this is not known.
        lonely: bool,
        /// Whether another slot contains the key too, or may contain it, because a hop was not finished. The value is
        /// correct in any case.
        twice: bool,
    },
    /// The node covers the key, but does not contain it.
    Absent {
        /// The free slot that is nearest to the key's home.
        free: Option<Slot>,
        /// The node version.
        version: u8,
    },
    /// These bytes prove nothing. Read the whole node.
    Unsure,
}

impl<K: KeyBytes> Hopscotch<K> {
    /// Looks up `key` in `reach`, the neighbourhood of the key's home. `parts` are the bytes of the two ranges of
    /// `reach`; the second part is empty if there is only one range. `linked` tells whether this operation has read the
    /// node's address in a linked node.
    #[must_use]
    pub fn near<'a>(&self, reach: &Reach, parts: (&'a [u8], &'a [u8]), key: &K, linked: bool) -> Near<'a> {
        self.search_near(reach, parts, key, linked, NearFlaws::default())
    }

    #[inline]
    pub(super) fn search_near<'a>(
        &self,
        reach: &Reach,
        parts: (&'a [u8], &'a [u8]),
        key: &K,
        linked: bool,
        flaws: NearFlaws,
    ) -> Near<'a> {
        let from = reach.first.start;
        let judged = match &reach.second {
            // Most neighbourhoods are one range.
            None => {
                let get = |at: usize, len: usize| parts.0.get(at.wrapping_sub(from)..)?.get(..len);
                self.judge_near(reach, get, key, linked, flaws)
            }
            Some(second) => {
                let get = |at: usize, len: usize| {
                    let (from, bytes) = match at >= from {
                        true => (from, parts.0),
                        false => (second.start, parts.1),
                    };
                    bytes.get(at.checked_sub(from)?..)?.get(..len)
                };
                self.judge_near(reach, get, key, linked, flaws)
            }
        };
        judged.unwrap_or(Near::Unsure)
    }

    /// Looks up `key`. `get(offset, len)` must return `len` bytes of the node from `offset` on, or `None` if they are
    /// not in `reach`. Returns `None` if the bytes prove nothing.
    #[inline]
    fn judge_near<'a>(
        &self,
        reach: &Reach,
        get: impl Fn(usize, usize) -> Option<&'a [u8]>,
        key: &K,
        linked: bool,
        flaws: NearFlaws,
    ) -> Option<Near<'a>> {
        let marked = self.marks(reach, &get, flaws)?;
        let young = marked.flags & flag::YOUNG != 0 && !flaws.takes_young;
        let known = marked.flags & !(flag::YOUNG | flag::HAS_HIGH) == flag::NODE;
        let has_high = marked.flags & flag::HAS_HIGH != 0;
        let inside = *key >= marked.low && (!has_high || *key < marked.high);
        if !known || young && !linked || !inside && !flaws.any_range {
            return None;
        }
        let (geometry, probe) = (&self.geometry, key.probe());
        let (mut found, mut twice, mut others) = (None, false, false);
        let (mut free, mut mixed) = (None, false);
        let mut before = None;
        'entries: for (group, run) in self.runs(reach.home, geometry.neighbourhood) {
            // Larger entries do not hop.
            let before = before.replace(group).filter(|_| geometry.is_in_line());
            if let Some(before) = before {
                let (one, other) = geometry.boundary(before);
                mixed |= get(one, 1)? != get(other, 1)?;
            }
            let mut at = run.start;
            let mut rest = get(at, run.len())?;
            while let Some((entry, behind)) = rest.split_at_checked(geometry.stride) {
                if entry[0] >> VERSION_AT != marked.version {
                    mixed = true;
                } else if entry[0] & PRESENT == 0 {
                    free = free.or(Some(Slot::at(at)));
                    if flaws.stops_at_vacancy {
                        break 'entries;
                    }
                } else if K::probe_at(&entry[geometry.prefix..]) != probe {
                    others = true;
                } else if found.is_some() {
                    twice = true;
                } else {
                    found = Some(at);
                }
                at += geometry.stride;
                rest = behind;
            }
        }
        if let Some(at) = found {
            return Some(Near::Found {
                slot: Slot::at(at),
                value: self.value_near(&get, at, marked.version)?,
                version: marked.version,
                lonely: !others && !mixed,
                twice: twice || mixed,
            });
        }
        if mixed && !flaws.absent_unchecked {
            return None;
        }
        Some(Near::Absent {
            free,
            version: marked.version,
        })
    }

    /// Returns the value of the entry at `at`, if all its lines belong to one WRITE.
    fn value_near<'a>(
        &self,
        get: &impl Fn(usize, usize) -> Option<&'a [u8]>,
        at: usize,
        version: u8,
    ) -> Option<ValueRef<'a>> {
        let entry = get(at, self.geometry.entry_lines_bytes())?;
        for line in 1..self.geometry.entry_lines {
            let start = line * LINE_BYTES;
            if entry[start] >> VERSION_AT != version || entry[start + 1] != entry[1] {
                return None;
            }
        }
        Some(self.value_in(entry))
    }

    /// Returns the combined content of the marks of `reach`. Returns `None` if their versions or flags differ, or if a
    /// piece of the fence keys is missing.
    #[inline]
    fn marks<'a>(
        &self,
        reach: &Reach,
        get: &impl Fn(usize, usize) -> Option<&'a [u8]>,
        flaws: NearFlaws,
    ) -> Option<Marked<K>> {
        let geometry = &self.geometry;
        let mut fences = [K::MIN; 2];
        let mut halves = [0; FENCES_MAX];
        let mut pieces = 0_u32;
        let mut head: Option<[u8; MARK_HEAD - MARK_VERSION]> = None;
        for groups in &reach.marks {
            for group in groups.clone() {
                let mark = get(geometry.mark_at(group), MARK_HEAD + geometry.piece)?;
                let (own, piece) = mark.get(MARK_VERSION..)?.split_first_chunk()?;
                if *head.get_or_insert(*own) != *own && !flaws.absent_unchecked {
                    return None;
                }
                // There are two or four pieces, so a mask computes the remainder.
                let number = group & (geometry.pieces - 1);
                if pieces >> number & 1 == 0 {
                    pieces |= 1 << number;
                    match fences.get_mut(number) {
                        // Usually a piece is a whole key.
                        Some(fence) if geometry.piece == K::LEN => *fence = K::read_from(piece),
                        _ => {
                            let to = number * geometry.piece;
                            halves[to..to + geometry.piece].copy_from_slice(piece);
                        }
                    }
                }
            }
        }
        let [version, flags] = head?;
        if pieces != (1 << geometry.pieces) - 1 {
            return None;
        }
        if geometry.piece != K::LEN {
            fences = [
                K::read_from(&halves),
                K::read_from(&halves[geometry.fence_bytes()..]),
            ];
        }
        let [low, high] = fences;
        Some(Marked {
            version: version >> VERSION_AT,
            flags,
            low,
            high,
        })
    }
}

/// The content of a neighbourhood's marks.
struct Marked<K> {
    version: u8,
    flags: u8,
    low: K,
    high: K,
}
