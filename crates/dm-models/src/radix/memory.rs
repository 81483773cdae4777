//! Reads the contents of a radix tree from memory at the end of a run.

use dm_alloc::Superblock;
use dm_explore::End;
use dm_layout::{Key8, NodeTypes, RadixNode, RadixSlot, SingleLeaf, SlotWord};
use dm_verbs::RemotePtr;

use crate::tree::world::number_of;

/// The bytes of a path, `None` for each byte that no header holds.
type Path = [Option<u8>];

/// Returns all entries in ascending order of keys.
///
/// Fails if a node or a leaf cannot be decoded, if a node does not store its whole prefix and clients do not skip
/// bytes, if the keys below a node differ in its prefix, or if a key or a key byte of a node occurs twice. Also fails
/// if a leaf is linked in a place where its key does not belong, if the link depth of a live leaf is too small, or if a
/// slot leads to a replaced leaf although all clients ran to their ends.
pub(crate) fn contents(end: &End<'_>, types: &NodeTypes, skips: bool) -> Result<Vec<(u64, u64)>, String> {
    let mut all = Vec::new();
    let root = RemotePtr::from_raw(end.word(Superblock::ROOT_WORD));
    visit(end, (types, skips), root, types.largest(), &[], &mut all)?;
    all.sort_unstable();
    match all.is_sorted_by(|a, b| a.0 < b.0) {
        true => Ok(all),
        false => Err(format!("a key occurs twice: {all:?}")),
    }
}

fn visit(
    end: &End<'_>,
    (types, skips): (&NodeTypes, bool),
    at: RemotePtr,
    node_type: u8,
    prefix: &Path,
    all: &mut Vec<(u64, u64)>,
) -> Result<(), String> {
    let bytes = end.bytes(at, types.bytes(node_type) as u32);
    let node = RadixNode::decode(bytes, types, node_type).map_err(|e| format!("node {at}: {e}"))?;
    let header = node.header();
    let skipped = usize::from(header.depth()).saturating_sub(prefix.len());
    if skipped > 0 && !skips {
        return Err(format!("node {at} does not store its prefix behind {prefix:?}"));
    }
    let mut prefix = [prefix, &vec![None; skipped]].concat();
    let partial = header.partial_from(prefix.len() as u8).unwrap_or(&[]);
    prefix.extend(partial.iter().copied().map(Some));
    let first = all.len();
    let mut seen = Vec::new();
    for word in node.words().filter(|w| !w.is_empty()) {
        if seen.contains(&word.partial()) {
            return Err(format!("node {at} has two slots for byte {:#x}", word.partial()));
        }
        seen.push(word.partial());
        let below = [&prefix[..], &[Some(word.partial())]].concat();
        match word.decode().map_err(|e| format!("node {at}: {e}"))? {
            RadixSlot::Empty | RadixSlot::Removed { .. } => {}
            RadixSlot::Inner { at, node_type, .. } => {
                visit(
                    end,
                    (types, skips),
                    RemotePtr::from_raw(at),
                    node_type,
                    &below,
                    all,
                )?;
            }
            RadixSlot::Leaf { .. } => entry(end, word, &below, header.branch(), all)?,
        }
    }
    let mut prefixes = all[first..].iter().map(|(key, _)| {
        let bytes = key.to_be_bytes();
        bytes[..usize::from(header.branch())].to_vec()
    });
    let one = prefixes.next();
    match prefixes.all(|prefix| Some(prefix) == one) {
        true => Ok(()),
        false => Err(format!(
            "keys below node {at} differ in its prefix: {:?}",
            &all[first..]
        )),
    }
}

fn entry(
    end: &End<'_>,
    word: SlotWord,
    prefix: &Path,
    branch: u8,
    all: &mut Vec<(u64, u64)>,
) -> Result<(), String> {
    let layout = SingleLeaf::<Key8>::new(8).expect("small");
    let at = RemotePtr::from_raw(word.pointer());
    let bytes = end.bytes(at, layout.read_bytes() as u32);
    let leaf = layout.open(bytes).map_err(|e| format!("leaf {at}: {e}"))?;
    let bytes = leaf.key.0.to_be_bytes();
    let differs = |(path, byte): (&Option<u8>, &u8)| path.is_some_and(|path| path != *byte);
    if prefix.iter().zip(&bytes).any(differs) {
        return Err(format!("leaf {at} of {:?} hangs below {prefix:?}", leaf.key));
    }
    if let Some(next) = leaf.next {
        if end.all_finished() {
            return Err(format!(
                "a slot of byte {branch} leads to leaf {at}, which was replaced"
            ));
        }
        // Only a leaf to which a slot leads must have a large enough link depth.
        let next = RemotePtr::from_raw(next);
        let bytes = end.bytes(next, layout.read_bytes() as u32);
        let leaf = layout.open(bytes).map_err(|e| format!("leaf {next}: {e}"))?;
        if leaf.live {
            all.push((leaf.key.0, number_of(leaf.value)));
        }
        return Ok(());
    }
    if leaf.live {
        if leaf.depth < u64::from(branch) {
            return Err(format!(
                "leaf {at} hangs at byte {branch}, but its link depth is {}",
                leaf.depth
            ));
        }
        all.push((leaf.key.0, number_of(leaf.value)));
    }
    Ok(())
}
