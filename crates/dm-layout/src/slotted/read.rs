//! Acceptance and search over the bytes of one READ.

use super::geometry::{Entry, MARKED_4, MarkedChild, Plain, VERSIONS, WORDS, Word};
use super::{EMPTY, PRESENT, Slotted, entry_version};
use crate::chunks::Chunks as _;
use crate::cut::{Cut, accept, from_head, is_at_rest, offset_in};
use crate::error::{CheckFailure, Reason};
use crate::format::{Judged, Lookup, Place, Slot, Stale, judge};
use crate::header::{Header, LineLag};
use crate::key::KeyBytes;
use crate::value::ValueRef;
use crate::{LINE_BYTES, LINE_PAYLOAD, Line};

impl<K: KeyBytes> Slotted<K> {
    #[inline]
    fn cut(&self, head: &Line, lag: LineLag) -> Cut {
        Cut::of(&self.geometry.place, head, lag)
    }

    #[inline]
    pub(super) fn accept_node(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        accept(&self.geometry.place, bytes, self.lines(bytes)?)
    }

    /// Looks up a key. If it is found, only the header's line and the lines of the key's entry are checked: the header
    /// had this version at some time during the READ, and lines of this version (or of the neighbouring one that the
    /// header allows) hold the only entry of the key. If the key is absent, all lines and the low fence key are
    /// checked.
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
        let lag = match from_head(head, self.geometry.place.kind, key, level)? {
            Ok(lag) => lag,
            Err(elsewhere) => return Ok(elsewhere),
        };
        let cut = self.cut(head, lag);
        let hit = self.hit(bytes, lines, key, cut)?;
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

    /// Returns the key's slot, or `None` if the key is absent. Fails if `cut` does not accept the lines on which this
    /// depends.
    #[inline(always)]
    fn hit(&self, bytes: &[u8], lines: &[Line], key: &K, cut: Cut) -> Result<Option<Slot>, CheckFailure> {
        // The usual entries have constant strides, so that the loop is unrolled without bounds checks.
        match self.geometry.values() {
            8 => self.scan::<Plain<K, 8>>(lines, key, cut),
            16 => self.scan::<Plain<K, 16>>(lines, key, cut),
            _ => self.scan_inner(bytes, lines, key, cut),
        }
    }

    /// Implements [`hit`](Self::hit) for entries of inner nodes with children of 4 or 6 bytes, for words, and for
    /// entries of unusual sizes.
    fn scan_inner(
        &self,
        bytes: &[u8],
        lines: &[Line],
        key: &K,
        cut: Cut,
    ) -> Result<Option<Slot>, CheckFailure> {
        match self.geometry.values() {
            6 => self.scan::<Plain<K, 6>>(lines, key, cut),
            MARKED_4 => self.scan::<MarkedChild<K>>(lines, key, cut),
            WORDS => self.scan::<Word<K>>(lines, key, cut),
            _ => self.scan_any(bytes, lines, key, cut),
        }
    }

    #[inline(always)]
    fn scan<E: Entry>(&self, lines: &[Line], key: &K, cut: Cut) -> Result<Option<Slot>, CheckFailure> {
        let probe = key.probe();
        let first_line = self.geometry.first_line;
        let (before, rest) = lines.split_at(first_line);
        for index in 0..self.geometry.head_slots {
            let at = E::HEAD_AT + index * E::STRIDE;
            if Self::holds::<E>(&before[0][at..], probe) {
                return Ok(Some(Slot::at(at)));
            }
        }
        match Self::seek::<E>(rest, probe, cut.from).map(|byte| offset_in(lines, byte)) {
            Some(at) if at % LINE_BYTES == 0 => self.scan_mixed::<E>(lines, probe, cut),
            Some(at) => Ok(Some(Slot::at(at))),
            None if first_line == 1 => Ok(None),
            None => cut.whole(lines).map(|()| None),
        }
    }

