//! What the inner levels keep in their compute node's memory, as a hash for checkers.

use dm_index::KeyBytes;
use dm_sync::{Fingerprint, fingerprint_of};

use crate::blink::Blink;

/// Of the cache and the root as last seen. Locks and memory of the nodes say theirs themselves.
impl<K: KeyBytes, S> Fingerprint for Blink<K, S> {
    fn fingerprint(&self) -> u64 {
        let root = self
            .root
            .with(|root| root.map(|(root, epoch)| (root.pack(), epoch)));
        fingerprint_of(&(self.cache.fingerprint(), root))
    }
}
