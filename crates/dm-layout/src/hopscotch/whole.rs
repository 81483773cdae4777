//! Reads a whole node, for scans, splits and writers, and for readers whose neighbourhood proved nothing.

use super::geometry::MARK_VERSION;
use super::{Hopscotch, PRESENT, VERSION_AT};
use crate::LINE_BYTES;
use crate::chunks::Chunks as _;
use crate::error::{CheckFailure, Reason};
use crate::format::{Lookup, Place, Slot, Stale};
use crate::header::{Header, LineLag, NodeState};
use crate::key::KeyBytes;
use crate::value::ValueRef;

/// The versions that match a header: one, or two successive versions during a split or merge.
#[derive(Clone, Copy)]
struct Cut {
    mask: u8,
    from: u8,
    more: u8,
}

impl Cut {
    /// Returns whether the version in `byte` matches; the bits below the version do not matter.
    #[inline]
    const fn accepts(self, byte: u8) -> bool {
        (byte >> VERSION_AT).wrapping_sub(self.from) & self.mask <= self.more
    }
}

impl<K: KeyBytes> Hopscotch<K> {
    fn cut(&self, header: &Header<K>) -> Cut {
        let (from, more) = match header.lag {
            LineLag::Equal => (header.version, 0),
            LineLag::Behind => (header.version.wrapping_sub(1), 1),
            LineLag::Ahead => (header.version, 1),
        };
        Cut {
            mask: self.geometry.place.version_mask,
            from,
            more,
        }
    }

    /// Returns the positions of a node's line versions, except that of the first line. This is for entries that have
    /// their own lines.
    fn versions(&self) -> impl Iterator<Item = usize> + use<K> {
        let geometry = self.geometry;
        (0..geometry.groups * geometry.group_lines).map(move |line| {
            // In a group without an entry, only the mark's line has a version. In all other groups every line has one.
            match line / geometry.group_lines < geometry.span {
                true => (1 + line) * LINE_BYTES,
                false => geometry.mark_at(line / geometry.group_lines) + MARK_VERSION,
            }
        })
    }

    fn whole(&self, bytes: &[u8], cut: Cut) -> Result<(), CheckFailure> {
        let geometry = &self.geometry;
        if !geometry.is_in_line() {
            return match self.versions().find(|at| !cut.accepts(bytes[*at])) {
                Some(at) => Err(CheckFailure::node_torn(at / LINE_BYTES * LINE_BYTES)),
                None => Ok(()),
            };
        }
        for group in 0..geometry.groups {
            let at = geometry.mark_at(group);
            if !cut.accepts(bytes[at + MARK_VERSION]) {
                return Err(CheckFailure::node_torn(at / LINE_BYTES * LINE_BYTES));
            }
        }
        //= docs/protocol/chime.md H4
        match (0..geometry.entry_groups()).find(|group| !self.is_settled(bytes, *group)) {
            Some(group) => Err(CheckFailure::node_torn(geometry.group_at(group))),
            None => Ok(()),
        }
    }

    /// Returns whether both copies of the hop count of the boundary after `group` are equal.
    #[inline]
    pub(super) fn is_settled(&self, bytes: &[u8], group: usize) -> bool {
        let (before, after) = self.geometry.boundary(group);
        bytes[before] == bytes[after]
    }

    pub(super) fn accept_node(&self, bytes: &[u8]) -> Result<Header<K>, CheckFailure> {
        self.length(bytes)?;
        let header = self.geometry.place.decode::<K>(bytes)?;
        self.whole(bytes, self.cut(&header))?;
        // Check this after the cut, because the low fence key is in another line.
        Ok(self.geometry.place.sound(header)?)
    }

