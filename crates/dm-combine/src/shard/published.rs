//! T-R2 as published: values are passed in one buffer per lock. A client checks the lock's key in one section, and
//! stores its value in the buffer in a later section, without another check.

use super::{Entering, Held, Shard};
use crate::waiters::NONE;

/// The result of the check of a lock's key.
pub(crate) enum Checked {
    /// The lock was free: the caller leads, and its value is in the buffer.
    Leads,
    /// The lock is held for this key: the caller must store its value.
    Follows,
    /// The lock is held for another key.
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

    /// Stores a follower's value without another check. Returns the number of its waiter, or `None` if the caller
    /// leads because the lock was free again.
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

    /// Returns the value that the leader writes.
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