    /// Returns the presence byte of the key's entry, or the version byte of a line of another version:
    /// whichever comes first.
    // This is a separate function that returns a reference. If it were inlined, the loop would count lines and offsets
    // too.
    #[inline(never)]
    fn seek<E: Entry>(lines: &[Line], probe: K::Probe, version: u8) -> Option<&u8> {
        // Each iteration handles two lines, because the overhead of an iteration is a quarter of the cost of a line.
        let (pairs, last) = lines.in_chunks::<2>();
        for [line, next] in pairs {
            if let Some(byte) = Self::seek_in::<E>(line, probe, version) {
                return Some(byte);
            }
            if let Some(byte) = Self::seek_in::<E>(next, probe, version) {
                return Some(byte);
            }
        }
        last.iter()
            .find_map(|line| Self::seek_in::<E>(line, probe, version))
    }

    #[inline(always)]
    fn seek_in<E: Entry>(line: &Line, probe: K::Probe, version: u8) -> Option<&u8> {
        if line[0] != version {
            return Some(&line[0]);
        }
        for nth in 0..E::PER_LINE {
            let entry = &line[E::LINE_AT + nth * E::STRIDE..];
            if Self::holds::<E>(entry, probe) {
                return Some(&entry[0]);
            }
        }
        None
    }

    /// Implements [`scan`](Self::scan) after the header's line, for lines of several versions.
    #[cold]
    #[inline(never)]
    fn scan_mixed<E: Entry>(
        &self,
        lines: &[Line],
        probe: K::Probe,
        cut: Cut,
    ) -> Result<Option<Slot>, CheckFailure> {
        for (index, line) in lines.iter().enumerate().skip(self.geometry.first_line) {
            let mut starts = (0..E::PER_LINE).map(|nth| E::LINE_AT + nth * E::STRIDE);
            if let Some(at) = starts.find(|at| Self::holds::<E>(&line[*at..], probe)) {
                return match cut.accepts(line) {
                    true => Ok(Some(Slot::at(index * LINE_BYTES + at))),
                    false => Err(CheckFailure::node_torn(index * LINE_BYTES)),
                };
            }
        }
        cut.whole(lines)?;
        Ok(None)
    }

    #[inline(always)]
    fn holds<E: Entry>(entry: &[u8], probe: K::Probe) -> bool {
        K::probe_at(&entry[E::KEY_AT..]) == probe && Self::says_present::<E>(entry[0])
    }

    #[inline(always)]
    const fn says_present<E: Entry>(byte: u8) -> bool {
        if E::MARKED {
            byte & PRESENT != 0
        } else {
            byte == PRESENT
        }
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
        cut.whole(lines)?;
        Ok(None)
    }

    /// Returns the slot that contains `key`, without checking its version.
    fn search(&self, bytes: &[u8], key: &K) -> Option<Slot> {
        let probe = key.probe();
        self.geometry.offsets().map(Slot::at).find(|slot| {
            let entry = &bytes[slot.offset()..];
            K::probe_at(&entry[self.geometry.key_at..]) == probe
                && self.geometry.presence(entry[0]) == Some(true)
        })
    }

    pub(super) fn torn_slot(&self, bytes: &[u8], key: &K) -> Option<Slot> {
        let lines = self.lines(bytes).ok()?;
        let slot = self.search(bytes, key)?;
        self.check_entry(lines, slot).is_err().then_some(slot)
    }

