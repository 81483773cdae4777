//! T-R2 as published: values go through one buffer per lock, and who may store there was checked a section before.

use super::{Entering, Held, Shard};
use crate::waiters::NONE;

/// What the check of a lock's key came to.
pub(crate) enum Checked {
    /// It was free: the caller leads, and its value is in the buffer.
    Leads,
    /// It is the key's: the caller is to store its value.
    Follows,
    /// It is another key's.
    Alone,
}

impl<K: Copy + Eq> Shard<K> {
    pub(crate) fn check(&mut self, lane: usize, key: &K, value: &[u8]) -> Checked {
        match &self.lanes[lane].held {
            Some(held) if held.key == *key => Checked::Follows,
            Some(_) => Checked::Alone,
            None => {
                self.hold(lane, key, value);
                Checked::Leads
            }
        }
    }

    /// Stores a follower's value, unchecked; the answer is which waiter it is, or `None` if it leads since nobody else
    /// does by now.
    pub(crate) fn store(&mut self, lane: usize, key: &K, value: &[u8], who: Entering<'_>) -> Option<u32> {
        let Some(Held { elected, .. }) = self.lanes[lane].held else {
            self.hold(lane, key, value);
            return None;
        };
        self.buffer(lane, value);
        let l = &mut self.lanes[lane];
        let sealed = elected == NONE;
        let list = if sealed { &mut l.sealed } else { &mut l.gathering };
        let number = self.waiters.push(list, who.client, who.wish, who.waker);
        self.waiters.get(number).sealed = sealed;
        Some(number)
    }

    /// What the leader writes.
    pub(crate) fn sample(&self, lane: usize) -> Vec<u8> {
        self.buffers[lane].clone()
    }

    fn hold(&mut self, lane: usize, key: &K, value: &[u8]) {
        let key = *key;
        self.lanes[lane].held = Some(Held { key, elected: NONE });
        self.buffer(lane, value);
    }

    fn buffer(&mut self, lane: usize, value: &[u8]) {
        self.buffers.resize_with(self.lanes.len(), Vec::new);
        self.buffers[lane].clear();
        self.buffers[lane].extend_from_slice(value);
    }
}
