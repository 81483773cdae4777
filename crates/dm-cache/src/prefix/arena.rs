//! The memory of packed images: chunks that are filled from the front. A chunk is compacted when this makes enough of
//! it free.
//!
//! An image keeps its number as long as it is cached, but it may be moved. Code that holds the number looks up the
//! place. Therefore blocks of any size lie next to each other without gaps, and the memory of an evicted image can be
//! reused wherever it lies in a chunk.

use dm_sync::atomic::{AtomicU8, Ordering};

use super::packed;

/// The number that means "no image".
pub(super) const NONE: u32 = u32::MAX;
/// The largest chunk in bytes. A new chunk has a sixteenth of the bytes of all chunks so far, so small caches have
/// smaller chunks.
const CHUNK_MAX: usize = 1 << 16;
/// The smallest chunk, unless less is left of the budget.
const CHUNK_MIN: usize = 512;
/// Blocks begin at multiples of this many bytes.
pub(super) const GRANULE: usize = 4;
/// Number of low bits of a place. They are the offset in the chunk, in granules.
const WITHIN_BITS: u32 = 14;
/// Marks the place of an unused number. The other bits are then the next unused number.
const FREE: u32 = 1 << 31;
/// The end of the list of unused numbers.
const END: u32 = FREE - 1;

/// The bit that shows that an image was used.
const USED: u8 = 1;
/// The position of the image's age in the byte.
const AGE_SHIFT: u32 = 1;
/// Number of turns after which an image is no longer valid.
pub(super) const EXPIRED: u8 = 2;

/// A piece of memory that is in use up to `filled`.
#[derive(Clone, Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    filled: u32,
    /// Bytes of dead blocks.
    dead: u32,
}

impl Chunk {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes that are free after compaction.
    fn room(&self) -> usize {
        self.len() - self.filled as usize + self.dead as usize
    }
}

/// The images by number.
#[derive(Debug)]
pub(super) struct Arena {
    chunks: Vec<Chunk>,
    /// The place of each image.
    places: Vec<u32>,
    /// One byte for each image. Its lowest bit shows whether the image was used since eviction last visited it
    /// ([`USED`]); the other bits are the image's age.
    used: Vec<AtomicU8>,
    /// The first number without an image.
    free: u32,
    live: u32,
    /// The chunk that is being filled.
    current: usize,
    /// Bytes of all chunks.
    chunk_bytes: usize,
}

fn split(place: u32) -> (usize, usize) {
    let within = (place & ((1 << WITHIN_BITS) - 1)) as usize;
    ((place >> WITHIN_BITS) as usize, within * GRANULE)
}

fn join(chunk: usize, at: usize) -> u32 {
    // `add_chunk` bounds the number of chunks, and a chunk is at most `CHUNK_MAX` long.
    (chunk as u32) << WITHIN_BITS | (at / GRANULE) as u32
}

impl Arena {
    pub(super) fn new() -> Self {
        Self {
            chunks: Vec::new(),
            places: Vec::new(),
            used: Vec::new(),
            free: END,
            live: 0,
            current: 0,
            chunk_bytes: 0,
        }
    }

    /// Returns a copy with the same images at the same places.
    pub(super) fn copy(&self) -> Self {
        // Relaxed: ages change only in writing sections, and uses are a hint.
        let uses = self.used.iter().map(|u| AtomicU8::new(u.load(Ordering::Relaxed)));
        Self {
            chunks: self.chunks.clone(),
            places: self.places.clone(),
            used: uses.collect(),
            ..*self
        }
    }

    /// Returns the bytes of all allocations, including slack.
    pub(super) fn bytes(&self) -> u64 {
        let lists = self.chunks.capacity() * size_of::<Chunk>()
            + self.places.capacity() * size_of::<u32>()
            + self.used.capacity() * size_of::<AtomicU8>();
        (self.chunk_bytes + lists) as u64
    }

