//! Many READs in one round trip and few doorbells.

use dm_verbs::{RemotePtr, VerbError, Verbs};

/// READs of one chain at most: send queues have an end.
const CHAIN_READS: usize = 32;

/// READs all of `wanted` (places and lengths) at once, a chain for each memory node and 32 of its places; answers the
/// bytes in the order of `wanted`.
///
/// # Errors
/// The first chain's that failed.
///
/// ```
/// use dm_index::gather;
/// use dm_verbs::{RemotePtr, VerbError, Verbs};
///
/// /// Two pieces of memory, of two memory nodes perhaps, in one round trip.
/// async fn both<V: Verbs>(v: &V, a: RemotePtr, b: RemotePtr) -> Result<bool, VerbError> {
///     let read = gather(v, &[(a, 64), (b, 64)]).await?;
///     Ok(*read[0] == *read[1])
/// }
/// ```
pub async fn gather<V: Verbs>(v: &V, wanted: &[(RemotePtr, u32)]) -> Result<Vec<V::Lease>, VerbError> {
    // By memory node, in their order within each.
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&i| wanted[i].0.node());
    let same_node = |a: &usize, b: &usize| wanted[*a].0.node() == wanted[*b].0.node();
    let parts = order
        .chunk_by(same_node)
        .flat_map(|node| node.chunks(CHAIN_READS));
    let posted: Vec<_> = parts
        .map(|part| {
            let chain = v.chain(wanted[part[0]].0.node()).many();
            let chain = part
                .iter()
                .fold(chain, |chain, &i| chain.read(wanted[i].0, wanted[i].1));
            (part, chain.post())
        })
        .collect();
    let mut read: Vec<Option<V::Lease>> = wanted.iter().map(|_| None).collect();
    for (part, chain) in posted {
        let found = chain.await?;
        for (n, &i) in part.iter().enumerate() {
            // A part is at most 32 long.
            read[i] = Some(found.lease(n as u16));
        }
    }
    Ok(read.into_iter().flatten().collect())
}
