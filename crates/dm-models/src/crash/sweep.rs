//! Frees the locks of dead clients, on behalf of the client that notices their death.

use dm_explore::Client;
use dm_history::Spec;
use dm_lock::{DOUBT, LockWord};
use dm_verbs::{ChipPtr, ClientId, Control, ControlRequest, NodeId, Verbs};

/// Fences the clients that have crashed, and frees the locks that they own. `tables` is the number of memory nodes, and
/// the number of lock words at the start of the on-chip memory of each. The bits of `doubt` are set in the payload of a
/// freed word. They are [`DOUBT`], except in a broken twin.
pub(crate) async fn sweep<S, P: Spec>(c: &Client<S, P>, clients: usize, tables: (u16, u32), doubt: u32) {
    let v = c.verbs();
    let (memory_nodes, words) = tables;
    let mut dead = Vec::new();
    for other in 0..clients {
        if !c.has_crashed(other).await {
            continue;
        }
        let client = ClientId(other as u16 + 1);
        // An earlier survivor may have died in the middle of its own sweep. After the fence, its CASes change nothing.
        let fenced = v.call(ControlRequest::Fence { client }).await;
        c.check(fenced.is_ok(), || format!("{fenced:?}"));
        dead.push(client.0);
    }
    for node in (0..memory_nodes).map(NodeId) {
        let place = |word: u32| ChipPtr::new(node, u64::from(word) * 8).unwrap_or(ChipPtr::NULL);
        let table = v.read(place(0), words * 8).await.expect("no faults but death");
        for (word, raw) in (0..).zip(table.as_chunks().0) {
            let held = LockWord::unpack(u64::from_le_bytes(*raw));
            if !held.locked || !dead.contains(&held.owner) {
                continue;
            }
            let free = held.released(held.payload | doubt);
            let found = v.cas(place(word), held.pack(), free.pack()).await;
            c.check(found == Ok(held.pack()), || {
                format!("{found:?} instead of {held}")
            });
        }
    }
}

/// The bits that a correct sweep sets in the payload of the words that it frees.
pub(crate) const DOUBTED: u32 = DOUBT;