    /// Looks up a key for a writer, with at least the checks of [`lookup_node`](Self::lookup_node).
    #[inline]
    pub(super) fn judge_node(&self, bytes: &[u8], key: &K, level: u8) -> Result<Judged, CheckFailure> {
        let lines = self.lines(bytes)?;
        let head = &lines[0];
        if is_at_rest(head, self.geometry.place.kind, key, level) {
            let cut = self.cut(head, LineLag::Equal);
            let place = match self.geometry.values() {
                8 => self.place_in_line::<Plain<K, 8>>(bytes, lines, key, cut)?,
                16 => self.place_in_line::<Plain<K, 16>>(bytes, lines, key, cut)?,
                _ => match self.scan_inner(bytes, lines, key, cut)? {
                    Some(slot) => Some(Place::Present(slot)),
                    None => (!self.is_below(bytes, key)).then(|| self.room(bytes, lines, key)),
                },
            };
            if let Some(place) = place {
                return Ok(Judged::Here(place));
            }
        }
        self.judge_rest(bytes, key, level)
    }

    /// Returns the place of the key, or `None` if the key is less than the low fence key.
    #[inline(always)]
    fn place_in_line<E: Entry>(
        &self,
        bytes: &[u8],
        lines: &[Line],
        key: &K,
        cut: Cut,
    ) -> Result<Option<Place>, CheckFailure> {
        if let Some(slot) = self.scan::<E>(lines, key, cut)? {
            return Ok(Some(Place::Present(slot)));
        }
        if self.is_below(bytes, key) {
            return Ok(None);
        }
        let free = self.free::<E>(lines, key);
        Ok(Some(free.map_or(Place::Full, |at| Place::Free(Slot::at(at)))))
    }

    #[inline(always)]
    fn is_below(&self, bytes: &[u8], key: &K) -> bool {
        *key < self.geometry.place.low.read::<K>(bytes)
    }

    /// Handles the less common cases.
    #[cold]
    fn judge_rest(&self, bytes: &[u8], key: &K, level: u8) -> Result<Judged, CheckFailure> {
        judge(self, bytes, key, level)
    }

