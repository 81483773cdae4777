//! The remote memory of all nodes as one flat array of bytes. Its hash is updated with every change, and a reset
//! undoes only the changes.

use dm_verbs::{ChipPtr, LINE, NodeId, Place, RemotePtr, Space, VerbErrorKind};

use crate::fp::Fp;

#[derive(Clone, Copy, Debug)]
struct Region {
    node: u16,
    space: Space,
    base: u32,
    bytes: u32,
}

/// The memory of all nodes. Regions are line-aligned, so an address aligned in its region is aligned here.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: Vec<u8>,
    /// The content that a reset restores.
    image: Vec<u8>,
    /// The changed words since the reset: one entry per change, with the value before it.
    dirty: Vec<(u32, u64)>,
    regions: Vec<Region>,
    /// For each line, the exclusive or of the parts of its words in `hash`. As long as the image stays the same,
    /// different contents of a line have different values here.
    lines: Vec<Fp>,
    /// A hash of the difference between memory and image: an exclusive or over all words, updated with every change.
    pub(crate) hash: Fp,
}

impl Memory {
    pub(crate) fn new(nodes: u16, host_bytes: u64, chip_bytes: u64) -> Self {
        let mut regions = Vec::new();
        let mut base = 0u32;
        for node in 0..nodes {
            for (space, bytes) in [(Space::Host, host_bytes), (Space::Chip, chip_bytes)] {
                let bytes = u32::try_from(bytes).expect("the explorer's memory nodes are small");
                regions.push(Region {
                    node,
                    space,
                    base,
                    bytes,
                });
                base = base
                    .checked_add(bytes.next_multiple_of(LINE as u32))
                    .expect("memory fits 32 bits");
            }
        }
        Self {
            bytes: vec![0; base as usize],
            image: vec![0; base as usize],
            dirty: Vec::new(),
            lines: vec![Fp::default(); base as usize / LINE],
            regions,
            hash: Fp::default(),
        }
    }

    /// Makes the current content the image, which a reset restores.
    pub(crate) fn keep(&mut self) {
        self.image.copy_from_slice(&self.bytes);
        self.dirty.clear();
        self.lines.fill(Fp::default());
        self.hash = Fp::default();
    }

    /// Returns the words that have changed since the reset, with their values. A word that has changed back to its
    /// value in the image is among them.
    pub(crate) fn changes(&self) -> Vec<(u32, u64)> {
        let mut words: Vec<u32> = self.dirty.iter().map(|&(word, _)| word).collect();
        words.sort_unstable();
        words.dedup();
        words.into_iter().map(|w| (w, self.word(w * 8))).collect()
    }

    pub(crate) fn reset(&mut self) {
        for (word, _) in self.dirty.drain(..) {
            let at = word as usize * 8;
            self.bytes[at..at + 8].copy_from_slice(&self.image[at..at + 8]);
            self.lines[at / LINE] = Fp::default();
        }
        self.hash = Fp::default();
    }

    /// Returns the number of changes so far, the argument of [`Memory::go_back`].
    pub(crate) fn moment(&self) -> usize {
        self.dirty.len()
    }

    /// Replaces all changes so far by one change for each word that differs from the image, in the order of
    /// addresses. The number of changes then depends only on the content.
    pub(crate) fn compact(&mut self) {
        let words = self.changes();
        self.dirty.clear();
        for (word, now) in words {
            let at = word as usize * 8;
            let mut kept = [0; 8];
            kept.copy_from_slice(&self.image[at..at + 8]);
            let kept = u64::from_le_bytes(kept);
            if kept != now {
                self.dirty.push((word, kept));
            }
        }
    }

    /// Undoes all changes except the first `moment`.
    pub(crate) fn go_back(&mut self, moment: usize) {
        while self.dirty.len() > moment {
            let Some((word, old)) = self.dirty.pop() else {
                return;
            };
            let at = word as usize * 8;
            let new = self.word(word * 8);
            self.bytes[at..at + 8].copy_from_slice(&old.to_le_bytes());
            self.differ(word, old, new);
        }
    }

