//! Filling a compute node's cache ahead of operations: with all inner nodes, with those of some keys, or from the
//! cache of another compute node.

use dm_cache::PrefixImage;
use dm_index::{IndexError, KEY_BYTES_MAX, KeyBytes};
use dm_verbs::{Control, RemotePtr, Verbs};

use crate::SingleStore;
use crate::art::{Art, ArtClient, KeyText};
use crate::errors::{corrupt, misplaced};
use crate::locate::{From, node_type};
use crate::presence::end_operation;

impl<K: KeyBytes, L> Art<K, L> {
    /// Replaces the content of this tree's cache by that of `other`, the same tree on another compute node. Returns
    /// `false` and changes nothing if the content does not fit, if it might not be valid on this compute node, or if
    /// `other` has another root, other node types or another kind of cache index.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::prepare`](dm_alloc::Allocator::prepare).
    pub async fn adopt_cache<V: Verbs + Control>(&self, v: &V, other: &Self) -> Result<bool, IndexError> {
        let adopt = async {
            // This is the epoch of the other cache's current turn. Every image that enters the other cache from now on
            // is valid for operations that begin in this epoch or in an earlier one.
            let theirs = other.turning.with(|turning| turning.epoch);
            // This cache keeps the youngest adopted images until its second turn from now. After its next turn,
            // operations here begin in the epoch `turned()`, so this epoch must not be later than `theirs`.
            Ok(self.turning.with(|_| {
                //= docs/protocol/smart.md M22
                self.root == other.root && self.alloc.turned() <= theirs && self.cache.adopt(&other.cache)
            }))
        };
        self.as_operation(v, adopt).await
    }

    /// Reads inner nodes into the cache until all are there or the cache is full. Leaves out frozen nodes, nodes that
    /// the cache does not admit, and the nodes below both. The verbs are metered as housekeeping. Returns the number of
    /// nodes that the cache has admitted.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::prepare`](dm_alloc::Allocator::prepare) and of verbs, and
    /// [`IndexError::Corrupt`] if a node's bytes contradict each other.
    pub async fn warm<V: Verbs + Control>(&self, v: &V) -> Result<u64, IndexError> {
        self.as_operation(v, self.read_all(v)).await
    }

    async fn read_all<V: Verbs>(&self, v: &V) -> Result<u64, IndexError> {
        let _unmetered = v.meter().housekeeping();
        let types = self.types();
        let mut left = vec![(self.root, types.largest(), 0, [0; KEY_BYTES_MAX])];
        let mut nodes = 0;
        // If the cache is full from the start, this reads all nodes again, because cached images may have expired.
        let stops = !self.cache.is_full();
        while let Some((at, kind, from, mut key)) = left.pop() {
            let turns = self.cache.turns();
            let bytes = v.read(at, types.bytes(kind) as u32).await?;
            let node = dm_layout::RadixNode::decode(&bytes, types, kind).map_err(corrupt(at))?;
            let header = node.header();
            let branch = usize::from(header.branch());
            let partial = self.options.compression.partial(&header, from);
            let Some((begin, partial)) = partial.filter(|_| branch < K::LEN) else {
                return Err(misplaced(at));
            };
            // Bytes that no header holds keep an old value in `key`. This is harmless, because the cache does not
            // compare them.
            key[usize::from(begin)..branch].copy_from_slice(partial);
            if node.is_frozen() {
                continue;
            }
            let image = PrefixImage {
                at,
                header,
                incarnation: node.incarnation(),
                words: node.words(),
            };
            if !self.cache.since(turns).admit(&key[..K::LEN], image) {
                continue;
            }
            nodes += 1;
            if stops && self.cache.is_full() {
                break;
            }
            for word in node.words().filter(|w| w.has_child() && !w.is_leaf()) {
                key[branch] = word.partial();
                let kind = node_type(word);
                if types.slots(kind) == 0 {
                    return Err(misplaced(at));
                }
                left.push((
                    RemotePtr::from_raw(word.pointer()),
                    kind,
                    header.branch() + 1,
                    key,
                ));
            }
        }
        Ok(nodes)
    }
}

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Reads the inner nodes on each key's path that are not cached yet, one key after another. If the cache has no
    /// room for all of these nodes, those that are read last replace others. No leaf is read. The verbs are metered as
    /// housekeeping.
    ///
    /// # Errors
    /// Returns the errors of [`Allocator::prepare`](dm_alloc::Allocator::prepare) and of verbs, and
    /// [`IndexError::Corrupt`] if a node's bytes contradict each other.
    pub async fn warm_for(&self, keys: impl IntoIterator<Item = K>) -> Result<(), IndexError> {
        let _unmetered = self.v.meter().housekeeping();
        for key in keys {
            let text = KeyText::of(&key);
            if self.art.cache.leaf(&text).is_some() {
                continue;
            }
            let running = self.start().await?;
            let located = self.locate(&text, From::Cache).await;
            end_operation(running, located.map(drop))?;
        }
        Ok(())
    }
}
