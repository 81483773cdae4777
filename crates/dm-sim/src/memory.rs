//! The memory of one node: plain bytes, because the whole simulation runs on one thread.

use dm_verbs::Space;
use memmap2::{MmapMut, MmapOptions};

use crate::prefetch;

/// Host and on-chip memory of one memory node.
#[derive(Debug)]
pub(crate) struct Memory {
    host: MmapMut,
    chip: Box<[u8]>,
}

impl Memory {
    /// Makes zeroed memory; a host page takes no memory before its first use.
    pub(crate) fn new(host_bytes: usize, chip_bytes: usize, huge_pages: bool) -> std::io::Result<Self> {
        let host = MmapOptions::new()
            .len(host_bytes.max(4096))
            .no_reserve_swap()
            .map_anon()?;
        if huge_pages {
            // This is only a hint to the kernel: a system without huge pages uses small ones.
            #[cfg(target_os = "linux")]
            let _ = host.advise(memmap2::Advice::HugePage);
        }
        Ok(Self {
            host,
            chip: vec![0; chip_bytes].into_boxed_slice(),
        })
    }

    #[inline]
    pub(crate) fn bytes(&self, space: Space) -> &[u8] {
        match space {
            Space::Host => &self.host,
            Space::Chip => &self.chip,
        }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, space: Space) -> &mut [u8] {
        match space {
            Space::Host => &mut self.host,
            Space::Chip => &mut self.chip,
        }
    }

    /// Reads the little-endian word at `at`, which must be in bounds.
    #[inline]
    pub(crate) fn word(&self, space: Space, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes(space)[at..at + 8]);
        u64::from_le_bytes(word)
    }

    /// Writes the word at `at`.
    #[inline]
    pub(crate) fn set_word(&mut self, space: Space, at: usize, word: u64) {
        self.bytes_mut(space)[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// Hints that `[at, at + len)` of host memory will be accessed within the next few hundred events.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize, len: usize) {
        prefetch::lines(self.host.get(at..at + len).unwrap_or_default());
    }

    /// Hints that the line of `at` in host memory will be accessed soon.
    #[inline(always)]
    pub(crate) fn prefetch_line(&self, at: usize) {
        if let Some(byte) = self.host.get(at) {
            prefetch::line(byte);
        }
    }
}
