//! A survey of a whole index: what a check found in its nodes.

use core::fmt;
use std::collections::{HashMap, HashSet};

use dm_layout::{Corrupt, KeyBytes};
use dm_verbs::{Place, RemotePtr, VerbError, VerbErrorKind, Verbs};

use crate::{IndexError, Inner, NodeAccess, NodeCopy, Restructure, Tended};

/// The state of a node, as one READ shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Live, with consistent bytes.
    Live,
    /// Removed from the index.
    Dead,
    /// The left half of an unfinished split.
    Splitting,
    /// The right half of a split, or a new root, that was never made live.
    Unborn,
    /// Part of an unfinished merge, or a radix node that is being replaced.
    Frozen,
    /// The bytes are from two WRITEs.
    Torn,
    /// The bytes are not a node of this kind.
    Corrupt(Corrupt),
    /// The pool has no memory at the address.
    Nowhere,
}

impl Condition {
    /// Returns whether another client may have left the node unfinished.
    pub const fn is_unfinished(self) -> bool {
        matches!(self, Self::Splitting | Self::Unborn | Self::Frozen | Self::Torn)
    }
}

/// A node, as [`Restructure::inspect`] found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inspected {
    /// The node's state.
    pub condition: Condition,
    /// Whether a client holds the node's lock. This is `false` if the node is live or there is no memory at the
    /// address, because then the lock is not read.
    pub held: bool,
    /// Number of entries that the fence keys do not enclose, although no split or merge is in progress.
    pub strays: usize,
    /// A hash of the node's bytes.
    pub image: u64,
}

impl Inspected {
    /// The result for an address at which there is no memory.
    pub const NOWHERE: Self = Self {
        condition: Condition::Nowhere,
        held: false,
        strays: 0,
        image: 0,
    };
}

/// Returns whether a READ failed because the pointer was damaged: it leads beyond the memory of its memory node, is not
/// aligned, or names a memory node that does not exist.
pub const fn is_nowhere(e: &VerbError) -> bool {
    matches!(
        e.kind,
        VerbErrorKind::NoSuchNode | VerbErrorKind::OutOfBounds { .. } | VerbErrorKind::Misaligned
    )
}

/// A fault that a check can find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Flaw {
    /// The bytes are not a node of the expected kind.
    Corrupt(Corrupt),
    /// A pointer leads to this address, where the pool has no memory.
    Nowhere,
    /// The bytes are from two WRITEs and do not change, so no reader can use them.
    Torn,
    /// A pointer leads to a dead node.
    Dead,
    /// A split, a merge, a replacement or a new root was begun and not finished, and no client holds the lock.
    Unfinished(Condition),
    /// The node is not on the level to which the pointer should lead.
    Level {
        /// The level in the node's header.
        found: u8,
    },
    /// The node does not begin at the key at which its left neighbour ends.
    LowFence,
    /// The node does not end at a key above its low fence key.
    HighFence,
    /// The node has a high fence key, but no sibling.
    NoSibling,
    /// A parent leads to the node, but no sibling pointer does.
    NotASibling,
    /// The parent's separator is not the node's low fence key.
    Separator,
    /// The pointers lead back to a node that was visited before.
    Cycle,
    /// The node has entries that its fence keys do not enclose.
    Strays,
    /// The key of a leaf, or the prefix of a radix node, does not belong to the path on which it was found.
    Path,
    /// A value is not a reference to an item.
    Reference(Corrupt),
    /// A client of a member that is gone holds this lock.
    LockOfGone {
        /// The client that took the lock.
        client: u16,
        /// The number of the member.
        member: u16,
    },
    /// The lock word shows that a change under it may have failed midway.
    InDoubt,
}

