//! Reading nodes in any state, for a check.

use dm_index::{Condition, IndexError, Inspected, NodeCopy, is_nowhere};
use dm_layout::{CheckFailure, KeyBytes, LineLag, NodeFormat, NodeState};
use dm_sync::fingerprint_of;
use dm_verbs::{RemotePtr, Verbs};

use crate::Nodes;

/// Number of READs after which a node that is still torn is reported as torn.
const LOOKS: u32 = 8;

impl<K: KeyBytes, F: NodeFormat<K>> Nodes<K, F> {
    pub(crate) async fn inspect_node<V: Verbs>(
        &self,
        v: &V,
        at: RemotePtr,
        copy: &mut NodeCopy<K>,
    ) -> Result<Inspected, IndexError> {
        let mut looks = 0;
        let mut seen = loop {
            let bytes = match v.read(at, self.node_len()).await {
                Ok(bytes) => bytes,
                Err(e) if is_nowhere(&e) => return Ok(Inspected::NOWHERE),
                Err(e) => return Err(e.into()),
            };
            let image = fingerprint_of(&*bytes);
            let (condition, strays) = match self.decode(at, &bytes, copy) {
                Ok(header) => match (header.state, header.lag) {
                    (NodeState::Live, _) => {
                        let mut strays = 0;
                        let visited = self.format.visit(&bytes, |key, _| {
                            strays += usize::from(!header.fences.contains(&key));
                        });
                        debug_assert!(visited.is_ok(), "decoding has visited the entries before");
                        (Condition::Live, strays)
                    }
                    (NodeState::Dead, _) => (Condition::Dead, 0),
                    (NodeState::Frozen, _) => (Condition::Frozen, 0),
                    (NodeState::Splitting, LineLag::Equal) => (Condition::Unborn, 0),
                    (NodeState::Splitting, _) => (Condition::Splitting, 0),
                },
                Err(CheckFailure::Corrupt(what)) => (Condition::Corrupt(what), 0),
                Err(CheckFailure::Torn { .. }) => match self.format.header(&bytes) {
                    Ok(header) => {
                        Self::show_head(at, &header, self.format.value_len(), copy);
                        (Condition::Torn, 0)
                    }
                    Err(CheckFailure::Corrupt(what)) => (Condition::Corrupt(what), 0),
                    Err(CheckFailure::Torn { .. }) => (Condition::Torn, 0),
                },
            };
            looks += 1;
            if condition != Condition::Torn || looks == LOOKS {
                break Inspected {
                    condition,
                    held: false,
                    strays,
                    image,
                };
            }
            drop(bytes);
            v.pause().await;
        };
        if seen.condition != Condition::Live {
            seen.held = self.locks.is_held(v, at).await?;
        }
        Ok(seen)
    }
}
