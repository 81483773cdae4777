//! Acceptance and search over the bytes of one READ.

use super::{EMPTY, PRESENT, Slotted};
use crate::error::{CheckFailure, Reason};
use crate::format::{Lookup, Place, Slot, Stale};
use crate::header::{HAS_HIGH, Header, KIND_AT, LineLag, NodeState, PREFIX_BYTES, STATE_AT};
use crate::header::{header_bytes, unpack_state};
use crate::key::KeyBytes;
use crate::value::ValueRef;
use crate::{LINE_BYTES, LINE_PAYLOAD, Line};

/// The line versions that go with a header: one, or two neighbours during a split or merge.
#[derive(Clone, Copy)]
struct Cut {
    mask: u8,
    version: u8,
    other: u8,
}

impl Cut {
    #[inline]
    const fn accepts(self, line: &Line) -> bool {
        let version = line[0] & self.mask;
        (version == self.version) | (version == self.other)
    }
}

impl<K: KeyBytes> Slotted<K> {
    #[inline]
    fn cut(&self, head: &Line, lag: LineLag) -> Cut {
        let place = &self.geometry.place;
        let mask = place.version_mask();
        let version = head[0] & mask;
        let other = match lag {
            LineLag::Equal => version,
            LineLag::Behind => version.wrapping_sub(1) & mask,
            LineLag::Ahead => version.wrapping_add(1) & mask,
        };
        Cut { mask, version, other }
    }

    pub(super) fn accept_node(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        let lines = self.lines(bytes)?;
        let header = self.geometry.place.decode::<K>(bytes)?;
        Self::whole(lines, self.cut(&lines[0], header.lag))?;
        // After the cut: the low fence may lie in another line.
        Ok(self.geometry.place.decode_sound(bytes)?)
    }

    fn whole(lines: &[Line], cut: Cut) -> Result<(), CheckFailure> {
        match lines.iter().position(|line| !cut.accepts(line)) {
            None => Ok(()),
            Some(line) => Err(CheckFailure::node_torn(line * LINE_BYTES)),
        }
    }