    /// Returns the slot for a key. The image was accepted before, so line versions need no check here.
    pub(super) fn place_key(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure> {
        let lines = self.lines(bytes)?;
        if let Some(slot) = self.hit(bytes, lines, key, Cut::ANY)? {
            return Ok(Place::Present(slot));
        }
        Ok(self.room(bytes, lines, key))
    }

    /// Returns a place for an absent key.
    #[inline(always)]
    fn room(&self, bytes: &[u8], lines: &[Line], key: &K) -> Place {
        let free = match self.geometry.values() {
            8 => self.free::<Plain<K, 8>>(lines, key),
            16 => self.free::<Plain<K, 16>>(lines, key),
            6 => self.free::<Plain<K, 6>>(lines, key),
            MARKED_4 => self.free::<MarkedChild<K>>(lines, key),
            WORDS => self.free::<Word<K>>(lines, key),
            _ => self.geometry.offsets().find(|at| bytes[*at] == EMPTY),
        };
        free.map_or(Place::Full, |at| Place::Free(Slot::at(at)))
    }

    /// Returns a free slot for `key`. The header's line is searched first. The search of the other lines begins at a
    /// line that depends on the key, because otherwise every insert would skip many full lines.
    #[inline(always)]
    fn free<E: Entry>(&self, lines: &[Line], key: &K) -> Option<usize> {
        let head = (0..self.geometry.head_slots)
            .map(|index| E::HEAD_AT + index * E::STRIDE)
            .find(|at| lines[0][*at] == EMPTY);
        if head.is_some() {
            return head;
        }
        let rest = lines.get(self.geometry.first_line..)?;
        let from = (usize::from(key.last_byte()) * rest.len()) >> 8;
        let (before, behind) = rest.split_at_checked(from)?;
        self.free_in::<E>(lines, behind)
            .or_else(|| self.free_before::<E>(lines, before))
    }

    #[inline(never)]
    fn free_before<E: Entry>(&self, lines: &[Line], before: &[Line]) -> Option<usize> {
        self.free_in::<E>(lines, before)
    }

    /// Returns the first free slot in `rest`, a part of `lines` after the header's line.
    #[inline(always)]
    fn free_in<E: Entry>(&self, lines: &[Line], mut rest: &[Line]) -> Option<usize> {
        loop {
            let line = Self::line_with_room::<E>(rest)?;
            let mut starts = (0..E::PER_LINE).map(|nth| E::LINE_AT + nth * E::STRIDE);
            if let Some(at) = starts.find(|at| line[*at] == EMPTY) {
                let at = offset_in(lines, &line[at]);
                // If a node has fewer entries than would fit, its slots end within a line.
                if at < self.geometry.slots_end {
                    return Some(at);
                }
            }
            // The presence bytes are invalid, or the free slot is beyond the node's last slot.
            let next = offset_in(rest, &line[0]) / LINE_BYTES + 1;
            rest = &rest[next..];
        }
    }

    /// Returns the first line that has a free slot.
    // This is a separate function for the same reason as `seek`.
    #[inline(never)]
    fn line_with_room<E: Entry>(lines: &[Line]) -> Option<&Line> {
        // One AND over the presence bytes of a line shows whether any of its slots is free.
        let slots =
            |line: &Line| (0..E::PER_LINE).fold(PRESENT, |all, nth| all & line[E::LINE_AT + nth * E::STRIDE]);
        lines.iter().find(|line| slots(line) == EMPTY)
    }

    /// Passes every entry of an accepted image to `each`.
    #[inline]
    pub(super) fn visit_entries<'a>(
        &self,
        bytes: &'a [u8],
        mut each: impl FnMut(K, ValueRef<'a>),
    ) -> Result<(), CheckFailure> {
        match self.geometry.values() {
            8 => self.visit_in_line::<Plain<K, 8>>(self.lines(bytes)?, each),
            16 => self.visit_in_line::<Plain<K, 16>>(self.lines(bytes)?, each),
            6 => self.visit_in_line::<Plain<K, 6>>(self.lines(bytes)?, each),
            MARKED_4 => self.visit_in_line::<MarkedChild<K>>(self.lines(bytes)?, each),
            WORDS => self.visit_in_line::<Word<K>>(self.lines(bytes)?, each),
            _ => {
                for at in self.geometry.offsets() {
                    if let Some((key, value)) = self.entry_at(bytes, Slot::at(at))? {
                        each(key, value);
                    }
                }
                Ok(())
            }
        }
    }

    /// Handles entries that have no entry version.
    #[inline(always)]
    fn visit_in_line<'a, E: Entry>(
        &self,
        lines: &'a [Line],
        mut each: impl FnMut(K, ValueRef<'a>),
    ) -> Result<(), CheckFailure> {
        self.present_in_line::<E>(lines, |entry| {
            let value = &entry[E::VALUE_AT..E::VALUE_AT + E::VALUE_LEN];
            each(K::read_from(&entry[E::KEY_AT..]), ValueRef::from(value));
        })
    }

    /// Passes the bytes of every present entry of this kind to `each`.
    #[inline(always)]
    pub(super) fn present_in_line<'a, E: Entry>(
        &self,
        lines: &'a [Line],
        mut each: impl FnMut(&'a [u8]),
    ) -> Result<(), CheckFailure> {
        let bad = |entry: &[u8]| CheckFailure::corrupt(offset_in(lines, &entry[0]), Reason::Presence);
        let Some(head) = lines.first() else { return Ok(()) };
        for index in 0..self.geometry.head_slots {
            let entry = head[E::HEAD_AT + index * E::STRIDE..].get(..E::STRIDE);
            if let Some(entry) = entry.filter(|entry| !Self::show::<E>(entry, &mut each)) {
                return Err(bad(entry));
            }
        }
        // If a node has fewer entries than would fit, its slots end within a line.
        let behind = self.geometry.capacity - self.geometry.head_slots;
        let (full, rest) = (behind / E::PER_LINE, behind % E::PER_LINE);
        let lines = lines.get(self.geometry.first_line..).unwrap_or_default();
        let (full, last) = lines.split_at_checked(full).unwrap_or((lines, &[]));
        for line in full {
            for nth in 0..E::PER_LINE {
                let entry = line[E::LINE_AT + nth * E::STRIDE..].get(..E::STRIDE);
                if let Some(entry) = entry.filter(|entry| !Self::show::<E>(entry, &mut each)) {
                    return Err(bad(entry));
                }
            }
        }
        for nth in 0..rest.min(last.len() * LINE_PAYLOAD) {
            let entry = last[0][E::LINE_AT + nth * E::STRIDE..].get(..E::STRIDE);
            if let Some(entry) = entry.filter(|entry| !Self::show::<E>(entry, &mut each)) {
                return Err(bad(entry));
            }
        }
        Ok(())
    }

    /// Passes a present entry to `each`. Returns `false` if its presence byte is invalid.
    #[inline(always)]
    fn show<'a, E: Entry>(entry: &'a [u8], each: &mut impl FnMut(&'a [u8])) -> bool {
        match entry[0] {
            EMPTY => true,
            byte if Self::says_present::<E>(byte) => {
                each(entry);
                true
            }
            _ => false,
        }
    }

    pub(super) fn floor_key<'a>(
        &self,
        bytes: &'a [u8],
        key: &K,
    ) -> Result<Option<(Slot, K, ValueRef<'a>)>, CheckFailure> {
        let lines = self.lines(bytes)?;
        let mut best: Option<(Slot, K)> = None;
        for at in self.geometry.offsets() {
            match self.geometry.presence(bytes[at]) {
                Some(false) => {}
                Some(true) => {
                    let found = K::read_from(&bytes[at + self.geometry.key_at..]);
                    if found <= *key && best.is_none_or(|(_, b)| b < found) {
                        best = Some((Slot::at(at), found));
                    }
                }
                None => return Err(CheckFailure::corrupt(at, Reason::Presence)),
            }
        }
        let Some((slot, found)) = best else {
            return Ok(None);
        };
        self.check_entry(lines, slot)?;
        Ok(Some((slot, found, self.value_at(bytes, slot))))
    }

