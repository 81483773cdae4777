//! The rule by which a reader decides whether the lines of one READ belong together. The first byte of every line is
//! its version.

use crate::error::CheckFailure;
use crate::format::{Lookup, Stale};
use crate::header::{
    HAS_HIGH, Header, HeaderPlace, KIND_AT, LineLag, NodeState, PREFIX_BYTES, STATE_AT, pack_state,
    unpack_state,
};
use crate::key::KeyBytes;
use crate::value::ValueRef;
use crate::{LINE_BYTES, Line, error::Reason};

/// Position of the level in a header.
const LEVEL_AT: usize = 2;
/// Position of the sibling in a header.
const SIBLING_AT: usize = 8;
/// The state byte of a live node that has no high fence key.
const AT_REST: u8 = pack_state(NodeState::Live, LineLag::Equal, false);

/// The line versions that a reader accepts with a header: one, or two successive ones during a split or merge.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    mask: u8,
    /// The lowest version that is accepted.
    pub(crate) from: u8,
    /// Number of versions after `from` that are accepted too.
    more: u8,
}

impl Cut {
    /// Accepts all versions, for an image that was accepted before.
    pub(crate) const ANY: Self = Self {
        mask: 0,
        from: 0,
        more: 0,
    };

    /// Returns the line versions that match the header in `head`, the first line of a node. `lag` is the lag in that
    /// header.
    #[inline]
    pub(crate) const fn of(place: &HeaderPlace, head: &Line, lag: LineLag) -> Self {
        let version = head[0];
        let (from, more) = match lag {
            LineLag::Equal => (version, 0),
            LineLag::Behind => (version.wrapping_sub(1), 1),
            LineLag::Ahead => (version, 1),
        };
        Self {
            mask: place.version_mask,
            from,
            more,
        }
    }

    #[inline]
    pub(crate) const fn accepts(self, line: &Line) -> bool {
        self.distance(line) <= self.more
    }

    #[inline]
    const fn distance(self, line: &Line) -> u8 {
        line[0].wrapping_sub(self.from) & self.mask
    }

    /// Checks that all lines of a node match its header.
    #[inline]
    pub(crate) fn whole(self, lines: &[Line]) -> Result<(), CheckFailure> {
        // This computes the greatest distance of all lines, so that it needs no branch per line.
        let worst = lines.iter().fold(0, |worst, line| self.distance(line).max(worst));
        if worst <= self.more {
            return Ok(());
        }
        let line = lines.iter().position(|line| !self.accepts(line)).unwrap_or(0);
        Err(CheckFailure::node_torn(line * LINE_BYTES))
    }
}

/// Returns the version for the next WRITE of an entry whose lines have these versions: the one after the newest, which
/// no line has. If clients died while they wrote the entry, its lines have several versions. A reader must not accept a
/// line of one of these WRITEs together with lines of the next WRITE, even if it has read the line before another WRITE
/// replaced it. So the version must not be one that was overwritten just before.
pub(crate) fn next_entry_version(mask: u16, lines: impl Iterator<Item = u16> + Clone) -> u16 {
    // Versions wrap, so a version that is ahead by more than half of all versions counts as older.
    let newer = |a: u16, b: u16| match b.wrapping_sub(a) & mask <= mask / 2 {
        true => b,
        false => a,
    };
    let newest = lines.clone().reduce(newer).unwrap_or(0);
    let mut next = (1..=mask).map(|steps| newest.wrapping_add(steps) & mask);
    let unused = next.find(|version| lines.clone().all(|line| line != *version));
    // Lines can have all versions only if the bytes are damaged, or if many clients in a row have died while they wrote
    // this entry.
    unused.unwrap_or(newest.wrapping_add(1) & mask)
}

/// Returns the offset in `lines` of `byte`, which is one of their bytes. The position is computed from the address of
/// the byte, so that loops need no counter.
#[inline]
pub(crate) fn offset_in(lines: &[Line], byte: &u8) -> usize {
    core::ptr::from_ref(byte).addr() - lines.as_ptr().addr()
}

