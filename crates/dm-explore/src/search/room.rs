//! Room for the entries of a table: many of them lie on huge pages, since nearly every look-up is at another page.

use core::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::fp::Fp;

/// A state that was met. Within one cache line, so that a look-up costs one miss.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub(super) struct Entry {
    pub(super) state: Fp,
    /// The steps that were asleep when it was explored.
    pub(super) sleep: u64,
    /// Its number in the shard, from 1; 0 where there is no state.
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

/// Entries, all without a state at first.
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
            // Advice: where the system has no huge pages, small ones serve.
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