    pub(super) fn live(&self) -> usize {
        self.live as usize
    }

    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Returns an image's bytes, followed by the rest of its chunk.
    #[inline]
    pub(super) fn get(&self, image: u32) -> Option<&[u8]> {
        let place = *self.places.get(image as usize)?;
        if place & FREE != 0 {
            return None;
        }
        let (chunk, at) = split(place);
        self.chunks.get(chunk)?.bytes.get(at..)
    }

    pub(super) fn get_mut(&mut self, image: u32) -> Option<&mut [u8]> {
        let place = *self.places.get(image as usize)?;
        if place & FREE != 0 {
            return None;
        }
        let (chunk, at) = split(place);
        self.chunks.get_mut(chunk)?.bytes.get_mut(at..)
    }

    #[inline]
    pub(super) fn touch(&self, image: u32) {
        if let Some(used) = self.used.get(image as usize) {
            // Relaxed: this is a hint for eviction, which orders nothing. It is written only when it changes,
            // because readers share the cache line.
            if used.load(Ordering::Relaxed) & USED == 0 {
                used.fetch_or(USED, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn was_used(&self, image: u32) -> bool {
        // Relaxed: as above.
        let used = |u: &AtomicU8| u.load(Ordering::Relaxed) & USED != 0;
        self.used.get(image as usize).is_some_and(used)
    }

    pub(super) fn forget_use(&self, image: u32) {
        if let Some(used) = self.used.get(image as usize) {
            // Relaxed: as above.
            used.fetch_and(!USED, Ordering::Relaxed);
        }
    }

    /// Returns the turns since the image was read, up to [`EXPIRED`].
    #[inline]
    pub(super) fn age(&self, image: u32) -> u8 {
        // Relaxed: ages change only in writing sections, which order them.
        let age = |u: &AtomicU8| u.load(Ordering::Relaxed) >> AGE_SHIFT;
        self.used.get(image as usize).map_or(EXPIRED, age)
    }

    pub(super) fn set_age(&mut self, image: u32, age: u8) {
        if let Some(used) = self.used.get_mut(image as usize) {
            // Relaxed: no other thread has access here.
            let used_bit = used.load(Ordering::Relaxed) & USED;
            used.store(used_bit | age << AGE_SHIFT, Ordering::Relaxed);
        }
    }

    /// Makes all images older by `turns` turns.
    pub(super) fn grow_older(&mut self, turns: u8) {
        for image in 0..self.used.len() as u32 {
            self.set_age(image, self.age(image).saturating_add(turns).min(EXPIRED));
        }
    }

    /// Returns a number for an image that [`Arena::put`] will store, or `None` if the list of numbers would
    /// make all memory exceed `limit` bytes.
    pub(super) fn number(&mut self, limit: u64) -> Option<u32> {
        if self.free != END {
            return Some(self.free);
        }
        let (len, capacity) = (self.places.len(), self.places.capacity());
        if len == capacity {
            // The list grows by a sixteenth, because slack counts against the budget.
            let more = len / 16 + 8;
            let bytes = more * (size_of::<u32>() + size_of::<AtomicU8>());
            if self.bytes() + bytes as u64 > limit || len + more >= END as usize {
                return None;
            }
            self.places.reserve_exact(more);
            self.used.reserve_exact(more);
        }
        self.places.push(FREE | END);
        self.used.push(AtomicU8::new(0));
        self.free = len as u32;
        Some(self.free)
    }

    /// Stores a packed image, in the place of its previous version if that has the same size. Returns `false` if there
    /// is no room for it within `limit` bytes, or if it is larger than a chunk can be.
    pub(super) fn put(&mut self, image: u32, bytes: &[u8], limit: u64) -> bool {
        let old = self.get(image).map(packed::bytes_of);
        if old == Some(bytes.len()) {
            if let Some(here) = self.get_mut(image) {
                here[..bytes.len()].copy_from_slice(bytes);
            }
            return true;
        }
        let Some((chunk, at)) = self.take(bytes.len(), limit) else {
            return false;
        };
        self.chunks[chunk].bytes[at..at + bytes.len()].copy_from_slice(bytes);
        match old {
            // The call of `take` may have moved the image, so its place is read only here.
            Some(old) => {
                let (chunk, _) = split(self.places[image as usize]);
                self.chunks[chunk].dead += old as u32;
            }
            None => {
                self.free = self.places[image as usize] & !FREE;
                self.live += 1;
                self.touch(image);
            }
        }
        self.places[image as usize] = join(chunk, at);
        true
    }

    /// Removes an image.
    pub(super) fn remove(&mut self, image: u32) {
        let Some(size) = self.get(image).map(packed::bytes_of) else {
            return;
        };
        let place = &mut self.places[image as usize];
        let (chunk, _) = split(*place);
        *place = FREE | self.free;
        self.chunks[chunk].dead += size as u32;
        self.free = image;
        self.live -= 1;
        self.forget_use(image);
    }

    /// Takes room for `size` bytes: in the current chunk, in a compacted one, or in a new one.
    fn take(&mut self, size: usize, limit: u64) -> Option<(usize, usize)> {
        let fits = |c: &Chunk| c.filled as usize + size <= c.len();
        if !self.chunks.get(self.current).is_some_and(fits) {
            let roomiest = (0..self.chunks.len()).max_by_key(|&c| self.chunks[c].room());
            // Compaction moves a whole chunk, so it is done only if at least a twelfth of the chunk is free afterwards.
            // If no chunk can be added, a sixteenth is enough.
            let [well_worth, worth] = [12, 16].map(|part| {
                roomiest.filter(|&c| {
                    let (room, len) = (self.chunks[c].room(), self.chunks[c].len());
                    room >= size && room * part >= len
                })
            });
            self.current = match well_worth {
                Some(chunk) => self.close_up(chunk),
                None => match self.add_chunk(size, limit) {
                    Some(chunk) => chunk,
                    None => self.close_up(worth?),
                },
            };
        }
        let chunk = self.chunks.get_mut(self.current)?;
        let at = chunk.filled as usize;
        chunk.filled += size as u32;
        Some((self.current, at))
    }

    fn add_chunk(&mut self, size: usize, limit: u64) -> Option<usize> {
        if self.chunks.len() + 1 >= (FREE >> WITHIN_BITS) as usize {
            return None;
        }
        let spine = match self.chunks.len() == self.chunks.capacity() {
            true => self.chunks.len() / 8 + 4,
            false => 0,
        };
        let taken = self.bytes() + (spine * size_of::<Chunk>()) as u64;
        let left = usize::try_from(limit.saturating_sub(taken)).unwrap_or(usize::MAX);
        let wanted = (self.chunk_bytes / 16)
            .max(CHUNK_MIN)
            .clamp(size, CHUNK_MAX.max(size));
        let bytes = wanted.min(left) / GRANULE * GRANULE;
        if bytes < size || size > CHUNK_MAX {
            return None;
        }
        self.chunks.reserve_exact(spine);
        self.chunks.push(Chunk {
            bytes: vec![0; bytes].into_boxed_slice(),
            filled: 0,
            dead: 0,
        });
        self.chunk_bytes += bytes;
        Some(self.chunks.len() - 1)
    }

    /// Moves the live images of a chunk to its front.
    fn close_up(&mut self, chunk: usize) -> usize {
        let here = &mut self.chunks[chunk];
        let (mut from, mut to) = (0, 0);
        while from < here.filled as usize {
            let (size, image) = packed::outline(&here.bytes[from..]);
            let place = &mut self.places[image as usize];
            if *place == join(chunk, from) {
                here.bytes.copy_within(from..from + size, to);
                *place = join(chunk, to);
                to += size;
            }
            from += size;
        }
        (here.filled, here.dead) = (to as u32, 0);
        chunk
    }

    /// Returns the images in a chunk, in their order there.
    pub(super) fn in_chunk(&self, chunk: usize) -> Vec<u32> {
        let Some(here) = self.chunks.get(chunk) else {
            return Vec::new();
        };
        let (mut at, mut images) = (0, Vec::new());
        while at < here.filled as usize {
            let (size, image) = packed::outline(&here.bytes[at..]);
            if self.places.get(image as usize) == Some(&join(chunk, at)) {
                images.push(image);
            }
            at += size;
        }
        images
    }
}