/// Compares `key` and `level` with the header in the first line of a node. The inner `Err` is the result of the lookup,
/// if the node is dead, has another level, or covers only smaller keys. The inner `Ok` is the lag with which to search
/// the lines. The low fence key, which may be in another line, is not checked.
#[inline(always)]
pub(crate) fn from_head<'a, K: KeyBytes>(
    head: &'a Line,
    kind: u8,
    key: &K,
    level: u8,
) -> Result<Result<LineLag, Lookup<'a>>, CheckFailure> {
    if head[KIND_AT] != kind {
        return Err(CheckFailure::corrupt(KIND_AT, Reason::Kind));
    }
    let Some((state, lag, _)) = unpack_state(head[STATE_AT]) else {
        return Err(CheckFailure::corrupt(STATE_AT, Reason::State));
    };
    let sibling = || ValueRef::from(&head[SIBLING_AT..PREFIX_BYTES]).as_u64();
    if state == NodeState::Dead {
        return Ok(Err(Lookup::Stale(Stale::Dead { forward: sibling() })));
    }
    if head[LEVEL_AT] != level {
        return Ok(Err(Lookup::Stale(Stale::Level(head[LEVEL_AT]))));
    }
    if head[STATE_AT] & HAS_HIGH != 0 && *key >= K::read_from(&head[PREFIX_BYTES..]) {
        return Ok(Err(Lookup::GoRight { sibling: sibling() }));
    }
    Ok(Ok(lag))
}

/// Returns whether the header's line belongs to a node of `level` that is not being changed, and whose high fence key,
/// if there is one, is greater than `key`.
#[inline(always)]
pub(crate) fn is_at_rest<K: KeyBytes>(head: &Line, kind: u8, key: &K, level: u8) -> bool {
    let state = head[STATE_AT];
    let live = state & !HAS_HIGH == AT_REST && head[KIND_AT] == kind && head[LEVEL_AT] == level;
    live && (state == AT_REST || *key < K::read_from(&head[PREFIX_BYTES..]))
}

/// Applies the acceptance rule to a whole node.
#[inline]
pub(crate) fn accept<K: KeyBytes>(
    place: &HeaderPlace,
    bytes: &[u8],
    lines: &[Line],
) -> Result<Header<K>, CheckFailure> {
    let header = place.decode::<K>(bytes)?;
    Cut::of(place, &lines[0], header.lag).whole(lines)?;
    // Check this after the cut, because the low fence key may be in another line.
    Ok(place.sound(header)?)
}

#[cfg(test)]
mod tests {
    use super::next_entry_version;

    /// Three clients in a row die while they write an entry of three lines. Each WRITE has the version after that of
    /// the WRITE before it, whichever lines took effect, and wherever versions wrap.
    #[test]
    fn writes_that_landed_in_part_have_successive_versions() {
        let parts =
            || (1..8).map(|landed| core::array::from_fn::<bool, 3, _>(|line| landed >> line & 1 != 0));
        for (mask, first) in [(0xf, 0), (0xf, 14), (0xff, 254), (0xffff, 0xfffd)] {
            for (a, b, c) in parts().flat_map(|a| parts().flat_map(move |b| parts().map(move |c| (a, b, c))))
            {
                let (mut lines, mut last) = ([first; 3], first);
                for landed in [a, b, c] {
                    let version = next_entry_version(mask, lines.into_iter());
                    assert_eq!(version, u16::wrapping_add(last, 1) & mask, "{lines:?}");
                    for line in (0..3).filter(|line| landed[*line]) {
                        lines[line] = version;
                    }
                    last = version;
                }
            }
        }
    }

    /// Even if the lines have most of the versions, the next one differs from all of them.
    #[test]
    fn the_next_version_is_one_that_no_line_has() {
        for lines in (0..64).map(|n| [n & 3, n >> 2 & 3, n >> 4 & 3]) {
            assert!(
                !lines.contains(&next_entry_version(3, lines.into_iter())),
                "{lines:?}"
            );
        }
    }
}