    pub(super) fn entry_at<'a>(
        &self,
        bytes: &'a [u8],
        slot: Slot,
    ) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure> {
        let lines = self.lines(bytes)?;
        let at = slot.offset();
        match self.geometry.presence(bytes[at]) {
            Some(false) => Ok(None),
            Some(true) => {
                self.check_entry(lines, slot)?;
                let key = K::read_from(&bytes[at + self.geometry.key_at..]);
                Ok(Some((key, self.value_at(bytes, slot))))
            }
            None => Err(CheckFailure::corrupt(at, Reason::Presence)),
        }
    }

    /// Checks an entry that is larger than a line. All its lines must have the same entry version.
    fn check_entry(&self, lines: &[Line], slot: Slot) -> Result<(), CheckFailure> {
        if self.geometry.is_in_line() {
            return Ok(());
        }
        let first = slot.offset() / LINE_BYTES;
        let own = &lines[first..first + self.geometry.entry_lines];
        match own
            .iter()
            .all(|line| entry_version(line) == entry_version(&own[0]))
        {
            true => Ok(()),
            false => Err(CheckFailure::entry_torn(slot.offset())),
        }
    }

    #[inline]
    fn value_at<'a>(&self, bytes: &'a [u8], slot: Slot) -> ValueRef<'a> {
        let from = slot.offset() + self.geometry.value_at();
        let len = self.geometry.value_len;
        if self.geometry.is_in_line() {
            return ValueRef::from(&bytes[from..from + len]);
        }
        let first_line = slot.offset() / LINE_BYTES;
        let head_end = (first_line + 1) * LINE_BYTES;
        let lines = bytes[head_end..].in_chunks::<LINE_BYTES>().0;
        ValueRef::striped(
            VERSIONS,
            &bytes[from..head_end],
            &lines[..self.geometry.entry_lines - 1],
            len,
        )
    }
}
