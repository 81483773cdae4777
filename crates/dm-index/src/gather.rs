//! Many READs in one round trip and with few doorbells.

use dm_verbs::{RemotePtr, VerbError, Verbs};

/// Maximum number of READs in one chain, because send queues have a limited length.
const CHAIN_READS: usize = 32;

/// Reads all of `wanted` (addresses and lengths) at the same time, with one chain for every 32 addresses of a
/// memory node. Returns the bytes in the order of `wanted`.
///
/// # Errors
/// Returns the error of the first chain that failed.
///
/// ```
/// use dm_index::gather;
/// use dm_verbs::{RemotePtr, VerbError, Verbs};
///
/// /// Reads two pieces of memory, possibly of two memory nodes, in one round trip.
/// async fn both<V: Verbs>(v: &V, a: RemotePtr, b: RemotePtr) -> Result<bool, VerbError> {
///     let read = gather(v, &[(a, 64), (b, 64)]).await?;
///     Ok(*read[0] == *read[1])
/// }
/// ```
pub async fn gather<V: Verbs>(v: &V, wanted: &[(RemotePtr, u32)]) -> Result<Vec<V::Lease>, VerbError> {
    // Sorts the positions by memory node, and keeps the order within each memory node.
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
            // A part has at most 32 READs.
            read[i] = Some(found.lease(n as u16));
        }
    }
    Ok(read.into_iter().flatten().collect())
}