    /// Looks up a key as [`Slotted`](crate::Slotted) does: if the key is found, only the header's line and the key's
    /// lines are checked. To find that the key is absent, all lines are checked.
    pub(super) fn lookup_node<'a>(
        &self,
        bytes: &'a [u8],
        key: &K,
        level: u8,
    ) -> Result<Lookup<'a>, CheckFailure> {
        self.length(bytes)?;
        let header = self.geometry.place.decode::<K>(bytes)?;
        if header.state == NodeState::Dead {
            let forward = header.sibling;
            return Ok(Lookup::Stale(Stale::Dead { forward }));
        }
        if header.level != level {
            return Ok(Lookup::Stale(Stale::Level(header.level)));
        }
        if header.fences.is_below(key) {
            let sibling = header.sibling;
            return Ok(Lookup::GoRight { sibling });
        }
        let cut = self.cut(&header);
        if let Some(slot) = self.search(bytes, key) {
            let at = slot.offset();
            let torn =
                (0..self.geometry.entry_lines).find(|line| !cut.accepts(bytes[at + line * LINE_BYTES]));
            if let Some(line) = torn {
                return Err(CheckFailure::node_torn((at / LINE_BYTES + line) * LINE_BYTES));
            }
            self.check_entry(bytes, slot)?;
            return Ok(Lookup::Found {
                slot,
                value: self.value_at(bytes, slot),
            });
        }
        self.whole(bytes, cut)?;
        if *key < header.fences.low {
            return Ok(Lookup::Stale(Stale::Below));
        }
        Ok(Lookup::Absent)
    }

    /// Returns the first slot that contains `key`, without checking its version.
    fn search(&self, bytes: &[u8], key: &K) -> Option<Slot> {
        let geometry = &self.geometry;
        let probe = key.probe();
        self.offsets_near(self.home(key))
            .find(|at| bytes[*at] & PRESENT != 0 && K::probe_at(&bytes[*at + geometry.prefix..]) == probe)
            .map(Slot::at)
    }

    pub(super) fn torn_slot(&self, bytes: &[u8], key: &K) -> Option<Slot> {
        self.length(bytes).ok()?;
        let slot = self.search(bytes, key)?;
        self.check_entry(bytes, slot).is_err().then_some(slot)
    }

    pub(super) fn place_key(&self, bytes: &[u8], key: &K) -> Result<Place, CheckFailure> {
        self.length(bytes)?;
        if let Some(slot) = self.search(bytes, key) {
            self.check_entry(bytes, slot)?;
            return Ok(Place::Present(slot));
        }
        Ok(self.room(bytes, key).map_or(Place::Full, Place::Free))
    }

    /// Returns the free slot that is nearest to the key's home.
    pub(super) fn room(&self, bytes: &[u8], key: &K) -> Option<Slot> {
        self.offsets_near(self.home(key))
            .find(|at| bytes[*at] & PRESENT == 0)
            .map(Slot::at)
    }

    pub(super) fn entry_at<'a>(
        &self,
        bytes: &'a [u8],
        slot: Slot,
    ) -> Result<Option<(K, ValueRef<'a>)>, CheckFailure> {
        self.length(bytes)?;
        let at = slot.offset();
        if bytes[at] & PRESENT == 0 {
            return Ok(None);
        }
        self.check_entry(bytes, slot)?;
        let key = K::read_from(&bytes[at + self.geometry.prefix..]);
        // Readers search only the key's neighbourhood, so they would not find the entry in any other slot.
        let slot_number = self.geometry.slot_of(at);
        if self.distance(self.home(&key), slot_number) >= self.geometry.neighbourhood {
            return Err(CheckFailure::corrupt(at, Reason::Neighbourhood));
        }
        Ok(Some((key, self.value_at(bytes, slot))))
    }

    /// Checks an entry that has its own lines. All lines must have the same entry version.
    fn check_entry(&self, bytes: &[u8], slot: Slot) -> Result<(), CheckFailure> {
        let at = slot.offset();
        if self.geometry.is_in_line() {
            return Ok(());
        }
        match (1..self.geometry.entry_lines).all(|line| bytes[at + line * LINE_BYTES + 1] == bytes[at + 1]) {
            true => Ok(()),
            false => Err(CheckFailure::entry_torn(at)),
        }
    }

    fn value_at<'a>(&self, bytes: &'a [u8], slot: Slot) -> ValueRef<'a> {
        self.value_in(&bytes[slot.offset()..slot.offset() + self.geometry.entry_lines_bytes()])
    }

    /// Returns the value of an entry whose bytes are `entry`. If an entry takes several lines, the bytes must extend to
    /// the end of the last one.
    pub(super) fn value_in<'a>(&self, entry: &'a [u8]) -> ValueRef<'a> {
        let geometry = &self.geometry;
        let from = geometry.prefix + K::LEN;
        if geometry.entry_lines == 1 {
            return ValueRef::from(&entry[from..from + geometry.value_len]);
        }
        let (head, rest) = entry.split_at(LINE_BYTES);
        let lines = rest.in_chunks::<LINE_BYTES>().0;
        ValueRef::striped(
            geometry.prefix,
            &head[from..],
            &lines[..geometry.entry_lines - 1],
            geometry.value_len,
        )
    }
}
