//! Reads the contents of a tree's leaves from memory at the end of a run.

use dm_alloc::Superblock;
use dm_explore::End;
use dm_index::{CHILD_BYTES, Child};
use dm_layout::{
    FenceKeys, Header, Key8, KeyBytes, LineLag, NodeFormat, NodeRead, NodeState, Slotted, SplitPlan,
};
use dm_verbs::{ClientId, RemotePtr};
use sherman::LeafFormat;

use super::world::{Do, Script, loaded, number_of, options, written};

/// The output of a client whose operation failed because its chain failed. The operation may or may not have taken
/// effect.
pub(crate) const FAILED: u64 = u64::MAX;

/// Returns the format of the inner nodes of every tree here.
fn inner() -> Slotted<Key8> {
    Slotted::tiny(CHILD_BYTES).expect("two entries fit")
}

fn node<F: NodeFormat<Key8>>(
    end: &End<'_>,
    format: &F,
    at: RemotePtr,
) -> Result<(Header<Key8>, Vec<u8>), String> {
    let bytes = end.bytes(at, format.node_bytes() as u32).to_vec();
    let header = match format.accept(&bytes) {
        // Here a hop was interrupted in the middle of its WRITE. Readers still accept the entries that they find.
        Err(e) if F::DUPLICATES && e.is_torn() => format.header(&bytes),
        header => header,
    };
    Ok((header.map_err(|e| format!("node {at}: {e}"))?, bytes))
}

/// Finds the leftmost leaf through the first child of each level. Returns `None` in an empty tree.
fn first_leaf(end: &End<'_>) -> Result<Option<RemotePtr>, String> {
    let word = end.word(Superblock::ROOT_WORD);
    // The level is in the low bits of the root word; these bits of an aligned address are zero.
    let (mut at, mut level) = (RemotePtr::from_raw(word & !63), word & 63);
    while level > 0 {
        let (header, bytes) = node(end, &inner(), at)?;
        let mut children = Vec::new();
        let visited = inner().visit(&bytes, |key, child| {
            if header.fences.contains(&key) {
                children.push((key, Child::decode(&child.to_vec())));
            }
        });
        visited.map_err(|e| e.to_string())?;
        let first = children.iter().min_by_key(|(key, _)| *key);
        at = first.ok_or("an inner node has no child")?.1;
        level -= 1;
    }
    Ok((!at.is_null()).then_some(at))
}

/// Returns the entries whose keys are within the node's fence keys.
fn entries<F: NodeFormat<Key8>>(
    format: &F,
    header: &Header<Key8>,
    bytes: &[u8],
) -> Result<Vec<(u64, u64)>, String> {
    let mut found = Vec::new();
    let visited = format.visit(bytes, |key, value| {
        if header.fences.contains(&key) {
            let mut plain = Vec::new();
            value.append_to(&mut plain);
            found.push((key.0, number_of(&plain)));
        }
    });
    visited.map_err(|e| e.to_string())?;
    found.sort_unstable();
    if F::DUPLICATES {
        // An interrupted hop leaves two equal copies of an entry.
        found.dedup();
    }
    Ok(found)
}

/// Finishes an unfinished split, as a survivor does under the node's lock (S16).
fn redo<F: NodeFormat<Key8>>(
    format: &F,
    at: RemotePtr,
    header: &Header<Key8>,
    bytes: &mut [u8],
) -> Result<(), String> {
    let bad = |e| format!("node {at} can't be finished: {e}");
    match (header.state, header.lag) {
        // An unfinished merge is read as it is, because readers find every key after each of its steps.
        (NodeState::Live | NodeState::Frozen, _) => return Ok(()),
        (NodeState::Splitting, LineLag::Behind) => {
            let plan = SplitPlan {
                separator: header.fences.high.ok_or("a split node has no upper bound")?,
                right_address: header.sibling,
                owner: header.owner,
                new_left: None,
                late_right: None,
            };
            format.clear_split(bytes, &plan).map_err(bad)?;
            format.finish_split(bytes).map_err(bad)?;
        }
        (NodeState::Splitting, _) => {
            format.open(bytes).map_err(bad)?;
        }
        other => return Err(format!("node {at} is {other:?}")),
    }
    let after = format.accept(bytes).map_err(bad)?;
    match after.state == NodeState::Live && after.fences == header.fences {
        true => Ok(()),
        false => Err(format!("node {at} is {after:?} after finishing it")),
    }
}

/// Returns all entries, leaf by leaf. Fails if a reader would not accept a leaf as it is, if a leaf is dead, if there
/// are gaps or overlaps between leaves, if a key occurs twice, or if an unfinished split cannot be finished without a
/// change of the entries.
pub(super) fn contents<F: LeafFormat<Key8>>(end: &End<'_>) -> Result<Vec<(u64, u64)>, String> {
    contents_of(end, &F::of(options().node, 8).expect("entries fit"))
}

/// Returns all entries, as `contents` does, for leaves of any format.
pub(crate) fn contents_of<F: NodeFormat<Key8>>(end: &End<'_>, format: &F) -> Result<Vec<(u64, u64)>, String> {
    contents_from(end, format, first_leaf(end)?.unwrap_or(RemotePtr::NULL))
}