impl Flaw {
    /// Returns the name of this kind of fault, as it appears in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Corrupt(_) => "corrupt",
            Self::Nowhere => "nowhere",
            Self::Torn => "torn",
            Self::Dead => "dead",
            Self::Unfinished(_) => "unfinished",
            Self::Level { .. } => "level",
            Self::LowFence => "low-fence",
            Self::HighFence => "high-fence",
            Self::NoSibling => "no-sibling",
            Self::NotASibling => "not-a-sibling",
            Self::Separator => "separator",
            Self::Cycle => "cycle",
            Self::Strays => "strays",
            Self::Path => "path",
            Self::Reference(_) => "reference",
            Self::LockOfGone { .. } => "lock-of-gone",
            Self::InDoubt => "in-doubt",
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(what) => write!(f, "not a node of the expected kind: {what}"),
            Self::Nowhere => f.write_str("a pointer leads here, where the pool has no memory"),
            Self::Torn => f.write_str("torn: its bytes are from two WRITEs"),
            Self::Dead => f.write_str("the node is dead, but a pointer leads to it"),
            Self::Unfinished(Condition::Splitting) => f.write_str("a split was not finished"),
            Self::Unfinished(Condition::Unborn) => f.write_str("the node was never made live"),
            Self::Unfinished(_) => f.write_str("frozen: a merge or a replacement was not finished"),
            Self::Level { found } => write!(
                f,
                "the node has level {found}, but a pointer leads to it as to another level"
            ),
            Self::LowFence => f.write_str("the node does not begin where its left neighbour ends"),
            Self::HighFence => f.write_str("the node does not end above its low fence key"),
            Self::NoSibling => f.write_str("the node has a high fence key, but no sibling"),
            Self::NotASibling => f.write_str("a parent leads to the node, but no sibling pointer does"),
            Self::Separator => f.write_str("the parent's separator is not the node's low fence key"),
            Self::Cycle => f.write_str("pointers lead back to the node"),
            Self::Strays => f.write_str("the node has entries that its fence keys do not enclose"),
            Self::Path => f.write_str("the key does not belong to the path that leads to it"),
            Self::Reference(what) => write!(f, "a value is not a reference to an item: {what}"),
            Self::LockOfGone { client, member } => {
                write!(
                    f,
                    "the lock is held by client {client} of member {member}, which is gone"
                )
            }
            Self::InDoubt => f.write_str("the lock word is in doubt"),
        }
    }
}

/// A fault and its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The address of the node, or of the lock word.
    pub at: Place,
    /// The fault.
    pub flaw: Flaw,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.flaw)
    }
}

/// The nodes of one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LevelCount {
    /// Number of nodes.
    pub nodes: u64,
    /// Number of their entries: keys, or children.
    pub entries: u64,
    /// Bytes of the nodes.
    pub bytes: u64,
}

/// Decodes a value that refers to a block. Returns the address and the bytes of the block.
pub type Referred = fn(value: &[u8]) -> Result<(RemotePtr, u64), Corrupt>;

/// The results of one walk over an index. Each part of the index adds the nodes that it visits.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Nodes by level, from the leaves on.
    pub levels: Vec<LevelCount>,
    /// Number of keys.
    pub keys: u64,
    /// Number of leaves that hold a removed key and are still linked. Readers treat the key as absent.
    pub removed: u64,
    /// Number of nodes that a sibling pointer leads to, and that have no entry in the inner structure. A client that
    /// dies between a split and the entry of the new node leaves such a node. Operations reach it with one more step.
    pub unlisted: u64,
    /// Number of hints that lead to no leaf, or to a leaf that does not begin at the hint's key.
    pub stale_hints: u64,
    /// Bytes of the blocks to which values refer.
    pub item_bytes: u64,
    /// The place and the value of each lock word that is inside a node and held or in doubt, and whether the node's
    /// bytes are consistent.
    pub words: Vec<(Place, u64, bool)>,
    /// Faults, each with a hash of the bytes that show it. If the hash changes, another client was changing these
    /// bytes.
    pub faults: Vec<(Finding, u64)>,
    /// Number of nodes that a client was changing.
    pub in_change: u64,
    /// Number of the nodes in `in_change` whose successors the walk may have missed.
    pub unread: u64,
    /// Number of nodes that this walk has found unfinished, and that have been finished then, by this client or by
    /// another one.
    pub mended: u64,
    /// The addresses of all blocks that the walk has reached, if it records them.
    pub reached: Option<Vec<RemotePtr>>,
    mends: bool,
    referred: Option<Referred>,
}

