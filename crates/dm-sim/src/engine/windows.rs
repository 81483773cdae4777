//! READs of several lines that were copied when they arrived, although their second part happens later.
//!
//! This saves an event and a second pass over the bytes. If memory changes before the time of the second part, the
//! changed bytes are copied again.

use core::ops::Range;

use dm_verbs::{Caps, LineOrder, Space};

use super::{Engine, Node};
use crate::chain::Chain;
use crate::model::Ticks;
use crate::request::{Kind, Request};

/// A READ of host memory between its two parts.
#[derive(Debug)]
pub(super) struct Window {
    /// The time of the second part. The chain completes later, so it exists as long as the window is open.
    pub(super) until: u64,
    /// The addresses of the second part.
    pub(super) second: Range<usize>,
    pub(super) chain: u32,
    pub(super) request: u16,
}

/// Returns a limit: a READ is copied when it arrives if less than this time passes between its two parts. If the second
/// part may be more than one range, the limit is 0, so that no READ is copied. Otherwise it is the time on the wire.
/// Then a request that arrives at the time of a second part was sent before the READ arrived. So its event is older
/// than the second part's event would be, and comes first.
pub(super) fn copies_within(t: &Ticks, caps: &Caps) -> u64 {
    match caps.read_lines {
        LineOrder::Increasing => t.wire,
        LineOrder::Any => 0,
    }
}

impl Window {
    /// Returns the window of `r`, whose second part is at time `until`.
    #[inline]
    pub(super) fn of(r: &Request, until: u64, chain: u32, request: u16) -> Self {
        let end = r.offset() + r.len as usize;
        Self {
            until,
            second: end.min(r.offset() + r.words[3] as usize)..end,
            chain,
            request,
        }
    }
}

impl Node {
    /// Adds the window of a READ that was copied at time `now`, and removes the windows that have ended.
    #[inline]
    pub(super) fn open_window(&mut self, now: u64, window: Window) {
        self.windows.retain(|w| w.until >= now);
        self.windows.push(window);
    }

    /// Moves every second part at time `at` one picosecond earlier, because a request that arrives now will also act at
    /// `at`: if times are equal, the request that arrived first acts first. A third request that acts at `at` may then
    /// miss the moved second part. This is accepted, because it requires three requests in the same picosecond.
    #[inline]
    pub(super) fn go_before(&mut self, at: u64) {
        for w in self.windows.iter_mut().filter(|w| w.until == at) {
            w.until -= 1;
        }
    }

    /// Copies the bytes at `changed` again for the READs whose second part is at time `from` or later.
    #[inline]
    pub(super) fn copy_again(&mut self, chains: &mut [Chain], changed: Range<usize>, from: u64) {
        for w in &self.windows {
            let (start, end) = (changed.start.max(w.second.start), changed.end.min(w.second.end));
            if w.until >= from && start < end {
                let r = chains[w.chain as usize].request_mut(w.request);
                let base = r.offset();
                let host = self.memory.bytes_mut(Space::Host);
                r.transfer(Kind::Read, host, start - base..end - base);
            }
        }
    }
}

impl Engine {
    /// Copies the second parts of all READs in flight from `node` again, after its memory may have been changed
    /// directly, without a verb.
    pub(crate) fn memory_changed(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.copy_again(&mut self.chains, 0..usize::MAX, self.now + 1);
        }
    }
}