/// Returns all entries, as `contents_of` does, from this leftmost leaf on, if there is one.
pub(crate) fn contents_from<F: NodeFormat<Key8>>(
    end: &End<'_>,
    format: &F,
    mut at: RemotePtr,
) -> Result<Vec<(u64, u64)>, String> {
    let mut all = Vec::new();
    if at.is_null() {
        return Ok(all);
    }
    let mut low = Key8::MIN;
    loop {
        let (header, mut bytes) = node(end, format, at)?;
        if header.fences.low != low || header.level != 0 {
            return Err(format!(
                "leaf {at} begins at {:?}, not at {low:?}",
                header.fences.low
            ));
        }
        let before = entries(format, &header, &bytes)?;
        redo(format, at, &header, &mut bytes)?;
        if entries(format, &header, &bytes)? != before {
            return Err(format!("finishing {at} changes what it holds"));
        }
        all.extend(before);
        let FenceKeys { high, .. } = header.fences;
        match high {
            None => break,
            Some(high) => (low, at) = (high, RemotePtr::from_raw(header.sibling)),
        }
    }
    match all.is_sorted_by(|a, b| a.0 < b.0) {
        true => Ok(all),
        false => Err(format!("a key occurs twice: {all:?}")),
    }
}

/// Returns an error if a leaf is torn, or in the middle of a split, a merge or a hop.
pub(crate) fn at_rest<F: NodeFormat<Key8>>(end: &End<'_>, format: &F) -> Result<(), String> {
    let mut at = first_leaf(end)?.unwrap_or(RemotePtr::NULL);
    while !at.is_null() {
        let header = format.accept(end.bytes(at, format.node_bytes() as u32));
        let header = header.map_err(|e| format!("leaf {at}: {e}"))?;
        if header.state != NodeState::Live {
            return Err(format!("leaf {at} is {:?}", header.state));
        }
        at = RemotePtr::from_raw(header.sibling);
    }
    Ok(())
}

/// Returns the stage that the split of the leaf with key 30 has reached. `held` tells whether the client that splits
/// holds a lock.
#[cfg(test)]
pub(super) fn stage(end: &End<'_>, held: bool) -> Result<&'static str, String> {
    let format = Slotted::tiny(8).expect("two entries fit");
    let mut at = first_leaf(end)?.ok_or("an empty tree")?;
    let left = loop {
        let (header, _) = node(end, &format, at)?;
        if header.fences.contains(&Key8(30)) {
            break header;
        }
        at = RemotePtr::from_raw(header.sibling);
    };
    let born = match left.sibling {
        0 => None,
        right => Some(node(end, &format, RemotePtr::from_raw(right))?.0.state == NodeState::Splitting),
    };
    let word = end.word(Superblock::ROOT_WORD);
    let (root, bytes) = node(end, &inner(), RemotePtr::from_raw(word & !63))?;
    let known = entries(&inner(), &root, &bytes)?.len() > 2;
    Ok(match (held, left.state, born) {
        (true, NodeState::Live, None) => "1 lock held, nothing to be seen",
        (false, NodeState::Live, None) => "0 lock free, nothing done",
        (_, NodeState::Splitting, Some(true)) => "2 linked, right node not live",
        (_, NodeState::Splitting, Some(false)) => "3 linked, right node live",
        (true, NodeState::Live, Some(false)) if known => "7 done, the parent's lock held",
        (true, NodeState::Live, Some(true)) => "4 left node live, right node not",
        (true, NodeState::Live, Some(false)) => "5 split, a lock held",
        (false, NodeState::Live, Some(false)) if known => "8 done",
        (false, NodeState::Live, Some(false)) => "6 split, the parent does not know",
        other => return Err(format!("{other:?}")),
    })
}

/// Checks `contents` against the script. A key that no client writes must be as it was loaded. A key with one writer
/// must be as this writer left it, if the writer has finished and none of its chains has failed. Any other key must be
/// present if it is in the script's `always`.
pub(crate) fn as_written(end: &End<'_>, script: &Script, contents: &[(u64, u64)]) -> Result<(), String> {
    let now = |key| contents.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
    let keys = script.clients.iter().flat_map(|(_, does)| *does);
    for key in keys.filter_map(Do::written_key).chain(script.present()) {
        let writers: Vec<usize> = (0..script.clients.len())
            .filter(|&c| script.clients[c].1.iter().any(|d| d.written_key() == Some(key)))
            .collect();
        let at_first = script.present().any(|k| k == key).then(|| loaded(key));
        match writers[..] {
            [] if now(key) == at_first => {}
            [one] if end.finished(one) && !end.outputs(one).contains(&FAILED) => {
                let left = left_by(one, script.clients[one].1, key, at_first);
                if now(key) != left {
                    return Err(format!(
                        "key {key}: {:?} instead of {left:?} in {contents:?}",
                        now(key)
                    ));
                }
            }
            [] => return Err(format!("nobody wrote {key}: {:?} in {contents:?}", now(key))),
            _ if script.always.contains(&key) && now(key).is_none() => {
                return Err(format!("{key} is lost: {contents:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the value of `key` after its only writer has finished.
fn left_by(client: usize, does: &[Do], key: u64, at_first: Option<u64>) -> Option<u64> {
    let mut value = at_first;
    for (number, what) in does.iter().enumerate() {
        let new = Some(written(key, Do::client_id(client), number));
        value = match *what {
            Do::Insert(k) if k == key => value.or(new),
            Do::Update(k) if k == key => value.and(new),
            Do::Upsert(k) if k == key => new,
            Do::Remove(k) if k == key => None,
            _ => value,
        };
    }
    value
}

impl Do {
    /// Returns the explorer's id of the client with this number.
    pub(crate) const fn client_id(number: usize) -> ClientId {
        ClientId(number as u16 + 1)
    }
}
