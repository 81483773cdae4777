//! What goes when there is no room: of two images drawn, the one that was not used for longer.

use super::entry::NONE;
use super::tree::Tree;

/// Draws of one admission at most; then what was to be admitted goes itself.
const DRAWS_MAX: u32 = 256;

impl Tree {
    /// Evicts until the cache fits its budget; `kept` goes last. Answers whether `kept` is still there.
    pub(super) fn fit(&mut self, kept: u32) -> bool {
        let mut draws = 0;
        while self.bytes() > self.budget {
            draws += 1;
            if draws > DRAWS_MAX {
                self.cut(kept);
                return false;
            }
            let (a, b) = (self.drawn(kept), self.drawn(kept));
            let victim = match (a, b) {
                (Some(a), Some(b)) => Some(if self.age(a) >= self.age(b) { a } else { b }),
                (one, other) => one.or(other),
            };
            if let Some(victim) = victim {
                self.cut(victim);
            }
        }
        self.get(kept).is_some()
    }

    fn age(&self, entry: u32) -> u32 {
        self.get(entry)
            .map_or(0, |e| self.now.wrapping_sub(e.last_used()))
    }

    /// An image with none below it, if the draw hits one.
    fn drawn(&mut self, kept: u32) -> Option<u32> {
        // xorshift: a state of its own, so that equal histories evict equally.
        self.draw ^= self.draw << 13;
        self.draw ^= self.draw >> 7;
        self.draw ^= self.draw << 17;
        let index = (self.draw >> 16) as usize % self.entries.len().max(1);
        let entry = index as u32;
        let known = self.get(entry)?;
        let lowest = !known.has_kids() && known.parent != NONE;
        (lowest && entry != kept).then_some(entry)
    }
}