impl Survey {
    /// Makes an empty survey. With `mends`, the walk finishes what other clients have left unfinished. If values refer
    /// to blocks, `referred` must decode these references.
    pub const fn new(mends: bool, referred: Option<Referred>) -> Self {
        Self {
            levels: Vec::new(),
            keys: 0,
            removed: 0,
            unlisted: 0,
            stale_hints: 0,
            item_bytes: 0,
            words: Vec::new(),
            faults: Vec::new(),
            in_change: 0,
            unread: 0,
            mended: 0,
            reached: None,
            mends,
            referred,
        }
    }

    /// Returns this survey with a record of the blocks that the walk reaches.
    #[must_use]
    pub fn recording(self) -> Self {
        Self {
            reached: Some(Vec::new()),
            ..self
        }
    }

    /// Makes an empty survey of an inner structure of the same index. See [`Survey::include`].
    #[must_use]
    pub fn of_inner(&self) -> Self {
        let inner = Self::new(self.mends, None);
        match self.reached {
            Some(_) => inner.recording(),
            None => inner,
        }
    }

    /// Returns whether the walk finishes what other clients have left unfinished.
    pub const fn mends(&self) -> bool {
        self.mends
    }

    /// Records a fault. `image` is a hash of the bytes that show it.
    pub fn fault(&mut self, at: impl Into<Place>, flaw: Flaw, image: u64) {
        let finding = Finding { at: at.into(), flaw };
        if !self.faults.iter().any(|(known, _)| *known == finding) {
            self.faults.push((finding, image));
        }
    }

    /// Records that this walk does not reach all nodes that are in use.
    pub fn misses_nodes(&mut self) {
        self.reached = None;
    }

    fn reach(&mut self, block: RemotePtr) {
        if let Some(reached) = &mut self.reached {
            reached.push(block);
        }
    }

    /// Counts a node, whose block begins at `at`.
    pub fn count(&mut self, at: RemotePtr, level: u8, entries: usize, bytes: u64) {
        self.reach(at);
        let level = usize::from(level);
        if self.levels.len() <= level {
            self.levels.resize(level + 1, LevelCount::default());
        }
        let count = &mut self.levels[level];
        count.nodes += 1;
        count.entries += entries as u64;
        count.bytes += bytes;
    }

    /// Counts a key of the leaf at `at`, and the block to which its value refers.
    pub fn key(&mut self, at: RemotePtr, value: &[u8], image: u64) {
        self.keys += 1;
        match self.referred.map(|referred| referred(value)) {
            None => {}
            Some(Ok((block, bytes))) => {
                self.reach(block);
                self.item_bytes += bytes;
            }
            Some(Err(what)) => self.fault(at, Flaw::Reference(what), image),
        }
    }

    /// Adds the survey of an inner structure, whose lowest level is `above` levels above the leaves. Its keys and item
    /// bytes are not added, because the entries of an inner structure are not entries of the index.
    pub fn include(&mut self, other: Self, above: usize) {
        for (i, level) in other.levels.into_iter().enumerate() {
            let i = i + above;
            if self.levels.len() <= i {
                self.levels.resize(i + 1, LevelCount::default());
            }
            self.levels[i].nodes += level.nodes;
            self.levels[i].entries += level.entries;
            self.levels[i].bytes += level.bytes;
        }
        match (&mut self.reached, other.reached) {
            (Some(reached), Some(others)) => reached.extend(others),
            _ => self.misses_nodes(),
        }
        self.removed += other.removed;
        self.unlisted += other.unlisted;
        self.stale_hints += other.stale_hints;
        self.words.extend(other.words);
        self.faults.extend(other.faults);
        self.in_change += other.in_change;
        self.unread += other.unread;
        self.mended += other.mended;
    }

