//! Slots for images. The memory of a slot is reused for other images, but is freed only together with all slots.

use core::mem::size_of;

use dm_verbs::RemotePtr;

use crate::image::Image;

/// Number of slots that are allocated together.
const CHUNK: usize = dm_sync::scaled(64, 2);
/// The end of the list of free slots.
const END: u32 = u32::MAX;

#[derive(Debug)]
enum Slot<K> {
    Full(Image<K>),
    Free { next: u32 },
}

/// Images by slot number. Freed slots are reused first, the last freed one before the others.
#[derive(Debug)]
pub(crate) struct Slab<K> {
    chunks: Vec<Box<[Slot<K>; CHUNK]>>,
    free: u32,
    len: usize,
    /// Bytes allocated by the images.
    heap: u64,
}

impl<K: crate::CacheKey> Slab<K> {
    pub(crate) fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: END,
            len: 0,
            heap: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes that the images have allocated.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.heap
    }

    /// Returns the size in bytes of all chunks of slots, including free slots, and of the list of chunks.
    pub(crate) fn bytes(&self) -> u64 {
        let chunks = self.chunks.len() * size_of::<[Slot<K>; CHUNK]>();
        let spine = self.chunks.capacity() * size_of::<Box<[Slot<K>; CHUNK]>>();
        (chunks + spine) as u64
    }

    /// Returns the number of bytes that the next [`Slab::insert`] allocates for slots.
    pub(crate) fn cost_of_one_more(&self) -> u64 {
        if self.free != END {
            return 0;
        }
        let grown = grown_spine(self.chunks.len(), self.chunks.capacity()) - self.chunks.capacity();
        (size_of::<[Slot<K>; CHUNK]>() + grown * size_of::<Box<[Slot<K>; CHUNK]>>()) as u64
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&Image<K>> {
        let slot = slot as usize;
        match &self.chunks.get(slot / CHUNK)?[slot % CHUNK] {
            Slot::Full(image) => Some(image),
            Slot::Free { .. } => None,
        }
    }

    /// Puts `image` into a free slot and returns the slot. If 2^32 - 64 slots are full, drops the image and returns
    /// `None`.
    pub(crate) fn insert(&mut self, image: Image<K>) -> Option<u32> {
        if self.free == END {
            self.add_chunk()?;
        }
        let slot = self.free;
        let place = self.place(slot)?;
        let Slot::Free { next } = *place else { return None };
        let heap = image.heap();
        *place = Slot::Full(image);
        self.free = next;
        self.heap += heap;
        self.len += 1;
        Some(slot)
    }

    /// Frees a slot and drops its image.
    pub(crate) fn remove(&mut self, slot: u32) {
        let next = self.free;
        let Some(place) = self.place(slot) else { return };
        let Slot::Full(image) = core::mem::replace(place, Slot::Free { next }) else {
            unreachable!("slot {slot} is freed twice: a directory named it after its removal");
        };
        self.free = slot;
        self.heap -= image.heap();
        self.len -= 1;
    }

    /// Removes the entries of an image that are at or above `cut`.
    pub(crate) fn trim(&mut self, slot: u32, cut: K) {
        let Some(Slot::Full(image)) = self.place(slot) else {
            return;
        };
        let before = image.heap();
        image.trim(cut);
        let dropped = before - image.heap();
        self.heap -= dropped;
    }

    /// Adds a child to an image. Returns `false` if there is no place for it, or if the image's packing cannot
    /// represent it.
    pub(crate) fn add(&mut self, slot: u32, separator: K, child: RemotePtr) -> bool {
        let Some(Slot::Full(image)) = self.place(slot) else {
            return false;
        };
        let before = image.heap();
        let added = image.add(separator, child);
        let grown = image.heap() - before;
        self.heap += grown;
        added
    }

    /// Returns every image with its slot, in the order of slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Image<K>)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        slots.zip(0..).filter_map(|(slot, number)| match slot {
            Slot::Full(image) => Some((number, image)),
            Slot::Free { .. } => None,
        })
    }

    /// Returns the free slots in the order in which they will be used.
    pub(crate) fn free_slots(&self) -> impl Iterator<Item = u32> {
        core::iter::successors(Some(self.free), |slot| {
            match &self.chunks.get(*slot as usize / CHUNK)?[*slot as usize % CHUNK] {
                Slot::Free { next } => Some(*next),
                Slot::Full(_) => None,
            }
        })
        .take_while(|slot| *slot != END)
    }

    fn place(&mut self, slot: u32) -> Option<&mut Slot<K>> {
        let slot = slot as usize;
        Some(&mut self.chunks.get_mut(slot / CHUNK)?[slot % CHUNK])
    }

    fn add_chunk(&mut self) -> Option<()> {
        let first = u32::try_from(self.chunks.len() * CHUNK).ok()?;
        let end = first.checked_add(CHUNK as u32).filter(|end| *end != END)?;
        reserve_one(&mut self.chunks);
        let mut next = first;
        self.chunks.push(Box::new(core::array::from_fn(|_| {
            next += 1;
            Slot::Free {
                next: if next == end { END } else { next },
            }
        })));
        self.free = first;
        Some(())
    }
}

/// Returns the capacity of a list of pages or chunks after one more push: doubled, to at least 4, if it is full.
pub(crate) fn grown_spine(len: usize, capacity: usize) -> usize {
    if len < capacity {
        capacity
    } else {
        (2 * len).max(4)
    }
}

/// Reserves room for one more element, exactly as [`grown_spine`] predicts.
pub(crate) fn reserve_one<T>(list: &mut Vec<T>) {
    let (len, capacity) = (list.len(), list.capacity());
    if len == capacity {
        list.reserve_exact(grown_spine(len, capacity) - len);
    }
}
