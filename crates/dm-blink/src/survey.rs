//! Visits all nodes of a tree for a check.

use dm_index::{IndexError, KeyBytes, Listing, NodeStore, Restructure, Survey, survey_leaves, survey_level};
use dm_verbs::{RemotePtr, Verbs};

use crate::blink::Blink;
use crate::root::Root;

impl<K: KeyBytes, S> Blink<K, S> {
    /// Walks the levels from the root down to the leaves, and compares each level with the one above it.
    pub(crate) async fn survey_levels<V: Verbs, L: Restructure<V, K>>(
        &self,
        v: &V,
        leaves: &L,
        survey: &mut Survey,
    ) -> Result<(), IndexError>
    where
        S: NodeStore<V, K>,
    {
        let Some(root) = Root::unpack(v.word(self.root_word).await?) else {
            survey.misses_nodes();
            return Ok(());
        };
        let mut listed = vec![(K::MIN, root.at)];
        for level in (1..=root.level).rev() {
            let Some(&(_, first)) = listed.first() else {
                survey.misses_nodes();
                return Ok(());
            };
            let mut below: Vec<(K, RemotePtr)> = Vec::new();
            let list = (&listed[..], Listing::Exact);
            survey_level(v, &self.nodes, (level, first), list, survey, |_, node, _| {
                below.extend(node.children());
            })
            .await?;
            listed = below;
        }
        survey_leaves(v, leaves, (&listed, Listing::Exact), survey).await
    }
}