    /// An entry that is found proves itself with the header's line and its own: the header was at this version at
    /// some time during the READ, and a line of that version (or the neighbour that the header admits) holds the
    /// key's only entry. Only absence needs all lines, and the low fence.
    #[inline]
    pub(super) fn lookup_node<'a>(
        &self,
        bytes: &'a [u8],
        key: &K,
        level: u8,
    ) -> Result<Lookup<'a>, CheckFailure> {
        let lines = self.lines(bytes)?;
        let Some((head, _)) = lines.split_first() else {
            return Err(CheckFailure::corrupt(0, Reason::Length));
        };
        if head[KIND_AT] != super::KIND {
            return Err(CheckFailure::corrupt(KIND_AT, Reason::Kind));
        }
        let Some((state, lag, _)) = unpack_state(head[STATE_AT]) else {
            return Err(CheckFailure::corrupt(STATE_AT, Reason::State));
        };
        let sibling = || ValueRef::from(&head[8..PREFIX_BYTES]).as_u64();
        if state == NodeState::Dead {
            return Ok(Lookup::Stale(Stale::Dead { forward: sibling() }));
        }
        if head[2] != level {
            return Ok(Lookup::Stale(Stale::Level(head[2])));
        }
        if head[STATE_AT] & HAS_HIGH != 0 && *key >= K::read_from(&head[PREFIX_BYTES..]) {
            return Ok(Lookup::GoRight { sibling: sibling() });
        }
        let cut = self.cut(head, lag);
        // Constant strides for the usual entries, so that the scan unrolls without bounds checks.
        let hit = match self.geometry.entry_bytes {
            17 => self.scan::<17>(lines, key, cut),
            25 => self.scan::<25>(lines, key, cut),
            41 => self.scan::<41>(lines, key, cut),
            _ => self.scan_any(bytes, lines, key, cut),
        }?;
        if let Some(slot) = hit {
            return Ok(Lookup::Found {
                slot,
                value: self.value_at(bytes, slot),
            });
        }
        if *key < self.geometry.place.low.read::<K>(bytes) {
            return Ok(Lookup::Stale(Stale::Below));
        }
        Ok(Lookup::Absent)
    }

    #[inline]
    fn scan<const STRIDE: usize>(
        &self,
        lines: &[Line],
        key: &K,
        cut: Cut,
    ) -> Result<Option<Slot>, CheckFailure> {
        let probe = key.probe();
        let head_end = header_bytes(K::LEN);
        for index in 0..self.geometry.head_slots {
            let at = head_end + index * STRIDE;
            if Self::holds(&lines[0][at..], probe) {
                return Ok(Some(Slot::at(at)));
            }
        }
        let mut torn = usize::MAX;
        for (index, line) in lines.iter().enumerate().skip(1) {
            if !cut.accepts(line) {
                torn = index;
            }
            if index < self.geometry.first_line {
                continue;
            }
            for nth in 0..LINE_PAYLOAD / STRIDE {
                let at = 1 + nth * STRIDE;
                if Self::holds(&line[at..], probe) {
                    if torn == index {
                        return Err(CheckFailure::node_torn(index * LINE_BYTES));
                    }
                    return Ok(Some(Slot::at(index * LINE_BYTES + at)));
                }
            }
        }
        if torn != usize::MAX {
            return Err(CheckFailure::node_torn(torn * LINE_BYTES));
        }
        Ok(None)
    }

    #[inline]
    fn holds(entry: &[u8], probe: K::Probe) -> bool {
        K::probe_at(&entry[1..]) == probe && entry[0] == PRESENT
    }

    fn scan_any(
        &self,
        bytes: &[u8],
        lines: &[Line],
        key: &K,
        cut: Cut,
    ) -> Result<Option<Slot>, CheckFailure> {
        if let Some(slot) = self.search(bytes, key) {
            let first = slot.offset() / LINE_BYTES;
            let own = &lines[first..first + self.geometry.entry_lines];
            if let Some(nth) = own.iter().position(|line| !cut.accepts(line)) {
                return Err(CheckFailure::node_torn((first + nth) * LINE_BYTES));
            }
            self.check_entry(lines, slot)?;
            return Ok(Some(slot));
        }
        Self::whole(lines, cut)?;
        Ok(None)
    }

    /// The slot that shows `key`, unchecked.
    fn search(&self, bytes: &[u8], key: &K) -> Option<Slot> {
        let probe = key.probe();
        (0..self.geometry.capacity)
            .map(|index| Slot::at(self.geometry.slot_offset(index)))
            .find(|slot| Self::holds(&bytes[slot.offset()..], probe))
    }

    pub(super) fn place_key(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure> {
        let lines = self.lines(bytes)?;
        let probe = key.probe();
        let mut free = None;
        for index in 0..self.geometry.capacity {
            let slot = Slot::at(self.geometry.slot_offset(index));
            let entry = &bytes[slot.offset()..];
            if entry[0] == EMPTY {
                free = free.or(Some(slot));
            } else if Self::holds(entry, probe) {
                self.check_entry(lines, slot)?;
                return Ok(Place::Present(slot));
            }
        }
        Ok(free.map_or(Place::Full, Place::Free))
    }

    pub(super) fn entry_at<'a>(
        &self,
        bytes: &'a [u8],
        slot: Slot,
    ) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure> {
        let lines = self.lines(bytes)?;
        let at = slot.offset();
        match bytes[at] {
            EMPTY => Ok(None),
            PRESENT => {
                self.check_entry(lines, slot)?;
                Ok(Some((K::read_from(&bytes[at + 1..]), self.value_at(bytes, slot))))
            }
            _ => Err(CheckFailure::corrupt(at, Reason::Presence)),
        }
    }

    /// An entry larger than a line: all of its lines carry one entry version.
    fn check_entry(&self, lines: &[Line], slot: Slot) -> Result<(), CheckFailure> {
        if self.geometry.is_in_line() {
            return Ok(());
        }
        let first = slot.offset() / LINE_BYTES;
        let version = lines[first][0] >> 4;
        match lines[first..first + self.geometry.entry_lines]
            .iter()
            .all(|line| line[0] >> 4 == version)
        {
            true => Ok(()),
            false => Err(CheckFailure::entry_torn(slot.offset())),
        }
    }

    #[inline]
    fn value_at<'a>(&self, bytes: &'a [u8], slot: Slot) -> ValueRef<'a> {
        let from = slot.offset() + 1 + K::LEN;
        let len = self.geometry.value_len;
        if self.geometry.is_in_line() {
            return ValueRef::from(&bytes[from..from + len]);
        }
        let first_line = slot.offset() / LINE_BYTES;
        let head_end = (first_line + 1) * LINE_BYTES;
        let lines = bytes[head_end..].as_chunks::<LINE_BYTES>().0;
        ValueRef::striped(
            &bytes[from..head_end],
            &lines[..self.geometry.entry_lines - 1],
            len,
        )
    }
}
