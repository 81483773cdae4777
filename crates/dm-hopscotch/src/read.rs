//! Reading one key by its neighbourhood, or by its single entry.

use dm_index::IndexError;
use dm_layout::{KeyBytes, Near, Reach, Slot};
use dm_verbs::{Event, LocalStep, RemotePtr, Verbs};

use crate::Neighbourhoods;

/// Address and length of a READ.
pub(crate) type Span = (RemotePtr, u32);

/// Returns the address and length of a range of the node at `at`.
pub(crate) fn stretch(at: RemotePtr, range: &core::ops::Range<usize>) -> Span {
    // A node has at most 64 KiB.
    (at.add(range.start as u64), range.len() as u32)
}

impl<K: KeyBytes> Neighbourhoods<K> {
    /// Reads `key` from the slot that the hotspot buffer has for it, if there is one. Returns `true`, with the key's
    /// value in `value`, if the key was there. If this returns `false`, the key may still be present.
    pub(crate) async fn get_alone<V: Verbs>(
        &self,
        v: &V,
        at: RemotePtr,
        key: &K,
        value: &mut Vec<u8>,
    ) -> Result<bool, IndexError> {
        let Some(hotspots) = &self.hotspots else {
            return Ok(false);
        };
        let hash = self.format.hash(key);
        v.local(LocalStep::Section).await;
        // The slot's number is checked, because the content of the buffer is only a guess.
        let guess = hotspots.guess(at, hash);
        let Some(number) = guess.filter(|n| usize::from(*n) < self.format.geometry().span()) else {
            return Ok(false);
        };
        v.meter().note(Event::Speculated);
        let geometry = self.format.geometry();
        // An entry within one line is never torn, even if its READ takes long.
        let posted = (!geometry.is_in_line()).then(|| v.now());
        let (from, len) = stretch(at, &geometry.entry(number.into()));
        let bytes = v.read(from, len).await?;
        //= docs/protocol/chime.md H8
        let proved = self.alone(&bytes, key);
        let slow = posted.is_some_and(|posted| v.elapsed(posted, self.options.read_window));
        let right = match proved.filter(|_| !slow) {
            Some(found) => {
                value.clear();
                found.append_to(value);
                true
            }
            None => false,
        };
        drop(bytes);
        v.local(LocalStep::Section).await;
        if right {
            hotspots.found(at, hash, number);
        } else {
            v.meter().note(Event::Misguessed);
            hotspots.wrong(at, hash, number);
        }
        Ok(right)
    }

    /// Remembers the slot in which `key` was found, if this compute node has a hotspot buffer.
    pub(crate) async fn remember<V: Verbs>(&self, v: &V, at: RemotePtr, key: &K, slot: Slot) {
        if let Some(hotspots) = &self.hotspots {
            v.local(LocalStep::Section).await;
            hotspots.found(at, self.format.hash(key), self.number(slot));
        }
    }

    #[inline]
    pub(crate) fn number(&self, slot: Slot) -> u16 {
        // A span has at most 512 slots.
        self.format.geometry().number_of(slot) as u16
    }

    /// Reads `key` from its neighbourhood. Returns whether the key is present, and its value in `value`. Returns `None`
    /// if the neighbourhood proves neither, or if its READ took too long.
    pub(crate) async fn get_near<V: Verbs>(
        &self,
        v: &V,
        (at, linked): (RemotePtr, bool),
        key: &K,
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>, IndexError> {
        let reach = self.format.geometry().reach(self.format.home(key));
        let posted = v.now();
        let (from, len) = stretch(at, &reach.first);
        let rest = reach.second.as_ref().map(|range| stretch(at, range));
        let answer = match (rest, self.options.metadata_replication) {
            (None, true) => {
                let bytes = v.read(from, len).await?;
                self.judge(&reach, (&bytes, &[]), key, linked, value)
            }
            (Some((start, rest)), true) => {
                let (first, second) = v.chain(at.node()).read(from, len).read(start, rest).await?;
                self.judge(&reach, (&first, &second), key, linked, value)
            }
            // The neighbourhood contains the header's information too. The header is read only so that this operation
            // has the same cost as in the paper; its content is not used.
            (None, false) => {
                let chain = v.chain(at.node()).read(at, self.header_len());
                let (_, bytes) = chain.read(from, len).await?;
                self.judge(&reach, (&bytes, &[]), key, linked, value)
            }
            (Some((start, rest)), false) => {
                let chain = v.chain(at.node()).read(at, self.header_len());
                let (_, first, second) = chain.read(from, len).read(start, rest).await?;
                self.judge(&reach, (&first, &second), key, linked, value)
            }
        };
        //= docs/protocol/chime.md H2
        if v.elapsed(posted, self.options.read_window) {
            return Ok(None);
        }
        if let Some(Some(slot)) = answer {
            self.remember(v, at, key, slot).await;
        }
        Ok(answer.map(|slot| slot.is_some()))
    }

    /// Searches the neighbourhood for the key. Returns `Some(Some(slot))`, with the value in `out`, if the key is
    /// present, and `Some(None)` if it is absent. Returns `None` if the bytes prove neither.
    fn judge(
        &self,
        reach: &Reach,
        parts: (&[u8], &[u8]),
        key: &K,
        linked: bool,
        out: &mut Vec<u8>,
    ) -> Option<Option<Slot>> {
        match self.near(reach, parts, key, linked, true) {
            Near::Found { slot, value, .. } => {
                out.clear();
                value.append_to(out);
                Some(Some(slot))
            }
            Near::Absent { .. } => Some(None),
            Near::Unsure => None,
        }
    }
}
