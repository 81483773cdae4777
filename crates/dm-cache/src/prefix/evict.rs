//! Eviction from the prefix cache. It visits one chunk after another, and evicts the images that were not used since
//! its last visit.

use super::arena::NONE;
use super::packed::View;
use super::tree::Tree;

/// Maximum number of chunks that eviction visits for one image; after that, the image is refused.
const CHUNKS_MAX: u32 = 12;

impl Tree {
    /// Runs `put` until it succeeds, or until a bounded number of evictions has not made enough room. The
    /// images in `kept` are not evicted.
    pub(super) fn with_room(&mut self, kept: &[u32], mut put: impl FnMut(&mut Self) -> bool) -> bool {
        for _ in 0..CHUNKS_MAX {
            if put(self) {
                return true;
            }
            self.sweep(kept);
        }
        put(self)
    }

    /// Evicts the images of the next chunk that have no cached child and were not used since the last visit.
    fn sweep(&mut self, kept: &[u32]) {
        let chunks = self.arena.chunks();
        if chunks == 0 {
            return;
        }
        self.hand = (self.hand + 1) % chunks;
        for image in self.arena.in_chunk(self.hand) {
            let Some(view) = self.view(image) else { continue };
            if view.parent() == NONE || kept.contains(&image) || View::kids(view).next().is_some() {
                continue;
            }
            if self.arena.was_used(image) {
                self.arena.forget_use(image);
            } else {
                self.cut(image);
            }
        }
    }
}