    /// Returns the bytes of all blocks that the walk has reached.
    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum::<u64>() + self.item_bytes
    }

    /// Records a fault of the node, or that a client is changing it. Returns whether the node can be used.
    fn judge(&mut self, at: RemotePtr, level: u8, seen: &Inspected, found: u8) -> bool {
        let flaw = match seen.condition {
            Condition::Live if found != level => Flaw::Level { found },
            Condition::Live if seen.strays > 0 => Flaw::Strays,
            Condition::Live => return true,
            Condition::Corrupt(what) => {
                self.fault(at, Flaw::Corrupt(what), seen.image);
                return false;
            }
            Condition::Nowhere => {
                self.fault(at, Flaw::Nowhere, seen.image);
                return false;
            }
            _ if seen.held => {
                self.in_change += 1;
                self.unread += u64::from(matches!(seen.condition, Condition::Dead | Condition::Torn));
                return seen.condition != Condition::Dead;
            }
            Condition::Dead => Flaw::Dead,
            Condition::Torn => Flaw::Torn,
            unfinished => Flaw::Unfinished(unfinished),
        };
        self.fault(at, flaw, seen.image);
        seen.condition != Condition::Dead && found == level
    }
}

/// The relation between the entries of an inner structure and the nodes of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listing {
    /// Each entry leads to a node of the level, and its key is the node's low fence key.
    Exact,
    /// All entries but the first are hints.
    Hints,
    /// The entries are not known.
    Unknown,
}

/// Visits the leaves of an index and counts their keys. `listed` has the leaves as the inner structure lists them. If
/// `listed` is empty, this visits nothing and calls [`Survey::misses_nodes`].
///
/// # Errors
/// Returns the same errors as [`survey_level`].
pub async fn survey_leaves<V: Verbs, K: KeyBytes, S: Restructure<V, K>>(
    v: &V,
    leaves: &S,
    (listed, listing): (&[(K, RemotePtr)], Listing),
    survey: &mut Survey,
) -> Result<(), IndexError> {
    let Some(&(_, first)) = listed.first() else {
        survey.misses_nodes();
        return Ok(());
    };
    survey_level(v, leaves, (0, first), (listed, listing), survey, count_keys).await
}

/// Counts the keys of a leaf.
pub(crate) fn count_keys<K: KeyBytes>(survey: &mut Survey, leaf: &NodeCopy<K>, image: u64) {
    for (_, value) in leaf.iter() {
        survey.key(leaf.at, value, image);
    }
}

