//! A hash of the state that the inner levels keep in their compute node's memory, for checkers.

use dm_index::KeyBytes;
use dm_sync::{Fingerprint, fingerprint_of};

use crate::blink::Blink;

/// Covers the cache and the known root. The locks and the memory of the nodes have separate fingerprints.
impl<K: KeyBytes, S> Fingerprint for Blink<K, S> {
    fn fingerprint(&self) -> u64 {
        let root = self
            .root
            .with(|root| root.map(|(root, epoch)| (root.pack(), epoch)));
        fingerprint_of(&(self.cache.fingerprint(), root))
    }
}