    /// Updates the hashes for a change of word number `word` from one of these values to the other.
    #[inline]
    fn differ(&mut self, word: u32, one: u64, other: u64) {
        let mut difference = Fp::at(u64::from(word), one);
        difference.xor(Fp::at(u64::from(word), other));
        self.hash.xor(difference);
        self.lines[word as usize * 8 / LINE].xor(difference);
    }

    pub(crate) fn size(&self, node: u16, space: Space) -> Option<u64> {
        self.regions
            .iter()
            .find(|r| r.node == node && r.space == space)
            .map(|r| u64::from(r.bytes))
    }

    /// Returns the flat address of the `len` bytes at `at`.
    pub(crate) fn flat(&self, at: Place, len: usize) -> Result<u32, VerbErrorKind> {
        let i = usize::from(at.node().0) * 2 + usize::from(at.space() == Space::Chip);
        let region = self.regions.get(i).ok_or(VerbErrorKind::NoSuchNode)?;
        let (size, end) = (u64::from(region.bytes), at.offset().checked_add(len as u64));
        if size == 0 || end.is_none_or(|end| end > size) {
            return Err(VerbErrorKind::beyond(at.space(), size));
        }
        Ok(region.base + at.offset() as u32)
    }

    /// Returns the address of flat byte `flat`.
    pub(crate) fn place(&self, flat: u32) -> Place {
        let region = self.regions.iter().rev().find(|r| r.base <= flat && r.bytes > 0);
        let Some(region) = region else {
            return RemotePtr::NULL.into();
        };
        let offset = u64::from(flat - region.base);
        match region.space {
            Space::Host => RemotePtr::new(NodeId(region.node), offset)
                .unwrap_or(RemotePtr::NULL)
                .into(),
            Space::Chip => ChipPtr::new(NodeId(region.node), offset)
                .unwrap_or(ChipPtr::NULL)
                .into(),
        }
    }

    #[inline]
    pub(crate) fn read(&self, from: u32, to: u32) -> &[u8] {
        &self.bytes[from as usize..to as usize]
    }

    /// Returns a hash of the bytes from `from` up to `to`, which lie within one line. For one range, equal contents
    /// have equal hashes.
    #[inline]
    pub(crate) fn content(&self, from: u32, to: u32) -> Fp {
        if to - from == LINE as u32 {
            // The hash of a line is updated with every change, because most reads are of whole lines.
            let mut f = self.lines[from as usize / LINE];
            f.fold(u64::from(from));
            return f;
        }
        Fp::bytes(self.read(from, to))
    }

    #[inline]
    pub(crate) fn word(&self, at: u32) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[at as usize..at as usize + 8]);
        u64::from_le_bytes(word)
    }

    /// Writes `bytes` at `at`. Returns true if anything changed.
    #[inline]
    pub(crate) fn write(&mut self, at: u32, bytes: &[u8]) -> bool {
        let mut changed = false;
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let room = (8 - at as usize % 8).min(rest.len());
            let (now, later) = rest.split_at(room);
            let word = at / 8;
            let old = self.word(word * 8);
            self.bytes[at as usize..at as usize + room].copy_from_slice(now);
            let new = self.word(word * 8);
            if old != new {
                changed = true;
                self.dirty.push((word, old));
                self.differ(word, old, new);
            }
            at += room as u32;
            rest = later;
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_are_compacted_depend_on_the_content_alone() {
        let mut memory = Memory::new(1, 256, 0);
        let write = |m: &mut Memory, at: u32, value: u64| m.write(at, &value.to_le_bytes());
        write(&mut memory, 64, 9);
        memory.keep();
        for (at, value) in [(128, 1), (64, 2), (128, 3), (8, 1), (8, 0)] {
            assert!(write(&mut memory, at, value));
        }
        let hash = memory.hash;
        memory.compact();
        assert_eq!(memory.dirty, [(8, 9), (16, 0)]);
        assert_eq!(memory.hash, hash);
        memory.go_back(1);
        assert_eq!((memory.word(64), memory.word(128)), (2, 0));
        memory.reset();
        assert_eq!((memory.word(64), memory.hash), (9, Fp::default()));
    }
}