/// Walks the nodes of a level along their sibling pointers, beginning with `first`, which must cover the smallest key.
/// Then compares them with `listed`: the low fence key and the address of each node, by ascending key, as the inner
/// structure has them. Where a sibling pointer cannot be followed, the walk continues at the next node of `listed`.
/// `each` receives each usable node that is not torn, and a hash of its bytes.
///
/// This takes one READ, and one round trip, for each live node. Other nodes may take more.
///
/// # Errors
/// Returns an error if a verb fails, unless it is a READ at an address without memory. Also returns an error if a mend
/// fails for another reason than corrupt bytes or a used-up retry budget. A node that stays corrupt, torn or unfinished
/// is not an error, but a fault in the survey.
pub async fn survey_level<V: Verbs, K: KeyBytes, S: Restructure<V, K>>(
    v: &V,
    nodes: &S,
    (level, first): (u8, RemotePtr),
    (listed, listing): (&[(K, RemotePtr)], Listing),
    survey: &mut Survey,
    mut each: impl FnMut(&mut Survey, &NodeCopy<K>, u64),
) -> Result<(), IndexError> {
    let mut copy = NodeCopy::new();
    // The low fence key of each node that was visited, and all addresses to which a pointer led.
    let (mut visited, mut tried) = (HashMap::new(), HashSet::new());
    let (mut next, mut expect) = (Some(first), K::MIN);
    while let Some(at) = next {
        tried.insert(at);
        let mut seen = nodes.inspect(v, at, &mut copy).await?;
        if survey.mends() && seen.condition.is_unfinished() {
            match nodes.tend(v, at).await {
                Ok(Tended::Sound) => {}
                Ok(Tended::Mended) => survey.mended += 1,
                // The inspection that follows reports the fault.
                Err(IndexError::Corrupt { .. } | IndexError::Exhausted(_)) => {}
                Err(e) => return Err(e),
            }
            seen = nodes.inspect(v, at, &mut copy).await?;
        }
        next = None;
        if survey.judge(at, level, &seen, copy.level) {
            if copy.fences.low != expect {
                survey.fault(at, Flaw::LowFence, seen.image);
            }
            visited.insert(at, copy.fences.low);
            survey.count(at, level, copy.entries.len(), u64::from(nodes.node_bytes()));
            if seen.condition != Condition::Torn {
                each(survey, &copy, seen.image);
            }
            match copy.fences.high {
                None => break,
                Some(high) if high <= copy.fences.low => survey.fault(at, Flaw::HighFence, seen.image),
                Some(high) => {
                    expect = high;
                    match copy.sibling {
                        sibling if sibling.is_null() => survey.fault(at, Flaw::NoSibling, seen.image),
                        sibling if tried.contains(&sibling) => survey.fault(sibling, Flaw::Cycle, seen.image),
                        sibling => next = Some(sibling),
                    }
                }
            }
        }
        if next.is_none() {
            // This node does not lead to the next one, so the walk continues at the next entry of the inner structure.
            let rest = |(low, node): &&(K, RemotePtr)| *low >= expect && !tried.contains(node);
            if let Some((low, node)) = listed.iter().find(rest) {
                (next, expect) = (Some(*node), *low);
            }
        }
    }
    if listing == Listing::Unknown {
        return Ok(());
    }
    let mut known = HashSet::new();
    for (i, (key, node)) in listed.iter().enumerate() {
        known.insert(*node);
        let flaw = match visited.get(node) {
            Some(low) if low == key => continue,
            Some(_) => Flaw::Separator,
            None => Flaw::NotASibling,
        };
        match i > 0 && listing == Listing::Hints {
            true => survey.stale_hints += 1,
            false => survey.fault(*node, flaw, 0),
        }
    }
    survey.unlisted += visited.keys().filter(|node| !known.contains(node)).count() as u64;
    Ok(())
}

/// Visits all nodes of an index that consists of this inner structure and these leaves, and adds what it finds to
/// `survey`.
///
/// # Errors
/// Returns the errors of [`Inner::survey`]. A corrupt node is not an error, but a fault in the survey.
pub async fn survey_index<V: Verbs, K: KeyBytes, I: Inner<V, K>, L: NodeAccess<V, K>>(
    v: &V,
    inner: &I,
    leaves: &L,
    survey: &mut Survey,
) -> Result<(), IndexError> {
    inner.survey(v, leaves.whole(), survey).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use dm_verbs::NodeId;

    #[test]
    fn the_survey_of_an_inner_structure_adds_everything_but_its_keys() {
        let at = |offset| RemotePtr::new(NodeId(0), offset).expect("in range");
        let mut whole = Survey::new(false, None).recording();
        whole.count(at(64), 0, 2, 1024);
        (whole.keys, whole.removed, whole.unlisted, whole.stale_hints) = (2, 1, 1, 1);
        let mut inner = whole.of_inner();
        inner.count(at(128), 0, 5, 64);
        (inner.keys, inner.removed, inner.unlisted, inner.stale_hints) = (5, 10, 20, 30);
        (inner.in_change, inner.unread, inner.mended) = (40, 50, 60);
        inner.fault(at(128), Flaw::Torn, 7);
        inner.words.push((at(192).into(), 9, true));
        whole.include(inner, 1);
        assert_eq!(
            whole.levels.iter().map(|level| level.nodes).collect::<Vec<_>>(),
            [1, 1]
        );
        assert_eq!((whole.keys, whole.bytes(), whole.item_bytes), (2, 1088, 0));
        assert_eq!((whole.removed, whole.unlisted, whole.stale_hints), (11, 21, 31));
        assert_eq!((whole.in_change, whole.unread, whole.mended), (40, 50, 60));
        assert_eq!((whole.faults.len(), whole.words.len()), (1, 1));
        assert_eq!(whole.reached, Some(vec![at(64), at(128)]));
    }
}
