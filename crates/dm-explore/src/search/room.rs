//! Memory for the entries of a table. Large tables use huge pages, because nearly every look-up accesses another page.

use core::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::fp::Fp;

/// A visited state. It lies within one cache line, so most look-ups cost one miss.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub(super) struct Entry {
    pub(super) state: Fp,
    /// The steps that were asleep each time that the state was reached: one bit for each of the first 64 steps.
    pub(super) sleep: u64,
    /// The state's number in the shard, from 1; 0 if the entry is empty.
    pub(super) number: u32,
    _padding: u32,
}

const _: () = assert!(size_of::<Entry>() == 32);

impl Entry {
    pub(super) fn new(state: Fp, sleep: u64, number: u32) -> Self {
        Self {
            state,
            sleep,
            number,
            _padding: 0,
        }
    }
}

/// The entries of a table. All are empty at first.
pub(super) enum Room {
    Heap(Vec<Entry>),
    Huge(MmapMut),
}

impl Default for Room {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Room {
    pub(super) fn new(entries: usize) -> Self {
        const HUGE_PAGE: usize = 2 << 20;
        let bytes = entries * size_of::<Entry>();
        if bytes >= HUGE_PAGE
            && let Ok(map) = MmapOptions::new().len(bytes).map_anon()
        {
            // This is only a hint to the kernel: a system without huge pages uses small ones.
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage);
            return Self::Huge(map);
        }
        Self::Heap(vec![Entry::default(); entries])
    }
}

const WHOLE: &str = "a mapping begins at a page, and holds whole entries";

impl Deref for Room {
    type Target = [Entry];
    #[inline]
    fn deref(&self) -> &[Entry] {
        match self {
            Self::Heap(entries) => entries,
            Self::Huge(map) => <[Entry]>::ref_from_bytes(map).expect(WHOLE),
        }
    }
}

impl DerefMut for Room {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Entry] {
        match self {
            Self::Heap(entries) => entries,
            Self::Huge(map) => <[Entry]>::mut_from_bytes(map).expect(WHOLE),
        }
    }
}
