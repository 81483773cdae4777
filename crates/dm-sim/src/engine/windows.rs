//! READs of several lines that were copied when they arrived, although their second part happens later.
//!
//! This saves an event and a second pass over the bytes. Whatever changes memory before the second part copies the
//! changed bytes again.

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

/// Returns the time that must be longer than the time between the parts of a READ that is copied when it arrives, or 0
/// if no READ is. The second part must be one range. A request that arrives at the time of a second part must have been
/// sent before the READ arrived, because then its event is first.
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
    /// Adds a READ that was copied `now`, and removes those that are over.
    #[inline]
    pub(super) fn open_window(&mut self, now: u64, window: Window) {
        self.windows.retain(|w| w.until >= now);
        self.windows.push(window);
    }

    /// Moves second parts at time `at` before those of a request that arrives now and acts at the same time: of equal
    /// times, the request that arrived first is first. A third request that acts at this time may now miss the moved
    /// second part; it takes an equal picosecond of three requests.
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
    /// Copies again what a caller outside the simulation may have changed.
    pub(crate) fn memory_changed(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.copy_again(&mut self.chains, 0..usize::MAX, self.now + 1);
        }
    }
}
