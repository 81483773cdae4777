//! Reading one key: from a cached leaf, then by reading nodes.

use dm_index::{IndexError, KeyBytes};
use dm_verbs::{Control, Event, LocalStep, RemotePtr, Verbs};

use crate::art::{ArtClient, KeyText};
use crate::errors::misplaced;
use crate::locate::{From, Link, Place, leaf_proves_absence};
use crate::{Single, SingleStore};

impl<V, K, L> ArtClient<'_, V, K, L>
where
    V: Verbs + Control,
    K: KeyBytes,
    L: SingleStore<V, K>,
{
    /// Reads the value of `key` from the leaf whose address is cached. If that leaf neither has the key nor proves its
    /// absence, or if no address is cached, searches for the key. Returns `false` if the key is absent.
    pub(crate) async fn get_key(&self, key: &K, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        self.art.options.cpu.charge(self.v).await;
        self.v.local(LocalStep::Section).await;
        let mut from = From::Cache;
        let mut read = None;
        let text = KeyText::of(key);
        if let Some((at, branch)) = self.art.cache.leaf(&text) {
            self.v.meter().note(Event::CacheHit);
            let found = self.art.leaves.get(self.v, at, key, value).await?;
            if found == Single::Hit {
                return Ok(true);
            }
            if leaf_proves_absence(&found, &text, branch, false) {
                return Ok(false);
            }
            // If the leaf was replaced, the search begins with the cached slot too, because it then reads only this
            // slot again and not the whole node.
            if !matches!(found, Single::Replaced { .. }) {
                from = from.surer();
            }
            read = kept(at, found);
            self.v.local(LocalStep::Section).await;
        }
        self.search(key, value, from, read).await
    }

    /// Searches for `key`, beginning in the cache. The caller has already awaited the local step that must precede
    /// access to the cache. `read` is a leaf that was read within this operation ([`kept`]).
    async fn search(
        &self,
        key: &K,
        value: &mut Vec<u8>,
        mut from: From,
        mut read: Option<(RemotePtr, Single<K>)>,
    ) -> Result<bool, IndexError> {
        let text = KeyText::of(key);
        let mut place = self.locate_entered(&text, from).await?;
        // This takes at most three iterations, one for each starting point. If the search from the root proves nothing,
        // it ends in an error.
        loop {
            let proved = match place {
                Place::Leaf(mut link, _) => {
                    let mut found = match read.take() {
                        //= docs/protocol/smart.md M11
                        Some((at, found)) if at == link.child() => found,
                        _ => self.art.leaves.get(self.v, link.child(), key, value).await?,
                    };
                    if let Single::Replaced { .. } = found {
                        found = Box::pin(self.follow(key, &mut link, found, value)).await?;
                    }
                    if found == Single::Hit {
                        return Ok(true);
                    }
                    self.repair(&found, &link).await?;
                    let proved = leaf_proves_absence(&found, &text, link.slot.branch, link.fresh);
                    read = kept(link.child(), found);
                    proved
                }
                _ => place.proves_absence(),
            };
            if proved {
                return Ok(false);
            }
            if from == From::Root {
                return Err(misplaced(self.art.root));
            }
            from = from.surer();
            place = self.locate(&text, from).await?;
        }
    }

    /// With flaw T-M1 (for study only), overwrites the link depth of another key's leaf with the branch of `link`, if
    /// `link` was read within the operation. Otherwise does nothing.
    async fn repair(&self, found: &Single<K>, link: &Link) -> Result<(), IndexError> {
        let branch = u64::from(link.slot.branch);
        if let Single::Other { depth, .. } = found
            && self.art.options.flaws().repairs_unchecked
            && link.fresh
            && *depth != branch
        {
            let at = self.art.leaves.depth_at(link.child());
            self.v.cas(at, *depth, branch).await?;
        }
        Ok(())
    }
}

/// Returns the leaf and its content if the search can use them again (M11): the leaf has another key, or another leaf
/// has replaced it. Such a leaf never becomes the live leaf of the searched key.
fn kept<K>(at: RemotePtr, found: Single<K>) -> Option<(RemotePtr, Single<K>)> {
    match found {
        Single::Other { .. } | Single::Replaced { .. } => Some((at, found)),
        _ => None,
    }
}
