//! Scripts of operations, and a Sherman tree of tiny nodes as their subject.

use dm_explore::{Elapsed, End, Knobs};
use dm_history::{KvMap, KvOp};
use dm_index::Key8;
use dm_verbs::ClientId;
use sherman::{LeafFormat, NodeSize, Options, ShermanParts};

use super::memory::{at_rest, contents};
use super::subject::SubjectParts;
use crate::Case;
use crate::crash::sweep::DOUBTED;

/// The specification: a map of numbers to numbers.
pub(crate) type Spec = KvMap<u64, u64>;

/// One operation of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Do {
    Get(u64),
    Insert(u64),
    Update(u64),
    Upsert(u64),
    Remove(u64),
    /// Scans all keys from this one on. The scan must return those of them that are in [`Script::always`], and no key
    /// twice or out of order.
    Scan(u64),
    /// Runs a housekeeping visit, which changes no entry ([`SubjectParts::visit`]).
    Visit,
}

/// The pool at the start, and the operations of all clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// Keys that are inserted before the start, in this order. Key k has the value `loaded(k)`.
    pub(crate) preload: &'static [u64],
    /// Keys that are removed again before the start.
    pub(crate) removed: &'static [u64],
    pub(crate) memory_nodes: u16,
    /// Whether memory node 0 has no room for another node, so that a split puts its new node on another memory node.
    pub(crate) first_is_full: bool,
    /// Compute nodes that start with an empty cache; the others have all inner nodes cached.
    pub(crate) cold: &'static [u16],
    /// The compute node and the operations of each client.
    pub(crate) clients: &'static [(u16, &'static [Do])],
    /// Keys that are present all the time. Every scan whose range contains them must return them.
    pub(crate) always: &'static [u64],
    /// Whether the last client starts only after another client has died. It frees the dead client's locks before its
    /// operations.
    pub(crate) survivor: bool,
    /// Whether the client before the last one is a survivor of the first death, and the last one starts after a second
    /// death, which may be that of the first survivor.
    pub(crate) second_survivor: bool,
    /// The bits that the sweep adds to the payload of the words that it frees.
    pub(crate) doubt: u32,
}

impl Script {
    pub(crate) const EMPTY: Self = Self {
        preload: &[],
        removed: &[],
        memory_nodes: 1,
        first_is_full: false,
        cold: &[],
        clients: &[],
        always: &[],
        survivor: false,
        second_survivor: false,
        doubt: DOUBTED,
    };
}

/// Returns the value of a loaded key.
pub(crate) const fn loaded(key: u64) -> u64 {
    key * 1000
}

/// Returns the value that a write stores. It is unique for the key, the client and the number of the operation.
pub(crate) const fn written(key: u64, ClientId(client): ClientId, number: usize) -> u64 {
    loaded(key) + client as u64 * 10 + number as u64
}

impl<F: LeafFormat<Key8>> SubjectParts for ShermanParts<Key8, F> {
    fn sound(options: Options) -> Options {
        options
    }

    fn contents(end: &End<'_>, _: &Options) -> Result<Vec<(u64, u64)>, String> {
        contents::<F>(end)
    }

    fn at_rest(end: &End<'_>, _: &Options) -> Result<(), String> {
        at_rest(end, &F::of(options().node, 8).expect("entries fit"))
    }
}

/// Number of locks of each memory node.
pub(crate) const LOCKS: u32 = 16;

/// Returns options with 2 lines and 3 entries per node and 16 locks per memory node.
pub(crate) const fn options() -> Options {
    Options {
        node: NodeSize::Span(3),
        locks_per_node: LOCKS,
        chunk_bytes: 4096,
        cache_bytes: 1 << 20,
        // Reclamation has its own models.
        members: 0,
        ..Options::new(8)
    }
}

/// Returns the same knobs, but under them no time limit is ever reached. Version windows have their own models.
pub(crate) fn timeless(knobs: Knobs) -> Knobs {
    Knobs {
        elapsed: Elapsed::Never,
        ..knobs
    }
}

impl Script {
    /// Returns the keys that are present at the start.
    pub(crate) fn present(self) -> impl Iterator<Item = u64> {
        let keys = self.preload.iter().copied();
        keys.filter(move |k| !self.removed.contains(k))
    }
}

/// Host memory of a memory node, in bytes.
pub(crate) const MEMORY: u64 = 64 << 10;
/// A limit for scans that is greater than the number of keys.
pub(crate) const LIMIT: usize = 64;

impl Do {
    /// Returns the key that the operation may change.
    pub(crate) fn written_key(&self) -> Option<u64> {
        match *self {
            Self::Insert(key) | Self::Update(key) | Self::Upsert(key) | Self::Remove(key) => Some(key),
            Self::Get(_) | Self::Scan(_) | Self::Visit => None,
        }
    }

    pub(crate) fn op(self, client: ClientId, number: usize) -> Option<KvOp<u64, u64>> {
        let value = |key| written(key, client, number);
        Some(match self {
            Self::Get(key) => KvOp::Get(key),
            Self::Insert(key) => KvOp::Insert(key, value(key)),
            Self::Update(key) => KvOp::Update(key, value(key)),
            Self::Upsert(key) => KvOp::Upsert(key, value(key)),
            Self::Remove(key) => KvOp::Remove(key),
            Self::Scan(_) | Self::Visit => return None,
        })
    }
}

pub(crate) fn number_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |b| u64::from_le_bytes(*b))
}

/// A name and its script.
pub(crate) type Shape = (&'static str, Script);

pub(crate) const fn with(script: Script, clients: &'static [(u16, &'static [Do])]) -> Script {
    Script { clients, ..script }
}

pub(crate) const fn cold(script: Script, cold: &'static [u16]) -> Script {
    Script { cold, ..script }
}

/// Returns the knobs of a weak card and of a declared card. No time limit is ever reached under them.
pub(crate) fn plain() -> [Knobs; 2] {
    [timeless(Knobs::weak()), timeless(Knobs::declared())]
}

/// Returns a case for each shape under each of [`plain`]; all must hold.
pub(crate) fn holds(shapes: &'static [Shape]) -> Vec<Case> {
    holds_under(shapes, |k| k)
}

/// Does the same as [`holds`], with the faults that `faults` adds.
pub(crate) fn holds_under(shapes: &'static [Shape], faults: fn(Knobs) -> Knobs) -> Vec<Case> {
    let each = |&(shape, _): &Shape| plain().map(|k| Case::holds(shape, faults(k)));
    shapes.iter().flat_map(each).collect()
}

/// Returns the script with this name.
pub(crate) fn script(shapes: &[Shape], name: &str) -> Script {
    let found = shapes.iter().find(|(shape, _)| *shape == name);
    found.unwrap_or_else(|| unreachable!("no such shape: {name}")).1
}
