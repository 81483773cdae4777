//! The changes to images that every index makes in the same way, and the eviction of images.
//!
//! Eviction visits one chunk after another, and evicts the images that were not used since its last visit.

use dm_layout::{NodeTypes, RadixSlot, SlotWord};

use super::arena::NONE;
use super::entry::Entry;
use super::images::Images;
use super::packed::{Edit, View, pack};

/// Maximum number of chunks that eviction visits for one image; after that, the image is refused.
const CHUNKS_MAX: u32 = 12;

/// A structure that finds images by keys.
pub(super) trait Index {
    fn images(&self) -> &Images;
    fn images_mut(&mut self) -> &mut Images;

    /// Returns the bytes that images and their lists may take.
    fn limit(&self) -> u64 {
        self.images().limit()
    }

    /// Returns whether eviction may remove this image now.
    fn is_evictable(&self, view: View<'_>) -> bool;

    /// Removes an image, and the images that the index can find only through it.
    fn cut(&mut self, image: u32);

    /// Removes an image that was unlinked from its slot; [`NONE`] stands for no image.
    fn drop_loose(&mut self, image: u32);

    /// Stores an image as [`Index::store`] does, so that the index finds it.
    fn keep(&mut self, image: Option<u32>, entry: &Entry, spare: usize, kept: &[u32]) -> Option<u32> {
        self.store(image, entry, spare, kept)
    }

    /// Stores `entry` under its number, or under a new one if it has none. Returns the number. Returns `None`
    /// if there is no room, and then leaves the old content as it was.
    fn store(&mut self, image: Option<u32>, entry: &Entry, spare: usize, kept: &[u32]) -> Option<u32> {
        if self.images().leaf_lines == 0 {
            let lines = |w: &SlotWord| match w.decode() {
                Ok(RadixSlot::Leaf { lines, .. }) => Some(lines),
                _ => None,
            };
            self.images_mut().leaf_lines = entry.words.iter().find_map(lines).unwrap_or(0);
        }
        let (mut packed, mut number) = (core::mem::take(&mut self.images_mut().packed), None);
        let limit = self.limit();
        let done = self.with_room(kept, |images| {
            let Some(new) = image.or_else(|| images.arena.number(limit)) else {
                return false;
            };
            // An eviction may free another number. The image then gets this number, and must contain it.
            if number.replace(new) != Some(new) {
                pack(entry, new, spare, images.leaf_lines, &mut packed);
            }
            images.arena.put(new, &packed, limit)
        });
        self.images_mut().keep_buffer(packed);
        number.filter(|_| done)
    }

    /// Changes an image through its unpacked form. Returns `false` if there is no room for the result.
    fn repack(&mut self, image: u32, change: impl FnOnce(&mut Entry)) -> bool {
        // Only the image's own flag shows whether it is direct, so any types will do here.
        let types = &NodeTypes::SHIPPED;
        let Some(view) = self.images().view(image) else {
            return false;
        };
        let mut entry = self.images().unpack(types, view);
        entry.direct = view.is_direct();
        // Small images grow slot by slot: packing them again is cheap, and most images are small.
        let spare = entry.words.len() / 16;
        change(&mut entry);
        // If the image stays, its children stay too; otherwise all of them are removed.
        let mut kept: Vec<u32> = entry
            .slots()
            .map(|(_, kid)| kid)
            .filter(|kid| *kid != NONE)
            .collect();
        kept.push(image);
        self.keep(Some(image), &entry, spare, &kept).is_some()
    }

    /// Stores `word` in slot `index` of an image, or removes the image if it cannot store the word. Does nothing if the
    /// image lacks slots in front of `index`.
    fn learn_slot(&mut self, image: u32, index: usize, word: SlotWord) {
        let Some(view) = self.images().view(image) else {
            return;
        };
        let leaf_lines = self.images().leaf_lines;
        let found = view.place(word.partial());
        let direct = view.is_direct();
        let mut orphan = NONE;
        let done = match found {
            Ok(place) => {
                let (old, kid) = self.images().slot(view.slots(), place, word.partial());
                if old == word {
                    return;
                }
                orphan = kid;
                let edit = self.images_mut().edit(image);
                edit.is_some_and(|mut edit| edit.set(place, word, old.has_child(), leaf_lines))
            }
            Err(place) if direct || place == index => {
                let edit = self.images_mut().edit(image);
                edit.is_some_and(|mut edit| edit.insert(place, word, leaf_lines))
            }
            Err(_) => return,
        };
        let done = done || (found.is_err() && self.grow(image, found.unwrap_or_else(|place| place), word));
        // If the image cannot store the word, it must be removed. Otherwise a client that lost a race for the
        // slot would use the old word again, and lose again.
        if !done && !self.repack(image, |entry| entry.take(index, word)) {
            self.cut(image);
        }
        self.drop_loose(orphan);
    }

    /// Inserts a slot into an image that has no room for it, through a copy that has room.
    fn grow(&mut self, image: u32, place: usize, word: SlotWord) -> bool {
        let Some(view) = self.images().view(image).filter(|view| view.can_grow()) else {
            return false;
        };
        // Small images grow slot by slot: copying them is cheap, and most images are small.
        let spare = view.len() / 16 + 1;
        let mut copy = core::mem::take(&mut self.images_mut().packed);
        // The view is fetched again, because the buffer was taken out of the images.
        if let Some(view) = self.images().view(image) {
            view.copy_with(spare, &mut copy);
        }
        let limit = self.limit();
        let done = Edit(&mut copy).insert(place, word, self.images().leaf_lines)
            // This does not evict, because an eviction could remove images below this one, whose numbers are
            // in the copy.
            && self.images_mut().arena.put(image, &copy, limit);
        self.images_mut().keep_buffer(copy);
        done
    }

    /// Runs `put` until it succeeds, or until a bounded number of evictions has not made enough room. The
    /// images in `kept` are not evicted.
    fn with_room(&mut self, kept: &[u32], mut put: impl FnMut(&mut Images) -> bool) -> bool {
        for _ in 0..CHUNKS_MAX {
            if put(self.images_mut()) {
                return true;
            }
            self.sweep(kept);
        }
        put(self.images_mut())
    }

    /// Evicts the evictable images of the next chunk that were not used since the last visit.
    fn sweep(&mut self, kept: &[u32]) {
        let images = self.images_mut();
        let chunks = images.arena.chunks();
        if chunks == 0 {
            return;
        }
        images.hand = (images.hand + 1) % chunks;
        for image in images.arena.in_chunk(images.hand) {
            let images = self.images();
            let Some(view) = images.view(image) else { continue };
            if kept.contains(&image) || !self.is_evictable(view) {
                continue;
            }
            if images.arena.was_used(image) {
                images.arena.forget_use(image);
            } else {
                self.cut(image);
            }
        }
    }
}
